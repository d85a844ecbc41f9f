"""How do bytes get from one place to another, hashed on the way, in bounded memory?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from blake3 import blake3

from trainmaster.ports.object_store import StoredFile

COPY_BYTES = 1 << 20
EARLY_BYTES = 8 << 20

Read = Callable[[memoryview], int]
Write = Callable[[memoryview], None]
Progress = Callable[[int], None]
Guard = Callable[[], contextlib.AbstractContextManager[None]]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def copy_hashed(read: Read, write: Write, progress: Progress | None = None) -> StoredFile:
    """Copy until `read` answers 0; the hash is of exactly those bytes that were written, even if the source changes."""
    # One thread per hash: the caller copies several files at once, and blake3 lets go of the GIL meanwhile.
    hasher = blake3(max_threads=1)
    buffer = memoryview(bytearray(COPY_BYTES))
    size = 0
    while count := read(buffer):
        part = buffer[:count]
        hasher.update(part)
        write(part)
        size += count
        if progress is not None:
            progress(count)
    return StoredFile(size_bytes=size, blake3=hasher.hexdigest())


def guarded(call: Callable[Arguments, Result], errors: Guard) -> Callable[Arguments, Result]:
    """The same call with its errors translated, so that one side of a copy can speak as the store and the other not."""

    def guarded_call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with errors():
            return call(*args, **kwargs)

    return guarded_call


def reader(descriptor: int) -> Read:
    """Reads a file from where it stands."""
    return lambda buffer: os.readv(descriptor, [buffer])


def writer(descriptor: int) -> Write:
    """Writes all of what it is given, at the end."""

    def write(part: memoryview) -> None:
        write_all(descriptor, part)

    return write


def early_writer(descriptor: int) -> Write:
    """Writes like `writer`, and has the disk begin at once, so that an fsync at the end finds little left to wait for.

    This advice makes Linux start writing the range; as its pages are still dirty, they stay in memory. Measured with 4 GB in
    16 files on two threads: 2.2 s instead of 2.9 s; `cp` and `sync` take 3.1 s.
    """
    done = written = 0

    def write(part: memoryview) -> None:
        nonlocal done, written
        write_all(descriptor, part)
        written += len(part)
        if written - done >= EARLY_BYTES:
            os.posix_fadvise(descriptor, done, written - done, os.POSIX_FADV_DONTNEED)
            done = written

    return write


def write_all(descriptor: int, value: bytes | memoryview) -> None:
    """Write every byte; the kernel may take fewer at a time (2 GiB at most, or until the disk is full)."""
    rest = memoryview(value)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextlib.contextmanager
def opened(path: str | Path, flags: int) -> Iterator[int]:
    """A file descriptor, closed afterwards."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[int]:
    """A descriptor of a new file that takes the name `path` when the block ends well, and leaves nothing otherwise."""
    staged = path.with_name(f".{os.urandom(8).hex()}.part")
    try:
        with opened(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            yield descriptor
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
        raise


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power loss."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)
