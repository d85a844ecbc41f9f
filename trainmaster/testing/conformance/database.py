"""Does a database keep the promises of ports/database.py? One suite for every adapter.

A test module subclasses `DatabaseConformance` and gives the fixture `open_database`: a function that opens the same database again,
as another process would.
"""

# ruff: noqa: D102 – a test's name is its sentence.
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import pytest
from msgspec.structs import replace

from trainmaster.core.job import EndingKind, JobId, JobRecord, Outcome, Phase
from trainmaster.core.metrics import MetricSummary
from trainmaster.core.search import Search
from trainmaster.errors import RevisionConflict
from trainmaster.ports.database import Database, Selection
from trainmaster.spec.where import parse_where
from trainmaster.testing.builders import a_job, a_line, a_spec, an_attempt, an_ending, at
from trainmaster.testing.conformance.database_leases import (
    LeaseConformance,
    OpenDatabase,
    a_submitted_job,
    in_a_loop,
    race,
    submitted,
    waiting,
)
from trainmaster.testing.conformance.database_removal import RemovalConformance
from trainmaster.testing.conformance.database_studies import StudyConformance

UNKNOWN = JobId("nobody")
HOSTILE = ("'; DROP TABLE jobs; --", 'say "hi"', "100%_\\", "zwei\nZeilen", "訓練 🚂", "%", "_", "*")


class DatabaseConformance(LeaseConformance, RemovalConformance, StudyConformance):
    """Every promise, one test each."""

    # Promise 1: durable, and together or not at all.

    @in_a_loop
    async def test_what_was_added_is_loaded(self, database: Database) -> None:
        job = a_submitted_job("j1", tags={"team": "vision"})
        await database.add(job, [a_line("submitted"), a_line("noted")], at(0))
        assert await database.load(job.id) == job
        assert await database.story(job.id) == [a_line("submitted"), a_line("noted")]
        assert await database.next_wake() == at(0)

    @in_a_loop
    async def test_an_unknown_job_is_no_error(self, database: Database) -> None:
        assert await database.load(UNKNOWN) is None
        assert await database.story(UNKNOWN) == []
        await database.wake(UNKNOWN, at(0))
        await database.give_back(UNKNOWN, "me", at(0))
        assert await database.next_wake() is None
        assert await database.unfinished() == []
        assert await database.lease_due("me", at(0), at(20), 10) == []

    @in_a_loop
    async def test_a_second_job_of_the_same_id_is_refused_and_changes_nothing(self, database: Database) -> None:
        job = a_submitted_job("j1")
        await database.add(job, [a_line("first")], at(5))
        for again in (job, a_submitted_job("j1", name="other")):
            with pytest.raises(RevisionConflict):
                await database.add(again, [a_line("second")], at(1))
        assert await database.load(job.id) == job
        assert await database.story(job.id) == [a_line("first")]
        assert await database.next_wake() == at(5)

    @in_a_loop
    async def test_another_process_sees_what_was_written(self, database: Database, open_database: OpenDatabase) -> None:
        await database.add(a_submitted_job("j1"), [a_line()], at(0))
        other = open_database()
        job = await other.load(JobId("j1"))
        assert job is not None
        stored = await other.commit(waiting(job), expect_revision=0, lines=[a_line("noted")])
        assert await database.load(job.id) == stored
        await other.close()
        await database.close()
        later = open_database()
        assert await later.load(job.id) == stored
        assert await later.story(job.id) == [a_line(), a_line("noted")]
        await later.close()

    @in_a_loop
    async def test_a_refused_commit_changes_neither_record_nor_story_nor_wake(self, database: Database) -> None:
        job = a_submitted_job("j1")
        await database.add(job, [a_line("first")], at(50))
        with pytest.raises(RevisionConflict):
            await database.commit(waiting(job), expect_revision=7, lines=[a_line("second")], wake_at=at(1))
        assert await database.load(job.id) == job
        assert await database.story(job.id) == [a_line("first")]
        assert await database.next_wake() == at(50)

    @in_a_loop
    async def test_a_record_that_cannot_be_is_not_stored(self, database: Database) -> None:
        job = a_submitted_job("j1")
        impossible = replace(job, outcome=Outcome.FAILED)
        with pytest.raises(AssertionError):
            await database.add(impossible, [], at(0))
        await database.add(job, [], at(0))
        with pytest.raises(AssertionError):
            await database.commit(impossible, expect_revision=0)
        assert await database.load(job.id) == job

    @pytest.mark.parametrize("text", HOSTILE)
    @in_a_loop
    async def test_text_comes_back_as_it_went(self, database: Database, text: str) -> None:
        job = a_submitted_job("j1", tags={"note": text})
        await database.add(job, [replace(a_line(), sentence=text)], at(0))
        await database.add(a_submitted_job("j2", tags={"note": "plain"}), [], at(0))
        stored = await database.commit(replace(job, waits_for=text), expect_revision=0)
        assert await database.load(job.id) == stored
        assert [line.sentence for line in await database.story(job.id)] == [text]
        assert _ids(await database.find(Selection(tags=(("note", text),)))) == ["j1"]
        assert await database.resolve(text) == []

    @in_a_loop
    async def test_a_large_record_is_no_trouble(self, database: Database) -> None:
        attempts = tuple(an_attempt(n, ended=0, ending=an_ending(EndingKind.NO_CAPACITY)) for n in range(1, 1001))
        job = a_job(attempts=attempts)
        lines = [a_line(f"e{n}") for n in range(1000)]
        await database.add(job, lines, at(0))
        assert await database.load(job.id) == job
        assert await database.story(job.id) == lines

    # Promise 2: compare-and-set.

    @in_a_loop
    async def test_a_commit_is_the_next_revision(self, database: Database) -> None:
        job = a_submitted_job("j1")
        await database.add(job, [a_line("submitted")], at(0))
        first = await database.commit(waiting(job), expect_revision=0, lines=[a_line("a"), a_line("b")])
        assert first == replace(waiting(job), revision=1)
        second = await database.commit(first, expect_revision=1, lines=[a_line("c")])
        assert second.revision == 2
        assert await database.load(job.id) == second
        assert [line.event for line in await database.story(job.id)] == ["submitted", "a", "b", "c"]

    @in_a_loop
    async def test_a_repeated_commit_is_told_so(self, database: Database) -> None:
        job = a_submitted_job("j1")
        await database.add(job, [], at(0))
        await database.commit(waiting(job), expect_revision=0, lines=[a_line()])
        for _ in range(2):
            with pytest.raises(RevisionConflict):
                await database.commit(waiting(job), expect_revision=0, lines=[a_line()])
        assert await database.story(job.id) == [a_line()]
        with pytest.raises(RevisionConflict):
            await database.commit(a_submitted_job("j2"), expect_revision=0)

    def test_of_racing_committers_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
        job = a_submitted_job("j1")
        asyncio.run(database.add(job, [], at(0)))

        async def commit(racer: int, other: Database) -> bool:
            try:
                await other.commit(waiting(job), expect_revision=0, lines=[a_line(f"racer {racer}")])
            except RevisionConflict:
                return False
            return True

        won = race(8, open_database, commit)
        assert sum(won) == 1
        assert asyncio.run(database.story(job.id)) == [a_line(f"racer {won.index(True)}")]

    def test_of_racing_submissions_of_one_id_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
        async def add(racer: int, other: Database) -> bool:
            try:
                await other.add(a_submitted_job("j1", name=f"racer-{racer}"), [], at(0))
            except RevisionConflict:
                return False
            return True

        won = race(8, open_database, add)
        assert sum(won) == 1
        stored = asyncio.run(database.load(JobId("j1")))
        assert stored is not None
        assert stored.spec.name == f"racer-{won.index(True)}"

    def test_a_new_database_may_be_opened_by_many_at_once(self, open_database: OpenDatabase) -> None:
        barrier = Barrier(6)

        def one(racer: int) -> list[str]:
            barrier.wait()
            opened = open_database()

            async def scenario() -> list[str]:
                await opened.add(a_submitted_job(f"j{racer}"), [], at(0))
                found = _ids(await opened.find(Selection()))
                await opened.close()
                return found

            return asyncio.run(scenario())

        with ThreadPoolExecutor(6) as pool:
            seen = list(pool.map(one, range(6)))
        assert all(f"j{racer}" in found for racer, found in enumerate(seen))

    # What is found, and how.

    @in_a_loop
    async def test_find_answers_newest_first_and_everything_given_must_hold(self, database: Database) -> None:
        red, blue = {"team": "red", "kind": "a"}, {"team": "blue", "kind": "a"}
        done = submitted(a_job(Phase.FINISHED, job_id="j2"), 2)
        for job in (
            a_submitted_job("j1", 1, tags=red),
            done,
            a_submitted_job("j3", 3, name="other", tags=blue),
            a_submitted_job("j4", 4, tags=red),
        ):
            await database.add(job, [], at(0))
        rows: list[tuple[Selection, list[str]]] = [
            (Selection(), ["j4", "j3", "j2", "j1"]),
            (Selection(limit=2), ["j4", "j3"]),
            (Selection(phases=(Phase.FINISHED,)), ["j2"]),
            (Selection(phases=(Phase.QUEUED, Phase.FINISHED)), ["j4", "j3", "j2", "j1"]),
            (Selection(outcomes=(Outcome.SUCCEEDED,)), ["j2"]),
            (Selection(outcomes=(Outcome.FAILED, Outcome.STOPPED)), []),
            (Selection(name="train"), ["j4", "j2", "j1"]),
            (Selection(tags=(("team", "red"),)), ["j4", "j1"]),
            (Selection(tags=(("kind", "a"), ("team", "blue"))), ["j3"]),
            (Selection(tags=(("team", "a"),)), []),
            (Selection(name="train", tags=(("kind", "a"),), limit=1), ["j4"]),
            (Selection(submitted_after=at(1.5)), ["j4", "j3", "j2"]),
            (Selection(submitted_before=at(2.5)), ["j2", "j1"]),
            (Selection(submitted_after=at(1.5), submitted_before=at(3.5), phases=(Phase.QUEUED,)), ["j3"]),
        ]
        for selection, expected in rows:
            assert _ids(await database.find(selection)) == expected, selection

    @in_a_loop
    async def test_find_takes_a_condition_beside_the_rest(self, database: Database) -> None:
        for number, (lr, loss) in enumerate([(0.3, 0.9), (0.1, 0.2), (0.01, 0.1), (0.01, None)], 1):
            metrics = {} if loss is None else {"loss": MetricSummary(count=1, last=loss, min=loss, max=loss)}
            job = a_job(Phase.FINISHED, job_id=f"j{number}", spec=replace(a_spec(tags={"n": "'"}), hyperparameters={"lr": lr}))
            await database.add(submitted(replace(job, attempts=(replace(job.current, metrics=metrics),)), number), [], at(0))
        await database.add(a_submitted_job("j5", 5, name="other"), [], at(0))
        rows: list[tuple[str, Selection, list[str]]] = [
            ("hp.lr < 0.2", Selection(), ["j4", "j3", "j2"]),
            ("hp.lr < 0.2", Selection(limit=2), ["j4", "j3"]),
            ("hp.lr < 0.2 and metric.loss < 0.15", Selection(), ["j3"]),
            ("metric.loss > 0.15", Selection(submitted_after=at(1.5)), ["j2"]),
            ("not metric.loss", Selection(), ["j5", "j4"]),
            ("not metric.loss > 0.15", Selection(), ["j3"]),
            ("outcome = succeeded and phase = finished and name = train", Selection(limit=1), ["j4"]),
            ("phase = queued", Selection(), ["j5"]),
            ("name = other or id = j1", Selection(), ["j5", "j1"]),
            ("not name = other", Selection(limit=1), ["j4"]),
            ("duration >= 0", Selection(limit=1), ["j4"]),
            ('tag.n = "\'" and id = j2', Selection(), ["j2"]),
            ("hp.lr > 1", Selection(), []),
        ]
        for text, selection, expected in rows:
            search = Search(condition=parse_where(text), now=at(200))
            assert _ids(await database.find(replace(selection, where=search))) == expected, text

    @in_a_loop
    async def test_unfinished_jobs_come_oldest_first(self, database: Database) -> None:
        running = submitted(a_job(Phase.RUNNING, job_id="b"), 1)
        for job in (a_submitted_job("a", 3), running, submitted(a_job(Phase.FINISHED, job_id="c"), 2)):
            await database.add(job, [], at(0))
        assert await database.unfinished() == [running, a_submitted_job("a", 3)]
        finished = submitted(a_job(Phase.FINISHED, job_id="b"), 1)
        await database.commit(finished, expect_revision=0)
        assert _ids(await database.unfinished()) == ["a"]
        assert _ids(await database.find(Selection(outcomes=(Outcome.SUCCEEDED,)))) == ["c", "b"]

    @in_a_loop
    async def test_people_name_jobs_by_id_prefix_name_or_last(self, database: Database) -> None:
        assert await database.resolve("last") == []
        for job in (
            a_submitted_job("abc1", 1, name="mnist"),
            a_submitted_job("abd2", 2, name="mnist"),
            a_submitted_job("x9", 3, name="abc1"),
        ):
            await database.add(job, [], at(0))
        rows = {
            "abc1": ["abc1"],
            "mnist": ["abd2"],
            "abd": ["abd2"],
            "ab": ["abc1", "abd2"],
            "last": ["x9"],
            "x": ["x9"],
            "ABC1": [],
            "bc1": [],
            "mnis": [],
        }
        for text, expected in rows.items():
            assert await database.resolve(text) == expected, text

    @in_a_loop
    async def test_the_mark_changes_when_anybody_writes(self, database: Database, open_database: OpenDatabase) -> None:
        other = open_database()
        marks = [await database.change_mark()]
        await database.add(a_submitted_job("j1"), [], at(0))
        marks.append(await database.change_mark())
        await other.add(a_submitted_job("j2"), [], at(0))
        marks.append(await database.change_mark())
        await other.commit(waiting(a_submitted_job("j2")), expect_revision=0)
        marks.append(await database.change_mark())
        await other.wake(JobId("j2"), at(-5))
        marks.append(await database.change_mark())
        assert all(a != b for a, b in pairwise(marks))
        await other.close()

    def test_closing_twice_is_fine(self, open_database: OpenDatabase) -> None:
        opened = open_database()
        asyncio.run(opened.close())
        asyncio.run(opened.close())


def _ids(jobs: Sequence[JobRecord]) -> list[str]:
    return [job.id for job in jobs]
