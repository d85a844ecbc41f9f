"""Which metrics does a job report? Patterns on its log, and lines of the helper's file, into numbered chunks of JSON lines."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from trainmaster.errors import StoreError
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec import layout
from trainmaster.spec.job_spec import MetricPattern
from trainmaster.spec.layout import Key

_BLOCK = 1 << 20
_LINE_MAX = 64 << 10
_BATCH_BYTES_MAX = 8 << 20
_STEPS_KEPT = 100_000
_SAME_TICK_S = 1e-5
#: also refuses what is no number at all
_STEP_MAX = 1e15


class MetricReader:
    """Collects points from both sources; `flush` writes them as one chunk."""

    def __init__(self, store: BlockingStore, prefix: Key, file: Path, now: Callable[[], datetime]) -> None:
        self._store = store
        self._prefix = prefix
        self._file = file
        self._now = now
        self._patterns: list[tuple[str, re.Pattern[bytes]]] = []
        self._offset = 0
        self._rest = b""
        self._log_rest = b""
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._seq = 0
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._reading = threading.Lock()
        self.step: int | None = None
        #: when which step was reported, newest last
        self._steps: deque[tuple[float, int]] = deque(maxlen=_STEPS_KEPT)
        #: path → step, as the script told with trainmaster.checkpoint()
        self.told_steps: dict[str, int] = {}
        self.points_dropped = 0

    def watch(self, patterns: list[MetricPattern]) -> None:
        """Look for these in the log."""
        self._patterns = [(p.name, re.compile(p.regex.encode(), re.MULTILINE)) for p in patterns]

    @property
    def reads_log(self) -> bool:
        """Whether the log has to be read at all."""
        return bool(self._patterns)

    def read_log(self, path: Path) -> None:
        """Find metrics in one chunk of log; a line cut by the chunk's end is finished by the next."""
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                text = self._log_rest + block
                cut = text.rfind(b"\n") + 1
                self._log_rest = text[cut:][-_LINE_MAX:]
                self._find(text[:cut])

    def read_last_line(self) -> None:
        """The log is over: its last line may have no newline."""
        self._find(self._log_rest)
        self._log_rest = b""

    def read_file(self) -> None:
        """Take over what the helper wrote since the last look."""
        with self._reading:
            try:
                # Not blocking: a script may have put a pipe in its place, and metrics must never hold up the rest.
                descriptor = os.open(self._file, os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                return
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return
                file.seek(self._offset)
                while block := file.read(_BLOCK):
                    self._offset += len(block)
                    self._take_lines(block)

    def flush(self) -> None:
        """Write what was collected as one chunk; on trouble it stays for the next time."""
        with self._flushing:
            with self._lock:
                batch = b"\n".join(self._pending)
                count = len(self._pending)
            if not count:
                return
            self._store.put(layout.chunk(self._prefix, self._seq), batch + b"\n")
            self._seq += 1
            with self._lock:
                self._pending_bytes -= sum(map(len, self._pending[:count]))
                del self._pending[:count]

    def flush_quietly(self) -> str:
        """Like flush; trouble as a sentence."""
        try:
            self.read_file()
            self.flush()
        except StoreError as error:
            return f"metrics wait for the store: {error.sentence}"
        return ""

    def step_at(self, moment_s: float) -> int | None:
        """The step that a file written at a moment belongs to: the newest reported before it. None when nobody can tell.

        Clocks of files tick every few milliseconds. Of the steps reported in the tick of the writing, the first is
        taken: a step too low repeats a little work, a step too high would skip some.
        """
        found: int | None = None
        for at_s, step in reversed(self._steps):
            if at_s < moment_s - _SAME_TICK_S:
                return step if found is None else found
            if at_s <= moment_s + _SAME_TICK_S:
                found = step
        return found

    def _take_lines(self, block: bytes) -> None:
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            try:
                point = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(point, dict):
                self._add(point)

    def _find(self, text: bytes) -> None:
        found: list[tuple[int, dict[str, float]]] = []
        for name, pattern in self._patterns:
            for match in pattern.finditer(text):
                groups = match.groupdict() or {name: match.group(1)}
                values = {key: _number(value) for key, value in groups.items() if value is not None}
                found.append((match.start(), {key: value for key, value in values.items() if value is not None}))
        if not found:
            return
        found.sort(key=lambda item: item[0])
        at = round(self._now().timestamp(), 3)
        for point in _by_line(text, found):
            self._add({"t": at, **point})

    def _add(self, point: dict[str, object]) -> None:
        step = point.get("step")
        if isinstance(step, int | float) and not isinstance(step, bool) and abs(step) < _STEP_MAX:
            self.step = point["step"] = int(step)
            self._steps.append((_seconds(point.get("t")), self.step))
        told = point.pop("checkpoint", None)
        if isinstance(told, str) and self.step is not None:
            self.told_steps[os.path.realpath(told)] = self.step
        line = json.dumps(point, separators=(",", ":"), allow_nan=True).encode()
        with self._lock:
            if self._pending_bytes > _BATCH_BYTES_MAX:
                self.points_dropped += 1
                return
            self._pending.append(line)
            self._pending_bytes += len(line)


def _by_line(text: bytes, found: list[tuple[int, dict[str, float]]]) -> list[dict[str, object]]:
    """Metrics of one line belong to one point."""
    points: list[dict[str, object]] = []
    line_end = -1
    for start, values in found:
        if start > line_end:
            points.append({})
            line_end = text.find(b"\n", start)
            line_end = len(text) if line_end < 0 else line_end
        points[-1].update(values)
    return points


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("inf")


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
