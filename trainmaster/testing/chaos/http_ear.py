"""What is said on a connection? Listens to the bytes of HTTP/1.1 in both directions and tells each request that was answered.

It is fed what the server was really sent and what it really answered, whatever the client then got to see of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from msgspec import Struct

_HEAD_END = b"\r\n\r\n"
_BODY_BYTES_MAX = 32 << 20


class Exchange(Struct, frozen=True, kw_only=True):
    """One request and the server's answer."""

    method: str
    #: path and query, as sent
    target: str
    body: bytes
    status: int
    #: when the whole request had been passed on
    sent_s: float
    #: when the whole answer was there
    answered_s: float


class _Stage(Enum):
    HEAD = 1
    BODY = 2
    CHUNK_SIZE = 3
    CHUNK = 4
    CHUNK_END = 5
    TRAILER = 6
    TO_THE_END = 7


class _Message(Struct):
    first_line: str
    headers: dict[str, str]
    body: bytearray


class _Reader:
    """Cuts the bytes of one direction into messages."""

    def __init__(self, is_bodyless: Callable[[_Message], bool], done: Callable[[_Message], None]) -> None:
        self._is_bodyless, self._done = is_bodyless, done
        self._bytes = bytearray()
        self._stage = _Stage.HEAD
        self._message = _Message("", {}, bytearray())
        self._left = 0

    @property
    def is_between(self) -> bool:
        """Whether no message has begun that is not over."""
        return self._stage is _Stage.HEAD and not self._bytes

    def feed(self, data: bytes) -> None:
        """Some more bytes."""
        self._bytes += data
        while self._advance():
            pass

    def _advance(self) -> bool:
        """One step of the reading; False: more bytes are needed."""
        match self._stage:
            case _Stage.HEAD:
                return self._head()
            case _Stage.BODY | _Stage.CHUNK:
                return self._take()
            case _Stage.CHUNK_SIZE | _Stage.CHUNK_END | _Stage.TRAILER:
                return self._line()
            case _Stage.TO_THE_END:
                self._bytes.clear()
                return False

    def _head(self) -> bool:
        end = self._bytes.find(_HEAD_END)
        if end < 0:
            return False
        lines = self._bytes[:end].decode("latin-1").split("\r\n")
        del self._bytes[: end + len(_HEAD_END)]
        pairs = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._message = _Message(lines[0], headers, bytearray())
        self._left = int(headers.get("content-length", "0"))
        if self._is_bodyless(self._message):
            self._left = 0
            self._over()
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            self._stage = _Stage.CHUNK_SIZE
        elif self._left:
            self._stage = _Stage.BODY
        elif "content-length" in headers or not lines[0].startswith("HTTP/"):
            self._over()
        else:
            self._stage = _Stage.TO_THE_END
        return True

    def _take(self) -> bool:
        part = self._bytes[: self._left]
        del self._bytes[: len(part)]
        self._left -= len(part)
        if len(self._message.body) < _BODY_BYTES_MAX:
            self._message.body += part
        if self._left:
            return False
        if self._stage is _Stage.BODY:
            self._over()
        else:
            self._stage = _Stage.CHUNK_END
        return True

    def _line(self) -> bool:
        """A line around chunks: a size, the empty one behind a chunk, or one of those behind the last."""
        end = self._bytes.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 2]
        if self._stage is _Stage.CHUNK_SIZE:
            self._left = int(line.split(b";")[0], 16)
            self._stage = _Stage.CHUNK if self._left else _Stage.TRAILER
        elif self._stage is _Stage.CHUNK_END:
            self._stage = _Stage.CHUNK_SIZE
        elif not line:
            self._over()
        return True

    def _over(self) -> None:
        self._stage = _Stage.HEAD
        self._done(self._message)


class _Asked(Struct, frozen=True):
    method: str
    target: str
    body: bytes
    sent_s: float


class HttpEar:
    """Listens to one connection."""

    def __init__(self, now_s: Callable[[], float], heard: Callable[[Exchange], None]) -> None:
        self._now_s, self._heard = now_s, heard
        self._asked: deque[_Asked] = deque()
        self._requests = _Reader(lambda _: False, self._request)
        self._answers = _Reader(self._has_no_body, self._answer)

    @property
    def awaits_answer(self) -> bool:
        """Whether a whole request was passed on and is not answered yet."""
        return bool(self._asked)

    @property
    def is_between_requests(self) -> bool:
        """Whether no request has been passed on in part."""
        return self._requests.is_between

    def sent(self, data: bytes) -> None:
        """The server was sent this."""
        self._requests.feed(data)

    def answered(self, data: bytes) -> None:
        """The server said this."""
        self._answers.feed(data)

    def _request(self, message: _Message) -> None:
        method, target, _ = message.first_line.split(" ", 2)
        self._asked.append(_Asked(method, target, bytes(message.body), self._now_s()))

    def _has_no_body(self, message: _Message) -> bool:
        status = _status(message)
        is_head = bool(self._asked) and self._asked[0].method == "HEAD"
        return is_head or status < 200 or status in {204, 304}

    def _answer(self, message: _Message) -> None:
        if _status(message) < 200 or not self._asked:
            return
        asked = self._asked.popleft()
        self._heard(
            Exchange(
                method=asked.method,
                target=asked.target,
                body=asked.body,
                status=_status(message),
                sent_s=asked.sent_s,
                answered_s=self._now_s(),
            )
        )


def _status(message: _Message) -> int:
    return int(message.first_line.split(" ", 2)[1])
