"""How is a job named, and which exit code does which ending have?"""

from __future__ import annotations

import json

import pytest
from cli.terminal import run_cli
from process.scripts import COUNT

pytestmark = pytest.mark.process


def test_a_job_is_named_by_id_prefix_name_or_last(scene):
    def named(text):
        return scene.world.json("show", text)["job"]["id"]

    assert named(scene.bad) == scene.bad
    assert named(scene.bad[:-1]) == scene.bad
    assert named("ru") == scene.running
    assert named("good") == scene.again, "the newest of that name"
    assert named("last") == scene.queued


def test_what_could_be_several_or_none_is_refused(scene):
    answer = run_cli(scene.world, "show", "goo")
    assert answer.code == 2
    assert scene.good in answer.said
    assert scene.again in answer.said
    assert "give more letters of the id" in answer.said
    for text in ("nobody", "", "%", "_", "'", "\x01", scene.good + "x", "Good"):
        answer = run_cli(scene.world, "show", text)
        assert (answer.code, answer.out) == (2, ""), text
        assert "no job is called" in answer.said


def test_stop_refuses_all_before_it_stops_one(scene):
    assert run_cli(scene.world, "stop", scene.running, "nobody").code == 2
    assert "stop" not in scene.world.record(scene.running)
    assert scene.world.record(scene.running)["phase"] == "running"


@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [("", 0, "succeeded"), ("import sys; sys.exit(7)", 1, "failed"), ("import os; os.kill(os.getpid(), 9)", 1, "failed")],
)
def test_run_ends_as_the_job_does(world, text, code, outcome):
    world.write("train.py", text)
    answer = run_cli(world, "run", "train.py", "--json")
    assert answer.code == code
    assert json.loads(answer.out)["outcome"] == outcome
    assert run_cli(world, "wait", "last").code == code


def test_wait_for_several_answers_with_the_worst(world):
    good = world.submit(world.job_file("", name="good"))
    bad = world.submit(world.job_file("raise SystemExit(3)", name="bad"))
    answer = run_cli(world, "wait", good, bad, "--json")
    assert (answer.code, [record["outcome"] for record in json.loads(answer.out)]) == (1, ["succeeded", "failed"])
    assert run_cli(world, "wait", good).code == 0


def test_wait_and_stop(world):
    job = world.submit(world.job_file(COUNT, arguments=["9"], limits={"grace": 5}))
    world.until_attempt(job, 1)
    answer = run_cli(world, "wait", job, "--timeout", "0.2")
    assert (answer.code, answer.out) == (4, "")
    assert f"{job} has not finished" in answer.said
    assert "0.2 s are over" in answer.said
    late = run_cli(world, "wait", job, "--timeout", "0.2", "--json")
    assert (late.code, json.loads(late.out)["phase"]) == (4, "running")
    answer = run_cli(world, "stop", job, "--why", "wrong data", "--wait")
    assert (answer.code, answer.out) == (0, f"{job} has finished: stopped\n")
    assert run_cli(world, "wait", job).code == 3
    record = json.loads(run_cli(world, "wait", "last", "--json").out)
    assert (record["outcome"], record["reason"]["sentence"]) == ("stopped", "wrong data")
    again = run_cli(world, "stop", job)
    assert (again.code, again.out) == (0, f"{job} has finished already: stopped\n")


def test_submit_returns_at_once_with_the_id_alone(world):
    world.write("train.py", "print(1)")
    answer = run_cli(world, "submit", "train.py", "--name", "a.b", "--tag", "t=1", "--env", "A=1", "--hp", "lr=0.1")
    assert answer.code == 0
    assert answer.out.splitlines() == world.ids()
    assert f"follow it: trainmaster logs -f {world.ids()[0]}" in answer.said
    detached = run_cli(world, "run", "--detach", "train.py", "--json")
    assert json.loads(detached.out)["id"] == world.ids()[1]
    record = world.wait(world.ids()[0])
    assert record["spec"]["name"] == "a.b"
    assert record["spec"]["hyperparameters"] == {"lr": 0.1}
    world.wait(world.ids()[1])


def test_flags_stand_over_the_job_file(world):
    file = world.job_file("import os, sys; print(os.environ['A'], *sys.argv[1:])", env={"A": "file"}, arguments=["one"])
    answer = run_cli(world, "run", file, "--env", "A=flag", "--name", "other", "--failures", "2", "--", "--two", "three")
    assert answer.code == 0
    assert answer.out == "flag one --two three\n"
    record = world.record(world.ids()[0])
    assert (record["spec"]["name"], record["spec"]["retry"]["failures"]) == ("other", 2)


def test_a_variable_can_be_passed_on(world):
    world.write("train.py", "import os; print(os.environ['MINE'])")
    assert run_cli(world, "run", "train.py", "--env", "MINE", env={"MINE": "a=b"}).out == "a=b\n"


def test_two_commands_drive_at_once(world):
    """Both drive every job; each job runs once."""
    file = world.job_file(COUNT, arguments=["1"], resources={"cpus": 4})
    commands = [world.start("run", file) for _ in range(2)]
    jobs = world.until("both are accepted", lambda: world.ids() if len(world.ids()) == 2 else None)
    world.open_gate(1)
    assert [command.wait(60) for command in commands] == [0, 0]
    for job, command in zip(jobs, commands, strict=True):
        record = world.record(job)
        assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
        assert world.output_of(command).count("step 1\n") == 1
    assert [world.log(job).count("step 1") for job in jobs] == [1, 1]
