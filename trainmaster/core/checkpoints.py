"""Which commits count? Opening attempt n+1 records the accepted head; later commits of older attempts are ignored."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.core.job import CheckpointRef, JobRecord
from trainmaster.spec.layout import parse_checkpoint_id


def is_accepted(job: JobRecord, checkpoint_id: str) -> bool:
    """Whether a commit belongs to the line of work this job goes on from."""
    number, seq = parse_checkpoint_id(checkpoint_id)
    if not 1 <= number <= job.attempt:
        return False
    attempt = job.attempts[number - 1]
    if attempt.ended_at is None:
        return True
    return attempt.head is not None and seq <= parse_checkpoint_id(attempt.head.id)[1]


def newest(commits: Iterable[CheckpointRef], attempt: int) -> CheckpointRef | None:
    """The newest commit of one attempt; None when it has none."""
    own = [c for c in commits if parse_checkpoint_id(c.id)[0] == attempt]
    return max(own, key=lambda c: parse_checkpoint_id(c.id)[1], default=None)
