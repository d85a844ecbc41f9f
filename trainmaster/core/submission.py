"""How does a job begin? As a new one, as the continuation of one that ended early, or as a repetition."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from trainmaster.core import checkpoints
from trainmaster.core.job import Code, Continues, JobId, JobRecord, Origin, Outcome, Phase
from trainmaster.core.story import StoryLine
from trainmaster.spec.job_spec import JobSpec

_LATER = timedelta(milliseconds=1)


def new_job(job_id: JobId, spec: JobSpec, code: Code, origin: Origin, now: datetime) -> JobRecord:
    """A job that waits for its first attempt."""
    return JobRecord(
        id=job_id,
        spec=spec,
        code=code,
        origin=origin,
        submitted_at=now,
        updated_at=now,
        waiting_since=now,
        phase=Phase.QUEUED,
        seed=spec.seed,
    )


def why_not_resume(old: JobRecord) -> str:
    """Why a job cannot go on as a new one; empty when it can."""
    if not old.is_finished:
        return f"{old.id} has not finished: it is {old.phase.value}"
    return f"{old.id} succeeded: there is nothing left to do" if old.outcome is Outcome.SUCCEEDED else ""


def resumed(old: JobRecord, new: JobRecord) -> JobRecord:
    """The new job goes on from what the old one saved, or from what that one had gone on from."""
    continues = Continues(job=old.id, checkpoint=old.head, heads=list(checkpoints.heads(old)))
    if old.head is None and old.continues is not None:
        continues = replace(old.continues, job=old.id, checkpoint_of=old.continues.source)
    # However the clock was set meanwhile, whoever goes on is the younger one.
    at = max(new.submitted_at, old.updated_at + _LATER)
    return replace(_alike(old, new), continues=continues, study=old.study, submitted_at=at, updated_at=at, waiting_since=at)


def repeated(old: JobRecord, new: JobRecord) -> JobRecord:
    """The new job does from the beginning what the old one did."""
    return replace(_alike(old, new), reruns=old.id)


def _alike(old: JobRecord, new: JobRecord) -> JobRecord:
    seed = old.seed if new.spec.seed is None else new.spec.seed
    # Whoever changes what the environment is to hold has it resolved anew.
    lock = environment_key(old) or old.lock if new.spec.environment == old.spec.environment else ""
    return replace(new, code=old.code, seed=seed, lock=lock, wheelhouse=old.wheelhouse)


def environment_key(job: JobRecord) -> str:
    """Key of the environment that it ran in last; an attempt may end before it has one. Empty: it had none of its own."""
    return next((attempt.environment.key for attempt in reversed(job.attempts) if attempt.environment is not None), "")


def submitted_line(job: JobRecord) -> StoryLine:
    """The first line of a job's story."""
    code = job.code
    what = f"the folder {code.folder} in place" if code.in_place else f"snapshot {(code.sha256 or '')[:12]} of {code.folder}"
    done = f"submitted {job.spec.name}"
    if job.continues is not None:
        done = f"resumed {job.continues.job} as {job.spec.name}"
    elif job.reruns:
        done = f"ran {job.reruns} again as {job.spec.name}"
    elif job.study is not None:
        done = f"submitted {job.spec.name}, number {job.study.index} of study {job.study.id}"
    return StoryLine(at=job.submitted_at, event="submitted", sentence=f"{job.origin.user} {done}: {what}.", rule="asked by a user")
