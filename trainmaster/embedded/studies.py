"""How does one command submit, follow and go on with many jobs? All of them or none; one snapshot and one environment for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.control.studies import in_one_batch
from trainmaster.core import study as core
from trainmaster.core.job import JobId, JobRecord
from trainmaster.core.study import Child, StudyRecord
from trainmaster.core.submission import new_job, resumed
from trainmaster.embedded.session import Embedded, make_id, seeded
from trainmaster.embedded.snapshot import take_snapshot
from trainmaster.errors import InvalidSpec, Refused
from trainmaster.spec.job_spec import JobSpec
from trainmaster.spec.problems import as_error
from trainmaster.spec.rules import broken_rules

_POLL_S = 0.25
#: how often to see whether somebody drives
_DRIVEN_LOOKS = 4


class StudySubmission(Struct, frozen=True, kw_only=True):
    """What was accepted, and what the submitter should know about it."""

    study: StudyRecord
    jobs: tuple[JobRecord, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


async def submit_study(
    embedded: Embedded, spec: JobSpec, folder: Path, environ: Mapping[str, str], progress: Callable[[str, int, int], None]
) -> StudySubmission:
    """Pack the source folder once and accept every combination: the study exists with all its jobs, or not at all."""
    from trainmaster import __version__
    from trainmaster.adapters.submitter import find_origin, refuse_no_script

    refuse_impossible_grid(spec)
    first = await embedded.admitted(core.extremes(spec)[0])
    spec = replace(spec, inputs=first.inputs)
    origin = find_origin(environ, Path.cwd(), __version__)
    refuse_no_script(first, folder, origin.python)
    snapshot = take_snapshot(embedded, spec, folder, environ, progress)
    code = snapshot.code
    now = embedded.ports.clock.now()
    specs = list(core.child_specs(spec))
    study = StudyRecord(id=make_id(spec.name), spec=spec, code=code, origin=origin, submitted_at=now, count=len(specs))
    jobs: list[JobRecord] = []
    for index, child in enumerate(specs, start=1):
        job = seeded(new_job(JobId(f"{study.id}-{index}"), child, code, origin, now))
        jobs.append(replace(job, study=core.child_ref(study, index), wheelhouse=snapshot.wheelhouse))
    batch = await accept_batch(embedded, jobs, environ, study)
    return StudySubmission(study=study, jobs=tuple(batch), left_out=snapshot.left_out, notes=snapshot.notes)


def refuse_impossible_grid(spec: JobSpec) -> None:
    """Say what is wrong with any of its jobs before one of them exists."""
    if spec.study is None:
        hint = "write --grid lr=0.1,0.01, or `study: {grid: {lr: [0.1, 0.01]}}` in the job file"
        raise InvalidSpec("study.grid", "is missing, wanted the values to try", hint=hint)
    for child in core.extremes(spec):
        problems = broken_rules(child)
        if problems:
            raise as_error(problems)


async def accept_batch(
    embedded: Embedded, jobs: Sequence[JobRecord], environ: Mapping[str, str], study: StudyRecord | None = None
) -> list[JobRecord]:
    """Keep the submitter's environment once, and accept all of them or none."""
    batch = in_one_batch(jobs)
    with embedded.keeping_environment(batch[0].id, environ):
        try:
            await embedded.studies.accept(batch, study)
        except BaseException as error:
            if await embedded.after_all(batch[0].id, error) is None:
                raise
    return batch


async def resume_study(
    embedded: Embedded, study: StudyRecord, environ: Mapping[str, str], change: Callable[[JobSpec], JobSpec]
) -> list[JobRecord]:
    """Every job that was stopped or failed goes on as a new one in its place; what runs or succeeded is left alone."""
    from trainmaster import __version__
    from trainmaster.adapters.submitter import find_origin
    from trainmaster.embedded.again import going_on, refuse_no_checkpoint, refuse_no_code

    with going_on(embedded, study.id):
        study = await embedded.studies.get(study.id)
        old = await embedded.studies.to_resume(study.id)
        if not old:
            children = await embedded.studies.children(study.id)
            why = "has not finished" if not is_over(children) else "succeeded: there is nothing left to do"
            raise Refused(f"{study.id} {why}", hint=f"`trainmaster show {study.id}` shows its jobs")
        refuse_no_code(embedded, study.code)
        origin, now = find_origin(environ, Path.cwd(), __version__), embedded.ports.clock.now()
        # Derived names: no combination is ever tried twice at one time.
        new = [resumed(job, new_job(_next_id(job), change(job.spec), job.code, origin, now)) for job in old]
        await asyncio.gather(*(refuse_no_checkpoint(embedded, job) for job in new))
        first = new[0].id
        if await embedded.ports.database.load(first) is not None:
            raise Refused(f"{old[0].id} goes on as {first} already", hint=f"`trainmaster show {first}` shows it")
        embedded.forget_environment(first)  # of somebody who was killed while it resumed this study
        return await accept_batch(embedded, new, environ)


def _next_id(job: JobRecord) -> JobId:
    """The name of the job that takes its place in the study: ``sweep-k7q2m-3`` goes on as ``sweep-k7q2m-3-r2``."""
    base, _, number = job.id.rpartition("-r")
    if base and number.isdigit():
        return JobId(f"{base}-r{int(number) + 1}")
    return JobId(f"{job.id}-r2")


def is_over(children: Sequence[Child]) -> bool:
    """Whether every combination has finished."""
    return all(child.outcome is not None for child in children)


async def until_over(embedded: Embedded, study_id: str) -> None:
    """Wait for the end of all its jobs. Whoever drives may be killed while we wait: then another is started."""
    looks = 0
    while not is_over(await embedded.studies.children(study_id)):
        if looks % _DRIVEN_LOOKS == 0:
            await embedded.ensure_driven()
        looks += 1
        await asyncio.sleep(_POLL_S)
