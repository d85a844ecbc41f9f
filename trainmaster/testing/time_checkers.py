"""Was time given and counted as promised? The checkers of limits, of the grace of a stop, and of the ledger."""

from __future__ import annotations

from collections import defaultdict

from trainmaster.core.job import Attempt, JobRecord
from trainmaster.core.ledger import spans, totals
from trainmaster.testing.lives import Life, by_job, closings, concluded, machines, trainings
from trainmaster.testing.witness import Beat, Claimed, Reported, Signalled, Told, TrainingEnded, Trouble, World

_BUSY = frozenset({"set_up", "restoring", "kept_compute", "lost_compute", "uploading"})
#: what is noted at the same moment by two clocks that agree
_ROUNDING_S = 1.0


def run_limits_hold(world: World) -> list[str]:
    """Each attempt trains no longer than what its predecessors left of limits.run, a grace, and what its runner takes to act.

    What they used is what anybody was told in time: the whole of an attempt that reported its end; of another, what lies before the
    heartbeat that could be seen then. And nobody is stopped for the limit sooner. Where clocks agree; a machine that was paused
    could not act in time.
    """
    if not world.promise.clocks_agree or not world.promise.is_driven_to_the_end:
        return []
    paused, known_s = _paused(world), _known_training(world)
    wrong: list[str] = []
    for job_id, lives in by_job(trainings(world)).items():
        job = world.records[job_id]
        limit_s, grace_s = job.spec.limits.run, job.spec.limits.grace
        if limit_s is None:
            continue
        used_s = 0.0
        for life in sorted(lives, key=lambda life: life.begin_s):
            trained_s, left_s = life.end_s - life.begin_s, max(0.0, limit_s - used_s)
            if trained_s > left_s + grace_s + world.promise.act_s and f"{job_id}-a{life.attempt}" not in paused:
                wrong.append(f"{job_id}: attempt {life.attempt} trained {trained_s:.0f} s; {left_s:.0f} s of limits.run were left")
            used_s += known_s[job_id, life.attempt]
        all_s = sum(life.end_s - life.begin_s for life in lives)
        is_limit = job.reason is not None and job.reason.code == "run_limit"
        if is_limit and all_s < limit_s - job.attempt * (grace_s + world.promise.act_s):
            wrong.append(f"{job_id}: stopped for limits.run, {limit_s:.0f} s, after {all_s:.0f} s")
    return wrong


def _known_training(world: World) -> dict[tuple[str, int], float]:
    """For how long each attempt trained, as far as whoever ended it could know."""
    over, sight_s = concluded(world), world.promise.sight_s
    told: set[tuple[str, int]] = set()
    heard_s: dict[tuple[str, int], float] = {}
    for event in world.events:
        if not isinstance(event, Reported | Beat):
            continue
        key = (event.job_id, event.attempt)
        over_s = over.get(key, world.ended_at_s)
        is_in_time = event.at_s < over_s - sight_s
        if isinstance(event, Reported):
            told.update([key] if is_in_time else [])
        elif is_in_time:
            heard_s[key] = event.said_s
        elif event.at_s <= over_s and key in heard_s:  # it may be what was looked at, and an old one that arrived late
            heard_s[key] = min(heard_s[key], event.said_s)
    known: dict[tuple[str, int], float] = defaultdict(float)
    for life in trainings(world):
        key = (life.job_id, life.attempt)
        until_s = life.end_s if key in told else min(life.end_s, heard_s.get(key, life.begin_s))
        known[key] += max(0.0, until_s - life.begin_s)
    return known


def stops_have_their_grace(world: World) -> list[str]:
    """A script that is to end gets SIGTERM and its whole grace before SIGKILL; it is never started, or over in time, once told.

    Its machine may go meanwhile, or its attempt be closed; where nobody can confirm that a machine is gone, its runner ends with
    its lease. A machine that goes shortens the grace to what it announced.
    """
    told: dict[str, list[Told]] = defaultdict(list)
    signals: dict[str, list[Signalled]] = defaultdict(list)
    for event in world.events:
        if isinstance(event, Told):
            told[event.runner].append(event)
        elif isinstance(event, Signalled):
            signals[event.runner].append(event)
    paused, closed = _paused(world), closings(world)
    wrong: list[str] = []
    for life in trainings(world):
        closed_s = closed.get((life.job_id, life.attempt), world.ended_at_s)
        grace_s = world.records[life.job_id].spec.limits.grace
        ends_s = [e.at_s + (grace_s if e.why == "order" else e.grace_s) for e in told[life.name]]
        term_s = next((e.at_s for e in signals[life.name] if e.signal == "SIGTERM"), None)
        if term_s is not None and all(e.at_s > term_s for e in told[life.name]):
            ends_s.append(term_s + grace_s)  # nobody said so: its running time was used up
        kill_s = next((e.at_s for e in signals[life.name] if e.signal == "SIGKILL"), None)
        if kill_s is not None and kill_s < closed_s and not world.promise.ends_with_lease:
            wrong.extend(_hurried(life, term_s, kill_s, ends_s))
        if f"{life.job_id}-a{life.attempt}" not in paused and life.end_s > min(ends_s, default=life.end_s) + world.promise.act_s:
            late_s = life.end_s - min(ends_s)
            wrong.append(f"{life.job_id}: attempt {life.attempt} was told to stop, and trained {late_s:.0f} s beyond its grace")
        if any(e.at_s < life.begin_s for e in told[life.name]):
            wrong.append(f"{life.job_id}: attempt {life.attempt} began to train after it had been told to stop")
    return wrong


def _hurried(life: Life, term_s: float | None, kill_s: float, ends_s: list[float]) -> list[str]:
    if term_s is None:
        return [f"{life.job_id}: attempt {life.attempt} was killed at {kill_s:.0f} s without having been asked to end"]
    if kill_s < min(ends_s) - _ROUNDING_S:
        asked_s = kill_s - term_s
        return [f"{life.job_id}: attempt {life.attempt} was killed {asked_s:.1f} s after SIGTERM, before its grace was over"]
    return []


def ledger_adds_up(world: World) -> list[str]:
    """The lines add up to the job's age, and agree with the lives of machines and scripts, where clocks agree.

    In every world an attempt is booked with no more work than its machine lived after the claim, and with no more training than
    its script did; with exactly that if it reported its end in time. What nobody heard of is idle. Where a fleet can confirm that
    a machine is gone, its whole life fits into the time of its attempt. In a kind world the two are equal, but for the time
    between two looks.
    """
    wrong: list[str] = []
    for job in world.records.values():
        if job.finished_at is None:
            continue
        age_s, booked_s = (job.finished_at - job.submitted_at).total_seconds(), sum(totals(job, job.finished_at).values())
        if abs(age_s - booked_s) > 0.01:
            wrong.append(f"{job.id}: {booked_s:.1f} s are booked, it is {age_s:.1f} s old")
    if world.promise.clocks_agree:
        wrong.extend(_misbooked(world))
    if world.promise.is_kind:
        wrong.extend(_unequal(world))
    return wrong


def _unequal(world: World) -> list[str]:
    """Attempts that are booked with more or less than their machines lived, where nothing went wrong."""
    lived: dict[tuple[str, int], float] = defaultdict(float)
    for life in machines(world):
        lived[life.job_id, life.attempt] += life.end_s - life.begin_s
    wrong: list[str] = []
    for job in world.records.values():
        for attempt in job.attempts:
            lived_s = lived.get((job.id, attempt.number))
            if attempt.ended_at is None or lived_s is None:
                continue
            booked_s = (attempt.ended_at - attempt.placed_at).total_seconds()
            if abs(booked_s - lived_s) > world.promise.lag_s:
                wrong.append(
                    f"{job.id}: attempt {attempt.number} is booked with {booked_s:.0f} s, its machine lived {lived_s:.0f} s"
                )
    return wrong


def _misbooked(world: World) -> list[str]:
    """Attempts that are booked with what the machine of their claimed runner, or its script, cannot have done."""
    promise, over = world.promise, concluded(world)
    runs = {life.runner: life for life in machines(world)}
    scripts = {life.name: life for life in trainings(world)}
    ended = {e.runner for e in world.events if isinstance(e, TrainingEnded)}
    told = {
        (e.job_id, e.attempt)
        for e in world.events
        if isinstance(e, Reported) and e.at_s < over.get((e.job_id, e.attempt), 0.0) - promise.sight_s
    }
    wrong: list[str] = []
    for claim in (e for e in world.events if isinstance(e, Claimed) and e.runner in runs and e.job_id in world.records):
        job, machine = world.records[claim.job_id], runs[claim.runner]
        attempt = job.attempts[claim.attempt - 1]
        if attempt.ended_at is None:
            continue
        booked = _booked(job, attempt)
        script = scripts.get(claim.runner)
        trained_s = 0.0 if script is None else script.end_s - script.begin_s
        who = f"{job.id}: attempt {attempt.number}"
        busy_s, lived_s = sum(booked[line] for line in _BUSY), max(0.0, machine.end_s - claim.at_s)
        if busy_s > lived_s + _ROUNDING_S:
            wrong.append(f"{who} is booked with {busy_s:.0f} s of work; its machine lived {lived_s:.0f} s after its claim")
        compute_s = booked["kept_compute"] + booked["lost_compute"]
        is_known = (job.id, attempt.number) in told and claim.runner in ended
        if compute_s > trained_s + _ROUNDING_S or (is_known and compute_s < trained_s - _ROUNDING_S):
            wrong.append(f"{who} is booked with {compute_s:.0f} s of training; its script trained {trained_s:.0f} s")
        span_s, life_s = (attempt.ended_at - attempt.placed_at).total_seconds(), machine.end_s - machine.begin_s
        if promise.confirms_gone and life_s > span_s + _ROUNDING_S:
            wrong.append(f"{who} is booked with {span_s:.0f} s, its machine lived {life_s:.0f} s")
    return wrong


def _booked(job: JobRecord, attempt: Attempt) -> dict[str, float]:
    """Seconds on each line of one attempt that is over."""
    assert attempt.ended_at is not None
    sums: dict[str, float] = defaultdict(float)
    for span in spans(job, attempt.ended_at):
        if span.attempt == attempt.number:
            sums[span.line] += span.seconds
    return sums


def _paused(world: World) -> set[str]:
    """Machines that stood still for a while."""
    return {e.detail for e in world.events if isinstance(e, Trouble) and e.kind == "pause"}
