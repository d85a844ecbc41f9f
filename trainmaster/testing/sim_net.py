"""How do the parties of a simulated world reach each other? Every request travels on its own, and bad luck lives here.

A request that left is not recalled when its sender dies; a reply may be lost after the effect; two parties may be cut off from each
other; a party may be paused and woken, or killed between any two steps. One integer decides all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from msgspec import Struct

from trainmaster.testing.virtual_loop import VirtualLoop
from trainmaster.testing.witness import Event, Trouble

T = TypeVar("T")
#: When every world begins.
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


class Died(BaseException):
    """This process was killed: nothing it still wants to do happens. Not an Exception, so that nobody swallows it."""


class Luck(Struct, kw_only=True):
    """How unkindly one service answers; each is a probability per request unless it says otherwise."""

    #: seconds on the wire, each way, at most
    wire_s: float = 0.05
    #: it takes up to `late_s`
    late: float = 0.0
    late_s: float = 120.0
    #: the request is lost
    lost: float = 0.0
    #: it happens, but the reply is lost
    reply_lost: float = 0.0
    #: an error comes back and nothing happened
    error: float = 0.0
    #: an error comes back though it happened
    error_after: float = 0.0
    #: it arrives long after the caller gave up, up to this many seconds
    ghost: float = 0.0
    ghost_s: float = 3600.0
    #: it arrives again, up to this many seconds after it arrived
    twice: float = 0.0
    twice_s: float = 120.0
    #: the caller is killed, before or after the effect
    caller_dies: float = 0.0
    #: a compare-and-set is refused though nobody else wrote
    conflict: float = 0.0
    #: nobody answers in these windows: begin, end
    outages: tuple[tuple[float, float], ...] = ()
    #: how long a caller waits
    patience_s: float = 30.0

    @property
    def is_calm(self) -> bool:
        """Whether nothing but the wire's delay can happen."""
        odds = (self.late, self.lost, self.reply_lost, self.error, self.error_after, self.ghost, self.twice, self.caller_dies)
        return not any(odds) and not self.conflict and not self.outages


class Party:
    """A process or a machine with a clock of its own, that may be killed or paused."""

    def __init__(self, name: str, loop: VirtualLoop, *, skew_s: float = 0.0) -> None:
        self.name = name
        self.loop = loop
        self.skew_s = skew_s
        self.is_dead = False
        self._woken: asyncio.Event | None = None
        #: seconds for which it will be paused in the middle of its next call: after it made up its mind, before it asks
        self.pause_in_call_s = 0.0
        #: the same for the next time it creates an object: a claim, or the marker of a commit
        self.pause_in_create_s = 0.0
        self.tasks: list[asyncio.Task[None]] = []

    def now(self) -> datetime:
        """The time as this party's clock shows it."""
        return BEGIN + timedelta(seconds=self.loop.seconds + self.skew_s)

    async def sleep(self, seconds: float) -> None:
        """Let time pass; longer if paused meanwhile."""
        await asyncio.sleep(seconds)
        await self.alive()

    async def alive(self) -> None:
        """Go on only if this party lives and is not paused."""
        if self.is_dead:
            raise Died(self.name)
        while self._woken is not None:
            await self._woken.wait()
            if self.is_dead:
                raise Died(self.name)

    @property
    def is_paused(self) -> bool:
        """Whether nothing happens here now."""
        return self._woken is not None

    def pause(self) -> None:
        """Stop all that happens here, until woken; messages under way go on."""
        if self._woken is None:
            self._woken = asyncio.Event()

    def pause_for(self, seconds: float) -> None:
        """Pause, and wake by itself."""
        self.pause()
        self.loop.call_later(seconds, self.wake)

    def wake(self) -> None:
        """Go on where it stopped."""
        if self._woken is not None:
            self._woken.set()
            self._woken = None

    def die(self) -> None:
        """Killed, without a last word."""
        self.is_dead = True
        self.wake()
        for task in self.tasks:
            task.cancel()


class Net:
    """Carries requests from parties to services."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.luck: dict[str, Luck] = {}
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        #: party or service, the other one, until when; a name that ends in * means all that begin so
        self._cuts: list[tuple[str, str, float]] = []
        #: requests that still travel though nobody waits for them
        self.under_way = 0
        self.on_killed: Callable[[Party], None] = lambda party: party.die()

    def note(self, event: Event) -> None:
        """Remember what happened."""
        self.events.append(event)

    def trouble(self, kind: str, detail: str = "") -> None:
        """Remember that the world was unkind."""
        self.counts[kind] += 1
        self.note(Trouble(self.loop.seconds, kind, detail))

    def cut(self, one: str, other: str, seconds: float) -> None:
        """Nothing gets through between the two for a while."""
        self.trouble("partition", f"{one} | {other} for {seconds:.0f} s")
        self._cuts.append((one, other, self.loop.seconds + seconds))

    def calm(self) -> None:
        """From now on everybody is kind."""
        self._cuts.clear()
        self.luck = {to: Luck() for to in self.luck}

    def is_cut(self, one: str, other: str) -> bool:
        """Whether the two cannot reach each other now."""
        if not self._cuts:
            return False
        now = self.loop.seconds
        self._cuts = [cut for cut in self._cuts if cut[2] > now]
        return any((_fits(a, one) and _fits(b, other)) or (_fits(a, other) and _fits(b, one)) for a, b, _ in self._cuts)

    async def call(
        self, who: Party, to: str, effect: Callable[[], T], no_answer: Callable[[str], Exception], *, reads: bool = False
    ) -> T:
        """Ask a service; `no_answer` makes the error a caller gets when nobody can say whether it happened.

        What only `reads` may be late or lost; that it arrives again, or after its caller gave up, would change nothing.
        """
        if who.pause_in_call_s:
            who.pause_for(who.pause_in_call_s)
            who.pause_in_call_s = 0.0
        await who.alive()
        luck = self.luck[to]
        reply: asyncio.Future[T] = self.loop.create_future()
        if luck.is_calm and not self._cuts:
            self.loop.call_later(self.rng.random() * luck.wire_s, _settle, reply, effect)
        else:
            self._send(_Request(who, to, effect, no_answer, reply, reads=reads), luck)
        try:
            return await reply
        finally:
            await who.alive()

    def _send(self, request: _Request[T], luck: Luck) -> None:
        rng, loop = self.rng, self.loop
        there_s, back_s = rng.random() * luck.wire_s, rng.random() * luck.wire_s
        if rng.random() < luck.late:
            self.counts["late"] += 1
            there_s += rng.random() * luck.late_s
            back_s += rng.random() * luck.late_s
        patience = loop.call_later(luck.patience_s, _fail, request.reply, request.no_answer(f"{request.to} did not answer in time"))
        request.reply.add_done_callback(lambda _: patience.cancel())
        if self.is_cut(request.who.name, request.to):
            self.counts["cut off"] += 1
            return
        if any(begin <= loop.seconds < end for begin, end in luck.outages):
            self.counts["outage"] += 1
            loop.call_later(back_s, _fail, request.reply, request.no_answer(f"{request.to} is out of order"))
            return
        self._travel(request, luck, there_s, back_s)

    def _travel(self, request: _Request[T], luck: Luck, there_s: float, back_s: float) -> None:
        rng, loop = self.rng, self.loop
        if rng.random() < luck.caller_dies:
            self.trouble("killed in a call", f"{request.who.name} asks {request.to}")
            loop.call_later(there_s + rng.choice((-1, 1)) * there_s / 2, self.on_killed, request.who)
        if rng.random() < luck.error:
            self.counts["error"] += 1
            loop.call_later(there_s + back_s, _fail, request.reply, request.no_answer(f"{request.to} answers 503"))
            return
        if rng.random() < luck.lost:
            self.counts["request lost"] += 1
            return
        if not request.reads and rng.random() < luck.ghost:
            self.counts[f"ghost: {request.to}"] += 1
            self._alone(luck.patience_s + rng.random() * luck.ghost_s, request.effect)
            return
        if not request.reads and rng.random() < luck.twice:
            self.counts[f"twice: {request.to}"] += 1
            self._alone(there_s + rng.random() * luck.twice_s, request.effect)
        if rng.random() < luck.reply_lost:
            self.counts["reply lost"] += 1
            self._alone(there_s, request.effect)
            return
        if rng.random() < luck.error_after:
            self.counts["error after effect"] += 1
            self._alone(there_s, request.effect)
            loop.call_later(there_s + back_s, _fail, request.reply, request.no_answer(f"{request.to} answers 500"))
            return
        loop.call_later(there_s, self._arrive, request, back_s)

    def _alone(self, after_s: float, effect: Callable[[], object]) -> None:
        """It happens, and nobody hears of it."""

        def happen() -> None:
            self.under_way -= 1
            with contextlib.suppress(Exception):  # a refusal that nobody hears is as if it had not been asked
                effect()

        self.under_way += 1
        self.loop.call_later(after_s, happen)

    def _arrive(self, request: _Request[T], back_s: float) -> None:
        try:
            value = request.effect()
        except Exception as error:  # noqa: BLE001  the service's answer, carried to whoever asked
            self.loop.call_later(back_s, self._reply, request, error)
            return
        self.loop.call_later(back_s, self._reply, request, value)

    def _reply(self, request: _Request[T], answer: T | Exception) -> None:
        if self.is_cut(request.who.name, request.to):
            self.counts["cut off"] += 1
            return
        if isinstance(answer, Exception):
            _fail(request.reply, answer)
        elif not request.reply.done():
            request.reply.set_result(answer)


class _Request(Generic[T]):
    """One question under way."""

    def __init__(
        self,
        who: Party,
        to: str,
        effect: Callable[[], T],
        no_answer: Callable[[str], Exception],
        reply: asyncio.Future[T],
        *,
        reads: bool,
    ) -> None:
        self.who, self.to, self.effect, self.no_answer, self.reply, self.reads = who, to, effect, no_answer, reply, reads


def _settle(reply: asyncio.Future[T], effect: Callable[[], T]) -> None:
    try:
        value = effect()
    except Exception as error:  # noqa: BLE001  the service's answer, carried to whoever asked
        _fail(reply, error)
        return
    if not reply.done():
        reply.set_result(value)


def _fail(reply: asyncio.Future[T], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)


def _fits(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == name
