"""A line to a server that can be held in the middle of something large: small talk passes, the rest waits until it is let go."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

#: A message that is longer is something large.
_LARGE = 1 << 20


class SlowLine:
    """Passes bytes between clients and one server, both ways."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Condition()
        self._left: dict[str, int | None] = {"up": None, "down": None}
        self._sockets: list[socket.socket] = []

    def hold(self, way: str, after: int) -> None:
        """From now on, let `after` bytes of large messages through that way, up or down, and no more."""
        with self._lock:
            self._left[way] = after
            self._lock.notify_all()

    def let_go(self, way: str) -> None:
        """Let everything through."""
        with self._lock:
            self._left[way] = None
            self._lock.notify_all()

    @contextlib.contextmanager
    def open(self) -> Iterator[SlowLine]:
        """Serve until the block ends."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            for way in self._left:
                self.let_go(way)
            for each in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                # How much of the message under way has passed, each way; what comes from the other side begins a new one.
                passed = {"up": 0, "down": 0}
                for way, source, sink in (("up", client, server), ("down", server, client)):
                    threading.Thread(target=self._pass_on, args=(way, source, sink, passed), daemon=True).start()

    def _pass_on(self, way: str, source: socket.socket, sink: socket.socket, passed: dict[str, int]) -> None:
        other = "down" if way == "up" else "up"
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                passed[other] = 0
                passed[way] += len(data)
                if passed[way] > _LARGE:
                    self._wait(way, len(data))
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _wait(self, way: str, size: int) -> None:
        with self._lock:
            while (left := self._left[way]) is not None and left < size:
                self._lock.wait()
            if left is not None:
                self._left[way] = left - size
