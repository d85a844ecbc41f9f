"""What follows from what was seen? How long machines and scripts lived, and when an attempt was closed or let go of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.testing.witness import Closed, MachineEnded, MachineMade, Recorded, TrainingBegan, TrainingEnded, World


class Life(Struct, frozen=True, kw_only=True):
    """One machine, or one script on one, from its beginning to its end."""

    name: str
    job_id: str
    attempt: int
    begin_s: float
    end_s: float
    why: str = ""
    #: the runner on it, as it calls itself in a simulated world
    runner: str = ""


def machines(world: World) -> list[Life]:
    """Machines: from when they were made to when they were gone, or to the end of the world."""
    ends = {e.serial: e for e in world.events if isinstance(e, MachineEnded)}
    lives: list[Life] = []
    for made in world.events:
        if isinstance(made, MachineMade):
            end = ends.get(made.serial)
            job_id, _, attempt = made.name.rpartition("-a")
            end_s, why = (end.at_s, end.why) if end is not None else (world.ended_at_s, "still there")
            life = Life(name=made.name, job_id=job_id, attempt=int(attempt), begin_s=made.at_s, end_s=end_s, why=why)
            lives.append(replace(life, runner=f"machine:{made.name}:{made.serial}"))
    return lives


def trainings(world: World) -> Iterator[Life]:
    """Scripts: from their start to their exit, or to the end of their machine."""
    exits = {(e.job_id, e.attempt, e.runner): e.at_s for e in world.events if isinstance(e, TrainingEnded)}
    machine_ends = {f"machine:{e.name}:{e.serial}": e.at_s for e in world.events if isinstance(e, MachineEnded)}
    for event in world.events:
        if isinstance(event, TrainingBegan):
            end_s = min(
                exits.get((event.job_id, event.attempt, event.runner), world.ended_at_s),
                machine_ends.get(event.runner, world.ended_at_s),
            )
            yield Life(name=event.runner, job_id=event.job_id, attempt=event.attempt, begin_s=event.at_s, end_s=end_s)


def by_job(lives: Iterator[Life]) -> dict[str, list[Life]]:
    """Lives, put together by job."""
    found: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        found[life.job_id].append(life)
    return found


def closings(world: World) -> dict[tuple[str, int], float]:
    """When each attempt was first told to end."""
    first: dict[tuple[str, int], float] = {}
    for event in world.events:
        if isinstance(event, Closed):
            first.setdefault((event.job_id, event.attempt), event.at_s)
    return first


def concluded(world: World) -> dict[tuple[str, int], float]:
    """When the record said that an attempt is over."""
    first: dict[tuple[str, int], float] = {}
    for event in world.events:
        if isinstance(event, Recorded):
            for attempt in event.job.attempts:
                if attempt.ended_at is not None:
                    first.setdefault((event.job.id, attempt.number), event.at_s)
    return first
