"""Which jobs fit a condition? A job without the value fits neither the condition nor its contrary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import eq, ge, gt, le, lt, ne

from msgspec import Struct

from trainmaster.core import ledger
from trainmaster.core.job import JobRecord, Outcome, Phase
from trainmaster.core.metrics import MetricSummary, combined
from trainmaster.spec.job_spec import HyperparameterValue
from trainmaster.spec.where import Compared, Condition, Every, Field, Has, Not, fields


class SpecView(Struct, frozen=True, gc=False):
    """What a search asks of a spec."""

    name: str
    hyperparameters: dict[str, HyperparameterValue] = {}
    tags: dict[str, str] = {}
    priority: int = 0


class AttemptView(Struct, frozen=True, gc=False):
    """What a search asks of an attempt."""

    metrics: dict[str, MetricSummary] = {}


class JobView(Struct, frozen=True, gc=False):
    """What most searches ask of a record: read from the same bytes, several times faster."""

    id: str
    spec: SpecView
    phase: Phase
    attempts: tuple[AttemptView, ...] = ()
    outcome: Outcome | None = None


class Search(Struct, frozen=True, kw_only=True):
    """A condition, and the moment up to which what still runs has run."""

    condition: Condition
    now: datetime

    @property
    def needs_record(self) -> bool:
        """Whether a view says too little."""
        return any(field.kind == "duration" for field in fields(self.condition))


#: True, False, or None: the job has no such value.
Verdict = Callable[[JobRecord | JobView], bool | None]
_Value = str | float | None

_ORDERS: Mapping[str, Callable[[float, float], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def verdict(search: Search) -> Verdict:
    """The condition as one function, made once and asked for each job."""
    return _verdict(search.condition, search.now)


def _verdict(condition: Condition, now: datetime) -> Verdict:
    match condition:
        case Compared():
            return _comparison(condition, _reader(condition.field, now))
        case Has():
            read = _reader(condition.field, now)
            return lambda job: read(job) is not None
        case Not():
            inner = _verdict(condition.condition, now)
            return lambda job: None if (found := inner(job)) is None else not found
        case Every():
            return _every([_verdict(part, now) for part in condition.conditions])
        case _:
            return _either([_verdict(part, now) for part in condition.conditions])


def _every(parts: list[Verdict]) -> Verdict:
    def ask(job: JobRecord | JobView) -> bool | None:
        found: bool | None = True
        for part in parts:
            said = part(job)
            if said is False:
                return False
            found = found if said else None
        return found

    return ask


def _either(parts: list[Verdict]) -> Verdict:
    def ask(job: JobRecord | JobView) -> bool | None:
        found: bool | None = False
        for part in parts:
            said = part(job)
            if said:
                return True
            found = None if said is None else found
        return found

    return ask


def _comparison(condition: Compared, read: Callable[[JobRecord | JobView], _Value]) -> Verdict:
    value, operator = condition.value, condition.operator
    if operator in {"~", "!~"}:
        part, wanted = str(value).casefold(), operator == "~"
        return lambda job: None if (found := read(job)) is None else (part in _text(found).casefold()) is wanted
    compare = _ORDERS[operator]
    if isinstance(value, str):
        return _against_text(value, operator, read)

    def ask(job: JobRecord | JobView) -> bool | None:
        found = read(job)
        if isinstance(found, str):
            found = _number(found)
        return None if found is None else compare(found, value)

    return ask


def _against_text(value: str, operator: str, read: Callable[[JobRecord | JobView], _Value]) -> Verdict:
    """Text is the same or another; only numbers are less or more."""
    if operator in {"=", "!="}:
        wanted = operator == "="
        return lambda job: None if (found := read(job)) is None else (_text(found) == value) is wanted
    return lambda job: None  # noqa: ARG005


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.15g}"


def _reader(field: Field, now: datetime) -> Callable[[JobRecord | JobView], _Value]:
    """How a field is read from a job; None: it has none."""
    name = field.name
    match field.kind:
        case "hp":
            return lambda job: _plain(job.spec.hyperparameters.get(name))
        case "tag":
            return lambda job: job.spec.tags.get(name)
        case "metric":
            return _metric_reader(field)
        case "id":
            return lambda job: job.id
        case "name":
            return lambda job: job.spec.name
        case "outcome":
            return lambda job: None if job.outcome is None else job.outcome.value
        case "phase":
            return lambda job: job.phase.value
        case "priority":
            return lambda job: job.spec.priority
        case "attempts":
            return lambda job: len(job.attempts)
        case _:
            return lambda job: ledger.running_s(job, now) if isinstance(job, JobRecord) and job.attempts else None


def _metric_reader(field: Field) -> Callable[[JobRecord | JobView], _Value]:
    name, extreme = field.name, field.extreme

    def read(job: JobRecord | JobView) -> _Value:
        attempts = job.attempts
        metrics = attempts[0].metrics if len(attempts) == 1 else combined(attempt.metrics for attempt in attempts)
        found = metrics.get(name)
        if found is None:
            return None
        return found.last if extreme == "last" else found.min if extreme == "min" else found.max

    return read


def _plain(value: HyperparameterValue) -> _Value:
    """A parameter as it is compared: switches are `true` and `false`, lists are their values with commas between."""
    match value:
        case bool():
            return "true" if value else "false"
        case None | str() | int() | float():
            return value
        case list():
            return ",".join(_text(_plain(part) or "") for part in value)
        case _:
            return ",".join(f"{key}={_text(_plain(part) or '')}" for key, part in value.items())
