"""How is a world attacked? Processes are killed and paused, the way to the store is disturbed, the disk fills up, by dice."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from typing import TypeVar

from trainmaster.adapters import host
from trainmaster.testing.chaos.chronicle import Chronicle, last_kind
from trainmaster.testing.chaos.draw import Mood
from trainmaster.testing.chaos.processes import ProcessWatch, Role, Seat, send
from trainmaster.testing.chaos.proxy import Proxy, Weather, WireFault
from trainmaster.testing.chaos.scene import Scene

T = TypeVar("T")

_ATTACK_S = 1.0
_STANDS_S_MAX = 0.5
_FAULTS = tuple(fault for fault in WireFault if fault is not WireFault.PASS)


class Attacker:
    """Does what the dice say, until it is told to be calm."""

    def __init__(self, scene: Scene, watch: ProcessWatch, proxy: Proxy, chronicle: Chronicle, rng: random.Random) -> None:
        self._scene, self._watch, self._proxy, self._chronicle, self._rng = scene, watch, proxy, chronicle, rng
        self._tasks: list[asyncio.Task[None]] = []
        self._paused: dict[int, Seat] = {}

    def begin(self, mood: Mood) -> None:
        """Start the attacks of a mood."""
        attacks: dict[Mood, tuple[Callable[[], Coroutine[None, None, None]], ...]] = {
            Mood.KIND: (),
            Mood.SILENT: (self._disturb_the_way,),
            Mood.HARSH: (self._disturb_the_way, self._hurt_processes, self._fill_the_disk),
        }
        self._tasks = [asyncio.ensure_future(attack()) for attack in attacks[mood]]

    async def end(self) -> list[object]:
        """Nobody attacks any more; how each attack ended."""
        for task in self._tasks:
            task.cancel()
        return list(await asyncio.gather(*self._tasks, return_exceptions=True))

    async def calm(self) -> None:
        """Nothing is attacked any more: everybody wakes, every byte passes, there is room."""
        for result in await self.end():
            if isinstance(result, Exception):
                raise result
        for seat in tuple(self._paused.values()):
            self._wake(seat)
        self._proxy.weather = Weather()
        self._scene.free()

    # -- the way to the store

    async def _disturb_the_way(self) -> None:
        rng = self._rng
        while True:
            await asyncio.sleep(rng.uniform(0.5, 4.0))
            fault = rng.choice(_FAULTS)
            machines = [seat.allocation for seat in self._watch.living(Role.RUNNER)]
            whom = rng.choice(("", "", "machines", "control", *machines))
            self._proxy.weather = Weather(
                fault=fault,
                whom=whom,
                odds=1.0 if fault in {WireFault.BLACK_HOLE, WireFault.REFUSE} else rng.choice((0.1, 0.4, 1.0)),
                delay_s=rng.choice((0.1, 0.5, 2.0)),
                bytes_max=rng.choice((1, 100, 1000, 30_000)),
            )
            self._chronicle.trouble(f"wire: {fault}", whom)
            # Now and then longer than the attempt lease.
            await asyncio.sleep(rng.choice((0.5, 1.0, 3.0, 9.0)))
            self._proxy.weather = Weather()

    # -- processes

    async def _hurt_processes(self) -> None:
        attacks: tuple[tuple[int, Callable[[], Coroutine[None, None, None]]], ...] = (
            (4, self._kill_script),
            (4, lambda: self._kill(Role.RUNNER)),
            (3, lambda: self._kill(Role.DRIVER)),
            (2, lambda: self._kill(Role.COMMAND)),
            (1, lambda: self._tell_to_go(Role.RUNNER)),
            (1, lambda: self._tell_to_go(Role.DRIVER)),
            (2, self._pause_script),
            (2, lambda: self._pause(Role.RUNNER)),
            (2, lambda: self._pause(Role.DRIVER)),
            (1, lambda: self._pause(Role.COMMAND)),
            (2, self._pause_machine),
            (1, self._restart_everything),
        )
        weights = [weight for weight, _ in attacks]
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / _ATTACK_S))
            [(_, attack)] = self._rng.choices(attacks, weights)
            await attack()

    def _one(self, *roles: Role) -> Seat | None:
        seats = [seat for seat in self._watch.living(*roles) if seat.pid not in self._paused]
        return self._rng.choice(seats) if seats else None

    async def _kill(self, role: Role) -> None:
        seat = self._one(role)
        if seat is not None and send(seat, signal.SIGKILL):
            self._chronicle.trouble(f"{role} killed", f"{seat.pid} {seat.allocation}")

    async def _tell_to_go(self, role: Role) -> None:
        seat = self._one(role)
        if seat is not None and send(seat, signal.SIGTERM):
            self._chronicle.trouble(f"{role} told to go", f"{seat.pid} {seat.allocation}")

    async def _kill_script(self) -> None:
        """While it works: one that has said how it ended is left alone, for nobody could tell which of the two came first."""
        seat = self._one(Role.SCRIPT)
        if seat is None:
            return
        if await self._stand_still(seat, "ended") and send(seat, signal.SIGKILL):
            self._chronicle.killed[seat.allocation, seat.pid] = self._chronicle.now_s()
            self._chronicle.trouble("script killed", f"{seat.pid} {seat.allocation}")

    async def _stand_still(self, seat: Seat, *not_while: str) -> bool:
        """Stop a process and look what it is doing; False: it goes on, for it is doing one of these things, or it is gone."""
        if not send(seat, signal.SIGSTOP):
            return False
        waited_s = 0.0
        while host.process_state(seat.pid) not in {"T", "t", "", "Z"} and waited_s < _STANDS_S_MAX:
            await asyncio.sleep(0.005)
            waited_s += 0.005
        is_still = host.process_state(seat.pid) in {"T", "t"}
        if is_still and last_kind(self._scene.journal, seat) not in not_while:
            return True
        send(seat, signal.SIGCONT)
        return False

    async def _pause_script(self) -> None:
        """Not in the middle of a save: a folder with one new and one old file that lies still looks like any other."""
        seat = self._one(Role.SCRIPT)
        if seat is not None and await self._stand_still(seat, "saving", "ended"):
            self._sleeps(seat, self._pause_s(), "script paused")

    async def _pause(self, role: Role) -> None:
        seat = self._one(role)
        if seat is not None and send(seat, signal.SIGSTOP):
            self._sleeps(seat, self._pause_s(), f"{role} paused")

    async def _pause_machine(self) -> None:
        """A runner and its script together, as when a machine sleeps."""
        runner = self._one(Role.RUNNER)
        if runner is None:
            return
        pause_s = self._pause_s()
        for script in (seat for seat in self._watch.living(Role.SCRIPT) if seat.allocation == runner.allocation):
            if script.pid in self._paused or not await self._stand_still(script, "saving", "ended"):
                return
            self._sleeps(script, pause_s, "machine paused")
        if send(runner, signal.SIGSTOP):
            self._sleeps(runner, pause_s, "machine's runner paused")

    def _pause_s(self) -> float:
        """Some shorter than a heartbeat, some longer than a lease."""
        return self._rng.choice((0.3, 1.0, 3.0, 9.0))

    def _sleeps(self, seat: Seat, for_s: float, kind: str) -> None:
        self._paused[seat.pid] = seat
        self._chronicle.trouble(kind, f"{seat.pid} {seat.allocation} for {for_s:g} s")
        asyncio.get_running_loop().call_later(for_s, self._wake, seat)

    def _wake(self, seat: Seat) -> None:
        if self._paused.pop(seat.pid, None) is not None:
            send(seat, signal.SIGCONT)

    async def _restart_everything(self) -> None:
        """As when the machine loses power: whoever drives, every runner, and every script with it."""
        if self._rng.random() < 0.5:
            return
        self._chronicle.trouble("everything killed")
        for roles in ((Role.COMMAND, Role.DRIVER, Role.RUNNER, Role.UNBORN), (Role.SCRIPT,)):
            for seat in self._watch.living(*roles):
                send(seat, signal.SIGKILL)
                self._paused.pop(seat.pid, None)

    # -- the disk

    async def _fill_the_disk(self) -> None:
        while self._scene.small is not None:
            await asyncio.sleep(self._rng.uniform(4.0, 12.0))
            await asyncio.to_thread(self._scene.fill)
            self._chronicle.trouble("disk filled")
            await asyncio.sleep(self._rng.choice((0.5, 2.0, 5.0)))
            self._scene.free()
