"""How does a script find its data? Channels that lie on this machine are linked, others fetched; what was read is written down."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmaster.adapters.inputs.cache import InputCache
from trainmaster.adapters.inputs.fetcher import Stopped
from trainmaster.adapters.inputs.gather import ChannelPlan, Gatherer, Gathering
from trainmaster.adapters.inputs.local_data import look_at, why_unusable
from trainmaster.adapters.inputs.source import NoData
from trainmaster.core.inputs import InputManifest, InputSummary, difference, make_manifest, share, summarize
from trainmaster.errors import InvalidConfig, StoreRejected, StoreUnavailable
from trainmaster.ports.object_store import BlockingStore
from trainmaster.runner.workplace import SetUpError, Workplace
from trainmaster.spec import layout
from trainmaster.spec.data_uri import parse_uri
from trainmaster.spec.job_spec import Input


class SourceAway(SetUpError):
    """The data cannot be reached now: nobody's mistake, and it may pass."""

    may_pass = True


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """Where fetched data are kept on this machine, and how much of them."""

    folder: Path
    bytes_max: int
    now_s: Callable[[], float]


class Inputs:
    """The channels of one attempt on one machine."""

    def __init__(self, place: Workplace, store: BlockingStore, cache: Cache) -> None:
        self._place, self._store, self._settings = place, store, cache
        self._nodes = place.request.nodes
        self._folder = place.home / "input" / "data"
        self._channels = {
            name: given if isinstance(given, Input) else Input(uri=given) for name, given in place.file.spec.inputs.items()
        }
        self._cache: InputCache | None = None
        self._local: dict[str, InputManifest] = {}
        #: channel → what was read, for heartbeats and the exit record
        self.summaries: dict[str, InputSummary] = {}

    def bring(self, environ: Mapping[str, str], tell: Callable[[int, int], None], is_over: Callable[[], bool]) -> None:
        """Have every channel in its folder; a SetUpError names the one that could not be had."""
        remote = {name: given for name, given in self._channels.items() if not parse_uri(given.uri).is_local}
        for channel, given in self._channels.items():
            if channel not in remote:
                with _naming(channel):
                    manifest = self._link(channel, given)
                self._keep(manifest)
        if remote:
            self._cache = InputCache(self._settings.folder, self._settings.bytes_max, self._settings.now_s)
            work = Gathering(folder=self._folder, cache=self._cache, environ=environ, tell=tell, is_over=is_over, nodes=self._nodes)
            for plan in self._gather(Gatherer(work), remote):
                self._keep(plan.manifest, plan.note)

    def finish(self) -> None:
        """The script has ended: say which folders changed meanwhile, let go of what was fetched, keep the cache's bound."""
        for channel, before in self._local.items():
            if channel not in self.summaries:
                continue  # it was not even written down
            with contextlib.suppress(OSError):
                changed = difference(before, make_manifest(channel, before.uri, look_at(Path(before.uri))))
                if changed:
                    self._warn(channel, f"{before.uri} changed while the job ran: {changed}")
        if self._cache is not None:
            for channel in self._channels.keys() - self._local.keys():
                shutil.rmtree(self._folder / channel, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._cache.make_room(0)

    def _gather(self, gatherer: Gatherer, remote: Mapping[str, Input]) -> list[ChannelPlan]:
        assert self._cache is not None
        plans = []
        for channel, given in remote.items():
            with _naming(channel):
                plans.append(gatherer.find(channel, given))
        incoming = sum(plan.missing_bytes for plan in plans)
        if incoming:
            self._cache.make_room(incoming)
        for index, plan in enumerate(plans):
            with _naming(plan.channel):
                plans[index] = gatherer.fetch(plan)
        if incoming:
            self._cache.make_room(0)
        return plans

    def _link(self, channel: str, given: Input) -> InputManifest:
        """A folder is linked as a whole; a file, or a share of a folder, lies linked in one."""
        path = Path(parse_uri(given.uri).path)
        wrong, hint = why_unusable(path)
        if wrong:
            raise NoData(f"{wrong}; {hint}")
        manifest = make_manifest(channel, str(path), look_at(path), distribution=given.distribution, nodes=self._nodes)
        self._local[channel] = manifest
        folder = self._folder / channel
        if folder.is_symlink():
            folder.unlink()  # the store was away when it was to be written down
        shutil.rmtree(folder, ignore_errors=True)
        if path.is_dir() and (given.distribution == "replicated" or self._nodes == 1):
            folder.symlink_to(path)
            return manifest
        folder.mkdir()
        for name in share((one.path for one in manifest.objects), 0, self._nodes):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path / name if path.is_dir() else path)
        return manifest

    def _keep(self, manifest: InputManifest, note: str = "") -> None:
        """Write down what was found; an earlier attempt may have found something else."""
        job_id, attempt, channel = self._place.file.id, self._place.request.attempt, manifest.channel
        value, key = msgspec.json.encode(manifest), layout.inputs(job_id, channel)
        if not self._store.put_if_absent(key, value):
            first = msgspec.json.decode(self._store.get(key) or b"{}", type=InputManifest)
            if changed := difference(first, manifest):
                self._store.put(layout.attempt_inputs(job_id, attempt, channel), value)
                note = "; ".join(filter(None, [note, f"not the data that an earlier attempt read: {changed}"]))
        self.summaries[channel] = summarize(manifest, note)

    def _warn(self, channel: str, text: str) -> None:
        known = self.summaries[channel]
        self.summaries = {**self.summaries, channel: replace(known, warning="; ".join(filter(None, [known.warning, text])))}


@contextlib.contextmanager
def _naming(channel: str) -> Iterator[None]:
    """Say which channel it was, and whether it may pass."""
    try:
        yield
    except (NoData, StoreRejected, InvalidConfig) as error:
        hint = f" {error.hint}" if error.hint else ""
        raise SetUpError(f"inputs.{channel}: {error.sentence}{hint}") from error
    except StoreUnavailable as error:
        raise SourceAway(f"inputs.{channel}: {error.sentence}") from error
    except Stopped as error:
        raise SetUpError(f"inputs.{channel}: nobody wants them any more") from error
