"""Do scripts that are compared take turns, one at a time?"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.ours import until
from bench.scene import JOBS
from bench.turns import Notes, Player, play, processes_that_know, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def begin(tmp_path):
    with ExitStack() as stack:

        def start(name):
            notes = Notes(tmp_path / f"{name}.notes")
            words = [sys.executable, JOBS / "turns.py", notes.path, 1000, "print", "any"]
            process = started(words, dict(os.environ), tmp_path, tmp_path / f"{name}.log")
            stack.callback(process.wait)
            stack.callback(process.kill)
            return Player(name, notes), process

        yield start


def test_each_runs_in_its_turn_and_stands_still_in_the_others(begin):
    one, one_process = begin("one")
    other, other_process = begin("other")
    seen = []

    class Looking(Player):
        """Looks at the other before and after its own turn."""

        def turn(self, seconds):
            before = other.notes.steps
            super().turn(seconds)
            seen.append((before, other.notes.steps))

    looking = Looking("one", one.notes)
    play([looking, other], 3, 0.05)
    assert len(looking.rates) == len(other.rates) == 3
    assert min(*looking.rates, *other.rates, *looking.costs) > 0
    assert all(before == after for before, after in seen), seen
    assert one_process.wait(20) == other_process.wait(20) == 0


def test_finds_who_works_for_a_folder(begin, tmp_path):
    player, process = begin("one")
    until(lambda: player.notes.steps > 0, "the script")  # before it is another program, it is a copy of us
    assert processes_that_know(tmp_path / "one.notes") == [process.pid]
    assert processes_that_know(Path("/nonexistent/anywhere")) == []
