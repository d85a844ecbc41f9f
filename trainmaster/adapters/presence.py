"""Which processes that drive jobs are gone? Each holds a lock that the kernel frees with it; no process number is trusted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from trainmaster.adapters import host


@contextlib.contextmanager
def present(folder: Path, owner: str) -> Iterator[None]:
    """Be seen to live for the length of a block."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Locked before it has its name: whoever finds the name finds the lock.
    unnamed = folder / f".{owner}"
    lock = host.try_lock(unnamed, create=True)
    assert lock is not None, f"two processes call themselves {owner}"
    try:
        os.rename(unnamed, folder / owner)
        yield
        (folder / owner).unlink(missing_ok=True)
    finally:
        os.close(lock)


def gone(folder: Path, machine: str) -> list[str]:
    """Owners on this machine that were killed or went down with it; about other machines a lock may say nothing."""
    found: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            if name.startswith(f"{machine}:") and not _is_held(folder / name):
                found.append(name)
    return found


def forget(folder: Path, owner: str) -> None:
    """The owner's leases are ended: nothing is left to say about it."""
    (folder / owner).unlink(missing_ok=True)


def _is_held(path: Path) -> bool:
    try:
        return host.is_locked(path)
    except FileNotFoundError:
        return True  # it left in order
