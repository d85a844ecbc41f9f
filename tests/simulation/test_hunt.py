"""A hunt goes on until it is stopped, tells what it saw, and goes on later from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-m", "trainmaster.testing.sim"]


def hunt_until(folder, worlds: int, how: signal.Signals) -> tuple[int, str]:
    """Hunt until so many worlds were kept, then stop it; its exit code and what it said."""
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*COMMAND, "--hunt", "--processes", "1"], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
    ) as hunt:
        while kept(folder) < worlds:
            assert hunt.poll() is None
            time.sleep(0.05)
        hunt.send_signal(how)
        said, _ = hunt.communicate(timeout=60)
    return hunt.returncode, said


def kept(folder) -> int:
    file = folder / ".hunt.json"
    return json.loads(file.read_text())["tally"]["worlds"] if file.exists() else 0


@pytest.mark.process
def test_a_hunt_that_was_stopped_goes_on_where_it_was(tmp_path):
    code, said = hunt_until(tmp_path, 10, signal.SIGTERM)
    first = kept(tmp_path)
    assert code == 0
    assert ["worlds", str(first)] in [line.split() for line in said.splitlines()]
    code, _ = hunt_until(tmp_path, first + 10, signal.SIGINT)
    assert code == 0
    file = json.loads((tmp_path / ".hunt.json").read_text())
    assert file["next_seed"] == file["tally"]["worlds"] > first


def test_a_damaged_file_is_said(tmp_path):
    (tmp_path / ".hunt.json").write_text("{")
    done = subprocess.run([*COMMAND, "--hunt"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert ".hunt.json cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mutant_nobody_knows(tmp_path):
    words = [sys.executable, "-m", "trainmaster.testing.mutants", "nobody"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "no mutant is called nobody; without a name they are listed\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--seed", "abc"], "--seed: invalid int value: 'abc'"),
        (["--worlds", "0"], "--worlds: at least 1"),
        (["--processes", "-1"], "--processes: at least 1"),
        (["--first", "-3"], "--first: at least 0"),
    ],
)
def test_nonsense_is_refused(tmp_path, given, said):
    done = subprocess.run([*COMMAND, *given], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
