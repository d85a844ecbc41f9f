"""Recovery (b): the runner is killed. Noticed by process facts, nothing is left training, and the job goes on."""

from __future__ import annotations

import signal

import pytest
from process.scripts import COUNT, FAMILY
from process.world import is_alive, seconds

pytestmark = pytest.mark.process


def test_a_killed_runner_leaves_no_orphan_and_the_job_resumes_as_an_interruption(world):
    job = world.submit(world.job_file(FAMILY, arguments=["4"]))
    world.open_gate(2)
    world.until_committed(job, "2")
    script, family = world.script_pid(job), world.family()
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
