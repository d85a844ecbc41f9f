"""How does an hour pass in no time? An event loop whose clock jumps to the next timer and whose order follows a seed."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Deadlock(Exception):
    """Nothing is ready and nothing is scheduled: the program would hang forever."""


class _Jump:
    """Stands where the selector stands; waiting costs nothing."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        self._loop.seconds += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs ready callbacks in a seeded order; sleeping costs nothing. Leans on private names of asyncio, pinned by a test."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.seconds = 0.0
        self._rng = rng
        self._selector = _Jump(self)
        self._clock_resolution = 1e-6  # a year of virtual seconds has no nanoseconds
        # Tasks of a process that was killed end with an exception nobody asks for.
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self.seconds

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            order = list(ready)
            self._rng.shuffle(order)
            ready.clear()
            ready.extend(order)
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, event_list: object) -> None:
        """No files, no sockets: there are no events."""

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
