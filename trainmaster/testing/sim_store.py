"""What is an object store in a simulated world? A dictionary that keeps every promise of the port, and a door over the net."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from blake3 import blake3

from trainmaster.adapters.store_keys import parse_key
from trainmaster.errors import StoreUnavailable
from trainmaster.ports.object_store import Entry, StoredFile
from trainmaster.spec.layout import Key
from trainmaster.testing.sim_net import BEGIN, Net, Party

T = TypeVar("T")


class Objects:
    """The objects themselves; the blocking door, which answers at once."""

    url = "simulated://store"
    is_instant = True
    deletes_instantly = True

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._keys: list[str] = []
        #: who asked for the write under way
        self.writer = ""

    def get(self, key: Key) -> bytes | None:
        """The value, or None for an unknown key. Repeatable."""
        return self.values.get(parse_key(key))

    def get_range(self, key: Key, start: int, length: int) -> bytes | None:
        """At most `length` bytes from `start`. Repeatable."""
        if start < 0 or length < 0:
            raise ValueError(f"not a range: {start}, {length}")
        value = self.get(key)
        return None if value is None else value[start : start + length]

    def put(self, key: Key, value: bytes) -> None:
        """Store, replacing what was there. Repeatable."""
        if parse_key(key) not in self.values:
            insort(self._keys, key)
        self.values[key] = bytes(value)

    def put_if_absent(self, key: Key, value: bytes) -> bool:
        """Store if nothing is there; False if something is."""
        if parse_key(key) in self.values:
            return False
        self.put(key, value)
        return True

    def put_file(self, key: Key, path: Path, progress: Callable[[int], None] | None = None) -> StoredFile:
        """Store a file's bytes. Repeatable."""
        value = path.read_bytes()
        self.put(key, value)
        if progress is not None:
            progress(len(value))
        return StoredFile(len(value), blake3(value).hexdigest())

    def move_file(self, key: Key, path: Path) -> None:
        """Like put_file, and the file is gone afterwards; what is there already stays as it is. Repeatable."""
        if path.exists() and key not in self.values:
            self.put_file(key, path)
        elif key not in self.values:
            raise FileNotFoundError(path)
        path.unlink(missing_ok=True)

    def get_file(self, key: Key, path: Path, progress: Callable[[int], None] | None = None) -> StoredFile | None:
        """Write the value to a new file. Repeatable."""
        value = self.get(key)
        if value is None:
            return None
        path.unlink(missing_ok=True)
        path.write_bytes(value)
        if progress is not None:
            progress(len(value))
        return StoredFile(len(value), blake3(value).hexdigest())

    def list_keys(self, prefix: Key, *, after: Key | None = None) -> Iterator[Entry]:
        """Everything below `prefix` + "/", in ascending key order. Repeatable."""
        below = f"{parse_key(prefix)}/" if prefix else ""
        for key in self._keys[bisect_left(self._keys, max(below, f"{after}\0" if after else "")) :]:
            if not key.startswith(below):
                return
            if key in self.values:
                yield Entry(Key(key), len(self.values[key]), BEGIN.timestamp())

    def list_folders(self, prefix: Key) -> list[Key]:
        """What lies right below `prefix` and has something below it. Repeatable."""
        parts = [entry.key[len(prefix) + 1 :].partition("/") for entry in self.list_keys(prefix)]
        return sorted({Key(f"{prefix}/{name}") for name, slash, _ in parts if slash})

    def delete_prefix(self, prefix: Key) -> int:
        """Remove everything below `prefix` + "/" and the key itself. Repeatable."""
        parse_key(prefix)
        gone = [entry.key for entry in self.list_keys(prefix)]
        if prefix in self.values:
            gone.append(prefix)
        for key in gone:
            self.delete(key)
        return len(gone)

    def delete(self, key: str) -> None:
        """Remove one object that is there."""
        del self.values[key]
        del self._keys[bisect_left(self._keys, key)]


class StoreDoor:
    """The store as one party reaches it."""

    def __init__(self, who: Party, net: Net, objects: Objects) -> None:
        self.who, self._net, self._objects = who, net, objects

    async def _ask(self, effect: Callable[[], T], *, reads: bool = False) -> T:
        def attributed() -> T:
            self._objects.writer = self.who.name
            return effect()

        return await self._net.call(self.who, "store", attributed, StoreUnavailable, reads=reads)

    async def get(self, key: Key) -> bytes | None:
        """The value, or None for an unknown key. Repeatable."""
        return await self._ask(lambda: self._objects.get(key), reads=True)

    async def put(self, key: Key, value: bytes) -> None:
        """Store, replacing what was there. Repeatable; may have happened if it raised StoreUnavailable."""
        await self._ask(lambda: self._objects.put(key, value))

    async def put_if_absent(self, key: Key, value: bytes) -> bool:
        """Store if nothing is there; False if something is. Of racing callers one wins. May have happened if it raised."""
        self.who.pause_in_call_s, self.who.pause_in_create_s = self.who.pause_in_call_s or self.who.pause_in_create_s, 0.0
        return await self._ask(lambda: self._objects.put_if_absent(key, value))

    async def list_keys(self, prefix: Key, *, after: Key | None = None) -> list[Entry]:
        """Everything below `prefix` + "/", in ascending key order, after `after`. Repeatable."""
        return await self._ask(lambda: list(self._objects.list_keys(prefix, after=after)), reads=True)

    async def list_folders(self, prefix: Key) -> list[Key]:
        """What lies right below `prefix` and has something below it. Repeatable."""
        return await self._ask(lambda: self._objects.list_folders(prefix), reads=True)

    async def delete_prefix(self, prefix: Key) -> int:
        """Remove everything below `prefix` + "/" and the key itself; how many objects went. Repeatable."""
        return await self._ask(lambda: self._objects.delete_prefix(prefix))
