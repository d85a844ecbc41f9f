"""Which queued jobs begin now? Snapshot of queue and capacity → core.schedule → commit placements."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from msgspec.structs import replace

from trainmaster.control.observe import Ports
from trainmaster.core.decide import place
from trainmaster.core.job import JobId, JobRecord, Phase
from trainmaster.core.schedule import Placed, Waits, schedule
from trainmaster.errors import ProviderError, RevisionConflict
from trainmaster.ports.database import WorkLease

_log = logging.getLogger("trainmaster.driver")
_LEASE_S = 10.0
_ASK_AGAIN_S = 5.0


async def place_waiting(ports: Ports) -> datetime | None:
    """Place what fits; say when a pause in the queue ends, if one does.

    One placer at a time: two of them would both see the same free slot. The lease is checked again inside each commit, so a placer
    that was paused and woke too late places nothing.
    """
    now = ports.clock.now()
    unfinished = await ports.database.unfinished()
    waiting = [job for job in unfinished if job.phase is Phase.QUEUED and job.stop is None]
    if not waiting:
        return None
    again: list[datetime] = []
    lease = WorkLease(name="placer", owner=ports.owner)
    if not await ports.database.hold(lease, now, now + timedelta(seconds=_LEASE_S)):
        return now + timedelta(seconds=0.2)
    try:
        # Read again under the lease: what we saw before it may have been placed by its last holder.
        unfinished = await ports.database.unfinished()
        for name in sorted({job.spec.provider for job in unfinished if job.phase is Phase.QUEUED}):
            try:
                await _place_on(name, unfinished, lease, ports)
            except ProviderError as error:
                # A provider that cannot say what it has holds up nobody but the jobs that want to go there.
                _log.warning("nothing placed on %s: %s", name, error)
                again.append(now + timedelta(seconds=_ASK_AGAIN_S))
    finally:
        await ports.database.let_go(lease)
    pauses = [job.not_before for job in waiting if job.not_before is not None and job.not_before > now]
    return min([*pauses, *again], default=None)


async def _place_on(provider: str, unfinished: list[JobRecord], lease: WorkLease, ports: Ports) -> None:
    capacity = await ports.providers[provider].capacity()
    own = {job.id: job for job in unfinished if job.spec.provider == provider}
    waiting = [job for job in own.values() if job.phase is Phase.QUEUED and job.stop is None]
    held = [job.current.placement for job in own.values() if job.phase is not Phase.QUEUED]
    placed, waits = schedule(waiting, held, capacity, ports.clock.now())
    for choice in placed:
        await _commit_placed(own[choice.job_id], choice, lease, ports)
    for wait in waits:
        await _commit_waits(own, wait, lease, ports)


async def _commit_placed(job: JobRecord, choice: Placed, lease: WorkLease, ports: Ports) -> None:
    decision = place(job, choice.placement, ports.clock.now())
    try:
        await ports.database.commit(
            decision.job, expect_revision=job.revision, lines=decision.lines, wake_at=decision.wake_at, under=lease
        )
    except RevisionConflict:
        return  # stopped or changed meanwhile; the next look sees it


async def _commit_waits(own: dict[JobId, JobRecord], wait: Waits, lease: WorkLease, ports: Ports) -> None:
    job = own[wait.job_id]
    if job.waits_for == wait.sentence:
        return
    try:
        await ports.database.commit(replace(job, waits_for=wait.sentence), expect_revision=job.revision, under=lease)
    except RevisionConflict:
        return
