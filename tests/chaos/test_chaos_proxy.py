"""Does the proxy do to clients what it is told, and hear what the server did all the same?"""

from __future__ import annotations

import asyncio
import random

import pytest

from trainmaster.testing.chaos.proxy import Caller, Proxy, Weather, WireFault

PUT = b"PUT /k HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
DEADLINE_S = 20.0


class Place:
    """A server that answers every whole request, the proxy before it, and what was heard."""

    def __init__(self) -> None:
        self.heard: list = []
        self.requests = 0
        self.asked, self.said = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readexactly(len(PUT))
                self.requests += 1
                self.asked.set()
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def ask(self, proxy: Proxy) -> bytes:
        """What a client gets; nothing when the connection broke."""
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            writer.write(PUT)
            await writer.drain()
            return await reader.readexactly(len(ANSWER))
        except (OSError, asyncio.IncompleteReadError):
            return b""
        finally:
            writer.close()

    def hear(self, exchange, caller) -> None:
        self.heard.append((exchange.status, len(exchange.body), caller.names))
        self.said.set()


def play(scene) -> None:
    async def inside() -> None:
        place = Place()
        server = await asyncio.start_server(place.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        proxy = Proxy(port, random.Random(1), loop.time, lambda *_: Caller(names=("runner", "a")), place.hear)
        await proxy.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await scene(place, proxy)
        finally:
            await proxy.stop()
            server.close()

    asyncio.run(inside())


def test_in_fair_weather_everything_passes():
    async def scene(place, proxy):
        assert await place.ask(proxy) == ANSWER
        assert place.heard == [(200, 100_000, ("runner", "a"))]

    play(scene)


def test_a_lost_reply_is_lost_to_the_client_only():
    async def scene(place, proxy):
        proxy.weather = Weather(fault=WireFault.LOSE_REPLY)
        assert await place.ask(proxy) == b""
        await place.said.wait()
        assert (place.requests, place.heard[0][0]) == (1, 200)

    play(scene)


@pytest.mark.parametrize("fault", [WireFault.RESET, WireFault.REFUSE, WireFault.CUT_SHORT])
def test_a_broken_request_never_happens(fault):
    async def scene(place, proxy):
        proxy.weather = Weather(fault=fault, bytes_max=1000)
        assert await place.ask(proxy) == b""
        proxy.weather = Weather()
        assert await place.ask(proxy) == ANSWER
        assert (place.requests, len(place.heard)) == (1, 1)

    play(scene)


def test_a_black_hole_holds_a_request_and_breaks_it_when_it_ends():
    async def scene(place, proxy):
        proxy.weather = Weather(fault=WireFault.BLACK_HOLE)
        asking = asyncio.ensure_future(place.ask(proxy))
        done, _ = await asyncio.wait({asking}, timeout=0.3)
        assert not done
        proxy.weather = Weather()
        assert await asking == b""
        assert place.requests == 0

    play(scene)


def test_only_those_who_are_meant_are_hit():
    async def scene(place, proxy):
        proxy.weather = Weather(fault=WireFault.REFUSE, whom="driver")
        assert await place.ask(proxy) == ANSWER
        proxy.weather = Weather(fault=WireFault.REFUSE, whom="runner")
        assert await place.ask(proxy) == b""

    play(scene)


def test_a_client_that_goes_away_does_not_keep_the_answer_from_being_heard():
    async def scene(place, proxy):
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(PUT)
        await writer.drain()
        await place.asked.wait()
        writer.transport.abort()
        await place.said.wait()
        assert place.heard[0][0] == 200

    play(scene)
