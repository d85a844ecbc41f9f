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
