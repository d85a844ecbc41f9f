"""Where do fetched data lie, so that the next job finds them? One file per content, linked into each job's own folder.

    <shared>/inputs/ab/abcd…        whole files, read-only, named after address, version and size
    <shared>/inputs/ab/abcd….part   being written; who writes holds a lock that ends with the process

A file gets its name by one rename when it is whole (inside a folder: between two, the kernel renames one at a time), so whoever is
killed leaves at most a part; the next one begins it anew.

Jobs get hard links: what a job has linked stays, whatever happens to the cache, and is not removed from it while it is linked. A
script may change a file through its link (root may write to what is read-only); the time of the last change is set when a file is
kept, so that the next use finds out, and fetches it anew.

Which file was used last is its access time, set at each use. After a power cut a file may be shorter than it was; that is found
by its size.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from trainmaster.adapters import file_locks
from trainmaster.adapters.inputs.source import SourceObject

#: Files whose last use is noted were used not much later than that.
_USE_S = 60.0
_PART = ".part"
_FULL = {errno.ENOSPC, errno.EDQUOT}
#: What stands for a time nobody knows: one that no writer of today sets.
_NO_TIME_S = 315_532_800.0


class CacheFull(OSError):
    """The disk is full, and nothing that nobody uses is left in the cache to make room."""

    def __init__(self, number: int, sentence: str) -> None:
        super().__init__(number, sentence)
        self.sentence = sentence


class Taken(Enum):
    """What came of a try to fetch."""

    FETCHED = "fetched"
    #: it was there
    FOUND = "found"
    #: somebody else is fetching it now
    BUSY = "busy"


class CacheSize(NamedTuple):
    """How much the cache holds."""

    files: int
    size_bytes: int


class _Kept(NamedTuple):
    used_ns: int
    path: str
    size_bytes: int
    is_linked: bool


class InputCache:
    """The cache in one folder; any number of processes and threads may use it at once."""

    def __init__(self, folder: Path, bytes_max: int, now_s: Callable[[], float]) -> None:
        self.folder, self._bytes_max, self._now_s = folder, bytes_max, now_s
        self._root = str(folder)
        #: paths of files that somebody had changed in the cache
        self.damaged: list[str] = []
        os.makedirs(self._root, exist_ok=True, mode=0o700)

    def link(self, found: SourceObject, target: str) -> bool:
        """Link a kept file to `target`; False when it is not here, or not what it was."""
        kept = self._path(found)
        try:
            os.link(kept, target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EMLINK, errno.EPERM}:
                raise
            return self._copied(kept, found, target)
        status = os.stat(target)
        if not _is_whole(status, found):
            self.damaged.append(found.path)
            for path in (target, kept):
                _unlink(path)
            return False
        self._note_use(kept, status)
        return True

    def fetch(self, found: SourceObject, target: str, write: Callable[[int], None]) -> Taken:
        """Link the file to `target`; `write` brings the bytes, unless they are here by now, or somebody else brings them."""
        kept = self._path(found)
        part = f"{kept}{_PART}"
        with _locked(part) as descriptor:
            if descriptor is None:
                return Taken.BUSY
            if self.link(found, target):
                _unlink(part)  # ours alone: nobody else writes to what is locked
                return Taken.FOUND
            try:
                self._fill(found, part, descriptor, write)
                _link_or_copy(part, target)  # before it can be found in the cache, and removed from it
                os.replace(part, kept)
                os.fchmod(descriptor, 0o444)  # last: a part that nobody may write to could not be begun anew
            except BaseException:
                _unlink(part)
                raise
        return Taken.FETCHED

    def _fill(self, found: SourceObject, part: str, descriptor: int, write: Callable[[int], None]) -> None:
        for is_last in (False, True):
            if os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
            try:
                write(descriptor)
                break
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                if is_last or not self.free(found.size_bytes):
                    raise self._full(error, found.size_bytes) from error
        os.utime(part, ns=(int(self._now_s() * 1e9), _time_ns(found)))

    def _full(self, error: OSError, needed: int) -> CacheFull:
        free = shutil.disk_usage(self.folder).free
        sentence = (
            f"the disk of {self.folder} is full: {needed / 1e6:.1f} MB are to be fetched, {free / 1e6:.1f} MB are free, and "
            "nothing in the cache is unused; free some space, or move TRAINMASTER_HOME to a larger disk"
        )
        return CacheFull(error.errno or errno.ENOSPC, sentence)

    def make_room(self, incoming: int) -> None:
        """Keep the bound, with `incoming` bytes to come; and have room on the disk for them, or say that there is none."""
        kept = _look(self._root)
        self._evict(kept, sum(one.size_bytes for one in kept) + incoming - self._bytes_max)
        self._drop_abandoned()
        missing = incoming - shutil.disk_usage(self.folder).free
        if missing > 0 and self._evict(_look(self._root), missing) < missing:
            raise self._full(OSError(errno.ENOSPC, ""), incoming)

    def free(self, wanted: int) -> bool:
        """Remove what was not used for longest and is not in use, until so many bytes are free; whether any went."""
        return self._evict(_look(self._root), max(1, wanted)) > 0

    def _evict(self, kept: list[_Kept], wanted: int) -> int:
        """Remove at least so many bytes, the least recently used first, nothing that a job has linked; how many went."""
        gone = 0
        for one in sorted(one for one in kept if not one.is_linked):
            if gone >= wanted:
                break
            _unlink(one.path)
            gone += one.size_bytes
        return gone

    def _drop_abandoned(self) -> None:
        """Parts whose writer was killed and whom nobody has asked for since."""
        parts = [entry.path for entry in _files(self._root) if entry.name.endswith(_PART)]
        for part in parts:
            with _locked(part, create=False) as descriptor:
                if descriptor is not None:
                    _unlink(part)

    def _copied(self, kept: str, found: SourceObject, target: str) -> bool:
        """Where links cannot be made. Whole or not there: the part of a copy lies beside its target."""
        try:
            shutil.copy2(kept, f"{target}.part")
        except FileNotFoundError:
            return False
        is_whole = _is_whole(os.stat(f"{target}.part"), found)
        if is_whole:
            os.replace(f"{target}.part", target)
            return True
        self.damaged.append(found.path)
        _unlink(f"{target}.part")
        _unlink(kept)
        return False

    def _note_use(self, kept: str, status: os.stat_result) -> None:
        now_s = self._now_s()
        if abs(now_s - status.st_atime) > _USE_S:
            with contextlib.suppress(FileNotFoundError):
                os.utime(kept, ns=(int(now_s * 1e9), status.st_mtime_ns))

    def _path(self, found: SourceObject) -> str:
        return f"{self._root}/{found.name[:2]}/{found.name}"


def usage(folder: Path) -> CacheSize:
    """How much a cache holds; what running jobs have linked is counted too. Nothing where there is none."""
    kept = _look(str(folder))
    return CacheSize(len(kept), sum(one.size_bytes for one in kept))


def _look(root: str) -> list[_Kept]:
    found = []
    for entry in _files(root):
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if not entry.name.endswith(_PART):
                found.append(_Kept(status.st_atime_ns, entry.path, status.st_size, status.st_nlink > 1))
    return found


def _files(root: str) -> Iterator[os.DirEntry[str]]:
    """Everything in the cache, whole or not."""
    return (entry for folder in _entries(root) for entry in _entries(folder.path))


def _is_whole(status: os.stat_result, found: SourceObject) -> bool:
    return status.st_size == found.size_bytes and status.st_mtime_ns == _time_ns(found)


def _time_ns(found: SourceObject) -> int:
    return int(found.modified_s or _NO_TIME_S) * 1_000_000_000


def _link_or_copy(part: str, target: str) -> None:
    try:
        os.link(part, target)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EMLINK, errno.EPERM}:
            raise
        shutil.copy2(part, target)


@contextlib.contextmanager
def _locked(path: str, *, create: bool = True) -> Iterator[int | None]:
    """A descriptor of the file at `path`, locked; None: somebody else holds it, or it is not there."""
    descriptor = file_locks.try_hold(path, shared=False, create=create)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
