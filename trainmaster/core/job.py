"""What do we remember about a job? Its record, the words for its life, and the names derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NewType

from msgspec import Struct, field

from trainmaster.core.inputs import InputSummary
from trainmaster.core.metrics import MetricSummary, combined
from trainmaster.spec.job_spec import JobSpec

JobId = NewType("JobId", str)
AllocationName = NewType("AllocationName", str)

#: Environment variable that every process of an attempt carries; it is how leftovers are found when the runner is gone.
ALLOCATION_MARK = "TM_ALLOCATION"


class Phase(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    PLACING = "placing"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"


class Outcome(StrEnum):
    """How a job finished."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class Budget(StrEnum):
    """What a retry is paid from."""

    FAILURES = "failures"
    INTERRUPTIONS = "interruptions"


class EndingKind(StrEnum):
    """How an attempt ended; the job's outcome is decided from it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    NO_CAPACITY = "no_capacity"
    #: the provider will never do it; trying again cannot help
    REFUSED = "refused"


class Reason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A short code for programs, a sentence for people, and what they rest on."""

    code: str
    sentence: str
    evidence: dict[str, str] = {}


class Ending(Struct, frozen=True, kw_only=True):
    """How an attempt ended, and why."""

    kind: EndingKind
    reason: Reason


class Code(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which code a job runs: a snapshot by hash, or a folder in place."""

    sha256: str | None = None
    size_bytes: int = 0
    files: int = 0
    commit: str | None = None
    dirty: bool = False
    folder: str = ""
    in_place: bool = False
    left_out: list[str] = []


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who submitted the job, from where, with which interpreter."""

    user: str
    host: str
    folder: str
    python: str
    version: str


class Placement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler's choice of provider and resources."""

    provider: str
    cpus: float
    memory: int = 0
    gpus: tuple[int, ...] = ()


class CheckpointRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A committed checkpoint."""

    id: str
    #: when the folder lay still as it was saved: work before this moment is kept
    taken_at: datetime
    committed_at: datetime
    step: int | None = None
    size_bytes: int = 0
    files: int = 0


class Machine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt ran on, as its runner found it."""

    host: str = ""
    #: the processor by name
    cpu: str = ""
    cpus: int = 0
    memory: int = 0
    #: the GPUs it was given, by name
    gpus: tuple[str, ...] = ()


class StudyRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which study a job belongs to, and which of its combinations it tries."""

    id: str
    #: counted from 1
    index: int
    #: how many of the study's jobs may hold machines at one time; None: as many as fit
    max_parallel: int | None = None
    #: the jobs that were submitted together share one environment of their submitter, kept under this name
    batch: str = ""


class Continues(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that this one goes on from, and what of it."""

    job: JobId
    #: its accepted head; None: it had committed nothing
    checkpoint: CheckpointRef | None = None
    #: newest accepted commit of each of its attempts: what is older than them may stand in for a damaged one
    heads: list[str] = []
    #: the job whose checkpoint it is, when that one had itself only gone on from another
    checkpoint_of: str = ""

    @property
    def source(self) -> JobId:
        """The job whose checkpoint it is."""
        return JobId(self.checkpoint_of) if self.checkpoint_of else self.job


class Timeline(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a runner did what, by its own clock."""

    claimed_at: datetime | None = None
    set_up_at: datetime | None = None
    #: the data are there; None: the job has no inputs
    fetched_at: datetime | None = None
    restored_at: datetime | None = None
    exited_at: datetime | None = None
    uploaded_at: datetime | None = None
    last_seen_at: datetime | None = None


class EnvironmentRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The environment an attempt ran in; its lock lies in the store under its key."""

    key: str
    #: implementation and version, such as ``cpython 3.11.7``
    python: str
    platform: str = ""
    packages: int = 0
    #: how long it took until it was there
    seconds: float = 0.0
    #: somebody had built it before
    was_there: bool = False


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try at running a job."""

    number: int
    waiting_since: datetime
    placed_at: datetime
    placement: Placement
    #: accepted head when this attempt was opened: what it resumes from
    resumes: CheckpointRef | None = None
    timeline: Timeline = field(default_factory=Timeline)
    #: newest accepted commit of this attempt
    head: CheckpointRef | None = None
    #: for how long every look found its lease over and nobody who could tell more; None: it is heard
    silent_s: float | None = None
    ending: Ending | None = None
    ended_at: datetime | None = None
    charged: Budget | None = None
    #: what was measured, in a few numbers each
    metrics: dict[str, MetricSummary] = {}
    machine: Machine | None = None
    #: what was built for it; None: the submitter's interpreter as it is
    environment: EnvironmentRef | None = None
    #: channel → what was read
    inputs: dict[str, InputSummary] = {}


class StopRequest(Struct, frozen=True, kw_only=True):
    """Somebody wants the job to end."""

    at: datetime
    by: str
    reason: Reason


class JobRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What we remember; changes only by commit."""

    v: int = 1
    id: JobId
    revision: int = 0
    spec: JobSpec
    code: Code
    origin: Origin
    submitted_at: datetime
    updated_at: datetime
    phase: Phase
    #: start of the current wait: submission, or the end of the last attempt
    waiting_since: datetime
    #: not placed before this moment: the pause before a retry
    not_before: datetime | None = None
    #: why it is still queued, as the scheduler sees it
    waits_for: str = ""
    attempts: tuple[Attempt, ...] = ()
    #: how the current attempt ends, once that is known and its machine is not yet given back
    ending: Ending | None = None
    #: newest accepted checkpoint over all attempts
    head: CheckpointRef | None = None
    failures: int = 0
    interruptions: int = 0
    stop: StopRequest | None = None
    outcome: Outcome | None = None
    reason: Reason | None = None
    finished_at: datetime | None = None
    #: what the script may begin its random numbers with
    seed: int | None = None
    study: StudyRef | None = None
    #: a stopped or failed job goes on as this one
    continues: Continues | None = None
    #: the job whose record this one repeats
    reruns: str = ""
    #: key of the environment to use again; empty: resolved anew
    lock: str = ""
    #: wheel folder of the submission, kept in the store; empty: it had none
    wheelhouse: str = ""

    @property
    def attempt(self) -> int:
        """Number of the newest attempt; 0 before the first."""
        return len(self.attempts)

    @property
    def current(self) -> Attempt:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def metrics(self) -> Mapping[str, MetricSummary]:
        """What was measured in all attempts together."""
        return combined(attempt.metrics for attempt in self.attempts)

    @property
    def inputs(self) -> Mapping[str, InputSummary]:
        """What the newest attempt that got so far read, by channel."""
        return next((attempt.inputs for attempt in reversed(self.attempts) if attempt.inputs), {})

    @property
    def is_finished(self) -> bool:
        """Whether the job has reached its end."""
        return self.phase is Phase.FINISHED


def allocation_name(job_id: JobId, attempt: int) -> AllocationName:
    """Name of the machines of one attempt; derived, so that a crash between asking and remembering loses nothing."""
    return AllocationName(f"{job_id}-a{attempt}")


def parse_allocation_name(name: str) -> tuple[JobId, int] | None:
    """Job and attempt of an allocation; None when the name is not one of ours."""
    job_id, _, number = name.rpartition("-a")
    return (JobId(job_id), int(number)) if job_id and number.isascii() and number.isdigit() else None
