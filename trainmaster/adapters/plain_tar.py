"""How are plain files written into a tar stream and read back, without trusting it?

Only regular files with plain relative names: whatever else a tar may hold (links, devices, folders, sparse files, extended headers)
is refused. Names of more than 100 bytes are GNU "L" entries, sizes beyond 8 GB are in base 256; every tar reads what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import Struct

BLOCK = 512
PIECE_BYTES = 1 << 20
NAME_BYTES_MAX = 4096
_LARGEST_OCTAL = 0o77777777777
_KINDS = {b"1": "a hard link", b"2": "a link", b"3": "a device", b"4": "a device", b"5": "a folder", b"6": "a pipe"}


class NotPlain(ValueError):
    """The stream is damaged, or holds what it must not."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""
        ...


class TarEntry(Struct, frozen=True):
    """A file in the stream; its contents must be read, or passed over, before the next."""

    path: str
    size_bytes: int
    pieces: Callable[[], Iterator[bytes]]


def file_header(path: str, size_bytes: int) -> bytes:
    """What stands before a file's contents."""
    name = path.encode()
    long = b""
    if len(name) > 100:
        size = len(name) + 1
        long = _header(b"././@LongLink", b"L", size) + name + bytes(1 + -size % BLOCK)
    return long + _header(name[:100], b"0", size_bytes)


def padding(size_bytes: int) -> bytes:
    """What stands behind a file's contents."""
    return bytes(-size_bytes % BLOCK)


END = bytes(2 * BLOCK)


def read_entries(source: Readable) -> Iterator[TarEntry]:
    """Every file; NotPlain says what is wrong."""
    long_name = b""
    while (block := _exactly(source, BLOCK)) != bytes(BLOCK):
        name, kind, size = _parsed(block)
        if kind == b"L":
            if long_name or size > NAME_BYTES_MAX:
                raise NotPlain("a name in it is too long")
            long_name = _exactly(source, size + -size % BLOCK)[:size].partition(b"\0")[0]
            continue
        if kind not in {b"0", b"\0"}:
            shown = (long_name or name).decode(errors="replace")
            raise NotPlain(f"{shown} is {_KINDS.get(kind, 'no plain file')}")
        path = _plain_path(long_name or name)
        long_name = b""
        state = _Contents(source, size)
        yield TarEntry(path, size, state.pieces)
        if state.left:
            for _ in state.pieces():
                pass
        _exactly(source, -size % BLOCK)
    while rest := source.read(PIECE_BYTES):
        if rest.strip(b"\0"):
            raise NotPlain("something follows its end")


class _Contents:
    def __init__(self, source: Readable, size_bytes: int) -> None:
        self._source, self.left = source, size_bytes

    def pieces(self) -> Iterator[bytes]:
        while self.left:
            piece = _exactly(self._source, min(self.left, PIECE_BYTES))
            self.left -= len(piece)
            yield piece


def _header(name: bytes, kind: bytes, size: int) -> bytes:
    size_field = b"%011o\0" % size if size <= _LARGEST_OCTAL else b"\x80" + size.to_bytes(11, "big")
    before = b"%b%07o\0%07o\0%07o\0%b%011o\0" % (name.ljust(100, b"\0"), 0o644, 0, 0, size_field, 0)
    after = b"%b%bustar  \0" % (kind, bytes(100))
    checksum = sum(before) + sum(after) + 8 * 32  # the sum's own field is read as eight spaces
    return (before + b"%06o\0 " % checksum + after).ljust(BLOCK, b"\0")


def _parsed(block: bytes) -> tuple[bytes, bytes, int]:
    try:
        checksum = int(block[148:156].strip(b" \0"), 8)
        size = int.from_bytes(block[125:136], "big") if block[124] == 0x80 else int(block[124:136].strip(b" \0") or b"0", 8)
    except ValueError as error:
        raise NotPlain("it is no tar archive, or is damaged") from error
    if sum(block) - sum(block[148:156]) + 8 * 32 != checksum or size < 0:
        raise NotPlain("it is no tar archive, or is damaged")
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name), block[156:157], size


def _plain_path(name: bytes) -> str:
    try:
        path = name.decode()
    except UnicodeDecodeError as error:
        raise NotPlain(f"the name {name!r} is not UTF-8 text") from error
    if any(part in {"", ".", ".."} or len(part.encode()) > 255 for part in path.split("/")):
        raise NotPlain(f"the name {path[:200]!r} leads out of it, or is none")
    return path


def _exactly(source: Readable, size: int) -> bytes:
    data = source.read(size)
    while len(data) < size:
        more = source.read(size - len(data))
        if not more:
            raise NotPlain("it is cut off")
        data += more
    return data
