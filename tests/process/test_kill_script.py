"""Recovery (a): the training process is killed."""

from __future__ import annotations

import pytest
from process.scripts import COUNT
from process.world import steps

pytestmark = pytest.mark.process


def test_a_killed_script_is_retried_from_its_commit_and_charged_to_failures(world):
    job = world.submit(world.job_file(COUNT, arguments=["6"], retry={"failures": 2}))
    for attempt, step in ((1, 2), (2, 4)):
        world.open_gate(step)
        world.until_committed(job, str(step))
        world.kill(world.script_pid(job, attempt))
        world.until_attempt(job, attempt + 1)
        record = world.record(job)
        assert (record["failures"], record["interruptions"]) == (attempt, 0)
        assert f"restored {step}\n" in world.log(job, attempt + 1)
    world.open_gate(6)
    record = world.wait(job)
    assert record["outcome"] == "succeeded"
    assert [a["charged"] for a in record["attempts"][:2]] == ["failures", "failures"]
    assert [a["resumes"]["id"] for a in record["attempts"][1:]] == ["1-000001", "2-000001"]
    assert steps("".join(world.log(job, n) for n in (1, 2, 3))) == [1, 2, 3, 4, 5, 6]
    debits = [line for line in world.story(job) if line["event"] == "crashed"]
    assert ["1 of 2" in debits[0]["sentence"], "2 of 2" in debits[1]["sentence"]] == [True, True]
    assert all("SIGKILL" in line["sentence"] and line["rule"] == "retry.failures" for line in debits)
    shown = world.cli("show", job).stdout.decode()
    assert "failures 2 of 2, interruptions 0 of 10" in shown


def test_a_killed_script_without_a_budget_fails_the_job(world):
    job = world.submit(world.job_file(COUNT, arguments=["6"], retry={"failures": 0}))
    world.open_gate(1)
    world.until_committed(job, "1")
    world.kill(world.script_pid(job))
    record = world.wait(job, expect=1)
    assert (record["outcome"], record["reason"]["code"], len(record["attempts"])) == ("failed", "signal", 1)
    assert record["reason"]["evidence"]["signal"] == "SIGKILL"
    assert record["head"]["id"] == "1-000001"


def test_a_budget_used_up_says_so(world):
    job = world.submit(world.job_file("raise SystemExit(7)", retry={"failures": 1}))
    record = world.wait(job, expect=1)
    assert (record["failures"], len(record["attempts"])) == (1, 2)
    assert "exit code 7" in record["reason"]["sentence"]
    assert "budget of 1 failures is used up" in record["reason"]["sentence"]
