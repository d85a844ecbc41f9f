"""Does the placer place what fits, and leave a queue alone in which nothing moves?"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from control.scene import a_control_plane
from msgspec.structs import replace

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.control.placer import Placer
from trainmaster.core.job import JobId, Phase, StudyRef
from trainmaster.core.schedule import Capacity
from trainmaster.ports.database import NewJob
from trainmaster.testing.builders import a_job, at


class Clock:
    def __init__(self) -> None:
        self.moment = at(10)

    def now(self) -> datetime:
        return self.moment


class Slots:
    """Has so many CPUs, and counts how often it is asked."""

    def __init__(self, cpus: int) -> None:
        self.cpus, self.asked = cpus, 0

    async def capacity(self) -> Capacity:
        self.asked += 1
        return Capacity(cpus=self.cpus, memory=2**40)


def queue(path, jobs, cpus):
    database, clock, slots = SqliteDatabase.open(path / "db"), Clock(), Slots(cpus)
    ports = a_control_plane(clock, database, local=slots)  # type: ignore[arg-type]
    new = [NewJob(job=job, lines=(), wake_at=at(9999)) for job in jobs]
    asyncio.run(database.add_many(new))
    return database, clock, slots, Placer(ports)


def child(number: int, *, most: int | None = None):
    return replace(a_job(job_id=f"j{number:03}"), study=StudyRef(id="s", index=number, max_parallel=most))


def test_a_queue_in_which_nothing_moves_is_left_alone(tmp_path):
    async def work():
        for _ in range(3):
            await placer.place_waiting()
        asked, mark = slots.asked, await database.change_mark()
        # A job at work writes; nobody in the queue is concerned.
        job = await database.load(JobId("j001"))
        assert job is not None
        await database.commit(replace(job, phase=Phase.STARTING), expect_revision=job.revision)
        for _ in range(3):
            await placer.place_waiting()
        assert slots.asked == asked
        assert await database.change_mark() == mark + 1, "no lease was taken for it"
        # Somebody goes: the next one comes.
        job = await database.load(JobId("j001"))
        assert job is not None
        over = replace(a_job(Phase.FINISHED, job_id="j001"), study=job.study)
        await database.commit(over, expect_revision=job.revision)
        await placer.place_waiting()
        assert (await database.unfinished())[0].phase is Phase.PLACING

    database, _, slots, placer = queue(tmp_path, [child(number) for number in range(1, 200)], 1)
    asyncio.run(work())


def test_what_a_provider_has_is_asked_again_after_a_while(tmp_path):
    async def work():
        for _ in range(3):
            await placer.place_waiting()
        slots.cpus = 2
        clock.moment += timedelta(seconds=6)
        await placer.place_waiting()
        assert [job.phase for job in await database.unfinished()] == [Phase.PLACING, Phase.PLACING, Phase.QUEUED]

    database, clock, slots, placer = queue(tmp_path, [child(number) for number in range(3)], 1)
    asyncio.run(work())


def test_a_study_keeps_to_its_limit_and_says_so(tmp_path):
    async def work():
        for _ in range(3):
            await placer.place_waiting()
        found = await database.unfinished()
        assert [job.phase for job in found] == [Phase.PLACING, Phase.PLACING, Phase.QUEUED, Phase.QUEUED]
        assert [job.waits_for for job in found[2:]] == ["study.max_parallel: 2 of s at a time"] * 2

    database, _, _, placer = queue(tmp_path, [child(number, most=2) for number in range(4)], 8)
    asyncio.run(work())


def test_one_that_goes_changes_a_few_records_however_many_wait(tmp_path):
    """Who is ahead is told to the nearest only: a write for each that waits, with each that goes, would be too many."""

    async def work():
        for _ in range(3):
            await placer.place_waiting()
        before = {job.id: job.revision for job in await database.unfinished()}
        job = await database.load(JobId("j001"))
        assert job is not None
        over = replace(a_job(Phase.FINISHED, job_id="j001"), study=job.study)
        await database.commit(over, expect_revision=job.revision)
        for _ in range(3):
            await placer.place_waiting()
        changed = [job.id for job in await database.unfinished() if job.revision != before[job.id]]
        assert len(changed) <= 12
        assert before["j150"] == 1, "it was told once what it waits for"

    database, _, _, placer = queue(tmp_path, [child(number) for number in range(1, 300)], 1)
    asyncio.run(work())
