"""The queue with real processes: several commands drive at once, few slots, priorities; and no process number is trusted."""

from __future__ import annotations

import json
import subprocess

import pytest
from process.scripts import COUNT
from process.world import World, is_alive, steps, world_in

pytestmark = pytest.mark.process

#: Notes when it begins and ends.
NOTED = """
import os, sys, time
def note(word):
    with open(os.path.dirname(os.environ["GATE"]) + "/notes", "a") as file:
        file.write(f"{word} {os.environ['TM_JOB_ID']}\\n")
note("begin")
time.sleep(0.2)
note("end")
"""


def test_several_commands_drive_at_once_without_a_job_twice_or_a_slot_too_many(world):
    world.environ["TRAINMASTER_CPUS"] = "2"
    file = world.job_file(NOTED)
    commands = [world.start("run", file) for _ in range(3)]
    for _ in range(4):
        world.submit(file)
    for command in commands:
        assert command.wait(60) == 0, world.output_of(command)
    for job in world.ids():
        assert world.wait(job)["outcome"] == "succeeded"
    notes = [line.split() for line in (world.folder / "notes").read_text().splitlines()]
    assert sorted(job for word, job in notes if word == "begin") == sorted(world.ids())
    running = most = 0
    for word, _ in notes:
        running += 1 if word == "begin" else -1
        most = max(most, running)
    assert most <= 2
    assert all(len(world.record(job)["attempts"]) == 1 for job in world.ids())


def test_the_more_urgent_goes_first_and_then_the_older(world):
    world.environ["TRAINMASTER_CPUS"] = "1"
    blocker = world.submit(world.job_file(COUNT, arguments=["1"], name="blocker"))
    world.until_attempt(blocker, 1)
    file = world.job_file(NOTED, name="noted")
    jobs = [world.submit(file, "--priority", str(priority)) for priority in (0, 5, 0, 5)]
    world.open_gate(1)
    for job in jobs:
        world.wait(job)
    notes = (world.folder / "notes").read_text().splitlines()
    assert [n.split()[1] for n in notes if n.startswith("begin")] == [jobs[1], jobs[3], jobs[0], jobs[2]]


def test_a_process_number_that_belongs_to_somebody_else_now_is_left_alone(world):
    job = world.submit(world.job_file(COUNT, arguments=["3"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    world.kill(*world.ours(), *world.processes(job))
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        file = world.home / "machines" / f"{job}-a1" / "process.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "pid": bystander.pid}))
        world.cli("list")
        world.until_attempt(job, 2)
        assert "restored 1\n" in world.log(job, 2)
        world.open_gate(3)
        assert world.wait(job)["outcome"] == "succeeded"
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_a_runner_of_another_boot_is_gone_whatever_its_number_says(world):
    job = world.submit(world.job_file(COUNT, arguments=["3"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    world.kill(*world.ours(), *world.processes(job))
    file = world.home / "machines" / f"{job}-a1" / "process.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "boot": "another"}))
    world.open_gate(3)
    record = world.wait(job)
    assert record["outcome"] == "succeeded"
    assert "restarted" in record["attempts"][0]["ending"]["reason"]["evidence"]["seen"]


def test_two_homes_do_not_see_each_other(world, tmp_path):
    for other in world_in(tmp_path / "other"):
        job = world.submit(world.job_file(COUNT, arguments=["1"]))
        theirs = other.submit(other.job_file(COUNT, arguments=["2"]))
        other.kill(other.runner_pid(theirs))
        other.open_gate(2)
        assert other.wait(theirs)["outcome"] == "succeeded"
        assert len(world.record(job)["attempts"]) == 1
        world.open_gate(1)
        assert world.wait(job)["outcome"] == "succeeded"
        assert steps(world.log(job)) == [1]
        assert isinstance(other, World)
