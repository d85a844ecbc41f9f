"""Who drives and is gone, by its lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from trainmaster.adapters.presence import forget, gone, present

HOLD = """
import sys, time
from pathlib import Path
from trainmaster.adapters.presence import present
with present(Path(sys.argv[1]), "here:1:a"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_who_was_killed_is_gone_and_can_be_forgotten(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    assert gone(tmp_path, "here") == []
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert gone(tmp_path, "here") == ["here:1:a"]
    assert gone(tmp_path, "there") == [], "about other machines a lock says nothing"
    forget(tmp_path, "here:1:a")
    forget(tmp_path, "here:1:a")
    assert gone(tmp_path, "here") == []


def test_who_leaves_in_order_leaves_nothing(tmp_path):
    with present(tmp_path / "drivers", "here:1:a"):
        assert os.listdir(tmp_path / "drivers") == ["here:1:a"]
        assert gone(tmp_path / "drivers", "here") == []
    assert os.listdir(tmp_path / "drivers") == []


def test_nobody_ever_drove(tmp_path):
    assert gone(tmp_path / "drivers", "here") == []
