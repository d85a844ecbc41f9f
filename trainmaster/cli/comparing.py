"""`compare` and `best`: how do jobs differ, and which did best?"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from trainmaster.cli import render
from trainmaster.cli.looking import read_metrics
from trainmaster.cli.selecting import chosen_jobs, selection_options
from trainmaster.cli.words import json_option, with_embedded
from trainmaster.core import ledger
from trainmaster.core.compare import best_job, differing_parameters, metric_names, shown_number, shown_parameter
from trainmaster.core.job import JobRecord
from trainmaster.embedded import Embedded
from trainmaster.errors import InvalidSpec, UnknownJob
from trainmaster.spec.problems import nearest, quoted

#: Of so many metrics there are tables with curves, unless some are asked for.
_METRICS_SHOWN = 3
_CELL_MAX = 16


@click.command("compare")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Show this metric; repeatable. Default: the commonest three."
)
@selection_options(limit=20)
@click.option("--csv", "as_csv", is_flag=True, help="Print everything as CSV.")
@json_option
def compare_command(
    jobs: tuple[str, ...],
    metrics: tuple[str, ...],
    as_csv: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    **flags: Any,
) -> int:
    """Show side by side how jobs differ and what came of it.

    Name jobs, or choose them as `list` does. Of the parameters those are
    shown that differ; --csv and --json have all.

    \b
    Examples:
      trainmaster compare --name sweep --since 7d --metric val_loss
      trainmaster compare --where 'metric.val_loss < 0.3' --csv > jobs.csv
    """
    if as_csv and as_json:
        raise click.UsageError("--csv or --json, not both")

    async def work(embedded: Embedded) -> int:
        found = await chosen_jobs(embedded, jobs, flags)
        shown = _metrics_to_show(found, metrics)
        now = embedded.ports.clock.now()
        if as_json:
            render.json([_as_value(job, now) for job in found])
        elif as_csv:
            _print_csv(found, metric_names(found), now)
        elif not found:
            render.note("no such jobs")
        else:
            _print_table(found, shown, now)
            _print_curves(embedded, found, shown)
        return 0

    return with_embedded(work)


def _metrics_to_show(jobs: Sequence[JobRecord], wanted: Sequence[str]) -> list[str]:
    known = metric_names(jobs)
    for name in wanted if jobs else ():
        if name not in known:
            raise unknown_metric(name, known)
    return list(dict.fromkeys(wanted)) or known[:_METRICS_SHOWN]


def unknown_metric(name: str, known: list[str]) -> InvalidSpec:
    """What to say when nobody has measured it."""
    there = f"measured: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}" if known else "they have measured nothing"
    return InvalidSpec("--metric", f"none of these jobs has measured {quoted(name)}{nearest(name, known)}", hint=there)


def _state(job: JobRecord) -> str:
    return job.outcome.value if job.outcome is not None else job.phase.value


def _print_table(jobs: Sequence[JobRecord], metrics: Sequence[str], now: datetime) -> None:
    """As many columns as fit; the parameters beyond are named."""
    columns = [
        ["JOB", *(job.id for job in jobs)],
        ["OUTCOME", *(_state(job) for job in jobs)],
        ["RAN", *(render.age(ledger.running_s(job, now)) for job in jobs)],
    ]
    names = differing_parameters(jobs)
    extra = [[name, *(_shortened(shown_parameter(job, name)) for job in jobs)] for name in names]
    extra += [[f"{name} (last)", *(_last(job, name) for job in jobs)] for name in metrics]
    left_out: list[str] = []
    room = render.columns() - sum(2 + max(map(len, column)) for column in columns)
    for column in extra:
        width = 2 + max(map(len, column))
        if width > room:
            left_out.append(column[0])
            continue
        room -= width
        columns.append(column)
    heads, *rows = zip(*columns, strict=True)
    render.table(heads, rows)
    if left_out:
        render.note(f"no room for {', '.join(left_out)}: --csv and --json have them")
    if not names:
        render.note("their parameters are the same" if len(jobs) > 1 else "one job; nothing to compare it with")


def _print_curves(embedded: Embedded, jobs: Sequence[JobRecord], metrics: Sequence[str]) -> None:
    """For each metric how it went, job by job."""
    series: dict[str, dict[str, list[float]]] = {}
    for job in jobs if metrics else ():
        for point in read_metrics(embedded, job):
            for name in metrics:
                value = point.get(name)
                if isinstance(value, int | float):
                    series.setdefault(name, {}).setdefault(job.id, []).append(float(value))
    for name in metrics:
        rows = []
        for job in jobs:
            found = job.metrics.get(name)
            if found is not None:
                numbers = (shown_number(found.last), shown_number(found.min), shown_number(found.max))
                rows.append((job.id, *numbers, render.curve(series.get(name, {}).get(job.id, []), 24)))
        render.line()
        render.table((name, "LAST", "MIN", "MAX", "CURVE"), rows)


def _last(job: JobRecord, metric: str) -> str:
    found = job.metrics.get(metric)
    return "" if found is None else shown_number(found.last)


def _shortened(text: str) -> str:
    return text if len(text) <= _CELL_MAX else f"{text[: _CELL_MAX - 1]}…"


def _as_value(job: JobRecord, now: datetime) -> dict[str, object]:
    return {
        "job": job.id,
        "name": job.spec.name,
        "phase": job.phase,
        "outcome": job.outcome,
        "submitted_at": job.submitted_at,
        "duration_s": round(ledger.running_s(job, now), 3),
        "attempts": job.attempt,
        "tags": job.spec.tags,
        "parameters": job.spec.hyperparameters,
        "metrics": job.metrics,
    }


def _print_csv(jobs: Sequence[JobRecord], metrics: Sequence[str], now: datetime) -> None:
    parameters = list(dict.fromkeys(name for job in jobs for name in job.spec.hyperparameters))
    tags = list(dict.fromkeys(name for job in jobs for name in job.spec.tags))
    parts = ("last", "min", "max")
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    heads = ["job", "name", "phase", "outcome", "submitted_at", "duration_s", "attempts"]
    heads += [f"hp.{name}" for name in parameters] + [f"tag.{name}" for name in tags]
    writer.writerow(heads + [f"metric.{name}.{part}" for name in metrics for part in parts])
    for job in jobs:
        row = [job.id, job.spec.name, job.phase.value, job.outcome.value if job.outcome is not None else ""]
        row += [job.submitted_at.isoformat(), f"{ledger.running_s(job, now):.3f}", str(job.attempt)]
        row += [shown_parameter(job, name) for name in parameters] + [job.spec.tags.get(name, "") for name in tags]
        for name in metrics:
            found = job.metrics.get(name)
            values = [None if found is None else getattr(found, part) for part in parts]
            row += ["" if value is None else repr(value) for value in values]
        writer.writerow(row)
    render.raw(out.getvalue().encode())


@click.command("best")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("--metric", required=True, metavar="NAME", help="Which metric counts.")
@click.option("--min", "is_lowest", is_flag=True, help="The lowest value it ever had is the best.")
@click.option("--max", "is_highest", is_flag=True, help="The highest value it ever had is the best.")
@selection_options(limit=100_000)
@json_option
def best_command(
    jobs: tuple[str, ...],
    metric: str,
    is_lowest: bool,  # noqa: FBT001
    is_highest: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    **flags: Any,
) -> int:
    """Name the job with the lowest or highest value of a metric.

    The id alone is printed, for use in another command; what it reached is
    said beside it.

    \b
    Examples:
      trainmaster best --metric val_loss --min --name sweep
      trainmaster best --metric accuracy --max --since 7d --json
    """
    if is_lowest == is_highest:
        raise click.UsageError("which is best? Say --min or --max")

    async def work(embedded: Embedded) -> int:
        found = await chosen_jobs(embedded, jobs, flags)
        if not found:
            raise UnknownJob("no job matches", hint="`trainmaster list` shows the jobs there are")
        best = best_job(found, metric, is_lowest=is_lowest)
        if best is None:
            raise unknown_metric(metric, [name for name in metric_names(found) if name != metric])
        having = sum(metric in job.metrics for job in found)
        if as_json:
            value = {"metric": metric, "value": best.value, "step": best.step, "of_jobs": having}
            render.json({**_as_value(best.job, embedded.ports.clock.now()), "best": value})
        else:
            render.line(best.job.id)
            step = "" if best.step is None else f" at step {best.step}"
            side = "lowest" if is_lowest else "highest"
            render.note(f"{metric} {shown_number(best.value)}{step}, the {side} of {render.count(having, 'job')}")
        return 0

    return with_embedded(work)
