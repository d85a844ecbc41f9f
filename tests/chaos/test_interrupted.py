"""Ctrl-C ends an attacked world: its table is told, nothing of it lives on, and no folder is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from trainmaster.adapters import host

pytestmark = pytest.mark.process
DEADLINE_S = 80.0


@pytest.fixture
def place():
    """With a short name: the server's sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        yield Path(folder)


def test_ctrl_c_ends_everything_and_tells_the_table(place):
    words = [sys.executable, "-m", "trainmaster.testing.chaos", "--minutes", "5", "--seed", "1", "--mood", "silent"]
    chaos = subprocess.Popen(
        words,
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until_s = time.monotonic() + DEADLINE_S
    while not list(place.glob("trainmaster-chaos-*/world/*/machines/*/runner.log")):
        assert chaos.poll() is None, chaos.communicate()
        assert time.monotonic() < until_s, "no runner was started"
        time.sleep(0.05)
    [home] = [path.parents[2] for path in place.glob("trainmaster-chaos-*/world/*/machines/*/runner.log")][:1]
    os.killpg(chaos.pid, signal.SIGINT)  # as a terminal does: to everybody in the foreground
    said, errors = chaos.communicate(timeout=DEADLINE_S)
    assert (chaos.returncode, errors) == (130, "")
    assert said.splitlines()[-1] == "chaos seed 1: interrupted; nothing was judged"
    rows = dict(line.rsplit(maxsplit=1) for line in said.splitlines() if line and not line.startswith("chaos seed"))
    assert int(rows["jobs"]) > 0
    assert host.marked_processes("TRAINMASTER_HOME", str(home)) == []
    assert list(place.glob("trainmaster-chaos-*")) == []
