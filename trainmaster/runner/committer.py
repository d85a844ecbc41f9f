"""When is the checkpoint folder committed, and how does it come back?

A commit is a consistent snapshot of the whole folder: it lay still for a moment, nobody had a file in it open for writing, and
after copying it was still the same. Files go up in parallel, then the manifest, then one marker; without the marker nothing
counts. A file that did not change since an earlier commit is not copied again: the manifest says where its bytes lie.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from trainmaster.adapters import host
from trainmaster.core.job import CheckpointRef
from trainmaster.core.messages import Manifest, ManifestFile
from trainmaster.errors import StoreError, StoreFull, StoreRejected
from trainmaster.ports.object_store import BlockingStore
from trainmaster.runner import checkpoint_folder
from trainmaster.runner.checkpoint_folder import Fingerprint, Seen
from trainmaster.spec import layout
from trainmaster.spec.job_spec import Checkpoints

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_COPIES_AT_ONCE = 4
_RETRY_S = 2.0
#: times the settling time, before a folder that never lies still is a warning
_PATIENCE = 10


class CommitterSettings(Struct, frozen=True, kw_only=True):
    """What a committer works on."""

    job_id: str
    attempt: int
    folder: Path
    rules: Checkpoints


class Committer:
    """Watches one folder and commits it. One thread calls `look`; `final` is called after that thread ended."""

    def __init__(
        self,
        settings: CommitterSettings,
        store: BlockingStore,
        now: Callable[[], datetime],
        job_pids: Callable[[], Iterable[int]],
        may_commit: Callable[[], bool],
        step_of: Callable[[list[str]], int | None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._now = now
        self._job_pids = job_pids
        self._may_commit = may_commit
        self._step_of = step_of
        self._seq = 0
        self._seen: Fingerprint = {}
        self._seen_s = host.elapsed_s()
        self._busy_since_s: float | None = None
        #: the newest state that was seen lying still, with no writer, while the job lived
        self._still: Fingerprint | None = None
        self._still_at = now()
        self._committed: Fingerprint = {}
        self._committed_s = -1e9
        self._stored: dict[str, tuple[Seen, ManifestFile]] = {}
        self._not_before_s = 0.0
        self._refusal: Exception | None = None
        self.newest: CheckpointRef | None = None
        self.trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="committer", daemon=True)

    def start(self) -> None:
        """Begin to watch; what was restored counts as committed."""
        self._thread.start()

    def finish(self, *, trusted: bool, is_closed: Callable[[], bool]) -> None:
        """The job's processes are gone: commit what may be committed, however long store and lease are away."""
        self._stop.set()
        self._thread.join()
        print_ = checkpoint_folder.fingerprint(self._settings.folder)
        if not checkpoint_folder.has_work(print_) or print_ == self._committed:
            return
        if trusted:
            self._still_at = self._now()
        elif print_ != self._still:
            self.trouble = "the script died while its checkpoint folder was changing; what lay there is not committed"
            return
        # A full store is worth waiting for when the script ended well; after a crash the next attempt goes on from what there is.
        hopeless = (OSError, StoreRejected) if trusted else (OSError, StoreRejected, StoreFull)
        tries = 5
        while tries and not is_closed():
            if self._may_commit():
                if self._commit(print_):
                    return
                tries -= self._refusal is None or isinstance(self._refusal, hopeless)
            threading.Event().wait(_RETRY_S / 4)

    def _watch(self) -> None:
        period_s = max(0.02, min(1.0, self._settings.rules.settle / 4))
        while not self._stop.wait(period_s):
            self._look()

    def _look(self) -> None:
        rules = self._settings.rules
        now_s = host.elapsed_s()
        print_ = checkpoint_folder.fingerprint(self._settings.folder)
        if print_ != self._seen:
            newest = checkpoint_folder.changed(self._seen, print_)[-1:]
            self._seen, self._seen_s = print_, now_s
            self._complain(now_s, f"{', '.join(newest) or 'the checkpoint folder'} keeps changing")
            return
        if print_ == self._committed or not checkpoint_folder.has_work(print_):
            self._busy_since_s = None
            return
        if now_s - self._seen_s < rules.settle:
            return
        if print_ != self._still:
            writing = host.open_for_writing(self._job_pids(), self._settings.folder)
            if writing:
                self._seen_s = now_s  # somebody is in the middle of it, however slowly
                self._complain(now_s, f"{os.path.basename(writing)} is still open for writing")
                return
            self._still, self._still_at = print_, self._now()
            self._busy_since_s = None
        if now_s < self._not_before_s or now_s - self._committed_s < rules.interval or not self._may_commit():
            return
        self._commit(print_)

    def _complain(self, now_s: float, why: str) -> None:
        """A folder that never lies still is never committed; its owner must learn that before a crash teaches it."""
        if self._busy_since_s is None:
            self._busy_since_s = now_s
        busy_s = now_s - self._busy_since_s
        if busy_s > _PATIENCE * self._settings.rules.settle:
            self.trouble = f"no checkpoint could be committed for {busy_s:.0f} s: {why}"

    def _commit(self, print_: Fingerprint) -> bool:
        """Copy, check, mark. False: not this time, and nothing of it can be seen."""
        self._refusal = None
        self._seq += 1
        name = layout.checkpoint_id(self._settings.attempt, self._seq)
        try:
            manifest = self._copy(name, print_)
            if checkpoint_folder.fingerprint(self._settings.folder) != print_:
                self._forget(name)  # it changed under our hands: a later look takes it
                return False
            self._mark(manifest)
        except (StoreError, OSError) as error:
            said = error.sentence if isinstance(error, StoreError) else str(error)
            self.trouble = f"checkpoint not committed: {said}"
            self._refusal = error
            self._not_before_s = host.elapsed_s() + _RETRY_S
            if isinstance(error, StoreFull | OSError):
                self._forget(name)
            return False
        self._committed, self._committed_s = print_, host.elapsed_s()
        self._stored = {f.path: (print_[f.path], f) for f in manifest.files if not f.link}
        odd = checkpoint_folder.left_out(self._settings.folder)
        self.trouble = f"not part of the checkpoint: {', '.join(odd[:5])} (no plain file, or its name is not UTF-8)" if odd else ""
        self._prune()
        return True

    def _copy(self, name: str, print_: Fingerprint) -> Manifest:
        with _pool() as pool:
            files = list(pool.map(lambda path: self._copy_one(name, path, print_[path]), checkpoint_folder.files_of(print_)))
        links = [ManifestFile(path=p, size_bytes=0, link=s.link) for p, s in print_.items() if s.kind == "link"]
        parents = {path.rpartition("/")[0] for path in print_}
        folders = [path for path, seen in print_.items() if seen.kind == "folder" and path not in parents]
        step = self._step_of(checkpoint_folder.changed(self._committed, print_))
        return Manifest(id=name, taken_at=self._still_at, step=step, files=files + links, folders=folders)

    def _copy_one(self, name: str, path: str, seen: Seen) -> ManifestFile:
        before = self._stored.get(path)
        if before is not None and before[0] == seen:
            return before[1]
        stored = self._store.put_file(layout.checkpoint_file(self._settings.job_id, name, path), self._settings.folder / path)
        return ManifestFile(path=path, size_bytes=stored.size_bytes, blake3=stored.blake3, mode=seen.mode, stored_in=name)

    def _mark(self, manifest: Manifest) -> None:
        job_id = self._settings.job_id
        self._store.put(layout.manifest(job_id, manifest.id), msgspec.json.encode(manifest))
        if not self._may_commit():
            raise StoreError("the attempt lease ended while copying")
        size = sum(file.size_bytes for file in manifest.files)
        ref = CheckpointRef(
            id=manifest.id,
            taken_at=manifest.taken_at,
            committed_at=self._now(),
            step=manifest.step,
            size_bytes=size,
            files=len(manifest.files),
        )
        # Unlike put, this syncs the names too: manifest and marker outlive a power cut. The marker may be there already, from a
        # try whose answer was lost.
        self._store.put_if_absent(layout.commit(job_id, manifest.id), msgspec.json.encode(ref))
        self.newest = ref

    def _forget(self, name: str) -> None:
        """Remove a half-made checkpoint; if that fails too, it only takes space, for nothing without a marker counts."""
        try:
            self._store.delete_prefix(layout.checkpoint(self._settings.job_id, name))
        except StoreError as error:
            self.trouble = f"a half-made checkpoint could not be removed: {error.sentence}"

    def _prune(self) -> None:
        if not self._may_commit():
            return  # a runner woken after its lease must not remove what its successor resumes from
        try:
            prune(self._store, self._settings.job_id, self._settings.rules.keep, self._settings.attempt)
        except StoreError as error:
            self.trouble = f"old checkpoints could not be removed: {error.sentence}"

    def restore(self, ref: CheckpointRef, progress: Callable[[int], None]) -> None:
        """Bring a checkpoint back and verify it. ValueError says which file is damaged; then nothing of it is left."""
        manifest = self._manifest(ref.id)
        try:
            self._restore_files(ref, manifest, progress)
        except ValueError:
            for file in manifest.files:
                (self._settings.folder / file.path).unlink(missing_ok=True)
            raise
        self._committed = self._seen = checkpoint_folder.fingerprint(self._settings.folder)
        self._stored = {f.path: (self._committed[f.path], f) for f in manifest.files if not f.link}

    def commits(self) -> list[CheckpointRef]:
        """Every checkpoint of this job with a marker that can be read."""
        found: list[CheckpointRef] = []
        for entry in self._store.list_keys(layout.checkpoints(self._settings.job_id)):
            if layout.is_commit(self._settings.job_id, entry.key):
                with contextlib.suppress(msgspec.DecodeError):
                    found.append(msgspec.json.decode(self._store.get(entry.key) or b"", type=CheckpointRef))
        return found

    def _manifest(self, name: str) -> Manifest:
        value = self._store.get(layout.manifest(self._settings.job_id, name))
        if value is None:
            raise ValueError(f"checkpoint {name} has no manifest")
        try:
            return msgspec.json.decode(value, type=Manifest)
        except msgspec.DecodeError as error:
            raise ValueError(f"checkpoint {name} is damaged: its manifest cannot be read") from error

    def _restore_files(self, ref: CheckpointRef, manifest: Manifest, progress: Callable[[int], None]) -> None:
        for folder in manifest.folders:
            (self._settings.folder / folder).mkdir(parents=True, exist_ok=True)
        with _pool() as pool:
            list(pool.map(lambda file: self._restore_one(ref.id, file, progress), manifest.files))

    def _restore_one(self, name: str, file: ManifestFile, progress: Callable[[int], None]) -> None:
        target = self._settings.folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            target.unlink(missing_ok=True)  # a restore that was cut short may have made it already
            os.symlink(file.link, target)
            return
        key = layout.checkpoint_file(self._settings.job_id, file.stored_in, file.path)
        got = self._store.get_file(key, target, progress)
        if got is None or got.blake3 != file.blake3 or got.size_bytes != file.size_bytes:
            found = "is missing" if got is None else "has other bytes than were committed"
            raise ValueError(f"checkpoint {name} is damaged: {file.path} {found}")
        target.chmod(file.mode)


def _pool() -> ThreadPoolExecutor:
    """Imported late: most jobs start long before they save anything."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_COPIES_AT_ONCE, thread_name_prefix="copy")


def prune(store: BlockingStore, job_id: str, keep: int, attempt: int) -> None:
    """Keep the newest commits. What a newer attempt or a late runner of an old one wrote is not ours to remove.

    The marker goes first, then the manifest, then those files that no kept manifest refers to.
    """
    keys = [entry.key for entry in store.list_keys(layout.checkpoints(job_id))]
    base = len(layout.checkpoints(job_id)) + 1
    by_name: dict[str, list[layout.Key]] = {}
    for key in keys:
        by_name.setdefault(key[base:].split("/", 1)[0], []).append(key)
    if any(layout.parse_checkpoint_id(name)[0] > attempt for name in by_name):
        return
    committed = [name for name, own in by_name.items() if layout.commit(job_id, name) in own]
    kept = sorted(committed, key=layout.parse_checkpoint_id)[-keep:]
    needed: set[str] = set()
    for name in kept:
        value = store.get(layout.manifest(job_id, name))
        files = [] if value is None else msgspec.json.decode(value, type=Manifest).files
        needed.update(layout.checkpoint_file(job_id, f.stored_in, f.path) for f in files if not f.link)
    newest = max((layout.parse_checkpoint_id(name) for name in kept), default=(0, 0))
    for name, own in by_name.items():
        if name in kept or layout.parse_checkpoint_id(name) > newest:
            continue
        for key in sorted(own, key=lambda k: (not layout.is_commit(job_id, k), k != layout.manifest(job_id, name))):
            if key not in needed:
                store.delete_prefix(key)
