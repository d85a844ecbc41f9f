"""A real runner trains only as an attempt whose claim it won, and commits only inside its lease."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace
from process.scripts import COUNT
from process.world import is_alive, seconds

from trainmaster.adapters.object_store import open_store
from trainmaster.adapters.providers.local.provider import LocalProvider
from trainmaster.core.job import allocation_name
from trainmaster.core.messages import ClaimFile
from trainmaster.ports.provider import LaunchFile
from trainmaster.spec import layout

pytestmark = pytest.mark.process

#: Saves at the gate's second step, says outside of the store how often it looked around since, and ends at the third.
SAVES_AND_LOOKS_AROUND = """
import os, time
folder, gate = os.environ["TM_CHECKPOINT_DIR"], os.environ["GATE"]
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored 0", flush=True)
step, looks = 0, 0
while step < 3:
    while step >= int(open(gate).read() or 0):
        time.sleep(0.1)
        looks += 1
        open(gate + ".looks", "w").write(f"{step} {looks}")
    step, looks = step + 1, 0
    with open(os.path.join(folder, "state"), "w") as file:
        file.write(str(step))
"""


@pytest.mark.parametrize("holder", ["elsewhere:1:2026-03-01", ""], ids=["taken", "closed"])
def test_a_runner_that_does_not_win_the_claim_touches_nothing(world, holder):
    job = world.submit(world.job_file(COUNT, arguments=["1"]))
    world.script_pid(job)
    store = open_store(str(world.store))
    opened = store.get(layout.opened(job, 1))
    assert opened is not None
    store.put(layout.opened(job, 2), opened.replace(b'"attempt":1', b'"attempt":2'))
    store.put(layout.claim(job, 2), msgspec.json.encode(ClaimFile(runner=holder, at=datetime.now(UTC))))
    launch = msgspec.json.decode((world.home / "machines" / f"{job}-a1" / "launch.json").read_bytes(), type=LaunchFile)
    before = {entry.key for entry in store.list_keys(layout.attempt(job, 2))}

    other = LocalProvider(world.folder / "another machine", world.home / "environments", None)
    name = allocation_name(job, 2)
    asyncio.run(other.launch(replace(launch.request, name=name, attempt=2)))
    pid = int(msgspec.json.decode((world.folder / "another machine" / name / "process.json").read_bytes())["pid"])
    try:
        world.until("it is gone, or it trains", lambda: not _lives(other, name, pid) or world.log(job, 2))
        assert {entry.key for entry in store.list_keys(layout.attempt(job, 2))} == before
    finally:
        asyncio.run(other.release(name))
    world.open_gate(1)
    assert world.wait(job)["outcome"] == "succeeded"


def _lives(provider, name, pid) -> bool:
    asyncio.run(provider.inspect(name))  # whoever started a process reaps it when it looks
    return is_alive(pid)


def test_nothing_is_committed_without_a_lease(world):
    """Everything reaches the store but the heartbeat: the lease lapses, and what is saved then is committed once it is renewed."""
    world.environ["TRAINMASTER_ATTEMPT_LEASE_S"] = "1.5"
    job = world.submit(world.job_file(SAVES_AND_LOOKS_AROUND))
    world.open_gate(1)
    world.until_committed(job, "1")
    world.kill_drivers()  # nobody else shall stumble over what lies in the heartbeat's place
    heartbeat = world.store / layout.heartbeat(job, 1)
    aside = heartbeat.with_name("in the way")
    aside.mkdir()
    (aside / "something").touch()
    world.until("it stands in the way", lambda: _put_in_the_way(heartbeat, aside))
    runner_log = world.home / "machines" / f"{job}-a1" / "runner.log"
    world.until("the lease has lapsed", lambda: "commits are suspended" in runner_log.read_text())
    world.open_gate(2)
    world.until("the script has looked around since it saved", lambda: _looks(world, 2) > 20)
    given_back_s = datetime.now(UTC).timestamp()
    heartbeat.rename(aside)
    world.open_gate(3)
    assert world.wait(job)["outcome"] == "succeeded"
    assert world.committed(job) == "3"
    commits = world.commits(job)
    assert [seconds(ref["committed_at"]) > given_back_s for ref in commits] == [False, *[True] * (len(commits) - 1)]


def _looks(world, step) -> int:
    """How often the script looked around since it saved this step."""
    words = world.gate.with_name("gate.looks").read_text().split()
    return int(words[1]) if words[:1] == [str(step)] else 0


def _put_in_the_way(heartbeat, aside) -> bool:
    """A folder with something in it cannot be replaced by a file. A beat may come between the two steps: then once more."""
    heartbeat.unlink(missing_ok=True)
    try:
        aside.rename(heartbeat)
    except OSError:
        return False
    return True
