"""The command line as a user meets it: real commands, with pipes, on a terminal, and with less power than root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from process.world import COMMAND, DEADLINE_S, World

from trainmaster.adapters import host

CURVE = """
import os, sys, trainmaster
print("a line on stdout", flush=True)
print("a line on stderr", file=sys.stderr, flush=True)
for step in range(5):
    trainmaster.log(step=step, loss=1 / (step + 1), accuracy=step / 5)
with open(os.environ["TM_CHECKPOINT_DIR"] + "/state", "w") as file:
    file.write("5")
with open(os.environ["SM_MODEL_DIR"] + "/model.bin", "wb") as file:
    file.write(bytes(1000))
with open("kept.txt", "w") as file:
    file.write("kept")
"""
FAILS = """
print("about to fail", flush=True)
raise ValueError("no good \\x1b[31mred\\x1b]0;title\\x07")
"""


class Scene(NamedTuple):
    """One home with jobs of every kind."""

    world: World
    good: str
    again: str
    bad: str
    running: str
    queued: str


class Answer(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What went to stderr, wherever the lines were broken."""
        return " ".join(self.err.split())


def run_cli(
    world: World, *words: str, env: dict[str, str | None] | None = None, without_power: bool = False, **more: Any
) -> Answer:
    """Run a command to its end on 80 columns. In `env`, None takes a variable away."""
    environ: dict[str, str] = {**world.environ, "COLUMNS": "80"}
    for name, value in (env or {}).items():
        environ.pop(name, None)
        if value is not None:
            environ[name] = value
    more = {"cwd": world.source, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    prefix = _less_power() if without_power else []
    done = subprocess.run([*prefix, COMMAND, *words], env=environ, timeout=DEADLINE_S, **more)
    out, err = done.stdout or b"", done.stderr or b""
    assert b"Traceback" not in err, err.decode(errors="replace")
    return Answer(done.returncode, out.decode(), err.decode(errors="replace"))


def refused(world: World, *words: str, says: list[str], code: int = 2, **more: Any) -> Answer:
    """A command that must be refused in a sentence, without having done anything."""
    before = world.ids()
    answer = run_cli(world, *words, **more)
    assert answer.code == code, answer
    assert answer.out == ""
    assert answer.err.startswith("error: "), answer.err
    for text in says:
        assert text in answer.said, answer.err
    assert_fits(answer.err)
    assert world.ids() == before
    assert strays(world) == [], strays(world)
    return answer


def strays(world: World) -> list[str]:
    """Files of jobs that there are not; a snapshot of code may stay, another job will find it."""
    ids = world.ids()
    if any(world.record(job_id)["phase"] != "finished" for job_id in ids):
        return []  # files come and go while jobs run
    found = [path for folder in ("store", "environments", "packing", "machines") for path in (world.home / folder).rglob("*")]
    files = [path.relative_to(world.home) for path in found if path.is_file()]
    return [str(file) for file in files if file.parts[:2] != ("store", "code") and not any(i in str(file) for i in ids)]


def assert_fits(text: str, columns: int = 80) -> None:
    """Nothing is wider than the terminal, but for long paths: those are copied, so they are not broken."""
    for line in text.splitlines():
        assert len(line) <= columns or max(map(len, line.split())) > columns // 2, f"{len(line)} columns: {line}"


def _less_power() -> list[str]:
    """Root reads and writes everything; its tests need somebody who does not."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not here")
    powers = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"]


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, world: World, *words: str, env: dict[str, str] | None = None, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environ = {k: v for k, v in world.environ.items() if k not in {"NO_COLOR", "COLUMNS"}}
        environ |= {"TERM": "xterm-256color", **(env or {})}
        # A session of its own, whose terminal this is: then Ctrl-C is a signal, as in real life.
        script = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        self._process = subprocess.Popen(
            [str(Path(COMMAND).with_name("python")), "-c", script, str(COMMAND), *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=world.source,
            env=environ,
            start_new_session=True,
        )
        os.close(theirs)
        self.output = b""

    def until(self, text: bytes) -> None:
        """Wait until the command has printed this."""
        while text not in self.output:
            assert self._read(), f"the command ended without {text!r}: {self.output.decode(errors='replace')}"

    def has_open(self, name: str) -> bool:
        """Whether the command holds a file open."""
        folder = f"/proc/{self._process.pid}/fd"
        for number in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed while we look
                if os.path.basename(os.readlink(f"{folder}/{number}")) == name:
                    return True
        return False

    def is_waiting(self) -> bool:
        """Whether the command waits for something, such as a key."""
        return host.process_state(self._process.pid) == "S"

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def end(self) -> tuple[int, str]:
        """The exit code and everything printed."""
        while self._read():
            pass
        os.close(self._ours)
        return self._process.wait(DEADLINE_S), self.output.decode()

    def _read(self) -> bool:
        deadline = time.monotonic() + DEADLINE_S
        while not select.select([self._ours], [], [], 1)[0]:
            if time.monotonic() > deadline:
                self._process.kill()
                pytest.fail(f"the command hangs: {self.output.decode(errors='replace')}")
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says so when nobody holds the other end
            return False
        self.output += data
        return bool(data)
