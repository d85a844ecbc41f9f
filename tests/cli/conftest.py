"""Homes for the tests of the command line: an empty one for each test, and two shared ones that no test changes."""

from __future__ import annotations

import pytest
from cli.terminal import CURVE, FAILS, Scene
from process.scripts import COUNT
from process.world import world, world_in

__all__ = ["world"]


@pytest.fixture(scope="session")
def scene(tmp_path_factory):
    """A home with one job of each kind; tests only look at it."""
    for made in world_in(tmp_path_factory.mktemp("scene")):
        yield _with_jobs(made)


def _with_jobs(world):
    good = world.submit(world.job_file(CURVE, name="good", outputs={"keep": ["*.txt"]}), "--tag", "team=vision")
    bad = world.submit(world.job_file(FAILS, name="bad"))
    again = world.submit(world.job_file(CURVE, name="good"), "--tag", "team=audio", "--tag", "kind=again")
    for job_id, code in ((good, 0), (bad, 1), (again, 0)):
        world.wait(job_id, expect=code)
    running = world.submit(world.job_file(COUNT, name="running", arguments=["9"]))
    world.open_gate(2)
    world.until_committed(running, "2")
    queued = world.submit(world.job_file(COUNT, name="queued", arguments=["9"]), "--cpus", "4")
    world.until("the job says what it waits for", lambda: world.record(queued).get("waits_for"))
    return Scene(world, good=good, again=again, bad=bad, running=running, queued=queued)


@pytest.fixture(scope="session")
def strict(tmp_path_factory):
    """A home where nothing is ever accepted."""
    for made in world_in(tmp_path_factory.mktemp("strict")):
        made.write("train.py", "print('hello')\n")
        yield made
