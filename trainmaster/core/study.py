"""What is a study? One job tried with every combination of some parameters: its record, and the jobs that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import product

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trainmaster.core.job import Code, Origin, Outcome, Phase, StudyRef
from trainmaster.spec.job_spec import HyperparameterValue, JobSpec, Study


class StudyRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked for; it never changes. How far it came is told by its jobs."""

    v: int = 1
    id: str
    #: the job that is tried, with its grid
    spec: JobSpec
    code: Code
    origin: Origin
    submitted_at: datetime
    #: how many combinations there are
    count: int

    @property
    def name(self) -> str:
        """The name its jobs' names begin with."""
        return self.spec.name

    @property
    def rules(self) -> Study:
        """The grid, and how many may run at one time."""
        assert self.spec.study is not None
        return self.spec.study


class Child(Struct, frozen=True, kw_only=True):
    """How far one combination came: the newest job that tries it."""

    job_id: str
    index: int
    phase: Phase
    outcome: Outcome | None = None


def combinations(grid: Mapping[str, Sequence[HyperparameterValue]]) -> Iterator[dict[str, HyperparameterValue]]:
    """Every combination; the last parameter changes fastest."""
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def child_name(name: str, index: int) -> str:
    """The name of a study's job: the study's, and its number; cut where it would be too long."""
    return f"{name[: 62 - len(str(index))].rstrip('._-')}-{index}"


def child_specs(spec: JobSpec) -> Iterator[JobSpec]:
    """The jobs of a study, in the order of its combinations."""
    assert spec.study is not None
    for index, chosen in enumerate(combinations(spec.study.grid), start=1):
        parameters = {**spec.hyperparameters, **chosen}
        yield replace(spec, name=child_name(spec.name, index), hyperparameters=parameters, study=None)


def child_ref(study: StudyRecord, index: int) -> StudyRef:
    """How a job knows its study."""
    return StudyRef(id=study.id, index=index, max_parallel=study.rules.max_parallel)


def extremes(spec: JobSpec) -> list[JobSpec]:
    """The first job and the one with the longest values: if these can be, all can."""
    assert spec.study is not None
    longest = {name: [max(values, key=lambda value: len(_text(value)))] for name, values in spec.study.grid.items()}
    largest = replace(spec, study=replace(spec.study, grid=longest))
    return [next(child_specs(spec)), next(child_specs(largest))]


def tally(children: Sequence[Child]) -> dict[str, int]:
    """How many are in which state, in the order people ask for them."""
    words = [child.outcome.value if child.outcome is not None else child.phase.value for child in children]
    order = [*(outcome.value for outcome in Outcome), *(phase.value for phase in reversed(Phase))]
    return {word: words.count(word) for word in order if word in words}


def state(children: Sequence[Child]) -> str:
    """One word for all of them: what the least advanced is at, or the worst of their outcomes."""
    phases = {child.phase for child in children}
    if phases <= {Phase.QUEUED}:
        return Phase.QUEUED.value
    if phases != {Phase.FINISHED}:
        return Phase.RUNNING.value
    outcomes = {child.outcome for child in children}
    worst = next(outcome for outcome in (Outcome.STOPPED, Outcome.FAILED, Outcome.SUCCEEDED) if outcome in outcomes)
    return worst.value


def shown_combination(study: StudyRecord, parameters: Mapping[str, HyperparameterValue]) -> str:
    """What one of its jobs tries, in one cell."""
    return " ".join(f"{name}={_text(parameters.get(name))}" for name in study.rules.grid)


def _text(value: HyperparameterValue) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
