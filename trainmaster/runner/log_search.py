"""How is a job's output searched for metrics, with nobody waiting for the search?

Whoever ships the log only opens each chunk here and goes on: an open file stays readable when the chunk has moved to the store. One
thread feeds the chunks, block by block, to a process of its own (searcher.py). When that falls too far behind, chunks are left
out, counted, and said. When it ends, whoever ended it, it is started again with the same block; when it ends twice in the same
pattern, that pattern takes too long or too much, is dropped, and the others go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import msgspec
from msgspec import Struct

from trainmaster.adapters import host
from trainmaster.adapters.folder_files import write_all
from trainmaster.spec.job_spec import MetricPattern

_BLOCK = 128 << 10
#: Of a longer line only the end is searched.
_LINE_MAX = 128 << 10
#: How far the search may fall behind. Chunks that wait lie on the disk, not in memory.
_WAITING_BYTES_MAX = 256 << 20
_WAITING_FILES_MAX = 100
_TRIES = 2
#: A searcher that cannot be started is not asked for at each block.
_REST_S = 5.0
_SHOWN_MAX = 80


class Found(Struct, frozen=True, kw_only=True):
    """The points of one block: lines of JSON, how many, and the first and last step among them."""

    at_s: float
    lines: bytes
    points: int
    first_step: int | None
    last_step: int | None


class _Piece(Struct, frozen=True, kw_only=True):
    """A chunk of output that waits to be searched."""

    descriptor: int
    size: int
    at_s: float
    #: what came before it was left out, so its first line may have no beginning
    follows_gap: bool


class LogSearch:
    """Searches chunks in a thread and a process of its own; `take` gets what was found."""

    def __init__(
        self,
        now: Callable[[], datetime],
        start_searcher: Callable[[Sequence[str]], subprocess.Popen[bytes]],
        take: Callable[[Found], None],
    ) -> None:
        self._now = now
        self._start_searcher = start_searcher
        self._take = take
        self._patterns: list[MetricPattern] = []
        self._queue: SimpleQueue[_Piece | None] = SimpleQueue()
        # Each counter is written by one thread: what was added and left out by the shipper's, the others by ours.
        self._files_added = self._bytes_added = self._bytes_left_out = 0
        self._files_done = self._bytes_done = self._bytes_failed = 0
        self._bytes_late = 0
        self._has_gap = False
        self._is_over = False
        self._searcher: subprocess.Popen[bytes] | None = None
        #: the pattern the searcher is at
        self._at_pattern: int | None = None
        self._rests_until_s = 0.0
        self._rest = b""
        self._is_cut = False
        self._dropped: list[str] = []
        self._thread = threading.Thread(target=self._run, name="log-search", daemon=True)

    def watch(self, patterns: list[MetricPattern]) -> None:
        """Look for these. Without any, nothing is started."""
        self._patterns = list(patterns)
        if patterns:
            self._thread.start()

    def add(self, path: Path) -> None:
        """One more chunk of output. Never waits, and the chunk may be moved or removed afterwards."""
        if not self._patterns:
            return
        size = os.stat(path).st_size
        is_far_behind = self._bytes_added - self._bytes_done + size > _WAITING_BYTES_MAX
        if is_far_behind or self._files_added - self._files_done >= _WAITING_FILES_MAX:
            self._bytes_left_out += size
            self._has_gap = True
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._queue.put(_Piece(descriptor=descriptor, size=size, at_s=self._now().timestamp(), follows_gap=self._has_gap))
        self._has_gap = False
        self._files_added += 1
        self._bytes_added += size

    def finish(self, timeout_s: float) -> None:
        """The output is over: search the rest of it, for so long at most."""
        if not self._thread.is_alive():
            return
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._is_over = True
            self._bytes_late = self._bytes_added - self._bytes_done

    @property
    def troubles(self) -> list[str]:
        """What the user should know."""
        missed = self._bytes_left_out + self._bytes_failed + self._bytes_late
        said = f"{missed} bytes of output were not searched for metrics: the search could not keep up"
        return [*self._dropped, *([said] if missed else [])]

    def _run(self) -> None:
        at_s = 0.0
        while (piece := self._queue.get()) is not None:
            at_s = piece.at_s
            with open(piece.descriptor, "rb", buffering=0) as file, suppress(OSError):
                self._search(file, piece)
            self._files_done += 1
            self._bytes_done += piece.size
        self._find(self._rest, at_s)  # the last line may have no newline
        self._end_searcher()

    def _search(self, file: BinaryIO, piece: _Piece) -> None:
        """Blocks of whole lines; a line cut by the chunk's end is finished by the next chunk."""
        if piece.follows_gap:
            self._rest, self._is_cut = b"", True
        while not self._is_over and (block := file.read(_BLOCK)):
            if self._is_cut:
                _, newline, block = block.partition(b"\n")
                self._is_cut = not newline
            text = self._rest + block
            cut = text.rfind(b"\n") + 1
            self._rest = text[cut:][-_LINE_MAX:]
            self._find(text[:cut], piece.at_s)

    def _find(self, text: bytes, at_s: float) -> None:
        """Have a block searched, by a new searcher if this one ends; which pattern it ends in twice, is dropped."""
        ends: Counter[int | None] = Counter()
        while text and self._patterns and not self._is_over:
            if host.elapsed_s() < self._rests_until_s:
                self._bytes_failed += len(text)
                return
            try:
                self._take(self._asked(text, at_s))
                return
            except (OSError, ValueError):
                self._end_searcher()
            where = self._at_pattern
            ends[where] += 1
            if ends[where] >= _TRIES and where is None:
                self._rests_until_s = host.elapsed_s() + _REST_S
            elif ends[where] >= _TRIES:
                self._drop(where or 0)
                ends.clear()

    def _drop(self, number: int) -> None:
        dropped = self._patterns[number]
        self._patterns = [pattern for pattern in self._patterns if pattern is not dropped]
        shown = dropped.regex if len(dropped.regex) <= _SHOWN_MAX else f"{dropped.regex[:_SHOWN_MAX]}…"
        too_much = "takes too much time or memory on this output; it is not searched for any more"
        self._dropped = [*self._dropped, f"the metric pattern {dropped.name} ({shown}) {too_much}"]

    def _asked(self, text: bytes, at_s: float) -> Found:
        """The searcher's answer; OSError or ValueError when it ended instead."""
        self._at_pattern = None
        searcher = self._searcher or self._started()
        assert searcher.stdin is not None
        assert searcher.stdout is not None
        write_all(searcher.stdin.fileno(), b"%.3f %d\n" % (at_s, len(text)))
        write_all(searcher.stdin.fileno(), text)
        while (said := searcher.stdout.readline()).startswith(b"@"):
            self._at_pattern = int(said[1:])
        points, first, last, size = said.removeprefix(b"=").split()
        lines = searcher.stdout.read(int(size))
        if len(lines) < int(size):
            raise ValueError("the searcher ended in the middle of its answer")
        steps = [None if step == b"-" else int(step) for step in (first, last)]
        return Found(at_s=at_s, lines=lines, points=int(points), first_step=steps[0], last_step=steps[1])

    def _started(self) -> subprocess.Popen[bytes]:
        program = Path(__file__).with_name("searcher.py")
        searcher = self._searcher = self._start_searcher([sys.executable, "-I", "-S", os.fspath(program)])
        assert searcher.stdin is not None
        pairs = [(pattern.name, pattern.regex) for pattern in self._patterns]
        write_all(searcher.stdin.fileno(), msgspec.json.encode(pairs) + b"\n")
        return searcher

    def _end_searcher(self) -> None:
        """It ends with its input, or with the CPU time it may use; nobody has to kill it."""
        searcher, self._searcher = self._searcher, None
        if searcher is not None and searcher.stdin is not None and searcher.stdout is not None:
            searcher.stdin.close()
            searcher.stdout.close()
