"""How does an hour pass in no time? An event loop whose clock jumps to the next timer and whose order follows a seed."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Deadlock(Exception):
    """Nothing is ready and nothing is scheduled: the program would hang forever."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs ready callbacks in a seeded order; sleeping costs nothing. Leans on private names of asyncio, pinned by a test.

    There are no files, no sockets and no other threads here, so a round is only this: what is ready runs; when nothing is, the
    clock jumps to the next timer.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.seconds = 0.0
        self._rng = rng
        # Tasks of a process that was killed end with an exception nobody asks for.
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self.seconds

    def _run_once(self) -> None:
        ready = self._ready
        if not ready:
            self._jump()
        if len(ready) > 1:
            order = list(ready)
            self._rng.shuffle(order)
            ready.clear()
            ready.extend(order)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _jump(self) -> None:
        """To the next timer, and every other one of that moment."""
        scheduled = self._scheduled
        while scheduled:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle._cancelled:
                continue
            self.seconds = max(self.seconds, handle.when())
            self._ready.append(handle)
            while scheduled and scheduled[0].when() <= self.seconds:
                self._ready.append(heapq.heappop(scheduled))
            return
        raise Deadlock

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]], rng: random.Random) -> _T:
    """Run one program in virtual time, to its end."""
    loop = VirtualLoop(rng)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        end_all(loop)
        loop.close()


def end_all(loop: VirtualLoop) -> None:
    """Whoever still waits for something waits for nothing: the world is over."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=60.0))
