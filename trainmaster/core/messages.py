"""What do control plane and runner write for each other into the object store? Plain values with a version."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from trainmaster.core.job import CheckpointRef, Code, Continues, JobRecord, Origin
from trainmaster.spec.job_spec import JobSpec


class JobFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """spec.json: what a runner must know of the job."""

    v: int = 1
    id: str
    spec: JobSpec
    code: Code
    origin: Origin
    seed: int | None = None
    #: environment whose lock is installed as it is, without resolving anything: a key of envs/<key>/lock.txt
    lock: str = ""
    #: wheel folder of the submission, kept in the store: a hash of wheels/<sha256>.json
    wheelhouse: str = ""
    #: the job it goes on from; told here so that other homes that share the store leave it that one's checkpoints
    continues: Continues | None = None


def job_file(job: JobRecord) -> JobFile:
    """What the runners of a job are told of it: derived from the record, so that it can be written again at any time."""
    return JobFile(
        id=job.id,
        spec=job.spec,
        code=job.code,
        origin=job.origin,
        seed=job.seed,
        lock=job.lock,
        wheelhouse=job.wheelhouse,
        continues=job.continues,
    )


class OpenFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """open.json: what an attempt resumes from."""

    v: int = 1
    attempt: int
    resumes: CheckpointRef | None = None
    #: newest accepted commit of each earlier attempt
    heads: list[str] = []
    #: the job whose checkpoint it is, and whose heads these are; empty: its own
    of_job: str = ""


class ClaimFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """claim: who may train as this attempt; no runner at all when it was closed."""

    v: int = 1
    #: name of the claiming runner; empty: closed by the control plane
    runner: str = ""
    at: datetime


class OrderKind(StrEnum):
    """What the control plane may want of a running attempt."""

    STOP = "stop"
    CLOSE = "close"


class OrderFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """order.json: what the control plane wants of a running attempt."""

    v: int = 1
    kind: OrderKind
    sentence: str = ""
    grace_s: float = 0.0


class PrunedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """pruned.json: when everything but record, story, metrics and model was removed."""

    v: int = 1
    at: datetime


class ManifestFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a checkpoint."""

    path: str
    size_bytes: int
    blake3: str = ""
    mode: int = 0o644
    #: the checkpoint whose prefix holds the bytes: this one, or an earlier one when the file did not change
    stored_in: str = ""
    #: for a symbolic link: where it points
    link: str = ""


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """manifest.json: what belongs to a checkpoint."""

    v: int = 1
    id: str
    taken_at: datetime
    step: int | None = None
    files: list[ManifestFile] = []
    #: folders without files in them
    folders: list[str] = []
