"""Metric patterns, however bad, never hold up a job, its output or its end; and what searches for them is none of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from process.scripts import COUNT, FAMILY, POLITE
from process.world import is_alive

pytestmark = pytest.mark.process

LOSS = {"name": "loss", "regex": r"^loss=(\d+)$"}
#: Accepted at submission; on a line of n times `a` it takes n to the fourth steps.
SLOW = {"name": "slow", "regex": "(a*a*a*a*b)"}
STEP = {"name": "step", "regex": r"^step (\d+)"}

FLOOD = """
import os
for number in range(300):
    block = memoryview(b"a" * 100_000 + b"\\nloss=%d\\n" % number)
    while block:
        block = block[os.write(1, block):]
"""


def _searchers(world) -> list[int]:
    command_lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in world.ours()}
    return [pid for pid, file in command_lines.items() if file.exists() and b"searcher.py" in file.read_bytes()]


def test_a_pattern_without_end_holds_up_nothing(world):
    job = world.submit(world.job_file(FLOOD, metrics={"patterns": [SLOW, LOSS]}))
    record = world.wait(job)
    assert record["outcome"] == "succeeded"
    assert world.log(job) == "".join(f"{'a' * 100_000}\nloss={n}\n" for n in range(300))
    assert [point["loss"] for point in world.json("metrics", job)] == list(range(300))
    shown = " ".join(world.cli("show", job).stdout.decode().split())
    assert "the metric pattern slow ((a*a*a*a*b)) takes too much time" in shown
    assert "pattern loss" not in shown
    world.until("the searcher is gone", lambda: not _searchers(world))


def test_the_log_and_the_stop_do_not_wait_for_a_search(world):
    """The script's output is there, and it can be stopped, while the search for its first line is under way."""
    script = f"print('a' * 100_000, flush=True)\n{POLITE}"
    job = world.submit(world.job_file(script, arguments=["0"], metrics={"patterns": [SLOW, LOSS]}))
    world.until("the line after it is in the store", lambda: "restored 0" in world.log(job))
    world.until("it is searched", lambda: _searchers(world))
    world.cli("stop", job, "--wait")
    assert world.record(job)["outcome"] == "stopped"
    assert world.committed(job) == "final, told 1 times"


def test_a_searcher_that_is_killed_loses_nothing(world):
    job = world.submit(world.job_file(COUNT, arguments=["6"], metrics={"patterns": [STEP]}))
    world.open_gate(2)
    [first] = world.until("it searches", lambda: _searchers(world))
    world.until("it found the first lines", lambda: len(world.json("metrics", job)) == 2)
    world.kill(first)
    world.open_gate(4)
    world.until("another goes on", lambda: len(world.json("metrics", job)) == 4)
    assert first not in _searchers(world)
    world.open_gate(6)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    assert [point["step"] for point in world.json("metrics", job)] == [1, 2, 3, 4, 5, 6]
    assert world.json("show", job)["exit"].get("warnings", []) == []


def test_the_searcher_is_no_process_of_the_job(world):
    job = world.submit(world.job_file(FAMILY, arguments=["3"], metrics={"patterns": [STEP]}))
    world.open_gate(1)
    [searcher] = world.until("it searches", lambda: _searchers(world))
    assert searcher not in world.processes(job)
    script, family = world.script_pid(job), world.family()
    world.kill(script)
    # Whatever the script left running dies with it; the searcher first finishes what was printed.
    world.wait(job, expect=1)
    assert not any(map(is_alive, family))
    assert [point["step"] for point in world.json("metrics", job)] == [1]
    world.until("the searcher is gone", lambda: not _searchers(world))


def test_a_stopped_shell_does_not_wait_for_the_searcher(world):
    """The shell dies of SIGTERM at once; the job is over with the script that still saves, not with the searcher."""
    world.write("polite.py", POLITE.replace("print(f", 'print("step 1")\nprint(f'))
    file = world.spec_file(
        name="shell", command="python polite.py 0; true", metrics={"patterns": [STEP]}, checkpoints={"settle": 0.1}
    )
    job = world.submit(file)
    world.until("it searches", lambda: _searchers(world))
    world.cli("stop", job, "--wait")
    assert world.record(job)["outcome"] == "stopped"
    assert world.committed(job) == "final, told 1 times"
    assert world.json("show", job)["exit"].get("signal") != "SIGKILL"


def test_the_searcher_dies_with_its_runner(world):
    script = f"print('a' * 100_000, flush=True)\n{COUNT}"
    job = world.submit(world.job_file(script, arguments=["1"], metrics={"patterns": [SLOW]}))
    [searcher] = world.until("it searches", lambda: _searchers(world))
    world.kill(world.runner_pid(job))
    world.until("it is gone at once", lambda: not is_alive(searcher))
    world.open_gate(1)
    assert world.wait(job)["outcome"] == "succeeded"
    world.until("no searcher is left", lambda: not _searchers(world))
