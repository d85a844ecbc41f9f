"""What has been measured so far, in a few numbers? Counted as the points go by, so that nobody has to read them again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from math import isfinite

import msgspec

from trainmaster.core.metrics import BESIDE_METRICS, METRIC_NAME_MAX, METRICS_MAX, MetricSummary

#: not bool, which is an int to isinstance
_NUMBERS = (float, int)
_points = msgspec.json.Decoder(dict[str, object])


class _Counted:
    """One metric, while it still changes."""

    __slots__ = ("count", "last", "last_step", "max", "max_step", "min", "min_step")

    def __init__(self) -> None:
        self.count = 0
        self.last: float | None = None
        self.min: float | None = None
        self.max: float | None = None
        self.last_step: int | None = None
        self.min_step: int | None = None
        self.max_step: int | None = None

    def add(self, value: float, step: int | None) -> None:
        """One more value."""
        self.count += 1
        self.last_step = step
        if not isfinite(value):
            self.last = None
            return
        self.last = value
        if self.min is None or value < self.min:
            self.min, self.min_step = value, step
        if self.max is None or value > self.max:
            self.max, self.max_step = value, step


class MetricTally:
    """Last, lowest and highest of each metric; several threads may add."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}
        self._lock = threading.Lock()
        #: some names found no place
        self.is_full = False

    def add_lines(self, lines: bytes) -> None:
        """Points as lines of JSON, as the searcher writes them."""
        try:
            self.add(_points.decode_lines(lines))
        except msgspec.DecodeError:  # some are infinite, or not a number: the slower reader knows the words for that
            self.add([json.loads(line) for line in lines.splitlines()])

    def add(self, points: Iterable[Mapping[str, object]]) -> None:
        """Points, in the order they were made. A script may make thousands a second, and its CPU is not ours."""
        with self._lock:
            for point in points:
                step = point.get("step")
                at = step if type(step) is int else None
                for name, value in point.items():
                    if type(value) in _NUMBERS and name not in BESIDE_METRICS:
                        self._count(name, value, at)  # type: ignore[arg-type]

    def summary(self) -> dict[str, MetricSummary]:
        """What there is by now."""
        with self._lock:
            return {name: MetricSummary(**{key: getattr(c, key) for key in c.__slots__}) for name, c in self._counted.items()}

    def _count(self, name: str, value: float, step: int | None) -> None:
        counted = self._counted.get(name)
        if counted is None:
            if len(self._counted) >= METRICS_MAX or len(name) > METRIC_NAME_MAX:
                self.is_full = True
                return
            counted = self._counted[name] = _Counted()
        try:
            counted.add(float(value), step)
        except OverflowError:  # a whole number beyond every float
            counted.add(float("inf"), step)
