"""What is this job's next step? (record, facts, now) → Decision. No I/O, no clock, no chance.

Instructions follow from the phase, not from how we got here, so a crash between commit and perform is mended by the next look: the
same phase asks for the same things again. An unknown answer may delay a step; it never releases, restarts or finishes anything.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.core import checkpoints, endings, hearsay, ledger
from trainmaster.core.facts import ClaimState, Facts, Seen, StopSeen, Timing
from trainmaster.core.instructions import CloseAttempt, Instruction, Launch, OpenAttempt, OrderStop, Release, Seal
from trainmaster.core.job import (
    Attempt,
    Budget,
    CheckpointRef,
    Continues,
    Ending,
    EndingKind,
    JobRecord,
    Outcome,
    Phase,
    Placement,
    Reason,
    StopRequest,
    allocation_name,
)
from trainmaster.core.retry import Finish, TryAgain, next_step
from trainmaster.core.story import StoryLine


class Decision(Struct, frozen=True, kw_only=True):
    """The record to commit, what to do then, when to look again, and why."""

    job: JobRecord
    instructions: tuple[Instruction, ...] = ()
    wake_at: datetime | None = None
    lines: tuple[StoryLine, ...] = ()


def decide(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> Decision:
    """The next step of one job."""
    if job.phase is Phase.FINISHED:
        return Decision(job=job, instructions=(*_release(job), Seal(job_id=job.id)))
    ahead = max(timedelta(0), job.updated_at - now)
    now += ahead  # a clock that went back must not undo the order of events
    decision = _step(job, facts if facts.store_answers else _without_store(facts), now, timing)
    if decision.job != job:
        decision = replace(decision, job=replace(decision.job, updated_at=now))
    assert decision.wake_at is not None, "an unfinished job is always looked at again"
    return replace(decision, wake_at=decision.wake_at - ahead)  # nor make anybody sleep until it has caught up


def _step(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> Decision:
    if job.phase is Phase.QUEUED:
        return _queued(job, now)
    noted = _noted(job, facts, now, timing)
    lines = _data_lines(job, noted, now)
    if job.phase is Phase.PLACING:
        return _after(lines, _placing(noted, facts, now, timing))
    if job.phase is Phase.STOPPING:
        return _after(lines, _stopping(noted, facts, now, timing))
    return _after(lines, _held(noted, facts, now, timing))


def _data_lines(before: JobRecord, job: JobRecord, now: datetime) -> tuple[StoryLine, ...]:
    """What is new about the data: they are not what an earlier attempt read, or changed while this one did."""
    known = before.current.inputs
    return tuple(
        _line(job, now, "data_changed", f"Channel {channel}: {found.warning}.", rule="a manifest says what was read")
        for channel, found in job.current.inputs.items()
        if found.warning and known.get(channel) != found
    )


def place(job: JobRecord, placement: Placement, now: datetime) -> Decision:
    """The scheduler chose: open the next attempt. Its number is new, so a late machine of an old one is never taken for it."""
    assert job.phase is Phase.QUEUED, f"{job.id} is {job.phase.value}, not queued"
    wake_at = now
    if job.stop is not None:
        return Decision(job=job, wake_at=wake_at)  # a stop beats every placement
    now = max(now, job.updated_at)
    attempt = Attempt(number=job.attempt + 1, waiting_since=job.waiting_since, placed_at=now, placement=placement, resumes=job.head)
    if job.head is None and job.continues is not None:
        attempt = replace(attempt, resumes=job.continues.checkpoint)
    placed = replace(job, phase=Phase.PLACING, attempts=(*job.attempts, attempt), not_before=None, waits_for="", updated_at=now)
    gpus = f", GPU {','.join(map(str, placement.gpus))}" if placement.gpus else ""
    sentence = f"Attempt {attempt.number} goes to {placement.provider}: {placement.cpus:g} CPU{gpus}."
    lines = [_line(placed, now, "placed", sentence, rule="first come, first served inside a priority")]
    if attempt.resumes is not None:
        source = checkpoints.inherited(placed)
        whose = "" if source is None else f" of job {source.source}"
        step = "" if attempt.resumes.step is None else f" at step {attempt.resumes.step}"
        sentence = f"It resumes from checkpoint {attempt.resumes.id}{whose}{step}."
        lines.append(_line(placed, now, "resumes", sentence, rule="restore takes the accepted head"))
    return Decision(job=placed, instructions=_launch(placed, now), wake_at=wake_at, lines=tuple(lines))


def request_stop(job: JobRecord, stop: StopRequest) -> Decision:
    """Remember that the job shall end; what follows from it is decided in the next step."""
    if job.is_finished or job.stop is not None:
        return Decision(job=job)
    now = max(stop.at, job.updated_at)
    wanted = replace(job, stop=stop, updated_at=now)
    line = _line(wanted, now, "stop_requested", f"{stop.by} asked to stop: {stop.reason.sentence}", rule=stop.reason.code)
    return Decision(job=wanted, wake_at=stop.at, lines=(line,))


def _queued(job: JobRecord, now: datetime) -> Decision:
    if job.stop is not None:
        return _finish(job, Finish(outcome=Outcome.STOPPED, reason=job.stop.reason), now)
    limits = job.spec.limits
    deadlines: list[datetime] = []
    for name, limit_s, used_s in (
        ("queue", limits.queue, (now - job.waiting_since).total_seconds()),
        ("wait", limits.wait, ledger.waiting_s(job, now)),
    ):
        if limit_s is None:
            continue
        left = timedelta(seconds=limit_s - used_s)
        if left <= timedelta(0):
            sentence = f"The job waited {used_s:.0f} s; limits.{name} allows {limit_s:g} s."
            return _finish(job, Finish(outcome=Outcome.STOPPED, reason=Reason(code=f"{name}_limit", sentence=sentence)), now)
        deadlines.append(now + left)
    if job.not_before is not None and job.not_before > now:
        deadlines.append(job.not_before)
    # Placing is the scheduler's; it looks at every queued job whenever something changes.
    return Decision(job=job, wake_at=min(deadlines, default=now + timedelta(hours=1)))


def _placing(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> Decision:
    seen = facts.allocation
    if facts.exit is not None or seen.seen is Seen.PRESENT or facts.claim is ClaimState.TAKEN:
        return _held(job, facts, now, timing)
    if facts.refusal is not None:
        # "No" to this request may follow an earlier one that is still under way: the attempt is closed before another begins.
        return _end(job, endings.refused(facts.refusal), facts, now, timing)
    if job.stop is not None:
        return _ask_to_stop(job, job.stop, facts, now, timing)
    if (seen.not_found or (seen.seen is Seen.GONE and not seen.was_launched)) and facts.claim is ClaimState.FREE:
        return Decision(job=job, instructions=_launch(job, now), wake_at=_soon(now, timing))
    if _counts_as_gone(job, facts, now, timing):
        return _give_up_start(job, seen.evidence, facts, now, timing)
    return _look_again(job, now, timing)


def _held(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> Decision:
    """A machine is, or was, there: starting or running."""
    if facts.exit is not None:
        return _end(job, endings.ending_of(facts.exit, job.stop), facts, now, timing)
    if _counts_as_gone(job, facts, now, timing) or (facts.allocation.runner_has_ended and facts.store_answers):
        if facts.claim is ClaimState.FREE:
            return _give_up_start(job, facts.allocation.evidence, facts, now, timing)
        return _end(job, endings.lost(facts.allocation.evidence), facts, now, timing)
    if job.phase is not Phase.RUNNING and facts.claim is ClaimState.TAKEN:
        return _go_on(job, Phase.RUNNING, facts, now, timing)
    if job.phase is Phase.PLACING:
        return _go_on(job, Phase.STARTING, facts, now, timing)
    if job.stop is not None:
        return _ask_to_stop(job, job.stop, facts, now, timing)
    if job.phase is Phase.STARTING and facts.claim in {ClaimState.FREE, ClaimState.CLOSED}:
        since_s = (now - job.current.placed_at).total_seconds()
        if since_s > timing.start_s_max:
            return _give_up_start(job, f"no claim after {since_s:.0f} s", facts, now, timing)
    over = _over_run_limit(job, facts, now, timing)
    if over is not None:
        decision = request_stop(job, over)
        return _after(decision.lines, _ask_to_stop(decision.job, over, facts, now, timing))
    return _look_again(job, now, timing)


def _give_up_start(job: JobRecord, evidence: str, facts: Facts, now: datetime, timing: Timing) -> Decision:
    """No runner came in time. Where one may still be on its way, the claim is closed first: whoever wins it decides."""
    may_still_come = facts.allocation.seen is not Seen.GONE and not facts.allocation.runner_has_ended
    if facts.claim is ClaimState.FREE and may_still_come:
        close = CloseAttempt(name=allocation_name(job.id, job.attempt), job_id=job.id, attempt=job.attempt, if_free=True)
        return Decision(job=job, instructions=(close,), wake_at=_soon(now, timing))
    return _end(job, endings.never_started(evidence), facts, now, timing)


def _go_on(job: JobRecord, phase: Phase, facts: Facts, now: datetime, timing: Timing) -> Decision:
    """The next phase of an attempt that goes well, and whatever follows in the same look."""
    further = replace(job, phase=phase)
    if phase is Phase.STARTING:
        sentence = f"The machine of attempt {job.attempt} is there; its runner has not claimed it yet."
        line = _line(further, now, "starting", sentence, rule="a runner claims its attempt before it trains")
    else:
        sentence = f"The runner of attempt {job.attempt} claimed it and trains."
        line = _line(further, now, "started", sentence, rule="one claim per attempt")
    return _after((line,), _held(further, facts, now, timing))


def _after(lines: tuple[StoryLine, ...], decision: Decision) -> Decision:
    return replace(decision, lines=(*lines, *decision.lines))


def _stopping(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> Decision:
    assert job.ending is not None
    # A runner's own words beat what we inferred while it was silent; that it found our closing tells us nothing new.
    if facts.exit is not None and facts.exit.stop_seen is not StopSeen.CLOSED:
        return _end(job, endings.ending_of(facts.exit, job.stop), facts, now, timing)
    return _end(job, job.ending, facts, now, timing)


def _end(job: JobRecord, ending: Ending, facts: Facts, now: datetime, timing: Timing) -> Decision:
    """Close the attempt and give the machine back; conclude once both are seen to have happened."""
    ending = endings.in_the_providers_words(ending, facts.allocation)
    cannot_go_on = facts.exit is not None or facts.is_closed or facts.claim is ClaimState.CLOSED
    if _counts_as_gone(job, facts, now, timing) and cannot_go_on:
        return _conclude(_last_seen(job, facts), ending, now)
    stopping = replace(job, phase=Phase.STOPPING, ending=ending)
    lines: tuple[StoryLine, ...] = ()
    if job.phase is not Phase.STOPPING:
        sentence = f"Attempt {job.attempt} ends: {ending.reason.sentence}"
        rule = "a machine is given back before the next attempt"
        lines = (_line(stopping, now, "ending", sentence, rule=rule, evidence=ending.reason.evidence),)
    close = CloseAttempt(name=allocation_name(job.id, job.attempt), job_id=job.id, attempt=job.attempt)
    look_at = now + timedelta(seconds=min(timing.look_s, timing.soon_s) if lines else _look_s(job, timing))
    return Decision(job=stopping, instructions=(close, *_release(job)), wake_at=look_at, lines=lines)


def _last_seen(job: JobRecord, facts: Facts) -> JobRecord:
    """A runner that left no exit record did nothing anyone knows of after its last heartbeat: the ledger calls that idle."""
    if facts.exit is not None or facts.heartbeat is None:
        return job
    known = job.current
    timeline = replace(known.timeline, last_seen_at=max(facts.heartbeat.at, known.timeline.last_seen_at or facts.heartbeat.at))
    seen = replace(known, timeline=timeline, metrics=hearsay.metrics(known.metrics, facts.heartbeat.metrics))
    return replace(job, attempts=(*job.attempts[:-1], seen))


def _conclude(job: JobRecord, ending: Ending, now: datetime) -> Decision:
    """The attempt is over and nothing of it is left: retry or finish."""
    step = next_step(job, ending, now)
    charged = step.charged if isinstance(step, TryAgain) else None
    ended = replace(job.current, ending=ending, ended_at=now, charged=charged, silent_s=None)
    job = replace(job, attempts=(*job.attempts[:-1], ended), ending=None)
    if isinstance(step, Finish):
        return _finish(job, step, now)
    queued = replace(
        job,
        phase=Phase.QUEUED,
        waiting_since=now,
        not_before=step.not_before,
        failures=job.failures + (charged is Budget.FAILURES),
        interruptions=job.interruptions + (charged is Budget.INTERRUPTIONS),
    )
    event = "crashed" if ending.kind is EndingKind.FAILED else ending.kind.value  # "failed" is said of the job, once
    saved = _saved(job.head, job.continues)
    sentence = f"Attempt {ended.number} ended: {ending.reason.sentence} {step.sentence} {saved}"
    rule = f"retry.{charged.value}" if charged is not None else "capacity"
    line = _line(queued, now, event, sentence, rule=rule, evidence=ending.reason.evidence)
    return Decision(job=queued, instructions=_release(job), wake_at=max(now, step.not_before), lines=(line,))


def _finish(job: JobRecord, finish: Finish, now: datetime) -> Decision:
    done = replace(
        job,
        phase=Phase.FINISHED,
        outcome=finish.outcome,
        reason=finish.reason,
        finished_at=now,
        not_before=None,
        waits_for="",
    )
    sentence = f"The job {finish.outcome.value}: {finish.reason.sentence}"
    if finish.outcome is Outcome.STOPPED:
        sentence = f"The job was stopped: {finish.reason.sentence}"
    line = _line(done, now, finish.outcome.value, sentence, rule=finish.reason.code, evidence=finish.reason.evidence)
    # Look once more, at once: if we die before sealing, the next look seals.
    return Decision(job=done, instructions=(*_release(job), Seal(job_id=job.id)), wake_at=now, lines=(line,))


def _ask_to_stop(job: JobRecord, stop: StopRequest, facts: Facts, now: datetime, timing: Timing) -> Decision:
    """The runner gets its grace; a machine whose runner does not obey is taken away. Without a runner nobody needs a grace."""
    if job.phase is not Phase.RUNNING and facts.claim in {ClaimState.FREE, ClaimState.CLOSED}:
        return _end(job, endings.stopped(stop), facts, now, timing)
    grace_s = job.spec.limits.grace
    asked_at = max(stop.at, job.current.placed_at)
    take_away_at = asked_at + timedelta(seconds=grace_s + timing.stop_margin_s)
    if now >= take_away_at:
        sentence = f"{stop.reason.sentence} The runner did not answer within its grace."
        ending = Ending(kind=EndingKind.STOPPED, reason=replace(stop.reason, sentence=sentence))
        stopping = replace(job, phase=Phase.STOPPING, ending=ending)
        line = _line(stopping, now, "ending", "The grace is over; the machine is taken away.", rule="limits.grace")
        close = CloseAttempt(name=allocation_name(job.id, job.attempt), job_id=job.id, attempt=job.attempt)
        wake_at = now + timedelta(seconds=timing.look_s)
        return Decision(job=stopping, instructions=(close, *_release(job)), wake_at=wake_at, lines=(line,))
    order = OrderStop(
        name=allocation_name(job.id, job.attempt),
        job_id=job.id,
        attempt=job.attempt,
        sentence=stop.reason.sentence,
        grace_s=grace_s,
    )
    wake_at = min(take_away_at, now + timedelta(seconds=timing.look_s))
    return Decision(job=job, instructions=(order,), wake_at=wake_at)


def _over_run_limit(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> StopRequest | None:
    """The runner enforces limits.run itself; this is the second line, for a runner that does not.

    Only for a runner that is heard: one that is cut off may have seen its script end well long ago, and waits to tell.
    """
    limit_s = job.spec.limits.run
    is_heard = facts.heartbeat is not None and now < facts.heartbeat.lease_until
    if limit_s is None or not is_heard or ledger.running_s(job, now) < limit_s + timing.stop_margin_s:
        return None
    reason = Reason(code="run_limit", sentence="The job used up its running time (limits.run).")
    return StopRequest(at=now, by="the control plane", reason=reason)


def _counts_as_gone(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> bool:
    """Somebody who knows said so; or, where nobody ever can, the runner has ended its process before its lease did."""
    if facts.allocation.seen is Seen.GONE:
        return facts.store_answers  # an exit record may be waiting in a store we cannot reach
    if not _nobody_can_say(facts) or not facts.store_answers:
        return False
    if facts.allocation.not_found and (facts.exit is not None or facts.claim is ClaimState.CLOSED):
        return True  # its runner is done, or there never will be one; should a machine come late, the sweeper finds it
    margin = timedelta(seconds=timing.lease_margin_s)
    if facts.heartbeat is None:
        return now > job.current.placed_at + timedelta(seconds=timing.start_s_max) + margin
    return now > facts.heartbeat.lease_until + margin and (job.current.silent_s or 0.0) >= timing.lease_margin_s


def _noted(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> JobRecord:
    """What the facts add to the record: how far the runner came, its newest commit, and what it measured."""
    attempt = job.current
    timeline, metrics = attempt.timeline, attempt.metrics
    said = [source for source in (facts.exit, facts.heartbeat) if source is not None]
    environment = next((one.environment for one in said if one.environment is not None), attempt.environment)
    machine = next((one.machine for one in said if one.machine is not None), attempt.machine)
    inputs = attempt.inputs
    if facts.exit is not None:
        timeline, metrics, inputs = facts.exit.timeline, facts.exit.metrics, hearsay.inputs(inputs, facts.exit.inputs)
    elif facts.heartbeat is not None:
        timeline, inputs = hearsay.timeline(timeline, facts.heartbeat.timeline), hearsay.inputs(inputs, facts.heartbeat.inputs)
    # Only commits of this attempt count, and never an older one than is known: a heartbeat may lag behind the markers.
    head = checkpoints.newest([c for c in (attempt.head, facts.commit) if c is not None], attempt.number)
    if facts.exit is None and facts.heartbeat is not None:
        # Values change at every beat, and a write for each would be many: when something else is written, or after a while.
        is_time = now - job.updated_at >= timedelta(seconds=timing.measure_s)
        if is_time or (timeline, head) != (attempt.timeline, attempt.head):
            metrics = hearsay.metrics(metrics, facts.heartbeat.metrics)
    silent_s = _silent_s(job, facts, now, timing)
    noted = replace(attempt, timeline=timeline, head=head, metrics=metrics, silent_s=silent_s)
    noted = replace(noted, machine=machine, environment=environment, inputs=inputs)
    return replace(job, attempts=(*job.attempts[:-1], noted), head=head or job.head)


def _silent_s(job: JobRecord, facts: Facts, now: datetime, timing: Timing) -> float | None:
    """For how long its lease has been over at every look; None: it is heard, or somebody can say where it is.

    One look proves nothing, for the same reason: a newer heartbeat may come with the next. Each look is written down, and of the
    time between two looks only a part counts: what was written while nobody looked, nobody knows.
    """
    silent_s = job.current.silent_s
    if not facts.store_answers:
        return silent_s
    if facts.heartbeat is None or now <= facts.heartbeat.lease_until or not _nobody_can_say(facts):
        return None
    if silent_s is None:
        return 0.0
    return silent_s + min((now - job.updated_at).total_seconds(), timing.lease_margin_s / 4)


def _nobody_can_say(facts: Facts) -> bool:
    """Whether the machine is nowhere to be seen, and nobody ever will know that it is gone."""
    return facts.allocation.seen is Seen.UNKNOWN and (facts.allocation.not_found or not facts.confirms_gone)


def _without_store(facts: Facts) -> Facts:
    """The store gave no answer: whatever stands in its fields says nothing."""
    return replace(facts, claim=ClaimState.UNKNOWN, is_closed=False, heartbeat=None, exit=None, commit=None)


def _launch(job: JobRecord, now: datetime) -> tuple[Instruction, ...]:
    attempt = job.current
    limit_s = job.spec.limits.run
    left_s = None if limit_s is None else max(0.0, limit_s - ledger.running_s(job, now))
    source = checkpoints.inherited(job)
    heads = checkpoints.heads(job) if source is None else tuple(source.heads)
    of_job = "" if source is None else source.source
    return (
        OpenAttempt(job_id=job.id, attempt=attempt.number, resumes=attempt.resumes, heads=heads, of_job=of_job),
        Launch(
            name=allocation_name(job.id, attempt.number),
            job_id=job.id,
            attempt=attempt.number,
            placement=attempt.placement,
            run_s_left=left_s,
        ),
    )


def _release(job: JobRecord) -> tuple[Instruction, ...]:
    if not job.attempts:
        return ()
    return (Release(name=allocation_name(job.id, job.attempt), provider=job.current.placement.provider),)


def _look_again(job: JobRecord, now: datetime, timing: Timing) -> Decision:
    if job.phase is not Phase.RUNNING:
        return Decision(job=job, wake_at=_soon(now, timing))
    return Decision(job=job, wake_at=now + timedelta(seconds=_look_s(job, timing)))


def _look_s(job: JobRecord, timing: Timing) -> float:
    """Whoever is silent is looked at often: were it only one old heartbeat, the next one is seen before the margin is over."""
    return timing.look_s if job.current.silent_s is None else min(timing.look_s, timing.lease_margin_s / 10)


def _soon(now: datetime, timing: Timing) -> datetime:
    """While somebody waits to see the job begin or end."""
    return now + timedelta(seconds=min(timing.look_s, timing.soon_s))


def _saved(head: CheckpointRef | None, continues: Continues | None) -> str:
    whose = ""
    if head is None and continues is not None:
        head, whose = continues.checkpoint, f" of job {continues.source}"
    if head is None:
        return "No checkpoint was committed; it starts from the beginning."
    step = "" if head.step is None else f" (step {head.step})"
    return f"It goes on from checkpoint {head.id}{whose}{step}."


def _line(
    job: JobRecord, now: datetime, event: str, sentence: str, *, rule: str, evidence: dict[str, str] | None = None
) -> StoryLine:
    return StoryLine(at=now, event=event, sentence=sentence, rule=rule, attempt=job.attempt, evidence=evidence or {})
