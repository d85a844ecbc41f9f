"""Which machines are there in a simulated world? A fleet that runs out, answers from the past, and takes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from trainmaster.adapters.providers.simulated.translate import FleetError, FleetTrouble, MachineState, MachineView
from trainmaster.core.facts import StopSeen
from trainmaster.core.schedule import Capacity
from trainmaster.ports.provider import LaunchRequest
from trainmaster.testing.sim_net import Net, Party
from trainmaster.testing.sim_runner import RunnerOrder, SimRunner
from trainmaster.testing.sim_store import Objects, StoreDoor
from trainmaster.testing.witness import MachineEnded, MachineMade


class FleetPlan(Struct, kw_only=True):
    """How a fleet behaves; probabilities are per machine, rates per machine and hour."""

    machines: int = 4
    boot_s: tuple[float, float] = (20.0, 90.0)
    #: boots this long instead, sometimes
    slow_boot: float = 0.0
    slow_boot_s: float = 1800.0
    #: it ends before it has begun
    stillborn: float = 0.0
    #: the machine is there but nothing ever runs on it
    dud: float = 0.0
    preempted_an_hour: float = 0.0
    #: how often a preemption is announced, and how long before
    notice: float = 1.0
    notice_s: float = 60.0
    paused_an_hour: float = 0.0
    pause_s: float = 1800.0
    #: answers about a machine may be this old
    stale_s: float = 0.0
    #: windows in which there is nothing to be had, and the error that says so
    stockouts: tuple[tuple[float, float], ...] = ()
    ending_s: tuple[float, float] = (2.0, 30.0)
    #: an ended machine is remembered this long
    remembered_s: float = 3600.0
    #: machines nobody can ask about once they are gone, like hosts of one's own that burnt down
    is_blind: bool = False
    #: largest difference between a machine's clock and the true time
    skew_s: float = 0.0
    #: a machine's clock is set while its runner runs, by up to this much, forwards or back
    jumps_an_hour: float = 0.0
    jump_s: float = 3600.0


class Machine:
    """The machines of one allocation: they come and go together."""

    def __init__(self, request: LaunchRequest, serial: int, made_s: float, who: Party) -> None:
        self.request, self.serial, self.made_s, self.who = request, serial, made_s, who
        self.state = MachineState.BOOTING
        self.ended_s: float | None = None
        self.why = ""
        self.is_preempted = False
        self.runner: SimRunner | None = None
        self.changed = asyncio.Event()


class VirtualFleet:
    """Every machine there is, and what happens to it."""

    def __init__(self, net: Net, objects: Objects, plan: FleetPlan, order: Callable[[LaunchRequest], RunnerOrder]) -> None:
        self.net, self.loop, self.rng, self.objects, self.plan, self._order = net, net.loop, net.rng, objects, plan, order
        self.machines: dict[str, Machine] = {}
        self._serial = 0

    @property
    def held(self) -> list[Machine]:
        """Machines that exist."""
        return [machine for machine in self.machines.values() if machine.state is not MachineState.ENDED]

    def create(self, request: LaunchRequest) -> None:
        """All or none; a name that exists is left alone."""
        known = self.machines.get(request.name)
        if known is not None and known.state is not MachineState.ENDED:
            return
        now = self.loop.seconds
        if any(begin <= now < end for begin, end in self.plan.stockouts):
            trouble = self.rng.choice((FleetTrouble.STOCKOUT, FleetTrouble.QUOTA))
            self.net.counts["stockout" if trouble is FleetTrouble.STOCKOUT else "quota refusal"] += 1
            raise FleetError(trouble)
        if sum(machine.request.nodes for machine in self.held) + request.nodes > self.plan.machines:
            self.net.counts["fleet is full"] += 1
            raise FleetError(FleetTrouble.STOCKOUT)
        self._serial += 1
        who = Party(f"machine:{request.name}:{self._serial}", self.loop, skew_s=self.rng.uniform(-1, 1) * self.plan.skew_s)
        machine = self.machines[request.name] = Machine(request, self._serial, now, who)
        self.net.note(MachineMade(now, request.name, machine.serial))
        boot_s = self.rng.uniform(*self.plan.boot_s)
        if self.rng.random() < self.plan.slow_boot:
            self.net.trouble("slow boot", request.name)
            boot_s += self.rng.random() * self.plan.slow_boot_s
        if self.rng.random() < self.plan.stillborn:
            self.net.trouble("stillborn", request.name)
            self.loop.call_later(boot_s / 2, self.end, machine, "it could not be started")
        self.loop.call_later(boot_s, self._boot, machine)
        self.loop.call_later(request.machine_s_max, self.end, machine, "its time is up")
        self._draw_fate(machine, boot_s)

    def _draw_fate(self, machine: Machine, boot_s: float) -> None:
        plan, rng = self.plan, self.rng
        if plan.preempted_an_hour:
            after_s = rng.expovariate(plan.preempted_an_hour / 3600)
            self.loop.call_later(after_s, self._preempt, machine)
        if plan.paused_an_hour:
            self.loop.call_later(boot_s + rng.expovariate(plan.paused_an_hour / 3600), self._pause, machine)
        if plan.jumps_an_hour:
            self.loop.call_later(boot_s + rng.expovariate(plan.jumps_an_hour / 3600), self._jump, machine)

    def _boot(self, machine: Machine) -> None:
        if machine.state is not MachineState.BOOTING:
            return
        machine.state = MachineState.RUNNING
        machine.changed.set()
        if self.rng.random() < self.plan.dud:
            self.net.trouble("dud", machine.request.name)
            return
        store = StoreDoor(machine.who, self.net, self.objects)
        over = partial(self.loop.call_later, self.rng.random() * 5, self.end, machine, "its runner has ended")
        machine.runner = SimRunner(self._order(machine.request), machine.who, self.net, store, over)
        machine.who.tasks.append(asyncio.ensure_future(machine.runner.work()))

    def _preempt(self, machine: Machine) -> None:
        if machine.state is MachineState.ENDED or self.plan.preempted_an_hour == 0:
            return
        announced = self.rng.random() < self.plan.notice
        machine.is_preempted = True
        self.net.trouble("preemption", f"{machine.request.name}{'' if announced else ', without notice'}")
        if announced and machine.runner is not None:
            machine.runner.tell_to_stop(StopSeen.TERMINATED, self.plan.notice_s * 0.8)
            self.loop.call_later(self.plan.notice_s, self.end, machine, "preempted")
        else:
            self.end(machine, "preempted")

    def _pause(self, machine: Machine) -> None:
        if machine.state is MachineState.ENDED or self.plan.paused_an_hour == 0:
            return
        self.net.trouble("pause", machine.request.name)
        for_s = self.rng.random() * self.plan.pause_s
        match self.rng.choice(("now", "in a call", "in a create")):
            case "now":
                machine.who.pause_for(for_s)
            case "in a call":
                machine.who.pause_in_call_s = for_s
            case "in a create":
                machine.who.pause_in_create_s = for_s
        self.loop.call_later(self.rng.expovariate(self.plan.paused_an_hour / 3600), self._pause, machine)

    def _jump(self, machine: Machine) -> None:
        if machine.state is MachineState.ENDED or self.plan.jumps_an_hour == 0:
            return
        by_s = self.rng.uniform(-1, 1) * self.plan.jump_s
        self.net.trouble("machine's clock jump", f"{machine.request.name} by {by_s:.0f} s")
        machine.who.skew_s += by_s
        self.loop.call_later(self.rng.expovariate(self.plan.jumps_an_hour / 3600), self._jump, machine)

    def end(self, machine: Machine, why: str) -> None:
        """It is gone, with everything on it."""
        if machine.state is MachineState.ENDED:
            return
        machine.state, machine.ended_s, machine.why = MachineState.ENDED, self.loop.seconds, why
        machine.who.die()
        machine.changed.set()
        self.net.note(MachineEnded(self.loop.seconds, machine.request.name, machine.serial, why))

    def describe(self, name: str) -> MachineView | None:
        """What is known, or was known a moment ago."""
        machine, now = self.machines.get(name), self.loop.seconds
        self._refuse_blindly(machine)
        if machine is None:
            return None
        is_old_answer = self.plan.stale_s > 0 and self.rng.random() < 0.5
        if is_old_answer and now - machine.made_s < self.plan.stale_s:
            self.net.counts["not found though it exists"] += 1
            return None
        if machine.ended_s is not None:
            if is_old_answer and now - machine.ended_s < self.plan.stale_s:
                return MachineView(state=MachineState.RUNNING)
            if now - machine.ended_s > self.plan.remembered_s:
                return None
        elif is_old_answer and self.rng.random() < 0.1:
            self.net.counts["not found though it exists"] += 1
            return None
        return MachineView(state=machine.state, why=machine.why, preempted=machine.is_preempted)

    def _refuse_blindly(self, machine: Machine | None) -> None:
        """A host of one's own that is gone, or does not answer: the two look the same."""
        if self.plan.is_blind and machine is not None and (machine.state is MachineState.ENDED or machine.who.is_paused):
            raise FleetError(FleetTrouble.TIMEOUT, "no such host answers")

    def delete(self, name: str) -> None:
        """Begin to end it."""
        machine = self.machines.get(name)
        self._refuse_blindly(machine)
        if machine is not None and machine.state in {MachineState.BOOTING, MachineState.RUNNING}:
            machine.state = MachineState.ENDING
            self.loop.call_later(self.rng.uniform(*self.plan.ending_s), self.end, machine, "deleted")

    def names(self) -> list[str]:
        """What is held, or was a moment ago."""
        now = self.loop.seconds
        is_old_answer = self.plan.stale_s > 0 and self.rng.random() < 0.5
        return sorted(m.request.name for m in self.held if not (is_old_answer and now - m.made_s < self.plan.stale_s))

    def calm(self) -> None:
        """From now on nothing happens to machines."""
        plan = self.plan
        plan.preempted_an_hour = plan.paused_an_hour = plan.stale_s = plan.dud = plan.slow_boot = plan.stillborn = 0.0
        plan.stockouts, plan.jumps_an_hour = (), 0.0
        for machine in self.held:
            machine.who.wake()


class FleetDoor:
    """The fleet as one party reaches it."""

    def __init__(self, who: Party, net: Net, fleet: VirtualFleet) -> None:
        self._who, self._net, self._fleet = who, net, fleet

    async def size(self) -> Capacity:
        """What the fleet can hold."""
        capacity = Capacity(cpus=float(self._fleet.plan.machines), memory=1 << 40)
        return await self._net.call(self._who, "fleet", lambda: capacity, _no_answer)

    async def create(self, request: LaunchRequest) -> None:
        """Make machines. Repeatable."""
        await self._net.call(self._who, "fleet", lambda: self._fleet.create(request), _no_answer)

    async def describe(self, name: str) -> MachineView | None:
        """What is known. Repeatable."""
        return await self._net.call(self._who, "fleet", lambda: self._fleet.describe(name), _no_answer)

    async def delete(self, name: str) -> None:
        """End machines. Repeatable."""
        await self._net.call(self._who, "fleet", lambda: self._fleet.delete(name), _no_answer)

    async def names(self) -> list[str]:
        """What is held. Repeatable."""
        return await self._net.call(self._who, "fleet", self._fleet.names, _no_answer)

    async def nudge(self, name: str) -> None:
        """Hints are lost here."""

    async def wait_change(self, name: str) -> None:
        """Hints come for what boots or ends."""
        machine = self._fleet.machines.get(name)
        if machine is None:
            await self._who.sleep(3600)
            return
        machine.changed.clear()
        await machine.changed.wait()
        await self._who.alive()


def _no_answer(words: str) -> Exception:
    return FleetError(FleetTrouble.TIMEOUT, words)
