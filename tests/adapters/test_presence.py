"""Who drives and is gone, by its lock."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

from trainmaster.adapters import host
from trainmaster.adapters.presence import forget, gone, present
from trainmaster.adapters.providers.local.client import LocalClient

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


@contextmanager
def somebody_looks(path):
    """Another process in the middle of asking whether a lock is held."""
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(descriptor)


def test_two_who_look_at_the_same_time_both_see_that_it_is_gone(tmp_path):
    (tmp_path / "here:1:a").touch()
    with somebody_looks(tmp_path / "here:1:a"):
        assert gone(tmp_path, "here") == ["here:1:a"]


def test_two_who_look_for_a_runner_both_see_that_it_has_ended(tmp_path):
    place = tmp_path / "j7-a1"
    place.mkdir()
    (place / "lock").touch()
    with somebody_looks(place / "lock"):
        assert not LocalClient(tmp_path).find("j7-a1").is_locked


def test_looking_keeps_nobody_from_taking_the_lock(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    taken = []
    taker = threading.Thread(target=lambda: taken.append(host.try_lock(path, create=False)))
    with somebody_looks(path):
        taker.start()
        taker.join(0.1)  # one that gives up because somebody looks gives up here
    taker.join()
    [lock] = taken
    assert lock is not None
    assert host.is_locked(path)
    assert host.try_lock(path, create=False) is None
    os.close(lock)
    assert not host.is_locked(path)
