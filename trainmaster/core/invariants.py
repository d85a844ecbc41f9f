"""What must hold for a record? Called by every commit, every builder and every simulation step."""

from __future__ import annotations

from itertools import pairwise

from trainmaster.core.job import Budget, EndingKind, JobRecord, Phase
from trainmaster.spec.layout import parse_checkpoint_id


def broken(job: JobRecord) -> list[str]:
    """Every promise the record breaks, in words; empty when it keeps all of them."""
    finished = job.phase is Phase.FINISHED
    open_attempts = [a.number for a in job.attempts if a.ended_at is None]
    holds = {
        "a finished job has an outcome, a reason and a time": not finished
        or (job.outcome is not None and job.reason is not None and job.finished_at is not None),
        "only a finished job has an outcome, a reason or a time": finished
        or (job.outcome is None and job.reason is None and job.finished_at is None),
        "attempts are numbered from 1 without a gap": [a.number for a in job.attempts] == list(range(1, job.attempt + 1)),
        "an attempt is open exactly while the job holds machines": open_attempts
        == ([job.attempt] if job.phase not in {Phase.QUEUED, Phase.FINISHED} else []),
        "an ended attempt says how it ended": all((a.ended_at is None) == (a.ending is None) for a in job.attempts),
        "an attempt begins after the last one ended": all(
            a.ended_at is not None and a.ended_at <= b.placed_at for a, b in pairwise(job.attempts)
        ),
        "an ending is pending exactly while stopping": (job.phase is Phase.STOPPING) == (job.ending is not None),
        "failures stay within their budget": job.failures <= job.spec.retry.failures,
        "interruptions stay within their budget": job.interruptions <= job.spec.retry.interruptions,
        "each debit stands at an attempt that ended so": (job.failures, job.interruptions)
        == (_debits(job, Budget.FAILURES, EndingKind.FAILED), _debits(job, Budget.INTERRUPTIONS, EndingKind.INTERRUPTED)),
        "no attempt is charged for another kind of ending": sum(a.charged is not None for a in job.attempts)
        == job.failures + job.interruptions,
        "the clock of a record never goes back": job.submitted_at <= job.updated_at,
        "a commit belongs to the attempt that made it": all(
            a.head is None or parse_checkpoint_id(a.head.id)[0] == a.number for a in job.attempts
        ),
        "the head is the newest accepted commit": job.head == next((a.head for a in reversed(job.attempts) if a.head), None),
    }
    return [promise for promise, kept in holds.items() if not kept]


def check(job: JobRecord) -> JobRecord:
    """The record itself; an AssertionError if it cannot be."""
    wrong = broken(job)
    assert not wrong, f"job {job.id} at revision {job.revision}: " + "; ".join(wrong)
    return job


def _debits(job: JobRecord, budget: Budget, kind: EndingKind) -> int:
    return sum(a.charged is budget and a.ending is not None and a.ending.kind is kind for a in job.attempts)
