"""How does a script tell Trainmaster its metrics and steps? Optional, without dependencies, and silent everywhere else.

    import trainmaster
    trainmaster.log(step=10, loss=0.3)
    trainmaster.checkpoint("ckpt.pt", step=10)

Under Trainmaster the environment names a file; each call appends one line to it. Anywhere else the calls do nothing. The runner
puts a copy of this file on the script's path, so that the import works in any environment.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_UNDECIDED, _ELSEWHERE = -1, -2
_file = _UNDECIDED
_encode: Callable[[object], str] | None = None
#: The clock that file systems stamp files with ticks every few milliseconds (CLOCK_REALTIME_COARSE on Linux). What was written
#: before a moment of the exact clock is stamped with no later one; what is written once this clock has passed it, with a later one.
_STAMPS = 5 if sys.platform == "linux" else time.CLOCK_REALTIME
_TICKS_MAX = 20


def log(step: int | None = None, **metrics: float) -> None:
    """Report metrics, at a step if there is one. Numbers, or anything that float() takes (a tensor with one element)."""
    if _file == _ELSEWHERE:
        return
    point: dict[str, object] = _with_step(step)
    for name, value in metrics.items():
        try:  # noqa: SIM105  once per step of a training: a context manager would cost more than the rest
            point[name] = float(value)
        except (TypeError, ValueError):  # what is no number is not reported, and never ends a training
            pass
    _append(point)


def checkpoint(path: str | os.PathLike[str], step: int) -> None:
    """Say that `path` was written completely, at `step`, and with it all of the checkpoint folder: it is committed as it is now.

    Returns when the clock of files has ticked, a few milliseconds later: so what is written from then on is told from what was
    there. Without this call the folder is committed when it has lain still for a while.
    """
    if _file == _ELSEWHERE:
        return
    point = {**_with_step(step), "checkpoint": os.path.abspath(path)}
    _append(point)
    for _ in range(_TICKS_MAX if _file >= 0 else 0):
        if time.clock_gettime(_STAMPS) > point["t"]:  # type: ignore[operator]
            return
        time.sleep(0.001)


def _with_step(step: int | None) -> dict[str, object]:
    try:
        return {} if step is None else {"step": int(step)}
    except (TypeError, ValueError, OverflowError):
        return {}


def _append(point: dict[str, object]) -> None:
    """One write call per line: lines of several processes do not mix. Trouble with the file is not the script's trouble."""
    global _file, _encode  # noqa: PLW0603
    point["t"] = time.clock_gettime(time.CLOCK_REALTIME)
    try:
        if _encode is None:
            from json import JSONEncoder  # at the first call: most programs that import this package never make one

            _encode = JSONEncoder(separators=(",", ":"), check_circular=False).encode
            path = os.environ.get("TM_METRICS_FILE")
            _file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if path else _ELSEWHERE
        if _file >= 0:
            os.write(_file, _encode(point).encode() + b"\n")
    except OSError:
        _file = _ELSEWHERE
