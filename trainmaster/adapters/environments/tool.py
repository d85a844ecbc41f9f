"""How are uv and conda called? With the submitter's settings; every word of theirs is kept, and no secret."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters import host
from trainmaster.adapters.environments.trouble import EnvironmentTrouble, GivenUp, Secrets, refuse_full_disk, telling_lines

_POLL_S = 0.1
_OUTPUT_BYTES_MAX = 4 << 20
#: what an active environment of the submitter, or of ours, would tell a tool about
_FOREIGN = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_REQUIRE_HASHES",
    "UV_OUTPUT_FORMAT",
    "UV_SYSTEM_PYTHON",
)


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
    kept = {name: value for name, value in base.items() if name not in _FOREIGN and not name.startswith(("TRAINMASTER_", "CONDA_"))}
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
        output = _Reader(process.stdout, self._shown if shows_output else None)
        errors = _Reader(process.stderr, self._shown)
        try:
            self._until_ended(process, errors if process.stderr is not None else output)
        finally:
            _end_group(process)
            output.finish()
            errors.finish()
        # What is printed for us to read, such as a lock, keeps its references.
        return Said(code=process.returncode, output=self._secrets.named(output.text), errors=self._secrets.hidden(errors.text))

    def _until_ended(self, process: subprocess.Popen[bytes], reader: _Reader) -> None:
        """Whoever ends closes its pipe, and that wakes us at once; one that was handed on is no reason to wait."""
        while process.poll() is None and not reader.is_over(_POLL_S):
            self.refuse_unwanted()
        process.wait()

    def _shown(self, line: str) -> None:
        self._log(self._secrets.hidden(line))


class _Reader:
    """Reads a pipe in a thread of its own; the end of it is kept, each line is passed on."""

    def __init__(self, pipe: object, line: Callable[[str], None] | None) -> None:
        self.text = ""
        self._pipe, self._line = pipe, line
        self._thread = threading.Thread(target=self._read, name="tool output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        kept: list[str] = []
        size = 0
        for given in self._pipe or ():  # type: ignore[attr-defined]
            line = given.decode(errors="replace")
            size += len(line)
            if size <= _OUTPUT_BYTES_MAX or self._line is not None:
                kept.append(line)
            if len(kept) > 100_000:
                del kept[:50_000]
            if self._line is not None:
                self._line(line)
        self.text = "".join(kept)

    def is_over(self, timeout_s: float) -> bool:
        """Whether nothing more comes."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Everything was read, or whoever holds the pipe does not matter any more."""
        self._thread.join(5.0)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Nothing that a tool started outlives it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.wait()
