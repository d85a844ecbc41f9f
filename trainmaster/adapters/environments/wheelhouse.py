"""How do wheels get to a machine without an index? Staged in the store when the job is submitted, fetched once by each machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from trainmaster.adapters import file_locks
from trainmaster.adapters.environments.trouble import EnvironmentTrouble
from trainmaster.errors import InvalidSpec
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec import layout

#: written last, its time is when they were last used; the lock is shared by every build that uses them
WHOLE, LOCK = "whole", "lock"
_KINDS = (".whl", ".tar.gz", ".zip")
_PATH = "environment.wheels"


def wheel_names(folder: Path) -> list[str]:
    """The wheels and source archives of a folder; InvalidSpec when there are none."""
    try:
        files = sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name.endswith(_KINDS))
    except OSError as error:
        raise InvalidSpec(_PATH, f"{folder} is not a folder", hint="name the folder your wheels lie in") from error
    if not files:
        raise InvalidSpec(_PATH, f"{folder} holds no wheels", hint="fill it: pip download -d wheels -r requirements.txt")
    return files


def stage_wheels(folder: Path, store: BlockingStore, progress: Callable[[str, int, int], None]) -> str:
    """Keep the wheels of a folder in the store, each of them once; the hash of the whole."""
    files = wheel_names(folder)
    total, done = sum((folder / name).stat().st_size for name in files), 0
    listing = {}
    for name in files:
        listing[name] = _sha256(folder / name)
        key = layout.wheel(listing[name], name)
        if store.get_range(key, 0, 1) is None:
            store.put_file(key, folder / name)
        done += (folder / name).stat().st_size
        progress("staging wheels", done, total)
    text = msgspec.json.encode(listing)
    sha256 = hashlib.sha256(text).hexdigest()
    store.put(layout.wheelhouse(sha256), text)
    return sha256


@contextlib.contextmanager
def wheels(sha256: str, store: BlockingStore, shared: Path, wait: Callable[[], None]) -> Iterator[Path]:
    """A folder with these wheels, which nobody removes meanwhile."""
    folder = shared / sha256
    held = file_locks.hold(folder / LOCK, shared=True, wait=wait)
    while not (folder / WHOLE).exists():
        os.close(held)
        with file_locks.holding(folder / LOCK, wait=wait):
            _fetch_all(sha256, store, folder, wait)
        held = file_locks.hold(folder / LOCK, shared=True, wait=wait)
    try:
        (folder / WHOLE).touch()
        yield folder
    finally:
        os.close(held)


def used_at_s(folder: Path) -> float:
    """When wheels were last used; of those that are not all there, when one last came."""
    for path in (folder / WHOLE, folder):
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime
    return 0.0


def _fetch_all(sha256: str, store: BlockingStore, folder: Path, wait: Callable[[], None]) -> None:
    """Whoever was killed while it fetched leaves files that are fetched again."""
    if (folder / WHOLE).exists():
        return
    text = store.get(layout.wheelhouse(sha256))
    if text is None:
        raise EnvironmentTrouble(f"the wheel folder {sha256[:12]} is not in the store any more")
    for name, wanted in msgspec.json.decode(text, type=dict[str, str]).items():
        wait()
        _fetch(store, name, wanted, folder)
    (folder / WHOLE).touch()


def _fetch(store: BlockingStore, name: str, wanted: str, folder: Path) -> None:
    if os.path.basename(name) != name:
        raise EnvironmentTrouble(f"the wheel folder names {name}, which is no file name")
    fresh = folder / f"{name}.new"
    fresh.unlink(missing_ok=True)
    if store.get_file(layout.wheel(wanted, name), fresh) is None:
        raise EnvironmentTrouble(f"the wheel {name} is not in the store any more")
    if _sha256(fresh) != wanted:
        fresh.unlink()
        raise EnvironmentTrouble(f"the wheel {name} has other bytes than were staged")
    os.replace(fresh, folder / name)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
