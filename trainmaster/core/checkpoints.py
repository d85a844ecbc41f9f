"""Which commits count? Opening attempt n+1 records the accepted head; later commits of older attempts are ignored."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainmaster.core.job import CheckpointRef, Continues, JobRecord
from trainmaster.core.messages import Manifest
from trainmaster.spec import layout
from trainmaster.spec.layout import Key, parse_checkpoint_id


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


def inherited(job: JobRecord) -> Continues | None:
    """What the newest attempt goes on from when that is another job's work: until an attempt before it has committed its own."""
    is_own = any(attempt.head is not None for attempt in job.attempts[:-1])
    return None if is_own or job.continues is None or job.continues.checkpoint is None else job.continues


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


def committed(job_id: str, keys: Iterable[Key]) -> list[Key]:
    """The markers that count: those beside a manifest. A marker alone arrived after its checkpoint had been removed."""
    there = set(keys)
    return [key for key in keys if layout.is_commit(job_id, key) and layout.manifest(job_id, _name(job_id, key)) in there]


def read_marker(name: str, value: bytes) -> CheckpointRef | None:
    """What a marker says about the checkpoint it lies beside; None when it says nothing, or speaks of another."""
    try:
        found = msgspec.json.decode(value, type=CheckpointRef)
        parse_checkpoint_id(found.id)
    except (msgspec.DecodeError, ValueError):
        return None
    return found if found.id == name else None


def name_outside(manifest: Manifest) -> str:
    """A name in a manifest that leads out of its folder, which none of ours does; empty when all stay inside."""
    names = [*(name for file in manifest.files for name in (file.path, file.stored_in or "-")), *manifest.folders]
    return next((n for n in names if "\0" in n or any(part in {"", ".", ".."} for part in n.split("/"))), "")


def kept(job_id: str, keys: Iterable[Key], keep: int, attempt: int) -> list[str] | None:
    """The newest commits, which stay; None: somebody newer writes here, and nothing is ours to remove."""
    names = {_name(job_id, key) for key in keys}
    if any(parse_checkpoint_id(name)[0] > attempt for name in names):
        return None
    return sorted({_name(job_id, key) for key in committed(job_id, keys)}, key=parse_checkpoint_id)[-keep:]


def removable(job_id: str, keys: Iterable[Key], kept_names: Iterable[str], needed: Iterable[Key]) -> list[Key]:
    """What may go, in order: of each checkpoint the marker, then the manifest, then the files that no kept manifest refers to.

    What is newer than everything kept is a commit under way.
    """
    stay, needed_keys = set(kept_names), set(needed)
    newest = max(map(parse_checkpoint_id, stay), default=(0, 0))
    gone = [k for k in keys if _name(job_id, k) not in stay and parse_checkpoint_id(_name(job_id, k)) <= newest]
    order = {
        Key(k): (_name(job_id, k), not layout.is_commit(job_id, k), k != layout.manifest(job_id, _name(job_id, k))) for k in gone
    }
    return [key for key in sorted(order, key=lambda k: (order[k], k)) if key not in needed_keys]


def _name(job_id: str, key: str) -> str:
    return key.removeprefix(f"{layout.checkpoints(job_id)}/").split("/", 1)[0]
