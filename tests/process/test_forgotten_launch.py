"""Whoever launched was killed before it could write down which process it started: what that left is found all the same."""

from __future__ import annotations

import pytest
from process.scripts import COUNT, FAMILY
from process.world import is_alive

pytestmark = pytest.mark.process


def test_the_runner_is_found_by_its_lock(world):
    job = world.submit(world.job_file(COUNT, arguments=["2"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    script = world.script_pid(job)
    world.kill_drivers()
    (world.home / "machines" / f"{job}-a1" / "process.json").unlink()
    world.open_gate(2)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    assert f"pid {script} " in world.log(job)


def test_its_orphans_are_found_by_their_mark(world):
    job = world.submit(world.job_file(FAMILY, arguments=["3"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    family, runner = world.family(), world.runner_pid(job)
    world.kill_drivers()
    (world.home / "machines" / f"{job}-a1" / "process.json").unlink()
    world.kill(runner)
    world.cli("list")
    world.until_attempt(job, 2)
    assert not any(map(is_alive, family))
    assert "restored 1\n" in world.log(job, 2)
    world.open_gate(3)
    record = world.wait(job)
    assert (record["outcome"], record["interruptions"]) == ("succeeded", 1)
