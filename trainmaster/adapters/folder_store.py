"""How does a plain folder keep the promises of an object store?

Own system calls instead of obstore's LocalStore, which does not sync, cannot hold a key that ends in "#1" (its own
staged files are named so), lists in no order, and costs its import: a laptop's store needs none of it.

A value is written to `<root>/.staging/<random>`, synced, and then renamed (put) or hard-linked (put_if_absent) to its
place, so that it is visible whole or not at all, and of racing links one wins. What a crash leaves lies in the staging
folder, never in a listing, and goes when the store is opened a day later.

The staging folder is also how the store knows itself: it is made when the store is opened and never again. A root that
is away (an unmounted disk, a folder moved for a moment, a file in its place) has none, so nothing is read as "unknown
key" and nothing is written beside the real store: both are StoreUnavailable until it is back.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from trainmaster.adapters.folder_files import (
    Guard,
    Progress,
    copy_hashed,
    early_writer,
    guarded,
    opened,
    reader,
    replacing,
    sync_folder,
    write_all,
    writer,
)
from trainmaster.adapters.store_keys import STAGING, in_deletion_order, parse_key
from trainmaster.errors import InvalidConfig, StoreError, StoreFull, StoreRejected, StoreUnavailable, TrainmasterError
from trainmaster.ports.object_store import Entry, StoredFile
from trainmaster.spec.layout import Key

#: A parent folder may be deleted between making it and using it; so often in a row only if something else is wrong.
PUBLISH_TRIES = 100

#: A staged file nobody has written to for this long was left by a crash.
STAGED_S_MAX = 24 * 3600.0

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})
_IMPOSSIBLE = frozenset({errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EINVAL, errno.ELOOP})


def open_folder(path: str, *, create: bool) -> FolderStore:
    """The store in a folder; with `create`, made and found writable, otherwise looked for at each call: it may be away now."""
    root = os.path.abspath(os.path.expanduser(path))
    store = FolderStore(root)
    staging = os.path.join(root, STAGING)
    if create:
        _create(root, staging)
        _sweep_staging(staging)
    return store


class FolderStore:
    """A BlockingStore in a folder. Errors of the caller's own files (what put_file reads, get_file writes) stay OSErrors."""

    #: Small calls answer in about a millisecond, so an event loop may make them itself; large files take time to delete.
    is_instant = True
    deletes_instantly = False

    def __init__(self, root: str) -> None:
        self._root = root
        self._staging = os.path.join(root, STAGING)

    @property
    def url(self) -> str:
        """The folder's absolute path."""
        return self._root

    def get(self, key: Key) -> bytes | None:
        """The value, or None for an unknown key."""
        with self._value(key) as descriptor, self._errors("read", key):
            if descriptor is None:
                return None
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                return file.readall()

    def get_range(self, key: Key, start: int, length: int) -> bytes | None:
        """At most `length` bytes from `start`."""
        if start < 0 or length < 0:
            raise ValueError(f"not a range: {start}, {length}")
        with self._value(key) as descriptor, self._errors("read", key):
            if descriptor is None:
                return None
            length = min(length, max(0, os.fstat(descriptor).st_size - start))
            parts = []
            while length and (part := os.pread(descriptor, length, start)):
                parts.append(part)
                start, length = start + len(part), length - len(part)
            return b"".join(parts)

    def put(self, key: Key, value: bytes) -> None:
        """Store, replacing what was there; whole or not at all, even after a power loss."""
        target = self._path(key)
        with self._errors("write", key), self._staged() as (descriptor, staged):
            write_all(descriptor, value)
            os.fsync(descriptor)
            self._publish(os.replace, staged, target)

    def put_if_absent(self, key: Key, value: bytes) -> bool:
        """Store if nothing is there; durable on return, because claims and commits are made of this."""
        target = self._path(key)
        if os.path.lexists(target):
            return False
        with self._errors("write", key), self._staged() as (descriptor, staged):
            write_all(descriptor, value)
            os.fsync(descriptor)
            try:
                self._publish(os.link, staged, target)
            except FileExistsError:
                # A network file system may have linked it, lost the answer and tried again: then it has two names.
                if os.fstat(descriptor).st_nlink == 1:
                    return False
        self._sync_names(target)
        return True

    def put_file(self, key: Key, path: Path, progress: Progress | None = None) -> StoredFile:
        """Store a file's bytes, hashed on the way; durable on return."""
        target = self._path(key)
        write_errors = functools.partial(self._errors, "write", key)
        with opened(path, os.O_RDONLY) as source, self._staged(write_errors) as (descriptor, staged):
            stored = copy_hashed(reader(source), guarded(early_writer(descriptor), write_errors), progress)
            with write_errors():
                os.fsync(descriptor)
                self._publish(os.replace, staged, target)
        self._sync_names(target)
        return stored

    def move_file(self, key: Key, path: Path) -> None:
        """Give the file the key as its name; if the key is taken, it is only dropped. Not synced: logs need speed."""
        target = self._path(key)
        if not os.path.lexists(path):
            if self.get_range(key, 0, 0) is None:
                raise FileNotFoundError(errno.ENOENT, "nothing to move", os.fspath(path))
            return
        with self._errors("write", key), contextlib.suppress(FileExistsError):
            try:
                self._publish(os.link, os.fspath(path), target)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                self._copy_in(path, target)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def get_file(self, key: Key, path: Path, progress: Progress | None = None) -> StoredFile | None:
        """Write the value to a new file, hashed on the way; it takes its name when it is complete."""
        with self._value(key) as descriptor:
            if descriptor is None:
                return None
            read = guarded(reader(descriptor), functools.partial(self._errors, "read", key))
            with replacing(path) as target:
                return copy_hashed(read, writer(target), progress)

    def list_keys(self, prefix: Key, *, after: Key | None = None) -> Iterator[Entry]:
        """Everything below `prefix`, in ascending order; an empty prefix means the whole store."""
        return self._walk(f"{parse_key(prefix)}/" if prefix else "", after or "")

    def list_folders(self, prefix: Key) -> list[Key]:
        """One look into one folder."""
        below = f"{parse_key(prefix)}/"
        with self._errors("list", prefix), self.opened_root() as root:
            return sorted(Key(below + name.rstrip("/")) for name in _folders(root, below))

    def delete_prefix(self, prefix: Key) -> int:
        """Remove the key, everything below it, and the folders that held it."""
        markers, rest = in_deletion_order(entry.key for entry in self.list_keys(parse_key(prefix)))
        with self._errors("delete", prefix), self.opened_root() as root:
            deleted = _unlink(root, markers)
            for folder in {os.path.dirname(self._path(marker)) for marker in markers if rest}:
                self._sync_names(os.path.join(folder, "_"))
            deleted += _unlink(root, [*rest, prefix])
            _remove_folders(root, prefix)
        return deleted

    @contextlib.contextmanager
    def opened_root(self) -> Iterator[int]:
        """The root, known to be the one that was opened: what is missing below it is really missing."""
        try:
            root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise self._away() from None
        try:
            if not _is_folder(STAGING, root):
                raise self._away()
            yield root
        finally:
            os.close(root)

    def _path(self, key: Key) -> str:
        return f"{self._root}/{parse_key(key)}"

    def _away(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"The store {self._root} is not there now.",
            hint="Mount the disk or put the folder back; it is tried again.",
        )

    @contextlib.contextmanager
    def _value(self, key: Key) -> Iterator[int | None]:
        """The file of a key, or None for an unknown one."""
        path = self._path(key)
        with self._errors("read", key):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                descriptor = self._open_below_root(key)
        try:
            is_value = descriptor >= 0 and stat.S_ISREG(os.fstat(descriptor).st_mode)
            yield descriptor if is_value else None
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _open_below_root(self, key: Key) -> int:
        """Asked a second time, below a root that is surely the store: only now does missing mean unknown (-1)."""
        with self.opened_root() as root:
            try:
                return os.open(key, os.O_RDONLY | os.O_CLOEXEC, dir_fd=root)
            except (FileNotFoundError, NotADirectoryError):
                return -1

    @contextlib.contextmanager
    def _staged(self, errors: Guard = contextlib.nullcontext) -> Iterator[tuple[int, str]]:
        """A new file that nobody sees yet; whatever becomes of it, its staged name goes."""
        path = f"{self._staging}/{os.urandom(8).hex()}"
        with errors():
            try:
                descriptor = os.open(path, _NEW | os.O_CLOEXEC, 0o666)
            except (FileNotFoundError, NotADirectoryError):
                raise self._away() from None
        try:
            yield descriptor, path
        finally:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _publish(self, place: Callable[[str, str], None], staged: str, target: str) -> None:
        """Rename or link into place, making the folders above it where they are missing."""
        made: list[str] = []
        for _ in range(PUBLISH_TRIES):
            try:
                place(staged, target)
            except FileNotFoundError:
                self._make_folder(os.path.dirname(target), made)
            else:
                # Only now: syncing between making a folder and using it gives others time to delete it.
                for folder in dict.fromkeys(made):
                    self._sync_names(folder)
                return
        raise StoreUnavailable(f"The folder of {target} keeps vanishing.")

    def _make_folder(self, path: str, made: list[str]) -> None:
        """Make a folder and those above it, the root excepted. If somebody deletes them again, _publish comes back."""
        if path == self._root or not _is_folder(self._staging):
            raise self._away()
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            try:
                os.mkdir(path)
            except FileNotFoundError:
                self._make_folder(os.path.dirname(path), made)
                os.mkdir(path)
            made.append(path)

    def _copy_in(self, path: Path, target: str) -> None:
        with opened(path, os.O_RDONLY) as source, self._staged() as (descriptor, staged):
            copy_hashed(reader(source), writer(descriptor))
            self._publish(os.link, staged, target)

    def _sync_names(self, path: str) -> None:
        """Make a name durable. The value is visible already, so no failure here may say that it did not happen."""
        try:
            sync_folder(os.path.dirname(path))
        except FileNotFoundError:
            return  # deleted again meanwhile
        except OSError as error:
            # Some file systems cannot sync a folder and say so; there is nothing more to be had from them.
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise StoreUnavailable(f"Cannot make {path} durable: {error.strerror}.") from error

    def _walk(self, below: str, after: str) -> Iterator[Entry]:
        with self._errors("list", below), self.opened_root() as root:
            yield from _entries(root, below, after)

    @contextlib.contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        """The one place where the system's errors become ours."""
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise self._translate(error, f"Cannot {verb} {key} in the store {self._root}") from error

    def _translate(self, error: OSError, what: str) -> StoreError:
        sentence = f"{what}: {error.strerror}."
        if error.errno in _FULL:
            return StoreFull(sentence, hint="Free some space there; it is tried again.")
        if error.errno in _DENIED:
            return StoreRejected(sentence, hint=f"Let this user write to {self._root}, or choose another folder.")
        if not _is_folder(self._staging):
            return self._away()
        if error.errno in _IMPOSSIBLE:
            return StoreRejected(sentence, hint="A folder cannot hold this key: too long, or a part of it is an object.")
        return StoreUnavailable(sentence)


def _entries(root: int, below: str, after: str) -> Iterator[Entry]:
    """The files below a folder in ascending key order; folders that lie before `after` as a whole are not read."""
    try:
        folder = os.open(below or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        with os.scandir(folder) as found:
            # Folders sort with their slash, because that is how their keys go on: "a-b" < "a/b" < "ab".
            names = sorted(_names(found, below, after))
        entries = {name: _entry(folder, below, name) for name in names if not name.endswith("/")}
    finally:
        os.close(folder)
    for name in names:
        if name.endswith("/"):
            yield from _entries(root, below + name, after)
        elif (entry := entries[name]) is not None:
            yield entry


def _folders(root: int, below: str) -> list[str]:
    try:
        folder = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        with os.scandir(folder) as found:
            return [name for name in _names(found, below, "") if name.endswith("/")]
    finally:
        os.close(folder)


def _names(found: Iterator[os.DirEntry[str]], below: str, after: str) -> Iterator[str]:
    for item in found:
        if item.is_dir(follow_symlinks=False):
            folder = f"{item.name}/"
            path = below + folder
            if path != f"{STAGING}/" and (path > after or after.startswith(path)):
                yield folder
        elif below + item.name > after and item.is_file(follow_symlinks=False):
            yield item.name


def _entry(folder: int, below: str, name: str) -> Entry | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None  # deleted meanwhile
    return Entry(key=Key(below + name), size_bytes=status.st_size, modified_at_s=status.st_mtime)


def _unlink(root: int, keys: list[Key]) -> int:
    deleted = 0
    for key in keys:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            os.unlink(key, dir_fd=root)
            deleted += 1
    return deleted


def _remove_folders(root: int, prefix: Key) -> None:
    """Remove what is empty now; a folder that somebody writes into again just stays."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path, _, _, _ in os.fwalk(prefix, topdown=False, dir_fd=root):
            with contextlib.suppress(OSError):
                os.rmdir(path, dir_fd=root)


def _is_folder(path: str, below: int | None = None) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path, dir_fd=below).st_mode)
    except OSError:
        return False


def _create(root: str, staging: str) -> None:
    try:
        os.makedirs(root, exist_ok=True)
        is_new = not _is_folder(staging)
        os.makedirs(staging, exist_ok=True)
        if is_new:
            _try_links(staging)
    except OSError as error:
        raise _refusal(root, error) from error
    if not os.access(staging, os.W_OK | os.X_OK):
        raise _refusal(root, PermissionError(errno.EACCES, "this user may not write there"))


def _try_links(staging: str) -> None:
    """Exactly one winner is made of hard links: say at once where there are none, not at the first claim."""
    first = f"{staging}/{os.urandom(8).hex()}"
    second = f"{first}.link"
    try:
        with opened(first, _NEW):
            os.link(first, second)
    finally:
        for path in (first, second):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _refusal(root: str, error: OSError) -> TrainmasterError:
    sentence = f"Cannot keep a store in {root}: {error.strerror}."
    if error.errno in _FULL:
        return StoreFull(sentence, hint="Free some space there, or choose another folder.")
    if error.errno in _DENIED | _NO_LINK:
        return StoreRejected(
            sentence, hint="Choose a folder on a disk with hard links that this user may write to, or change its owner."
        )
    if error.errno in _IMPOSSIBLE | {errno.EEXIST}:
        return InvalidConfig(sentence, hint="Name a folder; a file is in the way, or the name is too long.")
    return StoreUnavailable(sentence)


def _sweep_staging(staging: str) -> None:
    """Remove what crashes left behind; the file system's own clock decides, for it may be another machine's."""
    with contextlib.suppress(OSError), os.scandir(staging) as found:
        left = [(item.path, item.stat().st_mtime) for item in found]
        if not left:
            return
        probe = f"{staging}/{os.urandom(8).hex()}"
        with opened(probe, _NEW) as descriptor:
            now_s = os.fstat(descriptor).st_mtime
        for path, modified_s in [*left, (probe, float("-inf"))]:
            if now_s - modified_s > STAGED_S_MAX:
                os.unlink(path)
