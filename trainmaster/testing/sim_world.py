"""What happens in the world of one integer? The production control plane and runner logic, users, a fleet, and bad luck."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trainmaster.adapters.providers.simulated.provider import SimulatedProvider
from trainmaster.control.observe import Ports
from trainmaster.control.service import Service
from trainmaster.control.work_queue import WorkQueue
from trainmaster.core.facts import ExitReport, Heartbeat
from trainmaster.core.job import Code, JobId, Origin, Phase
from trainmaster.core.messages import ClaimFile, Manifest, OrderFile, OrderKind
from trainmaster.errors import RevisionConflict, TrainmasterError
from trainmaster.ports.provider import LaunchRequest
from trainmaster.spec import layout
from trainmaster.spec.layout import Key
from trainmaster.testing.sim_database import DatabaseDoor, Tables
from trainmaster.testing.sim_fleet import FleetDoor, VirtualFleet
from trainmaster.testing.sim_net import BEGIN, Died, Net, Party
from trainmaster.testing.sim_plan import HOUR, JobPlan, WorldPlan, draw_world
from trainmaster.testing.sim_runner import RunnerOrder, digest
from trainmaster.testing.sim_script import CRASH
from trainmaster.testing.sim_store import Objects, StoreDoor
from trainmaster.testing.virtual_loop import VirtualLoop, run_virtual
from trainmaster.testing.witness import (
    Beat,
    Claimed,
    Closed,
    Destiny,
    Marked,
    Promise,
    Recorded,
    Reported,
    Submitted,
    TrainingEnded,
    Unmarked,
    World,
)

#: With everybody well again, every job must have ended and every machine be gone after this long.
CONVERGE_S_MAX = 96 * HOUR
_CODE = Code(sha256="0" * 64, folder="/work")
_ORIGIN = Origin(user="ada", host="laptop", folder="/work", python="/usr/bin/python3", version="0")


class Ran(Struct, frozen=True, kw_only=True):
    """A world that was lived through."""

    plan: WorldPlan
    world: World
    counts: Counter[str]
    #: every request, reply and event in order, as one number: two runs of a seed must agree
    fingerprint: str


def run_world(seed: int) -> Ran:
    """Live through the world of one integer."""
    return run_plan(draw_world(seed))


def run_plan(plan: WorldPlan) -> Ran:
    """Live through a world."""
    logging.getLogger("trainmaster.driver").setLevel(logging.CRITICAL)
    rng = random.Random(f"luck {plan.seed}")
    return run_virtual(lambda loop: _Stage(plan, loop, rng).live(), rng)


class BlindProvider(SimulatedProvider):
    """Nobody can confirm that a machine is gone."""

    capabilities = frozenset()


class WitnessedObjects(Objects):
    """An object store that notes what matters to the checkers, when it happens."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self._net = net

    def put(self, key: Key, value: bytes) -> None:
        """Store and note."""
        super().put(key, value)
        parts = key.split("/")
        if parts[-1] == "claim":
            runner = msgspec.json.decode(value, type=ClaimFile).runner
            self._net.note(Claimed(self._net.loop.seconds, parts[1], int(parts[3]), runner))
            if not runner:
                self._net.note(Closed(self._net.loop.seconds, parts[1], int(parts[3])))
        elif parts[-1] == "order.json" and msgspec.json.decode(value, type=OrderFile).kind is OrderKind.CLOSE:
            self._net.note(Closed(self._net.loop.seconds, parts[1], int(parts[3])))
        elif parts[-1] == "exit.json":
            report = msgspec.json.decode(value, type=ExitReport)
            was_told = report.stop_seen is not None
            self._net.note(Reported(self._net.loop.seconds, parts[1], int(parts[3]), report.code, was_told))
        elif parts[-1] == "heartbeat.json":
            beat = msgspec.json.decode(value, type=Heartbeat)
            until_s, said_s = ((moment - BEGIN).total_seconds() for moment in (beat.lease_until, beat.at))
            self._net.note(Beat(self._net.loop.seconds, parts[1], int(parts[3]), until_s, said_s))
        elif layout.is_commit(parts[1], key) and layout.manifest(parts[1], parts[3]) in self.values:
            attempt = layout.parse_checkpoint_id(parts[3])[0]
            step = self._step(parts[1], parts[3])
            self._net.note(Marked(self._net.loop.seconds, parts[1], attempt, self.writer, parts[3], step))

    def delete(self, key: str) -> None:
        """Remove and note."""
        super().delete(key)
        parts = key.split("/")
        if layout.is_commit(parts[1], key):
            self._net.note(Unmarked(self._net.loop.seconds, parts[1], parts[3]))

    def _step(self, job_id: str, name: str) -> int:
        files = msgspec.json.decode(self.values[layout.manifest(job_id, name)], type=Manifest).files
        found = {f.path: self.values.get(layout.checkpoint_file(job_id, f.stored_in, f.path)) for f in files}
        if any(found[f.path] is None or digest(found[f.path] or b"") != f.blake3 for f in files):
            return -1
        steps = {int(value or b"0") for value in found.values()}
        return steps.pop() if len(found) == 2 and len(steps) == 1 else -1


class _Stage:
    """Puts everybody on the stage and lets them play."""

    def __init__(self, plan: WorldPlan, loop: VirtualLoop, rng: random.Random) -> None:
        self.plan, self.loop, self.rng = plan, loop, rng
        self.net = Net(loop, rng)
        self.net.luck = plan.luck
        self.net.on_killed = self._kill
        self.objects = WitnessedObjects(self.net)
        self.tables = Tables(on_recorded=lambda job: self.net.note(Recorded(loop.seconds, job)))
        self.scripts = {job.job_id: job for job in plan.jobs}
        self.fleet = VirtualFleet(self.net, self.objects, plan.fleet, self._runner_order)
        self.controls: dict[str, Party] = {}
        self._lives = 0
        self._users: list[asyncio.Task[None]] = []
        self.is_calm = False
        self._playing: list[asyncio.Task[None]] = []

    async def live(self) -> Ran:
        """From the first submission to the last machine."""
        kind, is_stale = self.plan.is_kind, self.plan.fleet.stale_s > 0
        is_calm = all(luck.is_calm and luck.wire_s < 1 for luck in self.plan.luck.values()) and not self.plan.stalls_an_hour
        silent = not self.plan.has_machine_trouble and not is_stale and not self.plan.fleet.is_blind
        skewed = bool(self.plan.control_skew_s or self.plan.fleet.skew_s or self.plan.jump_s)
        for number in range(self.plan.control_planes):
            self._begin_control(f"control:{number}")
        for job in self.plan.jobs:
            self._users.append(asyncio.ensure_future(self._user(job)))
        for cut in self.plan.cuts:
            self.loop.call_later(cut.at_s, self._cut, cut.one, cut.other, cut.for_s)
        self._play(self._crash_controls())
        self._play(self._stall_controls())
        self._play(self._jump_clocks())
        if self.plan.dead_from_s is not None:
            self.loop.call_later(self.plan.dead_from_s, self._end_control_for_good)
        await asyncio.sleep(self.plan.calm_s)
        self._calm()
        await self._converge()
        promise = Promise(
            machine_s_max=self.plan.timing.machine_s_max,
            settle_s_max=self.plan.timing.start_s_max + 1800.0,
            sight_s=5.0 if is_calm else 90.0,
            lag_s=2 * self.plan.timing.look_s + 2 * self.plan.timing.poll_s + 120.0,
            act_s=5.0,
            silence_s=self.plan.timing.lease_margin_s,
            calm_at_s=self.plan.calm_s,
            is_kind=kind,
            only_silence=silent,
            clocks_agree=not skewed,
            is_driven_to_the_end=self.plan.dead_from_s is None,
            confirms_gone=not self.plan.fleet.is_blind and not is_stale,
            ends_with_lease=self.plan.fleet.is_blind,
        )
        world = World(
            events=tuple(self.net.events),
            records={job_id: row.job for job_id, row in self.tables.rows.items()},
            stories={job_id: row.story for job_id, row in self.tables.rows.items()},
            store=dict(self.objects.values),
            destinies={job.job_id: _destiny(job) for job in self.plan.jobs},
            promise=promise,
            ended_at_s=self.loop.seconds,
        )
        self._curtain()
        return Ran(plan=self.plan, world=world, counts=self.net.counts, fingerprint=_fingerprint(world))

    def _curtain(self) -> None:
        """Nothing that anybody still wants to do happens."""
        for who in (*self.controls.values(), *(machine.who for machine in self.fleet.machines.values())):
            who.die()

    def _play(self, part: Coroutine[None, None, None]) -> None:
        self._playing.append(asyncio.ensure_future(part))

    def _cut(self, one: str, other: str, for_s: float) -> None:
        if not self.is_calm:
            self.net.cut(one, other, for_s)

    def _runner_order(self, request: LaunchRequest) -> RunnerOrder:
        job = self.scripts[request.job_id]
        crashed = sum(isinstance(e, TrainingEnded) and e.job_id == request.job_id and e.code == CRASH for e in self.net.events)
        script = replace(job.script, crashes=max(0, job.script.crashes - crashed))
        return RunnerOrder(request=request, script=script, keep=job.spec.checkpoints.keep)

    def _ports(self, who: Party, owner: str) -> Ports:
        return Ports(
            clock=who,
            database=DatabaseDoor(who, self.net, self.tables),
            store=StoreDoor(who, self.net, self.objects),
            store_url=self.objects.url,
            providers={"simulated": self._provider(who)},
            timing=self.plan.timing,
            heartbeat_s=self.plan.heartbeat_s,
            owner=owner,
        )

    def _provider(self, who: Party) -> SimulatedProvider:
        door = FleetDoor(who, self.net, self.fleet)
        return BlindProvider(door) if self.plan.fleet.is_blind else SimulatedProvider(door)

    def _begin_control(self, name: str) -> None:
        if self.plan.dead_from_s is not None and self.loop.seconds >= self.plan.dead_from_s:
            return
        self._lives += 1
        who = self.controls[name] = Party(name, self.loop, skew_s=self.rng.uniform(-1, 1) * self.plan.control_skew_s)
        queue = WorkQueue(self._ports(who, f"{name}:{self._lives}"))
        who.tasks.append(asyncio.ensure_future(_never_ends(queue)))

    def _kill(self, who: Party) -> None:
        """Killed in the middle of a call: who notices, and what happens then."""
        if who.is_dead or self.is_calm:
            return
        who.die()
        if who.name.startswith("control:"):
            self.loop.call_later(self.rng.random() * self.plan.restart_s, self._begin_control, who.name)
        elif who.name.startswith("machine:"):
            _, name, serial = who.name.split(":")
            machine = self.fleet.machines[name]
            if machine.serial == int(serial):
                self.fleet.end(machine, "its runner was killed")

    async def _crash_controls(self) -> None:
        rate = self.plan.crashes_an_hour
        while rate:
            await asyncio.sleep(self.rng.expovariate(rate / HOUR))
            if self.is_calm:
                return
            name = self.rng.choice(sorted(self.controls))
            self.net.trouble("control plane killed", name)
            self._kill(self.controls[name])

    async def _stall_controls(self) -> None:
        rate = self.plan.stalls_an_hour
        while rate:
            await asyncio.sleep(self.rng.expovariate(rate / HOUR))
            if self.is_calm:
                return
            who = self.controls[self.rng.choice(sorted(self.controls))]
            self.net.trouble("control plane paused", who.name)
            for_s = self.rng.choice((5.0, 60.0, 900.0))
            if self.rng.random() < 0.5:
                who.pause_for(for_s)
            else:
                who.pause_in_call_s = for_s

    async def _jump_clocks(self) -> None:
        while self.plan.jump_s:
            await asyncio.sleep(self.rng.expovariate(1 / HOUR))
            if self.is_calm:
                return
            who = self.controls[self.rng.choice(sorted(self.controls))]
            by_s = self.rng.uniform(-1, 1) * self.plan.jump_s
            self.net.trouble("clock jump", f"{who.name} by {by_s:.0f} s")
            who.skew_s += by_s

    def _end_control_for_good(self) -> None:
        self.net.trouble("control plane gone for good")
        for who in self.controls.values():
            who.die()

    def _calm(self) -> None:
        """The faults stop: everybody who may live lives, and every clock is right."""
        self.is_calm = True
        self.net.calm()
        self.fleet.calm()
        for name, who in sorted(self.controls.items()):
            who.wake()
            who.skew_s = 0.0
            if who.is_dead:
                self._begin_control(name)
        for job in self.plan.jobs:
            if job.script.hangs_at is not None and job.spec.limits.run is None and self.plan.dead_from_s is None:
                self._users.append(asyncio.ensure_future(self._stop(job)))

    async def _converge(self) -> None:
        deadline_s = self.loop.seconds + CONVERGE_S_MAX
        while self.loop.seconds < deadline_s and not self._is_empty():  # noqa: ASYNC110  looked at from outside, as a checker would
            await asyncio.sleep(60.0)
        await asyncio.sleep(600.0)  # whatever still wants to change a finished job gets its chance

    def _is_empty(self) -> bool:
        if self.net.under_way:
            return False
        if self.plan.dead_from_s is not None:
            return not self.fleet.held
        jobs_over = all(row.job.phase is Phase.FINISHED for row in self.tables.rows.values())
        return jobs_over and not self.fleet.held and all(task.done() for task in self._users)

    async def _user(self, plan: JobPlan) -> None:
        await asyncio.sleep(plan.submit_s)
        await self._try(plan, self._submit)
        if plan.stop_s is not None:
            await asyncio.sleep(max(0.0, plan.stop_s - self.loop.seconds))
            await self._stop(plan)

    async def _submit(self, plan: JobPlan, service: Service) -> None:
        with contextlib.suppress(RevisionConflict):  # then an earlier try, whose answer was lost, had succeeded
            await service.submit(JobId(plan.job_id), plan.spec, _CODE, _ORIGIN)
        self.net.note(Submitted(self.loop.seconds, plan.job_id))

    async def _stop(self, plan: JobPlan) -> None:
        async def stop(plan: JobPlan, service: Service) -> None:
            await service.stop(JobId(plan.job_id), "ada", "Enough.")

        await self._try(plan, stop)

    async def _try(self, plan: JobPlan, ask: Callable[[JobPlan, Service], Awaitable[None]]) -> None:
        """A user whose command failed or was killed gives it again."""
        while self.plan.dead_from_s is None or self.loop.seconds < self.plan.calm_s:
            who = Party(f"user:{plan.job_id}", self.loop)
            try:
                await ask(plan, Service(self._ports(who, "user")))
                return
            except (TrainmasterError, Died):
                await asyncio.sleep(self.rng.uniform(10.0, 120.0))


async def _never_ends(queue: WorkQueue) -> None:
    async def is_over() -> bool:
        return False

    await queue.drive(is_over)


def _destiny(job: JobPlan) -> Destiny:
    """How the script ends when nobody disturbs it: attempt after attempt, until it is done or its failures are used up."""
    script, retry = job.script, job.spec.retry
    limits = job.spec.limits
    is_limited = limits.run is not None or limits.queue is not None or limits.wait is not None
    is_stopped = job.stop_s is not None or is_limited or script.hangs_at is not None
    began, failures = 0, 0
    while True:
        crash_at = began + script.crash_after if failures < script.crashes else script.steps + 1
        if script.hangs_at is not None and script.hangs_at <= min(crash_at, script.steps):
            return Destiny(None, is_stopped)
        if crash_at > script.steps and script.code == 0:
            return Destiny(0, is_stopped)
        failures += 1
        if failures > retry.failures:
            return Destiny(script.code or 1, is_stopped)
        if script.save_every:
            last = min(crash_at - 1, script.steps)
            began = max(began, last - last % script.save_every)


def _fingerprint(world: World) -> str:
    encoded = msgspec.json.encode([list(world.events), sorted((k, v) for k, v in world.store.items())])
    return digest(encoded)
