"""Which numbers do a job's patterns find in a block of its output? A program of its own, because a search cannot be interrupted.

Started by log_search.py as `python -I -S searcher.py`, with pipes as its input and output. A pattern that looks back and forth
over a long line may take hours, and holds Python's lock meanwhile; here it holds up nobody, and the kernel ends this process when
one pattern has used too much CPU time for one block. What is said on the pipes:

    in:   patterns as one line of JSON, [[name, regex], …]; then blocks: a line "TIME SIZE" and so many bytes
    out:  for each block: a line "@N" before pattern N is searched; then "=POINTS FIRST LAST SIZE" and so many bytes, the points
          as lines of JSON. FIRST and LAST are the first and the last step among them, "-" for none.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

#: CPU time for one pattern on one block, a quarter of a megabyte at most; a plain pattern takes milliseconds.
CPU_S_MAX = 2.0
MEMORY_BYTES_MAX = 1 << 30
#: also refuses what is no number at all
STEP_MAX = 1e15
#: keys as JSON writes them
STEP, TIME = b'"step"', b'"t"'

Patterns = list[tuple[bytes, re.Pattern[bytes]]]


def main() -> None:
    """Answer blocks until the input ends, which it does with the runner."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the runner may be told to end: then the last lines are yet to come
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _limit_memory()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    patterns = compiled(json.loads(source.readline()))

    def begin(number: int) -> None:
        sink.write(b"@%d\n" % number)
        sink.flush()
        signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)

    while head := source.readline():
        _answer(head, source, sink, lambda text, at: found(patterns, text, at, begin))


def _answer(head: bytes, source: BinaryIO, sink: BinaryIO, find: Callable[[bytes, bytes], Points]) -> None:
    at, size = head.split()
    text = source.read(int(size))
    points = find(text, at)
    signal.setitimer(signal.ITIMER_PROF, 0)
    lines = b"\n".join(points.lines)
    first, last = [b"-" if step is None else b"%d" % step for step in (points.first_step, points.last_step)]
    sink.write(b"=%d %s %s %d\n" % (len(points.lines), first, last, len(lines)))
    sink.write(lines)
    sink.flush()


def _limit_memory() -> None:
    """A limit that is lower already, or that this system does not know, stays as it is."""
    import resource

    for kind, most in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CORE, 0)):
        try:  # noqa: SIM105  contextlib would be one more module
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            pass


def compiled(patterns: list[tuple[str, str]]) -> Patterns:
    """Each pattern with its metric's name as JSON writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [(json.dumps(name).encode(), re.compile(regex.encode(), re.MULTILINE)) for name, regex in patterns]


class Points:
    """What was found in one block."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.first_step: int | None = None
        self.last_step: int | None = None


def found(patterns: Patterns, text: bytes, at: bytes, begin: Callable[[int], None]) -> Points:
    """The points of a block in the order of its lines. What different patterns find in one line belongs to one point."""
    hits: list[tuple[int, bytes, bytes]] = []
    for number, (name, pattern) in enumerate(patterns):
        begin(number)
        names = [(json.dumps(group).encode(), index) for group, index in pattern.groupindex.items()] or [(name, 1)]
        for match in pattern.finditer(text):
            start = match.start()
            hits += [(start, key, match[index]) for key, index in names]
    if len(patterns) > 1:
        hits.sort(key=lambda hit: hit[0])
    points = Points()
    values: dict[bytes, float] = {}
    line_end = -1
    for start, key, value in hits:
        if start > line_end:
            _add(points, values, at)
            values = {}
            line_end = text.find(b"\n", start)
            line_end = len(text) if line_end < 0 else line_end
        try:
            values[key] = float(value)
        except (TypeError, ValueError):
            continue  # an optional group that is not there, or no number: left out
    _add(points, values, at)
    return points


def _add(points: Points, values: dict[bytes, float], at: bytes) -> None:
    """One more point as a line of JSON."""
    if not values:
        return
    step = values.get(STEP)
    if step is not None and abs(step) < STEP_MAX:
        values[STEP] = points.last_step = int(step)
        points.first_step = points.last_step if points.first_step is None else points.first_step
    own = b"" if TIME in values else b'"t":%s,' % at
    pairs = [b"%s:%r" % pair if pair[1] - pair[1] == 0 else b"%s:%s" % _odd(*pair) for pair in values.items()]
    points.lines.append(b"{%s%s}" % (own, b",".join(pairs)))


def _odd(key: bytes, number: float) -> tuple[bytes, bytes]:
    """Infinite, or not a number: JSON's readers know words of their own for them."""
    return key, json.dumps(number).encode()


if __name__ == "__main__":
    main()
