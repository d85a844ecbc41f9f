"""A database that gives no answer for a moment costs time, never the loop that drives."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta

import pytest
from control.scene import a_control_plane
from control.test_clock_goes_back import ClockByHand, Onlooker

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.control.work_queue import WorkQueue
from trainmaster.core.job import Phase
from trainmaster.errors import DatabaseUnavailable
from trainmaster.testing.builders import a_job, at


class Away(SqliteDatabase):
    """Gives no answer once, when it is asked for one thing."""

    silent_on = ""

    async def give_back(self, *args) -> None:
        self._answer("give_back")
        await super().give_back(*args)

    async def wake(self, *args) -> None:
        self._answer("wake")
        await super().wake(*args)

    def _answer(self, asked: str) -> None:
        if asked == self.silent_on:
            self.silent_on = ""
            raise DatabaseUnavailable("the disk is full")


class Restless(Onlooker):
    """Says at once that something changed."""

    async def wait_change(self, name: str) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("asked", ["give_back", "wake"])
def test_the_job_is_looked_at_again_and_nothing_breaks(tmp_path, asked):
    async def play() -> None:
        broken = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        clock, provider = ClockByHand(), Restless()
        database = Away.open(tmp_path / "db")
        ports = a_control_plane(clock, database, local=provider)
        await database.add(a_job(Phase.RUNNING), [], at(60))
        database.silent_on = asked

        async def looked_at_again() -> bool:
            if not database.silent_on and provider.looks == 1:
                clock.time += timedelta(seconds=30)  # whatever lease was left behind is over
            return provider.looks > 1

        async with asyncio.timeout(10):
            await WorkQueue(ports).drive(looked_at_again)
        await database.close()
        gc.collect()
        assert broken == []

    asyncio.run(play())
