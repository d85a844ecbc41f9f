"""What stands between everybody and the store? A small proxy on loopback that delays, resets, swallows and cuts, as it is told.

What it does to a client is one thing; what the server was sent and answered is another, and the ear hears that to the end: a reply
that no client ever saw is still heard, so a write that happened though it failed is known to have happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from trainmaster.testing.chaos.http_ear import Exchange, HttpEar

_CHUNK_BYTES = 64 << 10
#: how long an answer is waited for that no client waits for any more
_LATE_ANSWER_S = 15.0
_POLL_S = 0.05


class WireFault(StrEnum):
    """What may happen on the way."""

    PASS = "pass"
    DELAY = "delay"
    #: connections break, at once and when something is said on them
    RESET = "reset"
    #: bytes go in and nothing comes out
    BLACK_HOLE = "black hole"
    #: a request breaks off after some bytes
    CUT_SHORT = "cut short"
    #: the server does what it was asked, and the answer never arrives
    LOSE_REPLY = "lost reply"
    REFUSE = "refuse"


class Weather(Struct, frozen=True, kw_only=True):
    """What happens to whom, for now."""

    fault: WireFault = WireFault.PASS
    #: a role or an allocation that is hit; empty: everybody
    whom: str = ""
    #: how likely it hits something said
    odds: float = 1.0
    delay_s: float = 0.0
    bytes_max: int = 0


class Caller(Struct, frozen=True, kw_only=True):
    """Which process is at the other end of a connection."""

    #: 0: nobody knows
    pid: int = 0
    #: what it may be called by: its role, its allocation
    names: tuple[str, ...] = ()


class _Broken(Exception):
    """The fault has come: this connection ends now."""


class Proxy:
    """Passes bytes on, most of the time."""

    def __init__(
        self,
        upstream_port: int,
        rng: random.Random,
        now_s: Callable[[], float],
        caller_of: Callable[[int, int], Caller],
        heard: Callable[[Exchange, Caller], None],
    ) -> None:
        self._upstream_port, self._rng, self._now_s = upstream_port, rng, now_s
        self._caller_of, self._heard = caller_of, heard
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.weather = Weather()
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_CHUNK_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Every connection ends."""
        assert self._server is not None
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def is_hit(self, caller: Caller, *faults: WireFault) -> bool:
        """Whether one of these happens to this caller now."""
        weather = self.weather
        hits = not weather.whom or weather.whom in caller.names
        return hits and weather.fault in faults and self._rng.random() < weather.odds

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            caller = self._caller_of(writer.get_extra_info("peername")[1], self.port)
            if self.is_hit(caller, WireFault.REFUSE, WireFault.RESET):
                return
            await self._relay(reader, writer, caller)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            _reset(writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream_port, limit=_CHUNK_BYTES)
        ear = HttpEar(self._now_s, lambda exchange: self._heard(exchange, caller))
        link = _Link(self, caller, ear)
        down = asyncio.ensure_future(link.pass_answers(from_server, writer))
        try:
            up = asyncio.ensure_future(link.pass_requests(reader, to_server))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            _reset(writer)
            if ear.awaits_answer and ear.is_between_requests:
                await asyncio.wait({down}, timeout=_LATE_ANSWER_S)
        finally:
            to_server.transport.abort()
            down.cancel()
            [trouble] = await asyncio.gather(down, return_exceptions=True)
            if isinstance(trouble, Exception) and not isinstance(trouble, OSError):
                raise trouble  # a fault of the ear's

    async def hold(self, caller: Caller) -> bool:
        """Wait while everything is swallowed; whether anything was."""
        was_held = False
        while self.is_hit(caller, WireFault.BLACK_HOLE):
            was_held = True
            await asyncio.sleep(_POLL_S)
        return was_held

    async def meet(self, caller: Caller, *faults: WireFault) -> None:
        """Something is said: it may be late, and the connection may break."""
        if self.is_hit(caller, WireFault.DELAY):
            await asyncio.sleep(self._rng.random() * self.weather.delay_s)
        if await self.hold(caller) or self.is_hit(caller, *faults):
            raise _Broken


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, caller: Caller, ear: HttpEar) -> None:
        self._proxy, self._caller, self._ear = proxy, caller, ear
        self._is_mute = False

    async def pass_requests(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, _Broken):
            while data := await reader.read(_CHUNK_BYTES):
                await self._proxy.meet(self._caller, WireFault.RESET)
                is_cut = self._proxy.is_hit(self._caller, WireFault.CUT_SHORT)
                passed = data[: min(self._proxy.weather.bytes_max, len(data) - 1)] if is_cut else data
                self._ear.sent(passed)
                to_server.write(passed)
                await to_server.drain()
                if is_cut:
                    return

    async def pass_answers(self, from_server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await from_server.read(_CHUNK_BYTES):
            self._ear.answered(data)
            if not self._is_mute:
                await self._pass_one(data, writer)
            if self._is_mute and not self._ear.awaits_answer:
                return

    async def _pass_one(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            await self._proxy.meet(self._caller, WireFault.LOSE_REPLY)
            writer.write(data)
            await writer.drain()
        except (OSError, _Broken):
            self._is_mute = True
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that the other side sees it break."""
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
