"""How is a job written into one file, and what must hold before such a file is believed?

The file is a plain tar: `record.json`, `story.jsonl`, everything below the job's prefix in the store as `store/…`, its code as
`code.tar.zst`, the lock of its environment as `lock.txt`, the wheels of its submission as `wheels.json` and `wheels/…`, and last
`manifest.json`, which names each with its size and hash. What several jobs share is believed only where its name is its hash.
What is cut off has no manifest. Nothing is ever unpacked to a place that the archive names: its files become keys of the store.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from blake3 import blake3
from msgspec import Struct

from trainmaster.adapters.environments.lock_file import parse_lock
from trainmaster.adapters.environments.trouble import EnvironmentTrouble
from trainmaster.adapters.plain_tar import END, NotPlain, TarEntry, file_header, padding, read_entries
from trainmaster.adapters.source_unpack import opened_snapshot
from trainmaster.core import checkpoints, invariants
from trainmaster.core.facts import ExitReport, Heartbeat
from trainmaster.core.job import JobRecord
from trainmaster.core.messages import ClaimFile, JobFile, Manifest, OpenFile, OrderFile, PrunedFile
from trainmaster.core.story import StoryLine
from trainmaster.core.submission import environment_key
from trainmaster.errors import InvalidSource, Refused
from trainmaster.spec import layout

MANIFEST, RECORD, STORY, CODE, LOCK, STORE = "manifest.json", "record.json", "story.jsonl", "code.tar.zst", "lock.txt", "store/"
WHEELS, WHEEL = "wheels.json", "wheels/"
VERSION = 1
_FILES_MAX = 1_000_000
#: What is read into memory to be looked at is not larger.
_LOOK_BYTES_MAX = 64 << 20
#: A snapshot grows to so many times its size when it is read; more is a trap.
_CODE_GROWTH_MAX, _CODE_BYTES_MIN = 200, 4 << 30
_JOB_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_KEY_BYTES_MAX = 900

T = TypeVar("T")


class ArchivedFile(Struct, frozen=True, kw_only=True):
    """One file of an archive."""

    path: str
    size_bytes: int
    blake3: str


class ArchiveManifest(Struct, frozen=True, kw_only=True):
    """manifest.json: what an archive holds."""

    v: int = VERSION
    job: str
    made_by: str = ""
    files: list[ArchivedFile] = []


class Verified(Struct, frozen=True, kw_only=True):
    """An archive that is what it says."""

    record: JobRecord
    story: list[StoryLine]
    files: dict[str, ArchivedFile]
    #: where the lock goes; None: there is none, or none that others may share
    lock: layout.Key | None = None
    #: wheel → hash of its bytes
    wheels: dict[str, str] = {}

    @property
    def size_bytes(self) -> int:
        """How much it holds."""
        return sum(file.size_bytes for file in self.files.values())


class ArchiveWriter:
    """Writes one file after the other, hashed on the way; `close` writes the manifest."""

    def __init__(self, out: Callable[[bytes], object], job_id: str, made_by: str) -> None:
        self._out, self._job_id, self._made_by = out, job_id, made_by
        self.files: list[ArchivedFile] = []

    def add(self, path: str, size_bytes: int, pieces: Iterator[bytes]) -> None:
        """A file of exactly this size; Refused when there is more or less of it."""
        hasher = blake3(max_threads=1)
        done = 0
        self._out(file_header(path, size_bytes))
        for piece in pieces:
            done += len(piece)
            hasher.update(piece)
            self._out(piece)
        if done != size_bytes:
            raise Refused(f"{path} changed while it was read", hint="export again when nothing writes to the store")
        self._out(padding(size_bytes))
        self.files.append(ArchivedFile(path=path, size_bytes=size_bytes, blake3=hasher.hexdigest()))

    def add_value(self, path: str, value: bytes) -> None:
        """A small file."""
        self.add(path, len(value), iter((value,)))

    def close(self) -> None:
        """The manifest, and the end."""
        manifest = ArchiveManifest(job=self._job_id, made_by=self._made_by, files=self.files)
        self.add_value(MANIFEST, msgspec.json.encode(manifest))
        self._out(END)


def verify(path: Path, progress: Callable[[int], None]) -> Verified:
    """Read all of it and believe nothing: Refused says what is wrong. Nothing is written anywhere."""
    try:
        with open(path, "rb") as file:
            return _verified(_read_all(file, progress))
    except NotPlain as error:
        hint = "only what `trainmaster export` wrote is taken in; write it again"
        raise Refused(f"{path} is refused: {error}", hint=hint) from error


def entries_again(file: BinaryIO, wanted: dict[str, ArchivedFile]) -> Iterator[tuple[TarEntry, Callable[[], None]]]:
    """The files of a verified archive, and for each a check to be made once it was read: it may have been changed since."""
    for entry in read_entries(file):
        if entry.path == MANIFEST:
            continue
        hasher = blake3(max_threads=1)

        def pieces(entry: TarEntry = entry, hasher: blake3 = hasher) -> Iterator[bytes]:
            for piece in entry.pieces():
                hasher.update(piece)
                yield piece

        def check(entry: TarEntry = entry, hasher: blake3 = hasher) -> None:
            known = wanted.get(entry.path)
            if known is None or known.blake3 != hasher.hexdigest():
                raise NotPlain(f"{entry.path} was changed while it was read")

        yield TarEntry(entry.path, entry.size_bytes, pieces), check


class _Found(Struct):
    """What one pass over an archive saw."""

    files: dict[str, ArchivedFile]
    #: contents that are looked at in the end; others are looked at on the way, so that an archive may be larger than our memory
    values: dict[str, bytes]
    code_sha256: str = ""
    #: wheel → hash of its bytes
    wheels: dict[str, str] = {}


def _read_all(file: BinaryIO, progress: Callable[[int], None]) -> _Found:
    found = _Found(files={}, values={})
    for entry in read_entries(file):
        if entry.path in found.files or len(found.files) >= _FILES_MAX:
            raise NotPlain(f"{entry.path} is in it twice" if entry.path in found.files else "it holds too many files")
        hasher = blake3(max_threads=1)
        is_looked_at = _is_looked_at(entry.path)
        if is_looked_at and entry.size_bytes > _LOOK_BYTES_MAX:
            raise NotPlain(f"{entry.path} is too large")
        kept: list[bytes] = []

        def pieces(entry: TarEntry = entry, hasher: blake3 = hasher) -> Iterator[bytes]:
            for piece in entry.pieces():
                hasher.update(piece)
                progress(len(piece))
                yield piece

        if entry.path == CODE:
            found.code_sha256 = _snapshot_sha256(pieces(), entry.size_bytes)
        elif entry.path.startswith(WHEEL):
            found.wheels[entry.path.removeprefix(WHEEL)] = _sha256(pieces())
        else:
            for piece in pieces():
                if is_looked_at:
                    kept.append(piece)
        if entry.path in _KEPT:
            found.values[entry.path] = b"".join(kept)
        elif is_looked_at:
            _check_value(entry.path, b"".join(kept))
        found.files[entry.path] = ArchivedFile(path=entry.path, size_bytes=entry.size_bytes, blake3=hasher.hexdigest())
    return found


def _verified(found: _Found) -> Verified:
    record = _record(found)
    files = {path: file for path, file in found.files.items() if path != MANIFEST}
    _refuse_clashes(files)
    story = [_decoded(STORY, line, StoryLine) for line in found.values.get(STORY, b"").splitlines()]
    _check_own(record, found.values)
    code = record.code.sha256
    if code is not None and CODE in files and found.code_sha256 != code:
        raise NotPlain(f"{CODE} is not the code that the job ran")
    if code is None and CODE in files:
        raise NotPlain(f"it holds {CODE}, but the job ran in place")
    return Verified(record=record, story=story, files=files, lock=_lock(record, found), wheels=_wheels(record, found))


def _check_own(record: JobRecord, values: dict[str, bytes]) -> None:
    """What lies in the store of the job itself is the same job's."""
    sealed, spec = f"{STORE}record.json", f"{STORE}spec.json"
    if sealed in values and _decoded(sealed, values[sealed], JobRecord) != record:
        raise NotPlain(f"{sealed} is the record of another job")
    if spec in values and _decoded(spec, values[spec], JobFile).id != record.id:
        raise NotPlain(f"{spec} belongs to another job")


def lock_name(record: JobRecord) -> str:
    """Name of the environment that the job ran in, or was to run in; empty: it had none of its own."""
    return environment_key(record) or record.lock


def _lock(record: JobRecord, found: _Found) -> layout.Key | None:
    """All jobs of a home share locks: only one whose name is the hash of what it says is believed."""
    if LOCK not in found.values:
        return None
    try:
        lock = parse_lock(found.values[LOCK].decode(), LOCK)
    except (EnvironmentTrouble, UnicodeDecodeError) as error:
        raise NotPlain(f"{LOCK} cannot be read") from error
    if lock.head.kind == "conda":
        return None  # it is named by what was asked for, not by what it says
    if lock.key != lock_name(record):
        raise NotPlain(f"{LOCK} is not that of the environment the job ran in")
    return layout.environment_lock(lock.key)


def _wheels(record: JobRecord, found: _Found) -> dict[str, str]:
    """The same of wheels."""
    if WHEELS not in found.values and not found.wheels:
        return {}
    value = found.values.get(WHEELS, b"")
    if hashlib.sha256(value).hexdigest() != record.wheelhouse:
        raise NotPlain(f"{WHEELS} is not that of the job")
    wanted = _decoded(WHEELS, value, dict[str, str])
    for name in sorted(wanted.keys() | found.wheels.keys()):
        if wanted.get(name) != found.wheels.get(name):
            raise NotPlain(f"{WHEEL}{name} is not the wheel of that name in {WHEELS}")
    return wanted


def _record(found: _Found) -> JobRecord:
    """The record that the manifest and the rest belong to."""
    if MANIFEST not in found.values:
        raise NotPlain(f"it has no {MANIFEST}: it was not written by `trainmaster export`, or is cut off")
    version = _decoded(MANIFEST, found.values[MANIFEST], dict[str, object]).get("v")
    if version != VERSION:
        raise NotPlain(f"its {MANIFEST} has version {version}; this Trainmaster reads {VERSION}")
    manifest = _decoded(MANIFEST, found.values[MANIFEST], ArchiveManifest)
    named = {file.path: file for file in manifest.files}
    seen = {path: file for path, file in found.files.items() if path != MANIFEST}
    for path in sorted(named.keys() | seen.keys()):
        if named.get(path) != seen.get(path):
            wrong = "is missing" if path not in seen else f"is not named in {MANIFEST}" if path not in named else "was changed"
            raise NotPlain(f"{path} {wrong}")
    if RECORD not in found.values:
        raise NotPlain(f"{RECORD} is missing")
    raw = _decoded(RECORD, found.values[RECORD], dict[str, object])
    if raw.get("v", 1) != 1:
        raise NotPlain(f"its record has version {raw.get('v')}; a newer Trainmaster wrote it")
    record = _decoded(RECORD, found.values[RECORD], JobRecord)
    if not _JOB_ID.fullmatch(record.id) or record.id == "last" or record.id != manifest.job:
        raise NotPlain(f"the id in its record, {record.id[:80]!r}, is none")
    if not record.is_finished:
        raise NotPlain(f"{record.id} has not finished in it: it is {record.phase.value}")
    broken = invariants.broken(record)
    if broken or (record.code.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", record.code.sha256)):
        raise NotPlain(f"its record cannot be: {'; '.join(broken) or 'the hash of its code is none'}")
    return record


def _refuse_clashes(files: dict[str, ArchivedFile]) -> None:
    """Names we know, and none that is a file and a folder at once."""
    folders = {path[:at] for path in files for at, letter in enumerate(path) if letter == "/"}
    for path in files:
        is_wheel = path.startswith(WHEEL) and "/" not in path.removeprefix(WHEEL)
        if path not in {RECORD, STORY, CODE, LOCK, WHEELS} and not is_wheel and not path.startswith(STORE):
            raise NotPlain(f"{path} does not belong into it")
        if path in folders or len(path.encode()) > _KEY_BYTES_MAX:
            raise NotPlain(f"{path[:200]} is a file and a folder at once, or too long")


_FILE_KINDS: dict[str, type[Struct]] = {"open.json": OpenFile, "claim": ClaimFile, "order.json": OrderFile}
_NODE_KINDS: dict[str, type[Struct]] = {"exit.json": ExitReport, "heartbeat.json": Heartbeat}


#: What is looked at once all of it was read.
_KEPT = frozenset({MANIFEST, RECORD, STORY, LOCK, WHEELS, f"{STORE}record.json", f"{STORE}spec.json"})


def _is_looked_at(path: str) -> bool:
    if path in _KEPT:
        return True
    parts = path.removeprefix(STORE).split("/")
    if not path.startswith(STORE):
        return False
    match parts:
        case ["pruned.json"]:
            return True
        case ["attempts", _, name]:
            return name in _FILE_KINDS
        case ["attempts", _, _, name]:
            return name in _NODE_KINDS
        case ["attempts", _, _, "metrics", _]:
            return True
        case ["checkpoints", _, name]:
            return name in {"COMMIT", "manifest.json"}
        case _:
            return False


def _check_value(path: str, value: bytes) -> None:
    """What commands read must be readable; they trust their store."""
    match path.removeprefix(STORE).split("/"):
        case ["pruned.json"]:
            _decoded(path, value, PrunedFile)
        case ["attempts", _, name]:
            _decoded(path, value, _FILE_KINDS[name])
        case ["attempts", _, _, name]:
            _decoded(path, value, _NODE_KINDS[name])
        case ["attempts", _, _, "metrics", seq]:
            if not seq.isdecimal() or not all(isinstance(_decoded_json(path, line), dict) for line in value.splitlines()):
                raise NotPlain(f"{path} cannot be read")
        case ["checkpoints", name, "COMMIT"]:
            if checkpoints.read_marker(name, value) is None:
                raise NotPlain(f"{path} belongs to another checkpoint")
        case ["checkpoints", _, _]:
            if checkpoints.name_outside(_decoded(path, value, Manifest)):
                raise NotPlain(f"{path} names files outside of it")
        case _:
            return


def _decoded(path: str, value: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotPlain(f"{path} cannot be read: {str(error)[:150]}") from error


def _decoded_json(path: str, line: bytes) -> object:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotPlain(f"{path} cannot be read: {str(error)[:150]}") from error
    return found


def _sha256(pieces: Iterator[bytes]) -> str:
    sha256 = hashlib.sha256()
    for piece in pieces:
        sha256.update(piece)
    return sha256.hexdigest()


def _snapshot_sha256(pieces: Iterator[bytes], size_bytes: int) -> str:
    """The hash that is a snapshot's name, of what it grows to; whatever is in it stays there."""
    sha256, left = hashlib.sha256(), max(_CODE_BYTES_MIN, _CODE_GROWTH_MAX * size_bytes)
    try:
        stream = opened_snapshot(_Pieces(pieces))
        while data := stream.read(1 << 20):
            sha256.update(data)
            left -= len(data)
            if left < 0:
                raise NotPlain(f"{CODE} grows beyond all bounds when it is read")
    except InvalidSource as error:
        raise NotPlain(f"{CODE} cannot be read: {error.sentence}") from error
    for _ in pieces:
        pass
    return sha256.hexdigest()


class _Pieces(io.RawIOBase):
    """Pieces as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not self._rest:
            self._rest = next(self._pieces, b"")
        data, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return data


def store_key(job_id: str, path: str) -> layout.Key:
    """Where a file of an archive lies in the store."""
    return layout.Key(f"{layout.job(job_id)}/{path.removeprefix(STORE)}")
