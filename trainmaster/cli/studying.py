"""`study`: how does somebody try a job with many parameters, and see what came of it?"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from trainmaster.cli import render
from trainmaster.cli.study_table import show_study
from trainmaster.cli.submitting import end_at_ctrl_c, once_accepted, read_mapping, shared_options, tell_code, typed, until_accepted
from trainmaster.cli.words import run
from trainmaster.core import study as core
from trainmaster.core.job import JobId, JobRecord
from trainmaster.core.study import StudyRecord
from trainmaster.embedded import Embedded, exit_code, opened
from trainmaster.embedded.studies import submit_study
from trainmaster.errors import InvalidSpec
from trainmaster.spec.job_spec import JobSpec

#: between two looks at how far a study is: people do not read faster
_LOOK_S = 0.5


@click.command("study")
@shared_options
@click.option("--grid", multiple=True, metavar="NAME=V,V", help="Values of a hyperparameter to try; repeatable.")
@click.option("--max-parallel", type=int, metavar="N", help="So many of its jobs at one time; default: as many as fit.")
@click.option("--detach", "-d", is_flag=True, help="Return at once; the jobs go on in the background.")
def study_command(what: str, arguments: tuple[str, ...], detach: bool, as_json: bool, **flags: Any) -> int:  # noqa: FBT001
    """Try a job with every combination of some parameters.

    Each combination becomes a job; all share one snapshot of the code. Ctrl-C once detaches: they go on. The exit code is 0 when
    all succeeded, 1 when one failed, 3 when one was stopped; the highest of them.

    \b
    Examples:
      trainmaster study train.py --grid lr=0.1,0.01 --grid bs=32,64
      trainmaster study job.yaml --max-parallel 4
    """
    spec, folder = _read_study(what, arguments, flags)
    return run(_study(spec, folder, detach=detach, as_json=as_json))


def _read_study(what: str, arguments: tuple[str, ...], flags: dict[str, Any]) -> tuple[JobSpec, Path]:
    from trainmaster.embedded.studies import refuse_impossible_grid
    from trainmaster.spec.parse import spec_from_mapping

    mapping, folder = read_mapping(what, arguments, flags)
    given = mapping.get("study")
    grid = _grid(flags["grid"])
    if given is None or isinstance(given, dict):
        study: dict[str, object] = dict(given or {})
        there = study.get("grid")
        if grid:
            study["grid"] = {**(there if isinstance(there, dict) else {}), **grid}
        if flags["max_parallel"] is not None:
            study["max_parallel"] = flags["max_parallel"]
        if study and "grid" not in study:
            study["grid"] = {}
        if study:
            mapping["study"] = study
    spec = spec_from_mapping(mapping)
    refuse_impossible_grid(spec)
    return spec, folder


def _grid(words: Sequence[str]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not name:
            raise InvalidSpec("--grid", f'found "{word}", wanted NAME=VALUE,VALUE', hint="such as --grid lr=0.1,0.01")
        if name in found:
            raise InvalidSpec("--grid", f"found {name} twice", hint=f"write all its values at once: --grid {name}=V,V,V")
        texts = [text.strip() for text in values.split(",")]
        if "" in texts:
            raise InvalidSpec("--grid", f'found "{word}", which has an empty value', hint="values with commas belong in a job file")
        found[name] = [typed(text) for text in texts]
    return found


async def _study(spec: JobSpec, folder: Path, *, detach: bool, as_json: bool) -> int:
    end_at_ctrl_c()
    async with opened() as embedded:
        with until_accepted():
            submission = await submit_study(embedded, spec, folder, os.environ, render.progress)
        study, first = submission.study, submission.jobs[0]
        with once_accepted(study.id):
            tell_code(study.id, first.id, study.code, submission.left_out, submission.notes)
            render.note(f"{study.id}: {render.count(study.count, 'job')}, {first.id} to {submission.jobs[-1].id}")
            return await detach_or_follow_study(embedded, study, detach=detach, as_json=as_json)


async def detach_or_follow_study(embedded: Embedded, study: StudyRecord, *, detach: bool, as_json: bool) -> int:
    """What comes after a study was accepted, or goes on."""
    if detach:
        await embedded.ensure_driven()
        if as_json:
            await show_study(embedded, study, as_json=True)
        else:
            render.line(study.id)
            render.note(f"see how far it is: trainmaster show {study.id}")
        return 0
    over = await _drive(embedded, study)
    await show_study(embedded, study, as_json=as_json)
    if not over:
        await embedded.ensure_driven()
        render.note(f"detached; {study.id} goes on", "bold")
        render.note(f"come back: trainmaster wait {study.id}")
        render.note(f"stop it:   trainmaster stop {study.id}")
        return 130
    return await study_exit_code(embedded, study.id)


async def _drive(embedded: Embedded, study: StudyRecord) -> bool:
    """Drive every job there is and tell how far the study is; False if the user detached, or we were told to go."""
    leave = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave.set)
    follower = _Follower(embedded, study)

    async def over() -> bool:
        return leave.is_set() or await follower.look(loop.time())

    try:
        await embedded.drive(over)
    except BrokenPipeError:
        await embedded.ensure_driven()
        raise
    return follower.is_over


class _Follower:
    """Tells of each job that ended, as they end."""

    def __init__(self, embedded: Embedded, study: StudyRecord) -> None:
        self._embedded, self._study = embedded, study
        self._told: set[str] = set()
        self._look_at_s = 0.0
        self.is_over = False

    async def look(self, now_s: float) -> bool:
        """Whether all of them have ended."""
        if now_s < self._look_at_s:
            return self.is_over
        self._look_at_s = now_s + _LOOK_S
        children = await self._embedded.studies.children(self._study.id)
        done = [child for child in children if child.outcome is not None]
        for child in done:
            if child.job_id not in self._told:
                self._told.add(child.job_id)
                self._tell(await self._embedded.service.get(JobId(child.job_id)), len(done), len(children))
        self.is_over = len(done) == len(children)
        return self.is_over

    def _tell(self, job: JobRecord, done: int, count: int) -> None:
        assert job.outcome is not None
        style = {"succeeded": "green", "failed": "red", "stopped": "yellow"}[job.outcome.value]
        tried = core.shown_combination(self._study, job.spec.hyperparameters)
        render.note(f"■ {job.id} {job.outcome.value}  {tried}  ({done} of {count})", style)


async def study_exit_code(embedded: Embedded, study_id: str) -> int:
    """As `wait` answers for many jobs."""
    return max((exit_code(job) for job in await embedded.studies.jobs(study_id)), default=0)
