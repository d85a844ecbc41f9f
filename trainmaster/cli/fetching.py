"""`pull` and `doctor`: bringing results home, and checking the house."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from trainmaster.cli import render
from trainmaster.cli.words import json_option, with_embedded
from trainmaster.core.job import JobRecord
from trainmaster.embedded import Embedded, look_around
from trainmaster.errors import Refused
from trainmaster.spec import layout
from trainmaster.spec.layout import Key

_PARTS = ("model", "output", "working", "checkpoint", "logs", "code")


@click.command("pull")
@click.argument("job")
@click.argument("folder", required=False)
@click.option(
    "--only", "parts", multiple=True, type=click.Choice(_PARTS), help="Only this; repeatable. Default: model, output, working."
)
@click.option("--checkpoint", help="Which checkpoint; default: the newest accepted.")
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

    \b
    Example:
      trainmaster pull last results --only model
    """

    async def work(embedded: Embedded) -> int:
        record = await embedded.service.get(await embedded.service.resolve(job))
        target = _target(folder or record.id, force=force)
        wanted = parts or (("checkpoint",) if checkpoint else ("model", "output", "working"))
        pairs = [pair for part in wanted for pair in _find(embedded, record, part, checkpoint)]
        total = sum(size for _, _, size in pairs)
        done = 0
        for key, path, size in pairs:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            if embedded.store.get_file(key, target / path) is None:
                raise Refused(f"{path} vanished from the store while it was copied")
            done += size
            render.progress("pulling", done, total)
        if as_json:
            render.json({"folder": str(target), "files": [path for _, path, _ in pairs], "bytes": total})
        elif pairs:
            render.line(f"{len(pairs)} files, {render.size(total)}, in {target}")
        else:
            render.note(f"{record.id} has no {', '.join(wanted)}")
        return 0

    return with_embedded(work)


def _target(name: str, *, force: bool) -> Path:
    target = Path(name).absolute()
    if target.exists() and not force and (not target.is_dir() or any(target.iterdir())):
        raise Refused(f"{target} is there already", hint="name another folder, or add --force")
    return target


def _find(embedded: Embedded, job: JobRecord, part: str, checkpoint: str | None) -> list[tuple[Key, str, int]]:
    """Key, path below the target folder and size of everything in one part."""
    store = embedded.store
    if part == "code":
        if job.code.sha256 is None:
            raise Refused(f"{job.id} ran in place; there is no snapshot of its code")
        return [(layout.code(job.code.sha256), f"code-{job.code.sha256[:12]}.tar.zst", job.code.size_bytes)]
    if part == "checkpoint":
        return _find_checkpoint(embedded, job, checkpoint)
    if part == "logs":
        keys = [e for a in job.attempts for e in store.list_keys(layout.log_prefix(job.id, a.number))]
        return [(e.key, "logs/" + e.key.split("/attempts/", 1)[1].replace("/log/", "/"), e.size_bytes) for e in keys]
    prefix = {"model": layout.model, "output": layout.output, "working": layout.working}[part](job.id)
    return [(e.key, f"{part}/{e.key[len(prefix) + 1 :]}", e.size_bytes) for e in store.list_keys(prefix)]


def _find_checkpoint(embedded: Embedded, job: JobRecord, name: str | None) -> list[tuple[Key, str, int]]:
    import msgspec

    from trainmaster.core.messages import Manifest

    name = name or (job.head.id if job.head is not None else None)
    if name is None:
        raise Refused(f"{job.id} has no committed checkpoint", hint=f"trainmaster checkpoints {job.id}")
    if embedded.store.get(layout.commit(job.id, name)) is None:
        raise Refused(f"{job.id} has no committed checkpoint {name}", hint=f"trainmaster checkpoints {job.id}")
    value = embedded.store.get(layout.manifest(job.id, name)) or b"{}"
    files = msgspec.json.decode(value, type=Manifest).files
    return [
        (layout.checkpoint_file(job.id, f.stored_in, f.path), f"checkpoint/{f.path}", f.size_bytes) for f in files if not f.link
    ]


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> int:  # noqa: FBT001
    """Check this installation and this machine.

    \b
    Example:
      trainmaster doctor
    """

    async def work(embedded: Embedded) -> int:
        checks = await look_around(embedded, os.environ)
        free = shutil.disk_usage(embedded.config.home_path).free
        checks.append(("disk", "ok" if free > 1 << 30 else "warning", f"{render.size(free)} free for {embedded.config.home}"))
        if as_json:
            render.json([{"check": name, "state": state, "found": found} for name, state, found in checks])
        else:
            marks = {"ok": render.styled("✓", "green"), "warning": render.styled("!", "yellow"), "wrong": render.styled("✗", "red")}
            width = max(len(name) for name, _, _ in checks)
            for name, state, found in checks:
                render.line(f"{marks[state]} {name:<{width}}  {found}")
        sys.stdout.flush()
        return 1 if any(state == "wrong" for _, state, _ in checks) else 0

    return with_embedded(work)
