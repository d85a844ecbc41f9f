"""What lies in a folder or file of this machine that a job reads in place? Paths, sizes and times; nothing is read or copied."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from trainmaster.core.inputs import InputObject

#: A larger folder is linked all the same; its files beyond are not looked at.
FILES_MAX = 1_000_000


def look_at(path: Path) -> list[InputObject]:
    """Every file, in no order; links are followed, a folder that was seen already is not entered again."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return [_object(path.name, status)]
    found: list[InputObject] = []
    for name, inner in _walk(str(path), "", {(status.st_dev, status.st_ino)}):
        found.append(_object(name, inner))
        if len(found) >= FILES_MAX:
            break
    return found


def why_unusable(path: Path) -> tuple[str, str]:
    """Why a path cannot be read as data, and a hint; empty text: it can."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} does not exist", _nearby(path)
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}", "make it readable"
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return f"{path} is neither a folder nor a file", "name a folder or a file"
    if not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        return f"{path} cannot be read", "make it readable"
    return "", ""


def _walk(folder: str, prefix: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            listed = list(entries)
    except OSError:
        return  # not for us; the script will find out, if it wants to look
    for entry in listed:
        name = f"{prefix}{entry.name}"
        try:
            status = entry.stat()
        except OSError:
            continue  # a link that leads nowhere, or gone since
        if stat.S_ISDIR(status.st_mode):
            identity = (status.st_dev, status.st_ino)
            if identity not in seen:
                seen.add(identity)
                yield from _walk(entry.path, f"{name}/", seen)
        else:
            yield name, status


def _object(name: str, status: os.stat_result) -> InputObject:
    text = os.fsencode(name).decode(errors="backslashreplace")
    return InputObject(path=text, size_bytes=status.st_size, version=str(status.st_mtime_ns))


def _nearby(path: Path) -> str:
    try:
        names = os.listdir(path.parent)
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else "check the path"
