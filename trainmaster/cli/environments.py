"""`envs`: which environments were built on this machine, and which of them may go?"""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from trainmaster.cli import render
from trainmaster.cli.words import json_option, with_embedded
from trainmaster.embedded import Embedded
from trainmaster.errors import InvalidSpec

_OLD = "30d"


@click.command("envs")
@click.argument("action", type=click.Choice(["list", "prune"]), default="list")
@click.option("--older-than", metavar="TIME", help=f"prune: only what no job used for so long, such as 7d; default {_OLD}.")
@click.option("--all", "everything", is_flag=True, help="prune: whatever no job runs in, however new.")
@click.option("--cache", is_flag=True, help="prune: empty uv's download cache, too.")
@click.option("--dry-run", is_flag=True, help="prune: only say what would go.")
@json_option
def envs_command(
    action: str,
    older_than: str | None,
    everything: bool,  # noqa: FBT001
    cache: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Show or remove the environments built on this machine.

    One that a job runs in is never removed. What is removed is built again when a job asks for it.

    \b
    Examples:
      trainmaster envs list
      trainmaster envs prune --older-than 7d --dry-run
    """
    if action == "list" and (older_than or everything or cache or dry_run):
        raise InvalidSpec("", "--older-than, --all, --cache and --dry-run belong to `envs prune`")
    if everything and older_than:
        raise InvalidSpec("--all", "found beside --older-than, wanted one of the two")
    age_s = 0.0 if everything else _seconds(older_than or _OLD)

    async def work(embedded: Embedded) -> int:
        now = embedded.ports.clock.now()
        if action == "list":
            _list(embedded, now, as_json=as_json)
        else:
            before_s = now.timestamp() - age_s if not everything else float("inf")
            _prune(embedded, before_s, (cache, dry_run), as_json=as_json)
        return 0

    return with_embedded(work)


def _seconds(text: str) -> float:
    from trainmaster.spec.units import parse_duration

    seconds = parse_duration(text)
    if seconds is None:
        raise InvalidSpec("--older-than", f'found "{text}", wanted a time such as 12h or 30d')
    return seconds


def _list(embedded: Embedded, now: datetime, *, as_json: bool) -> None:
    found = embedded.environments.listing()
    if as_json:
        render.json([{**msgspec.structs.asdict(one), "used_at": _moment(one.used_at_s)} for one in found])
        return
    if not found:
        render.note("no environments")
    rows = []
    for one in found:
        state = one.broken or ("in use" if one.in_use else "")
        used = f"{render.age(max(0.0, now.timestamp() - one.used_at_s))} ago"
        rows.append((one.key[:12], one.python, str(one.packages), render.size(one.size_bytes), used, state))
    render.table(("ENVIRONMENT", "PYTHON", "PACKAGES", "SIZE", "LAST USED", "STATE"), rows)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _prune(embedded: Embedded, before_s: float, how: tuple[bool, bool], *, as_json: bool) -> None:
    cache, dry_run = how
    done = embedded.environments.prune(before_s, with_cache=cache, dry_run=dry_run)
    freed = sum(one.size_bytes for one in done.removed) + done.cache_bytes
    if as_json:
        keys = {"removed": [one.key for one in done.removed], "in_use": [one.key for one in done.in_use]}
        render.json({**keys, "bytes": freed, "cache_bytes": done.cache_bytes, "dry_run": dry_run})
        return
    word = "would be removed" if dry_run else "removed"
    for one in done.removed:
        render.line(f"{one.key[:12]}  {one.python}, {render.size(one.size_bytes)}: {word}")
    for one in done.in_use:
        render.line(f"{one.key[:12]}  {one.python}, {render.size(one.size_bytes)}: stays, a job runs in it")
    if done.cache_bytes:
        render.line(f"uv's cache, {render.size(done.cache_bytes)}: {word}")
    if not done.removed and not done.cache_bytes:
        render.note("nothing to remove")
