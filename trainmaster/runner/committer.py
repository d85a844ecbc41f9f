"""When is the checkpoint folder committed, and how does it come back?

A commit is a consistent snapshot of the whole folder: it lay still for a moment, nobody had a file in it open for writing, and
after copying every file that was copied is still the same. Files go up in parallel, then the manifest, then one marker; without
the marker nothing counts. A file that did not change since an earlier commit is not copied again: the manifest says where its
bytes lie.

Two things stand in for lying still. The script said, with trainmaster.checkpoint(), that what lies there is complete, and nothing
was touched since. Or, after ten times the settling time, a single file keeps changing beside others that lie still: then each
moment in which nobody writes it is a state that the script may be resumed from.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from trainmaster.adapters import host
from trainmaster.core import checkpoints
from trainmaster.core.job import CheckpointRef
from trainmaster.core.messages import Manifest, ManifestFile
from trainmaster.errors import StoreError, StoreFull, StoreRejected
from trainmaster.ports.object_store import BlockingStore
from trainmaster.runner import checkpoint_folder
from trainmaster.runner.checkpoint_folder import EntryPrint, Fingerprint
from trainmaster.runner.stillness import Stillness
from trainmaster.spec import layout
from trainmaster.spec.job_spec import Checkpoints

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_COPIES_AT_ONCE = 4
_RETRY_S = 2.0
#: times the settling time, before a folder that never lies still is a warning, or is taken in spite of one restless file
_PATIENCE = 10
#: how often a script that tells when its checkpoints are complete is listened to
_LISTEN_S = 0.05
#: clocks of files and of the script are compared as fractions of a second, which are rounded
_ROUNDING_S = 1e-5
_PAUSE_S = 1.0
_SPOILED_IS_TROUBLE = 3


class CommitterSettings(Struct, frozen=True, kw_only=True):
    """What a committer works on."""

    job_id: str
    attempt: int
    folder: Path
    rules: Checkpoints


class Script(Protocol):
    """What the script says about its checkpoints."""

    def complete_at_s(self) -> float | None:
        """When it last said that what lies in the folder is complete; None: never."""
        ...

    def step_of(self, changed: list[str]) -> int | None:
        """The step of the files that changed."""
        ...


class Committer:
    """Watches one folder and commits it. One thread calls `look`; `final` is called after that thread ended."""

    def __init__(
        self,
        settings: CommitterSettings,
        store: BlockingStore,
        now: Callable[[], datetime],
        writes: Callable[[Path], str],
        may_commit: Callable[[], bool],
        script: Script,
    ) -> None:
        self._settings = settings
        self._store = store
        self._now = now
        self._writes = writes
        self._may_commit = may_commit
        self._script = script
        self._seq = 0
        self._stillness = Stillness({})
        self._busy_since_s: float | None = None
        #: who was last seen in the middle of writing, and when
        self._writer, self._writer_s = "", -1e9
        #: the newest state that was seen lying still, with no writer, while the job lived
        self._still: Fingerprint | None = None
        self._still_at = now()
        self._committed: Fingerprint = {}
        self._committed_s = -1e9
        self._stored: dict[str, tuple[EntryPrint, ManifestFile]] = {}
        self._not_before_s = 0.0
        self._refusal: Exception | None = None
        #: a checkpoint whose marker may or may not be there
        self._unanswered: tuple[Manifest, Fingerprint] | None = None
        self._spoiled = 0
        #: bytes of the commit under way; whoever is to be told of them, once somebody waits for it
        self._copied, self._to_copy = 0, 0
        self._tell: Callable[[int, int], None] | None = None
        self._counting = threading.Lock()
        self.newest: CheckpointRef | None = None
        self.trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="committer", daemon=True)

    def start(self) -> None:
        """Begin to watch; what was restored counts as committed."""
        self._thread.start()

    def finish(self, *, trusted: bool, is_closed: Callable[[], bool], tell: Callable[[int, int], None]) -> None:
        """The job's processes are gone: commit what may be committed, however long store and lease are away.

        People wait now: `tell` is told how many bytes are copied, and of how many, also of a commit that is under way.
        """
        self._stop.set()
        self._tell = tell
        self._count(0)
        self._thread.join()
        self._settle(is_closed)
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
        looked_s, complete_s = -1e9, None
        while not self._stop.wait(period_s if complete_s is None else min(period_s, _LISTEN_S)):
            said_s, now_s = self._script.complete_at_s(), host.elapsed_s()
            if (said_s != complete_s and self._is_due(now_s)) or now_s - looked_s >= period_s:
                looked_s, complete_s = now_s, said_s
                self._look(complete_s)

    def _look(self, complete_s: float | None) -> None:
        """Commit what lies there if it may be taken. The script's words are older than the look, so they may be about it."""
        now_s = host.elapsed_s()
        print_ = checkpoint_folder.fingerprint(self._settings.folder)
        self._stillness.saw(print_, now_s)
        if print_ == self._committed or not checkpoint_folder.has_work(print_):
            self._busy_since_s = None
            return
        if print_ != self._still:
            hindrance = self._hindrance(print_, now_s, complete_s)
            if hindrance:
                self._complain(now_s, hindrance)
                return
            self._still, self._still_at = print_, self._now()
        if self._is_due(now_s) and self._may_commit():
            self._commit(print_)
            self._to_copy = 0  # nobody waits for it any more

    def _is_due(self, now_s: float) -> bool:
        """However often the script says that it is complete, there is one commit a second at most."""
        rules = self._settings.rules
        pause_s = max(rules.interval, min(rules.settle, _PAUSE_S))
        return now_s >= self._not_before_s and now_s - self._committed_s >= pause_s

    def _hindrance(self, print_: Fingerprint, now_s: float, complete_s: float | None) -> str:
        """Why this state must not be taken, in words; empty when it may."""
        folder, settle_s = self._settings.folder, self._settings.rules.settle
        restless = self._stillness.restless(now_s, settle_s)
        if not (restless and self._is_complete(complete_s)):
            if restless and not self._is_one_restless_file(restless, print_, now_s):
                return f"{restless[-1]} keeps changing"
            if now_s - self._writer_s < settle_s:
                return self._writer  # somebody was in the middle of it, however slowly
        writing = self._writes(folder)
        if writing:
            self._writer, self._writer_s = writing, now_s
            return writing
        if not restless:
            self._busy_since_s = None
        elif checkpoint_folder.fingerprint(folder) != print_:
            return f"{restless[-1]} keeps changing"  # a state seen only once may be one that never was
        return ""

    def _is_complete(self, complete_s: float | None) -> bool:
        """Whether the script said that it is complete, and nothing was written, renamed or removed since."""
        return complete_s is not None and checkpoint_folder.touched_s(self._settings.folder) <= complete_s + _ROUNDING_S

    def _is_one_restless_file(self, restless: list[str], print_: Fingerprint, now_s: float) -> bool:
        """Whether it was waited for long enough, and one file is all that moves. Where nobody can see writers, it never is."""
        is_waited_for = self._busy_s(now_s) > _PATIENCE * self._settings.rules.settle
        return is_waited_for and host.IS_LINUX and len(restless) == 1 and restless[0] in print_

    def _complain(self, now_s: float, why: str) -> None:
        """A folder that never lies still is never committed; its owner must learn that before a crash teaches it."""
        busy_s = self._busy_s(now_s)
        if busy_s > _PATIENCE * self._settings.rules.settle:
            self.trouble = f"no checkpoint could be committed for {busy_s:.0f} s: {why}"

    def _busy_s(self, now_s: float) -> float:
        """For how long something to commit has been there that could not be taken, though its time had come."""
        if self._busy_since_s is None:
            self._busy_since_s = now_s
        return now_s - max(self._busy_since_s, self._committed_s + self._settings.rules.interval)

    def _commit(self, print_: Fingerprint) -> bool:
        """Copy, check, mark. False: not this time, and nothing of it can be seen, unless the marker went unanswered."""
        self._refusal = None
        began_s = host.elapsed_s()
        self._copied, self._to_copy = 0, self._size_to_copy(print_)
        name = layout.checkpoint_id(self._settings.attempt, self._seq + 1)
        try:
            if self._unanswered is not None:
                self._mark(*self._unanswered)
                if self._committed == print_:
                    return True
            self._seq += 1
            manifest = self._copy(name, print_)
            changed = self._changed_under_our_hands(manifest, print_)
            if changed:
                self._give_up(name, changed, began_s)
                return False
            self._store.put(layout.manifest(self._settings.job_id, name), msgspec.json.encode(manifest))
            self._mark(manifest, print_)
        except FileNotFoundError as error:
            self._give_up(name, os.path.basename(error.filename or ""), began_s)
            return False
        except (StoreError, OSError) as error:
            said = error.sentence if isinstance(error, StoreError) else str(error)
            self.trouble = f"checkpoint not committed: {said}"
            self._refusal = error
            self._not_before_s = host.elapsed_s() + _RETRY_S
            if isinstance(error, StoreFull | OSError):
                self._forget(name)
            return False
        return True

    def _changed_under_our_hands(self, manifest: Manifest, print_: Fingerprint) -> str:
        """A file that is not what it was before it was copied. What was not copied, or is new, does not matter: the snapshot
        is of the moment before."""
        after = checkpoint_folder.fingerprint(self._settings.folder)
        copied = [file.path for file in manifest.files if file.stored_in == manifest.id]
        return next((path for path in copied if after.get(path) != print_[path]), "")

    def _give_up(self, name: str, changed: str, began_s: float) -> None:
        """Not this time: a later look takes it. As much time goes by as was lost, so that a slow store is not kept busy in vain."""
        self._forget(name)
        self._not_before_s = 2 * host.elapsed_s() - began_s
        self._spoiled += 1
        if self._spoiled >= _SPOILED_IS_TROUBLE:
            self.trouble = (
                f"no checkpoint could be committed, {self._spoiled} times in a row: {changed} changed while it was copied"
            )

    def _size_to_copy(self, print_: Fingerprint) -> int:
        return sum(print_[path].size for path in checkpoint_folder.files_of(print_) if not self._is_stored(path, print_[path]))

    def _is_stored(self, path: str, seen: EntryPrint) -> bool:
        return path in self._stored and self._stored[path][0] == seen

    def _count(self, size: int) -> None:
        """Called by several threads, each with a file of its own."""
        with self._counting:
            self._copied = min(self._copied + size, self._to_copy)
            if self._tell is not None and self._to_copy:
                self._tell(self._copied, self._to_copy)

    def _copy(self, name: str, print_: Fingerprint) -> Manifest:
        step = self._script.step_of(checkpoint_folder.changed(self._committed, print_))
        with _pool() as pool:
            files = list(pool.map(lambda path: self._copy_one(name, path, print_[path]), checkpoint_folder.files_of(print_)))
        links = [ManifestFile(path=p, size_bytes=0, link=s.link) for p, s in print_.items() if s.kind == "link"]
        parents = {path.rpartition("/")[0] for path in print_}
        folders = [path for path, seen in print_.items() if seen.kind == "folder" and path not in parents]
        return Manifest(id=name, taken_at=self._still_at, step=step, files=files + links, folders=folders)

    def _copy_one(self, name: str, path: str, seen: EntryPrint) -> ManifestFile:
        if self._is_stored(path, seen):
            return self._stored[path][1]
        key = layout.checkpoint_file(self._settings.job_id, name, path)
        stored = self._store.put_file(key, self._settings.folder / path, self._count)
        return ManifestFile(path=path, size_bytes=stored.size_bytes, blake3=stored.blake3, mode=seen.mode, stored_in=name)

    def _mark(self, manifest: Manifest, print_: Fingerprint) -> None:
        """From here on it counts. A marker whose answer was lost is put again, the same, before anything else is committed: were it
        left alone, it could arrive after its checkpoint was removed."""
        if not self._may_commit():
            raise StoreError("the attempt lease ended while copying")
        ref = CheckpointRef(
            id=manifest.id,
            taken_at=manifest.taken_at,
            committed_at=self._now(),
            step=manifest.step,
            size_bytes=sum(file.size_bytes for file in manifest.files),
            files=len(manifest.files),
        )
        self._unanswered = (manifest, print_)
        try:
            # Unlike put, this syncs the names too: manifest and marker outlive a power cut.
            self._store.put_if_absent(layout.commit(self._settings.job_id, manifest.id), msgspec.json.encode(ref))
        except (StoreFull, StoreRejected):
            self._unanswered = None  # a clear no
            raise
        self._unanswered = None
        self.newest = ref
        self._committed, self._committed_s, self._spoiled, self._busy_since_s = print_, host.elapsed_s(), 0, None
        self._stored = {f.path: (print_[f.path], f) for f in manifest.files if not f.link}
        odd = checkpoint_folder.left_out(self._settings.folder)
        self.trouble = f"not part of the checkpoint: {', '.join(odd[:5])} (no plain file, or its name is not UTF-8)" if odd else ""
        self._prune()

    def _settle(self, is_closed: Callable[[], bool]) -> None:
        """A commit that may be there already must be known before the end is written down."""
        while self._unanswered is not None and not is_closed():
            if self._may_commit():
                with contextlib.suppress(StoreError):
                    self._mark(*self._unanswered)
                    return
            threading.Event().wait(_RETRY_S / 4)

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

    def restore(self, ref: CheckpointRef, progress: Callable[[int], None], of_job: str = "") -> None:
        """Bring a checkpoint back and verify it. ValueError says which file is damaged; then nothing of it is left.

        Of another job's checkpoint nothing is referred to later: our first commit has all files of its own.
        """
        source = of_job or self._settings.job_id
        manifest = self._manifest(source, ref.id)
        try:
            self._restore_files(source, ref, manifest, progress)
        except ValueError:
            for file in manifest.files:
                (self._settings.folder / file.path).unlink(missing_ok=True)
            raise
        self._committed = checkpoint_folder.fingerprint(self._settings.folder)
        self._stillness = Stillness(self._committed)
        if source == self._settings.job_id:
            self._stored = {f.path: (self._committed[f.path], f) for f in manifest.files if not f.link}

    def commits(self, of_job: str = "") -> list[CheckpointRef]:
        """Every checkpoint of this job, or of another, with a marker that can be read."""
        source = of_job or self._settings.job_id
        found: list[CheckpointRef] = []
        keys = [entry.key for entry in self._store.list_keys(layout.checkpoints(source))]
        for key in checkpoints.committed(source, keys):
            with contextlib.suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(self._store.get(key) or b"", type=CheckpointRef))
        return found

    def _manifest(self, source: str, name: str) -> Manifest:
        value = self._store.get(layout.manifest(source, name))
        if value is None:
            raise ValueError(f"checkpoint {name} has no manifest")
        try:
            manifest = msgspec.json.decode(value, type=Manifest)
        except msgspec.DecodeError as error:
            raise ValueError(f"checkpoint {name} is damaged: its manifest cannot be read") from error
        outside = checkpoints.name_outside(manifest)
        if outside:
            raise ValueError(f"checkpoint {name} is damaged: its manifest names {outside!r}")
        return manifest

    def _restore_files(self, source: str, ref: CheckpointRef, manifest: Manifest, progress: Callable[[int], None]) -> None:
        for folder in manifest.folders:
            (self._settings.folder / folder).mkdir(parents=True, exist_ok=True)
        with _pool() as pool:
            list(pool.map(lambda file: self._restore_one(source, ref.id, file, progress), manifest.files))

    def _restore_one(self, source: str, name: str, file: ManifestFile, progress: Callable[[int], None]) -> None:
        target = self._settings.folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            target.unlink(missing_ok=True)  # a restore that was cut short may have made it already
            os.symlink(file.link, target)
            return
        key = layout.checkpoint_file(source, file.stored_in, file.path)
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
    """Keep the newest commits, and the files that they refer to."""
    keys = [entry.key for entry in store.list_keys(layout.checkpoints(job_id))]
    kept = checkpoints.kept(job_id, keys, keep, attempt)
    if kept is None:
        return
    needed: set[layout.Key] = set()
    for name in kept:
        value = store.get(layout.manifest(job_id, name))
        files = [] if value is None else msgspec.json.decode(value, type=Manifest).files
        needed.update(layout.checkpoint_file(job_id, f.stored_in, f.path) for f in files if not f.link)
    for key in checkpoints.removable(job_id, keys, kept, needed):
        store.delete_prefix(key)
