"""One job, one step: load, observe, decide, commit, perform. The first function to show to a new developer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from trainmaster.control.observe import Ports, observe
from trainmaster.core.decide import Decision, decide
from trainmaster.core.facts import LaunchRefusal
from trainmaster.core.instructions import CloseAttempt, Instruction, Launch, OpenAttempt, OrderStop, Release, Seal
from trainmaster.core.job import JobId, JobRecord
from trainmaster.core.messages import ClaimFile, OpenFile, OrderFile, OrderKind, job_file
from trainmaster.errors import NoCapacity, ProviderRejected, StoreError
from trainmaster.ports.provider import Capability, LaunchRequest
from trainmaster.spec import layout


async def reconcile_job(job_id: JobId, ports: Ports) -> datetime | None:
    """Take one step and say when to come back, or None when nothing is left to do."""
    job = await ports.database.load(job_id)
    if job is None:
        return None
    facts = await observe(job, ports)
    decision = decide(job, facts, ports.clock.now(), ports.timing)
    committed = await commit(job, decision, ports)
    try:
        await perform(decision.instructions, committed, ports)
    except (NoCapacity, ProviderRejected) as refusal:
        said = LaunchRefusal(sentence=refusal.sentence, is_final=isinstance(refusal, ProviderRejected))
        decision = decide(committed, replace(facts, refusal=said), ports.clock.now(), ports.timing)
        await perform(decision.instructions, await commit(committed, decision, ports), ports)
    return decision.wake_at


async def commit(job: JobRecord, decision: Decision, ports: Ports) -> JobRecord:
    """Remember the decision before anything is done about it."""
    if decision.job == job and not decision.lines:
        return job
    return await ports.database.commit(decision.job, expect_revision=job.revision, lines=decision.lines)


async def perform(instructions: Sequence[Instruction], job: JobRecord, ports: Ports) -> None:
    """Carry out side effects, in order. All of them may be carried out twice.

    A machine is given back also when its attempt cannot be closed now, because the store is away: nobody pays for an outage. The
    job goes on only when both have been seen to happen.
    """
    trouble: StoreError | None = None
    for instruction in instructions:
        if trouble is not None and not isinstance(instruction, Release):
            break
        try:
            await _perform_one(instruction, job, ports)
        except StoreError as error:
            trouble = error
    if trouble is not None:
        raise trouble


async def _perform_one(instruction: Instruction, job: JobRecord, ports: Ports) -> None:
    store = ports.store
    match instruction:
        case OpenAttempt():
            if job.study is not None and instruction.attempt == 1:
                # Its study was accepted as a whole, without a write to the store for each job: this is the first who needs it.
                await store.put(layout.spec(job.id), msgspec.json.encode(job_file(job)))
            opened = OpenFile(
                attempt=instruction.attempt,
                resumes=instruction.resumes,
                heads=list(instruction.heads),
                of_job=instruction.of_job,
            )
            await store.put(layout.opened(job.id, instruction.attempt), msgspec.json.encode(opened))
        case Launch():
            await ports.providers[instruction.placement.provider].launch(_launch_request(instruction, job, ports))
        case OrderStop():
            order = OrderFile(kind=OrderKind.STOP, sentence=instruction.sentence, grace_s=instruction.grace_s)
            # Never over a closing: this may be an old request that arrives late.
            await store.put_if_absent(layout.order(job.id, instruction.attempt), msgspec.json.encode(order))
            await ports.providers[job.current.placement.provider].nudge(instruction.name)
        case CloseAttempt():
            closed = ClaimFile(at=ports.clock.now())
            is_ours = await store.put_if_absent(layout.claim(job.id, instruction.attempt), msgspec.json.encode(closed))
            if instruction.if_free and not is_ours:
                return
            order = OrderFile(kind=OrderKind.CLOSE, sentence="this attempt is over")
            await store.put(layout.order(job.id, instruction.attempt), msgspec.json.encode(order))
        case Release():
            await ports.providers[instruction.provider].release(instruction.name)
        case Seal():
            await store.put(layout.record(job.id), msgspec.json.encode(job))


def _launch_request(launch: Launch, job: JobRecord, ports: Ports) -> LaunchRequest:
    provider = ports.providers[launch.placement.provider]
    return LaunchRequest(
        name=launch.name,
        job_id=launch.job_id,
        attempt=launch.attempt,
        placement=launch.placement,
        store_url=ports.store_url,
        attempt_lease_s=ports.timing.attempt_lease_s,
        heartbeat_s=ports.heartbeat_s,
        run_s_left=launch.run_s_left,
        grace_s=job.spec.limits.grace,
        nodes=job.spec.resources.nodes,
        start_s_max=ports.timing.start_s_max,
        machine_s_max=ports.timing.machine_s_max,
        ends_with_lease=Capability.CONFIRMS_GONE not in provider.capabilities,
        environment=job.study.batch if job.study is not None else "",
    )
