"""Recovery (c) and (d): the command, the driver, or everything is killed. Any later command carries on."""

from __future__ import annotations

import random
import signal
import time

import pytest
from process.scripts import COUNT
from process.world import is_alive, steps

pytestmark = pytest.mark.process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_killed_run_command_restarts_nothing(world, number):
    command = world.start("run", world.job_file(COUNT, arguments=["4"]))
    [job] = world.until("the job is there", world.ids)
    world.open_gate(2)
    world.until_committed(job, "2")
    script = world.script_pid(job)
    world.kill(command.pid, number=number)
    assert command.wait(20) == (-9 if number is signal.SIGKILL else 130)
    if number is not signal.SIGKILL:
        assert f"trainmaster logs -f {job}" in world.output_of(command)
    assert is_alive(script)
    world.open_gate(3)
    world.until("it goes on without us", lambda: 3 in steps(world.log(job)))
    world.open_gate(4)
    _same_attempt_to_the_end(world, job, script)


def test_a_killed_driver_restarts_nothing(world):
    job = world.submit(world.job_file(COUNT, arguments=["4"]))
    world.open_gate(2)
    world.until_committed(job, "2")
    script = world.script_pid(job)
    assert world.kill_drivers()
    world.open_gate(3)
    world.until("it goes on without us", lambda: 3 in steps(world.log(job)))
    world.cli("list")
    assert world.drivers(), "the next command started another driver"
    world.open_gate(4)
    _same_attempt_to_the_end(world, job, script)


def test_a_job_that_ended_while_nobody_drove_is_found_finished(world):
    job = world.submit(world.job_file(COUNT, arguments=["2"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    script, runner = world.script_pid(job), world.runner_pid(job)
    world.kill_drivers()
    world.open_gate(2)
    world.until("the runner has ended by itself", lambda: not is_alive(runner))
    assert world.record(job)["phase"] == "running"
    _same_attempt_to_the_end(world, job, script, last=2)


def test_a_terminated_driver_hands_over(world):
    job = world.submit(world.job_file(COUNT, arguments=["2"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    script = world.script_pid(job)
    [driver] = world.drivers()
    world.kill(driver, number=signal.SIGTERM)
    world.until("the driver is gone", lambda: not is_alive(driver))
    assert world.drivers() == [], "who is told to go starts no other"
    assert is_alive(script)
    world.open_gate(2)
    _same_attempt_to_the_end(world, job, script, last=2)


@pytest.mark.parametrize("commands", ["driver", "run"])
def test_everything_killed_at_once_is_resumed_by_the_next_command(world, commands):
    file = world.job_file(COUNT, arguments=["4"])
    if commands == "run":
        world.start("run", file)
        [job] = world.until("the job is there", world.ids)
    else:
        job = world.submit(file)
    world.open_gate(2)
    world.until_committed(job, "2")
    script = world.script_pid(job)
    world.kill(*world.ours(), *world.processes(job))
    assert not is_alive(script)
    world.cli("list")
    world.until_attempt(job, 2)
    assert "restored 2\n" in world.log(job, 2)
    world.open_gate(4)
    record = world.wait(job)
    assert (record["outcome"], record["interruptions"], record["failures"]) == ("succeeded", 1, 0)
    assert steps(world.log(job, 2)) == [3, 4]


def _same_attempt_to_the_end(world, job, script, last=4):
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    printed = world.cli("logs", job).stdout.decode()
    assert printed.splitlines() == [f"attempt 1 pid {script} restored 0", *(f"step {n}" for n in range(1, last + 1))]
    assert world.committed(job) == str(last)


def test_drivers_killed_again_and_again_start_nothing_twice(world):
    """kill -9 at many different points, between remembering and doing too: each script begins once, and all of them end."""
    note = 'import os\nopen(os.path.dirname(os.environ["GATE"]) + "/begun", "a").write(os.environ["TM_JOB_ID"] + "\\n")\n'
    file = world.job_file(note + COUNT, arguments=["1"])
    rng = random.Random(5)
    jobs, killed = [], 0
    for _ in range(3):
        jobs.append(world.submit(file))
        for command in (("list",), ("show", jobs[0])):
            time.sleep(rng.uniform(0.0, 0.5))  # not for luck: another point each time
            killed += len(world.kill_drivers())
            world.cli(*command)
    assert killed >= 3
    world.open_gate(1)
    time.sleep(rng.uniform(0.0, 0.5))
    world.kill_drivers()
    for job in jobs:
        record = world.wait(job)
        assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    assert sorted((world.folder / "begun").read_text().split()) == sorted(jobs)
