"""Which queued jobs begin now? Snapshot of queue and capacity → core.schedule → commit placements."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from trainmaster.control.observe import Ports
from trainmaster.core.decide import place
from trainmaster.core.job import JobId, JobRecord, Phase, Placement
from trainmaster.core.schedule import Placed, schedule
from trainmaster.errors import ProviderError, RevisionConflict
from trainmaster.ports.database import Change, WorkLease

_log = logging.getLogger("trainmaster.driver")
_LEASE_S = 10.0
_ASK_AGAIN_S = 5.0
#: so long it is taken for granted that a provider has what it had
_SETTLED_S = 5.0

#: What a placement depends on: who waits from when on, and who holds what.
_Picture = list[tuple[JobId, datetime | None, Placement | None]]


class Placer:
    """Places what fits. Most writes are about jobs at work and move nobody in the queue: it remembers how the queue looked when
    there was nothing to do, and does nothing while it looks the same."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._settled: _Picture = []
        self._settled_at: datetime | None = None
        self._again: datetime | None = None

    async def place_waiting(self) -> datetime | None:
        """Place what fits; say when a pause in the queue ends, if one does.

        One placer at a time: two of them would both see the same free slot. The lease is checked again inside each commit, so a
        placer that was paused and woke too late places nothing.
        """
        ports = self._ports
        now = ports.clock.now()
        unfinished = await ports.database.unfinished()
        waiting = [job for job in unfinished if _waits(job)]
        if not waiting:
            return None
        if self._is_settled(_picture(unfinished), now):
            return self._again
        self._settled_at = None
        again: list[datetime] = []
        lease = WorkLease(name="placer", owner=ports.owner)
        if not await ports.database.hold(lease, now, now + timedelta(seconds=_LEASE_S)):
            return now + timedelta(seconds=0.2)
        has_settled = True
        try:
            # Read again under the lease: what we saw before it may have been placed by its last holder.
            unfinished = await ports.database.unfinished()
            for name in sorted({job.spec.provider for job in unfinished if job.phase is Phase.QUEUED}):
                try:
                    has_settled &= await _place_on(name, unfinished, lease, ports)
                except ProviderError as error:
                    # A provider that cannot say what it has holds up nobody but the jobs that want to go there.
                    _log.warning("nothing placed on %s: %s", name, error)
                    again.append(now + timedelta(seconds=_ASK_AGAIN_S))
        finally:
            await ports.database.let_go(lease)
        pauses = [job.not_before for job in waiting if job.not_before is not None and job.not_before > now]
        self._again = min([*pauses, *again], default=None)
        if has_settled:
            self._settled, self._settled_at = _picture(unfinished), now
        return self._again

    def _is_settled(self, picture: _Picture, now: datetime) -> bool:
        if self._settled_at is None or not timedelta(0) <= now - self._settled_at < timedelta(seconds=_SETTLED_S):
            return False
        return (self._again is None or now < self._again) and picture == self._settled


def _waits(job: JobRecord) -> bool:
    return job.phase is Phase.QUEUED and job.stop is None


def _picture(unfinished: Sequence[JobRecord]) -> _Picture:
    waiting: _Picture = [(job.id, job.not_before, None) for job in unfinished if _waits(job)]
    return waiting + [(job.id, None, job.current.placement) for job in unfinished if job.phase is not Phase.QUEUED]


async def _place_on(provider: str, unfinished: list[JobRecord], lease: WorkLease, ports: Ports) -> bool:
    """Whether nothing had to be placed, and what everybody waits for is written down."""
    capacity = await ports.providers[provider].capacity()
    own = {job.id: job for job in unfinished if job.spec.provider == provider}
    waiting = [job for job in own.values() if _waits(job)]
    held = [job for job in own.values() if job.phase is not Phase.QUEUED]
    running = Counter(job.study.id for job in held if job.study is not None)
    placed, waits = schedule(waiting, [job.current.placement for job in held], capacity, ports.clock.now(), running)
    for choice in placed:
        await _commit_placed(own[choice.job_id], choice, lease, ports)
    new = [(own[wait.job_id], wait.sentence) for wait in waits if own[wait.job_id].waits_for != wait.sentence]
    changes = [Change(job=replace(job, waits_for=sentence)) for job, sentence in new]
    stored = await ports.database.commit_many(changes, under=lease) if changes else []
    return not placed and len(stored) == len(changes)


async def _commit_placed(job: JobRecord, choice: Placed, lease: WorkLease, ports: Ports) -> None:
    decision = place(job, choice.placement, ports.clock.now())
    try:
        await ports.database.commit(
            decision.job, expect_revision=job.revision, lines=decision.lines, wake_at=decision.wake_at, under=lease
        )
    except RevisionConflict:
        return  # stopped or changed meanwhile; the next look sees it
