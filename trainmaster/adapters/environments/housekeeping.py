"""What of the environments on this machine may go? What no job runs in, and nobody has used for a while."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters import file_locks
from trainmaster.adapters.environments.shelf import Shelf, Shelved
from trainmaster.adapters.environments.wheelhouse import LOCK, WHOLE, used_at_s


class Pruned(Struct, frozen=True, kw_only=True):
    """What went, or would go."""

    removed: list[Shelved] = []
    #: old enough, but a job runs in it
    in_use: list[Shelved] = []
    cache_bytes: int = 0


class EnvironmentHouse:
    """The environments of one machine, and what belongs to them."""

    def __init__(self, shared: Path) -> None:
        self._shared, self._shelf = shared, Shelf(shared / "envs")

    def listing(self) -> list[Shelved]:
        """Every environment, the one used last first."""
        return self._shelf.listing()

    def prune(self, before_s: float, *, with_cache: bool, dry_run: bool) -> Pruned:
        """Remove what was last used before this moment, or is broken; what a job runs in stays. A dry run removes nothing."""
        removed: list[Shelved] = []
        in_use: list[Shelved] = []
        for one in self._shelf.listing():
            if one.used_at_s >= before_s and not one.broken:
                continue
            is_free = not one.in_use if dry_run else self._shelf.remove(one.key)
            (removed if is_free else in_use).append(one)
        if not dry_run:
            _remove_wheels(self._shared / "wheels", before_s)
        cache = cache_bytes(self._shared) if with_cache else 0
        if cache and not dry_run:
            _clean_cache(self._shared)
        return Pruned(removed=removed, in_use=in_use, cache_bytes=cache)


def _remove_wheels(folder: Path, before_s: float) -> None:
    """Wheels that were fetched for builds; a build under way keeps its own."""
    for place in sorted(folder.iterdir()) if folder.is_dir() else []:
        lock = file_locks.try_hold(place / LOCK, shared=False)
        if lock is not None:
            if used_at_s(place) < before_s:
                file_locks.clear(place, first=WHOLE, locks=(LOCK,))
            os.close(lock)


def _clean_cache(shared: Path) -> None:
    """The cache beside the environments; uv waits for whoever uses it, and files that are linked into environments stay there."""
    from trainmaster.adapters.environments.tool import find_uv

    words = [find_uv(), "cache", "clean", "--quiet", "--cache-dir", str(shared / "uv-cache")]
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def cache_bytes(shared: Path) -> int:
    """How much uv's cache holds that no environment holds too."""
    total = 0
    for root, _, files in os.walk(shared / "uv-cache"):
        for name in files:
            seen = os.lstat(os.path.join(root, name))
            total += seen.st_size if seen.st_nlink == 1 else 0
    return total
