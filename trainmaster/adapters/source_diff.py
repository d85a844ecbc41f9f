"""What differs between two snapshots of code? A unified diff of each text file; both are unpacked into a folder that goes again."""

from __future__ import annotations

import os
import tempfile
from difflib import unified_diff
from pathlib import Path

from trainmaster.adapters.source_unpack import unpack
from trainmaster.core.compare import ChangeKind, FileChange
from trainmaster.core.job import Code
from trainmaster.errors import Refused
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec import layout

#: A snapshot that holds more is not unpacked for a look.
SNAPSHOT_BYTES_MAX = 1 << 30
#: Of larger files, and of those with more lines, it is only said that they differ: comparing takes the square of the lines.
FILE_BYTES_MAX = 1 << 20
FILE_LINES_MAX = 10_000


def changes_between(store: BlockingStore, one: Code, other: Code) -> list[FileChange]:
    """Files that differ, in the order of their names. Refused: a job ran in place, or its snapshot is gone or too large."""
    for code in (one, other):
        if code.sha256 is None:
            raise Refused("one of the jobs ran in place: there is no snapshot of its code", hint=f"it ran in {code.folder}")
        if code.size_bytes > SNAPSHOT_BYTES_MAX:
            raise Refused(f"a snapshot of {code.size_bytes} bytes is too large to be compared here", hint="pull both: --only code")
    if one.sha256 == other.sha256:
        return []
    with tempfile.TemporaryDirectory(prefix="trainmaster-diff-") as place:
        return compare_folders(unpacked(store, one, Path(place) / "one"), unpacked(store, other, Path(place) / "other"))


def compare_folders(one: Path, other: Path) -> list[FileChange]:
    """Files and links that differ between two folders."""
    left, right = _paths(one), _paths(other)
    found = [_change(path, one / path, other / path) for path in sorted(left | right)]
    return [change for change in found if change is not None]


def unpacked(store: BlockingStore, code: Code, folder: Path) -> Path:
    """The folder, with what the snapshot holds."""
    assert code.sha256 is not None
    archive = folder.with_suffix(".tar.zst")
    if store.get_file(layout.code(code.sha256), archive) is None:
        raise Refused(f"the snapshot {code.sha256[:12]} is no longer in the store", hint="parameters and results are still there")
    unpack(archive, folder, expect_sha256=code.sha256, bytes_max=SNAPSHOT_BYTES_MAX)
    archive.unlink()
    return folder


def _paths(folder: Path) -> set[str]:
    """Every file and link; a link to a folder is a link."""
    found: set[str] = set()
    for root, folders, files in os.walk(folder):
        names = [*files, *(name for name in folders if os.path.islink(os.path.join(root, name)))]
        found.update(os.path.relpath(os.path.join(root, name), folder) for name in names)
    return found


def _change(path: str, one: Path, other: Path) -> FileChange | None:
    left, right = _content(one), _content(other)
    if left == right:
        return None
    kind = ChangeKind.ADDED if left is None else ChangeKind.REMOVED if right is None else ChangeKind.CHANGED
    why_not = _why_no_lines(left or b"") or _why_no_lines(right or b"")
    if why_not:
        return FileChange(path=path, kind=kind, why_no_lines=why_not)
    names = ("/dev/null" if left is None else f"a/{path}", "/dev/null" if right is None else f"b/{path}")
    before, after = ((content or b"").decode().split("\n") for content in (left, right))
    lines = unified_diff(_without_end(before), _without_end(after), *names, lineterm="")
    return FileChange(path=path, kind=kind, lines=tuple(lines))


def _content(path: Path) -> bytes | None:
    """Bytes of a file, the target of a link; None when there is neither. Of a large file the beginning and a hash."""
    if path.is_symlink():
        return b"link to " + os.fsencode(os.readlink(path))
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
        if len(content) <= FILE_BYTES_MAX:
            return content
        file.seek(0)
        import hashlib

        return content + hashlib.file_digest(file, "sha256").digest()


def _why_no_lines(content: bytes) -> str:
    if len(content) > FILE_BYTES_MAX or content.count(b"\n") > FILE_LINES_MAX:
        return "too large to be shown"
    if b"\0" in content:
        return "binary"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "binary"
    return ""


def _without_end(lines: list[str]) -> list[str]:
    """Without the empty line behind the last line break; a last line without one is marked, as diff does."""
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
