"""Does a database keep the promises of ports/database.py? One suite for every adapter.

A test module subclasses `DatabaseConformance` and gives the fixture `open_database`: a function that opens the same database again,
as another process would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from msgspec.structs import replace

from trainmaster.core.job import JobId, JobRecord, Outcome, Phase
from trainmaster.errors import RevisionConflict
from trainmaster.ports.database import Database, Selection, WorkLease
from trainmaster.testing.builders import a_job, a_line, a_spec, an_attempt, an_ending, at

OpenDatabase = Callable[[], Database]
UNKNOWN = JobId("nobody")
HOSTILE = ("'; DROP TABLE jobs; --", 'say "hi"', "100%_\\", "zwei\nZeilen", "訓練 🚂", "%", "_", "*")


class DatabaseConformance:
    """Every promise, one test each."""

    @pytest.fixture
    def database(self, open_database: OpenDatabase) -> Iterator[Database]:
        """The database under test, empty."""
        opened = open_database()
        yield opened
        asyncio.run(_closed(opened))

    # Promise 1: durable, and together or not at all.

    def test_what_was_added_is_loaded(self, database: Database) -> None:
        """Equal to the last field, with its story."""

        async def scenario() -> None:
            job = _job("j1", tags={"team": "vision"})
            await database.add(job, [a_line("submitted"), a_line("noted")], at(0))
            assert await database.load(job.id) == job
            assert await database.story(job.id) == [a_line("submitted"), a_line("noted")]
            assert await database.next_wake() == at(0)

        asyncio.run(scenario())

    def test_an_unknown_job_is_no_error(self, database: Database) -> None:
        """None, empty, or nothing happens."""

        async def scenario() -> None:
            assert await database.load(UNKNOWN) is None
            assert await database.story(UNKNOWN) == []
            await database.wake(UNKNOWN, at(0))
            await database.give_back(UNKNOWN, "me", at(0))
            assert await database.next_wake() is None
            assert await database.unfinished() == []
            assert await database.lease_due("me", at(0), at(20), 10) == []

        asyncio.run(scenario())

    def test_a_second_job_of_the_same_id_is_refused_and_changes_nothing(self, database: Database) -> None:
        """Also when it is the very same job: a repeated add is told so."""

        async def scenario() -> None:
            job = _job("j1")
            await database.add(job, [a_line("first")], at(5))
            for again in (job, _job("j1", name="other")):
                with pytest.raises(RevisionConflict):
                    await database.add(again, [a_line("second")], at(1))
            assert await database.load(job.id) == job
            assert await database.story(job.id) == [a_line("first")]
            assert await database.next_wake() == at(5)

        asyncio.run(scenario())

    def test_another_process_sees_what_was_written(self, database: Database, open_database: OpenDatabase) -> None:
        """At once, and after everybody has closed."""

        async def scenario() -> None:
            await database.add(_job("j1"), [a_line()], at(0))
            other = open_database()
            job = await other.load(JobId("j1"))
            assert job is not None
            stored = await other.commit(_waits(job), expect_revision=0, lines=[a_line("noted")])
            assert await database.load(job.id) == stored
            await other.close()
            await database.close()
            later = open_database()
            assert await later.load(job.id) == stored
            assert await later.story(job.id) == [a_line(), a_line("noted")]
            await later.close()

        asyncio.run(scenario())

    def test_a_refused_commit_changes_neither_record_nor_story_nor_wake(self, database: Database) -> None:
        """All or nothing."""

        async def scenario() -> None:
            job = _job("j1")
            await database.add(job, [a_line("first")], at(50))
            with pytest.raises(RevisionConflict):
                await database.commit(_waits(job), expect_revision=7, lines=[a_line("second")], wake_at=at(1))
            assert await database.load(job.id) == job
            assert await database.story(job.id) == [a_line("first")]
            assert await database.next_wake() == at(50)

        asyncio.run(scenario())

    def test_a_record_that_cannot_be_is_not_stored(self, database: Database) -> None:
        """Every commit checks the invariants."""

        async def scenario() -> None:
            job = _job("j1")
            impossible = replace(job, outcome=Outcome.FAILED)
            with pytest.raises(AssertionError):
                await database.add(impossible, [], at(0))
            await database.add(job, [], at(0))
            with pytest.raises(AssertionError):
                await database.commit(impossible, expect_revision=0)
            assert await database.load(job.id) == job

        asyncio.run(scenario())

    @pytest.mark.parametrize("text", HOSTILE)
    def test_text_comes_back_as_it_went(self, database: Database, text: str) -> None:
        """Quotes, wildcards, newlines and other scripts are only text."""

        async def scenario() -> None:
            job = _job("j1", tags={"note": text})
            await database.add(job, [replace(a_line(), sentence=text)], at(0))
            await database.add(_job("j2", tags={"note": "plain"}), [], at(0))
            stored = await database.commit(replace(job, waits_for=text), expect_revision=0)
            assert await database.load(job.id) == stored
            assert [line.sentence for line in await database.story(job.id)] == [text]
            assert _ids(await database.find(Selection(tags=(("note", text),)))) == ["j1"]
            assert await database.resolve(text) == []

        asyncio.run(scenario())

    def test_a_large_record_is_no_trouble(self, database: Database) -> None:
        """A thousand attempts and a long story."""

        async def scenario() -> None:
            attempts = tuple(an_attempt(n, ended=0, ending=an_ending(NO_CAPACITY)) for n in range(1, 1001))
            job = a_job(attempts=attempts)
            lines = [a_line(f"e{n}") for n in range(1000)]
            await database.add(job, lines, at(0))
            assert await database.load(job.id) == job
            assert await database.story(job.id) == lines

        asyncio.run(scenario())

    # Promise 2: compare-and-set.

    def test_a_commit_is_the_next_revision(self, database: Database) -> None:
        """Returned as stored; its lines come after those before."""

        async def scenario() -> None:
            job = _job("j1")
            await database.add(job, [a_line("submitted")], at(0))
            first = await database.commit(_waits(job), expect_revision=0, lines=[a_line("a"), a_line("b")])
            assert first == replace(_waits(job), revision=1)
            second = await database.commit(first, expect_revision=1, lines=[a_line("c")])
            assert second.revision == 2
            assert await database.load(job.id) == second
            assert [line.event for line in await database.story(job.id)] == ["submitted", "a", "b", "c"]

        asyncio.run(scenario())

    def test_a_repeated_commit_is_told_so(self, database: Database) -> None:
        """Who lost the answer and tries again gets RevisionConflict, not a second line in the story."""

        async def scenario() -> None:
            job = _job("j1")
            await database.add(job, [], at(0))
            for is_first in (True, False):
                if is_first:
                    await database.commit(_waits(job), expect_revision=0, lines=[a_line()])
                    continue
                with pytest.raises(RevisionConflict):
                    await database.commit(_waits(job), expect_revision=0, lines=[a_line()])
            assert await database.story(job.id) == [a_line()]
            with pytest.raises(RevisionConflict):
                await database.commit(_job("j2"), expect_revision=0)

        asyncio.run(scenario())

    def test_of_racing_committers_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
        """Eight processes, one revision."""
        job = _job("j1")
        asyncio.run(database.add(job, [], at(0)))

        async def commit(racer: int, other: Database) -> bool:
            try:
                await other.commit(_waits(job), expect_revision=0, lines=[a_line(f"racer {racer}")])
            except RevisionConflict:
                return False
            return True

        won = _race(8, open_database, commit)
        assert sum(won) == 1
        assert asyncio.run(database.story(job.id)) == [a_line(f"racer {won.index(True)}")]

    def test_of_racing_submissions_of_one_id_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
        """An id belongs to one job."""

        async def add(racer: int, other: Database) -> bool:
            try:
                await other.add(_job("j1", name=f"racer-{racer}"), [], at(0))
            except RevisionConflict:
                return False
            return True

        won = _race(8, open_database, add)
        assert sum(won) == 1
        stored = asyncio.run(database.load(JobId("j1")))
        assert stored is not None
        assert stored.spec.name == f"racer-{won.index(True)}"

    # What is found, and how.

    def test_find_answers_newest_first_and_everything_given_must_hold(self, database: Database) -> None:
        """Phase, outcome, name, tags and time; at most `limit`."""

        async def scenario() -> None:
            red, blue = {"team": "red", "kind": "a"}, {"team": "blue", "kind": "a"}
            done = _submitted(a_job(Phase.FINISHED, job_id="j2"), 2)
            for job in (_job("j1", 1, tags=red), done, _job("j3", 3, name="other", tags=blue), _job("j4", 4, tags=red)):
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

        asyncio.run(scenario())

    def test_unfinished_jobs_come_oldest_first(self, database: Database) -> None:
        """And one that finishes is no longer among them."""

        async def scenario() -> None:
            running = _submitted(a_job(Phase.RUNNING, job_id="b"), 1)
            for job in (_job("a", 3), running, _submitted(a_job(Phase.FINISHED, job_id="c"), 2)):
                await database.add(job, [], at(0))
            assert await database.unfinished() == [running, _job("a", 3)]
            finished = _submitted(a_job(Phase.FINISHED, job_id="b"), 1)
            await database.commit(finished, expect_revision=0)
            assert _ids(await database.unfinished()) == ["a"]
            assert _ids(await database.find(Selection(outcomes=(Outcome.SUCCEEDED,)))) == ["c", "b"]

        asyncio.run(scenario())

    def test_people_name_jobs_by_id_prefix_name_or_last(self, database: Database) -> None:
        """A whole id beats a name, a name beats a prefix; an ambiguous prefix gives all."""

        async def scenario() -> None:
            assert await database.resolve("last") == []
            for job in (_job("abc1", 1, name="mnist"), _job("abd2", 2, name="mnist"), _job("x9", 3, name="abc1")):
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

        asyncio.run(scenario())

    def test_the_mark_changes_when_anybody_writes(self, database: Database, open_database: OpenDatabase) -> None:
        """Ourselves or another process."""

        async def scenario() -> None:
            other = open_database()
            marks = [await database.change_mark()]
            await database.add(_job("j1"), [], at(0))
            marks.append(await database.change_mark())
            await other.add(_job("j2"), [], at(0))
            marks.append(await database.change_mark())
            await other.commit(_waits(_job("j2")), expect_revision=0)
            marks.append(await database.change_mark())
            await other.wake(JobId("j2"), at(-5))
            marks.append(await database.change_mark())
            assert all(a != b for a, b in zip(marks, marks[1:], strict=False))
            await other.close()

        asyncio.run(scenario())

    def test_closing_twice_is_fine(self, open_database: OpenDatabase) -> None:
        """Repeatable."""
        opened = open_database()
        asyncio.run(_closed(opened))
        asyncio.run(_closed(opened))


