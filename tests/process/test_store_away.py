"""Recovery (f): the bucket refuses everything for a while. Training goes on, and everything arrives later."""

from __future__ import annotations

import os

import pytest
from process.scripts import COUNT
from process.world import seconds, steps

pytestmark = pytest.mark.process

#: Counts, measures, and tells outside of the store how far it is.
MEASURED = COUNT.replace("import os, sys, time", "import os, sys, time, trainmaster").replace(
    '    print(f"step {step}", flush=True)',
    '    trainmaster.log(step=step, loss=1 / step)\n    print(f"step {step}", flush=True)\n'
    '    open(gate + ".reached", "a").write(f"{step}\\n")',
)


def _take_away(world) -> None:
    os.rename(world.home / "store", world.home / "store-away")
    (world.home / "store").write_text("this is no store")


def _put_back(world) -> None:
    (world.home / "store").unlink()
    os.rename(world.home / "store-away", world.home / "store")


def _reached(world) -> str:
    file = world.gate.with_suffix(".reached")
    return file.read_text() if file.exists() else ""


def test_training_goes_on_while_the_store_is_away_and_everything_arrives_later(world):
    world.environ["TRAINMASTER_ATTEMPT_LEASE_S"] = "1.5"
    job = world.submit(world.job_file(MEASURED, arguments=["30"]))
    world.open_gate(2)
    world.until_committed(job, "2")
    script, drivers = world.script_pid(job), world.drivers()
    lease_end = world.json("show", job)["heartbeat"]["lease_until"]
    _take_away(world)
    world.open_gate(20)
    world.until("the script goes on", lambda: _reached(world).endswith("20\n"))
    runner_log = world.home / "machines" / f"{job}-a1" / "runner.log"
    world.until("commits are suspended when the lease lapses", lambda: "commits are suspended" in runner_log.read_text())
    world.until("it was looked at after its lease", lambda: world.next_look_s(job) > seconds(lease_end) + 2)
    world.open_gate(21)
    world.until("the script goes on still", lambda: _reached(world).endswith("21\n"))
    record = world.record(job)
    assert (record["phase"], len(record["attempts"])) == ("running", 1)
    assert world.drivers() == drivers
    _put_back(world)
    world.until_committed(job, "21")
    world.until("commits go on", lambda: "commits go on" in runner_log.read_text())
    world.until("every line arrived", lambda: steps(world.log(job)) == list(range(1, 22)))
    world.until("no trouble is left", lambda: not world.json("show", job)["heartbeat"].get("warnings"))
    world.open_gate(30)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    assert world.cli("logs", job).stdout.decode().splitlines() == [
        f"attempt 1 pid {script} restored 0",
        *(f"step {n}" for n in range(1, 31)),
    ]
    assert [(p["step"], p["attempt"]) for p in world.json("metrics", job)] == [(n, 1) for n in range(1, 31)]


def test_a_job_that_ends_while_the_store_is_away_loses_nothing(world):
    world.environ["TRAINMASTER_ATTEMPT_LEASE_S"] = "1.5"
    last_words = MEASURED + '\nopen(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w").write("final")'
    job = world.submit(world.job_file(last_words, arguments=["5"]))
    world.open_gate(2)
    world.until_committed(job, "2")
    script = world.script_pid(job)
    _take_away(world)
    world.open_gate(5)
    world.until("the script has ended", lambda: script not in world.processes(job))
    runner_log = world.home / "machines" / f"{job}-a1" / "runner.log"
    world.until("commits are suspended when the lease lapses", lambda: "commits are suspended" in runner_log.read_text())
    _put_back(world)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    assert (world.committed(job), steps(world.log(job))) == ("5", [1, 2, 3, 4, 5])
    assert [p["step"] for p in world.json("metrics", job)] == [1, 2, 3, 4, 5]
    assert (world.home / "store" / "jobs" / job / "model" / "weights").read_text() == "final"


def test_a_store_that_is_away_is_never_made_anew(world):
    """An unmounted disk leaves an empty folder, or none: a command that put a new store there would hide the real one."""
    job = world.submit(world.job_file(COUNT, arguments=["2"]))
    world.open_gate(1)
    world.until_committed(job, "1")
    os.rename(world.home / "store", world.home / "store-away")
    shown = world.cli("show", job)
    assert b"running" in shown.stdout
    assert b"cannot be read now" in shown.stderr
    refused = world.cli("logs", job, expect=5)
    assert b"store" in refused.stderr
    assert not (world.home / "store").exists()
    (world.home / "store").mkdir()
    assert job.encode() in world.cli("list").stdout
    assert not list((world.home / "store").iterdir())
    (world.home / "store").rmdir()
    os.rename(world.home / "store-away", world.home / "store")
    world.open_gate(2)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"]), world.committed(job)) == ("succeeded", 1, "2")
