"""Where do built environments lie on a machine, who uses them, and when may one go?

envs/<key>/environment.json     written last: from here on the environment is there; names the folder it lies in
envs/<key>/<letters>/           one build; a build that was killed leaves a folder that nobody names, and the next one removes it
envs/<key>/used                 its time is when a job last used it
envs/<key>/in-use               lock: shared by every runner whose script runs in it, alone for whoever removes it
envs/<key>/building             lock: one at a time builds it, or removes it
envs/<key>/lock.txt             what it was installed from
envs/<key>/stored-<hash>        the object store with this address holds the lock, too
envs/asked/<hash>.json          what was asked for → key, so that asking again costs nothing
envs/asked/<hash>.txt           a list of requirements, as uv reads it
envs/asked/<hash>.lock          lock: one at a time resolves and builds what was asked for
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from trainmaster.adapters import file_locks
from trainmaster.adapters.process_folder import write_whole

_FILE, _USED, _IN_USE, _BUILDING = "environment.json", "used", "in-use", "building"
_PAUSE_S = 0.002


class PythonMark(Struct, frozen=True, kw_only=True):
    """An interpreter as it was seen; one that was replaced looks different."""

    path: str
    size_bytes: int
    modified_ns: int


class EnvironmentFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """environment.json: one environment that is there."""

    v: int = 1
    key: str
    folder: str
    #: where it was built: its programs know their place by heart
    path: str
    python: str
    platform: str = ""
    #: the interpreter it was made from; None: it brings its own
    base: PythonMark | None = None
    packages: int = 0
    size_bytes: int = 0


class AskedFile(Struct, frozen=True, kw_only=True):
    """asked/<hash>.json: which environment answers a question."""

    key: str


class Held(Struct, frozen=True, kw_only=True):
    """An environment that nobody removes before `let_go`, or the end of this process."""

    file: EnvironmentFile
    folder: Path
    descriptor: int
    was_there: bool

    def let_go(self) -> None:
        """It is not used any more."""
        os.close(self.descriptor)

    def stored_mark(self, url: str) -> Path:
        """A file that is there once the object store with this address holds the lock."""
        return self.folder.parent / f"stored-{hashlib.sha256(url.encode()).hexdigest()[:16]}"


class Shelved(Struct, frozen=True, kw_only=True):
    """An environment as `envs list` shows it."""

    key: str
    python: str
    packages: int
    size_bytes: int
    used_at_s: float
    in_use: bool
    #: why no job can use it; empty: it is whole
    broken: str = ""


class Shelf:
    """The environments of one machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, asked: str) -> Held | None:
        """What answers this question already; None: it has to be built."""
        key = self._answer(asked)
        return None if key is None else self.take(key, was_there=True)

    def take(self, key: str, *, was_there: bool) -> Held | None:
        """Hold an environment; None if it is not there, or its interpreter is gone."""
        descriptor = None
        while descriptor is None:
            if self.read(key) is None:
                return None
            descriptor = file_locks.try_hold(self.folder / key / _IN_USE, shared=True)
            if descriptor is None:
                time.sleep(_PAUSE_S)  # somebody only looks, or removes it: then its name goes first
        file = self.read(key)
        if file is None or why_broken(self.folder / key, file):
            os.close(descriptor)
            return None
        (self.folder / key / _USED).touch()
        return Held(file=file, folder=self.folder / key / file.folder, descriptor=descriptor, was_there=was_there)

    def read(self, key: str) -> EnvironmentFile | None:
        """What is known of an environment; None where there is none."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return msgspec.json.decode((self.folder / key / _FILE).read_bytes(), type=EnvironmentFile)
        return None

    def lock_of(self, key: str) -> bytes | None:
        """What an environment that is there was installed from."""
        if self.read(key) is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / key / "lock.txt").read_bytes()
        return None

    def write(self, file: EnvironmentFile) -> None:
        """From now on it is there."""
        write_whole(self.folder / file.key / _FILE, msgspec.json.encode(file))

    def answer(self, asked: str, key: str) -> None:
        """Remember which environment answers a question."""
        write_whole(self.folder / "asked" / f"{asked}.json", msgspec.json.encode(AskedFile(key=key)))

    def _answer(self, asked: str) -> str | None:
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode((self.folder / "asked" / f"{asked}.json").read_bytes(), type=AskedFile).key
        return None

    @contextlib.contextmanager
    def asking(self, asked: str, wait: Callable[[], None]) -> Iterator[None]:
        """One at a time; whoever comes second finds what the first has built, or takes over if it was killed."""
        with file_locks.holding(self.folder / "asked" / f"{asked}.lock", wait=wait):
            yield

    @contextlib.contextmanager
    def building(self, key: str, wait: Callable[[], None]) -> Iterator[Path]:
        """A new folder to build in. What was left unfinished goes, unless a job still runs in what stood there before."""
        with file_locks.holding(self.folder / key / _BUILDING, wait=wait):
            free = file_locks.try_hold(self.folder / key / _IN_USE, shared=False)
            if free is not None:
                self._clear(key)
                os.close(free)
            place = self.folder / key / secrets.token_hex(4)
            place.mkdir()
            try:
                yield place
            except BaseException:
                # Whoever waits for the lock finds that its file is gone, and begins anew.
                shutil.rmtree(place if self.read(key) is not None else place.parent, ignore_errors=True)
                raise

    def _clear(self, key: str) -> None:
        """The name first: nobody may find what is half gone."""
        (self.folder / key / _FILE).unlink(missing_ok=True)
        for entry in list(os.scandir(self.folder / key)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)

    def listing(self) -> list[Shelved]:
        """Every environment, the one used last first."""
        found = []
        for key in self._keys():
            file = self.read(key)
            place = self.folder / key
            free = file_locks.try_hold(place / _IN_USE, shared=False)
            if free is not None:
                os.close(free)
            if file is None and self._is_being_built(key):
                continue
            used_at_s = _modified_s(place / _USED) or _modified_s(place)
            broken = "its build was interrupted" if file is None else why_broken(place, file)
            shown = file or EnvironmentFile(key=key, folder="", path="", python="")
            found.append(
                Shelved(
                    key=key,
                    python=shown.python,
                    packages=shown.packages,
                    size_bytes=shown.size_bytes,
                    used_at_s=used_at_s,
                    in_use=free is None,
                    broken=broken,
                )
            )
        return sorted(found, key=lambda one: -one.used_at_s)

    def _is_being_built(self, key: str) -> bool:
        free = file_locks.try_hold(self.folder / key / _BUILDING, shared=False)
        if free is not None:
            os.close(free)
        return free is None

    def _keys(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(self.folder) if entry.is_dir() and entry.name != "asked")
        return []

    def remove(self, key: str) -> bool:
        """Remove an environment that nobody uses; False if somebody does."""
        place = self.folder / key
        locks = [file_locks.try_hold(place / name, shared=False) for name in (_BUILDING, _IN_USE)]
        try:
            if None in locks:
                return False
            file_locks.clear(place, first=_FILE, locks=(_IN_USE, _BUILDING))
        finally:
            for descriptor in locks:
                if descriptor is not None:
                    os.close(descriptor)
        self._forget_answers()
        return True

    def _forget_answers(self) -> None:
        """Answers that name what is not there any more; a question that is being asked keeps its lock."""
        for file in (self.folder / "asked").glob("*.json"):
            key = self._answer(file.stem)
            if key is None or self.read(key) is None:
                descriptor = file_locks.try_hold(file.with_suffix(".lock"), shared=False)
                if descriptor is not None:
                    file.unlink(missing_ok=True)
                    for ending in (".txt", ".lock"):
                        file.with_suffix(ending).unlink(missing_ok=True)
                    os.close(descriptor)


def mark_of(python: str) -> PythonMark | None:
    """An interpreter as it is now; None if it is not there."""
    with contextlib.suppress(OSError):
        path = os.path.realpath(python)
        seen = os.stat(path)
        return PythonMark(path=path, size_bytes=seen.st_size, modified_ns=seen.st_mtime_ns)
    return None


def why_broken(place: Path, file: EnvironmentFile) -> str:
    """Why no job can use it, in words; empty when one can."""
    folder = place / file.folder
    if not folder.is_dir():
        return "its folder is not there any more"
    if str(folder) != file.path:
        return f"it was built in {file.path}, and moved"
    if file.base is None:
        return ""
    if not os.path.exists(folder / "bin" / "python"):
        return f"its Python, {file.base.path}, is not there any more"
    return "" if mark_of(file.base.path) == file.base else f"its Python, {file.base.path}, was replaced"


def _modified_s(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
