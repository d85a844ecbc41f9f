"""Are only processes of this world found, and does a signal reach exactly the one that was seen?"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from trainmaster.testing.chaos.processes import MARK, ProcessWatch, Role, owner_of, send

pytestmark = pytest.mark.process


@pytest.fixture
def start():
    """Start a process that waits for its end, with more in its environment."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(**environ: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        started.append(subprocess.Popen(words, env={**os.environ, **environ}, stdin=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_only_those_with_the_mark_are_seen(start, tmp_path):
    watch = ProcessWatch("ours", tmp_path)
    start()
    start(**{MARK: "theirs"})
    command, script = start(**{MARK: "ours"}), start(**{MARK: "ours", "TM_ALLOCATION": "job-1-a2"})
    found = {seat.pid: seat for seat in watch.look(1.0)}
    assert found.keys() == {command.pid, script.pid}
    assert found[command.pid].role is Role.COMMAND
    assert (found[script.pid].role, found[script.pid].allocation) == (Role.SCRIPT, "job-1-a2")
    assert watch.living(Role.SCRIPT) == [found[script.pid]]
    watch.known(1.5)
    script.kill()
    script.wait()
    watch.look(2.0)
    life = watch.lifetimes[script.pid, found[script.pid].start]
    assert (life.first_s, life.last_s, life.is_over) == (1.5, 1.0, True)


def test_a_number_that_means_another_process_by_now_gets_no_signal(start, tmp_path):
    watch = ProcessWatch("ours", tmp_path)
    process = start(**{MARK: "ours"})
    [seat] = watch.look(1.0)
    assert not send(msgspec.structs.replace(seat, start="1"), signal.SIGKILL)
    assert process.poll() is None
    assert send(seat, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not send(seat, signal.SIGKILL)


def test_a_connection_has_an_owner():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ports = client.getsockname()[1], server.getsockname()[1]
        assert owner_of(*ports, [1, os.getpid()]) == os.getpid()
        assert owner_of(*ports, []) == owner_of(1, 2, [os.getpid()]) == 0
