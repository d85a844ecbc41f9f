"""What has been measured so far, in a few numbers? Counted as the points go by, so that nobody has to read them again."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from math import isfinite

from trainmaster.core.metrics import BESIDE_METRICS, METRIC_NAME_MAX, METRICS_MAX, MetricSummary


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
        """Points as lines of JSON."""
        for line in lines.splitlines():
            self.add(json.loads(line))

    def add(self, point: Mapping[str, object]) -> None:
        """One point."""
        step = point.get("step")
        step = step if isinstance(step, int) and not isinstance(step, bool) else None
        with self._lock:
            for name, value in point.items():
                if name not in BESIDE_METRICS and isinstance(value, int | float) and not isinstance(value, bool):
                    self._count(name, value, step)

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
