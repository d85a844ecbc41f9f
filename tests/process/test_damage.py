"""A checkpoint whose bytes were damaged in the store is noticed, and an older one that is whole stands in for it."""

from __future__ import annotations

import pytest
from process.scripts import COUNT

from trainmaster.spec import layout

pytestmark = pytest.mark.process


def _damage(world, job, checkpoint):
    [path] = (world.store / "jobs" / job / "checkpoints" / checkpoint / "files").iterdir()
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))


def _two_commits(world, **retry):
    return _commits(world, 2, **retry)


def _commits(world, count, **retry):
    job = world.submit(world.job_file(COUNT, arguments=[str(count + 1)], retry=retry))
    for step in range(1, count + 1):
        world.open_gate(step)
        world.until_committed(job, str(step))
    return job


def test_an_older_checkpoint_stands_in_and_it_is_said(world):
    job = _two_commits(world, failures=1)
    _damage(world, job, "1-000002")
    world.kill(world.script_pid(job))
    world.until_attempt(job, 2)
    world.until("the script started again", lambda: "restored" in world.log(job, 2))
    assert "restored 1\n" in world.log(job, 2)
    shown = world.cli("show", job).stdout.decode()
    assert "1-000002 is damaged: state has other bytes" in " ".join(shown.split())
    world.open_gate(3)
    assert world.wait(job)["outcome"] == "succeeded"


def test_what_has_no_marker_never_stands_in(world):
    """Its files and its manifest are whole, but nobody ever said that it counts."""
    job = _commits(world, 3, failures=1)
    (world.store / layout.commit(job, "1-000002")).unlink()
    _damage(world, job, "1-000003")
    world.kill(world.script_pid(job))
    world.until("the script started again", lambda: "restored" in world.log(job, 2))
    assert "restored 1\n" in world.log(job, 2)
    world.open_gate(4)
    assert world.wait(job)["outcome"] == "succeeded"


def test_with_nothing_whole_the_job_fails_and_names_the_file(world):
    job = _two_commits(world, failures=1)
    for checkpoint in ("1-000001", "1-000002"):
        _damage(world, job, checkpoint)
    world.kill(world.script_pid(job))
    record = world.wait(job, expect=1)
    assert record["reason"]["code"] == "set_up_failed"
    assert "checkpoint 1-000002 is damaged: state has other bytes" in record["reason"]["sentence"]
