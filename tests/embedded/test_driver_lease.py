"""Is somebody driving? Asking must not look like driving."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.config import read_config
from trainmaster.core.job import Phase
from trainmaster.embedded import Embedded, opened
from trainmaster.ports.database import WorkLease
from trainmaster.testing.builders import a_job, at


class Starts(Embedded):
    """Counts the drivers it would start."""

    started = 0

    def _start_driver(self) -> None:
        self.started += 1


@asynccontextmanager
async def a_home_with_work(folder):
    async with opened(read_config({"TRAINMASTER_HOME": str(folder)})) as real:
        await real.ports.database.add(a_job(Phase.RUNNING), [], at(0))
        yield Starts(real.config, real.ports, real.store)


def test_asking_takes_no_lease_so_that_a_driver_that_starts_meanwhile_gets_it(tmp_path):
    async def play() -> None:
        async with a_home_with_work(tmp_path) as embedded:
            other = SqliteDatabase.open(tmp_path / "trainmaster.db")
            mark = await other.change_mark()
            assert await embedded.ensure_driven()
            assert embedded.started == 1
            assert await other.change_mark() == mark, "asking wrote something that another command may have seen"
            await other.close()

    asyncio.run(play())


@pytest.mark.parametrize("seconds_left", [5.0, -5.0])
def test_a_driver_is_started_only_when_nobody_drives(tmp_path, seconds_left):
    async def play() -> None:
        async with a_home_with_work(tmp_path) as embedded:
            now = embedded.ports.clock.now()
            until = now + timedelta(seconds=seconds_left)
            assert await embedded.ports.database.hold(WorkLease(name="driver", owner="elsewhere"), now, until)
            assert await embedded.ensure_driven() == (seconds_left < 0)
            assert embedded.started == (seconds_left < 0)

    asyncio.run(play())


def test_nobody_is_started_when_nothing_is_left_to_do(tmp_path):
    async def play() -> None:
        async with opened(read_config({"TRAINMASTER_HOME": str(tmp_path)})) as real:
            embedded = Starts(real.config, real.ports, real.store)
            assert not await embedded.ensure_driven()
            assert embedded.started == 0

    asyncio.run(play())


class Slow:
    """Keeps house until it is let go."""

    def __init__(self) -> None:
        self.told, self.go = asyncio.Event(), asyncio.Event()

    async def is_due(self, wish) -> bool:
        return False

    async def keep(self, wish, over) -> None:
        await over.wait()
        self.told.set()
        await self.go.wait()


class KeepsHouse(Starts):
    """Has nothing to drive, and house to keep."""

    slow: Slow

    @property
    def house(self):
        return self.slow

    async def drive(self, is_over) -> None:
        pass


def test_who_only_keeps_house_any_more_does_not_look_like_a_driver(tmp_path):
    """A job that is submitted meanwhile must not wait until all is pruned."""

    async def play() -> None:
        config = read_config({"TRAINMASTER_HOME": str(tmp_path), "TRAINMASTER_RETENTION_OLDER_THAN": "30d"})
        async with opened(config) as real:
            embedded = KeepsHouse(real.config, real.ports, real.store)
            embedded.slow, before = Slow(), real.ports.clock.now()
            driver = asyncio.create_task(embedded.be_the_driver())
            await embedded.slow.told.wait()
            while await real.ports.database.holder("driver", before) is not None:
                assert not driver.done()
                await asyncio.sleep(0)
            await real.ports.database.add(a_job(Phase.RUNNING), [], at(0))
            assert await embedded.ensure_driven()
            embedded.slow.go.set()
            await driver
            assert embedded.started == 2, "and it looks once more itself"

    asyncio.run(asyncio.wait_for(play(), 20))


def test_who_fails_while_submitting_lets_others_keep_house(tmp_path):
    kept: list[Embedded] = []  # as a traceback keeps it

    async def submit() -> None:
        async with opened(read_config({"TRAINMASTER_HOME": str(tmp_path)})) as embedded:
            kept.append(embedded)
            embedded.held.enter_context(embedded.home.submitting())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(submit())
    with kept[0].home.alone() as nobody_submits:
        assert nobody_submits
