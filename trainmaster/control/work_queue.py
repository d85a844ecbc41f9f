"""Which job next? Work leases, wakes, back-off: the loop that `run`, the driver and the service share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

from trainmaster.control.observe import Ports
from trainmaster.control.placer import Placer
from trainmaster.control.reconciler import reconcile_job
from trainmaster.control.sweeper import sweep
from trainmaster.core.job import JobId, Phase, allocation_name
from trainmaster.core.retry import backoff_s
from trainmaster.errors import RevisionConflict, TrainmasterError

_log = logging.getLogger("trainmaster.driver")
_LEASE_S = 20.0
_SWEEP_S = 60.0
_STEPS_AT_ONCE = 32


class WorkQueue:
    """Takes leases on due jobs, steps them, and sleeps until the next wake."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._placer = Placer(ports)
        self._stepping: dict[JobId, asyncio.Task[None]] = {}
        self._watching: dict[JobId, asyncio.Task[None]] = {}
        self._troubles: dict[JobId, int] = {}
        self._woken = asyncio.Event()
        self._mark = -1
        self._rest_s = ports.timing.poll_s
        self._place_at: datetime | None = None
        self._sweep_at = ports.clock.now()
        self._looked_at: datetime | None = None

    async def drive(self, is_over: Callable[[], Awaitable[bool]]) -> None:
        """Work until `is_over`, asked after each round."""
        try:
            while not await self._is_over(is_over):
                await self._round()
                await self._rest()
        finally:
            tasks = [*self._stepping.values(), *self._watching.values()]
            for task in self._watching.values():
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _is_over(self, is_over: Callable[[], Awaitable[bool]]) -> bool:
        """Who cannot say whether it is over goes on."""
        try:
            return await is_over()
        except TrainmasterError as error:
            _log.warning("driving on: %s", error)
            return False

    async def _round(self) -> None:
        ports = self._ports
        now = ports.clock.now()
        try:
            if self._looked_at is None or now < self._looked_at:
                # Who begins looks at everything; so does who sees the clock go back: the wakes that were set would come too late.
                await ports.database.wake_all(now)
                self._sweep_at = min(self._sweep_at, now)
            self._looked_at = now
            mark = await ports.database.change_mark()
            # Where nobody writes, looking for what others wrote may take a little longer.
            self._rest_s = ports.timing.poll_s if mark != self._mark else min(self._rest_s * 1.5, ports.timing.poll_s * 2.5)
            if mark != self._mark or (self._place_at is not None and now >= self._place_at):
                self._place_at = await self._placer.place_waiting()
                self._mark = mark
                now = ports.clock.now()  # what was placed just now is due just now
            free = _STEPS_AT_ONCE - len(self._stepping)
            due = await ports.database.lease_due(ports.owner, now, now + timedelta(seconds=_LEASE_S), free)
        except TrainmasterError as error:
            _log.warning("no work taken: %s", error)
            await ports.clock.sleep(1.0)
            return
        for job_id in due:
            self._stepping[job_id] = asyncio.create_task(self._step(job_id))
        if now >= self._sweep_at:
            self._sweep_at = now + timedelta(seconds=_SWEEP_S)
            await self._sweep()

    async def _rest(self) -> None:
        """Until a step ends, something wakes us, or it is time to look for the work of others."""
        waker = asyncio.create_task(self._woken.wait())
        await asyncio.wait({waker, *self._stepping.values()}, timeout=self._rest_s, return_when=asyncio.FIRST_COMPLETED)
        waker.cancel()
        self._woken.clear()
        self._stepping = {job_id: task for job_id, task in self._stepping.items() if not task.done()}

    async def _step(self, job_id: JobId) -> None:
        ports = self._ports
        now = ports.clock.now()
        wake_at: datetime | None = now + timedelta(seconds=1)
        try:
            wake_at = await reconcile_job(job_id, ports)
            self._troubles.pop(job_id, None)
            await self._watch(job_id)
        except RevisionConflict:
            wake_at = now  # somebody else committed first: look again
        except Exception as error:  # noqa: BLE001  the one broad except: a step that fails is told, and tried again later
            times = self._troubles[job_id] = self._troubles.get(job_id, 0) + 1
            wake_at = now + timedelta(seconds=backoff_s(0.5, 30.0, times))
            expected = isinstance(error, TrainmasterError)
            _log.warning("job %s: step failed (%d in a row): %s", job_id, times, error, exc_info=None if expected else error)
        try:
            await ports.database.give_back(job_id, ports.owner, wake_at)
        except TrainmasterError as error:
            _log.warning("job %s: looked at again when our lease on it is over: %s", job_id, error)

    async def _watch(self, job_id: JobId) -> None:
        """Let the provider wake us sooner than the clock would."""
        job = await self._ports.database.load(job_id)
        watched = self._watching.get(job_id)
        if job is None or job.phase in {Phase.QUEUED, Phase.FINISHED}:
            if watched is not None:
                watched.cancel()
                del self._watching[job_id]
            return
        if watched is None or watched.done():
            provider = self._ports.providers[job.current.placement.provider]
            name = allocation_name(job.id, job.attempt)

            async def wake() -> None:
                await provider.wait_change(name)
                with suppress(TrainmasterError):  # only a hint: the clock wakes us, too
                    await self._ports.database.wake(job_id, self._ports.clock.now())
                self._woken.set()

            self._watching[job_id] = asyncio.create_task(wake())

    async def _sweep(self) -> None:
        try:
            for name in await sweep(self._ports):
                _log.info("released %s: no unfinished job holds it", name)
        except TrainmasterError as error:
            _log.warning("sweep failed: %s", error)
