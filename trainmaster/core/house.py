"""What of the jobs that are over may go, who still needs it, and what takes how much room?

A job stays while another one may still restore its checkpoint, and while its study has jobs that have not finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from trainmaster.core.job import JobRecord, Outcome, Phase, StudyRef
from trainmaster.core.search import Search
from trainmaster.spec import layout
from trainmaster.spec.layout import Key

#: Parts of a job in the store, as `du` shows them.
PARTS = ("checkpoints", "logs", "model", "output", "other")

#: What goes from a job whose model is kept: checkpoints, logs and other outputs. Record, story, metrics and model stay.
_THINNED = frozenset({"checkpoints", "output", "working", "tensorboard", "profiler"})
_OUTPUTS = _THINNED - {"checkpoints"}


class CodeLink(Struct, frozen=True):
    """Which snapshot of code a job has."""

    sha256: str | None = None


class ContinuesLink(Struct, frozen=True, kw_only=True):
    """Which job a job goes on from."""

    job: str
    #: None: that one had committed nothing
    checkpoint: object = None
    checkpoint_of: str = ""


class JobLinks(Struct, frozen=True, kw_only=True):
    """What a record, or a spec in the store, says about what it needs: read from the same bytes, several times faster.

    So little is read that those of a newer release are understood, too. A spec tells nothing of how far the job is.
    """

    id: str
    code: CodeLink
    phase: Phase = Phase.QUEUED
    outcome: Outcome | None = None
    #: its newest accepted commit
    head: object = None
    continues: ContinuesLink | None = None
    study: StudyRef | None = None


class Wish(Struct, frozen=True, kw_only=True):
    """What may go: jobs that finished so long ago, and fit."""

    older_than_s: float | None = None
    keep_models: bool = False
    outcomes: tuple[Outcome, ...] = ()
    name: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    where: Search | None = None
    #: only the jobs of this study, also those that were run anew
    study: str | None = None
    #: also what lies in the store under jobs that this home does not know
    unknown: bool = False


class Item(Struct, frozen=True, kw_only=True):
    """One thing that would go."""

    #: job, model_kept, leftover, unknown, code or packing
    kind: str
    name: str
    size_bytes: int
    objects: int = 1
    why: str = ""
    job: JobRecord | None = None
    keys: tuple[Key, ...] = ()


class Plan(Struct, frozen=True, kw_only=True):
    """What would go, and what was chosen and stays."""

    items: tuple[Item, ...] = ()
    #: every job that was chosen and may go, also where nothing of it is left to go
    going: frozenset[str] = frozenset()
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        """How much room there would be."""
        return sum(item.size_bytes for item in self.items)


class JobUsage(Struct, frozen=True, kw_only=True):
    """What one job takes. `total` has its code only when no other job has it, too."""

    job: str
    checkpoints: int = 0
    #: logs and metrics
    logs: int = 0
    model: int = 0
    output: int = 0
    other: int = 0
    code: int = 0
    is_code_shared: bool = False
    #: False: a job in the store that this home does not know
    is_known: bool = True
    total: int = 0


class Usage(Struct, frozen=True, kw_only=True):
    """What everything takes."""

    jobs: tuple[JobUsage, ...]
    shared_code: int = 0
    unused_code: int = 0
    elsewhere: int = 0
    store_total: int = 0
    home: dict[str, int] = {}


def needs_checkpoint_of(job: JobLinks) -> str | None:
    """The job whose checkpoint this one, or whoever goes on from it, may still restore; None: it has its own, or needs none."""
    continues = job.continues
    if job.head is not None or job.outcome is Outcome.SUCCEEDED or continues is None or continues.checkpoint is None:
        return None
    return continues.checkpoint_of or continues.job


def references(jobs: Iterable[JobLinks]) -> dict[str, tuple[str, ...]]:
    """For each job that others need: which they are."""
    found: dict[str, dict[str, None]] = {}
    for job in jobs:
        named = [needs_checkpoint_of(job)]
        if job.phase is not Phase.FINISHED and job.study is not None:
            named.append(job.study.batch)  # those submitted together share what the home holds of the first
        for name in named:
            if name and name != job.id:
                found.setdefault(name, {})[job.id] = None
    return {name: tuple(ids) for name, ids in found.items()}


def codes_in_use(jobs: Iterable[JobLinks]) -> frozenset[str]:
    """Snapshots that some job has."""
    return frozenset(job.code.sha256 for job in jobs if job.code.sha256 is not None)


def why_kept(chosen: Sequence[JobRecord], jobs: Iterable[JobLinks]) -> dict[str, str]:
    """Which of the chosen jobs stay, and why: not finished, nor their study, or needed by one that stays. Others may go."""
    known = list(jobs)
    needed_by = references(known)
    at_work = {job.study.id: job.id for job in known if job.study is not None and job.phase is not Phase.FINISHED}
    kept = {
        str(job.id): f"{at_work[job.study.id]} of its study has not finished"
        for job in chosen
        if job.study is not None and job.study.id in at_work
    }
    kept |= {str(job.id): "it has not finished" for job in chosen if not job.is_finished}
    going = {str(job.id) for job in chosen} - kept.keys()
    while True:
        needed = {
            job_id: next((other for other in needed_by.get(job_id, ()) if other not in going), "") for job_id in sorted(going)
        }
        staying = {job_id: f"{other} needs it" for job_id, other in needed.items() if other}
        if not staying:
            return kept
        kept |= staying
        going -= staying.keys()


def part_of(job_id: str, key: str) -> str:
    """Which part of a job an object of it belongs to."""
    parts = key.removeprefix(f"{layout.job(job_id)}/").split("/")
    if parts[0] in {"checkpoints", "model"} and len(parts) > 1:
        return parts[0]
    if parts[0] in _OUTPUTS:
        return "output"
    return "logs" if parts[0] == "attempts" and len(parts) == 5 and parts[3] in {"log", "metrics"} else "other"


def thinned(job_id: str, keys: Iterable[Key]) -> list[Key]:
    """What goes from a job whose model is kept, as prefixes; empty when it has gone already."""
    found: dict[Key, None] = {}
    for key in keys:
        parts = key.removeprefix(f"{layout.job(job_id)}/").split("/")
        if parts[0] in _THINNED and len(parts) > 1:
            found[Key(f"{layout.job(job_id)}/{parts[0]}")] = None
        elif parts[0] == "attempts" and len(parts) == 5 and parts[3] == "log":
            found[Key(key.rpartition("/")[0])] = None
    return list(found)


def job_of(key: str) -> str | None:
    """Which job an object belongs to; None: to none."""
    parts = key.split("/", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "jobs" else None


def code_of(key: str) -> str | None:
    """Which snapshot of code an object is; None: it is none."""
    name = key.removeprefix("code/").removesuffix(".tar.zst")
    return name if key == layout.code(name) and "/" not in name else None
