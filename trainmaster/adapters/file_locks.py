"""How do processes of one machine take turns at something in a folder? With locks that the kernel ends with their holder.

A lock is a file. Whoever removes what it guards may remove the file too, while it holds it: whoever then gets a lock on a file that
is not there any more has got nothing, and asks again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PAUSE_S = 0.02


def try_hold(path: str | Path, *, shared: bool, create: bool = True) -> int | None:
    """A descriptor that holds the lock until it is closed; None if somebody is in the way, or it is not there and not to be made.
    Nobody we start inherits it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        except FileNotFoundError:
            if not create:
                return None
            os.makedirs(os.path.dirname(path), exist_ok=True)  # it is not there yet, or was just removed
            continue
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def hold(path: Path, *, shared: bool, wait: Callable[[], None]) -> int:
    """Like `try_hold`, until it is ours; `wait` is called before each pause and may raise to give up."""
    while (descriptor := try_hold(path, shared=shared)) is None:
        wait()
        time.sleep(_PAUSE_S)
    return descriptor


@contextlib.contextmanager
def holding(path: Path, *, wait: Callable[[], None]) -> Iterator[None]:
    """Alone with what the lock guards."""
    descriptor = hold(path, shared=False, wait=wait)
    try:
        yield
    finally:
        os.close(descriptor)


def clear(place: Path, *, first: str, locks: tuple[str, ...]) -> None:
    """Remove a folder whose locks we hold: first the file that says it is whole, last the locks. Whoever is killed meanwhile leaves
    nothing that is taken for whole, and nobody begins anew beside what still goes."""
    (place / first).unlink(missing_ok=True)
    for entry in list(os.scandir(place)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name not in locks:
            os.unlink(entry.path)
    for name in locks:
        (place / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        place.rmdir()  # unless somebody has begun anew


def _is_at(descriptor: int, path: str | Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False
