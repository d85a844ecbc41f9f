"""Recovery (h): a runner paused past its lease and woken after its successor started. Its commits are ignored, and it exits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable

import msgspec
import pytest
from process.scripts import COUNT
from process.world import DEADLINE_S, World, is_alive, seconds

from trainmaster.cli.submitting import read_job, submit_command
from trainmaster.config import read_config
from trainmaster.core.facts import Seen, Sighting
from trainmaster.core.job import AllocationName
from trainmaster.embedded import Embedded, opened
from trainmaster.ports.provider import Capability, LaunchRequest, Provider
from trainmaster.spec import layout

pytestmark = pytest.mark.process


class BareHost:
    """A machine that is cut off under attempt 1: from then on nobody knows whether it is there, and nothing there can be ended."""

    def __init__(self, inner: Provider, *, keeps_promise: bool) -> None:
        self._inner = inner
        self._keeps_promise = keeps_promise
        self.name, self.features = inner.name, inner.features
        self.capabilities = inner.capabilities - {Capability.CONFIRMS_GONE}
        self.capacity, self.nudge = inner.capacity, inner.nudge
        self.requests: list[LaunchRequest] = []
        self.is_cut_off = False

    async def launch(self, request: LaunchRequest) -> None:
        self.requests.append(request)
        if not self._keeps_promise:
            request = msgspec.structs.replace(request, ends_with_lease=False)
        await self._inner.launch(request)

    async def inspect(self, name: AllocationName) -> Sighting:
        if self.is_cut_off and name.endswith("-a1"):
            return Sighting(seen=Seen.UNKNOWN, evidence="the host does not answer", was_launched=True)
        return await self._inner.inspect(name)

    async def release(self, name: AllocationName) -> None:
        if not name.endswith("-a1"):
            await self._inner.release(name)

    async def allocations(self) -> list[AllocationName]:
        return [name for name in await self._inner.allocations() if not name.endswith("-a1")]

    async def wait_change(self, name: AllocationName) -> None:
        await asyncio.sleep(DEADLINE_S)


class Scene:
    """A job on a bare host, driven inside this process."""

    def __init__(self, world: World, embedded: Embedded, job: str, host: BareHost) -> None:
        self.world, self.embedded, self.job, self.host = world, embedded, job, host

    async def until(self, what, condition) -> None:
        """Drive until something holds."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                await self.embedded.drive(lambda: asyncio.sleep(0, bool(condition())))
            except (TimeoutError, asyncio.CancelledError):
                pytest.fail(f"not so: {what}\n{self.world.report()}")


def _play(world: World, scene, *, keeps_promise: bool) -> None:
    world.environ["TRAINMASTER_ATTEMPT_LEASE_S"] = "1.5"
    file = str(world.source / world.job_file(COUNT, arguments=["6"]))
    with submit_command.make_context("submit", [file]) as context:
        spec, folder = read_job(file, (), context.params)

    async def play() -> None:
        hosts = []

        def wrap(inner: Provider) -> Provider:
            hosts.append(BareHost(inner, keeps_promise=keeps_promise))
            return hosts[0]

        async with opened(read_config(world.environ), wrap=wrap) as embedded:
            submission = await embedded.submit(spec, folder, world.environ, lambda *_: None)
            await scene(Scene(world, embedded, submission.job.id, hosts[0]))
            assert all(request.ends_with_lease for request in hosts[0].requests)

    asyncio.run(play())


async def _paused_and_replaced(scene: Scene, meanwhile: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Attempt 1 commits step 2 and is paused; attempt 2 starts when its lease and the margin are over. Runner and script of 1."""
    world, job = scene.world, scene.job
    world.open_gate(2)
    await scene.until("step 2 is committed", lambda: world.committed(job) == "2")
    script, runner = world.script_pid(job), world.runner_pid(job)
    os.kill(runner, signal.SIGSTOP)
    scene.host.is_cut_off = True
    lease_end = seconds(world.heartbeat(job)["lease_until"])
    await scene.until("a successor was placed", lambda: len(world.record(job)["attempts"]) == 2)
    assert seconds(world.record(job)["attempts"][1]["placed_at"]) > lease_end + 0.75, "not before lease and margin are over"
    meanwhile()
    world.open_gate(3)  # the old script goes on: nobody has told it yet
    await scene.until("the successor has committed", lambda: world.committed(job) == "3")
    return runner, script


@pytest.mark.parametrize("keeps_promise", [True, False])
def test_a_woken_runner_commits_nothing_that_counts_and_exits(world, keeps_promise):
    async def scene(scene: Scene) -> None:
        job = scene.job
        runner, script = await _paused_and_replaced(scene)
        assert "restored 2\n" in world.log(job, 2)
        os.kill(runner, signal.SIGCONT)
        await scene.until("the old runner and its script are gone", lambda: not is_alive(runner) and not is_alive(script))
        assert not (world.home / "store" / layout.exit_record(job, 1)).exists()
        assert [c["id"] for c in world.commits(job)] == ["1-000001", "2-000001"]
        world.open_gate(6)
        await scene.until("the job has finished", lambda: world.record(job)["phase"] == "finished")
        record = world.record(job)
        assert (record["outcome"], len(record["attempts"]), record["interruptions"]) == ("succeeded", 2, 1)
        assert world.committed(job) == "6"

    _play(world, scene, keeps_promise=keeps_promise)


def test_a_late_commit_of_an_old_attempt_is_ignored(world):
    """The marker was under way when the runner was paused: it lies in the store, and counts for nothing."""

    async def scene(scene: Scene) -> None:
        job = scene.job
        store = scene.embedded.store

        def arrive() -> None:
            """Before the successor commits: what is without a marker when it does is not its own, and goes."""
            for key in (layout.manifest, layout.commit):
                old = json.loads(store.get(key(job, "1-000001")))
                store.put(key(job, "1-000009"), json.dumps({**old, "id": "1-000009", "step": 999}).encode())

        runner, _ = await _paused_and_replaced(scene, arrive)
        shown = {
            ref.id: accepted for ref, accepted in await scene.embedded.service.checkpoints(await scene.embedded.service.get(job))
        }
        assert shown == {"1-000001": True, "1-000009": False, "2-000001": True}
        # The successor dies too: its successor goes on from the successor's head, not from the late marker.
        world.kill(world.runner_pid(job, 2))
        await scene.until("attempt 3 speaks", lambda: "restored" in world.log(job, 3))
        assert "restored 3\n" in world.log(job, 3)
        assert world.record(job)["head"]["id"] == "2-000001"
        os.kill(runner, signal.SIGCONT)
        world.open_gate(6)
        await scene.until("the job has finished", lambda: world.record(job)["phase"] == "finished")
        assert world.record(job)["outcome"] == "succeeded"
        await scene.until("the old runner is gone", lambda: not is_alive(runner))

    _play(world, scene, keeps_promise=True)
    rows = world.cli("checkpoints", world.ids()[0]).stdout.decode().splitlines()
    assert [("1-000009" in row, "no: written after its attempt was over" in row) for row in rows].count((True, True)) <= 1
    late = [row for row in world.json("checkpoints", world.ids()[0]) if row["checkpoint"]["id"] == "1-000009"]
    assert all(not row["accepted"] for row in late)
