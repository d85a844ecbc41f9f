"""Would the simulation notice a bug? Each planted one is found by some world, by the checker that stands for it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.testing.checkers import CHECKERS
from trainmaster.testing.mutants import MUTANTS, planted

NAMES = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("name", NAMES)
def test_some_world_finds_it(name):
    """In a process of its own: the bug is in it while its module is loaded, and nowhere else."""
    done = subprocess.run([sys.executable, "-m", "trainmaster.testing.mutants", name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_every_checker_has_a_mutant_and_every_mutant_a_checker():
    assert {mutant.checker for mutant in MUTANTS} == set(CHECKERS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_its_line_is_there_once(mutant):
    spec = importlib.util.find_spec(mutant.module)
    text = Path(spec.origin).read_text()
    assert planted(mutant, text) != text
    with pytest.raises(ValueError, match="plant it anew"):
        planted(mutant, text.replace(mutant.old, ""))
