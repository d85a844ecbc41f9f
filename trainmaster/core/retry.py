"""After an attempt ended: try again, or finish? And who pays?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from msgspec import Struct

from trainmaster.core.job import Budget, Ending, EndingKind, JobRecord, Outcome, Reason


class TryAgain(Struct, frozen=True, kw_only=True):
    """Queue the job again, not before a moment, paid from a budget (or free)."""

    not_before: datetime
    charged: Budget | None
    sentence: str


class Finish(Struct, frozen=True, kw_only=True):
    """The job is over."""

    outcome: Outcome
    reason: Reason


def next_step(job: JobRecord, ending: Ending, now: datetime) -> TryAgain | Finish:
    """What follows from how the attempt ended. A stop that was asked for beats every retry; success beats the stop."""
    if ending.kind is EndingKind.SUCCEEDED:
        return Finish(outcome=Outcome.SUCCEEDED, reason=ending.reason)
    if ending.kind is EndingKind.STOPPED:
        return Finish(outcome=Outcome.STOPPED, reason=ending.reason)
    if job.stop is not None:
        return Finish(outcome=Outcome.STOPPED, reason=job.stop.reason)
    match ending.kind:
        case EndingKind.REFUSED:
            return Finish(outcome=Outcome.FAILED, reason=ending.reason)
        case EndingKind.NO_CAPACITY:
            pause = timedelta(seconds=min(60.0, 2.0 ** min(job.attempt, 6)))
            return TryAgain(not_before=now + pause, charged=None, sentence="Nothing was free; no budget is charged.")
        case EndingKind.FAILED:
            return _within_budget(job, ending, now, Budget.FAILURES)
        case EndingKind.INTERRUPTED:
            return _within_budget(job, ending, now, Budget.INTERRUPTIONS)
        case _:
            assert_never(ending.kind)


def _within_budget(job: JobRecord, ending: Ending, now: datetime, budget: Budget) -> TryAgain | Finish:
    retry = job.spec.retry
    if budget is Budget.FAILURES:
        spent, allowed = job.failures, retry.failures
    else:
        spent, allowed = job.interruptions, retry.interruptions
    if spent >= allowed:
        sentence = ending.reason.sentence
        if allowed:
            sentence += f" The budget of {allowed} {budget.value} is used up."
        reason = Reason(code=ending.reason.code, sentence=sentence, evidence=ending.reason.evidence)
        return Finish(outcome=Outcome.FAILED, reason=reason)
    pause_s = 0.0 if budget is Budget.INTERRUPTIONS and spent == 0 else backoff_s(retry.backoff, retry.backoff_max, spent)
    sentence = (
        f"This is {budget.value.removesuffix('s')} {spent + 1} of {allowed} allowed; the next attempt may start in {pause_s:g} s."
    )
    return TryAgain(not_before=now + timedelta(seconds=pause_s), charged=budget, sentence=sentence)


def backoff_s(first_s: float, most_s: float, times: int) -> float:
    """The pause before the next try; doubles each time up to the most."""
    return min(most_s, first_s * 2.0 ** min(times, 30))
