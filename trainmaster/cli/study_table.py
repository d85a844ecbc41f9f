"""How does a study look? Its state, and what came of each of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainmaster.cli import render
from trainmaster.core import ledger
from trainmaster.core import study as core
from trainmaster.core.compare import metric_names, shown_number, shown_parameter
from trainmaster.core.job import JobRecord
from trainmaster.core.study import Child, StudyRecord
from trainmaster.embedded import Embedded

_ROWS_MAX = 50
_METRICS_SHOWN = 2
_CELL_MAX = 16


async def show_study(embedded: Embedded, study: StudyRecord, *, as_json: bool) -> None:
    """The study, and what came of each of its jobs."""
    jobs = await embedded.studies.jobs(study.id)
    children = await embedded.studies.children(study.id)
    now = embedded.ports.clock.now()
    if as_json:
        render.json({"study": study, "state": core.state(children), "tally": core.tally(children), "jobs": jobs})
        return
    parallel = study.rules.max_parallel
    code = study.code
    rows = [
        ("study", study.id),
        ("state", core.state(children)),
        ("jobs", f"{study.count}: {', '.join(f'{count} {word}' for word, count in core.tally(children).items())}"),
        ("at a time", "" if parallel is None else str(parallel)),
        ("submitted", f"{render.clock(study.submitted_at)} by {study.origin.user} on {study.origin.host}"),
        ("code", f"{code.folder} (in place, no snapshot)" if code.in_place else (code.sha256 or "")[:12]),
    ]
    render.pairs([(name, value) for name, value in rows if value], important=("study", "state"))
    render.line()
    _print_table(study, jobs[:_ROWS_MAX], now)
    if len(jobs) > _ROWS_MAX:
        render.note(f"{len(jobs) - _ROWS_MAX} more: trainmaster list --study {study.id}")


def _print_table(study: StudyRecord, jobs: Sequence[JobRecord], now: datetime) -> None:
    """As many columns as fit; those beyond are named."""
    columns = [
        ["JOB", *(job.id for job in jobs)],
        ["OUTCOME", *(job.outcome.value if job.outcome is not None else job.phase.value for job in jobs)],
    ]
    extra = [[name, *(_shortened(shown_parameter(job, name)) for job in jobs)] for name in study.rules.grid]
    for name in metric_names(jobs)[:_METRICS_SHOWN]:
        summaries = [job.metrics.get(name) for job in jobs]
        extra.append([f"{name} last", *("" if s is None else shown_number(s.last) for s in summaries)])
        extra.append(["min", *("" if s is None else shown_number(s.min) for s in summaries)])
        extra.append(["max", *("" if s is None else shown_number(s.max) for s in summaries)])
    extra.append(["RAN", *(render.age(ledger.running_s(job, now)) for job in jobs)])
    room = render.columns() - sum(2 + max(map(len, column)) for column in columns)
    left_out: list[str] = []
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
        render.note(f"no room for {', '.join(left_out)}: trainmaster compare --study {study.id} --csv has them")


def _shortened(text: str) -> str:
    return text if len(text) <= _CELL_MAX else f"{text[: _CELL_MAX - 1]}…"


def study_row(study: StudyRecord, children: Sequence[Child], now: datetime) -> tuple[str, ...]:
    """A study among jobs, in one line of `list`."""
    counts = core.tally(children)
    about = "study: " + ", ".join(f"{count} {word}" for word, count in counts.items())
    return study.id, core.state(children), render.age((now - study.submitted_at).total_seconds()), "", "", "", about
