"""How do the files of a source folder become one content-addressed archive?

The archive is a tar stream inside zstd. The stream depends on names, contents, run bits and links alone, and its SHA-256
is the snapshot's name: neither the machine, the user, the clock nor the version of zstd can change it. Headers follow
the GNU format (long names as "L" and "K" entries, large sizes in base 256), which every tar reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from trainmaster.errors import InvalidSource

if TYPE_CHECKING:
    from hashlib import _Hash

    # The training machine only unpacks; it need not load what lists a folder.
    from trainmaster.adapters.source_folder import SourceFile, SourceListing

BLOCK = 512
NAME_BYTES_MAX = 100
#: Type of the entries, as tar numbers them.
TYPE_FILE, TYPE_LINK, TYPE_LONG_NAME, TYPE_LONG_TARGET = b"0", b"2", b"L", b"K"

#: The one zstd frame we write by hand: magic number; one segment, content size in four bytes; then a single raw block.
STORED_MAGIC = b"\x28\xb5\x2f\xfd\xa0"
STORED_HEADER_BYTES = 12
STORED_BYTES_MAX = 128 * 1024

_PIECE_BYTES = 1024 * 1024
_LARGEST_OCTAL_SIZE = 0o77777777777
_LEVEL = 3


class PackedSource(Struct, frozen=True):
    """An archive on disk."""

    #: Of the tar stream before compression.
    sha256: str
    size_bytes: int


def pack(listing: SourceListing, folder: Path, destination: Path, progress: Callable[[int], None] | None = None) -> PackedSource:
    """Write the archive to `destination`. `progress` hears of bytes just done; together, the listing's total.

    Needs a few MiB of memory, whatever the size. Repeatable; if it raised, there is no `destination`. InvalidSource names a
    file that changed since it was listed, or while it was read.
    """
    is_complete = False
    try:
        with open(destination, "wb") as out:
            sha256 = _write_archive(listing, folder, out.write, progress)
            size_bytes = out.tell()
        is_complete = True
    finally:
        if not is_complete:
            destination.unlink(missing_ok=True)
    return PackedSource(sha256, size_bytes)


def digest(listing: SourceListing, folder: Path) -> str:
    """The SHA-256 that `pack` would answer, without writing anything: is the snapshot in the store already?"""
    sha256 = _new_sha256()
    for piece in _tar_stream(listing.files, folder):
        sha256.update(piece)
    return sha256.hexdigest()


def _write_archive(
    listing: SourceListing, folder: Path, write: Callable[[bytes], int], progress: Callable[[int], None] | None
) -> str:
    sha256 = _new_sha256()
    pieces = _tar_stream(listing.files, folder)
    first = next(pieces)
    sha256.update(first)
    if len(first) <= STORED_BYTES_MAX:
        # A small folder stays uncompressed, since loading zstd takes longer than everything else together.
        write(_store(first))
        left = listing.total_bytes
    else:
        import zstandard

        # One thread: with several, zstd holds some 100 MB of jobs in flight, and hashing is the other half anyway.
        compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
        write(compressor.compress(first))
        left = _report(progress, len(first), listing.total_bytes)
        for piece in pieces:
            sha256.update(piece)
            write(compressor.compress(piece))
            left = _report(progress, len(piece), left)
        write(compressor.flush())
    _report(progress, left, left)
    return sha256.hexdigest()


def _report(progress: Callable[[int], None] | None, done: int, left: int) -> int:
    """What is left afterwards. The stream is longer than the files in it, but never more than all is reported."""
    count = min(done, left)
    if progress is not None and count:
        progress(count)
    return left - count


def _new_sha256() -> _Hash:
    import hashlib

    return hashlib.sha256()


def _store(content: bytes) -> bytes:
    """A zstd frame with one raw block: valid for every reader, and made without zstd."""
    block_header = len(content) << 3 | 1
    return STORED_MAGIC + len(content).to_bytes(4, "little") + block_header.to_bytes(3, "little") + content


def _tar_stream(files: tuple[SourceFile, ...], folder: Path) -> Iterator[bytes]:
    """The stream in pieces of a megabyte or two; only the last may be shorter."""
    parts: list[bytes] = []
    gathered = 0
    for part in _tar_parts(files, os.fspath(folder)):
        parts.append(part)
        gathered += len(part)
        if gathered >= _PIECE_BYTES:
            yield b"".join(parts)
            parts, gathered = [], 0
    yield b"".join(parts)


def _tar_parts(files: tuple[SourceFile, ...], folder: str) -> Iterator[bytes]:
    for file in files:
        yield _header(file)
        if file.link_target is None:
            yield from _contents(folder, file)
            yield bytes(-file.size_bytes % BLOCK)
    yield bytes(2 * BLOCK)


def _header(file: SourceFile) -> bytes:
    name = file.path.encode()
    target = (file.link_target or "").encode()
    long = b""
    if len(target) > NAME_BYTES_MAX:
        long += _long_text(TYPE_LONG_TARGET, target)
    if len(name) > NAME_BYTES_MAX:
        long += _long_text(TYPE_LONG_NAME, name)
    if file.link_target is not None:
        return long + _plain_header(name, TYPE_LINK, 0o777, 0, target)
    return long + _plain_header(name, TYPE_FILE, 0o755 if file.is_executable else 0o644, file.size_bytes)


def _long_text(kind: bytes, text: bytes) -> bytes:
    """What is too long for the header comes before it, as if it were the contents of a file."""
    size = len(text) + 1
    return _plain_header(b"././@LongLink", kind, 0, size) + text + bytes(1 + -size % BLOCK)


def _plain_header(name: bytes, kind: bytes, mode: int, size: int, target: bytes = b"") -> bytes:
    size_field = b"%011o\0" % size if size <= _LARGEST_OCTAL_SIZE else b"\x80" + size.to_bytes(11, "big")
    before = b"%b%07o\0%07o\0%07o\0%b%011o\0" % (name[:NAME_BYTES_MAX].ljust(100, b"\0"), mode, 0, 0, size_field, 0)
    after = b"%b%bustar  \0" % (kind, target[:NAME_BYTES_MAX].ljust(100, b"\0"))
    # The sum of all bytes, with the field of the sum itself read as eight spaces.
    checksum = sum(before) + sum(after) + 8 * 32
    return (before + b"%06o\0 " % checksum + after).ljust(BLOCK, b"\0")


def _contents(folder: str, file: SourceFile) -> Iterator[bytes]:
    try:
        # Non-blocking: should a FIFO have taken the file's place, we must not wait for its writer.
        handle = os.open(os.path.join(folder, file.path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidSource(
            f"The file {file.path} cannot be read: {error.strerror}.",
            hint=f"Make it readable (chmod u+r {file.path}), or name it in .trainmasterignore; then try again.",
        ) from error
    try:
        before = os.fstat(handle)
        if before.st_size != file.size_bytes or not stat.S_ISREG(before.st_mode):
            raise _changed(file)
        left = file.size_bytes
        while left:
            piece = os.read(handle, min(left, _PIECE_BYTES))
            if not piece:
                raise _changed(file)
            left -= len(piece)
            yield piece
        after = os.fstat(handle)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise _changed(file)
    finally:
        os.close(handle)


def _changed(file: SourceFile) -> InvalidSource:
    return InvalidSource(
        f"The file {file.path} changed while the source folder was packed.",
        hint="Try again when nothing writes to it, or name it in .trainmasterignore.",
    )
