"""`list`, `show`, `why`, `checkpoints`, `metrics`: what is, and what was?"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from trainmaster.cli import render
from trainmaster.cli.selecting import chosen, in_order, selection_options
from trainmaster.cli.words import json_option, with_embedded
from trainmaster.core import ledger
from trainmaster.core.compare import machine_words
from trainmaster.core.facts import ExitReport, Heartbeat
from trainmaster.core.inputs import InputSummary
from trainmaster.core.job import CheckpointRef, JobRecord, Outcome, Phase
from trainmaster.core.metrics import BESIDE_METRICS
from trainmaster.embedded import Embedded
from trainmaster.errors import StoreError
from trainmaster.ports.database import Selection
from trainmaster.spec import layout

_LINE_STYLES = {
    "succeeded": "green",
    "failed": "red",
    "crashed": "red",
    "interrupted": "yellow",
    "stopped": "yellow",
    "started": "cyan",
    "resumes": "cyan",
}


@click.command("list")
@selection_options(limit=50)
@json_option
def list_command(as_json: bool, **flags: Any) -> int:  # noqa: FBT001
    """Show jobs, newest first.

    A study is one line, unless options choose jobs; --study lists its jobs.
    A job that lacks a value that --where asks for does not match.

    \b
    Examples:
      trainmaster list --phase running --tag team=vision --since 7d
      trainmaster list --where 'hp.lr < 0.1 and metric.val_loss < 0.3'
    """

    async def work(embedded: Embedded) -> int:
        now = embedded.ports.clock.now()
        selection = await chosen(embedded, flags)
        is_everything = selection == Selection(limit=selection.limit)
        if is_everything and not as_json:
            rows = await _folded(embedded, selection.limit, now)
        else:
            jobs = in_order(await embedded.ports.database.find(selection), selection)
            rows = [_row(job, now) for job in jobs]
            if as_json:
                render.json(jobs)
                return 0
        if not rows:
            render.note("no jobs" if is_everything else "no such jobs")
        else:
            render.table(("JOB", "PHASE", "AGE", "RAN", "TRY", "DURABLE", "ABOUT"), rows)
        return 0

    return with_embedded(work)


async def _folded(embedded: Embedded, limit: int, now: datetime) -> list[tuple[str, ...]]:
    """Jobs, newest first, each study as one line among them: a hundred of its jobs would hide everything else."""
    jobs = await embedded.ports.database.find(Selection(without_studies=True, limit=limit))
    rows = [(job.submitted_at, _row(job, now)) for job in jobs]
    for study in await embedded.ports.database.studies(limit):
        from trainmaster.cli.study_table import study_row

        rows.append((study.submitted_at, study_row(study, await embedded.studies.children(study.id), now)))
    return [row for _, row in sorted(rows, key=lambda found: found[0], reverse=True)[:limit]]


def _row(job: JobRecord, now: datetime) -> tuple[str, ...]:
    about = job.reason.sentence if job.reason is not None else f"waits for {job.waits_for}" if job.waits_for else ""
    if job.outcome is Outcome.SUCCEEDED:
        # The jobs of a study have their tags in common; what they try is what tells them apart.
        words = job.spec.tags if job.study is None else job.spec.hyperparameters
        about = " ".join(f"{k}={v}" for k, v in sorted(words.items()))
    durable = "" if job.head is None else f"step {job.head.step}" if job.head.step is not None else job.head.id
    return (
        job.id,
        job.outcome.value if job.outcome is not None else job.phase.value,
        render.age((now - job.submitted_at).total_seconds()),
        render.age(ledger.running_s(job, now)),
        str(job.attempt),
        durable,
        about,
    )


@click.command("show")
@click.argument("job", metavar="JOB|STUDY")
@json_option
def show_command(job: str, as_json: bool) -> int:  # noqa: FBT001
    """Show everything about one job, or about one study.

    Its outcome and the reason for it, code, command, parameters, attempts,
    the last durable step and what would be lost now, and where the time went.
    A failed script's traceback is at the end.

    \b
    Examples:
      trainmaster show last
      trainmaster show mnist-k7q2m --json
    """

    async def work(embedded: Embedded) -> int:
        study = await embedded.studies.find(job)
        if study is not None:
            from trainmaster.cli.study_table import show_study

            await show_study(embedded, study, as_json=as_json)
            return 0
        record = await embedded.service.get(await embedded.service.resolve(job))
        beat, report = await _machine_side(embedded, record)
        now = embedded.ports.clock.now()
        durable = _durable(record, beat, now)
        pruned_at = await embedded.service.pruned_at(record)
        if as_json:
            spans = {name: round(seconds, 3) for name, seconds in ledger.totals(record, now).items()}
            render.json(
                {"job": record, "ledger_s": spans, "durable": durable, "heartbeat": beat, "exit": report, "pruned_at": pruned_at}
            )
        else:
            _show(record, durable, now)
            if pruned_at is not None:
                render.note(f"pruned at {render.clock(pruned_at)}: checkpoints, logs and outputs are gone, model and metrics stay")
            _show_machine_side(beat, report)
        return 0

    return with_embedded(work)


def _durable(job: JobRecord, beat: Heartbeat | None, now: datetime) -> dict[str, object]:
    """The last durable step, its age, and what would be lost if the machine died now."""
    head = job.head or (job.continues.checkpoint if job.continues is not None else None)
    if beat is not None and beat.commit is not None:
        head = beat.commit
    age_s = None if head is None else round((now - head.taken_at).total_seconds(), 1)
    at_risk_s = ledger.totals(job, now)["at_risk_compute"]
    if beat is not None and beat.commit is not None and job.phase is Phase.RUNNING:
        at_risk_s = min(at_risk_s, (now - beat.commit.taken_at).total_seconds())
    return {
        "checkpoint": None if head is None else head.id,
        "step": None if head is None else head.step,
        "age_s": None if job.is_finished else age_s,
        "lost_if_killed_now_s": round(at_risk_s, 1),
    }


async def _machine_side(embedded: Embedded, job: JobRecord) -> tuple[Heartbeat | None, ExitReport | None]:
    """What the runner wrote into the store; nothing while the store is away."""
    try:
        beat = None if job.is_finished else await embedded.service.heartbeat(job)
        return beat, await embedded.service.exit_report(job)
    except StoreError as error:
        render.note(f"what the runner says cannot be read now: {error.sentence}", "yellow")
        return None, None


def _show_machine_side(beat: Heartbeat | None, report: ExitReport | None) -> None:
    """What only the runner knows."""
    rows: list[tuple[str, str]] = []
    if report is not None:
        rows.append(("used", f"{render.age(report.cpu_s)} of CPU, {render.size(report.max_rss_bytes)} of memory at most"))
        rows.append(("log", render.size(report.log_bytes)))
        rows.append(
            ("left behind", ", ".join(report.left_behind[:20]) + " (not kept; see outputs.keep)" if report.left_behind else "")
        )
        rows.append(("warnings", "; ".join(report.warnings)))
    elif beat is not None:
        rows.append(("runner", f"{beat.state}, {render.size(beat.rss_bytes)} of memory"))
        rows.append(("log", render.size(beat.log_bytes)))
        rows.append(("warnings", "; ".join(beat.warnings)))
    rows = [(name, value) for name, value in rows if value]
    if rows:
        render.line()
        render.pairs(rows)


def _show(job: JobRecord, durable: dict[str, object], now: datetime) -> None:
    code = f"{job.code.folder} (in place, no snapshot)"
    if not job.code.in_place:
        commit = f", commit {job.code.commit[:12]}{' + changes' if job.code.dirty else ''}" if job.code.commit else ""
        code = f"{(job.code.sha256 or '')[:12]}, {render.count(job.code.files, 'file')}, {render.size(job.code.size_bytes)}{commit}"
    rows = [
        ("job", job.id),
        ("phase", job.outcome.value if job.outcome is not None else job.phase.value),
        ("reason", job.reason.sentence if job.reason is not None else ""),
        ("waits for", job.waits_for),
        ("submitted", f"{render.clock(job.submitted_at)} by {job.origin.user} on {job.origin.host}"),
        ("code", code),
        ("left out", ", ".join(job.code.left_out)),
        ("command", _command(job)),
        ("python", job.origin.python),
        ("environment", _environment(job)),
        ("machine", machine_words(job.current.machine) if job.attempts else ""),
        ("tags", " ".join(f"{k}={v}" for k, v in sorted(job.spec.tags.items()))),
        ("parameters", " ".join(f"{k}={v}" for k, v in sorted(job.spec.hyperparameters.items()))),
        *(("data", _data(channel, found)) for channel, found in job.inputs.items()),
        ("seed", "" if job.seed is None else str(job.seed)),
        ("study", "" if job.study is None else f"number {job.study.index} of {job.study.id}"),
        ("goes on from", _continues(job)),
        ("runs again", job.reruns),
        ("attempts", f"{job.attempt}; {_budgets(job)}"),
        ("durable", _durable_words(job, durable)),
    ]
    render.pairs([(name, value) for name, value in rows if value], important=("job", "phase"))
    render.line()
    render.line(render.styled("time", "bold"))
    for name, seconds in ledger.totals(job, now).items():
        if seconds > 0:
            render.line(f"  {name.replace('_', ' '):<16} {render.age(seconds):>8}")
    total = (job.finished_at or now) - job.submitted_at
    render.line(f"  {'together':<16} {render.age(total.total_seconds()):>8}")
    evidence = job.reason.evidence.get("traceback") if job.reason is not None else None
    if evidence:
        render.line()
        render.line(render.printable(evidence))


def _data(channel: str, found: InputSummary) -> str:
    size = f"{render.count(found.files, 'file')}, {render.size(found.size_bytes)}, {found.hash[:12]}"
    return f"{channel}: {size} from {found.uri}"


def _command(job: JobRecord) -> str:
    spec = job.spec
    if spec.command is not None:
        return spec.command if isinstance(spec.command, str) else " ".join(spec.command)
    return " ".join([spec.entry_point or "", *spec.arguments])


def _continues(job: JobRecord) -> str:
    found = job.continues
    if found is None:
        return ""
    if found.checkpoint is None:
        return f"{found.job}, which had committed nothing"
    step = "" if found.checkpoint.step is None else f", step {found.checkpoint.step}"
    whose = "" if found.source == found.job else f" of {found.source}"
    return f"{found.job}, checkpoint {found.checkpoint.id}{whose}{step}"


def _environment(job: JobRecord) -> str:
    found = job.current.environment if job.attempts else None
    if found is None:
        return ""
    how = "was there" if found.was_there else f"built in {render.age(found.seconds)}"
    return f"{found.key[:12]}, {found.python}, {render.count(found.packages, 'package')}, {how}"


def _budgets(job: JobRecord) -> str:
    retry = job.spec.retry
    return f"failures {job.failures} of {retry.failures}, interruptions {job.interruptions} of {retry.interruptions}"


def _durable_words(job: JobRecord, durable: dict[str, object]) -> str:
    if durable["checkpoint"] is None:
        return "" if job.is_finished else "nothing committed yet"
    step = "" if durable["step"] is None else f", step {durable['step']}"
    text = f"checkpoint {durable['checkpoint']}{step}"
    age, risk = durable["age_s"], durable["lost_if_killed_now_s"]
    if isinstance(age, float):
        text += f", {render.age(age)} old"
    if isinstance(risk, float) and job.phase is Phase.RUNNING:
        text += f"; {render.age(risk)} of work would be lost now"
    return text


def tell_end(job: JobRecord) -> None:
    """How a job ended, in a few lines on the side."""
    assert job.finished_at is not None
    assert job.outcome is not None
    took = render.age((job.finished_at - job.submitted_at).total_seconds())
    style = {"succeeded": "green", "failed": "red", "stopped": "yellow"}[job.outcome.value]
    again = f", {job.attempt} attempts" if job.attempt > 1 else ""
    reason = "" if job.reason is None or job.outcome is Outcome.SUCCEEDED else f" {job.reason.sentence}"
    render.note(f"■ {job.id} {job.outcome.value} after {took}{again}.{reason}", style)


@click.command("why")
@click.argument("job")
@json_option
def why_command(job: str, as_json: bool) -> int:  # noqa: FBT001
    """Tell a job's story: what happened, and why.

    One entry for each decision, with the rule that made it and the evidence
    it rests on. For a job that waits, the last line says what for.

    \b
    Examples:
      trainmaster why last
      trainmaster why mnist-k7q2m --json
    """

    async def work(embedded: Embedded) -> int:
        record = await embedded.service.get(await embedded.service.resolve(job))
        lines = await embedded.ports.database.story(record.id)
        if as_json:
            render.json(lines)
            return 0
        for line in lines:
            moment = line.at.astimezone().strftime("%H:%M:%S.%f")[:-3]
            event = render.styled(f"{line.event:<15}", _LINE_STYLES.get(line.event, "bold"))
            render.line(f"{render.styled(moment, 'dim')}  {event} {render.wrapped(line.sentence, 30)}")
            proof = [f"{k}: {v}" for k, v in line.evidence.items() if "\n" not in v]
            said = "; ".join([f"rule: {line.rule}", *proof])
            render.line(f"{'':30}{render.styled(render.wrapped(said, 30), 'dim')}")
        if not record.is_finished:
            now_words = f"waits for {record.waits_for}" if record.waits_for else f"is {record.phase.value}"
            render.line(f"now: {now_words}")
        return 0

    return with_embedded(work)


@click.command("checkpoints")
@click.argument("job")
@json_option
def checkpoints_command(job: str, as_json: bool) -> int:  # noqa: FBT001
    """Show a job's committed checkpoints.

    A checkpoint counts when it was committed whole by the attempt whose turn
    it was; the newest one that counts is what the next attempt goes on from.

    \b
    Examples:
      trainmaster checkpoints last
      trainmaster checkpoints mnist-k7q2m --json
    """

    async def work(embedded: Embedded) -> int:
        record = await embedded.service.get(await embedded.service.resolve(job))
        found = await embedded.service.checkpoints(record)
        for name in await embedded.service.damaged_checkpoints(record):
            render.note(f"checkpoint {name} does not count: its COMMIT cannot be read", "yellow")
        pruned_at = await embedded.service.pruned_at(record)
        if as_json:
            render.json([{"checkpoint": ref, "accepted": accepted} for ref, accepted in found])
        elif not found:
            gone = None if pruned_at is None else f"its checkpoints were pruned at {render.clock(pruned_at)}"
            render.note(gone or "nothing committed yet")
        else:
            heads = ("CHECKPOINT", "STEP", "TAKEN", "FILES", "SIZE", "COUNTS")
            render.table(heads, [_checkpoint_row(ref, accepted=accepted) for ref, accepted in found])
        return 0

    return with_embedded(work)


def _checkpoint_row(ref: CheckpointRef, *, accepted: bool) -> tuple[str, ...]:
    counts = "yes" if accepted else "no: written after its attempt was over"
    step = "" if ref.step is None else str(ref.step)
    return ref.id, step, render.clock(ref.taken_at), str(ref.files), render.size(ref.size_bytes), counts


@click.command("metrics")
@click.argument("job")
@click.option("--metric", "names", multiple=True, help="Only this metric; repeatable.")
@json_option
def metrics_command(job: str, names: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001
    """Show what a job measured.

    For each metric its first, last, lowest and highest value and its course;
    --json has every point with its step.

    \b
    Examples:
      trainmaster metrics last --metric loss
      trainmaster metrics mnist-k7q2m --json
    """

    async def work(embedded: Embedded) -> int:
        record = await embedded.service.get(await embedded.service.resolve(job))
        points = read_metrics(embedded, record)
        if names:
            points = [
                {k: v for k, v in p.items() if k in {*BESIDE_METRICS, *names}} for p in points if not p.keys().isdisjoint(names)
            ]
        if as_json:
            render.json(points)
            return 0
        series: dict[str, list[float]] = {}
        for point in points:
            for name, value in point.items():
                if name not in BESIDE_METRICS and isinstance(value, int | float):
                    series.setdefault(name, []).append(float(value))
        if not series:
            render.note(f"{record.id} has measured no {' or '.join(names)}" if names else f"{record.id} has no metrics")
        rows = [
            (n, str(len(v)), f"{v[0]:.5g}", f"{v[-1]:.5g}", f"{min(v):.5g}", f"{max(v):.5g}", render.curve(v, 20))
            for n, v in series.items()
        ]
        render.table(("METRIC", "POINTS", "FIRST", "LAST", "MIN", "MAX", "CURVE"), rows)
        return 0

    return with_embedded(work)


def read_metrics(embedded: Embedded, job: JobRecord) -> list[dict[str, object]]:
    """Every point of every attempt, in the order written."""
    points: list[dict[str, object]] = []
    for attempt in job.attempts:
        prefix = layout.metrics_prefix(job.id, attempt.number)
        for entry in embedded.store.list_keys(prefix):
            data = embedded.store.get(entry.key) or b""
            points.extend({**json.loads(line), "attempt": attempt.number} for line in data.splitlines())
    return points
