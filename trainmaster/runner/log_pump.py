"""How does every byte a job prints get into the object store, without the job ever waiting for it?

Two stages that share only files. The *pump* moves bytes from the job's pipe into a spool file, by splice where the kernel has
it, so they never pass through this process. The *shipper* takes each finished spool file as one immutable chunk to the store.
While the store is away the spool grows, up to a bound; beyond the bound, or on a full disk, bytes are read and dropped, counted,
and the log says so.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from trainmaster.adapters import host
from trainmaster.errors import StoreError
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec import layout
from trainmaster.spec.layout import Key

FLUSH_S = 1.0
FIRST_FLUSH_S = 0.1
CHUNK_BYTES_MAX = 32 << 20
SPOOL_BYTES_MAX = 2 << 30
TAIL_BYTES = 128 << 10
_PIPE_BYTES = 1 << 20
#: From so many bytes a second on, nap so long: the pipe holds many times what comes meanwhile. Who floods is read without pause.
_NAPS_S = ((5 << 20, 0.0), (1 << 20, 0.02), (256 << 10, 0.05), (0, 0.1))
_WINDOW_S = 0.05


class Pump:
    """Pipe → numbered spool files."""

    def __init__(self, spool: Path, shipper: Shipper) -> None:
        self._spool = spool
        self._shipper = shipper
        self.source, self.sink = os.pipe()
        host.widen_pipe(self.source, _PIPE_BYTES)
        self._splice = host.splice_to_file()
        self._seq = 0
        self._file = -1
        self._path = spool / "log-0"
        self._size = 0
        self._since_s = 0.0
        self._nap_s = _NAPS_S[-1][1]
        self._over = threading.Event()
        self._window_s = 0.0
        self._window_bytes = 0
        self.bytes_seen = 0
        self.bytes_dropped = 0
        self._told_dropped = 0
        self._thread = threading.Thread(target=self._run, name="log-pump", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Our end of the pipe is closed: read to the end, hand over the last chunk. What a stray process still writes is lost."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1
        self._over.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self.source, select.POLLIN)
        open_ended = True
        while open_ended:
            wait_ms = None if self._size == 0 else max(0, int((self._due_s() - host.elapsed_s()) * 1000)) + 1
            if poll.poll(wait_ms):
                open_ended = self._move()
                self._nap()
            if self._size >= CHUNK_BYTES_MAX or (self._size and host.elapsed_s() >= self._due_s()):
                if open_ended and poll.poll(0):
                    open_ended = self._move()  # a line and its end may come apart
                self._hand_over()
        self._hand_over()
        os.close(self.source)

    def _nap(self) -> None:
        """A script that prints a line now and then must not pay for waking us each time; one that floods is read without pause."""
        now_s = host.elapsed_s()
        passed_s = now_s - self._window_s
        if passed_s > _WINDOW_S:
            rate = (self.bytes_seen - self._window_bytes) / passed_s
            self._nap_s = next(nap_s for least, nap_s in _NAPS_S if rate >= least)
            self._window_s, self._window_bytes = now_s, self.bytes_seen
        nap_s = min(self._nap_s, self._due_s() - now_s) if self._size else self._nap_s
        if nap_s > 0:
            self._over.wait(nap_s)

    def _due_s(self) -> float:
        """The first lines come at once; a busy log comes in fewer, larger chunks."""
        return self._since_s + (FIRST_FLUSH_S if self._seq < 5 else FLUSH_S)

    def _move(self) -> bool:
        """Some bytes from the pipe to the spool; False at the end of the pipe."""
        if self._shipper.backlog_bytes > SPOOL_BYTES_MAX:
            return self._drop()
        try:
            if self._file < 0:
                self._open()
            count = self._copy()
        except OSError:
            return self._drop()
        if self._size == 0:
            self._since_s = host.elapsed_s()
        self._size += count
        self.bytes_seen += count
        return count > 0

    def _copy(self) -> int:
        if self._splice is not None:
            try:
                return self._splice(self.source, self._file, _PIPE_BYTES)
            except OSError as error:
                if error.errno != 22:  # EINVAL: this file system cannot be spliced to
                    raise
                self._splice = None
        data = os.read(self.source, _PIPE_BYTES)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        return len(data)

    def _drop(self) -> bool:
        """Never block the job: what cannot be kept is counted."""
        count = len(os.read(self.source, _PIPE_BYTES))
        self.bytes_seen += count
        self.bytes_dropped += count
        return count > 0

    def _open(self) -> None:
        self._path = self._spool / f"log-{self._seq}"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        lost = self.bytes_dropped - self._told_dropped
        if lost:
            note = f"\n[trainmaster: {lost} bytes of output could not be kept here]\n".encode()
            self._size += os.write(self._file, note)
            self._told_dropped = self.bytes_dropped

    def _hand_over(self) -> None:
        if self._file < 0:
            return
        os.close(self._file)
        self._file = -1
        if self._size:
            self._seq += 1
            self._shipper.add(self._path, self._size)
        self._size = 0


class Shipper:
    """Spool files → chunks in the store, in order, retried until they are there."""

    def __init__(self, store: BlockingStore, prefix: Key, look: Callable[[Path], None]) -> None:
        self._store = store
        self._prefix = prefix
        self._look = look
        self._queue: deque[tuple[Path, int] | None] = deque()
        # One counter per thread that writes it: the backlog is their difference.
        self._bytes_added = 0
        self._bytes_shipped = 0
        self._ready = threading.Semaphore(0)
        self._seq = 0
        self.tail = b""
        self.trouble = ""
        self.is_closed = False
        self._thread = threading.Thread(target=self._run, name="log-shipper", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    @property
    def backlog_bytes(self) -> int:
        """How much waits in the spool."""
        return self._bytes_added - self._bytes_shipped

    def add(self, path: Path, size: int) -> None:
        """One more finished spool file; its end is known from here on, however long the store is away."""
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            self.tail = (self.tail + file.read(TAIL_BYTES))[-TAIL_BYTES:]
        self._bytes_added += size
        self._queue.append((path, size))
        self._ready.release()

    def finish(self, timeout_s: float | None) -> bool:
        """Ship everything; False if the store did not take it in time."""
        self._queue.append(None)
        self._ready.release()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._ready.acquire()
            chunk = self._queue.popleft()
            if chunk is None:
                return
            path, size = chunk
            with contextlib.suppress(OSError):
                self._look(path)
            self._ship(path)
            self._bytes_shipped += size

    def _ship(self, path: Path) -> None:
        pause = threading.Event()
        pause_s = 0.2
        while not self.is_closed:
            try:
                self._store.move_file(layout.chunk(self._prefix, self._seq), path)
                break
            except StoreError as error:
                self.trouble = f"logs wait for the store: {error.sentence}"
                pause.wait(pause_s)
                pause_s = min(5.0, pause_s * 2)
        self.trouble = ""
        self._seq += 1
