"""How does a snapshot become a folder again, without trusting the archive?

Nothing outside the folder is touched, whatever the archive says: names are plain relative paths, every file is new, links
are made last so that no file is ever written through one, and each must end inside the folder. Only what
source_archive writes is read; anything else is refused.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from msgspec import Struct

from trainmaster.adapters.source_archive import (
    BLOCK,
    STORED_BYTES_MAX,
    STORED_HEADER_BYTES,
    STORED_MAGIC,
    TYPE_FILE,
    TYPE_LINK,
    TYPE_LONG_NAME,
    TYPE_LONG_TARGET,
)
from trainmaster.adapters.source_links import Destination, follow
from trainmaster.errors import InvalidSource

if TYPE_CHECKING:
    from hashlib import _Hash

_PIECE_BYTES = 1024 * 1024
_LONG_TEXT_BYTES_MAX = 64 * 1024
#: Level 3 asks for 2 MiB; a hostile frame may ask for gigabytes.
_WINDOW_BYTES_MAX = 32 * 1024 * 1024


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def unpack(archive: Path | BinaryIO, folder: Path, *, expect_sha256: str | None = None, bytes_max: int | None = None) -> None:
    """Fill `folder`, which must be empty or not exist yet, from an archive that `pack` wrote.

    Needs a few MiB of memory, whatever the size. InvalidSource: the archive is damaged, hostile, or not the expected one.
    With `bytes_max`, one that holds more is refused, too.
    If it raised, the folder may hold some of the files; it is to be thrown away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidSource(f"{folder} is not empty; a snapshot is only unpacked into an empty folder.")
    if isinstance(archive, Path):
        with open(archive, "rb") as opened:
            _unpack_stream(opened, folder, expect_sha256, bytes_max)
    else:
        _unpack_stream(archive, folder, expect_sha256, bytes_max)


def _unpack_stream(archive: BinaryIO, folder: Path, expect_sha256: str | None, bytes_max: int | None) -> None:
    stream = _TarStream(_decompressed(archive), is_hashed=expect_sha256 is not None)
    target = _Target(os.fspath(folder))
    name, link_target = b"", b""
    bytes_left = math.inf if bytes_max is None else bytes_max
    while (header := stream.header()) is not None:
        if header.kind == TYPE_LONG_NAME:
            name = stream.text(header.size_bytes)
        elif header.kind == TYPE_LONG_TARGET:
            link_target = stream.text(header.size_bytes)
        else:
            path = _plain_path(name or header.name)
            bytes_left -= header.size_bytes
            if bytes_left < 0:
                raise _damaged(f"it holds more than {bytes_max} bytes")
            if header.kind == TYPE_FILE:
                target.make_file(path, header, stream)
            elif header.kind == TYPE_LINK and header.size_bytes == 0:
                target.note_link(path, _text(link_target or header.link_target))
            else:
                raise _damaged(f"{path} is not a plain file or link")
            name, link_target = b"", b""
    if expect_sha256 is not None and stream.finish() != expect_sha256:
        raise _damaged("it does not hold what its name promises")
    target.make_links()


class _Header(Struct, frozen=True):
    name: bytes
    kind: bytes
    size_bytes: int
    is_executable: bool
    link_target: bytes


class _TarStream:
    """Headers and contents, one after the other; every byte that goes by is hashed when asked for."""

    def __init__(self, source: _Readable, *, is_hashed: bool) -> None:
        self._source = source
        self._sha256: _Hash | None = None
        if is_hashed:
            import hashlib

            self._sha256 = hashlib.sha256()

    def header(self) -> _Header | None:
        """The next header; None at the end."""
        block = self._exactly(BLOCK)
        if block == bytes(BLOCK):
            return None
        try:
            if sum(block) - sum(block[148:156]) + 8 * 32 != int(block[148:154], 8):
                raise _damaged("a checksum is wrong")
            is_base_256 = block[124] == 0x80
            size_bytes = int.from_bytes(block[125:136], "big") if is_base_256 else int(block[124:135], 8)
            mode = int(block[100:107], 8)
        except ValueError as error:
            raise _damaged("a header is not readable") from error
        if size_bytes < 0:
            raise _damaged("a header is not readable")
        return _Header(_until_zero(block[:100]), block[156:157], size_bytes, bool(mode & 0o100), _until_zero(block[157:257]))

    def text(self, size_bytes: int) -> bytes:
        """The contents of an entry that is a long name."""
        if size_bytes > _LONG_TEXT_BYTES_MAX:
            raise _damaged("a name is too long")
        return _until_zero(b"".join(self.contents(size_bytes)))

    def contents(self, size_bytes: int) -> Iterator[bytes]:
        """The contents of an entry, in pieces; the filling behind it is passed over."""
        left = size_bytes
        while left:
            piece = self._exactly(min(left, _PIECE_BYTES))
            left -= len(piece)
            yield piece
        self._exactly(-size_bytes % BLOCK)

    def finish(self) -> str:
        """The SHA-256 of the whole stream."""
        assert self._sha256 is not None
        while piece := self._source.read(_PIECE_BYTES):
            self._sha256.update(piece)
        return self._sha256.hexdigest()

    def _exactly(self, size: int) -> bytes:
        data = _read_up_to(self._source, size)
        if len(data) < size:
            raise _damaged("it ends too early")
        if self._sha256 is not None:
            self._sha256.update(data)
        return data


class _Target:
    """The folder that is filled."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folders = {""}
        self._links: dict[str, str] = {}

    def make_file(self, path: str, header: _Header, stream: _TarStream) -> None:
        """Write a new file. As no link is made before the last file, no folder on the way can be one."""
        try:
            self._make_parent(path)
            mode = 0o755 if header.is_executable else 0o644
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(os.path.join(self._root, path), flags, mode)
        except (FileExistsError, NotADirectoryError) as error:
            raise _damaged(f"{path} is in it twice, or is a file and a folder at once") from error
        with open(handle, "wb", buffering=0) as file:
            for piece in stream.contents(header.size_bytes):
                _write_all(file, piece)

    def note_link(self, path: str, link_target: str) -> None:
        """Remember a link for later."""
        if path in self._links:
            raise _damaged(f"{path} is in it twice")
        self._links[path] = link_target

    def make_links(self) -> None:
        """Make all links, once it is sure that none leads out of the folder, even by way of another."""
        for path in self._links:
            parent = path.rpartition("/")[0]
            while parent:
                if parent in self._links:
                    raise _damaged(f"{parent} is a link and a folder at once")
                parent = parent.rpartition("/")[0]
            if not isinstance(follow(path, self._links.get), Destination):
                raise _damaged(f"the link {path} leads out of the folder")
        for path, link_target in self._links.items():
            try:
                self._make_parent(path)
                os.symlink(link_target, os.path.join(self._root, path))
            except (FileExistsError, NotADirectoryError) as error:
                raise _damaged(f"{path} is in it twice, or is a file and a folder at once") from error

    def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._folders:
            os.makedirs(os.path.join(self._root, parent), exist_ok=True)
            self._folders.add(parent)


def opened_snapshot(archive: _Readable) -> _Readable:
    """The tar stream inside an archive; its SHA-256 is the snapshot's name. InvalidSource when it is no archive."""
    return _decompressed(archive)


def _decompressed(archive: _Readable) -> _Readable:
    head = _read_up_to(archive, STORED_HEADER_BYTES)
    size = int.from_bytes(head[5:9], "little")
    block_header = int.from_bytes(head[9:12], "little")
    if head.startswith(STORED_MAGIC) and size <= STORED_BYTES_MAX and block_header == size << 3 | 1:
        return io.BytesIO(_read_up_to(archive, size))
    return _Decompressor(_Prefixed(head, archive))


class _Prefixed:
    """A stream whose first bytes have been read already."""

    def __init__(self, head: bytes, rest: _Readable) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head or self._rest.read(size)


class _Decompressor:
    """zstd, with its errors in our words."""

    def __init__(self, source: _Readable) -> None:
        import zstandard

        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
        reader = decompressor.stream_reader(cast("BinaryIO", source), read_across_frames=True)
        self._error = zstandard.ZstdError
        self._reader = io.BufferedReader(cast("io.RawIOBase", reader), _PIECE_BYTES)

    def read(self, size: int, /) -> bytes:
        try:
            return self._reader.read(size)
        except self._error as error:
            raise _damaged(f"zstd says {error}") from error


def _read_up_to(source: _Readable, size: int) -> bytes:
    """Exactly `size` bytes, unless the stream ends: a socket hands out less than one asks for."""
    data = source.read(size)
    while len(data) < size:
        more = source.read(size - len(data))
        if not more:
            break
        data += more
    return data


def _write_all(file: io.FileIO, piece: bytes) -> None:
    written = file.write(piece)
    while written < len(piece):
        written += file.write(piece[written:])


def _plain_path(name: bytes) -> str:
    path = _text(name)
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise _damaged(f"the name {path!r} may lead out of the folder")
    return path


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise _damaged(f"the name {name!r} is not valid UTF-8") from error


def _until_zero(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _damaged(what: str) -> InvalidSource:
    return InvalidSource(f"The archive of the source folder is refused: {what}.", hint="Submit the job again.")
