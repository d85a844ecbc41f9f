"""How does a job move to another home? `export` writes it into one file, `import` takes it in, all of it or nothing.

An import writes a note first, then the files, then, in one transaction, record and story: whoever is killed before that has left
files of no job, and the note by which keeping house finds and removes them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from trainmaster import __version__
from trainmaster.core.job import JobRecord
from trainmaster.core.story import StoryLine
from trainmaster.embedded.session import Embedded
from trainmaster.errors import Refused, RevisionConflict
from trainmaster.spec import layout
from trainmaster.spec.layout import Key

if TYPE_CHECKING:
    from trainmaster.adapters.job_archive import ArchiveWriter, Verified
    from trainmaster.adapters.plain_tar import TarEntry

_PART_BYTES = 8 << 20

#: what is done, how much of it, and of how much
Told = Callable[[str, int, int], None]


class Exported(Struct, frozen=True, kw_only=True):
    """A job in a file."""

    job: str
    file: str
    files: int
    size_bytes: int


async def export_job(embedded: Embedded, job: JobRecord, target: Path, progress: Told, *, checkpoints: bool = True) -> Exported:
    """Write a finished job into a new file, which takes its name when it is complete."""
    from trainmaster.adapters.folder_files import replacing, write_all
    from trainmaster.adapters.job_archive import ArchiveWriter

    if not job.is_finished:
        raise Refused(f"{job.id} has not finished", hint=f"wait for it: trainmaster wait {job.id}")
    story = await embedded.ports.database.story(job.id)
    prefix = layout.job(job.id)
    entries = [e for e in embedded.store.list_keys(prefix) if checkpoints or not e.key.startswith(f"{layout.checkpoints(job.id)}/")]
    total, done = sum(entry.size_bytes for entry in entries) + job.code.size_bytes, 0
    with replacing(target) as descriptor:

        def out(piece: bytes) -> None:
            nonlocal done
            write_all(descriptor, piece)
            done += len(piece)
            progress("exporting", min(done, total), total)

        archive = ArchiveWriter(out, job.id, f"trainmaster {__version__}")
        archive.add_value("record.json", msgspec.json.encode(job))
        archive.add_value("story.jsonl", b"".join(msgspec.json.encode(line) + b"\n" for line in story))
        for entry in entries:
            archive.add(f"store/{entry.key[len(prefix) + 1 :]}", entry.size_bytes, _pieces(embedded, entry.key, entry.size_bytes))
        _add_shared(embedded, job, archive)
        archive.close()
        os.fsync(descriptor)
        size_bytes = os.fstat(descriptor).st_size
    return Exported(job=job.id, file=str(target), files=len(archive.files), size_bytes=size_bytes)


def _add_shared(embedded: Embedded, job: JobRecord, archive: ArchiveWriter) -> None:
    """What lies in the store once for several jobs: the snapshot of code, the lock of the environment, the wheels."""
    from trainmaster.adapters.job_archive import CODE, LOCK, WHEEL, WHEELS, lock_name

    if job.code.sha256 is not None:
        _add_object(embedded, job, archive, CODE, layout.code(job.code.sha256))
    lock = embedded.store.get(layout.environment_lock(lock_name(job))) if lock_name(job) else None
    if lock is not None:
        archive.add_value(LOCK, lock)
    wheels = embedded.store.get(layout.wheelhouse(job.wheelhouse)) if job.wheelhouse else None
    if wheels is not None:
        archive.add_value(WHEELS, wheels)
        for name, sha256 in msgspec.json.decode(wheels, type=dict[str, str]).items():
            _add_object(embedded, job, archive, f"{WHEEL}{name}", layout.wheel(sha256, name))


def _add_object(embedded: Embedded, job: JobRecord, archive: ArchiveWriter, path: str, key: Key) -> None:
    size = _size(embedded, key)
    if size is None:
        what = "the code" if path == "code.tar.zst" else path
        raise Refused(f"{what} of {job.id} is no longer in the store", hint="the rest of it can still be pulled")
    archive.add(path, size, _pieces(embedded, key, size))


def _size(embedded: Embedded, key: Key) -> int | None:
    parent = key.rpartition("/")[0]
    return next((entry.size_bytes for entry in embedded.store.list_keys(Key(parent)) if entry.key == key), None)


def _pieces(embedded: Embedded, key: Key, size_bytes: int) -> Iterator[bytes]:
    """An object part by part; it ends early, or goes on a byte too long, when it was changed."""
    start = 0
    while start <= size_bytes:
        piece = embedded.store.get_range(key, start, min(_PART_BYTES, size_bytes - start + 1))
        if not piece:
            return
        start += len(piece)
        yield piece


class Imported(Struct, frozen=True, kw_only=True):
    """What came of an archive."""

    job: str
    was_here: bool
    files: int
    size_bytes: int


async def import_job(embedded: Embedded, source: Path, progress: Told) -> Imported:
    """Verify all of an archive, then take it in; a job that is here already is left as it is."""
    from trainmaster.adapters.job_archive import verify
    from trainmaster.adapters.plain_tar import NotPlain

    total, done = os.stat(source).st_size, 0

    def checked(count: int) -> None:
        nonlocal done
        done += count
        progress("checking", min(done, total), total)

    archive = verify(source, checked)
    job_id = archive.record.id
    found = Imported(job=job_id, was_here=False, files=len(archive.files), size_bytes=archive.size_bytes)
    with embedded.home.importing(job_id) as was_begun:
        await embedded.house.finish()
        if await _is_here(embedded, archive.record):
            embedded.home.end_import(job_id)
            return msgspec.structs.replace(found, was_here=True)
        if not was_begun and next(iter(embedded.store.list_keys(layout.job(job_id))), None) is not None:
            hint = "another home keeps it there; or remove it: trainmaster prune --unknown"
            raise Refused(f"the store holds files of a job {job_id} that this home does not know", hint=hint)
        embedded.home.begin_import(job_id)
        try:
            if was_begun:
                embedded.store.delete_prefix(layout.job(job_id))
            with ExitStack() as held:
                _put_files(embedded, source, archive, progress, held)
                await _remember(embedded, archive, source)
        except NotPlain as error:
            await _take_back(embedded, archive.record)
            raise Refused(f"{source} is refused: {error}", hint="nothing was taken in; try again") from error
        except BaseException:
            await _take_back(embedded, archive.record)
            raise
        embedded.home.end_import(job_id)
    return found


async def _is_here(embedded: Embedded, record: JobRecord) -> bool:
    known = await embedded.ports.database.load(record.id)
    if known is not None and known != record:
        raise Refused(f"there is another job {record.id} here", hint="nothing was changed; delete that one first if it may go")
    return known is not None


async def _remember(embedded: Embedded, archive: Verified, source: Path) -> None:
    now = embedded.ports.clock.now()
    said = f"{embedded.user} took it in from {source.name}, as it was on {archive.record.origin.host}."
    line = StoryLine(at=now, event="imported", sentence=said, rule="asked by a user")
    try:
        await embedded.ports.database.add(archive.record, [*archive.story, line], None)
    except RevisionConflict as error:
        raise Refused(f"a job {archive.record.id} came from elsewhere meanwhile", hint="try again") from error


async def _take_back(embedded: Embedded, record: JobRecord) -> None:
    """Nothing is left of an import that failed, unless the job is here after all. Where that cannot be done, the note stays."""
    if await embedded.ports.database.load(record.id) is None:
        embedded.store.delete_prefix(layout.job(record.id))
    embedded.home.end_import(record.id)


def _put_files(embedded: Embedded, source: Path, archive: Verified, progress: Told, held: ExitStack) -> None:
    from trainmaster.adapters.job_archive import CODE, WHEELS, entries_again

    total, done = archive.size_bytes, 0
    with open(source, "rb") as file:
        for entry, check in entries_again(file, archive.files):
            key = _key(archive, entry.path)
            if entry.path in {CODE, WHEELS}:
                held.enter_context(embedded.home.submitting())  # until the job that needs it is remembered
            if key is not None:
                _put(embedded, key, entry, check)
            done += entry.size_bytes
            progress("importing", done, total)


def _key(archive: Verified, path: str) -> Key | None:
    """Where a file goes; None: it is kept elsewhere."""
    from trainmaster.adapters.job_archive import CODE, LOCK, STORE, WHEEL, WHEELS, store_key

    record = archive.record
    if path.startswith(STORE):
        return store_key(record.id, path)
    if path == CODE and record.code.sha256 is not None:
        return layout.code(record.code.sha256)
    if path == WHEELS:
        return layout.wheelhouse(record.wheelhouse)
    if path.startswith(WHEEL):
        name = path.removeprefix(WHEEL)
        return layout.wheel(archive.wheels[name], name)
    return archive.lock if path == LOCK else None


def _put(embedded: Embedded, key: Key, entry: TarEntry, check: Callable[[], None]) -> None:
    """What several jobs may share is left as it is where it is there; everything is durable before the job counts."""
    is_shared = not key.startswith("jobs/")
    if entry.size_bytes <= _PART_BYTES:
        value = b"".join(entry.pieces())
        check()
        if is_shared:
            embedded.store.put_if_absent(key, value)
        else:
            embedded.store.put(key, value)
        return
    if is_shared and embedded.store.get_range(key, 0, 0) is not None:
        return
    folder = embedded.config.home_path / "packing"
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f"{secrets.token_hex(8)}.import"
    try:
        with open(staged, "wb") as file:
            for piece in entry.pieces():
                file.write(piece)
        check()
        embedded.store.put_file(key, staged)
    finally:
        staged.unlink(missing_ok=True)
