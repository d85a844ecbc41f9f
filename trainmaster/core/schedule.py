"""Which waiting job gets which resources now, and what do the others wait for?

First come, first served inside a priority, and nobody overtakes: a job that does not fit yet keeps those behind it waiting, so that
a stream of small jobs never starves a large one. What cannot fit even into an empty machine (it shrank since the job was submitted)
holds up nobody; nor does a study whose `max_parallel` jobs are at work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from trainmaster.core.job import JobId, JobRecord, Placement
from trainmaster.spec.job_spec import JobSpec

#: so many are told who keeps them waiting
_NAMED_MAX = 8


class Capacity(Struct, frozen=True, kw_only=True):
    """What a provider can hold at one time."""

    cpus: float
    memory: int
    gpus: tuple[int, ...] = ()
    #: CPUs of each machine, where there are several; None: it is one machine
    machine_cpus: float | None = None


class Need(Struct, frozen=True, kw_only=True):
    """What one job takes."""

    cpus: float
    memory: int
    gpus: int


class Placed(Struct, frozen=True, kw_only=True):
    """This job goes there."""

    job_id: JobId
    placement: Placement


class Waits(Struct, frozen=True, kw_only=True):
    """This job stays in the queue, because."""

    job_id: JobId
    sentence: str


def need_of(spec: JobSpec, capacity: Capacity) -> Need:
    """What a job takes there; a job that says nothing about GPUs takes one where there are any."""
    asked = spec.resources
    # a number, or TYPE:COUNT
    gpus = min(1, len(capacity.gpus)) if asked.gpus is None else int(str(asked.gpus).rpartition(":")[2])
    return Need(cpus=asked.cpus * asked.nodes, memory=(asked.memory or 0) * asked.nodes, gpus=gpus * asked.nodes)


def why_never(spec: JobSpec, capacity: Capacity) -> str:
    """Why a job can never fit, in a sentence that says what would; empty when it can."""
    need = need_of(spec, capacity)
    if capacity.machine_cpus is not None and spec.resources.cpus > capacity.machine_cpus:
        return f"resources.cpus: {spec.resources.cpus:g} wanted, but each machine there has {capacity.machine_cpus:g}"
    if need.cpus > capacity.cpus:
        return f"resources.cpus: {need.cpus:g} wanted, but this machine has {capacity.cpus:g}"
    if need.memory > capacity.memory:
        return f"resources.memory: {_gib(need.memory)} wanted, but this machine has {_gib(capacity.memory)}"
    if need.gpus > len(capacity.gpus):
        return f"resources.gpus: {need.gpus} wanted, but this machine has {len(capacity.gpus)}"
    return ""


def schedule(
    waiting: Sequence[JobRecord],
    held: Sequence[Placement],
    capacity: Capacity,
    now: datetime,
    running: Mapping[str, int] | None = None,
) -> tuple[list[Placed], list[Waits]]:
    """Place what fits, in order; say for each of the others what it waits for. `running`: how many of each study hold machines."""
    at_work = dict(running or {})
    cpus = capacity.cpus - sum(p.cpus for p in held)
    memory = capacity.memory - sum(p.memory for p in held)
    taken = {index for p in held for index in p.gpus}
    gpus = [index for index in capacity.gpus if index not in taken]
    placed: list[Placed] = []
    waits: list[Waits] = []
    blocked_by: JobId | None = None
    behind = 0
    for job in sorted(waiting, key=lambda j: (-j.spec.priority, j.submitted_at, j.id)):
        if job.not_before is not None and job.not_before > now:
            waits.append(Waits(job_id=job.id, sentence=f"a pause before the next attempt, until {job.not_before:%H:%M:%S} UTC"))
            continue
        never = why_never(job.spec, capacity)
        if never:
            waits.append(Waits(job_id=job.id, sentence=never))
            continue
        study = job.study
        if study is not None and study.max_parallel is not None and at_work.get(study.id, 0) >= study.max_parallel:
            # Its own study holds it up, not the machine: those behind it may go.
            waits.append(Waits(job_id=job.id, sentence=f"study.max_parallel: {study.max_parallel} of {study.id} at a time"))
            continue
        if blocked_by is not None:
            behind += 1
            # With every job that goes, whoever is named here changes: far behind, that would be a write for each that waits.
            who = f"{blocked_by} is" if behind <= _NAMED_MAX else "others are"
            waits.append(Waits(job_id=job.id, sentence=f"its turn: {who} ahead"))
            continue
        need = need_of(job.spec, capacity)
        lack = _lack(need, cpus, memory, len(gpus))
        if lack:
            blocked_by = job.id
            waits.append(Waits(job_id=job.id, sentence=lack))
            continue
        if study is not None:
            at_work[study.id] = at_work.get(study.id, 0) + 1
        cpus, memory = cpus - need.cpus, memory - need.memory
        chosen, gpus = tuple(gpus[: need.gpus]), gpus[need.gpus :]
        placement = Placement(provider=job.spec.provider, cpus=need.cpus, memory=need.memory, gpus=chosen)
        placed.append(Placed(job_id=job.id, placement=placement))
    return placed, waits


def _lack(need: Need, cpus: float, memory: int, gpus: int) -> str:
    if need.cpus > cpus + 1e-9:
        return f"{need.cpus:g} CPU; {max(0.0, cpus):g} free"
    if need.memory > memory:
        return f"{_gib(need.memory)} of memory; {_gib(max(0, memory))} free"
    if need.gpus > gpus:
        return f"{need.gpus} GPU; {gpus} free"
    return ""


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
