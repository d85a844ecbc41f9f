"""Which object store does an address name, and how does the control plane's event loop talk to it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import unquote

from trainmaster.errors import InvalidConfig
from trainmaster.ports.object_store import BlockingStore, Entry
from trainmaster.spec.layout import Key

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
ALLOWED = "a folder, file:///path, memory://name, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"

Result = TypeVar("Result")


def open_store(url: str, *, options: Mapping[str, str] = NO_OPTIONS, create: bool = True) -> BlockingStore:
    """The store at an address.

    `create` makes a missing folder; buckets are never made. `options` are obstore's settings for the bucket (endpoint,
    access_key_id, secret_access_key, region, …; what is not given is taken from AWS_* and its like), allow_http and
    proxy_url, and our own timeout_s and transfer_timeout_s.
    """
    scheme, separator, rest = url.partition("://")
    # Imported late: a command pays only for the kind of store it uses.
    if not separator or scheme == "file":
        from trainmaster.adapters.folder_store import open_folder

        return open_folder(_folder_path(rest) if separator else url, create=create)
    if scheme == "memory":
        from trainmaster.adapters.bucket_address import open_memory

        return open_memory(rest)
    if scheme in {"s3", "gs", "az"}:
        from trainmaster.adapters.bucket_address import open_bucket

        return open_bucket(scheme, rest, options)
    raise InvalidConfig(f"store: {scheme}:// is not a kind of object store.", hint=f"Use {ALLOWED}.")


class AsyncDoor:
    """An ObjectStore for an event loop, over a BlockingStore."""

    def __init__(self, blocking: BlockingStore) -> None:
        self._blocking = blocking
        # A folder or memory answers sooner than a thread starts, and a simulated world has no threads. But a folder takes
        # seconds to delete a large checkpoint.
        self._is_instant = bool(getattr(blocking, "is_instant", False))
        self._deletes_instantly = bool(getattr(blocking, "deletes_instantly", False))

    async def get(self, key: Key) -> bytes | None:
        """The value, or None for an unknown key. Repeatable."""
        return await _call(self._is_instant, lambda: self._blocking.get(key))

    async def put(self, key: Key, value: bytes) -> None:
        """Store, replacing what was there. Repeatable; may have happened if it raised StoreUnavailable."""
        await _call(self._is_instant, lambda: self._blocking.put(key, value))

    async def put_if_absent(self, key: Key, value: bytes) -> bool:
        """Store if nothing is there; False if something is. May have happened if it raised StoreUnavailable."""
        return await _call(self._is_instant, lambda: self._blocking.put_if_absent(key, value))

    async def list_keys(self, prefix: Key, *, after: Key | None = None) -> list[Entry]:
        """Everything below `prefix` + "/", in ascending key order, after `after`. Repeatable."""
        return await _call(self._is_instant, lambda: list(self._blocking.list_keys(prefix, after=after)))

    async def list_folders(self, prefix: Key) -> list[Key]:
        """What lies right below `prefix` + "/" and has something below it, ascending. Repeatable."""
        return await _call(self._is_instant, lambda: self._blocking.list_folders(prefix))

    async def delete_prefix(self, prefix: Key) -> int:
        """Remove everything below `prefix` + "/" and the key itself; how many objects went. Repeatable."""
        return await _call(self._deletes_instantly, lambda: self._blocking.delete_prefix(prefix))


async def _call(is_instant: bool, call: Callable[[], Result]) -> Result:  # noqa: FBT001 – private
    if is_instant:
        return call()
    import asyncio

    return await asyncio.to_thread(call)


def _folder_path(rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise InvalidConfig(f"store: file://{rest} names another machine.", hint="Write file:///absolute/path.")
    return unquote(f"/{path}")
