"""How do S3, GCS, Azure and a store in memory keep the promises of an object store? All through obstore.

S3 is tested against a real server (SeaweedFS), Azure against Azurite; GCS has no faithful emulator and is untested.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import obstore
from blake3 import blake3
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from trainmaster.adapters.bucket_errors import is_beyond_end, is_undecided, is_unknown_key, translate
from trainmaster.adapters.bucket_names import start_after, to_key, to_name
from trainmaster.adapters.folder_files import Progress, Read, copy_hashed, opened, replacing, writer
from trainmaster.adapters.store_keys import in_deletion_order, parse_key
from trainmaster.errors import StoreUnavailable
from trainmaster.ports.object_store import Entry, StoredFile
from trainmaster.spec.layout import Key

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore as ObstoreStore

Client: TypeAlias = "ObstoreStore"

PART_BYTES = 8 << 20
#: S3 takes 10,000 parts; a file of more than 70 GB gets larger ones.
PARTS_MAX = 9_000
PARTS_AT_ONCE = 4
#: Larger files are moved in parts, smaller ones in one request, which can be made to lose against an existing chunk.
WHOLE_BYTES_MAX = 64 << 20
CREATE_TRIES = 5
DELETE_BATCH = 1_000
LIST_PAGE = 1_000
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Clients:
    """Three obstore clients for one bucket; they differ in patience only."""

    #: Small requests: give up soon, retry until then.
    calls: Client
    #: Parts of large values: a slow line needs time.
    transfers: Client
    #: Never retries. If the answer to a create is lost, a retry would lose against ourselves and call it somebody else.
    creates: Client


class BucketStore:
    """A BlockingStore over obstore. Errors of the caller's own files stay OSErrors."""

    def __init__(self, url: str, clients: Clients, *, is_instant: bool) -> None:
        self._url = url
        self._clients = clients
        #: Whether an event loop may call it directly (memory), or has to use a thread.
        self.is_instant = is_instant
        self.deletes_instantly = is_instant

    @property
    def url(self) -> str:
        """The bucket's address."""
        return self._url

    def get(self, key: Key) -> bytes | None:
        """The value, or None for an unknown key."""
        found = self._first_part(key, 0, PART_BYTES)
        if found is None:
            return None
        meta, first = found
        if len(first) == meta["size"]:
            return first
        return b"".join([first, *self._parts(key, meta, len(first), meta["size"])])

    def get_range(self, key: Key, start: int, length: int) -> bytes | None:
        """At most `length` bytes from `start`."""
        if start < 0 or length < 0:
            raise ValueError(f"not a range: {start}, {length}")
        # An empty range is no range to a server: ask for one byte to learn whether the key exists.
        found = self._first_part(key, start, min(max(length, 1), PART_BYTES))
        if found is None:
            return None
        meta, first = found
        end = min(start + length, meta["size"])
        return b"".join([first, *self._parts(key, meta, start + len(first), end)])[:length]

    def put(self, key: Key, value: bytes) -> None:
        """Store, replacing what was there."""
        name = to_name(parse_key(key))
        client = self._clients.calls if len(value) <= PART_BYTES else self._clients.transfers
        with self._errors("write", key):
            obstore.put(client, name, value, use_multipart=False)

    def put_if_absent(self, key: Key, value: bytes) -> bool:
        """Store if nothing is there."""
        name = to_name(parse_key(key))
        with self._errors("write", key):
            for _ in range(CREATE_TRIES):
                try:
                    obstore.put(self._clients.creates, name, value, mode="create", use_multipart=False)
                except (AlreadyExistsError, PreconditionError) as error:
                    if not is_undecided(error):
                        return False
                else:
                    return True
        raise StoreUnavailable(f"Cannot write {key} in {self._url}: others are writing it at the same time.")

    def put_file(self, key: Key, path: Path, progress: Progress | None = None) -> StoredFile:
        """Store a file's bytes in parts, hashed on the way."""
        name = to_name(parse_key(key))
        with opened(path, os.O_RDONLY) as descriptor:
            part_bytes = max(PART_BYTES, -(-os.fstat(descriptor).st_size // PARTS_MAX))
            source = _Source(descriptor, part_bytes, progress)
            first = source.read()
            second = source.read()
            with self._errors("write", key, source):
                if second:
                    self._put_parts(name, source.parts(first, second), part_bytes)
                else:
                    obstore.put(self._clients.transfers, name, first, use_multipart=False)
        return source.stored()

    def move_file(self, key: Key, path: Path) -> None:
        """Store a file and drop it; if the key is taken, the file is only dropped."""
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            if self.get_range(key, 0, 0) is None:
                raise
            return
        if size <= WHOLE_BYTES_MAX:
            self.put_if_absent(key, path.read_bytes())
        elif self.get_range(key, 0, 0) is None:
            self.put_file(key, path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def get_file(self, key: Key, path: Path, progress: Progress | None = None) -> StoredFile | None:
        """Write the value to a new file, part by part, hashed on the way."""
        found = self._first_part(key, 0, PART_BYTES)
        if found is None:
            return None
        meta, first = found
        parts = self._parts(key, meta, len(first), meta["size"])
        with replacing(path) as target:
            return copy_hashed(_part_reader(first, parts), writer(target), progress)

    def list_keys(self, prefix: Key, *, after: Key | None = None) -> Iterator[Entry]:
        """Everything below `prefix`, in ascending order; an empty prefix means the whole store."""
        if prefix:
            parse_key(prefix)
        return self._listed(prefix, after or Key(""))

    def list_folders(self, prefix: Key) -> list[Key]:
        """One request for a thousand of them, however much they hold."""
        with self._errors("list", prefix):
            found = obstore.list_with_delimiter(self._clients.calls, to_name(parse_key(prefix)))
        return sorted(to_key(name.rstrip("/")) for name in found["common_prefixes"])

    def delete_prefix(self, prefix: Key) -> int:
        """Remove the key and everything below it."""
        markers, rest = in_deletion_order(entry.key for entry in self.list_keys(prefix))
        own = [] if self.get_range(prefix, 0, 0) is None else [prefix]
        with self._errors("delete", prefix):
            # Two requests, because within one the server may take any order.
            for keys in (markers, [*rest, *own]):
                for start in range(0, len(keys), DELETE_BATCH):
                    self._delete([to_name(key) for key in keys[start : start + DELETE_BATCH]])
        return len(markers) + len(rest) + len(own)

    def _first_part(self, key: Key, start: int, length: int) -> tuple[ObjectMeta, bytes] | None:
        """What the store says of a key, and its bytes from `start`; None for an unknown key."""
        name = to_name(parse_key(key))
        with self._errors("read", key):
            try:
                return self._read(self._clients.calls, name, {"range": (start, start + length)})
            except FileNotFoundError as error:
                if is_unknown_key(error):
                    return None
                raise
            except BaseError as error:
                if is_beyond_end(error):
                    return _nothing_from(start), b""
                raise

    def _parts(self, key: Key, meta: ObjectMeta, start: int, end: int) -> Iterator[bytes]:
        """The rest of a value; asked for by its version, so that a value replaced meanwhile is an error and not a mixture."""
        name = to_name(key)
        for begin in range(start, end, PART_BYTES):
            options: GetOptions = {"range": (begin, min(begin + PART_BYTES, end))}
            if meta["e_tag"]:
                options["if_match"] = meta["e_tag"]
            with self._errors("read", key):
                _, part = self._read(self._clients.transfers, name, options)
            yield part

    def _read(self, client: Client, name: str, options: GetOptions) -> tuple[ObjectMeta, bytes]:
        result = obstore.get(client, name, options=options)
        return result.meta, bytes(result.bytes())

    def _put_parts(self, name: str, parts: Iterator[bytes], part_bytes: int) -> None:
        obstore.put(
            self._clients.transfers,
            name,
            parts,
            use_multipart=True,
            chunk_size=part_bytes,
            max_concurrency=PARTS_AT_ONCE,
        )

    def _listed(self, prefix: Key, after: Key) -> Iterator[Entry]:
        name = to_name(prefix) or None
        offset = start_after(prefix, after)
        found: list[Entry] = []
        with self._errors("list", prefix):
            for page in obstore.list(self._clients.calls, name, offset=offset, chunk_size=LIST_PAGE):
                found.extend(_entry(meta) for meta in page)
        # Sorted here, because servers with folders sort by part and memory does as it likes.
        yield from sorted((entry for entry in found if entry.key > after), key=lambda entry: entry.key)

    def _delete(self, names: list[str]) -> None:
        try:
            obstore.delete(self._clients.calls, names)
        except FileNotFoundError as error:
            # Azure minds a name that somebody else has deleted meanwhile; then each by itself.
            if not is_unknown_key(error):
                raise
            for name in names if len(names) > 1 else []:
                self._delete([name])

    @contextlib.contextmanager
    def _errors(self, verb: str, key: str, source: _Source | None = None) -> Iterator[None]:
        """The one place where obstore's errors become ours; an error of the caller's file goes to the caller as it is."""
        try:
            yield
        except (BaseError, OSError) as error:
            if source is not None and source.error is not None:
                raise source.error from None
            # Not chained: the foreign text may hold signed addresses.
            raise translate(error, f"Cannot {verb} {key} in {self._url}") from None


class _Source:
    """A file that is read once, part by part, and hashed on the way."""

    def __init__(self, descriptor: int, part_bytes: int, progress: Progress | None) -> None:
        self._descriptor = descriptor
        self._part_bytes = part_bytes
        self._progress = progress
        self._hasher = blake3(max_threads=1)
        self._size = 0
        self._unsent: deque[int] = deque()
        self.error: OSError | None = None

    def read(self) -> bytes:
        """The next part; only the last may be shorter. A new buffer each time, for the last ones are still on their way."""
        pieces: list[bytes] = []
        missing = self._part_bytes
        while missing and (piece := os.read(self._descriptor, missing)):
            pieces.append(piece)
            missing -= len(piece)
        part = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._hasher.update(part)
        self._size += len(part)
        if part:
            self._unsent.append(len(part))
            self._tell_sent(PARTS_AT_ONCE + 1)
        return part

    def _tell_sent(self, unsent: int) -> None:
        """Progress is what was sent, not what was read: of the parts read, so many may still be on their way."""
        while len(self._unsent) > unsent:
            size = self._unsent.popleft()
            if self._progress is not None:
                self._progress(size)

    def parts(self, *already_read: bytes) -> Iterator[bytes]:
        """All parts. obstore hands an error raised in here through; it is kept to be told from the store's own."""
        yield from already_read
        try:
            while part := self.read():
                yield part
        except OSError as error:
            self.error = error
            raise

    def stored(self) -> StoredFile:
        """What was read, and is sent by now."""
        self._tell_sent(0)
        return StoredFile(size_bytes=self._size, blake3=self._hasher.hexdigest())


def _part_reader(first: bytes, parts: Iterator[bytes]) -> Read:
    """Parts of any size as a file to read from."""
    rest = memoryview(first)

    def read(buffer: memoryview) -> int:
        nonlocal rest
        if not rest:
            rest = memoryview(next(parts, b""))
        count = min(len(rest), len(buffer))
        buffer[:count] = rest[:count]
        rest = rest[count:]
        return count

    return read


def _entry(meta: ObjectMeta) -> Entry:
    return Entry(key=to_key(meta["path"]), size_bytes=meta["size"], modified_at_s=meta["last_modified"].timestamp())


def _nothing_from(start: int) -> ObjectMeta:
    """What is known of a value that ends before `start`: enough to answer with nothing."""
    return {"path": "", "last_modified": EPOCH, "size": start, "e_tag": None, "version": None}
