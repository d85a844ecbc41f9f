"""`delete`, `prune`, `du`: what goes, and what takes how much room?"""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from trainmaster.cli import render
from trainmaster.cli.selecting import read_moment_s
from trainmaster.cli.words import json_option, split_pairs, with_embedded
from trainmaster.core.house import Item, JobUsage, Plan, Usage, Wish
from trainmaster.core.job import JobId, JobRecord, Outcome
from trainmaster.embedded import Embedded
from trainmaster.errors import InvalidSpec, Refused

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
_KINDS = {
    "job": "job",
    "model_kept": "all but model",
    "leftover": "files of no job",
    "unknown": "not of this home",
    "code": "code",
    "packing": "unfinished packing",
}
_UNITS = ("", "k", "M", "G", "T", "P")


@click.command("delete")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB|STUDY...")
@yes_option
@json_option
def delete_command(jobs: tuple[str, ...], yes: bool, as_json: bool) -> int:  # noqa: FBT001
    """Delete finished jobs with everything they left.

    Record, story, logs, metrics, checkpoints, model and outputs go, and the
    code if no other job has it; of a study all its jobs. A job that has not
    finished is refused: stop it first. So is one that another job needs.
    Without a terminal to ask at, --yes is needed.

    \b
    Examples:
      trainmaster delete mnist-k7q2m
      trainmaster delete --yes mnist-k7q2m sweep-h3p7w
    """

    async def work(embedded: Embedded) -> int:
        records, named = await _named(embedded, jobs)
        _confirm(f"delete {', '.join(named)} with everything {'it' if len(records) == 1 else 'they'} left?", yes=yes)
        await embedded.ensure_driven()  # who has just finished may still have to be sealed
        gone = await embedded.house.delete(records)
        if as_json:
            render.json({"deleted": gone})
        else:
            for job_id in gone:
                render.line(f"deleted {job_id}")
        return 0

    return with_embedded(work)


async def _named(embedded: Embedded, names: tuple[str, ...]) -> tuple[list[JobRecord], list[str]]:
    """Jobs that are named, and all jobs of studies that are; each once. And how to speak of them."""
    found: dict[JobId, JobRecord] = {}
    said: list[str] = []
    for name in names:
        study = await embedded.studies.find(name)
        if study is None:
            records = [await embedded.service.get(await embedded.service.resolve(name))]
        else:
            records = await embedded.studies.everything(study.id)
        meant = records[0].id if study is None else study.id
        for record in records:
            if not record.is_finished:
                hint = f"stop it first: trainmaster stop --wait {meant}"
                raise Refused(f"{record.id} has not finished; nothing was deleted", hint=hint)
        said.append(meant if study is None else f"{meant} and its {render.count(len(records), 'job')}")
        found |= {record.id: record for record in records}
    return list(found.values()), list(dict.fromkeys(said))


@click.command("prune")
@click.option("--older-than", metavar="TIME", help="Jobs that finished so long ago, such as 30d or 12h.")
@click.option("--keep-models", is_flag=True, help="Keep record, story, metrics, model and code; the rest goes.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice([o.value for o in Outcome]), help="Only with this outcome.")
@click.option("--name", help="Only jobs of this name.")
@click.option("--tag", multiple=True, metavar="K=V", help="Only with this tag; repeatable.")
@click.option("--where", metavar="CONDITION", help="Only jobs that fit, such as 'metric.loss > 1'.")
@click.option("--study", metavar="STUDY", help="Only jobs of this study.")
@click.option("--unknown", is_flag=True, help="Also what lies in the store under jobs this home does not know.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@yes_option
@json_option
def prune_command(yes: bool, dry_run: bool, as_json: bool, **flags: Any) -> int:  # noqa: FBT001
    """Remove old jobs and what nobody needs any more.

    Shows what would go and how much it is, asks, and does it. Jobs that have
    not finished, and what they need, stay. Without --older-than no job goes,
    only leftovers: of submissions, imports and deletions that were killed,
    and code that no job has.

    \b
    Examples:
      trainmaster prune --older-than 30d --keep-models
      trainmaster prune --older-than 7d --outcome failed --yes
      trainmaster prune --older-than 90d --where 'not tag.keep' --dry-run
    """

    async def work(embedded: Embedded) -> int:
        house = embedded.house
        plan = await house.plan(await _wish(embedded, flags))
        if dry_run or not plan.items:
            _show_plan(plan, is_done=False, as_json=as_json)
            return 0
        if not as_json:
            _show_items(plan)
        foreign = sum(item.kind == "unknown" for item in plan.items)
        theirs = f", with {render.count(foreign, 'job')} that another home may have" if foreign else ""
        _confirm(f"remove {render.size(plan.size_bytes)}{theirs}?", yes=yes)
        await embedded.ensure_driven()
        gone = [item async for item in house.carry_out(plan)]
        if as_json:
            render.json(_plan_value(gone, plan, is_done=True))
        else:
            render.line(f"removed {render.size(sum(item.size_bytes for item in gone))}: {_counts(gone)}")
        return 0

    return with_embedded(work)


async def _wish(embedded: Embedded, flags: dict[str, Any]) -> Wish:
    from trainmaster.core.search import Search
    from trainmaster.spec.where import parse_where

    chooses = [flags["keep_models"], flags["outcomes"], flags["name"], flags["tag"], flags["where"], flags["study"]]
    if flags["older_than"] is None and any(chooses):
        raise InvalidSpec("--older-than", "is missing: how old must a job be to go?", hint="such as --older-than 30d")
    now = embedded.ports.clock.now()
    return Wish(
        older_than_s=None if flags["older_than"] is None else read_moment_s("--older-than", flags["older_than"]),
        keep_models=flags["keep_models"],
        outcomes=tuple(Outcome(word) for word in flags["outcomes"]),
        name=flags["name"],
        tags=tuple(split_pairs(flags["tag"], "--tag").items()),
        where=None if flags["where"] is None else Search(condition=parse_where(flags["where"]), now=now),
        study=None if flags["study"] is None else await embedded.studies.resolve(flags["study"]),
        unknown=flags["unknown"],
    )


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused("nothing was removed: there is no terminal to ask at", hint="add --yes")
    # asyncio would wait for the answer before it heard of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        is_sure = click.confirm(render.printable(question), err=True)
    except click.Abort:
        render.interrupted("interrupted; nothing was removed")
        raise click.exceptions.Exit(130) from None
    if not is_sure:
        raise Refused("nothing was removed", hint="answer y, or add --yes")


def _show_plan(plan: Plan, *, is_done: bool, as_json: bool) -> None:
    if as_json:
        render.json(_plan_value(plan.items, plan, is_done=is_done))
    elif plan.items:
        _show_items(plan)
    else:
        _tell_kept(plan)
        render.note("nothing to remove")


def _show_items(plan: Plan) -> None:
    rows = [(_shown(item), render.size(item.size_bytes), _KINDS[item.kind], item.why) for item in plan.items]
    render.table(("WHAT", "SIZE", "KIND", "WHY"), rows)
    render.line(f"{render.size(plan.size_bytes)} in all: {_counts(plan.items)}")
    _tell_kept(plan)


def _tell_kept(plan: Plan) -> None:
    for job_id, why in plan.kept:
        render.note(f"{job_id} stays: {why}")


def _shown(item: Item) -> str:
    return item.name[:12] if item.kind == "code" else item.name


def _counts(items: Any) -> str:
    counts: dict[str, int] = {}
    for item in items:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    words = {
        "job": "job",
        "model_kept": "job whose model stays",
        "leftover": "leftover",
        "unknown": "unknown job",
        "code": "snapshot of code",
        "packing": "unfinished packing",
    }
    plurals = {"model_kept": "jobs whose models stay", "code": "snapshots of code"}
    said = [
        f"{number} {words[kind]}" if number == 1 else f"{number} {plurals.get(kind, words[kind] + 's')}"
        for kind, number in counts.items()
    ]
    return ", ".join(said) or "nothing"


def _plan_value(items: Any, plan: Plan, *, is_done: bool) -> dict[str, object]:
    shown = [
        {"kind": item.kind, "name": item.name, "bytes": item.size_bytes, "objects": item.objects, "why": item.why} for item in items
    ]
    kept = [{"job": job_id, "why": why} for job_id, why in plan.kept]
    return {"removed": is_done, "items": shown, "bytes": sum(item.size_bytes for item in items), "kept": kept}


@click.command("du")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@json_option
def du_command(jobs: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001
    """Show how much room jobs take, the largest first.

    Code that several jobs have counts once, on a line of its own. LOGS are
    logs and metrics, OUTPUT is everything a job left beside its model.

    \b
    Examples:
      trainmaster du
      trainmaster du mnist-k7q2m last --json
    """

    async def work(embedded: Embedded) -> int:
        ids = list(dict.fromkeys([await embedded.service.resolve(name) for name in jobs]))
        found = await embedded.usage(ids)
        if as_json:
            render.json(found)
        elif not found.jobs and not found.home:
            render.note("nothing there yet")
        else:
            _show_usage(found, is_all=not ids)
        return 0

    return with_embedded(work)


def _show_usage(found: Usage, *, is_all: bool) -> None:
    heads = ("JOB", "TOTAL", "CKPTS", "LOGS", "MODEL", "OUTPUT", "CODE", "OTHER")
    render.table(heads, [_usage_row(one) for one in found.jobs])
    rows = [("shared code", found.shared_code), ("code no job has", found.unused_code), ("elsewhere in the store", found.elsewhere)]
    rows = [row for row in rows if row[1]]
    if is_all:
        rows.append(("the store in all", found.store_total))
        rows += [(f"home: {name}", size) for name, size in sorted(found.home.items(), key=lambda part: -part[1]) if size]
    if rows:
        render.line()
        width = max(len(name) for name, _ in rows)
        for name, size in rows:
            render.line(f"{render.printable(name):<{width}}  {render.size(size):>9}")
    unknown = [one.job for one in found.jobs if not one.is_known]
    if unknown:
        render.note(f"{render.count(len(unknown), 'job')} in the store that this home does not know (marked ?): prune --unknown")


def _usage_row(one: JobUsage) -> tuple[str, ...]:
    code = f"({_short(one.code)})" if one.is_code_shared else _short(one.code)
    sizes = (one.total, one.checkpoints, one.logs, one.model, one.output)
    return (one.job if one.is_known else f"? {one.job}", *map(_short, sizes), code, _short(one.other))


def _short(size_bytes: int) -> str:
    """A number of bytes in five characters."""
    value, unit = float(size_bytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f}{_UNITS[unit]}" if unit and value < 99.5 else f"{value:.0f}{_UNITS[unit]}"
