"""Scripts whose checkpoint folder never lies still: what they say is complete is committed, and nothing is ever torn."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.process

#: Saves its step in two files, and says so, up to the first argument; then waits at the gate, half-way through the next save.
TWO_FILES = """
import os, sys, time, trainmaster
folder, gate, last = os.environ["TM_CHECKPOINT_DIR"], os.environ["GATE"], int(sys.argv[1])
paths = [os.path.join(folder, name) for name in ("model", "optimizer")]
found = [open(path).read() if os.path.exists(path) else "0" for path in paths]
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored {' '.join(found)}", flush=True)
for step in range(int(found[0]) + 1, last + 1):
    for path in paths:
        while 10 * step + paths.index(path) > int(open(gate).read() or 0):
            time.sleep(0.01)
        with open(path, "w") as file:
            file.write(str(step))
        print("wrote", os.path.basename(path), step, flush=True)
    trainmaster.checkpoint(folder, step=step)
"""

#: Saves two files again and again until the gate opens, saying each time that they are complete.
BUSY = """
import os, time, trainmaster
folder, gate = os.environ["TM_CHECKPOINT_DIR"], os.environ["GATE"]
step = 0
while not int(open(gate).read() or 0):
    step += 1
    for name in ("model", "optimizer"):
        with open(os.path.join(folder, name), "w") as file:
            file.write(str(step))
    trainmaster.checkpoint(os.path.join(folder, "model"), step)
    time.sleep(0.2)
print("saved", step)
"""

#: Overwrites one small file in place all the time, beside a large one, until the gate opens.
ONE_RESTLESS = """
import os, time
folder, gate = os.environ["TM_CHECKPOINT_DIR"], os.environ["GATE"]
with open(os.path.join(folder, "big"), "wb") as file:
    file.write(bytes(1 << 20))
round = 0
while not int(open(gate).read() or 0):
    round += 1
    with open(os.path.join(folder, "latest"), "w") as file:
        file.write(f"{round}" * 10)
    time.sleep(0.02)
"""


def _saved(world, job) -> list[tuple[str, str, int | None]]:
    """What each commit holds, and the step it is said to be of."""
    found = [(commit, world.files_of(job, commit["id"])) for commit in world.commits(job)]
    return [(files["model"].decode(), files["optimizer"].decode(), commit.get("step")) for commit, files in found]


def test_what_the_script_says_is_complete_is_committed_without_waiting(world):
    """`settle` is an hour: only the script's word makes these commits, and only for what it spoke of."""
    file = world.job_file(TWO_FILES, arguments=["2"], checkpoints={"settle": 3600, "keep": 10}, retry={"failures": 1})
    job = world.submit(file)
    world.open_gate(11)
    world.until("step 1 is committed", lambda: _saved(world, job) == [("1", "1", 1)])
    world.open_gate(20)
    world.until("half of step 2 is written", lambda: "wrote model 2" in world.log(job))
    first = world.heartbeat(job)["at"]
    world.until("there was time to take it", lambda: world.later_s(job, first) > 1.5)
    assert _saved(world, job) == [("1", "1", 1)]
    world.kill(world.script_pid(job))
    world.cli("list")
    world.until_attempt(job, 2)
    assert "restored 1 1\n" in world.log(job, 2)
    world.open_gate(21)
    assert world.wait(job)["outcome"] == "succeeded"
    assert _saved(world, job) == [("1", "1", 1), ("2", "2", 2)]


def test_a_script_that_saves_all_the_time_is_committed_while_it_runs(world):
    job = world.submit(world.job_file(BUSY, checkpoints={"settle": 1, "keep": 100}))
    world.until("there are commits", lambda: len(world.commits(job)) >= 3)
    assert world.heartbeat(job).get("warnings", []) == []
    world.open_gate(1)
    assert world.wait(job)["outcome"] == "succeeded"
    assert all(model == optimizer == str(step) for model, optimizer, step in _saved(world, job))
    assert f"saved {_saved(world, job)[-1][0]}\n" in world.log(job)


def test_one_restless_file_does_not_hold_up_the_others(world):
    job = world.submit(world.job_file(ONE_RESTLESS, checkpoints={"settle": 0.3, "keep": 100}))
    world.until("there are commits", lambda: len(world.commits(job)) >= 2)
    world.open_gate(1)
    assert world.wait(job)["outcome"] == "succeeded"
    for commit in world.commits(job):
        files = world.files_of(job, commit["id"])
        assert files["big"] == bytes(1 << 20)
        latest = files["latest"].decode()
        assert latest
        assert latest[: len(latest) // 10] * 10 == latest, "torn"
