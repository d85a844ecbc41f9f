"""Recovery (g): an in-place overwrite of one big file, killed in the middle or only slow, never yields a torn checkpoint."""

from __future__ import annotations

import hashlib

import pytest

pytestmark = pytest.mark.process

#: Overwrites one file in place: half, flush, tell, wait for the gate, the other half. A digest at the end proves it whole.
IN_PLACE = """
import hashlib, os, sys, time
folder, gate, last = os.environ["TM_CHECKPOINT_DIR"], os.environ["GATE"], int(sys.argv[1])
path, size, step = os.path.join(folder, "big"), 4 << 20, 0
if os.path.exists(path):
    data = open(path, "rb").read()
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        sys.exit("torn")
    step = int(data[:8])
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored {step}", flush=True)
while step < last:
    while step >= int(open(gate).read() or 0) // 10:
        time.sleep(0.01)
    step += 1
    body = b"%08d" % step + bytes([step]) * (size - 8)
    with open(path, "r+b" if os.path.exists(path) else "w+b") as file:
        file.write(body[: size // 2])
        file.flush()
        print(f"half of {step}", flush=True)
        while 10 * step + 5 > int(open(gate).read() or 0):
            time.sleep(0.01)
        file.write(body[size // 2 :] + hashlib.sha256(body).digest())
    print(f"step {step}", flush=True)
"""


def _wholes(world, job) -> list[int]:
    """The step of every commit; each of them must be whole."""
    found = []
    for commit in world.commits(job):
        data = world.files_of(job, commit["id"])["big"]
        assert hashlib.sha256(data[:-32]).digest() == data[-32:], f"{commit['id']} is torn"
        found.append(int(data[:8]))
    return found


@pytest.mark.parametrize("victim", ["script", "runner", "everything"])
def test_killed_in_the_middle_of_an_overwrite(world, victim):
    job = world.submit(world.job_file(IN_PLACE, arguments=["2"], retry={"failures": 1}))
    world.open_gate(15)
    world.until("step 1 is committed", lambda: _wholes(world, job) == [1])
    world.open_gate(20)
    world.until("half of step 2 is written", lambda: "half of 2" in world.log(job))
    first = world.heartbeat(job)["at"]
    world.until("there was time to take it", lambda: world.later_s(job, first) > 1.0)
    pids = {"script": [world.script_pid(job)], "runner": [world.runner_pid(job)]}
    world.kill(*pids.get(victim, [*world.ours(), *world.processes(job)]))
    world.cli("list")
    world.until_attempt(job, 2)
    assert "restored 1\n" in world.log(job, 2)
    world.open_gate(25)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 2)
    assert _wholes(world, job) == [1, 2]


def test_a_slow_overwrite_never_yields_a_torn_commit(world):
    job = world.submit(world.job_file(IN_PLACE, arguments=["4"], checkpoints={"keep": 100, "settle": 0.05}))
    for step in range(1, 5):
        world.open_gate(10 * step)
        world.until("half of it is written", lambda step=step: f"half of {step}" in world.log(job))
        first = world.heartbeat(job)["at"]
        world.until("there was time to take it", lambda first=first: world.later_s(job, first) > 0.7)
        assert _wholes(world, job) == list(range(1, step))
        world.open_gate(10 * step + 5)
        world.until("the whole is committed", lambda step=step: _wholes(world, job)[-1:] == [step])
    assert world.wait(job)["outcome"] == "succeeded"
    assert _wholes(world, job) == [1, 2, 3, 4]
