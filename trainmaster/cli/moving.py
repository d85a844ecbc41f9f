"""`export` and `import`: how does a job get from one home to another?"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click

from trainmaster.cli import render
from trainmaster.cli.words import json_option, with_embedded
from trainmaster.embedded import Embedded
from trainmaster.embedded.moving import export_job, import_job
from trainmaster.errors import InvalidSpec, Refused


@click.command("export")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("-o", "--output", metavar="FILE", help="File to write, or a folder for several; default: JOB.tar here.")
@click.option("--no-checkpoints", is_flag=True, help="Leave the checkpoints out.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def export_command(
    jobs: tuple[str, ...],
    output: str | None,
    no_checkpoints: bool,  # noqa: FBT001
    force: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Write a job with everything it left into one file.

    A plain tar with record, story, logs, metrics, checkpoints, model, outputs
    and code, and a manifest with sizes and hashes. Only a finished job.

    \b
    Examples:
      trainmaster export mnist-k7q2m
      trainmaster export last -o best.tar --no-checkpoints
    """

    async def work(embedded: Embedded) -> int:
        ids = list(dict.fromkeys([await embedded.service.resolve(name) for name in jobs]))
        records = [await embedded.service.get(job_id) for job_id in ids]
        for record in records:
            if not record.is_finished:
                raise Refused(f"{record.id} has not finished", hint=f"wait for it: trainmaster wait {record.id}")
        targets = [_target(output, record.id, several=len(ids) > 1, force=force) for record in records]
        made = [
            await export_job(embedded, record, target, render.progress, checkpoints=not no_checkpoints)
            for record, target in zip(records, targets, strict=True)
        ]
        if as_json:
            render.json(made)
        else:
            for one in made:
                what = f"{render.count(one.files, 'file')}, {render.size(one.size_bytes)}"
                render.line(f"{one.job}: {what}, in {render.printable(one.file)}")
        return 0

    return with_embedded(work)


def _target(output: str | None, job_id: str, *, several: bool, force: bool) -> Path:
    name = f"{job_id}.tar"
    if output == "-":
        raise InvalidSpec("-o", "standard output cannot be taken back when something goes wrong", hint="name a file")
    path = Path(os.path.normpath(Path.cwd() / (output or name)))
    if output is not None and (path.is_dir() or output.endswith("/")):
        path = path / name
    elif several and output is not None:
        raise InvalidSpec("-o", f"found {output}, wanted a folder: each job is a file of its own")
    if not path.parent.is_dir():
        raise InvalidSpec("-o", f"{path.parent} is not a folder", hint="make it first")
    if os.path.lexists(path) and not force:
        raise Refused(f"{path} is there already", hint="name another file, or add --force")
    return path


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@json_option
def import_command(files: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001
    """Take in a job that `export` wrote.

    All of the file is verified before anything counts; then the job is here
    as it was there. A job that is here already is left as it is; another one
    of the same id is refused.

    \b
    Examples:
      trainmaster import best.tar
      trainmaster import mnist-k7q2m.tar sweep-h3p7w.tar
    """
    paths = [_source(name) for name in files]

    async def work(embedded: Embedded) -> int:
        made = [await import_job(embedded, path, render.progress) for path in paths]
        if as_json:
            render.json(made)
        else:
            for one in made:
                what = "is here already" if one.was_here else f"{render.count(one.files, 'file')}, {render.size(one.size_bytes)}"
                render.line(f"{one.job} {what}" if one.was_here else f"{one.job}: {what}")
        return 0

    return with_embedded(work)


def _source(name: str) -> Path:
    try:
        mode = os.stat(name).st_mode
    except OSError as error:
        raise InvalidSpec("FILE", f"{name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise InvalidSpec("FILE", f"{name} is not a file", hint="name a file that `trainmaster export` wrote")
    return Path(name)
