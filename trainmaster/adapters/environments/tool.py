"""How are uv and conda called? With the submitter's settings; every word of theirs is kept, and no secret."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from msgspec import Struct

from trainmaster.adapters import host
from trainmaster.adapters.environments.question import FOREIGN
from trainmaster.adapters.environments.trouble import EnvironmentTrouble, GivenUp, Secrets, refuse_full_disk, telling_lines

_POLL_S = 0.1
#: so long nothing comes through a pipe whose tool has ended, when somebody else holds it
_IDLE_S_MAX = 3.0
_BLOCK_BYTES = 64 << 10
#: a lock of a thousand packages has a few MiB
_ANSWER_CHARACTERS_MAX = 64 << 20
_SHOWN_CHARACTERS_MAX = 4 << 20
_LINE_CHARACTERS_MAX, _MARGIN_CHARACTERS = 64 << 10, 4 << 10


def find_uv() -> str:
    """The uv that was installed with us; else the one on the PATH."""
    for found in (os.path.join(sys.prefix, "bin", "uv"), os.path.join(os.path.dirname(sys.executable), "uv")):
        if os.access(found, os.X_OK):
            return found
    with contextlib.suppress(ImportError, FileNotFoundError):
        import uv

        return str(uv.find_uv_bin())
    found_on_path = shutil.which("uv")
    if found_on_path is None:
        raise EnvironmentTrouble("uv is not installed beside Trainmaster", hint="install it: pip install uv")
    return found_on_path


def tool_environ(base: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The submitter's environment as a tool gets it; it never downloads an interpreter, and never paints."""
    kept = {name: value for name, value in base.items() if name not in FOREIGN and not name.startswith(("TRAINMASTER_", "CONDA_"))}
    return {**kept, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **more}


class Said(Struct, frozen=True, kw_only=True):
    """What a tool said, and how it ended."""

    code: int
    output: str
    errors: str


class Tools:
    """Starts tools one after the other; their words go to a log, without secrets."""

    def __init__(
        self,
        log: Callable[[str], None],
        secrets: Secrets,
        is_wanted: Callable[[], bool],
        in_child: Callable[[], None] = host.die_with_parent,
    ) -> None:
        self._log, self._secrets, self._is_wanted, self._in_child = log, secrets, is_wanted, in_child

    def say(self, text: str) -> None:
        """A line of ours in the log."""
        self._log(self._secrets.hidden(f"{text}\n"))

    def refuse_unwanted(self) -> None:
        """Give up when nobody waits for the result."""
        if not self._is_wanted():
            raise GivenUp("the job was told to end before its environment was ready")

    def call(self, what: str, words: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
        """Run a tool to its end; what it printed. EnvironmentTrouble in its own words when it fails."""
        said = self.ask(words, environ, folder, shows_output=False)
        if said.code == 0:
            return said.output
        refuse_full_disk(said.errors)
        raise EnvironmentTrouble(f"{what}: {telling_lines(said.errors or said.output) or f'exit code {said.code}'}")

    def ask(self, words: Sequence[str], environ: Mapping[str, str], folder: Path, *, shows_output: bool) -> Said:
        """Run a tool to its end, however it ends."""
        self.refuse_unwanted()
        if "-c" not in words:
            self.say(f"$ {os.path.basename(words[0])} {' '.join(words[1:])}")
        try:
            process = subprocess.Popen(
                list(words),
                cwd=folder,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if shows_output else subprocess.PIPE,
                start_new_session=True,
                preexec_fn=self._in_child,  # noqa: PLW1509  takes no lock, imports nothing: system calls only
            )
        except OSError as error:
            raise EnvironmentTrouble(f"{words[0]} cannot be started: {error.strerror or error}") from error
        answer, words_shown = _Answer(), _Words(self._log, self._secrets)
        output = _Pipe(_given(process.stdout), words_shown if shows_output else answer)
        errors = output if shows_output else _Pipe(_given(process.stderr), words_shown)
        try:
            self._until_ended(process, errors, lambda: answer.is_too_much)
        finally:
            _end_group(process)
            output.finish()
            errors.finish()
        if shows_output:
            return Said(code=process.returncode, output=words_shown.text, errors="")
        if output.is_held or answer.is_too_much:
            why = "printed more than 64 MiB" if answer.is_too_much else "has ended, but something it started still holds its output"
            raise EnvironmentTrouble(f"{os.path.basename(words[0])} {why}: what it answered is not known to be whole")
        # What is printed for us to read, such as a lock, keeps its references.
        return Said(code=process.returncode, output=self._secrets.named(answer.text), errors=words_shown.text)

    def _until_ended(self, process: subprocess.Popen[bytes], pipe: _Pipe, is_enough: Callable[[], bool]) -> None:
        """Whoever ends closes its pipe, and that wakes us at once; one that was handed on is no reason to wait."""
        while process.poll() is None and not pipe.is_over(_POLL_S):
            self.refuse_unwanted()
            if is_enough():
                return
        process.wait()


class _Reader(Protocol):
    """Takes what comes through a pipe."""

    def take(self, text: str) -> None: ...

    def end(self) -> None: ...


class _Answer:
    """What a tool prints for us to read: all of it."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._size = 0

    @property
    def text(self) -> str:
        return "".join(self._kept)

    @property
    def is_too_much(self) -> bool:
        """Whether it is longer than any that is meant; then the rest is missing."""
        return self._size > _ANSWER_CHARACTERS_MAX

    def take(self, text: str) -> None:
        self._size += len(text)
        if not self.is_too_much:
            self._kept.append(text)

    def end(self) -> None:
        pass  # it is complete as it is


class _Words:
    """What a tool prints for people: each line is passed on without secrets; the end of all is kept."""

    def __init__(self, log: Callable[[str], None], secrets: Secrets) -> None:
        self._log, self._secrets = log, secrets
        #: whoever cuts a line cuts off what may be the beginning of a secret
        self._margin = max(_MARGIN_CHARACTERS, secrets.characters_max)
        self._kept: deque[str] = deque()
        self._size = 0
        self._line, self._is_cut = "", False

    @property
    def text(self) -> str:
        return "".join(self._kept)

    def take(self, text: str) -> None:
        *lines, rest = re.split(r"(?<=[\r\n])", self._line + text)
        for line in lines:
            if not self._is_cut:
                self._pass_on(self._secrets.hidden(line))
            self._is_cut = False
        if len(rest) > _LINE_CHARACTERS_MAX + self._margin and not self._is_cut:
            shown = self._secrets.hidden(rest)[: -self._margin]
            self._pass_on(f"{shown} … (the rest of this line is left out)\n")
            self._is_cut = True
        self._line = "" if self._is_cut else rest

    def end(self) -> None:
        if self._line:
            self._pass_on(self._secrets.hidden(self._line))

    def _pass_on(self, line: str) -> None:
        self._kept.append(line)
        self._size += len(line)
        while self._size > _SHOWN_CHARACTERS_MAX:
            self._size -= len(self._kept.popleft())
        self._log(line)


class _Pipe:
    """Reads a pipe to its end, in a thread of its own."""

    def __init__(self, pipe: IO[bytes], reader: _Reader) -> None:
        self._pipe, self._reader = pipe, reader
        #: nobody has closed it: somebody may still write to it
        self.is_held = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="tool output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        with self._pipe:
            while block := self._block():
                self._reader.take(decoder.decode(block))
        self._reader.take(decoder.decode(b"", final=True))
        self._reader.end()

    def _block(self) -> bytes:
        """What comes next; nothing at the end, or when nothing came for a while after the tool has ended."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        idle_s = 0.0
        while not poll.poll(_POLL_S * 1000):
            idle_s += _POLL_S if self._ended.is_set() else 0.0
            if idle_s >= _IDLE_S_MAX:
                self.is_held = True
                return b""
        return os.read(self._pipe.fileno(), _BLOCK_BYTES)

    def is_over(self, timeout_s: float) -> bool:
        """Whether nothing more comes."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def finish(self) -> None:
        """The tool has ended: what is left is read, and whoever holds the pipe beyond that is not waited for."""
        self._ended.set()
        self._thread.join()


def _given(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Nothing that a tool started outlives it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.wait()
