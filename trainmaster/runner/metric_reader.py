"""Which metrics does a job report? What was found in its log and lines of the helper's file, as numbered chunks of JSON lines."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections import deque
from pathlib import Path

import msgspec

from trainmaster.errors import StoreError
from trainmaster.ports.object_store import BlockingStore
from trainmaster.runner.log_search import Found
from trainmaster.runner.metric_tally import MetricTally
from trainmaster.spec import layout
from trainmaster.spec.layout import Key

_BLOCK = 1 << 20
_BATCH_BYTES_MAX = 8 << 20
_STEPS_KEPT = 100_000
_TOLD_KEPT = 10_000
_SAME_TICK_S = 1e-5
#: also refuses what is no number at all
_STEP_MAX = 1e15


class MetricReader:
    """Collects points from both sources; `flush` writes them as one chunk."""

    def __init__(self, store: BlockingStore, prefix: Key, file: Path) -> None:
        self._store = store
        self._prefix = prefix
        self._file = file
        self._offset = 0
        self._rest = b""
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
        #: path and moment of each trainmaster.checkpoint() that nobody has asked for yet
        self.told: deque[tuple[str, float]] = deque(maxlen=_TOLD_KEPT)
        self.points_dropped = 0
        self.tally = MetricTally()

    def take(self, found: Found) -> None:
        """Points that were found in the log."""
        if found.first_step is not None and found.last_step is not None:
            self.step = found.last_step
            # Of the steps of one moment only the ends matter to step_at.
            self._steps.extend([(found.at_s, found.first_step), (found.at_s, found.last_step)])
        if found.points:
            self.tally.add_lines(found.lines)
            self._keep(found.lines, found.points)

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
        points: list[dict[str, object]] = []
        kept: list[bytes] = []
        for line in lines:
            point = _point(line)
            if point is not None:
                points.append(point)
                kept.append(json.dumps(point, separators=(",", ":")).encode() if self._notes(point) else line)
        if points:
            self.tally.add(points)
            self._keep(b"\n".join(kept), len(points))

    def _notes(self, point: dict[str, object]) -> bool:
        """Take note of its step and of a checkpoint; whether the point is another one now."""
        step = point.get("step")
        is_changed = False
        if isinstance(step, int | float) and not isinstance(step, bool) and abs(step) < _STEP_MAX:
            self.step = point["step"] = int(step)
            self._steps.append((_seconds(point.get("t")), self.step))
            is_changed = not isinstance(step, int)
        if "checkpoint" in point:
            told = point.pop("checkpoint")
            is_changed = True
            if isinstance(told, str):
                path = os.path.realpath(told)
                if self.step is not None:
                    self.told_steps[path] = self.step
                self.told.append((path, _seconds(point.get("t"))))
        return is_changed

    def _keep(self, lines: bytes, points: int) -> None:
        with self._lock:
            if self._pending_bytes > _BATCH_BYTES_MAX:
                self.points_dropped += points
                return
            self._pending.append(lines)
            self._pending_bytes += len(lines)


def _point(line: bytes) -> dict[str, object] | None:
    """One line of the helper's file; None when it is no point. Most lines are plain; the slower reader knows NaN and Infinity."""
    try:
        point = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            point = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return point if isinstance(point, dict) else None


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("inf")
