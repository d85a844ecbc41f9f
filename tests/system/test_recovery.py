"""Recovery where root is needed: (e) a disk that is full during a checkpoint upload; (b) a machine without control groups."""

from __future__ import annotations

import contextlib
import subprocess

import pytest
from process.scripts import FAMILY
from process.world import is_alive

pytestmark = [pytest.mark.system, pytest.mark.process]

#: COUNT with weights: at step 2 of attempt 1 they are larger than the store's disk.
WEIGHTS = """
import hashlib, os, sys, time
folder, gate, last = os.environ["TM_CHECKPOINT_DIR"], os.environ["GATE"], int(sys.argv[1])
attempt, path, step = os.environ["TM_ATTEMPT"], os.path.join(os.environ["TM_CHECKPOINT_DIR"], "state"), 0
if os.path.exists(path):
    data = open(path, "rb").read()
    assert hashlib.sha256(data[:-32]).digest() == data[-32:], "torn"
    step = int(data[:8])
print(f"attempt {attempt} pid {os.getpid()} restored {step}", flush=True)
while step < last:
    while step >= int(open(gate).read() or 0):
        time.sleep(0.01)
    step += 1
    size = 24 << 20 if attempt == "1" and step == 2 else 1 << 20
    body = b"%08d" % step + bytes([step]) * (size - 8)
    with open(path + ".tmp", "wb") as file:
        file.write(body + hashlib.sha256(body).digest())
    os.replace(path + ".tmp", path)
    print(f"step {step}", flush=True)
"""


@pytest.fixture
def small_store(world, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", small], check=True)
    world.store = small / "store"
    world.environ["TRAINMASTER_STORE"] = str(world.store)
    world.environ["TRAINMASTER_ATTEMPT_LEASE_S"] = "2"
    yield world
    world.close()
    subprocess.run(["umount", small], check=True)


def _fill(path) -> None:
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def _state(world, job) -> int | None:
    commits = world.commits(job)
    return int(world.files_of(job, commits[-1]["id"])["state"][:8]) if commits else None


def test_a_full_disk_hides_the_torn_checkpoint_and_the_previous_one_is_restored(small_store):
    world = small_store
    job = world.submit(world.job_file(WEIGHTS, arguments=["4"], retry={"failures": 1}))
    world.open_gate(1)
    world.until("step 1 is committed", lambda: _state(world, job) == 1)
    world.open_gate(2)
    world.until("the job says so", lambda: "No space left" in " ".join(world.heartbeat(job).get("warnings", [])))
    assert "No space left" in " ".join(world.cli("show", job).stdout.decode().split())
    world.until("the job goes on", lambda: "step 2\n" in world.log(job))
    assert [c["id"] for c in world.commits(job)] == ["1-000001"]
    world.kill(world.script_pid(job))
    world.until_attempt(job, 2)
    assert "restored 1\n" in world.log(job, 2)
    assert len(world.record(job)["attempts"]) == 2
    world.open_gate(4)
    record = world.wait(job)
    assert (record["outcome"], _state(world, job)) == ("succeeded", 4)
    assert not list(world.store.glob("jobs/*/checkpoints/1-000002*"))


def test_room_made_later_commits_what_waits(small_store):
    world = small_store
    ballast = world.store.parent / "ballast"
    ballast.write_bytes(b"x" * (6 << 20))
    job = world.submit(world.job_file(WEIGHTS.replace("24 <<", "4 <<"), arguments=["2"]))
    world.open_gate(2)
    world.until("the script has ended", lambda: "step 2\n" in world.log(job) and not world.processes(job))
    world.until("the job says so", lambda: "No space left" in " ".join(world.heartbeat(job).get("warnings", [])))
    ballast.unlink()
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"]), _state(world, job)) == ("succeeded", 1, 2)


SILENT = """
import os, time
while int(open(os.environ["GATE"]).read() or 0) < 1:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("script", [WEIGHTS, SILENT], ids=["weights", "silent"])
def test_a_disk_so_full_that_nothing_can_be_said_delays_the_end_only(small_store, script):
    world = small_store
    job = world.submit(world.job_file(script, arguments=["1"]))
    world.until("the job runs", lambda: world.record(job)["phase"] == "running" and world.processes(job))
    ballast = world.store.parent / "ballast"
    _fill(ballast)
    world.open_gate(1)
    world.until("the script has ended", lambda: not world.processes(job))
    runner_log = world.home / "machines" / f"{job}-a1" / "runner.log"
    world.until("it waits for room", lambda: runner_log.stat().st_size > 0)
    world.until("it was looked at since", lambda: world.next_look_s(job) > runner_log.stat().st_mtime + 0.5)
    assert world.record(job)["phase"] == "running"
    ballast.unlink()
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    if script is WEIGHTS:
        assert (_state(world, job), world.log(job)[-7:]) == (1, "step 1\n")


def test_without_control_groups_no_orphan_is_left_either(world):
    """Only the marks of a job's processes are left to find them by."""
    world.prefix = ["unshare", "-m", "sh", "-c", 'umount -l /sys/fs/cgroup/unified; umount -l /sys/fs/cgroup; exec "$0" "$@"']
    job = world.submit(world.job_file(FAMILY, arguments=["4"]))
    world.open_gate(2)
    world.until_committed(job, "2")
    assert '"cgroup":""' in (world.home / "machines" / f"{job}-a1" / "launch.json").read_text()
    script, family = world.script_pid(job), world.family()
    world.kill(world.runner_pid(job))
    world.until_attempt(job, 2)
    assert not any(is_alive(pid) for pid in [script, *family])
    assert "restored 2\n" in world.log(job, 2)
    for name in ("left-session", "forked-twice"):
        (world.folder / name).unlink()
    world.kill(world.script_pid(job, 2))
    world.until("it has failed", lambda: world.record(job)["phase"] == "finished")
    assert not world.processes(job)
