"""Does a database keep the promises of ports/database.py? One suite for every adapter.

A test module subclasses `DatabaseConformance` and gives the fixture `open_database`: a function that opens the same database again,
as another process would.
"""

# ruff: noqa: D102 – a test's name is its sentence.
from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from threading import Barrier
from typing import ParamSpec, TypeVar

import pytest
from msgspec.structs import replace

from trainmaster.core.job import EndingKind, JobId, JobRecord, Outcome, Phase
from trainmaster.errors import RevisionConflict
from trainmaster.ports.database import Database, Selection, WorkLease
from trainmaster.testing.builders import a_job, a_line, a_spec, an_attempt, an_ending, at

_P = ParamSpec("_P")
_T = TypeVar("_T")
OpenDatabase = Callable[[], Database]
UNKNOWN = JobId("nobody")
HOSTILE = ("'; DROP TABLE jobs; --", 'say "hi"', "100%_\\", "zwei\nZeilen", "訓練 🚂", "%", "_", "*")


def in_a_loop(test: Callable[_P, Coroutine[None, None, None]]) -> Callable[_P, None]:
    """A plain test out of an async one."""

    @functools.wraps(test)
    def plain(*args: _P.args, **kwargs: _P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return plain


class DatabaseConformance:
    """Every promise, one test each."""

    @pytest.fixture
    def database(self, open_database: OpenDatabase) -> Iterator[Database]:
        """The database under test, empty."""
        opened = open_database()
        yield opened
        asyncio.run(opened.close())

    # Promise 1: durable, and together or not at all.

    @in_a_loop
    async def test_what_was_added_is_loaded(self, database: Database) -> None:
        job = _job("j1", tags={"team": "vision"})
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
        job = _job("j1")
        await database.add(job, [a_line("first")], at(5))
        for again in (job, _job("j1", name="other")):
            with pytest.raises(RevisionConflict):
                await database.add(again, [a_line("second")], at(1))
        assert await database.load(job.id) == job
        assert await database.story(job.id) == [a_line("first")]
        assert await database.next_wake() == at(5)

    @in_a_loop
    async def test_another_process_sees_what_was_written(self, database: Database, open_database: OpenDatabase) -> None:
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

    @in_a_loop
    async def test_a_refused_commit_changes_neither_record_nor_story_nor_wake(self, database: Database) -> None:
        job = _job("j1")
        await database.add(job, [a_line("first")], at(50))
        with pytest.raises(RevisionConflict):
            await database.commit(_waits(job), expect_revision=7, lines=[a_line("second")], wake_at=at(1))
        assert await database.load(job.id) == job
        assert await database.story(job.id) == [a_line("first")]
        assert await database.next_wake() == at(50)

    @in_a_loop
    async def test_a_record_that_cannot_be_is_not_stored(self, database: Database) -> None:
        job = _job("j1")
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
        job = _job("j1", tags={"note": text})
        await database.add(job, [replace(a_line(), sentence=text)], at(0))
        await database.add(_job("j2", tags={"note": "plain"}), [], at(0))
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
        job = _job("j1")
        await database.add(job, [a_line("submitted")], at(0))
        first = await database.commit(_waits(job), expect_revision=0, lines=[a_line("a"), a_line("b")])
        assert first == replace(_waits(job), revision=1)
        second = await database.commit(first, expect_revision=1, lines=[a_line("c")])
        assert second.revision == 2
        assert await database.load(job.id) == second
        assert [line.event for line in await database.story(job.id)] == ["submitted", "a", "b", "c"]

    @in_a_loop
    async def test_a_repeated_commit_is_told_so(self, database: Database) -> None:
        job = _job("j1")
        await database.add(job, [], at(0))
        await database.commit(_waits(job), expect_revision=0, lines=[a_line()])
        for _ in range(2):
            with pytest.raises(RevisionConflict):
                await database.commit(_waits(job), expect_revision=0, lines=[a_line()])
        assert await database.story(job.id) == [a_line()]
        with pytest.raises(RevisionConflict):
            await database.commit(_job("j2"), expect_revision=0)

    def test_of_racing_committers_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
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

    def test_a_new_database_may_be_opened_by_many_at_once(self, open_database: OpenDatabase) -> None:
        barrier = Barrier(6)

        def one(racer: int) -> list[str]:
            barrier.wait()
            opened = open_database()

            async def scenario() -> list[str]:
                await opened.add(_job(f"j{racer}"), [], at(0))
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

    @in_a_loop
    async def test_unfinished_jobs_come_oldest_first(self, database: Database) -> None:
        running = _submitted(a_job(Phase.RUNNING, job_id="b"), 1)
        for job in (_job("a", 3), running, _submitted(a_job(Phase.FINISHED, job_id="c"), 2)):
            await database.add(job, [], at(0))
        assert await database.unfinished() == [running, _job("a", 3)]
        finished = _submitted(a_job(Phase.FINISHED, job_id="b"), 1)
        await database.commit(finished, expect_revision=0)
        assert _ids(await database.unfinished()) == ["a"]
        assert _ids(await database.find(Selection(outcomes=(Outcome.SUCCEEDED,)))) == ["c", "b"]

    @in_a_loop
    async def test_people_name_jobs_by_id_prefix_name_or_last(self, database: Database) -> None:
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

    @in_a_loop
    async def test_the_mark_changes_when_anybody_writes(self, database: Database, open_database: OpenDatabase) -> None:
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
        assert all(a != b for a, b in pairwise(marks))
        await other.close()

    def test_closing_twice_is_fine(self, open_database: OpenDatabase) -> None:
        opened = open_database()
        asyncio.run(opened.close())
        asyncio.run(opened.close())

    # Wakes and work leases.

    @in_a_loop
    async def test_a_wake_comes_sooner_never_later(self, database: Database) -> None:
        job = _job("j1")
        await database.add(job, [], at(50))
        for seconds, expected in ((60, 50), (40, 40), (45, 40), (40, 40), (12.345678, 12.345678)):
            await database.wake(job.id, at(seconds))
            assert await database.next_wake() == at(expected)
        assert await database.load(job.id) == job, "a wake is no revision"

    @in_a_loop
    async def test_all_are_woken_sooner_never_later_but_not_those_that_rest(self, database: Database) -> None:
        for name, due in (("early", 10), ("late", 99), ("rests", 5)):
            await database.add(_job(name), [], at(due))
        assert await database.lease_due("me", at(5), at(25), 10) == ["rests"]
        await database.give_back(JobId("rests"), "me", None)
        for _ in range(2):
            await database.wake_all(at(20))
        assert await database.next_wake() == at(10)
        assert await database.lease_due("me", at(20), at(40), 10) == ["early", "late"]

    @in_a_loop
    async def test_a_commit_sets_the_wake_it_names_and_leaves_it_otherwise(self, database: Database) -> None:
        job = _job("j1")
        await database.add(job, [], at(50))
        job = await database.commit(job, expect_revision=0)
        assert await database.next_wake() == at(50)
        await database.commit(job, expect_revision=1, wake_at=at(20))
        assert await database.next_wake() == at(20)

    @in_a_loop
    async def test_the_longest_due_are_leased_first_and_only_what_is_due(self, database: Database) -> None:
        for name, due in (("a", 30), ("b", 10), ("c", 20), ("d", 99)):
            await database.add(_job(name), [], at(due))
        assert await database.lease_due("me", at(5), at(25), 10) == []
        assert await database.lease_due("me", at(50), at(70), 2) == ["b", "c"]
        assert await database.lease_due("me", at(50), at(70), 0) == []
        assert await database.lease_due("you", at(50), at(70), 10) == ["a"]
        assert await database.lease_due("you", at(50), at(70), 10) == []

    @in_a_loop
    async def test_a_work_lease_is_held_until_its_time_and_then_anybodys(self, database: Database) -> None:
        await database.add(_job("j1"), [], at(0))
        assert await database.lease_due("me", at(0), at(20), 10) == ["j1"]
        assert await database.lease_due("you", at(19), at(39), 10) == []
        wake = await database.next_wake()
        assert wake is not None, "a holder that dies must not take the job with it"
        assert wake <= at(20)
        assert await database.lease_due("you", at(21), at(41), 10) == ["j1"]
        await database.give_back(JobId("j1"), "me", at(22))  # too late: no longer held
        assert await database.lease_due("me", at(23), at(43), 10) == []

    @in_a_loop
    async def test_giving_back_sets_the_next_wake(self, database: Database) -> None:
        await database.add(_job("j1"), [], at(0))
        await database.lease_due("me", at(0), at(20), 10)
        for _ in range(2):
            await database.give_back(JobId("j1"), "me", at(500))
            assert await database.next_wake() == at(500)
        assert await database.lease_due("you", at(499), at(519), 10) == []
        assert await database.lease_due("you", at(500), at(520), 10) == ["j1"]
        await database.give_back(JobId("j1"), "you", None)
        assert await database.next_wake() is None
        assert await database.lease_due("me", at(1e6), at(1e6 + 20), 10) == []

    @in_a_loop
    @pytest.mark.parametrize("next_at", [None, 15.0, 500.0])
    async def test_who_is_woken_while_leased_is_looked_at_again(self, database: Database, next_at: float | None) -> None:
        await database.add(_job("j1"), [], at(0))
        await database.lease_due("me", at(0), at(20), 10)
        await database.wake(JobId("j1"), at(3))
        assert await database.lease_due("you", at(4), at(24), 10) == [], "one at a time"
        await database.give_back(JobId("j1"), "me", None if next_at is None else at(next_at))
        assert await database.next_wake() == at(3)
        assert await database.lease_due("you", at(4), at(24), 10) == ["j1"]

    def test_racing_owners_never_lease_the_same_job(self, database: Database, open_database: OpenDatabase) -> None:
        for n in range(40):
            asyncio.run(database.add(_job(f"j{n}"), [], at(0)))

        async def lease(racer: int, other: Database) -> list[JobId]:
            return [j for _ in range(10) for j in await other.lease_due(f"owner {racer}", at(1), at(21), 3)]

        leased = [job_id for own in _race(6, open_database, lease) for job_id in own]
        assert len(leased) == len(set(leased))
        left = asyncio.run(database.lease_due("late", at(1), at(21), 100))
        assert sorted([*leased, *left]) == sorted(f"j{n}" for n in range(40))

    # Promise 3: named leases.

    @in_a_loop
    async def test_a_named_lease_has_one_holder(self, database: Database, open_database: OpenDatabase) -> None:
        other = open_database()
        mine, yours = WorkLease(name="placer", owner="me"), WorkLease(name="placer", owner="you")
        assert await database.hold(mine, at(0), at(10))
        assert not await other.hold(yours, at(5), at(15))
        assert await other.hold(WorkLease(name="sweeper", owner="you"), at(5), at(15))
        assert await database.hold(mine, at(9), at(20)), "renewed"
        assert not await other.hold(yours, at(12), at(22))
        assert await other.hold(yours, at(21), at(31)), "expired"
        assert not await database.hold(mine, at(22), at(32))
        await database.let_go(mine)  # not held: nothing happens
        assert not await database.hold(mine, at(23), at(33))
        for _ in range(2):
            await other.let_go(yours)
        assert await database.hold(mine, at(24), at(34))
        await other.close()

    @in_a_loop
    async def test_a_commit_under_a_lease_needs_the_lease(self, database: Database) -> None:
        mine, yours = WorkLease(name="placer", owner="me"), WorkLease(name="placer", owner="you")
        job = _job("j1")
        await database.add(job, [], at(0))
        with pytest.raises(RevisionConflict):
            await database.commit(_waits(job), expect_revision=0, lines=[a_line()], under=mine)
        await database.hold(mine, at(0), at(10))
        job = await database.commit(_waits(job), expect_revision=0, under=mine)
        await database.hold(yours, at(11), at(21))
        for lost in (mine, WorkLease(name="other", owner="you")):
            with pytest.raises(RevisionConflict):
                await database.commit(job, expect_revision=1, lines=[a_line()], under=lost)
        await database.commit(job, expect_revision=1, under=yours)
        assert await database.story(job.id) == []

    def test_of_racing_holders_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
        async def hold(racer: int, other: Database) -> bool:
            return await other.hold(WorkLease(name="placer", owner=f"owner {racer}"), at(0), at(10))

        winners = _race(8, open_database, hold)
        assert sum(winners) == 1
        winner = WorkLease(name="placer", owner=f"owner {winners.index(True)}")
        assert asyncio.run(database.hold(winner, at(1), at(11)))


def _job(job_id: str, seconds: float = 0.0, *, name: str = "train", tags: dict[str, str] | None = None) -> JobRecord:
    return _submitted(a_job(job_id=job_id, spec=a_spec(name=name, tags=tags)), seconds)


def _submitted(job: JobRecord, seconds: float) -> JobRecord:
    return replace(job, submitted_at=at(seconds), updated_at=max(job.updated_at, at(seconds)))


def _waits(job: JobRecord) -> JobRecord:
    """The same job, a little further."""
    return replace(job, waits_for="1 CPU; 0 free", updated_at=job.updated_at + timedelta(seconds=1))


def _ids(jobs: Sequence[JobRecord]) -> list[str]:
    return [job.id for job in jobs]


def _race(racers: int, open_database: OpenDatabase, step: Callable[[int, Database], Coroutine[None, None, _T]]) -> list[_T]:
    """Every racer on a thread and a connection of its own, all let go at once; what each got."""
    barrier = Barrier(racers)

    def one(racer: int) -> _T:
        async def scenario() -> _T:
            other = open_database()
            barrier.wait()
            try:
                return await step(racer, other)
            finally:
                await other.close()

        return asyncio.run(scenario())

    with ThreadPoolExecutor(racers) as pool:
        return list(pool.map(one, range(racers)))
