"""What do we need of an object store? Two doors to one thing: blocking for the runner's threads, async for the control plane.

Promises common to both, checked by testing/conformance/object_store.py:

1. A key is visible whole or not at all; a reader never sees half a value.
2. ``put_if_absent`` lets exactly one of any number of racing callers win.
3. A read after a finished write sees that write; a listing after it contains it.
4. ``StoreUnavailable`` from a write means that it may have happened. ``StoreFull`` and ``StoreRejected`` mean that it did not.
5. Every method may be repeated. Unknown keys are not an error: ``get`` answers None, ``delete_prefix`` does nothing.
6. Keys come back from ``list_keys`` in ascending order of their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from trainmaster.spec.layout import Key


class Entry(Struct, frozen=True):
    """One object in a listing."""

    key: Key
    size_bytes: int
    modified_at_s: float


class StoredFile(Struct, frozen=True):
    """What put_file stored."""

    size_bytes: int
    blake3: str


class BlockingStore(Protocol):
    """The object store as threads see it."""

    @property
    def url(self) -> str:
        """Where it is, without credentials; opening this address again reaches the same objects."""
        ...

    def get(self, key: Key) -> bytes | None:
        """The value, or None for an unknown key. Repeatable."""
        ...

    def get_range(self, key: Key, start: int, length: int) -> bytes | None:
        """At most `length` bytes from `start`; empty beyond the end, None for an unknown key. Repeatable."""
        ...

    def put(self, key: Key, value: bytes) -> None:
        """Store, replacing what was there. Repeatable; may have happened if it raised StoreUnavailable."""
        ...

    def put_if_absent(self, key: Key, value: bytes) -> bool:
        """Store if nothing is there; False if something is. Of racing callers one wins. May have happened if it raised."""
        ...

    def put_file(self, key: Key, path: Path, progress: Callable[[int], None] | None = None) -> StoredFile:
        """Store a file's bytes, hashed on the way, durable on return, in bounded memory. Repeatable."""
        ...

    def move_file(self, key: Key, path: Path) -> None:
        """Like put_file without a hash, and the file is gone afterwards; a rename where that is possible. Repeatable."""
        ...

    def get_file(self, key: Key, path: Path, progress: Callable[[int], None] | None = None) -> StoredFile | None:
        """Write the value to a new file, hashed on the way, in bounded memory; None for an unknown key. Repeatable."""
        ...

    def list_keys(self, prefix: Key, *, after: Key | None = None) -> Iterator[Entry]:
        """Everything below `prefix` + "/", in ascending key order, after `after`. Repeatable."""
        ...

    def list_folders(self, prefix: Key) -> list[Key]:
        """What lies right below `prefix` + "/" and has something below it, ascending: cheap where a listing is not. Repeatable.

        One that is empty by now may be named, too.
        """
        ...

    def delete_prefix(self, prefix: Key) -> int:
        """Remove everything below `prefix` + "/" and the key itself; how many objects went. Repeatable."""
        ...


class ObjectStore(Protocol):
    """The object store as the control plane sees it; same meaning as the blocking door, method by method."""

    async def get(self, key: Key) -> bytes | None:
        """The value, or None for an unknown key. Repeatable."""
        ...

    async def put(self, key: Key, value: bytes) -> None:
        """Store, replacing what was there. Repeatable; may have happened if it raised StoreUnavailable."""
        ...

    async def put_if_absent(self, key: Key, value: bytes) -> bool:
        """Store if nothing is there; False if something is. Of racing callers one wins. May have happened if it raised."""
        ...

    async def list_keys(self, prefix: Key, *, after: Key | None = None) -> list[Entry]:
        """Everything below `prefix` + "/", in ascending key order, after `after`. Repeatable."""
        ...

    async def list_folders(self, prefix: Key) -> list[Key]:
        """What lies right below `prefix` + "/" and has something below it, ascending: cheap where a listing is not. Repeatable.

        One that is empty by now may be named, too.
        """
        ...

    async def delete_prefix(self, prefix: Key) -> int:
        """Remove everything below `prefix` + "/" and the key itself; how many objects went. Repeatable."""
        ...
