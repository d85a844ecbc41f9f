"""How do wheels get to a machine without an index? Staged in the store when the job is submitted, fetched once by each machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from trainmaster.adapters import file_locks
from trainmaster.adapters.environments.trouble import EnvironmentTrouble
from trainmaster.errors import InvalidSpec
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec import layout

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


def fetch_wheels(sha256: str, store: BlockingStore, shared: Path, wait: Callable[[], None]) -> Path:
    """A folder with these wheels; whoever was killed while it fetched leaves files that are fetched again."""
    folder = shared / sha256
    done = folder / "whole"
    if done.exists():
        return folder
    with file_locks.holding(folder / "lock", wait=wait):
        text = store.get(layout.wheelhouse(sha256))
        if text is None:
            raise EnvironmentTrouble(f"the wheel folder {sha256[:12]} is not in the store any more")
        for name, wanted in msgspec.json.decode(text, type=dict[str, str]).items():
            wait()
            _fetch(store, name, wanted, folder)
        done.touch()
    return folder


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
