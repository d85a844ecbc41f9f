"""How do many objects come at once? Threads take them one by one; what another job fetches at the moment is taken from it later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainmaster.adapters import host
from trainmaster.adapters.folder_files import Progress
from trainmaster.adapters.inputs.cache import InputCache, Taken
from trainmaster.adapters.inputs.source import DataChanged, Source, SourceObject
from trainmaster.errors import StoreUnavailable

WORKERS = 16
#: how long a source may be away before we give up; it counts from the last bytes that came
PATIENCE_S = 120.0
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.2, 5.0
#: between two looks at what another job fetches
_BUSY_S = 0.05


class Stopped(Exception):
    """Nobody wants the data any more."""


class Want(NamedTuple):
    """One object, and where it shall lie."""

    found: SourceObject
    target: str
    tries: int = 0
    #: how many bytes of it came at best
    reached: int = 0


class Fetcher:
    """Fetches the objects of one source into the cache, and links them to where they shall lie."""

    def __init__(
        self,
        cache: InputCache,
        progress: Progress,
        is_over: Callable[[], bool],
        *,
        workers: int = WORKERS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._cache, self._progress, self._is_over = cache, progress, is_over
        self._workers, self._patience_s = workers, patience_s
        self._failure: BaseException | None = None
        self._last_s = host.elapsed_s()

    def fetch(self, source: Source, wants: Sequence[Want]) -> None:
        """Everything, or the first error that does not pass: DataChanged, a refusal, a full disk, Stopped."""
        todo = deque(wants)
        self._failure, self._last_s = None, host.elapsed_s()
        threads = [
            threading.Thread(target=self._work, args=(source, todo), name=f"fetch-{number}", daemon=True)
            for number in range(min(self._workers, len(todo)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self, source: Source, todo: deque[Want]) -> None:
        while self._failure is None:
            try:
                want = todo.popleft()
            except IndexError:
                return
            try:
                if self._is_over():
                    raise Stopped
                again = self._take(source, want)
            except BaseException as error:  # noqa: BLE001  it is raised by `fetch`, in the thread that asked
                self._failure = self._failure or error
                return
            if again is not None:
                todo.append(again)

    def _take(self, source: Source, want: Want) -> Want | None:
        """Fetch one object; what has to be tried again, if so."""
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            if done > want.reached:  # whoever always breaks off at the same place makes no progress
                self._last_s = host.elapsed_s()
            self._progress(size)

        try:
            taken = self._cache.fetch(want.found, want.target, lambda descriptor: source.read(want.found, descriptor, count))
        except StoreUnavailable:
            self._progress(-done)
            if host.elapsed_s() - self._last_s > self._patience_s:
                raise
            self._pause(min(_PAUSE_S_MAX, _PAUSE_S_MIN * 2**want.tries))
            return want._replace(tries=min(want.tries + 1, 10), reached=max(want.reached, done))
        except DataChanged:
            self._progress(-done)
            raise
        if taken is Taken.BUSY:
            self._pause(_BUSY_S)
            self._last_s = host.elapsed_s()  # somebody else is patient
            return want
        self._last_s = host.elapsed_s()
        if taken is Taken.FOUND:
            self._progress(want.found.size_bytes)
        return None

    def _pause(self, seconds: float) -> None:
        """Wait, and see soon that nobody wants it any more."""
        until_s = host.elapsed_s() + seconds
        while self._failure is None and not self._is_over() and (left_s := until_s - host.elapsed_s()) > 0:
            threading.Event().wait(min(0.2, left_s))
