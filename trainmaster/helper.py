"""How does a script tell Trainmaster its metrics and steps? Optional, without dependencies, and silent everywhere else.

    import trainmaster
    trainmaster.log(step=10, loss=0.3)
    trainmaster.checkpoint("ckpt.pt", step=10)

Under Trainmaster the environment names a file; each call appends one line to it. Anywhere else the calls do nothing. The runner
puts a copy of this file on the script's path, so that the import works in any environment.
"""

from __future__ import annotations

import contextlib
import os
import time

_UNDECIDED, _ELSEWHERE = -1, -2
_file = _UNDECIDED


def log(step: int | None = None, **metrics: float) -> None:
    """Report metrics, at a step if there is one. Numbers, or anything that float() takes (a tensor with one element)."""
    if _file == _ELSEWHERE:
        return
    point: dict[str, object] = _with_step(step)
    for name, value in metrics.items():
        with contextlib.suppress(TypeError, ValueError):  # what is no number is not reported, and never ends a training
            point[name] = float(value)
    _append(point)


def checkpoint(path: str | os.PathLike[str], step: int) -> None:
    """Say that `path` was written completely, at `step`. The folder is committed soon after, with or without this call."""
    if _file != _ELSEWHERE:
        _append({**_with_step(step), "checkpoint": os.path.abspath(path)})


def _with_step(step: int | None) -> dict[str, object]:
    if step is not None:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return {"step": int(step)}
    return {}


def _append(point: dict[str, object]) -> None:
    """One write call per line: lines of several processes do not mix. Trouble with the file is not the script's trouble."""
    global _file  # noqa: PLW0603
    import json

    # The clock that file systems stamp files with: tells whether a file was written before or after this line.
    point["t"] = time.clock_gettime(getattr(time, "CLOCK_REALTIME_COARSE", time.CLOCK_REALTIME))
    try:
        if _file == _UNDECIDED:
            path = os.environ.get("TM_METRICS_FILE")
            _file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if path else _ELSEWHERE
        if _file >= 0:
            os.write(_file, json.dumps(point).encode() + b"\n")
    except OSError:
        _file = _ELSEWHERE
