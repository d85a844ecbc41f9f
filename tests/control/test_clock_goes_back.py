"""A clock that is set back must not put a job to sleep: wakes that were set before would come an hour late."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from control.scene import a_control_plane

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.control.work_queue import WorkQueue
from trainmaster.core.facts import Seen, Sighting
from trainmaster.core.job import Phase
from trainmaster.ports.provider import Capability
from trainmaster.testing.builders import a_job, at


class ClockByHand:
    def __init__(self) -> None:
        self.time = at(60)

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Onlooker:
    """A machine that is there, and counts how often somebody looks."""

    name = "local"
    capabilities = frozenset({Capability.CONFIRMS_GONE})
    features: frozenset[str] = frozenset()
    looks = 0

    async def inspect(self, name: str) -> Sighting:
        self.looks += 1
        return Sighting(seen=Seen.PRESENT, was_launched=True)

    async def wait_change(self, name: str) -> None:
        await asyncio.sleep(3600)

    async def allocations(self) -> list[str]:
        return []


async def _drive_until(work: WorkQueue, condition) -> None:
    async with asyncio.timeout(10):
        await work.drive(lambda: asyncio.sleep(0, condition()))


@pytest.mark.parametrize("when", ["before it drives", "while it drives"])
def test_a_job_is_looked_at_after_the_clock_went_back(tmp_path, when):
    async def play() -> None:
        clock, provider = ClockByHand(), Onlooker()
        database = SqliteDatabase.open(tmp_path / "db")
        ports = a_control_plane(clock, database, local=provider)
        wake_at = at(60) if when == "while it drives" else at(3600)
        await database.add(a_job(Phase.RUNNING), [], wake_at)

        def looked_at_again() -> bool:
            if provider.looks and clock.time == at(60):
                clock.time -= timedelta(hours=1)
                provider.looks = 0
            return provider.looks > 0 and (clock.time < at(60) or when == "before it drives")

        await _drive_until(WorkQueue(ports), looked_at_again)
        await database.close()

    asyncio.run(play())


def test_machines_are_swept_after_the_clock_went_back(tmp_path):
    """The next sweep was set by a clock that was ahead: nobody waits until it has caught up."""

    class Counting(Onlooker):
        sweeps = 0

        async def allocations(self) -> list[str]:
            self.sweeps += 1
            return []

    async def play() -> None:
        clock, provider = ClockByHand(), Counting()
        database = SqliteDatabase.open(tmp_path / "db")
        ports = a_control_plane(clock, database, local=provider)

        def swept_again() -> bool:
            if provider.sweeps == 1 and clock.time == at(60):
                clock.time -= timedelta(hours=1)
            return provider.sweeps == 2

        await _drive_until(WorkQueue(ports), swept_again)
        await database.close()

    asyncio.run(play())
