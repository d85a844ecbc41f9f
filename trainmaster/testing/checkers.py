"""Which promises were broken in a world? Each checker reads what was witnessed and says in words what is wrong.

Written apart from the code they check: no checker calls `decide`, `supervise` or anything else it judges. Records are read as plain
values. To add one, write a function World → list of sentences and name it in CHECKERS; `docs/howto/add-a-fault.md` shows how.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise

from msgspec import Struct

from trainmaster.core.job import Budget, EndingKind, Outcome, Phase
from trainmaster.testing.lives import by_job, closings, concluded, machines, trainings
from trainmaster.testing.time_checkers import ledger_adds_up, run_limits_hold, stops_have_their_grace
from trainmaster.testing.witness import (
    Beat,
    Claimed,
    Flushed,
    MachineMade,
    Marked,
    Recorded,
    Reported,
    Submitted,
    TrainingBegan,
    TrainingEnded,
    Unmarked,
    World,
)


class Finding(Struct, frozen=True):
    """A promise that was broken."""

    checker: str
    sentence: str


def check_world(world: World) -> list[Finding]:
    """Everything that is wrong in a world."""
    return [Finding(name, sentence) for name, checker in CHECKERS.items() for sentence in checker(world)]


def one_claimed_runner(world: World) -> list[str]:
    """At any moment at most one runner trains whose attempt was not closed; and one attempt has one runner, ever."""
    closed = closings(world)
    wrong: list[str] = []
    for job_id, lives in by_job(trainings(world)).items():
        for one, other in ((a, b) for i, a in enumerate(lives) for b in lives[i + 1 :]):
            if one.attempt == other.attempt:
                wrong.append(f"{job_id}: {one.name} and {other.name} both trained as attempt {one.attempt}")
            elif one.begin_s < other.end_s and other.begin_s < one.end_s:
                older, since_s = min((one, other), key=lambda life: life.attempt), max(one.begin_s, other.begin_s)
                if closed.get((job_id, older.attempt), world.ended_at_s) > since_s:
                    wrong.append(f"{job_id}: {one.name} and {other.name} trained at once at {since_s:.0f} s")
    return wrong


def commits_by_the_claimed_runner(world: World) -> list[str]:
    """Every accepted checkpoint was marked by the runner that held the claim of its attempt."""
    claims = {(e.job_id, e.attempt): e.runner for e in world.events if isinstance(e, Claimed)}
    marks = {(e.job_id, e.checkpoint): e for e in world.events if isinstance(e, Marked)}
    wrong: list[str] = []
    for job in world.records.values():
        for attempt in job.attempts:
            if attempt.head is None:
                continue
            mark = marks.get((job.id, attempt.head.id))
            if mark is None:
                wrong.append(f"{job.id}: accepted {attempt.head.id}, which nobody ever marked")
            elif claims.get((job.id, attempt.number)) != mark.runner:
                wrong.append(f"{job.id}: accepted {attempt.head.id} of {mark.runner}, which did not hold the claim")
    return wrong


def checkpoints_never_torn(world: World) -> list[str]:
    """A marker stands only over files that are there and belong together.

    Writes that a store receives once more, after the whole checkpoint was seen and removed, are nobody's doing; that nobody goes on
    from what they leave is for `resumes_from_the_head` to say.
    """
    wrong: list[str] = []
    whole: set[tuple[str, str]] = set()
    removed: set[tuple[str, str]] = set()
    for event in world.events:
        if isinstance(event, Unmarked) and (event.job_id, event.checkpoint) in whole:
            removed.add((event.job_id, event.checkpoint))
        elif isinstance(event, Marked) and event.step >= 0:
            whole.add((event.job_id, event.checkpoint))
        elif isinstance(event, Marked) and (event.job_id, event.checkpoint) not in removed:
            wrong.append(f"{event.job_id}: {event.checkpoint} was marked, but is torn")
    return wrong


def checkpoints_never_lost(world: World) -> list[str]:
    """What an attempt resumes from stays until its script has begun, and the head of a record is there at the end."""
    began = {(e.job_id, e.attempt): e.at_s for e in world.events if isinstance(e, TrainingBegan)}
    over = concluded(world)
    wrong: list[str] = []
    for event in world.events:
        if not isinstance(event, Unmarked) or event.job_id not in world.records:
            continue
        for attempt in world.records[event.job_id].attempts:
            key = (event.job_id, attempt.number)
            is_needed_until_s = began.get(key, over.get(key, world.ended_at_s))
            if attempt.resumes is not None and attempt.resumes.id == event.checkpoint and event.at_s < is_needed_until_s:
                wrong.append(f"{key[0]}: {event.checkpoint} was removed at {event.at_s:.0f} s; attempt {key[1]} resumes from it")
    for job in world.records.values() if world.promise.is_driven_to_the_end else ():
        if job.head is not None and f"jobs/{job.id}/checkpoints/{job.head.id}/COMMIT" not in world.store:
            wrong.append(f"{job.id}: its head {job.head.id} is not in the store at the end")
    return wrong


def resumes_from_the_head(world: World) -> list[str]:
    """An attempt goes on from the newest checkpoint that was accepted when it was opened, and finds that step in its folder."""
    marks = {(e.job_id, e.checkpoint): e.step for e in world.events if isinstance(e, Marked)}
    wrong: list[str] = []
    for event in world.events:
        if not isinstance(event, TrainingBegan):
            continue
        job = world.records[event.job_id]
        before = [a.head.id for a in job.attempts[: event.attempt - 1] if a.head is not None]
        wanted = before[-1] if before else ""
        if event.resumed != wanted:
            wrong.append(f"{job.id}: attempt {event.attempt} resumed from {event.resumed or 'nothing'}, not {wanted or 'nothing'}")
        elif wanted and marks.get((job.id, wanted)) != event.step:
            wrong.append(f"{job.id}: attempt {event.attempt} found step {event.step}; {wanted} held {marks.get((job.id, wanted))}")
    return wrong


def no_machine_forgotten(world: World) -> list[str]:
    """No machine outlives its own limit, nor, when all is well again, the settling time after its job let go of it."""
    promise, over = world.promise, concluded(world)
    wrong: list[str] = []
    for life in machines(world):
        if life.end_s - life.begin_s > promise.machine_s_max + 1:
            wrong.append(f"{life.name} lived {life.end_s - life.begin_s:.0f} s; its limit is {promise.machine_s_max:.0f} s")
        if promise.calm_at_s is None or not promise.is_driven_to_the_end:
            continue
        free_s = max(promise.calm_at_s, life.begin_s, over.get((life.job_id, life.attempt), life.end_s))
        if life.end_s - free_s > promise.settle_s_max:
            wrong.append(f"{life.name} was held by nobody for {life.end_s - free_s:.0f} s")
    return wrong


def committed_before_performed(world: World) -> list[str]:
    """A machine is made only for an attempt that a record knows of."""
    known: dict[str, int] = {}
    wrong: list[str] = []
    for event in world.events:
        if isinstance(event, Recorded):
            known[event.job.id] = event.job.attempt
        elif isinstance(event, MachineMade):
            job_id, _, attempt = event.name.rpartition("-a")
            if known.get(job_id, 0) < int(attempt):
                wrong.append(f"{event.name} was made at {event.at_s:.0f} s, before anybody had written down that it is wanted")
    return wrong


def durable_work_is_accepted(world: World) -> list[str]:
    """What its claimed runner had marked for all to see before an attempt was over is its head, or older than its head."""
    claims = {(e.job_id, e.attempt): e.runner for e in world.events if isinstance(e, Claimed)}
    over, closed = concluded(world), closings(world)
    newest: dict[tuple[str, int], str] = {}
    for event in world.events:
        if isinstance(event, Marked):
            key = (event.job_id, event.attempt)
            until_s = min(over.get(key, 0.0), closed.get(key, world.ended_at_s)) - world.promise.sight_s
            if event.at_s < until_s and claims.get(key) == event.runner:
                newest[key] = max(newest.get(key, ""), event.checkpoint)
    wrong: list[str] = []
    for (job_id, number), checkpoint in newest.items():
        head = world.records[job_id].attempts[number - 1].head
        if head is None or head.id < checkpoint:
            wrong.append(
                f"{job_id}: {checkpoint} was marked in time, but attempt {number} ended with {head.id if head else 'nothing'}"
            )
    return wrong


def finished_never_changes(world: World) -> list[str]:
    """After the end of a job its record stays as it is."""
    finished: set[str] = set()
    wrong: list[str] = []
    for event in world.events:
        if isinstance(event, Recorded):
            if event.job.id in finished:
                wrong.append(f"{event.job.id}: changed at {event.at_s:.0f} s after it had finished")
            if event.job.phase is Phase.FINISHED:
                finished.add(event.job.id)
    return wrong


def budgets_hold(world: World) -> list[str]:
    """No budget is exceeded, each debit is made once, and what the world did is never charged to the script."""
    crashes = {(e.job_id, e.attempt) for e in world.events if isinstance(e, TrainingEnded) and e.code not in {None, 0}}
    wrong: list[str] = []
    for job in world.records.values():
        retry = job.spec.retry
        failed = [a for a in job.attempts if a.ending is not None and a.ending.kind is EndingKind.FAILED]
        interrupted = [a for a in job.attempts if a.ending is not None and a.ending.kind is EndingKind.INTERRUPTED]
        if len(failed) > retry.failures + 1 or len(interrupted) > retry.interruptions + 1:
            wrong.append(f"{job.id}: {len(failed)} failures, {len(interrupted)} interruptions against {retry}")
        for kind, budget, attempts, debits in (
            ("failures", Budget.FAILURES, failed, job.failures),
            ("interruptions", Budget.INTERRUPTIONS, interrupted, job.interruptions),
        ):
            charged = [a for a in job.attempts if a.charged is budget]
            if len(charged) != debits or any(a not in attempts for a in charged):
                wrong.append(f"{job.id}: {debits} {kind} were debited for {len(charged)} charged and {len(attempts)} such attempts")
        for attempt in failed:
            if (job.id, attempt.number) not in crashes:
                wrong.append(f"{job.id}: attempt {attempt.number} counts as failed, but its script did not fail")
    return wrong


def no_job_lost(world: World) -> list[str]:
    """A job that its user was told is accepted is in the database."""
    accepted = [e.job_id for e in world.events if isinstance(e, Submitted)]
    return [f"{job_id}: accepted, and nobody knows of it" for job_id in accepted if job_id not in world.records]


def outcome_is_the_exit_code(world: World) -> list[str]:
    """In a kind world a job ends as its script does."""
    if not world.promise.is_kind:
        return []
    wrong: list[str] = []
    for job in world.records.values():
        destiny = world.destinies[job.id]
        fated = {None: Outcome.STOPPED, 0: Outcome.SUCCEEDED}.get(destiny.code, Outcome.FAILED)
        allowed = {fated, Outcome.STOPPED} if destiny.is_stopped else {fated}
        if job.outcome not in allowed:
            wrong.append(
                f"{job.id}: {job.outcome} ({job.reason.sentence if job.reason else ''}), but its script ends with {destiny.code}"
            )
        elif job.interruptions:
            wrong.append(f"{job.id}: {job.interruptions} interruptions in a kind world")
    return wrong


def exit_codes_are_believed(world: World) -> list[str]:
    """Success needs a script that ended with 0; a job whose last script ended with 0 failed only if nobody could know."""
    ends = [e for e in world.events if isinstance(e, TrainingEnded)]
    codes = {(e.job_id, e.attempt): e.code for e in ends}
    wrong = [
        f"{e.job_id}: attempt {e.attempt} reported exit code 0 at {e.at_s:.0f} s, and was not believed"
        for e in world.events
        if isinstance(e, Reported) and e.code == 0 and not e.was_told and not _is_believed(world, e)
    ]
    for job in world.records.values():
        code = codes.get((job.id, job.attempt))
        if job.outcome is Outcome.SUCCEEDED and code != 0:
            wrong.append(f"{job.id}: succeeded, but its last script ended with {code}")
        is_refused = bool(job.attempts) and job.current.ending is not None and job.current.ending.kind is EndingKind.INTERRUPTED
        if job.outcome is Outcome.FAILED and code == 0 and not is_refused:
            wrong.append(f"{job.id}: failed, but its last script ended with 0")
    return wrong


def silence_restarts_nothing(world: World) -> list[str]:
    """Where machines stay well, delays, lost messages and partitions never end an attempt that trains."""
    if not world.promise.only_silence:
        return []
    ended = {(e.job_id, e.attempt) for e in world.events if isinstance(e, TrainingEnded)}
    too_old = {life.name for life in machines(world) if life.why == "its time is up"}
    return [
        f"{job.id}: attempt {attempt.number} was interrupted ({attempt.ending.reason.code}) though its machine was well"
        for job in world.records.values()
        for attempt in job.attempts
        if attempt.ending is not None
        and attempt.ending.kind is EndingKind.INTERRUPTED
        and (job.id, attempt.number) in ended
        and f"{job.id}-a{attempt.number}" not in too_old
    ]


def the_living_are_left_alone(world: World) -> list[str]:
    """Nobody gives up an attempt whose machine is there while a lease that could be seen holds, whatever the fleet says of it.

    An old heartbeat may arrive late and lie over a newer one: only if none was seen to hold for as long as silence is waited for,
    nobody is to blame.
    """
    if not world.promise.clocks_agree:
        return []
    beats: dict[tuple[str, int], list[Beat]] = defaultdict(list)
    lives = {(life.job_id, life.attempt): life for life in machines(world)}
    given_up: set[tuple[str, int]] = set()
    sight_s = world.promise.sight_s
    wrong: list[str] = []
    for event in world.events:
        if isinstance(event, Beat):
            beats[event.job_id, event.attempt].append(event)
        if not isinstance(event, Recorded) or event.job.ending is None or event.job.ending.reason.code != "machine_lost":
            continue
        key, now_s = (event.job.id, event.job.attempt), event.at_s
        is_there = key in lives and lives[key].begin_s < now_s < lives[key].end_s
        until_s = max((beat.until_s for beat in beats[key] if beat.at_s < now_s - sight_s), default=0.0)
        if key not in given_up and is_there and until_s > now_s and _silent_s(beats[key], now_s, sight_s) < world.promise.silence_s:
            wrong.append(f"{key[0]}: attempt {key[1]} was given up at {now_s:.0f} s; its lease held until {until_s:.0f} s")
        given_up.add(key)
    return wrong


def _silent_s(beats: list[Beat], now_s: float, sight_s: float) -> float:
    """For how long, at most, the heartbeat in the store had been one whose lease was over, until a moment ago."""
    longest_s, since_s = 0.0, None
    for beat, next_s in zip(beats, [*(beat.at_s for beat in beats[1:]), now_s], strict=True):
        if beat.until_s > beat.at_s:
            since_s = None
        if beat.until_s < next_s:
            since_s = max(beat.at_s, beat.until_s) if since_s is None else since_s
            longest_s = max(longest_s, next_s - since_s) if next_s > now_s - sight_s else longest_s
    return longest_s


def logs_stay_readable(world: World) -> list[str]:
    """What a runner was told is stored is there at the end, as it was."""
    flushed = [e for e in world.events if isinstance(e, Flushed)]
    return [
        f"{e.key} was stored, and is not there any more" for e in flushed if not world.store.get(e.key, b"").startswith(e.value)
    ]


def everything_ends(world: World) -> list[str]:
    """Once the faults stop, every job ends and every machine goes."""
    left = [f"{life.name} is still there" for life in machines(world) if life.why == "still there"]
    if not world.promise.is_driven_to_the_end:
        return left
    jobs = [f"{job.id} is {job.phase.value} at the end" for job in world.records.values() if job.phase is not Phase.FINISHED]
    return [*jobs, *left]


def story_replays(world: World) -> list[str]:
    """The story alone, read line by line, leads to the record: attempts, debits, outcome; and it never goes back in time."""
    wrong: list[str] = []
    for job_id, lines in world.stories.items():
        job = world.records[job_id]
        told = {
            "attempts": sum(line.event == "placed" for line in lines),
            "failures": sum(line.rule == "retry.failures" for line in lines),
            "interruptions": sum(line.rule == "retry.interruptions" for line in lines),
        }
        known = {"attempts": job.attempt, "failures": job.failures, "interruptions": job.interruptions}
        if told != known:
            wrong.append(f"{job_id}: its story tells of {told}, its record of {known}")
        ends = [line.event for line in lines if line.event in set(Outcome)]
        if ends != ([job.outcome.value] if job.outcome is not None else []):
            wrong.append(f"{job_id}: its story ends with {ends}, its record with {job.outcome}")
        if any(a.at > b.at for a, b in pairwise(lines)):
            wrong.append(f"{job_id}: its story goes back in time")
    return wrong


CHECKERS: Mapping[str, Callable[[World], list[str]]] = {
    checker.__name__: checker
    for checker in (
        one_claimed_runner,
        commits_by_the_claimed_runner,
        checkpoints_never_torn,
        checkpoints_never_lost,
        resumes_from_the_head,
        no_machine_forgotten,
        durable_work_is_accepted,
        run_limits_hold,
        stops_have_their_grace,
        committed_before_performed,
        finished_never_changes,
        budgets_hold,
        no_job_lost,
        outcome_is_the_exit_code,
        exit_codes_are_believed,
        silence_restarts_nothing,
        the_living_are_left_alone,
        logs_stay_readable,
        ledger_adds_up,
        everything_ends,
        story_replays,
    )
}


def _is_believed(world: World, report: Reported) -> bool:
    """Whether an attempt that reported success in time ended so."""
    attempt = world.records[report.job_id].attempts[report.attempt - 1]
    is_late = report.at_s > concluded(world).get((report.job_id, report.attempt), world.ended_at_s) - world.promise.sight_s
    return is_late or attempt.ending is None or attempt.ending.kind is EndingKind.SUCCEEDED
