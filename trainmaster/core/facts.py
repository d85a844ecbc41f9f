"""What may observation say? Every question has a third answer: nobody knows."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from trainmaster.core.inputs import InputSummary
from trainmaster.core.job import CheckpointRef, EnvironmentRef, Machine, Timeline
from trainmaster.core.metrics import MetricSummary


class Seen(StrEnum):
    """Whether an allocation exists."""

    PRESENT = "present"
    #: somebody who knows said so
    GONE = "gone"
    UNKNOWN = "unknown"


class Sighting(Struct, frozen=True, kw_only=True):
    """What a provider says about one allocation."""

    seen: Seen
    #: what the answer rests on, for people
    evidence: str = ""
    #: the provider remembers having launched it; tells "gone" from "never launched"
    was_launched: bool = False
    #: the machine is there, but its runner has ended and will not come back: what still runs there is nobody's
    runner_has_ended: bool = False
    #: asked for and not found: too new to be listed, long gone, or an old answer; nobody ever will know, so the lease decides
    not_found: bool = False
    #: the provider took the machine back, or is about to: its words for it; empty: it says nothing of the kind
    preempted: str = ""


class ClaimState(StrEnum):
    """Who holds the claim of the current attempt."""

    FREE = "free"
    TAKEN = "taken"
    CLOSED = "closed"
    UNKNOWN = "unknown"


class StopSeen(StrEnum):
    """Why a runner ended its process."""

    ORDER = "order"
    RUN_LIMIT = "run_limit"
    #: the machine told the runner to go
    TERMINATED = "terminated"
    #: the claim was found closed
    CLOSED = "closed"


class Heartbeat(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a runner last said about itself."""

    at: datetime
    lease_until: datetime
    state: str
    timeline: Timeline
    commit: CheckpointRef | None = None
    #: the newest step the job reported
    step: int | None = None
    log_bytes: int = 0
    rss_bytes: int = 0
    #: long work under way: what, bytes done, bytes in all
    progress: tuple[str, int, int] | None = None
    #: what the set-up does now, for people; empty: nothing that takes long
    doing: str = ""
    environment: EnvironmentRef | None = None
    #: what was measured so far
    metrics: dict[str, MetricSummary] = {}
    machine: Machine | None = None
    #: what the user should know: a commit that failed, logs dropped, commits suspended
    warnings: list[str] = []
    #: channel → what was read
    inputs: dict[str, InputSummary] = {}


class ExitReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an attempt ended on its machine, as the runner wrote it."""

    timeline: Timeline
    code: int | None = None
    signal: str | None = None
    stop_seen: StopSeen | None = None
    #: what went wrong before the job's process started
    set_up_error: str = ""
    #: and it was the machine's doing: a full disk, no processes to be had
    machine_is_to_blame: bool = False
    #: and it was the environment that the job asked for: its packages, its Python, its set-up commands
    environment_failed: bool = False
    environment: EnvironmentRef | None = None
    #: content of output/failure
    failure: str = ""
    #: last Python traceback in the log
    traceback: str = ""
    #: why we believe that memory ran out
    out_of_memory: str = ""
    max_rss_bytes: int = 0
    cpu_s: float = 0.0
    log_bytes: int = 0
    log_bytes_dropped: int = 0
    commit: CheckpointRef | None = None
    step: int | None = None
    #: what was measured
    metrics: dict[str, MetricSummary] = {}
    machine: Machine | None = None
    #: files written in the working folder that were not kept
    left_behind: list[str] = []
    warnings: list[str] = []
    #: channel → what was read
    inputs: dict[str, InputSummary] = {}


class LaunchRefusal(Struct, frozen=True, kw_only=True):
    """The provider's clear no to a launch."""

    sentence: str
    #: whether another try may succeed
    is_final: bool


class Facts(Struct, frozen=True, kw_only=True):
    """Everything observed about one job in one step."""

    allocation: Sighting
    #: False: the object store gave no answer, so the fields below say nothing
    store_answers: bool = True
    claim: ClaimState = ClaimState.UNKNOWN
    #: the attempt was told to end and its runner, if any, will see it
    is_closed: bool = False
    heartbeat: Heartbeat | None = None
    exit: ExitReport | None = None
    #: newest commit of the current attempt
    commit: CheckpointRef | None = None
    refusal: LaunchRefusal | None = None
    #: whether this provider can confirm that a machine is gone
    confirms_gone: bool = True


NOBODY_KNOWS = Facts(allocation=Sighting(seen=Seen.UNKNOWN), store_answers=False)


class Timing(Struct, frozen=True, kw_only=True):
    """How patient the control plane is; from the configuration."""

    #: how long a heartbeat gives the right to commit
    attempt_lease_s: float = 60.0
    #: added to the lease before an unreachable machine counts as gone, where nobody can confirm it
    lease_margin_s: float = 30.0
    #: from launch to claim
    start_s_max: float = 600.0
    #: the longest a machine may live before it ends itself; a job that runs longer goes on with the next one
    machine_s_max: float = 604_800.0
    #: beyond the grace, before a machine is taken away under a runner that was told to stop
    stop_margin_s: float = 30.0
    #: how often a job is looked at when nothing wakes us
    look_s: float = 2.0
    #: the same while somebody waits to see a job begin or end
    soon_s: float = 0.25
    #: how often what a running job measured is remembered, at most: each time is a write
    measure_s: float = 10.0
    #: how often the database is asked whether others wrote to it
    poll_s: float = 0.1
