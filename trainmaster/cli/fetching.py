"""`pull` and `doctor`: bringing results home, and checking the house."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from trainmaster.cli import render
from trainmaster.cli.words import json_option, run, with_embedded
from trainmaster.core import checkpoints
from trainmaster.core.job import JobRecord
from trainmaster.embedded import Embedded
from trainmaster.embedded.checkup import look_around
from trainmaster.errors import InvalidSpec, Refused
from trainmaster.spec import layout
from trainmaster.spec.layout import Key

if TYPE_CHECKING:
    from trainmaster.core.messages import Manifest, ManifestFile

_PARTS = ("model", "output", "working", "checkpoint", "logs", "code")


class _Wanted(NamedTuple):
    """One thing to bring home: where it lies, its path below the target folder, its size."""

    key: Key
    path: str
    size: int
    #: for a file of a checkpoint: which one, and what was committed
    checkpoint: str = ""
    committed: ManifestFile | None = None
    is_folder: bool = False


@click.command("pull")
@click.argument("job")
@click.argument("folder", required=False)
@click.option(
    "--only", "parts", multiple=True, type=click.Choice(_PARTS), help="Only this; repeatable. Default: model, output, working."
)
@click.option("--checkpoint", metavar="ID", help="Which checkpoint; default: the newest accepted.")
@click.option("--force", is_flag=True, help="Write into a folder that is not empty.")
@json_option
def pull_command(
    job: str,
    folder: str | None,
    parts: tuple[str, ...],
    checkpoint: str | None,
    force: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Copy what a job made into a folder.

    The folder is named after the job unless you name one.

    \b
    Examples:
      trainmaster pull last results --only model
      trainmaster pull mnist-k7q2m --checkpoint 1-000003
    """

    async def work(embedded: Embedded) -> int:
        record = await embedded.service.get(await embedded.service.resolve(job))
        target = _target(folder or record.id, force=force)
        wanted = parts or (("checkpoint",) if checkpoint else ("model", "output", "working"))
        found = [file for part in wanted for file in _find(embedded, record, part, checkpoint)]
        if not found:
            raise Refused(f"{record.id} has no {' or '.join(wanted)} to pull", hint=_elsewhere(record))
        _copy(embedded, record, found, target)
        total = sum(file.size for file in found)
        files = [file.path for file in found if not file.is_folder]
        if as_json:
            render.json({"folder": str(target), "files": files, "bytes": total})
        else:
            render.line(f"{render.count(len(files), 'file')}, {render.size(total)}, in {render.printable(str(target))}")
        return 0

    return with_embedded(work)


def _elsewhere(job: JobRecord) -> str:
    if not job.is_finished:
        return f"it has not finished: trainmaster wait {job.id}"
    return f"see what it left: trainmaster show {job.id}; or pull --only checkpoint, logs or code"


def _target(name: str, *, force: bool) -> Path:
    target = Path(os.path.normpath(Path(name).absolute()))
    if os.path.lexists(target) and not target.is_dir():
        raise Refused(f"{target} is not a folder", hint="name another folder")
    if not force and target.exists() and any(target.iterdir()):
        raise Refused(f"{target} is there already", hint="name another folder, or add --force")
    return target


def _copy(embedded: Embedded, job: JobRecord, found: Sequence[_Wanted], target: Path) -> None:
    """Files first, links last: nothing is written through a link."""
    done, total = 0, sum(file.size for file in found)
    for file in sorted(found, key=lambda file: file.committed is not None and bool(file.committed.link)):
        place = target / file.path
        (place if file.is_folder else place.parent).mkdir(parents=True, exist_ok=True)
        if file.is_folder:
            continue
        if file.committed is not None:
            _copy_committed(embedded, job, file, place)
        elif embedded.store.get_file(file.key, place) is None:
            raise Refused(f"{file.path} vanished from the store while it was copied", hint="pull again")
        done += file.size
        render.progress("pulling", done, total)


def _copy_committed(embedded: Embedded, job: JobRecord, file: _Wanted, place: Path) -> None:
    """One file or link of a checkpoint, as it was committed."""
    committed = file.committed
    assert committed is not None
    if committed.link:
        if place.is_dir() and not place.is_symlink():
            raise Refused(f"{place} is a folder; the checkpoint has a link there", hint="pull into another folder")
        place.unlink(missing_ok=True)
        os.symlink(committed.link, place)
        return
    got = embedded.store.get_file(file.key, place)
    if got is not None and (got.size_bytes, got.blake3) == (committed.size_bytes, committed.blake3):
        place.chmod(committed.mode)
        return
    place.unlink(missing_ok=True)
    hint = f"another one may be whole: trainmaster checkpoints {job.id} lists them"
    if embedded.store.get(layout.commit(job.id, file.checkpoint)) is None:
        raise Refused(f"checkpoint {file.checkpoint} of {job.id} was replaced by a newer one meanwhile", hint=hint)
    what = "is missing" if got is None else "has other bytes than were committed"
    raise Refused(f"checkpoint {file.checkpoint} is damaged: {committed.path} {what}", hint=hint)


def _find(embedded: Embedded, job: JobRecord, part: str, checkpoint: str | None) -> list[_Wanted]:
    """Everything in one part."""
    store = embedded.store
    if part == "code":
        if job.code.sha256 is None:
            raise Refused(f"{job.id} ran in place; there is no snapshot of its code", hint=f"it ran in {job.code.folder}")
        return [_Wanted(layout.code(job.code.sha256), f"code-{job.code.sha256[:12]}.tar.zst", job.code.size_bytes)]
    if part == "checkpoint":
        return _find_checkpoint(embedded, job, checkpoint)
    if part == "logs":
        keys = [e for a in job.attempts for e in store.list_keys(layout.log_prefix(job.id, a.number))]
        return [_Wanted(e.key, "logs/" + e.key.split("/attempts/", 1)[1].replace("/log/", "/"), e.size_bytes) for e in keys]
    prefix = {"model": layout.model, "output": layout.output, "working": layout.working}[part](job.id)
    return [_Wanted(e.key, f"{part}/{e.key[len(prefix) + 1 :]}", e.size_bytes) for e in store.list_keys(prefix)]


def _find_checkpoint(embedded: Embedded, job: JobRecord, name: str | None) -> list[_Wanted]:
    name = name or (job.head.id if job.head is not None else None)
    hint = f"trainmaster checkpoints {job.id} lists them"
    if name is None:
        raise Refused(f"{job.id} has no committed checkpoint", hint=hint)
    try:
        layout.parse_checkpoint_id(name)
    except ValueError as error:
        raise InvalidSpec("--checkpoint", f'found "{name}", wanted an id such as 1-000001', hint=hint) from error
    marker = embedded.store.get(layout.commit(job.id, name))
    if marker is None:
        raise Refused(f"{job.id} has no committed checkpoint {name}", hint=hint)
    if checkpoints.read_marker(name, marker) is None:
        raise Refused(f"checkpoint {name} is damaged: its COMMIT cannot be read", hint=hint)
    manifest = _manifest(embedded, job, name, hint)
    outside = checkpoints.name_outside(manifest)
    if outside:
        raise Refused(f"checkpoint {name} is damaged: its manifest names {outside!r}", hint=hint)
    folders = [_Wanted(layout.checkpoint(job.id, name), f"checkpoint/{path}", 0, is_folder=True) for path in manifest.folders]
    return folders + [
        _Wanted(layout.checkpoint_file(job.id, file.stored_in, file.path), f"checkpoint/{file.path}", file.size_bytes, name, file)
        for file in manifest.files
    ]


def _manifest(embedded: Embedded, job: JobRecord, name: str, hint: str) -> Manifest:
    import msgspec

    from trainmaster.core.messages import Manifest

    value = embedded.store.get(layout.manifest(job.id, name))
    if value is None:
        raise Refused(f"checkpoint {name} of {job.id} was replaced by a newer one meanwhile", hint=hint)
    try:
        return msgspec.json.decode(value, type=Manifest)
    except msgspec.DecodeError as error:
        raise Refused(f"checkpoint {name} is damaged: its manifest cannot be read", hint=hint) from error


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> int:  # noqa: FBT001
    """Check this installation and this machine.

    The exit code is 1 when something is wrong.

    \b
    Examples:
      trainmaster doctor
      trainmaster doctor --json
    """
    checks = run(look_around(os.environ))
    if as_json:
        render.json([{"check": name, "state": state, "found": found} for name, state, found in checks])
    else:
        marks = {
            "ok": render.styled(render.symbol("✓", "+"), "green"),
            "warning": render.styled("!", "yellow"),
            "wrong": render.styled(render.symbol("✗", "x"), "red"),
        }
        width = max(len(name) for name, _, _ in checks)
        for name, state, found in checks:
            render.line(f"{marks[state]} {name:<{width}}  {render.wrapped(found, width + 4)}")
    return 1 if any(state == "wrong" for _, state, _ in checks) else 0
