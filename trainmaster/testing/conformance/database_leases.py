"""Does a database keep its promises about wakes and leases? The half of the suite that is about who may work when."""

# ruff: noqa: D102 – a test's name is its sentence.
from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import ParamSpec, TypeVar

import pytest
from msgspec.structs import replace

from trainmaster.core.job import JobId, JobRecord
from trainmaster.errors import RevisionConflict
from trainmaster.ports.database import Database, WorkLease
from trainmaster.testing.builders import a_job, a_line, a_spec, at

_P = ParamSpec("_P")
_T = TypeVar("_T")
OpenDatabase = Callable[[], Database]


def in_a_loop(test: Callable[_P, Coroutine[None, None, None]]) -> Callable[_P, None]:
    """A plain test out of an async one."""

    @functools.wraps(test)
    def plain(*args: _P.args, **kwargs: _P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return plain


class LeaseConformance:
    """Every promise about wakes and leases, one test each."""

    @pytest.fixture
    def database(self, open_database: OpenDatabase) -> Iterator[Database]:
        """The database under test, empty."""
        opened = open_database()
        yield opened
        asyncio.run(opened.close())

    # Wakes and work leases.

    @in_a_loop
    async def test_a_wake_comes_sooner_never_later(self, database: Database) -> None:
        job = a_submitted_job("j1")
        await database.add(job, [], at(50))
        for seconds, expected in ((60, 50), (40, 40), (45, 40), (40, 40), (12.345678, 12.345678)):
            await database.wake(job.id, at(seconds))
            assert await database.next_wake() == at(expected)
        assert await database.load(job.id) == job, "a wake is no revision"

    @in_a_loop
    async def test_all_are_woken_sooner_never_later_but_not_those_that_rest(self, database: Database) -> None:
        for name, due in (("early", 10), ("late", 99), ("rests", 5)):
            await database.add(a_submitted_job(name), [], at(due))
        assert await database.lease_due("me", at(5), at(25), 10) == ["rests"]
        await database.give_back(JobId("rests"), "me", None)
        for _ in range(2):
            await database.wake_all(at(20))
        assert await database.next_wake() == at(10)
        assert await database.lease_due("me", at(20), at(40), 10) == ["early", "late"]

    @in_a_loop
    async def test_a_commit_sets_the_wake_it_names_and_leaves_it_otherwise(self, database: Database) -> None:
        job = a_submitted_job("j1")
        await database.add(job, [], at(50))
        job = await database.commit(job, expect_revision=0)
        assert await database.next_wake() == at(50)
        await database.commit(job, expect_revision=1, wake_at=at(20))
        assert await database.next_wake() == at(20)

    @in_a_loop
    async def test_the_longest_due_are_leased_first_and_only_what_is_due(self, database: Database) -> None:
        for name, due in (("a", 30), ("b", 10), ("c", 20), ("d", 99)):
            await database.add(a_submitted_job(name), [], at(due))
        assert await database.lease_due("me", at(5), at(25), 10) == []
        assert await database.lease_due("me", at(50), at(70), 2) == ["b", "c"]
        assert await database.lease_due("me", at(50), at(70), 0) == []
        assert await database.lease_due("you", at(50), at(70), 10) == ["a"]
        assert await database.lease_due("you", at(50), at(70), 10) == []

    @in_a_loop
    async def test_a_work_lease_is_held_until_its_time_and_then_anybodys(self, database: Database) -> None:
        await database.add(a_submitted_job("j1"), [], at(0))
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
        await database.add(a_submitted_job("j1"), [], at(0))
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
        await database.add(a_submitted_job("j1"), [], at(0))
        await database.lease_due("me", at(0), at(20), 10)
        await database.wake(JobId("j1"), at(3))
        assert await database.lease_due("you", at(4), at(24), 10) == [], "one at a time"
        await database.give_back(JobId("j1"), "me", None if next_at is None else at(next_at))
        assert await database.next_wake() == at(3)
        assert await database.lease_due("you", at(4), at(24), 10) == ["j1"]

    def test_racing_owners_never_lease_the_same_job(self, database: Database, open_database: OpenDatabase) -> None:
        for n in range(40):
            asyncio.run(database.add(a_submitted_job(f"j{n}"), [], at(0)))

        async def lease(racer: int, other: Database) -> list[JobId]:
            return [j for _ in range(10) for j in await other.lease_due(f"owner {racer}", at(1), at(21), 3)]

        leased = [job_id for own in race(6, open_database, lease) for job_id in own]
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
    async def test_asking_who_holds_a_lease_takes_nothing(self, database: Database, open_database: OpenDatabase) -> None:
        other = open_database()
        mine, yours = WorkLease(name="driver", owner="me"), WorkLease(name="driver", owner="you")
        mark = await other.change_mark()
        assert await database.holder("driver", at(0)) is None
        assert await other.change_mark() == mark, "asking writes nothing"
        assert await other.hold(yours, at(0), at(10)), "asking took nothing"
        assert await database.holder("driver", at(0)) == "you"
        assert await database.holder("driver", at(10)) == "you"
        assert not await database.hold(mine, at(10), at(20)), "who is said to hold it can keep others out"
        assert await database.holder("driver", at(10.5)) is None
        assert await database.holder("placer", at(5)) is None
        assert await database.hold(mine, at(10.5), at(20))
        assert await other.holder("driver", at(11)) == "me"
        await database.let_go(mine)
        assert await other.holder("driver", at(11)) is None
        await other.close()

    # Leases of the dead.

    @in_a_loop
    async def test_leases_of_the_dead_end_at_once_and_their_jobs_are_due(self, database: Database) -> None:
        for name, due in (("a", 1), ("b", 2), ("rests", 3)):
            await database.add(a_submitted_job(name), [], at(due))
        assert await database.lease_due("dead", at(1), at(9999), 5) == ["a"]
        assert await database.lease_due("alive", at(2), at(9999), 5) == ["b"]
        assert await database.lease_due("alive", at(3), at(9999), 5) == ["rests"]
        await database.give_back(JobId("rests"), "alive", None)
        await database.end_leases("somebody else", at(20))
        assert await database.lease_due("me", at(20), at(40), 5) == []
        for _ in range(2):
            await database.end_leases("dead", at(20))
            assert await database.next_wake() == at(20)
        assert await database.lease_due("me", at(19), at(40), 5) == []
        assert await database.lease_due("me", at(20), at(40), 5) == ["a"], "not what the living hold, and not what rests"
        await database.end_leases("dead", at(21))
        assert await database.lease_due("you", at(22), at(42), 5) == [], "who took it over keeps it"

    @in_a_loop
    async def test_named_leases_of_the_dead_are_anybodys(self, database: Database) -> None:
        dead, alive = (WorkLease(name=name, owner=name) for name in ("dead", "alive"))
        await database.hold(replace(dead, name="placer"), at(0), at(9999))
        await database.hold(dead, at(0), at(9999))
        await database.hold(alive, at(0), at(9999))
        for _ in range(2):
            await database.end_leases("dead", at(5))
        assert await database.hold(WorkLease(name="placer", owner="me"), at(5), at(15))
        assert await database.hold(WorkLease(name="dead", owner="me"), at(5), at(15))
        assert not await database.hold(WorkLease(name="alive", owner="me"), at(5), at(15))

    @in_a_loop
    async def test_a_commit_under_a_lease_needs_the_lease(self, database: Database) -> None:
        mine, yours = WorkLease(name="placer", owner="me"), WorkLease(name="placer", owner="you")
        job = a_submitted_job("j1")
        await database.add(job, [], at(0))
        with pytest.raises(RevisionConflict):
            await database.commit(waiting(job), expect_revision=0, lines=[a_line()], under=mine)
        await database.hold(mine, at(0), at(10))
        job = await database.commit(waiting(job), expect_revision=0, under=mine)
        await database.hold(yours, at(11), at(21))
        for lost in (mine, WorkLease(name="other", owner="you")):
            with pytest.raises(RevisionConflict):
                await database.commit(job, expect_revision=1, lines=[a_line()], under=lost)
        await database.commit(job, expect_revision=1, under=yours)
        assert await database.story(job.id) == []

    def test_of_racing_holders_one_wins(self, database: Database, open_database: OpenDatabase) -> None:
        async def hold(racer: int, other: Database) -> bool:
            return await other.hold(WorkLease(name="placer", owner=f"owner {racer}"), at(0), at(10))

        winners = race(8, open_database, hold)
        assert sum(winners) == 1
        winner = WorkLease(name="placer", owner=f"owner {winners.index(True)}")
        assert asyncio.run(database.hold(winner, at(1), at(11)))


def a_submitted_job(job_id: str, seconds: float = 0.0, *, name: str = "train", tags: dict[str, str] | None = None) -> JobRecord:
    """A new job, submitted so many seconds into the test."""
    return submitted(a_job(job_id=job_id, spec=a_spec(name=name, tags=tags)), seconds)


def submitted(job: JobRecord, seconds: float) -> JobRecord:
    """The same job, submitted at another time."""
    return replace(job, submitted_at=at(seconds), updated_at=max(job.updated_at, at(seconds)))


def waiting(job: JobRecord) -> JobRecord:
    """The same job, a little further."""
    return replace(job, waits_for="1 CPU; 0 free", updated_at=job.updated_at + timedelta(seconds=1))


def race(racers: int, open_database: OpenDatabase, step: Callable[[int, Database], Coroutine[None, None, _T]]) -> list[_T]:
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
