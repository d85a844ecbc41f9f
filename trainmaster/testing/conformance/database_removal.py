"""Does a database keep its promises about jobs that are taken away? The part of the suite that is about keeping house."""

# ruff: noqa: D102 – a test's name is its sentence.
from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from trainmaster.core.job import Code, JobId, JobRecord, Phase
from trainmaster.errors import RevisionConflict
from trainmaster.ports.database import Database, Leftover, Selection, WorkLease
from trainmaster.testing.builders import a_job, a_line, a_spec, at
from trainmaster.testing.conformance.database_leases import OpenDatabase, in_a_loop, race


def a_finished_job(job_id: str, *, sha256: str | None = "f00d") -> JobRecord:
    """A job that is over, with tags and code."""
    return replace(a_job(Phase.FINISHED, job_id=job_id, spec=a_spec(tags={"team": "red"})), code=Code(sha256=sha256))


class RemovalConformance:
    """Every promise about removal, one test each."""

    @in_a_loop
    async def test_a_removed_job_is_gone_with_its_story_and_leaves_a_note(self, database: Database) -> None:
        for name in ("j1", "j2"):
            await database.add(a_finished_job(name), [a_line(name)], None)
        await database.remove(JobId("j1"), expect_revision=0)
        assert await database.load(JobId("j1")) is None
        assert await database.story(JobId("j1")) == []
        assert await database.resolve("j1") == []
        assert [job.id for job in await database.find(Selection(tags=(("team", "red"),)))] == ["j2"]
        assert await database.story(JobId("j2")) == [a_line("j2")]
        assert await database.leftovers() == [Leftover(job_id=JobId("j1"), code="f00d")]

    @in_a_loop
    async def test_only_what_is_over_and_looked_after_is_removed(self, database: Database) -> None:
        await database.add(a_finished_job("over"), [], None)
        await database.add(a_job(Phase.RUNNING, job_id="runs"), [], None)
        await database.add(a_finished_job("due"), [], at(5))
        for name, revision in (("over", 1), ("runs", 0), ("due", 0), ("nobody", 0)):
            with pytest.raises(RevisionConflict):
                await database.remove(JobId(name), expect_revision=revision)
        assert await database.lease_due("me", at(5), at(25), 1) == ["due"]
        with pytest.raises(RevisionConflict):
            await database.remove(JobId("due"), expect_revision=0)
        assert await database.leftovers() == []
        await database.give_back(JobId("due"), "me", None)
        await database.remove(JobId("due"), expect_revision=0)
        assert {job.id for job in await database.find(Selection())} == {"over", "runs"}

    @in_a_loop
    async def test_no_job_of_the_id_before_it_is_cleared(self, database: Database) -> None:
        job = a_finished_job("j1", sha256=None)
        await database.add(job, [], None)
        await database.remove(job.id, expect_revision=0)
        with pytest.raises(RevisionConflict):
            await database.add(job, [a_line()], None)
        assert await database.load(job.id) is None
        assert await database.leftovers() == [Leftover(job_id=job.id, code=None)]
        for _ in range(2):
            await database.cleared(job.id)
        assert await database.leftovers() == []
        await database.add(job, [a_line("again")], None)
        assert await database.story(job.id) == [a_line("again")]

    @in_a_loop
    async def test_a_job_added_without_a_wake_is_left_alone(self, database: Database) -> None:
        await database.add(a_finished_job("j1"), [a_line()], None)
        assert await database.next_wake() is None
        await database.wake_all(at(0))
        assert await database.lease_due("me", at(99), at(200), 10) == []

    def test_of_racing_removers_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
        asyncio.run(database.add(a_finished_job("j1"), [], None))

        async def remove(racer: int, other: Database) -> bool:  # noqa: ARG001
            try:
                await other.remove(JobId("j1"), expect_revision=0)
            except RevisionConflict:
                return False
            return True

        assert sum(race(6, open_database, remove)) == 1

    @in_a_loop
    async def test_what_a_job_needs_is_told(self, database: Database) -> None:
        await database.add(a_finished_job("j1"), [], None)
        await database.add(a_job(Phase.RUNNING, job_id="j2"), [], at(0))
        found = {links.id: (links.phase, links.code.sha256) for links in await database.links()}
        assert found["j1"] == (Phase.FINISHED, "f00d")
        assert found["j2"][0] is Phase.RUNNING

    @in_a_loop
    async def test_a_removal_is_seen_by_others_and_is_a_write(self, database: Database, open_database: OpenDatabase) -> None:
        await database.add(a_finished_job("j1"), [], None)
        await database.hold(WorkLease(name="x", owner="me"), at(0), at(1))
        mark = await database.change_mark()
        other = open_database()
        await other.remove(JobId("j1"), expect_revision=0)
        assert await database.change_mark() != mark
        assert await database.load(JobId("j1")) is None
        await other.close()
