"""Where did the time go? Every moment from submission to the end belongs to exactly one line, and the lines add up.

Compute is kept up to the moment the newest accepted checkpoint was taken, and lost after it, unless the attempt succeeded. While an
attempt still runs, what is not yet safe stands on a line of its own: at risk.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from trainmaster.core.job import Attempt, EndingKind, JobRecord

LINES = (
    "queued",
    "placing",
    "set_up",
    "fetching",
    "restoring",
    "kept_compute",
    "lost_compute",
    "at_risk_compute",
    "uploading",
    "idle",
)


class Span(Struct, frozen=True, kw_only=True):
    """One stretch of time on one line."""

    line: str
    attempt: int
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Length of the stretch."""
        return (self.end - self.start).total_seconds()


def spans(job: JobRecord, now: datetime) -> list[Span]:
    """The whole life of a job, cut into stretches without gap or overlap."""
    end = max(job.finished_at or now, job.submitted_at)
    found: list[Span] = []
    cursor = job.submitted_at
    for attempt in job.attempts:
        cut = _Cutter(found, attempt.number, cursor, min(attempt.ended_at or end, end))
        _cut_attempt(attempt, cut, has_inputs=bool(job.spec.inputs))
        cursor = cut.cursor
    if cursor < end:
        found.append(Span(line="queued", attempt=job.attempt + 1, start=cursor, end=end))
    return found


def totals(job: JobRecord, now: datetime) -> dict[str, float]:
    """Seconds on each line; they add up to the job's age."""
    sums = dict.fromkeys(LINES, 0.0)
    for span in spans(job, now):
        sums[span.line] += span.seconds
    return sums


def running_s(job: JobRecord, now: datetime) -> float:
    """How long the script has run, all attempts together; what limits.run counts."""
    return sum(s.seconds for s in spans(job, now) if s.line.endswith("_compute"))


def waiting_s(job: JobRecord, now: datetime) -> float:
    """How long the job has waited, all attempts together; what limits.wait counts."""
    return sum(s.seconds for s in spans(job, now) if s.line in {"queued", "placing"})


class _Cutter:
    """Cuts stretches off the front of an attempt; clocks of two machines may disagree, so a cut never goes back or past the end."""

    def __init__(self, found: list[Span], attempt: int, start: datetime, end: datetime) -> None:
        self.found, self.attempt, self.cursor, self.end = found, attempt, start, max(start, end)

    def to(self, line: str, moment: datetime | None) -> None:
        """Everything up to `moment` belongs to `line`; None: up to the end."""
        until = self.end if moment is None else max(self.cursor, min(moment, self.end))
        if until > self.cursor:
            self.found.append(Span(line=line, attempt=self.attempt, start=self.cursor, end=until))
        self.cursor = until


def _cut_attempt(attempt: Attempt, cut: _Cutter, *, has_inputs: bool) -> None:
    line = attempt.timeline
    over = attempt.ended_at is not None
    cut.to("queued", attempt.placed_at)
    cut.to("placing", line.claimed_at)
    if line.claimed_at is None:
        return
    # A runner that vanished did nothing we know of after its last sign of life.
    last_sign = line.uploaded_at or line.last_seen_at if over else None
    fetching = [("fetching", line.fetched_at)] if has_inputs else []
    for name, moment in (("set_up", line.set_up_at), *fetching, ("restoring", line.restored_at)):
        cut.to(name, moment or last_sign)
        if moment is None:
            cut.to("idle", None)
            return
    computed_until = line.exited_at or last_sign
    succeeded = attempt.ending is not None and attempt.ending.kind is EndingKind.SUCCEEDED
    if succeeded:
        cut.to("kept_compute", computed_until)
    elif attempt.head is not None:
        head_at = attempt.head.taken_at
        cut.to("kept_compute", head_at if computed_until is None else min(head_at, computed_until))
    cut.to("lost_compute" if over else "at_risk_compute", computed_until)
    cut.to("uploading", line.uploaded_at or last_sign)
    cut.to("idle", None)
