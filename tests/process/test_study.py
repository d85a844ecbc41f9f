"""A study with real processes: all of it or nothing, so many at a time, stopped and resumed as a whole."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest
from process.scripts import COUNT
from process.world import steps

from trainmaster.adapters import host

pytestmark = pytest.mark.process

#: Counts to its own hyperparameter.
COUNT_TO = COUNT.replace("int(sys.argv[1])", 'int(os.environ["SM_HP_LAST"])')

SAYS = """
import os
print(os.environ["SM_HPS"], os.environ["TM_SEED"], os.environ["MINE"], flush=True)
"""

NOTED = """
import os, time
def note(word):
    with open(os.path.dirname(os.environ["GATE"]) + "/notes", "a") as file:
        file.write(f"{word}\\n")
note("begin")
time.sleep(0.1)
note("end")
"""


def children(world, study: str) -> list[dict]:
    return world.json("show", study)["jobs"]


def studies(world) -> list[str]:
    return [row[0] for row in world._query("SELECT id FROM studies")]


def test_every_combination_is_a_job_and_all_share_one_snapshot(world):
    world.environ["MINE"] = "kept"
    file = world.job_file(SAYS, name="sweep", hyperparameters={"base": 1})
    found = world.json("study", file, "--grid", "lr=0.1,0.01", "--grid", "opt=sgd,adam")
    assert (found["state"], found["tally"]) == ("succeeded", {"succeeded": 4})
    jobs = found["jobs"]
    assert [job["spec"]["name"] for job in jobs] == ["sweep-1", "sweep-2", "sweep-3", "sweep-4"]
    assert [job["study"]["index"] for job in jobs] == [1, 2, 3, 4]
    assert len(list((world.store / "code").iterdir())) == 1
    tried = []
    for job in jobs:
        words = world.log(job["id"]).split()
        assert words[1:] == [str(job["seed"]), "kept"]
        tried.append(json.loads(words[0]))
    assert tried == [{"base": 1, "lr": lr, "opt": opt} for lr in (0.1, 0.01) for opt in ("sgd", "adam")]
    assert len({job["seed"] for job in jobs}) == 4
    assert list((world.home / "environments").iterdir()) == [], "nothing of the submitter's environment is left"


def test_a_job_file_may_hold_the_grid(world):
    file = world.job_file(SAYS, name="sweep", env={"MINE": "x"}, study={"grid": {"lr": [1, 2]}, "max_parallel": 1}, seed=7)
    found = world.json("study", file, "--grid", "bs=3,4", "--max-parallel", "2")
    assert [(job["spec"]["hyperparameters"], job["seed"]) for job in found["jobs"]] == [
        ({"lr": lr, "bs": bs}, 7) for lr in (1, 2) for bs in (3, 4)
    ]
    assert found["study"]["spec"]["study"]["max_parallel"] == 2
    assert b"trainmaster study" in world.cli("submit", file, expect=2).stderr


def test_no_more_at_a_time_than_it_says(world):
    found = world.json("study", world.job_file(NOTED, name="sweep"), "--grid", "a=1,2,3,4,5", "--max-parallel", "2")
    assert found["state"] == "succeeded"
    running = most = 0
    for word in (world.folder / "notes").read_text().split():
        running += 1 if word == "begin" else -1
        most = max(most, running)
    assert most <= 2


#: What there is to see at each moment of a submission, in order.
MOMENTS = {
    "packing": lambda world: list((world.home / "packing").glob("*")),
    "code": lambda world: list((world.store / "code").glob("*")),
    "environment": lambda world: list((world.home / "environments").glob("*.json")),
    "database": studies,
}


def killed_at(world, moment: str, *words: str) -> bool:
    """Start a command and kill it at this moment; whether it was then, and not a moment later."""
    later = list(MOMENTS)[list(MOMENTS).index(moment) + 1 :]
    command = world.start(*words)
    while command.poll() is None and not MOMENTS[moment](world):
        pass
    world.kill(command.pid, number=signal.SIGSTOP)
    world.until("it stands still or is gone", lambda: host.process_state(command.pid) in {"T", "Z", "X", ""})
    is_then = command.poll() is None and bool(MOMENTS[moment](world)) and not any(MOMENTS[name](world) for name in later)
    world.kill(command.pid, *world.drivers())
    return is_then


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_it_is_submitted_it_exists_with_all_its_jobs_or_not_at_all(world, moment):
    file = world.job_file("print(1)", name="sweep")
    (world.source / "data").write_bytes(os.urandom(1 << 20) * 32)  # takes a while to pack
    world.cli("list")  # the database is there
    grid = ",".join(map(str, range(1500)))
    for _ in range(20):
        is_then = killed_at(world, moment, "study", file, "--grid", f"a={grid}", "--detach")
        count = len(world.ids())
        assert (len(studies(world)), count) in {(0, 0), (1, 1500)}
        if is_then:
            break
        if count:
            world.cli("stop", studies(world)[0], "--wait")
            world.cli("delete", "--yes", studies(world)[0], timeout_s=240)
        for folder in (world.home / "packing", world.store / "code", world.home / "environments"):
            shutil.rmtree(folder, ignore_errors=True)
    assert is_then, f"it was never killed at the moment of {moment}"
    assert count == (1500 if moment == "database" else 0)
    if count:
        assert len(world.json("stop", studies(world)[0], "--wait")) == 1500
    else:
        assert world.json("list") == []
        assert world.json("study", file, "--grid", "a=1")["state"] == "succeeded"


def test_stopped_and_resumed_as_a_whole(world):
    file = world.job_file(COUNT_TO, name="sweep")
    world.open_gate(2)
    study = world.json("study", file, "--grid", "last=1,4,5", "--detach")["study"]["id"]
    done, second, third = (f"{study}-{number}" for number in (1, 2, 3))
    for job in (second, third):
        world.until_committed(job, "2")
    world.until_finished(done)
    world.cli("stop", study, "--wait", "--why", "enough")
    before = {job: world.record(job) for job in (done, second, third)}
    assert [before[job]["outcome"] for job in before] == ["succeeded", "stopped", "stopped"]
    assert b"3: 1 succeeded, 2 stopped" in world.cli("show", study).stdout
    world.cli("wait", study, expect=3)
    world.open_gate(9)
    world.cli("resume", study)
    now = children(world, study)
    assert [(job["id"], job["outcome"]) for job in now] == [
        (done, "succeeded"),
        (f"{second}-r2", "succeeded"),
        (f"{third}-r2", "succeeded"),
    ]
    assert [steps(world.log(job["id"])) for job in now] == [[1], [3, 4], [3, 4, 5]]
    assert {job: world.record(job) for job in before} == before
    said = world.cli("resume", study, expect=2).stderr
    assert b"nothing left to do" in said


def test_one_of_its_jobs_resumed_alone_takes_its_place(world):
    file = world.job_file(COUNT_TO, name="sweep")
    world.open_gate(1)
    study = world.json("study", file, "--grid", "last=2,3", "--detach")["study"]["id"]
    world.until_committed(f"{study}-1", "1")
    world.cli("stop", f"{study}-1", "--wait")
    world.open_gate(9)
    new = world.json("resume", f"{study}-1")
    world.cli("wait", study)
    assert [job["id"] for job in children(world, study)] == [new["id"], f"{study}-2"]


def test_the_command_detaches_and_others_go_on(world):
    file = world.job_file(COUNT_TO, name="sweep")
    command = world.start("study", file, "--grid", "last=1,2")
    world.until("both run", lambda: len(world.ids()) == 2 and all(world.log(job) for job in world.ids()))
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130, world.output_of(command)
    assert "goes on" in world.output_of(command)
    world.open_gate(9)
    world.cli("wait", "sweep")
    assert {job["outcome"] for job in children(world, "sweep")} == {"succeeded"}


def test_killed_while_it_drives_the_next_command_goes_on(world):
    file = world.job_file(COUNT_TO, name="sweep")
    world.environ["TRAINMASTER_CPUS"] = "1"
    command = world.start("study", file, "--grid", "last=1,2,3")
    world.until("the first speaks", lambda: world.ids() and world.log(world.ids()[0]))
    world.kill(command.pid)
    world.open_gate(9)
    world.cli("wait", "sweep")
    assert [len(job["attempts"]) for job in children(world, "sweep")] == [1, 1, 1]


def test_list_folds_a_study_and_every_command_knows_it(world):
    file = world.job_file("import sys; sys.exit('3' in sys.argv)", name="sweep")
    alone = world.submit(world.job_file("print(1)", name="alone"))
    world.wait(alone)
    said = world.cli("study", file, "--grid", "a=1,2,3", expect=1)
    study = studies(world)[0]
    assert b"(3 of 3)" in said.stderr
    assert b"2 succeeded, 1 failed" in said.stdout
    rows = world.cli("list").stdout.decode().splitlines()[1:]
    assert [row.split()[0] for row in rows] == [study, alone]
    assert "study: 2 succeeded, 1 failed" in rows[0]
    rows = world.cli("list", "--study", "sweep").stdout.decode().splitlines()[1:]
    assert [row.split()[0] for row in rows] == [f"{study}-{number}" for number in (1, 2, 3)]
    assert len(world.json("compare", "--study", study)) == 3
    assert len(world.json("list")) == 4
    world.cli("wait", study, expect=1)
    assert b"is a study: name one of its jobs" in world.cli("logs", study, expect=2).stderr
    assert b"no study is called" in world.cli("list", "--study", "nobody", expect=2).stderr
    assert world.cli("stop", study).stdout.decode() == f"{study} has finished already\n"
    shown = world.cli("show", f"{study}-2").stdout.decode()
    assert f"number 2 of {study}" in shown
