"""A provider that gives no answer holds up nobody but the jobs that want to go there."""

from __future__ import annotations

import asyncio

from control.scene import a_control_plane
from control.test_clock_goes_back import Onlooker
from msgspec.structs import replace

from trainmaster.adapters.system_clock import SystemClock
from trainmaster.control.observe import Ports
from trainmaster.control.work_queue import WorkQueue
from trainmaster.core.facts import Seen, Sighting
from trainmaster.core.job import JobId, Phase
from trainmaster.core.schedule import Capacity
from trainmaster.errors import DatabaseUnavailable, ProviderUnavailable
from trainmaster.testing.builders import a_job, at
from trainmaster.testing.sim_database import DirectDatabase, Tables


class Well(Onlooker):
    """Takes every job."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    async def capacity(self) -> Capacity:
        return Capacity(cpus=8, memory=1 << 40)

    async def inspect(self, name: str) -> Sighting:
        return Sighting(seen=Seen.PRESENT if name in self.launched else Seen.GONE)

    async def launch(self, request) -> None:
        self.launched.append(request.name)


class Away(Well):
    """Cannot even say what it has."""

    async def capacity(self) -> Capacity:
        raise ProviderUnavailable("the region is down")


def _ports(tables: Tables, **providers: Onlooker) -> Ports:
    return a_control_plane(SystemClock(), DirectDatabase(tables), **providers)


def _add(tables: Tables, name: str, provider: str) -> None:
    job = a_job(Phase.QUEUED, job_id=name)
    tables.add(replace(job, spec=replace(job.spec, provider=provider)), [], at(0))


def test_jobs_of_the_others_go_on():
    async def play() -> None:
        tables, well = Tables(), Well()
        _add(tables, "first", "away")
        _add(tables, "second", "well")
        async with asyncio.timeout(10):
            await WorkQueue(_ports(tables, away=Away(), well=well)).drive(lambda: asyncio.sleep(0, bool(well.launched)))
        assert well.launched == ["second-a1"]
        assert tables.load(JobId("first")).phase is Phase.QUEUED

    asyncio.run(play())


def test_who_cannot_say_whether_it_is_over_drives_on():
    answers = iter([DatabaseUnavailable("no answer"), DatabaseUnavailable("no answer"), None])

    async def is_over() -> bool:
        answer = next(answers)
        if answer is not None:
            raise answer
        return True

    async def play() -> None:
        async with asyncio.timeout(10):
            await WorkQueue(_ports(Tables(), well=Well())).drive(is_over)

    asyncio.run(play())
    assert next(answers, "all asked") == "all asked"
