"""Old jobs run again, with real processes: resumed from their last commit, repeated from their sealed record."""

from __future__ import annotations

import json
import shutil

import pytest
from process.scripts import COUNT
from process.world import World, steps, world_in

from trainmaster.spec import layout

pytestmark = pytest.mark.process

SAYS = """
import os, sys
print(sys.argv[1:], os.environ["TM_SEED"], os.environ.get("MINE"), flush=True)
"""


#: Saves a file that never changes beside the one that does.
COUNT_BESIDE = (
    """
import os
fixed = os.path.join(os.environ["TM_CHECKPOINT_DIR"], "fixed")
if not os.path.exists(fixed):
    open(fixed, "w").write("for good")
"""
    + COUNT
)


def stopped_at(world: World, step: int, **fields) -> str:
    """A job that was stopped after it had committed this step."""
    world.open_gate(step)
    job = world.submit(world.job_file(COUNT_BESIDE, arguments=["9"], **fields))
    world.until_committed(job, str(step))
    world.cli("stop", job, "--wait")
    return job


def test_a_stopped_job_goes_on_from_its_last_commit_with_new_budgets(world):
    old = stopped_at(world, 2)
    before, sealed = world.record(old), (world.store / layout.record(old)).read_bytes()
    new = world.json("resume", old, "--detach", "--failures", "1")
    assert new["continues"]["job"] == old
    assert (new["spec"]["retry"]["failures"], new["seed"]) == (1, before["seed"])
    world.until_attempt(new["id"], 1)
    assert "restored 2" in world.log(new["id"])
    # Before it has committed anything itself, its runner dies: the old job's work is restored once more.
    world.kill(world.runner_pid(new["id"]))
    world.until_attempt(new["id"], 2)
    assert "restored 2" in world.log(new["id"], 2)
    # From its own first commit on, its own work counts, though the two have the same name.
    world.open_gate(4)
    world.until_committed(new["id"], "4")
    world.until("its log is in the store", lambda: steps(world.log(new["id"], 2)) == [3, 4])
    world.kill(world.runner_pid(new["id"], 2))
    world.until_attempt(new["id"], 3)
    assert "restored 4" in world.log(new["id"], 3)
    # Its commits need nothing of the old job's.
    shutil.rmtree(world.store / layout.checkpoints(old))
    world.kill(world.runner_pid(new["id"], 3))
    world.until_attempt(new["id"], 4)
    world.open_gate(9)
    assert world.wait(new["id"])["outcome"] == "succeeded"
    assert [steps(world.log(new["id"], number)) for number in (1, 2, 3, 4)] == [[], [3, 4], [], [5, 6, 7, 8, 9]]
    assert (world.record(old), (world.store / layout.record(old)).read_bytes()) == (before, sealed)
    said = [line["sentence"] for line in world.story(new["id"])]
    assert f"resumed {old}" in said[0]
    assert any(f"of job {old}" in sentence for sentence in said)
    assert f"goes on from  {old}, checkpoint" in world.cli("show", new["id"]).stdout.decode()


def test_a_job_that_failed_goes_on_too_and_a_chain_keeps_the_first_ones_work(world):
    world.open_gate(2)
    old = world.submit(world.job_file(COUNT, arguments=["9"]))
    world.until_committed(old, "2")
    world.kill(world.script_pid(old))
    assert world.wait(old, expect=1)["outcome"] == "failed"
    second = world.json("resume", old, "--detach")["id"]
    world.until_attempt(second, 1)
    assert f"{old} goes on as {second} already" in world.cli("resume", old, expect=2).stderr.decode()
    world.cli("stop", second, "--wait")
    assert world.commits(second) == []
    world.open_gate(9)
    third = world.json("resume", second)
    assert (third["continues"]["job"], third["continues"]["checkpoint_of"]) == (second, old)
    assert steps(world.log(third["id"])) == [3, 4, 5, 6, 7, 8, 9]


def test_a_damaged_inherited_checkpoint_is_stood_in_for(world):
    world.open_gate(1)
    old = world.submit(world.job_file(COUNT, arguments=["9"]))
    world.until_committed(old, "1")
    world.open_gate(2)
    world.until_committed(old, "2")
    world.cli("stop", old, "--wait")
    newest = world.commits(old)[-1]["id"]
    (world.store / layout.checkpoint_file(old, newest, "state")).write_text("9")
    world.open_gate(9)
    new = world.json("resume", old)
    assert steps(world.log(new["id"])) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_what_cannot_go_on_is_refused_in_a_sentence(world):
    good = world.submit(world.job_file("print(1)"))
    world.wait(good)
    assert b"succeeded: there is nothing left to do" in world.cli("resume", good, expect=2).stderr
    running = world.submit(world.job_file(COUNT, arguments=["1"], name="running"))
    world.until_attempt(running, 1)
    assert b"has not finished: it is running" in world.cli("resume", running, expect=2).stderr
    assert b"no job is called" in world.cli("resume", "nobody", expect=2).stderr
    world.cli("stop", running, "--wait")
    shutil.rmtree(world.store / "code")
    assert b"is not in the store" in world.cli("resume", running, expect=2).stderr
    assert b"is not in the store" in world.cli("rerun", good, expect=2).stderr
    assert len(world.ids()) == 2


def test_rerun_repeats_with_the_same_seed_and_parameters(world):
    file = world.job_file(SAYS, hyperparameters={"lr": 0.1, "bs": 32}, env={"MINE": "1"})
    old = world.json("run", file)
    world.write("job.py", "raise SystemExit('the folder has changed')")
    new = world.json("rerun", old["id"])
    assert (new["reruns"], new["seed"], new["code"]) == (old["id"], old["seed"], old["code"])
    assert world.log(new["id"]) == world.log(old["id"])
    changed = world.json("rerun", new["id"], "--set", "hp.lr=0.2", "--set", "env.MINE=2", "--set", "seed=5", "--name", "other")
    assert world.log(changed["id"]).split("] ")[1] == "5 2\n"
    assert "'--lr', '0.2'" in world.log(changed["id"])
    assert changed["spec"]["name"] == "other"
    found = {d["what"]: (d["one"], d["other"]) for d in world.json("diff", old["id"], changed["id"])["differences"]}
    assert (found["hp.lr"], found["env.MINE"]) == (("0.1", "0.2"), ("1", "2"))
    assert found["seed"] == (str(old["seed"]), "5")
    count = len(world.ids())
    for word, says in (("hp", "PATH=VALUE"), ("retry.failure=1", "did you mean `failures`?"), ("command=x", "exactly one")):
        assert says in world.cli("rerun", old["id"], "--set", word, expect=2).stderr.decode()
    assert len(world.ids()) == count


LISTS = """
import os
print(sorted(os.listdir(os.environ["SM_CHANNEL_X"])), flush=True)
"""


def test_what_rerun_changes_is_looked_at_as_when_it_is_submitted(world):
    (world.source / "data").mkdir()
    (world.source / "other").mkdir()
    world.write("data/one", "1")
    world.write("other/two", "2")
    world.write("known.txt", "")
    old = world.json("run", world.job_file(LISTS, inputs={"x": "data"}))
    assert world.log(old["id"]) == "['one']\n"
    new = world.json("rerun", old["id"], "--set", "inputs.x=./other")
    assert new["spec"]["inputs"]["x"] == str(world.source / "other")
    assert world.log(new["id"]) == "['two']\n"
    world.write("later.txt", "")  # is not in the snapshot
    count = len(world.ids())
    for word, says in (
        ("inputs.x=./nothing", "inputs.x: "),
        ("environment.wheels=dist", "environment.wheels: cannot be changed"),
        ("environment.requirements=later.txt", "environment.requirements: later.txt "),
        ("environment={requirements: [a], index: 'https://${NOT_SET}@example.org'}", "environment.index: NOT_SET is not set here"),
        ("environment.python=2.3", "environment.python: "),
    ):
        said = " ".join(world.cli("rerun", old["id"], "--set", word, expect=2).stderr.decode().split())
        assert says in said
    assert len(world.ids()) == count


@pytest.fixture
def elsewhere(tmp_path):
    yield from world_in(tmp_path / "elsewhere")


def test_rerun_and_resume_from_another_home_that_has_only_the_bucket(world, elsewhere):
    bucket = str(world.folder / "bucket")
    for home in (world, elsewhere):
        home.environ["TRAINMASTER_STORE"] = bucket
        home.store = world.folder / "bucket"
    elsewhere.environ["GATE"] = world.environ["GATE"]
    old = world.json("run", world.job_file(SAYS, hyperparameters={"lr": 0.1}, name="says"))
    early = stopped_at(world, 2)
    running = world.submit(world.job_file(COUNT, arguments=["9"], name="running"))
    world.until_attempt(running, 1)
    assert b"has not finished" in elsewhere.cli("rerun", running, expect=2).stderr
    world.cli("stop", running, "--wait")
    world.until("nobody drives", lambda: not world.ours())
    shutil.rmtree(world.home)
    shutil.rmtree(world.source)
    new = elsewhere.json("rerun", old["id"], "--set", "hp.lr=0.2")
    assert (new["outcome"], new["seed"]) == ("succeeded", old["seed"])
    assert "'--lr', '0.2'" in elsewhere.log(new["id"])
    world.open_gate(9)
    gone_on = elsewhere.json("resume", early)
    assert steps(elsewhere.log(gone_on["id"])) == [3, 4, 5, 6, 7, 8, 9]
    assert b"no job is called" in elsewhere.cli("rerun", "../x", expect=2).stderr


def test_in_place_the_folder_is_used_as_it_is_now(world):
    file = world.job_file("print('before')")
    old = world.json("run", file, "--in-place")
    world.write("job.py", "print('after')")
    done = world.cli("rerun", old["id"], "--json")
    assert b"as that folder is now" in done.stderr
    assert world.log(json.loads(done.stdout)["id"]) == "after\n"


def test_the_machine_is_part_of_the_record(world):
    job = world.json("run", world.job_file("print(1)"))
    machine = job["attempts"][0]["machine"]
    assert machine["host"]
    assert machine["cpu"]
    assert machine["cpus"] >= 1
    assert machine["memory"] > 2**27
    shown = world.cli("show", job["id"]).stdout.decode().splitlines()
    assert any(line.startswith("machine") and machine["host"] in line for line in shown)
