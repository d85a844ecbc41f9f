"""What does a job, a fact or a report look like in a test? Each builder makes a whole, valid value; a test names only what matters.

Moments are numbers of seconds after `T0`, so that a test reads ``at(90)`` instead of a date.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from trainmaster.core import endings, invariants
from trainmaster.core.facts import ClaimState, ExitReport, Facts, Heartbeat, LaunchRefusal, Seen, Sighting, StopSeen, Timing
from trainmaster.core.job import (
    Attempt,
    Budget,
    CheckpointRef,
    Code,
    Ending,
    EndingKind,
    JobId,
    JobRecord,
    Origin,
    Outcome,
    Phase,
    Placement,
    Reason,
    StopRequest,
    Timeline,
)
from trainmaster.core.story import StoryLine
from trainmaster.spec.job_spec import JobSpec, Limits, Resources, Retry
from trainmaster.spec.layout import checkpoint_id

#: When every built job was submitted.
T0 = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TIMING = Timing()


def at(seconds: float) -> datetime:
    """A moment, in seconds after T0."""
    return T0 + timedelta(seconds=seconds)


def a_spec(
    *,
    name: str = "train",
    retry: Retry | None = None,
    limits: Limits | None = None,
    resources: Resources | None = None,
    priority: int = 0,
    tags: dict[str, str] | None = None,
) -> JobSpec:
    """A small job; `retry`, `limits` and `resources` as given."""
    return JobSpec(
        name=name,
        entry_point="train.py",
        retry=retry or Retry(),
        limits=limits or Limits(),
        resources=resources or Resources(),
        priority=priority,
        tags=tags or {},
    )


def a_placement(*, cpus: float = 1.0, memory: int = 0, gpus: tuple[int, ...] = ()) -> Placement:
    """A place on this machine."""
    return Placement(provider="local", cpus=cpus, memory=memory, gpus=gpus)


def a_reason(code: str = "stopped", sentence: str = "Enough.") -> Reason:
    """Why something ended."""
    return Reason(code=code, sentence=sentence)


def a_stop(*, seconds: float = 0.0, by: str = "ada") -> StopRequest:
    """Somebody wants the job to end."""
    return StopRequest(at=at(seconds), by=by, reason=a_reason())


def an_ending(kind: EndingKind = EndingKind.INTERRUPTED) -> Ending:
    """How an attempt ended."""
    return Ending(kind=kind, reason=a_reason(kind.value, f"It was {kind.value}."))


def a_commit(attempt: int = 1, seq: int = 1, *, seconds: float = 30.0, step: int | None = None) -> CheckpointRef:
    """A committed checkpoint, taken at `seconds` and committed a second later."""
    return CheckpointRef(id=checkpoint_id(attempt, seq), taken_at=at(seconds), committed_at=at(seconds + 1), step=step)


def a_timeline(
    *,
    claimed: float | None = None,
    set_up: float | None = None,
    restored: float | None = None,
    exited: float | None = None,
    uploaded: float | None = None,
    last_seen: float | None = None,
) -> Timeline:
    """When a runner did what."""
    return Timeline(
        claimed_at=_moment(claimed),
        set_up_at=_moment(set_up),
        restored_at=_moment(restored),
        exited_at=_moment(exited),
        uploaded_at=_moment(uploaded),
        last_seen_at=_moment(last_seen),
    )


def an_attempt(
    number: int = 1,
    *,
    placed: float = 0.0,
    ended: float | None = None,
    ending: Ending | None = None,
    timeline: Timeline | None = None,
    head: CheckpointRef | None = None,
) -> Attempt:
    """One try; with `ended` it is over, for `ending` or as interrupted, and charged for it."""
    over = None if ended is None else ending or an_ending()
    charged = None if over is None else CHARGES.get(over.kind)
    return Attempt(
        number=number,
        waiting_since=T0,
        placed_at=at(placed),
        placement=a_placement(),
        timeline=timeline or Timeline(),
        head=head,
        ending=over,
        ended_at=_moment(ended),
        charged=charged,
    )


#: Which budget pays when the job is tried again after such an ending.
CHARGES = {EndingKind.FAILED: Budget.FAILURES, EndingKind.INTERRUPTED: Budget.INTERRUPTIONS}


def a_job(
    phase: Phase = Phase.QUEUED,
    *,
    spec: JobSpec | None = None,
    attempts: tuple[Attempt, ...] | None = None,
    ending: Ending | None = None,
    stop: StopRequest | None = None,
    job_id: str = "j7",
) -> JobRecord:
    """A job in `phase`, submitted at T0, with the attempts, budgets and head that belong to it."""
    spec = spec or a_spec()
    if attempts is None:
        attempts = _attempts_of(phase)
    job = JobRecord(
        id=JobId(job_id),
        spec=spec,
        code=Code(sha256="0" * 64, folder="/home/ada/mnist"),
        origin=Origin(user="ada", host="laptop", folder="/home/ada/mnist", python="/usr/bin/python3", version="0.1.0"),
        submitted_at=T0,
        updated_at=max((a.ended_at or a.placed_at for a in attempts), default=T0),
        waiting_since=max((a.ended_at for a in attempts if a.ended_at is not None), default=T0),
        phase=phase,
        attempts=attempts,
        head=next((a.head for a in reversed(attempts) if a.head is not None), None),
        failures=sum(a.charged is Budget.FAILURES for a in attempts),
        interruptions=sum(a.charged is Budget.INTERRUPTIONS for a in attempts),
        ending=(ending or an_ending()) if phase is Phase.STOPPING else None,
        stop=stop,
    )
    return invariants.check(_finished(job) if phase is Phase.FINISHED else job)


def a_sighting(seen: Seen = Seen.PRESENT, *, was_launched: bool = True) -> Sighting:
    """What a provider says."""
    return Sighting(seen=seen, was_launched=was_launched, evidence=f"the test says {seen.value}")


def some_facts(
    seen: Seen = Seen.PRESENT,
    claim: ClaimState = ClaimState.TAKEN,
    *,
    was_launched: bool = True,
    exit: ExitReport | None = None,
    heartbeat: Heartbeat | None = None,
    commit: CheckpointRef | None = None,
) -> Facts:
    """What was observed, with a store that answers; more by `msgspec.structs.replace`."""
    sighting = a_sighting(seen, was_launched=was_launched)
    return Facts(allocation=sighting, claim=claim, exit=exit, heartbeat=heartbeat, commit=commit)


def store_away(seen: Seen = Seen.UNKNOWN, *, was_launched: bool = True) -> Facts:
    """The object store gives no answer."""
    return Facts(allocation=a_sighting(seen, was_launched=was_launched), store_answers=False)


def a_heartbeat(
    seconds: float = 60.0,
    *,
    lease_s: float = 60.0,
    timeline: Timeline | None = None,
    commit: CheckpointRef | None = None,
) -> Heartbeat:
    """A runner's sign of life at `seconds`, holding its attempt for `lease_s` more."""
    timeline = timeline or a_timeline(claimed=5, set_up=6, restored=7)
    return Heartbeat(at=at(seconds), lease_until=at(seconds + lease_s), state="training", timeline=timeline, commit=commit)


def an_exit(
    code: int | None = 0,
    *,
    signal: str | None = None,
    stop_seen: StopSeen | None = None,
    set_up_error: str = "",
    timeline: Timeline | None = None,
    commit: CheckpointRef | None = None,
) -> ExitReport:
    """A runner's last words."""
    timeline = timeline or a_timeline(claimed=5, set_up=6, restored=7, exited=90, uploaded=95)
    return ExitReport(timeline=timeline, code=code, signal=signal, stop_seen=stop_seen, set_up_error=set_up_error, commit=commit)


def a_refusal(*, is_final: bool = False) -> LaunchRefusal:
    """The provider's no."""
    return LaunchRefusal(sentence="No such machine type." if is_final else "Nothing is free.", is_final=is_final)


def a_line(event: str = "placed", *, seconds: float = 0.0) -> StoryLine:
    """One line of a story."""
    return StoryLine(at=at(seconds), event=event, sentence=f"It was {event}.", rule="a test")


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else at(seconds)


def _attempts_of(phase: Phase) -> tuple[Attempt, ...]:
    if phase is Phase.QUEUED:
        return ()
    if phase is Phase.FINISHED:
        return (replace(an_attempt(ended=100.0, ending=endings.ending_of(an_exit(), None)), charged=None),)
    return (an_attempt(),)


def _finished(job: JobRecord) -> JobRecord:
    """The end that the last attempt leads to; stopped when there was none."""
    kind = job.current.ending.kind if job.attempts and job.current.ending is not None else EndingKind.STOPPED
    outcome = {EndingKind.SUCCEEDED: Outcome.SUCCEEDED, EndingKind.STOPPED: Outcome.STOPPED}.get(kind, Outcome.FAILED)
    return replace(job, outcome=outcome, reason=a_reason(kind.value), finished_at=job.updated_at)
