"""What does the home folder hold of jobs, and who is submitting right now?

`submitting` is a shared lock on a file, `alone` an exclusive one: the kernel ends both with their process, so nobody who was killed
keeps house from being kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainmaster.core.job import parse_allocation_name

#: How long keeping house waits for those who submit.
_WAIT_S = 5.0
_POLL_S = 0.02


class HomeFolder:
    """The home folder as it is kept. `now_s` answers seconds since 1970; `memories` holds a file for each machine that is gone."""

    def __init__(self, path: Path, now_s: Callable[[], float], *, store: Path | None = None, memories: Path | None = None) -> None:
        self._path, self._now_s, self._store, self._memories = path, now_s, store, memories

    @contextlib.contextmanager
    def submitting(self, waits: Callable[[], object] = lambda: None) -> Iterator[None]:
        """A shared lock; waits while somebody removes code that nobody needs, which takes a moment."""
        with self._lock_file("code.lock") as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """An exclusive lock, tried for a moment."""
        with self._lock_file("code.lock") as descriptor:
            yield _taken(descriptor, _WAIT_S)

    @contextlib.contextmanager
    def importing(self, job_id: str) -> Iterator[bool]:
        """Note that a job is about to come, one at a time; whether this one had begun to come before. The note stays if we fail."""
        folder = self._path / "importing"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock_file("import.lock") as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            note = folder / job_id
            was_begun = note.exists()
            yield was_begun

    def begin_import(self, job_id: str) -> None:
        """The note itself: durable before the first file of the job is written."""
        folder = self._path / "importing"
        with open(folder / job_id, "wb") as file:
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def end_import(self, job_id: str) -> None:
        """The job is here, or nothing of it. Repeatable."""
        (self._path / "importing" / job_id).unlink(missing_ok=True)

    def unborn(self, older_than_s: float) -> list[str]:
        """Environments without an end and imports without an importer."""
        with self.nobody_imports() as is_known:
            return sorted(self._given_up(older_than_s) if is_known else self._unsubmitted(older_than_s))

    @contextlib.contextmanager
    def nobody_imports(self) -> Iterator[bool]:
        """The lock of those who import, if it is free."""
        with self._lock_file("import.lock") as descriptor:
            yield _taken(descriptor, 0.0)

    def is_unborn(self, job_id: str, older_than_s: float) -> bool:
        """Asked under the lock of those who import, which `unborn` would wait for in vain."""
        return job_id in self._given_up(older_than_s)

    def _given_up(self, older_than_s: float) -> set[str]:
        return self._unsubmitted(older_than_s) | {file.name for file, _ in self._old("importing", 0.0)}

    def _unsubmitted(self, older_than_s: float) -> set[str]:
        return {file.stem for file, _ in self._old("environments", older_than_s) if file.suffix == ".json"}

    def forget(self, job_id: str) -> None:
        """Its environment, what is remembered of its machines, and a note of its import."""
        (self._path / "environments" / f"{job_id}.json").unlink(missing_ok=True)
        for name in os.listdir(self._memories) if self._memories is not None and self._memories.is_dir() else ():
            parsed = parse_allocation_name(name)
            if self._memories is not None and parsed is not None and parsed[0] == job_id:
                (self._memories / name).unlink(missing_ok=True)
        self.end_import(job_id)

    def old_packing(self, older_than_s: float) -> list[tuple[str, int]]:
        """Names and sizes."""
        return [(file.name, size) for file, size in self._old("packing", older_than_s)]

    def drop_packing(self, name: str) -> None:
        """Remove one of them."""
        (self._path / "packing" / name).unlink(missing_ok=True)

    def sizes(self) -> dict[str, int]:
        """Each folder by its name; the database, its journal and the other files at the top together.

        A file with several names counts where it is met first: packages of environments are links into the cache.
        """
        found: dict[str, int] = {}
        seen: set[tuple[int, int]] = set()
        if not self._path.is_dir():
            return found
        for entry in sorted(os.scandir(self._path), key=lambda one: one.name):
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and self._store is not None and Path(entry.path) == self._store:
                continue
            name = entry.name if is_folder else "database" if entry.name.startswith("trainmaster.db") else "files"
            found[name] = found.get(name, 0) + (_size_of(entry.path, seen) if is_folder else _file_size(entry))
        return found

    def _old(self, folder: str, older_than_s: float) -> list[tuple[Path, int]]:
        found: list[tuple[Path, int]] = []
        place = self._path / folder
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # others are done with theirs at any moment
                status = file.stat()
                if status.st_mtime <= self._now_s() - older_than_s:
                    found.append((file, status.st_size))
        return found

    @contextlib.contextmanager
    def _lock_file(self, name: str) -> Iterator[int]:
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _taken(descriptor: int, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _file_size(entry: os.DirEntry[str]) -> int:
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_size
    return 0


def _size_of(folder: str, seen: set[tuple[int, int]]) -> int:
    """Bytes of all files below that were not seen yet; what has several names counts once."""
    total = 0
    for path in (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names):
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            file = (status.st_dev, status.st_ino)
            total += status.st_size if file not in seen else 0
            if status.st_nlink > 1:
                seen.add(file)
    return total
