"""A script that dies in the middle of a save while its runner sleeps: what it left lies still, nobody writes it, and it is torn."""

from __future__ import annotations

import signal
import time

import pytest
from process.world import is_alive

pytestmark = pytest.mark.process

#: Saves a whole state; then overwrites it in place, half of it, and dies when the gate opens.
HALF = """
import os, time
path = os.path.join(os.environ["TM_CHECKPOINT_DIR"], "state")
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored 0", flush=True)
open(path, "w").write("whole")
while int(open(os.environ["GATE"]).read()) < 1:
    time.sleep(0.01)
file = open(path, "w")
file.write("ha")
file.flush()
open(os.environ["GATE"] + "-half", "w").close()
while int(open(os.environ["GATE"]).read()) < 2:
    time.sleep(0.01)
os._exit(28)
"""
SETTLE_S = 0.1


def test_half_a_save_is_not_committed_when_the_runner_slept_through_its_end(world):
    job = world.submit(world.job_file(HALF, checkpoints={"settle": SETTLE_S}))
    world.until_committed(job, "whole")
    script, runner = world.script_pid(job), world.runner_pid(job)
    world.open_gate(1)
    world.until("half is written", world.gate.with_name("gate-half").exists)
    world.kill(runner, number=signal.SIGSTOP)
    world.open_gate(2)
    world.until("the script is dead", lambda: not is_alive(script))
    died_s = time.monotonic()
    world.until("what it left lay still for long", lambda: time.monotonic() > died_s + 5 * SETTLE_S)
    world.kill(runner, number=signal.SIGCONT)
    world.wait(job, expect=1)
    assert [world.files_of(job, ref["id"])["state"] for ref in world.commits(job)] == [b"whole"]
