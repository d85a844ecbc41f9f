"""Does a database keep its promises about many jobs at once, studies, and jobs that go on from others?"""

# ruff: noqa: D102 – a test's name is its sentence.
from __future__ import annotations

import pytest
from msgspec.structs import replace

from trainmaster.core.job import Continues, JobId, JobRecord, Outcome, Phase, StudyRef
from trainmaster.core.study import Child, StudyRecord
from trainmaster.errors import RevisionConflict
from trainmaster.ports.database import Change, Database, NewJob, Selection, WorkLease
from trainmaster.spec.job_spec import Study
from trainmaster.testing.builders import a_commit, a_job, a_line, a_spec, at
from trainmaster.testing.conformance.database_leases import OpenDatabase, in_a_loop, waiting


def a_study(study_id: str = "s1", *, name: str = "sweep", seconds: float = 0.0) -> StudyRecord:
    """A study of two jobs."""
    job = a_job()
    spec = replace(a_spec(name=name), study=Study(grid={"lr": [0.1, 0.2]}))
    return StudyRecord(id=study_id, spec=spec, code=job.code, origin=job.origin, submitted_at=at(seconds), count=2)


def a_child(job_id: str, index: int, *, study: str = "s1", seconds: float = 0.0, tags: dict[str, str] | None = None) -> JobRecord:
    """One of its jobs."""
    job = a_job(job_id=job_id, spec=a_spec(name=f"sweep-{index}", tags=tags))
    moved = replace(job, submitted_at=at(seconds), updated_at=at(seconds), waiting_since=at(seconds))
    return replace(moved, study=StudyRef(id=study, index=index))


def new(job: JobRecord, wake: float = 0.0) -> NewJob:
    """As it is submitted."""
    return NewJob(job=job, lines=(a_line("submitted"),), wake_at=at(wake))


class StudyConformance:
    """Every promise about them, one test each."""

    @in_a_loop
    async def test_a_study_is_there_with_all_its_jobs(self, database: Database, open_database: OpenDatabase) -> None:
        jobs = [a_child("s1-1", 1, tags={"team": "vision"}), a_child("s1-2", 2, tags={"team": "vision"})]
        await database.add_many([new(jobs[0], 50), new(jobs[1], 40)], a_study())
        other = open_database()
        assert await other.load_study("s1") == a_study()
        assert [await other.load(job.id) for job in jobs] == jobs
        assert await other.story(jobs[1].id) == [a_line("submitted")]
        assert await other.next_wake() == at(40)
        assert {j.id for j in await other.find(Selection(tags=(("team", "vision"),)))} == {"s1-1", "s1-2"}

    @in_a_loop
    async def test_of_many_jobs_none_is_stored_while_files_of_one_are_left(self, database: Database) -> None:
        gone = replace(a_job(Phase.FINISHED), id=JobId("s1-2"))
        await database.add(gone, [], None)
        await database.remove(gone.id, expect_revision=gone.revision)
        with pytest.raises(RevisionConflict):
            await database.add_many([new(a_child("s1-1", 1)), new(a_child("s1-2", 2))], a_study())
        assert await database.load_study("s1") is None
        assert await database.load(JobId("s1-1")) is None

    @in_a_loop
    async def test_of_many_jobs_all_are_stored_or_none(self, database: Database) -> None:
        there = a_child("s0-9", 9, study="s0")
        await database.add(there, [], at(0))
        for batch in ([a_child("s1-1", 1), there], [a_child("s1-1", 1), a_child("s1-1", 1)]):
            with pytest.raises(RevisionConflict):
                await database.add_many([new(job) for job in batch], a_study())
        assert await database.load_study("s1") is None
        assert await database.load(JobId("s1-1")) is None
        await database.add_many([new(a_child("s1-1", 1))], a_study())
        with pytest.raises(RevisionConflict):
            await database.add_many([new(a_child("s1-2", 2))], a_study())
        assert await database.load(JobId("s1-2")) is None
        assert [job.id for job in await database.unfinished()] == ["s0-9", "s1-1"]

    @in_a_loop
    async def test_of_many_changes_those_are_stored_whose_job_has_not_moved_on(self, database: Database) -> None:
        one, two = a_child("s1-1", 1), a_child("s1-2", 2)
        await database.add_many([new(one), new(two)])
        await database.commit(waiting(two), expect_revision=0)
        noted = [Change(job=replace(job, waits_for="x"), lines=(a_line("noted"),), wake_at=at(7)) for job in (one, two)]
        assert await database.commit_many(noted) == ["s1-1"]
        stored, untouched = await database.load(one.id), await database.load(two.id)
        assert stored is not None
        assert untouched is not None
        assert (stored.waits_for, stored.revision, untouched.waits_for) == ("x", 1, waiting(two).waits_for)
        assert [line.event for line in await database.story(one.id)] == ["submitted", "noted"]
        assert [line.event for line in await database.story(two.id)] == ["submitted"]
        assert await database.commit_many(noted) == []
        assert [job.waits_for for job in await database.unfinished()] == ["x", waiting(two).waits_for]

    @in_a_loop
    async def test_many_changes_are_fenced_by_a_lease(self, database: Database) -> None:
        await database.add_many([new(a_child("s1-1", 1))])
        mine, yours = WorkLease(name="placer", owner="me"), WorkLease(name="placer", owner="you")
        assert await database.hold(yours, at(0), at(9))
        change = Change(job=replace(a_child("s1-1", 1), waits_for="x"))
        assert await database.commit_many([change], under=mine) == []
        assert await database.commit_many([change], under=yours) == ["s1-1"]

    @in_a_loop
    async def test_of_each_combination_the_newest_job_counts(self, database: Database) -> None:
        await database.add_many([new(a_child(f"s1-{number}", number)) for number in (1, 2, 10)], a_study())
        await database.add_many([new(a_child("s1-2-r2", 2, seconds=5))])
        await database.add_many([new(a_child("s2-1", 1, study="s2"))])
        first = await database.load(JobId("s1-1"))
        assert first is not None
        over = replace(a_job(Phase.FINISHED, attempts=(), job_id="s1-1"), study=first.study, spec=first.spec)
        await database.commit(over, expect_revision=0)
        assert await database.children("s1") == [
            Child(job_id="s1-1", index=1, phase=Phase.FINISHED, outcome=Outcome.STOPPED),
            Child(job_id="s1-2-r2", index=2, phase=Phase.QUEUED),
            Child(job_id="s1-10", index=10, phase=Phase.QUEUED),
        ]
        assert {job.id for job in await database.find(Selection(study="s1"))} == {"s1-1", "s1-2-r2", "s1-10"}
        assert [job.id for job in await database.find(Selection(study="s1", phases=(Phase.FINISHED,)))] == ["s1-1"]
        assert await database.children("nobody") == []
        assert await database.find(Selection(study="nobody")) == []

    @in_a_loop
    async def test_studies_are_found_newest_first_by_id_name_and_prefix(self, database: Database) -> None:
        for study_id, name, seconds in (("ab1", "sweep", 0), ("ab2", "sweep", 9), ("c", "ab1", 5)):
            await database.add_many(
                [new(a_child(f"{study_id}-1", 1, study=study_id))], a_study(study_id, name=name, seconds=seconds)
            )
        assert [study.id for study in await database.studies(2)] == ["ab2", "c"]
        for text, found in (("ab1", ["ab1"]), ("sweep", ["ab2"]), ("ab", ["ab1", "ab2"]), ("x", []), ("%", [])):
            assert await database.resolve_study(text) == found, text
        await database.add(a_job(job_id="alone"), [], at(0))
        assert [job.id for job in await database.find(Selection(without_studies=True))] == ["alone"]
        # One that came from elsewhere: its study did not.
        await database.add(a_child("s9-1", 1, study="s9", seconds=99), [], at(0))
        assert [job.id for job in await database.find(Selection(without_studies=True))] == ["s9-1", "alone"]

    @in_a_loop
    async def test_who_goes_on_from_a_jobs_checkpoint(self, database: Database) -> None:
        old = a_job(Phase.FINISHED, job_id="old")
        await database.add(old, [], at(0))
        heirs = {
            "direct": Continues(job=old.id, checkpoint=a_commit()),
            "later": Continues(job=JobId("direct"), checkpoint=a_commit(), checkpoint_of="old"),
            "other": Continues(job=JobId("direct")),
        }
        for job_id, continues in heirs.items():
            await database.add(replace(a_job(job_id=job_id), continues=continues), [], at(0))
        assert [job.id for job in await database.continuations(old.id)] == ["direct", "later"]
        assert await database.continuations(JobId("nobody")) == []

    @in_a_loop
    async def test_what_is_unfinished_is_always_as_it_was_last_written(
        self, database: Database, open_database: OpenDatabase
    ) -> None:
        other = open_database()
        await database.add_many([new(a_child(f"s1-{number}", number)) for number in (1, 2)], a_study())
        assert len(await database.unfinished()) == 2
        first = (await database.unfinished())[0]
        stored = await other.commit(waiting(first), expect_revision=0)
        assert (await database.unfinished())[0] == stored
        over = replace(a_job(Phase.FINISHED, attempts=(), job_id=first.id), study=first.study, spec=first.spec)
        await other.commit(over, expect_revision=1)
        assert [job.id for job in await database.unfinished()] == ["s1-2"]

    @in_a_loop
    async def test_a_study_goes_with_the_last_of_its_jobs(self, database: Database) -> None:
        jobs = [replace(a_child(f"s1-{number}", number), phase=Phase.FINISHED) for number in (1, 2)]
        over = [replace(job, outcome=Outcome.STOPPED, finished_at=at(9), reason=a_job(Phase.FINISHED).reason) for job in jobs]
        await database.add_many([new(job) for job in over], a_study())
        for job_id in await database.lease_due("me", at(10), at(20), 2):
            await database.give_back(job_id, "me", None)
        await database.remove(JobId("s1-1"), expect_revision=0)
        assert await database.load_study("s1") == a_study()
        await database.remove(JobId("s1-2"), expect_revision=0)
        assert await database.load_study("s1") is None
        assert await database.studies(9) == []
