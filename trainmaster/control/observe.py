"""What is true about a job right now? Asks provider and object store; trouble becomes "nobody knows"."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from trainmaster.core import checkpoints
from trainmaster.core.facts import ClaimState, ExitReport, Facts, Heartbeat, Seen, Sighting, Timing
from trainmaster.core.job import CheckpointRef, JobId, JobRecord, Phase, allocation_name
from trainmaster.core.messages import ClaimFile, OrderFile, OrderKind
from trainmaster.errors import StoreError
from trainmaster.ports.clock import Clock
from trainmaster.ports.database import Database
from trainmaster.ports.object_store import ObjectStore
from trainmaster.ports.provider import Capability, Provider
from trainmaster.spec import layout


class Ports(Struct, frozen=True, kw_only=True):
    """Everything the control plane may touch."""

    clock: Clock
    database: Database
    store: ObjectStore
    store_url: str
    providers: Mapping[str, Provider]
    timing: Timing
    heartbeat_s: float
    #: name of this process among those that drive
    owner: str


async def observe(job: JobRecord, ports: Ports) -> Facts:
    """Everything a decision about this job may rest on."""
    if job.phase in {Phase.QUEUED, Phase.FINISHED}:
        return Facts(allocation=Sighting(seen=Seen.GONE))
    provider = ports.providers[job.current.placement.provider]
    # The machine first: a runner writes its exit record before it goes, so "gone" and then "no exit record" means there is none.
    allocation = await provider.inspect(allocation_name(job.id, job.attempt))
    confirms_gone = Capability.CONFIRMS_GONE in provider.capabilities
    try:
        return await _observe_store(job, allocation, ports.store, confirms_gone=confirms_gone)
    except StoreError:
        return Facts(allocation=allocation, store_answers=False, confirms_gone=confirms_gone)


async def _observe_store(job: JobRecord, allocation: Sighting, store: ObjectStore, *, confirms_gone: bool) -> Facts:
    number = job.attempt
    claim, order, beat, exited = await asyncio.gather(
        store.get(layout.claim(job.id, number)),
        store.get(layout.order(job.id, number)),
        store.get(layout.heartbeat(job.id, number)),
        store.get(layout.exit_record(job.id, number)),
    )
    heartbeat = None if beat is None else msgspec.json.decode(beat, type=Heartbeat)
    report = None if exited is None else msgspec.json.decode(exited, type=ExitReport)
    commit = report.commit if report is not None else heartbeat.commit if heartbeat is not None else None
    if report is None and allocation.seen is not Seen.PRESENT:
        # A runner killed between its commit and its next heartbeat told nobody: look for the marker itself.
        commit = checkpoints.newest(await commits(job.id, store), number)
    return Facts(
        allocation=allocation,
        claim=_claim_state(claim),
        is_closed=order is not None and msgspec.json.decode(order, type=OrderFile).kind is OrderKind.CLOSE,
        heartbeat=heartbeat,
        exit=report,
        commit=commit,
        confirms_gone=confirms_gone,
    )


async def commits(job_id: JobId, store: ObjectStore) -> list[CheckpointRef]:
    """Every checkpoint with a commit marker and a manifest, accepted or not.

    A marker alone is one that arrived after its checkpoint had been removed.
    """
    return [ref for _, ref in await markers(job_id, store) if ref is not None]


async def markers(job_id: JobId, store: ObjectStore) -> list[tuple[str, CheckpointRef | None]]:
    """Every checkpoint with a marker and a manifest, by name; None: its marker cannot be read.

    Such a marker is no commit; it must not keep anybody from ending the job.
    """
    keys = [entry.key for entry in await store.list_keys(layout.checkpoints(job_id))]
    found: list[tuple[str, CheckpointRef | None]] = []
    for key in checkpoints.committed(job_id, keys):
        name = key.split("/")[-2]
        found.append((name, checkpoints.read_marker(name, await store.get(key) or b"")))
    return found


def _claim_state(value: bytes | None) -> ClaimState:
    if value is None:
        return ClaimState.FREE
    return ClaimState.TAKEN if msgspec.json.decode(value, type=ClaimFile).runner else ClaimState.CLOSED
