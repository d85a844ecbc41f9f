"""`resume` and `rerun`: how is a job that is over run again?"""

from __future__ import annotations

import os
from typing import Any

import click

from trainmaster.cli import render
from trainmaster.cli.submitting import detach_or_follow, end_at_ctrl_c, once_accepted, until_accepted
from trainmaster.cli.words import json_option, run
from trainmaster.core.job import JobRecord
from trainmaster.core.study import StudyRecord
from trainmaster.embedded import Embedded, opened
from trainmaster.embedded.again import Amend
from trainmaster.spec.job_spec import JobSpec

_detach = click.option("--detach", "-d", is_flag=True, help="Return at once; the job goes on in the background.")


@click.command("resume")
@click.argument("job", metavar="JOB|STUDY")
@click.option("--failures", type=int, help="How many failures are retried from now on.")
@click.option("--interruptions", type=int, help="How many interruptions are retried from now on.")
@click.option("--max-run", metavar="TIME", help="Longest total running time from now on, such as 2h.")
@_detach
@json_option
def resume_command(job: str, detach: bool, as_json: bool, **flags: Any) -> int:  # noqa: FBT001
    """Go on with a job or study that was stopped or failed.

    A new job with the same code, parameters and environment goes on from the last commit of the old one, with new budgets for
    failures, interruptions and time. The old job's record stays as it is. Of a study every job that was stopped or failed goes on;
    the others are left alone.

    \b
    Examples:
      trainmaster resume last --failures 3
    """
    named = {"failures": "retry.failures", "interruptions": "retry.interruptions", "max_run": "limits.run"}
    overrides: dict[str, object] = {field: flags[flag] for flag, field in named.items() if flags[flag] is not None}

    def change(spec: JobSpec) -> JobSpec:
        from trainmaster.spec.changes import overridden

        return overridden(spec, overrides)

    async def inside() -> int:
        from trainmaster.embedded.again import find_record, resume_job

        end_at_ctrl_c()
        async with opened() as embedded:
            study = await embedded.studies.find(job)
            if study is not None:
                return await _resume_study(embedded, study, change, detach=detach, as_json=as_json)
            with until_accepted():
                old = await find_record(embedded, job)
                new = await resume_job(embedded, old, os.environ, change)
            with once_accepted(new.id):
                _tell_in_place(new)
                render.note(f"{new.id} goes on from {old.id}: {_from_where(new)}")
                return await detach_or_follow(embedded, new, detach=detach, as_json=as_json)

    return run(inside())


async def _resume_study(embedded: Embedded, study: StudyRecord, change: Amend, *, detach: bool, as_json: bool) -> int:
    from trainmaster.cli.studying import detach_or_follow_study
    from trainmaster.embedded.studies import resume_study

    with until_accepted():
        new = await resume_study(embedded, study, os.environ, change)
    with once_accepted(study.id):
        render.note(f"{study.id}: {render.count(len(new), 'job')} of {study.count} {'goes' if len(new) == 1 else 'go'} on")
        return await detach_or_follow_study(embedded, study, detach=detach, as_json=as_json)


@click.command("rerun")
@click.argument("job")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a field, such as hp.lr=0.2; repeatable.")
@click.option("--name", help="Name of the new job; default: the old one's.")
@_detach
@json_option
def rerun_command(job: str, changes: tuple[str, ...], name: str | None, detach: bool, as_json: bool) -> int:  # noqa: FBT001
    """Run a job again as its record says.

    The new job has the code, parameters, inputs, seed and environment of the old one, but for what --set changes. The sealed record
    in the bucket is enough: a job of another home is named by its id.

    \b
    Examples:
      trainmaster rerun last --set hp.lr=0.2 --set env.DEBUG=1
    """

    def change(spec: JobSpec) -> JobSpec:
        from trainmaster.spec.changes import changed

        return changed(spec, [*changes, *([f"name={name}"] if name is not None else [])])

    async def inside() -> int:
        from trainmaster.embedded.again import find_record, rerun_job

        end_at_ctrl_c()
        async with opened() as embedded:
            with until_accepted():
                old = await find_record(embedded, job)
                new = await rerun_job(embedded, old, os.environ, change)
            with once_accepted(new.id):
                _tell_in_place(new)
                render.note(f"{new.id} runs {old.id} again")
                return await detach_or_follow(embedded, new, detach=detach, as_json=as_json)

    return run(inside())


def _tell_in_place(job: JobRecord) -> None:
    if job.code.in_place:
        render.note(
            f"{job.id}: runs in {job.code.folder} itself, as that folder is now; there is no snapshot of the code", "yellow"
        )


def _from_where(job: JobRecord) -> str:
    assert job.continues is not None
    checkpoint = job.continues.checkpoint
    if checkpoint is None:
        return "it had committed nothing, so from the beginning"
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return f"checkpoint {checkpoint.id}{step}"
