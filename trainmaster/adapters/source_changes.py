"""Which files of a working folder are new or changed since a moment ago?"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainmaster.adapters.source_secrets import is_cache

#: Size and time of the last change, in nanoseconds, of each file and link; paths are relative and "/"-separated.
FileMarks = dict[str, tuple[int, int]]


def file_marks(folder: Path) -> FileMarks:
    """What is in `folder` now, caches aside. What cannot be read is passed over: a job may leave anything behind."""
    found: FileMarks = {}
    folders = [("", os.fspath(folder))]
    while folders:
        prefix, path = folders.pop()
        try:
            with os.scandir(path) as entries:
                _note(list(entries), prefix, found, folders)
        except OSError:
            continue
    return found


def changed_since(before: FileMarks, folder: Path) -> list[str]:
    """The files and links that are new in `folder`, or not what they were; sorted."""
    return sorted(path for path, mark in file_marks(folder).items() if before.get(path) != mark)


def _note(entries: list[os.DirEntry[str]], prefix: str, found: FileMarks, folders: list[tuple[str, str]]) -> None:
    for entry in entries:
        if is_cache(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            folders.append((f"{prefix}{entry.name}/", entry.path))
            continue
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            found[prefix + entry.name] = (status.st_size, status.st_mtime_ns)
