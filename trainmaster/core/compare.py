"""How do jobs differ? Their parameters, everything they asked for, and which of them did best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from trainmaster.core import ledger
from trainmaster.core.inputs import InputSummary
from trainmaster.core.job import JobRecord, Machine
from trainmaster.core.metrics import MetricSummary
from trainmaster.spec.data_uri import shown_uri
from trainmaster.spec.environment import packages_of


class ChangeKind(StrEnum):
    """How a file differs between two snapshots."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class FileChange(Struct, frozen=True, kw_only=True):
    """One file that differs."""

    path: str
    kind: ChangeKind
    #: a unified diff
    lines: tuple[str, ...] = ()
    #: why there is none; empty: there is one
    why_no_lines: str = ""


class Difference(NamedTuple):
    """One thing that two jobs have differently; empty text: one does not have it."""

    what: str
    one: str
    other: str


class Best(Struct, frozen=True, kw_only=True):
    """The job that did best, and what it reached."""

    job: JobRecord
    value: float
    step: int | None


def differing_parameters(jobs: Sequence[JobRecord]) -> list[str]:
    """Names of the parameters that are not the same in all jobs, in the order of the first job that has them."""
    names = dict.fromkeys(name for job in jobs for name in job.spec.hyperparameters)
    return [name for name in names if len({shown_parameter(job, name) for job in jobs}) > 1]


def shown_parameter(job: JobRecord, name: str) -> str:
    """A parameter as text; empty when the job has none of this name."""
    values = job.spec.hyperparameters
    return _text(values[name]) if name in values else ""


def metric_names(jobs: Sequence[JobRecord]) -> list[str]:
    """Every metric that any of the jobs measured; those that most have come first."""
    counts: dict[str, int] = {}
    for job in jobs:
        for name in job.metrics:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def best_job(jobs: Sequence[JobRecord], metric: str, *, is_lowest: bool) -> Best | None:
    """The job that reached the lowest or highest value; of equals the first. None: nobody has measured a finite one."""
    best: Best | None = None
    for job in jobs:
        found = job.metrics.get(metric)
        value = None if found is None else found.min if is_lowest else found.max
        if found is None or value is None:
            continue
        if best is None or (value < best.value if is_lowest else value > best.value):
            best = Best(job=job, value=value, step=found.min_step if is_lowest else found.max_step)
    return best


def differences(one: JobRecord, other: JobRecord, now: datetime) -> list[Difference]:
    """Everything but the code: what was asked for, where it ran, what came of it."""
    left, right = dict(_facts(one, now)), dict(_facts(other, now))
    names = dict.fromkeys([*left, *right])
    return [Difference(name, left.get(name, ""), right.get(name, "")) for name in names if left.get(name) != right.get(name)]


def _facts(job: JobRecord, now: datetime) -> Iterator[tuple[str, str]]:
    spec = msgspec.to_builtins(job.spec)
    for name in job.spec.hyperparameters:
        yield f"hp.{name}", shown_parameter(job, name)
    for name, value in spec.pop("tags", {}).items():
        yield f"tag.{name}", value
    spec.pop("hyperparameters", None)
    for channel, given in spec.pop("inputs", {}).items():
        shown = shown_uri(given) if isinstance(given, str) else {**given, "uri": shown_uri(given["uri"])}
        yield from _flat({channel: shown}, "inputs")
    yield from _flat(spec, "")
    yield "python", job.origin.python
    yield "submitted from", f"{job.origin.user}@{job.origin.host}:{job.origin.folder}"
    yield "trainmaster", job.origin.version
    if job.seed is not None:
        yield "seed", str(job.seed)
    if job.continues is not None:
        yield "goes on from", job.continues.job
    for channel, read in job.inputs.items():
        yield f"data.{channel}", data_words(read)
    if job.attempts:
        yield from _hardware(job.current.machine)
        placement = job.current.placement
        gpus = f", {len(placement.gpus)} GPU" if placement.gpus else ""
        yield "placed on", f"{placement.provider}, {placement.cpus:g} CPU{gpus}"
    yield "outcome", job.outcome.value if job.outcome is not None else job.phase.value
    if job.reason is not None:
        yield "reason", job.reason.sentence
    yield "attempts", str(job.attempt)
    yield "ran", f"{ledger.running_s(job, now):.1f} s"
    for name, found in job.metrics.items():
        yield f"metric.{name}", metric_words(found)


def machine_words(machine: Machine | None) -> str:
    """What a job ran on, in one line; empty: nobody said."""
    if machine is None:
        return ""
    gpus = [f"{machine.gpus.count(name)} × {name}" for name in dict.fromkeys(machine.gpus)]
    return ", ".join([machine.host, f"{machine.cpus} × {machine.cpu}", f"{machine.memory / 2**30:.1f} GiB", *gpus])


def package_differences(one: str, other: str) -> list[Difference]:
    """What differs between two locks; empty text: one of them does not have it."""
    left, right = packages_of(one), packages_of(other)
    names = sorted({*left, *right})
    return [Difference(name, left.get(name, ""), right.get(name, "")) for name in names if left.get(name) != right.get(name)]


def data_words(found: InputSummary) -> str:
    """What was read from a channel, in one cell; the hash tells whether two jobs read the same."""
    files = "1 file" if found.files == 1 else f"{found.files} files"
    return f"{files}, {found.size_bytes} bytes, {found.hash[:12]}"


def metric_words(found: MetricSummary) -> str:
    """A metric in one cell: its last value, and between which it was."""
    last, low, high = (shown_number(value) for value in (found.last, found.min, found.max))
    return f"{last} ({low} … {high})"


def shown_number(value: float | None) -> str:
    """A measured value as a table shows it."""
    return "none" if value is None else f"{value:.5g}"


def _hardware(machine: Machine | None) -> Iterator[tuple[str, str]]:
    if machine is not None:
        yield "machine.host", machine.host
        yield "machine.cpu", f"{machine.cpus} × {machine.cpu}"
        yield "machine.memory", f"{machine.memory / 2**30:.1f} GiB"
        yield "machine.gpus", ", ".join(machine.gpus)


def _flat(value: Mapping[str, object], path: str) -> Iterator[tuple[str, str]]:
    for name, inner in value.items():
        where = f"{path}.{name}" if path else name
        if isinstance(inner, dict):
            yield from _flat(inner, where)
        else:
            yield where, _text(inner)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
