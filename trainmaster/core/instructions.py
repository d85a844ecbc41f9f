"""Which side effects can a decision ask for? Each is data, and each may be carried out twice."""

from __future__ import annotations

from msgspec import Struct

from trainmaster.core.job import AllocationName, CheckpointRef, JobId, Placement


class OpenAttempt(Struct, frozen=True, kw_only=True):
    """Write down what the attempt resumes from."""

    job_id: JobId
    attempt: int
    resumes: CheckpointRef | None
    #: newest accepted commit of each earlier attempt: what is older than them may stand in for a damaged one
    heads: tuple[str, ...] = ()
    #: the job whose checkpoint it is; empty: its own
    of_job: str = ""


class Launch(Struct, frozen=True, kw_only=True):
    """Ask the provider for the machines of an attempt."""

    name: AllocationName
    job_id: JobId
    attempt: int
    placement: Placement
    #: seconds of running left of the job's limit
    run_s_left: float | None


class OrderStop(Struct, frozen=True, kw_only=True):
    """Tell the runner to stop its job, gracefully."""

    name: AllocationName
    job_id: JobId
    attempt: int
    sentence: str
    grace_s: float


class CloseAttempt(Struct, frozen=True, kw_only=True):
    """Make sure that no runner starts or goes on as this attempt."""

    name: AllocationName
    job_id: JobId
    attempt: int
    #: only if no runner has claimed it: one that comes at the last moment is welcome
    if_free: bool = False


class Release(Struct, frozen=True, kw_only=True):
    """Give the machines back; what still runs there is ended."""

    name: AllocationName
    provider: str


class Seal(Struct, frozen=True, kw_only=True):
    """Write the finished record into the object store."""

    job_id: JobId


Instruction = OpenAttempt | Launch | OrderStop | CloseAttempt | Release | Seal
