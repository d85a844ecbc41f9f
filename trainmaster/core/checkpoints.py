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


def heads(job: JobRecord) -> tuple[str, ...]:
    """The newest accepted commit of each attempt that is over."""
    return tuple(a.head.id for a in job.attempts if a.ended_at is not None and a.head is not None)


def stand_ins(resumes: CheckpointRef, accepted_heads: Iterable[str], commits: Iterable[CheckpointRef]) -> list[CheckpointRef]:
    """What to resume from, in order: the accepted head, then accepted commits before it, newest first, should it be damaged."""
    newest_seq = dict(parse_checkpoint_id(head) for head in accepted_heads)
    before = [c for c in commits if parse_checkpoint_id(c.id) < parse_checkpoint_id(resumes.id)]
    accepted = [c for c in before if parse_checkpoint_id(c.id)[1] <= newest_seq.get(parse_checkpoint_id(c.id)[0], 0)]
    return [resumes, *sorted(accepted, key=lambda c: parse_checkpoint_id(c.id), reverse=True)]


def newest(commits: Iterable[CheckpointRef], attempt: int) -> CheckpointRef | None:
    """The newest commit of one attempt; None when it has none."""
    own = [c for c in commits if parse_checkpoint_id(c.id)[0] == attempt]
    return max(own, key=lambda c: parse_checkpoint_id(c.id)[1], default=None)
