"""What lies in the checkpoint folder, and does it lie still? A fingerprint says so without reading a byte."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct


class EntryPrint(Struct, frozen=True):
    """Everything about one file that changes when it is written, renamed or replaced."""

    kind: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int
    link: str = ""


Fingerprint = dict[str, EntryPrint]


def fingerprint(folder: Path) -> Fingerprint:
    """What lies in the folder now: relative path → what was seen. Files that vanish while we look are not there."""
    found: Fingerprint = {}
    for path, entry in _walk(os.fspath(folder), ""):
        if not is_utf8(path):
            continue
        try:
            info = entry.stat(follow_symlinks=False)
            kind = stat.S_IFMT(info.st_mode)
            if kind == stat.S_IFREG:
                found[path] = EntryPrint(
                    "file", info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode & 0o777
                )
            elif kind == stat.S_IFLNK and is_utf8(os.readlink(entry.path)):
                found[path] = EntryPrint("link", 0, info.st_mtime_ns, 0, info.st_ino, 0o777, os.readlink(entry.path))
            elif kind == stat.S_IFDIR:
                found[path] = EntryPrint("folder", 0, 0, 0, info.st_ino, info.st_mode & 0o777)
        except OSError:
            continue
    return found


def touched_s(folder: Path) -> float:
    """When anything in the folder was last written, renamed or removed, as the file system stamped it; in seconds since 1970.

    A removal shows in the folder it was made in, so folders count as well.
    """
    try:
        entries = [entry.stat(follow_symlinks=False).st_ctime for _, entry in _walk(os.fspath(folder), "")]
        return max([os.stat(folder).st_ctime, *entries])
    except OSError:
        return math.inf  # it changes under our eyes


def left_out(folder: Path) -> list[str]:
    """What lies in the folder and cannot be kept: names that are not UTF-8, pipes, sockets, devices; as text for people."""
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    found: list[str] = []
    for path, entry in _walk(os.fspath(folder), ""):
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if not is_utf8(path) or not any(is_kind(mode) for is_kind in kinds):
            found.append(as_text(path))
    return found


def is_utf8(path: str) -> bool:
    """Whether a name is text; Linux allows any bytes, an object store's keys do not."""
    return as_text(path) == path


def as_text(path: str) -> str:
    """A name for people, whatever its bytes."""
    return os.fsencode(path).decode(errors="backslashreplace")


def files_of(print_: Fingerprint) -> list[str]:
    """Regular files, in order."""
    return sorted(path for path, seen in print_.items() if seen.kind == "file")


def has_work(print_: Fingerprint) -> bool:
    """Whether there is anything worth committing."""
    return any(seen.kind != "folder" for seen in print_.values())


def changed(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Files that are new or different, most recently written last."""
    paths = [path for path in files_of(after) if before.get(path) != after[path]]
    return sorted(paths, key=lambda path: after[path].mtime_ns)


_STEP_IN_NAME = re.compile(r"(?:step|iter|iteration|epoch|ckpt|checkpoint|global_step)s?[-_=.]?(\d{1,12})(?!\d)", re.IGNORECASE)


def step_in_name(path: str) -> int | None:
    """The step a file or its folder is named after: ckpt_120.pt, step-120/model.bin, epoch=3.ckpt."""
    for part in reversed(path.split("/")):
        numbers = _STEP_IN_NAME.findall(part)
        if numbers:
            return int(numbers[-1])
    return None


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        path = f"{prefix}{entry.name}"
        yield path, entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{path}/")
