"""What do we need of a place that data come from? A listing with versions, and the bytes of one version or a clear no."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from trainmaster.adapters.folder_files import Progress
from trainmaster.errors import TrainmasterError


class DataChanged(TrainmasterError):
    """What was listed is not there any more, or not the same: list again."""


class NoData(TrainmasterError):
    """There is nothing at this address, or nothing that can lie in a folder; asking again does not help."""


class SourceObject(Struct, frozen=True, kw_only=True):
    """One object of a listing."""

    #: below the channel's folder
    path: str
    #: how the source calls it
    key: str
    size_bytes: int
    #: what changes with its content
    version: str
    #: what a server compares a read with, where it has one
    etag: str = ""
    #: time of its last change, in seconds; 0: nobody says
    modified_s: float = 0.0
    #: name of exactly this content in the cache
    name: str


class Source(Protocol):
    """One address, opened."""

    @property
    def uri(self) -> str:
        """The address, without anything secret."""
        ...

    def pages(self) -> Iterator[list[SourceObject]]:
        """Everything there is, in any order, a page at a time; NoData where there is nothing. Repeatable."""
        ...

    def read(self, found: SourceObject, descriptor: int, progress: Progress) -> None:
        """Write the bytes of exactly this version into an empty file; DataChanged when it is not there any more. Repeatable."""
        ...

    def close(self) -> None:
        """Let go of what is held for reading. Repeatable."""
        ...


def cache_name(*identity: object) -> str:
    """The name of some content in the cache: equal when address, version, size and time are."""
    return hashlib.sha256("\n".join(map(str, identity)).encode(errors="surrogatepass")).hexdigest()
