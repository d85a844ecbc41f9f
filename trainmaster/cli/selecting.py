"""Which jobs does a command mean? The options of `list`, which `compare` and `best` have, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from trainmaster.cli.words import split_pairs
from trainmaster.core.job import JobRecord, Outcome, Phase
from trainmaster.core.search import Search
from trainmaster.embedded import Embedded
from trainmaster.errors import InvalidSpec
from trainmaster.ports.database import Selection
from trainmaster.spec.where import parse_where

_ALL = 1_000_000
_Command = TypeVar("_Command", bound=Callable[..., Any])


def selection_options(*, limit: int) -> Callable[[_Command], _Command]:
    """The options that choose jobs; `limit` is how many there are at most unless somebody says otherwise."""
    options = [
        click.option(
            "--phase", "phases", multiple=True, type=click.Choice([p.value for p in Phase]), help="Only jobs in this phase."
        ),
        click.option(
            "--outcome", "outcomes", multiple=True, type=click.Choice([o.value for o in Outcome]), help="Only with this outcome."
        ),
        click.option("--name", help="Only jobs of this name."),
        click.option("--tag", multiple=True, metavar="K=V", help="Only with this tag; repeatable."),
        click.option(
            "--since", metavar="TIME", help="Only submitted within, such as 2h or 7d; or after a date such as 2026-01-31."
        ),
        click.option("--study", metavar="STUDY", help="Only jobs of this study."),
        click.option("--where", metavar="CONDITION", help="Only jobs that fit, such as 'hp.lr < 0.1 and metric.loss < 0.3'."),
        click.option("--limit", type=click.IntRange(1, 100_000), default=limit, help=f"At most so many; default {limit}."),
    ]

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def read_selection(flags: Mapping[str, Any], now: datetime) -> Selection:
    """What the options say."""
    return Selection(
        phases=tuple(Phase(word) for word in flags["phases"]),
        outcomes=tuple(Outcome(word) for word in flags["outcomes"]),
        name=flags["name"],
        tags=tuple(split_pairs(flags["tag"], "--tag").items()),
        submitted_after=None if flags["since"] is None else _moment(flags["since"], now),
        where=None if flags["where"] is None else Search(condition=parse_where(flags["where"]), now=now),
        limit=flags["limit"],
    )


async def chosen(embedded: Embedded, flags: Mapping[str, Any]) -> Selection:
    """What the options say; of a study all jobs, unless a limit is given."""
    selection = read_selection(flags, embedded.ports.clock.now())
    if flags["study"] is None:
        return selection
    source = click.get_current_context().get_parameter_source("limit")
    limit = selection.limit if source is click.core.ParameterSource.COMMANDLINE else _ALL
    return replace(selection, study=await embedded.studies.resolve(flags["study"]), limit=limit)


def in_order(jobs: list[JobRecord], selection: Selection) -> list[JobRecord]:
    """A study's jobs in the order of its combinations; others newest first, as they come."""
    if selection.study is None:
        return jobs
    return sorted(jobs, key=lambda job: job.study.index if job.study is not None else 0)


async def chosen_jobs(embedded: Embedded, names: tuple[str, ...], flags: Mapping[str, Any]) -> list[JobRecord]:
    """Jobs that were named, in that order, and each once; without names, those that the options choose."""
    selection = await chosen(embedded, flags)
    if not names:
        return in_order(await embedded.ports.database.find(selection), selection)
    if selection != Selection(limit=selection.limit):
        raise InvalidSpec("JOB", "jobs are named, or chosen by options; not both at once")
    ids = dict.fromkeys([await embedded.service.resolve(name) for name in names])
    return [await embedded.service.get(job_id) for job_id in ids]


def _moment(text: str, now: datetime) -> datetime:
    """A time in the past, as a distance or a date."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        pass
    hint = "write a distance such as 30m, 2h, 7d, or a date such as 2026-01-31"
    return now - timedelta(seconds=read_moment_s("--since", text, hint))


def read_moment_s(flag: str, text: str, hint: str = "write a distance such as 12h, 7d, 30d") -> float:
    """A distance in time, of a hundred years at most."""
    from trainmaster.spec.units import parse_duration

    seconds = parse_duration(text)
    if seconds is None or seconds > 86400 * 36500:
        raise InvalidSpec(flag, f'found "{text}"', hint=hint)
    return seconds
