"""How do the data of one channel get from elsewhere into a job's folder?

Everything that is in the cache is linked while the listing still comes; then what is missing is fetched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from trainmaster.adapters import host
from trainmaster.adapters.inputs.cache import InputCache
from trainmaster.adapters.inputs.fetcher import PATIENCE_S, Fetcher, Stopped, Want
from trainmaster.adapters.inputs.source import DataChanged, NoData, Source, SourceObject
from trainmaster.core.inputs import InputManifest, InputObject, make_manifest, share, why_no_folder
from trainmaster.errors import StoreUnavailable
from trainmaster.spec.data_uri import WEB, parse_uri
from trainmaster.spec.job_spec import Input

#: How often data that change while they are fetched are listed anew.
_ROUNDS = 5
_PAUSE_S = 1.0
_T = TypeVar("_T")


class ChannelPlan(Struct, kw_only=True):
    """One channel: what was found of it, and what of that is not here yet."""

    channel: str
    given: Input
    source: Source
    manifest: InputManifest
    missing: list[Want]
    #: what the user should know
    note: str = ""

    @property
    def missing_bytes(self) -> int:
        """How much there is to fetch."""
        return sum(want.found.size_bytes for want in self.missing)


class Gathering(Struct, frozen=True, kw_only=True):
    """For whom data are gathered."""

    #: each channel is a folder in it
    folder: Path
    cache: InputCache
    #: where credentials come from
    environ: Mapping[str, str]
    #: bytes done, bytes in all
    tell: Callable[[int, int], None]
    #: whether nobody wants them any more
    is_over: Callable[[], bool]
    node: int = 0
    nodes: int = 1
    patience_s: float = PATIENCE_S


class Gatherer:
    """Lists channels, then fetches them."""

    def __init__(self, work: Gathering) -> None:
        self._work = work
        self._counting = threading.Lock()
        #: channel → bytes done, bytes in all
        self._bytes: dict[str, tuple[int, int]] = {}

    def find(self, channel: str, given: Input) -> ChannelPlan:
        """Find what there is, and link what is in the cache; asked again for a while where nobody answers."""
        began_s = host.elapsed_s()
        while True:
            try:
                return self._find(channel, given)
            except StoreUnavailable:
                if host.elapsed_s() - began_s > self._work.patience_s:
                    raise
            until_s = host.elapsed_s() + _PAUSE_S
            while host.elapsed_s() < until_s:
                if self._work.is_over():
                    raise Stopped
                threading.Event().wait(0.1)

    def _find(self, channel: str, given: Input) -> ChannelPlan:
        work = self._work
        folder = str(work.folder / channel)
        source = open_source(given.uri, work.environ, work.cache.folder)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        try:
            return self._found(channel, given, source, _Linker(work.cache, folder))
        except BaseException:
            source.close()
            raise

    def _found(self, channel: str, given: Input, source: Source, linker: _Linker) -> ChannelPlan:
        work = self._work
        is_split = given.distribution == "sharded" and work.nodes > 1
        found: list[SourceObject] = []
        for page in source.pages():
            found += page
            if not is_split:
                linker.link(one for one in page if one.size_bytes)  # an empty one may be the mark of a folder
        found = _without_folder_marks(found)
        wrong = why_no_folder([one.path for one in found])
        if wrong:
            raise NoData(f"{source.uri}: {wrong}")
        objects = [InputObject(path=one.path, size_bytes=one.size_bytes, version=one.version.strip('"')) for one in found]
        manifest = make_manifest(channel, source.uri, objects, distribution=given.distribution, nodes=work.nodes)
        if is_split:
            mine = set(share((one.path for one in found), work.node, work.nodes))
            found = [one for one in found if one.path in mine]
        linker.link(one for one in found if is_split or not one.size_bytes)
        plan = ChannelPlan(channel=channel, given=given, source=source, manifest=manifest, missing=linker.missing(found))
        total = sum(one.size_bytes for one in found)
        self._bytes[channel] = (total - plan.missing_bytes, total)
        self._count(channel, 0)
        return plan

    def fetch(self, plan: ChannelPlan) -> ChannelPlan:
        """What is missing of a channel. Data that change meanwhile are listed anew: what is here in the end was listed together."""
        work = self._work
        notes = [f"the cached copy of {path} had been changed; it was fetched anew" for path in work.cache.damaged[:1]]
        for _ in range(_ROUNDS):
            fetcher = Fetcher(work.cache, partial(self._count, plan.channel), work.is_over, patience_s=work.patience_s)
            try:
                with closing(plan.source) as source:
                    fetcher.fetch(source, plan.missing)
            except DataChanged as error:
                notes = [f"{error.sentence}; it was listed anew"]
                plan = self.find(plan.channel, plan.given)
                continue
            plan.note = "; ".join(notes)
            return plan
        raise NoData(f"{notes[0]} {_ROUNDS} times; wait until nobody writes there")

    def _count(self, channel: str, size: int) -> None:
        with self._counting:
            done, total = self._bytes[channel]
            self._bytes[channel] = (done + size, total)
            sums = [sum(column) for column in zip(*self._bytes.values(), strict=True)]
            self._work.tell(max(0, min(sums)), sums[1])


class _Linker:
    """Links what is in the cache into a folder."""

    def __init__(self, cache: InputCache, folder: str) -> None:
        self._cache, self._folder = cache, folder
        self._made = {folder}
        self._linked: set[str] = set()

    def link(self, page: Iterable[SourceObject]) -> None:
        """What cannot be linked is missing; why, is found out later."""
        for found in page:
            with contextlib.suppress(OSError, ValueError):
                if ".." not in found.path and self._cache.link(found, self._target(found)):
                    self._linked.add(found.path)

    def missing(self, all_found: Iterable[SourceObject]) -> list[Want]:
        """What was not linked, and where it shall lie."""
        return [Want(found, self._target(found)) for found in all_found if found.path not in self._linked]

    def _target(self, found: SourceObject) -> str:
        target = f"{self._folder}/{found.path}"
        parent = target.rpartition("/")[0]
        if parent not in self._made:
            os.makedirs(parent, exist_ok=True)
            self._made.add(parent)
        return target


def open_source(uri: str, environ: Mapping[str, str], scratch: Path) -> Source:
    """The address, opened; each kind is imported when it is asked for."""
    parsed = parse_uri(uri)
    if parsed.scheme in WEB:
        from trainmaster.adapters.inputs.web_source import WebSource

        return WebSource(uri, environ, scratch)
    from trainmaster.adapters.inputs.bucket_source import BucketSource

    return BucketSource(parsed, environ)


def _without_folder_marks(found: list[SourceObject]) -> list[SourceObject]:
    """Consoles make an empty object for each folder; it is none of the data."""
    empty = {one.path for one in found if one.size_bytes == 0}
    if not empty:
        return found
    parents = {one.path[:end] for one in found for end, letter in enumerate(one.path) if letter == "/"}
    return [one for one in found if one.size_bytes or one.path not in parents]
