"""Stopping: gracefully, against resistance, in the queue, by a limit, and by a signal to the runner in every phase."""

from __future__ import annotations

import signal
import time

import pytest
from process.scripts import COUNT, POLITE, STUBBORN
from process.world import is_alive

pytestmark = pytest.mark.process


@pytest.mark.parametrize("code", [0, 3])
def test_a_stop_lets_the_script_save_and_commits_it(world, code):
    job = world.submit(world.job_file(POLITE, arguments=[str(code)], retry={"failures": 3}))
    world.script_pid(job)
    [record] = world.json("stop", job, "--wait", "--why", "seen enough")
    assert (record["outcome"], len(record["attempts"])) == ("stopped", 1)
    assert record["reason"]["sentence"] == "seen enough"
    assert record["reason"]["evidence"]["exit_code"] == str(code)
    assert world.committed(job) == "final, told 1 times"
    assert world.log(job).endswith("saved\n")
    assert world.cli("wait", job, expect=3)


def test_what_ignores_the_stop_is_killed_after_the_grace_with_all_its_family(world):
    job = world.submit(world.job_file(STUBBORN, limits={"grace": 1.0}))
    family = [world.script_pid(job), *world.family()]
    begun = time.monotonic()
    [record] = world.json("stop", job, "--wait")
    assert time.monotonic() - begun >= 1.0, "not before the grace is over"
    assert (record["outcome"], record["reason"]["evidence"]["signal"]) == ("stopped", "SIGKILL")
    assert not any(map(is_alive, family))


def test_a_queued_job_is_stopped_without_an_attempt(world):
    world.environ["TRAINMASTER_CPUS"] = "1"
    first = world.submit(world.job_file(COUNT, arguments=["1"], name="first"))
    second = world.submit(world.job_file(COUNT, arguments=["1"], name="second"))
    world.until("it waits", lambda: "CPU" in world.record(second).get("waits_for", ""))
    [record] = world.json("stop", second, "--wait")
    assert (record["outcome"], record.get("attempts", [])) == ("stopped", [])
    world.open_gate(1)
    assert world.wait(first)["outcome"] == "succeeded"


def test_the_running_time_is_limited_over_all_attempts(world):
    job = world.submit(world.job_file(COUNT, arguments=["9"], limits={"run": 1.5, "grace": 1.0}, retry={"failures": 5}))
    world.open_gate(1)
    world.until_committed(job, "1")
    world.kill(world.script_pid(job))
    record = world.wait(job, expect=3)
    assert (record["outcome"], record["reason"]["code"]) == ("stopped", "run_limit")
    ledger = world.json("show", job)["ledger_s"]
    assert 1.4 <= ledger["kept_compute"] + ledger["lost_compute"] <= 4.0
    assert len(record["attempts"]) == 2
    assert record["head"]["id"] == "1-000001"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_runner_ended_in_any_phase_is_an_interruption(world, number):
    job = world.submit(world.job_file(COUNT, arguments=["2"], retry={"interruptions": 20}))
    world.open_gate(1)
    for attempt in range(1, 8):
        runner = world.runner_pid(job, attempt)
        time.sleep(0.05 * (attempt - 1))  # not for luck: each attempt is met in a later phase
        world.kill(runner, number=number)
        world.until("the attempt is over", lambda n=attempt: len(world.record(job)["attempts"]) > n)
    world.open_gate(2)
    record = world.wait(job)
    assert (record["outcome"], record["interruptions"], record["failures"]) == ("succeeded", 7, 0)
    assert {a["ending"]["kind"] for a in record["attempts"][:7]} == {"interrupted"}
    assert world.committed(job) == "2"


def test_a_terminated_runner_gives_its_script_the_grace(world):
    job = world.submit(world.job_file(POLITE, arguments=["0"]))
    script = world.script_pid(job)
    world.kill(world.runner_pid(job), number=signal.SIGTERM)
    world.until_attempt(job, 2)
    assert not is_alive(script)
    assert world.committed(job) == "final, told 1 times"
    attempt = world.record(job)["attempts"][0]
    assert (attempt["ending"]["reason"]["code"], attempt["charged"]) == ("terminated", "interruptions")
    world.json("stop", job, "--wait")


#: Saves a whole state; told to end, it overwrites half of it and then something goes wrong.
CLUMSY = """
import os, signal, sys, time
path, told = os.path.join(os.environ["TM_CHECKPOINT_DIR"], "state"), []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
open(path, "w").write("whole")
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored 0", flush=True)
while not told:
    time.sleep(0.01)
with open(path, "w") as file:
    file.write("ha")
    file.flush()
    raise RuntimeError("in the middle of a save")
"""


def test_a_last_save_that_went_wrong_is_not_trusted(world):
    """It ended by itself, after our SIGTERM, as if it had saved; but its last word is a traceback."""
    job = world.submit(world.job_file(CLUMSY, checkpoints={"settle": 0.1}))
    world.until_committed(job, "whole")
    [record] = world.json("stop", job, "--wait")
    assert record["outcome"] == "stopped"
    assert "in the middle of a save" in world.log(job)
    assert world.committed(job) == "whole"
