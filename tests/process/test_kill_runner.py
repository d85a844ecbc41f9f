"""Recovery (b): the runner is killed. Noticed by process facts, nothing is left training, and the job goes on."""

from __future__ import annotations

import signal

import pytest
from process.world import COUNT, is_alive, seconds

pytestmark = pytest.mark.process

#: Before it counts: a child that leaves the session, and one that is forked twice so that nobody is its parent.
FAMILY = (
    """
import os, time
def idle(name):
    with open(os.path.join(os.path.dirname(os.environ["GATE"]), name), "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.05)
if os.fork() == 0:
    os.setsid()
    idle("left-session")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        idle("forked-twice")
    os._exit(0)
os.wait()
"""
    + COUNT
)


def family_of(world) -> list[int]:
    files = [world.folder / "left-session", world.folder / "forked-twice"]
    world.until("the script's children live", lambda: all(f.exists() and f.read_text() for f in files))
    return [int(file.read_text()) for file in files]


def test_a_killed_runner_leaves_no_orphan_and_the_job_resumes_as_an_interruption(world):
    job = world.submit(world.job_file(FAMILY, arguments=["4"]))
    world.open_gate(2)
    world.until_committed(job, "2")
    script, family = world.script_pid(job), family_of(world)
    world.kill(world.runner_pid(job))
    world.until_attempt(job, 2)
    assert not any(is_alive(pid) for pid in [script, *family])
    assert "restored 2\n" in world.log(job, 2)
    record = world.record(job)
    assert (record["failures"], record["interruptions"]) == (0, 1)
    assert record["attempts"][0]["ending"]["reason"]["code"] == "machine_lost"
    assert "runner" in record["attempts"][0]["ending"]["reason"]["evidence"]["seen"]
    world.open_gate(4)
    assert world.wait(job)["outcome"] == "succeeded"


def test_a_silent_runner_is_not_a_dead_one(world):
    """Stopped for longer than its lease, and nothing happens to it: silence alone proves nothing."""
    world.environ["TRAINMASTER_ATTEMPT_LEASE_S"] = "0.7"
    world.environ["TRAINMASTER_HEARTBEAT_S"] = "0.2"
    job = world.submit(world.job_file(COUNT, arguments=["3"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    script, runner = world.script_pid(job), world.runner_pid(job)
    world.kill(runner, number=signal.SIGSTOP)
    lease_end = world.json("show", job)["heartbeat"]["lease_until"]
    world.open_gate(2)
    world.until("it was looked at long after its lease", lambda: world.next_look_s(job) > seconds(lease_end) + 2)
    assert world.record(job)["phase"] == "running"
    world.kill(runner, number=signal.SIGCONT)
    world.open_gate(3)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"]), record["interruptions"]) == ("succeeded", 1, 0)
    assert world.committed(job) == "3"
    assert f"pid {script} " in world.log(job)


def test_a_killed_runner_without_a_budget_fails_the_job(world):
    job = world.submit(world.job_file(COUNT, arguments=["4"], retry={"interruptions": 0}))
    world.open_gate(1)
    world.until_committed(job, "1")
    world.kill(world.runner_pid(job))
    record = world.wait(job, expect=1)
    assert (record["outcome"], record["reason"]["code"]) == ("failed", "machine_lost")
