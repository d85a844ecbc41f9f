"""What patterns find in a block of output, and the program that does it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainmaster.runner import searcher


def _points(text: bytes, *patterns: tuple[str, str]) -> list[dict[str, float]]:
    begun: list[int] = []
    found = searcher.found(searcher.compiled(list(patterns)), text, b"7.5", begun.append)
    assert begun == list(range(len(patterns)))
    return [json.loads(line) for line in found.lines]


@pytest.mark.parametrize(
    ("text", "patterns", "points"),
    [
        (b"loss=1\nloss=2\n", [("loss", r"loss=(\d)")], [{"loss": 1}, {"loss": 2}]),
        (b"loss=1 x=2\nx=3\n", [("x", r"x=(\d)"), ("loss", r"loss=(\d)")], [{"loss": 1, "x": 2}, {"x": 3}]),
        (b"1:2\n", [("n", r"(?P<step>\d):(?P<b>\d)")], [{"step": 1, "b": 2}]),
        (b"5\n", [("n", r"(?P<a>\d)|(?P<b>x)")], [{"a": 5}]),
        (b"a=1e-5\na=x\na=.5", [("a", r"a=(\S+)")], [{"a": 1e-5}, {"a": 0.5}]),
        (b"a=-inf\n", [("a", r"a=(\S+)")], [{"a": float("-inf")}]),
        (b"step 12.0\n", [("step", r"step (\S+)")], [{"step": 12}]),
        (b"1\n", [('say "é"', r"(\d)")], [{'say "é"': 1}]),
        (b"\xff\x00 3\n", [("n", r"(\d)")], [{"n": 3}]),
        (b"t=9\n", [("n", r"t=(?P<t>\d)")], [{"t": 9}]),
        (b"nothing\n", [("n", r"(\d)")], []),
    ],
)
def test_what_is_found(text, patterns, points):
    assert _points(text, *patterns) == [{"t": 7.5, **point} for point in points]


def test_first_and_last_step_of_a_block():
    patterns = searcher.compiled([("step", r"step (\S+)")])
    found = searcher.found(patterns, b"step 3\nstep 1\nstep nan\nstep 2\n", b"0", lambda _: None)
    assert (found.first_step, found.last_step) == (3, 2)


def _speak(patterns: list[tuple[str, str]], *blocks: bytes) -> subprocess.CompletedProcess[bytes]:
    said = json.dumps(patterns).encode() + b"\n" + b"".join(b"1.0 %d\n%s" % (len(block), block) for block in blocks)
    return subprocess.run([sys.executable, "-I", "-S", searcher.__file__], input=said, capture_output=True, timeout=60)


def test_blocks_are_answered_until_the_input_ends():
    done = _speak([("a", r"a=(\d)"), ("b", r"b=(\d)")], b"a=1\n", b"", b"no")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b'@0\n@1\n=1 - - 17\n{"t":1.0,"a":1.0}' + b"@0\n@1\n=0 - - 0\n" * 2


def test_a_search_without_end_is_ended_by_the_kernel_and_the_pattern_is_known():
    done = _speak([("fast", r"(a)b"), ("slow", r"(a*a*a*a*b)")], b"a" * 100_000 + b"\n")
    assert done.returncode == -27  # SIGPROF
    assert done.stdout == b"@0\n@1\n"


def test_it_loads_next_to_nothing():
    done = subprocess.run([sys.executable, "-X", "importtime", "-I", "-S", searcher.__file__], input=b"[]\n", capture_output=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines() if line.startswith("import time:")}
    assert "re" in modules
    assert len(modules) < 60
    assert not modules & {"site", "typing", "threading", "ctypes", "msgspec", "subprocess", "datetime", "pathlib"}
