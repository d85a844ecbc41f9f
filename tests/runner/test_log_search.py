"""The search for metrics holds up nobody, and says what it left out."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest

from trainmaster.runner.log_search import LogSearch
from trainmaster.spec.job_spec import MetricPattern

LOSS = MetricPattern(name="loss", regex=r"loss=(\d+)")
SLOW = MetricPattern(name="slow", regex=r"(a*a*a*a*b)")


class Bench:
    """A search whose searchers are processes of this test."""

    def __init__(self, folder, command=None) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.points: list[float] = []
        self.may_start = threading.Event()
        self.may_start.set()
        self._command = command
        self.search = LogSearch(lambda: datetime(2026, 1, 1, tzinfo=UTC), self._start, self._take)
        self._count = 0

    def _start(self, command):
        self.may_start.wait(60)
        self.started.append(subprocess.Popen(self._command or command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return self.started[-1]

    def _take(self, found):
        self.points += [json.loads(line)["loss"] for line in found.lines.splitlines()]

    def print(self, text: bytes) -> None:
        """One more chunk; it is gone from its place at once, like one that was shipped."""
        path = self.folder / f"chunk-{self._count}"
        self._count += 1
        path.write_bytes(text)
        self.search.add(path)
        path.unlink()

    def until_points(self, count: int) -> None:
        """Wait until so many were found."""
        deadline = time.monotonic() + 60
        while len(self.points) < count:
            assert time.monotonic() < deadline, self.points
            time.sleep(0.001)

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_lines_span_chunks_and_the_last_has_no_newline(bench):
    bench.search.watch([LOSS])
    for text in (b"loss=1\nlo", b"ss=2", b"3\n", b"x" * 300_000 + b"\nloss=4\nloss=5"):
        bench.print(text)
    bench.search.finish(60)
    assert (bench.points, bench.search.troubles, len(bench.started)) == ([1, 23, 4, 5], [], 1)


def test_without_patterns_nothing_is_started(bench):
    bench.search.watch([])
    bench.print(b"loss=1\n")
    bench.search.finish(60)
    assert (bench.points, bench.started, bench.search.troubles) == ([], [], [])


def test_a_pattern_that_takes_too_long_is_dropped_and_the_others_go_on(bench):
    bench.search.watch([SLOW, LOSS])
    bench.print(b"loss=1\n" + b"a" * 100_000 + b"\nloss=2\n")
    bench.print(b"loss=3\n")
    bench.search.finish(60)
    assert bench.points == [1, 2, 3]
    [trouble] = bench.search.troubles
    assert trouble.startswith("the metric pattern slow ((a*a*a*a*b)) takes too much time")
    assert len(bench.started) == 3


def test_only_slow_patterns_are_all_dropped(bench):
    bench.search.watch([SLOW])
    bench.print(b"a" * 100_000 + b"\n")
    bench.search.finish(60)
    assert (len(bench.search.troubles), len(bench.started)) == (1, 2)
    bench.print(b"more")
    assert len(bench.search.troubles) == 1


def test_what_cannot_wait_is_left_out_counted_and_never_glued_together(bench):
    bench.may_start.clear()
    bench.search.watch([LOSS])
    for _ in range(99):
        bench.print(b"loss=1\n")
    bench.print(b"loss=2")
    bench.print(b"left out, and with it the end of the line")
    assert bench.search.troubles == ["41 bytes of output were not searched for metrics: the search could not keep up"]
    bench.may_start.set()
    bench.until_points(99)
    bench.print(b"7\nloss=8\n")
    bench.search.finish(60)
    assert bench.points == [1] * 99 + [8]


def test_the_end_of_a_job_waits_so_long_and_no_longer(tmp_path):
    bench = Bench(tmp_path, [sys.executable, "-c", "import time; time.sleep(3600)"])
    bench.search.watch([LOSS])
    bench.print(b"loss=1\n")
    bench.search.finish(0.2)
    assert bench.search.troubles == ["7 bytes of output were not searched for metrics: the search could not keep up"]
    bench.close()


def test_a_searcher_that_cannot_work_is_not_asked_again_and_again(tmp_path):
    bench = Bench(tmp_path, [sys.executable, "-c", "pass"])
    bench.search.watch([LOSS])
    for _ in range(20):
        bench.print(b"loss=1\n")
    bench.search.finish(60)
    assert len(bench.started) == 2
    assert bench.search.troubles == ["140 bytes of output were not searched for metrics: the search could not keep up"]
    bench.close()
