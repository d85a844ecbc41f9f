"""What must never happen, whatever is observed; and what must happen in a kind world."""

from datetime import datetime, timedelta

from core_strategies import MOMENTS, PLACEMENTS, STOPS, facts_about, jobs
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from trainmaster.core import invariants
from trainmaster.core.decide import Decision, decide, place, request_stop
from trainmaster.core.facts import ClaimState, Facts, Seen, StopSeen
from trainmaster.core.instructions import CloseAttempt, Launch, OpenAttempt, OrderStop, Release, Seal
from trainmaster.core.job import EndingKind, JobRecord, Outcome, Phase, allocation_name
from trainmaster.spec.layout import parse_checkpoint_id
from trainmaster.testing.builders import TIMING, a_placement, an_exit, some_facts

HELD = (Phase.PLACING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


@st.composite
def situations(draw: st.DrawFn, *phases: Phase) -> tuple[JobRecord, Facts, datetime]:
    job = draw(jobs(*phases))
    return job, draw(facts_about(job.attempt)), draw(MOMENTS)


def _decide(situation: tuple[JobRecord, Facts, datetime]) -> Decision:
    return decide(*situation, TIMING)


def _kinds(decision: Decision) -> set[type]:
    return {type(i) for i in decision.instructions}


# Safety.


@given(situations())
def test_safety_decide_never_breaks_the_record(situation):
    job = situation[0]
    decided = invariants.check(_decide(situation).job)
    assert (decided.id, decided.spec, decided.revision) == (job.id, job.spec, job.revision)
    assert decided.updated_at >= job.updated_at
    assert len(decided.attempts) == len(job.attempts), "only place opens attempts"
    over = [a for a in job.attempts if a.ended_at is not None]
    assert list(decided.attempts[: len(over)]) == over, "what is over stays as it was"


@given(situations(Phase.FINISHED))
def test_safety_a_finished_job_never_changes(situation):
    job = situation[0]
    decision = _decide(situation)
    assert (decision.job, decision.lines, decision.wake_at) == (job, (), None)
    assert _kinds(decision) <= {Release, Seal}


@given(situations(*HELD), st.booleans())
def test_safety_an_unknown_answer_ends_nothing(situation, confirms_gone):
    """Nobody answers: no stop was asked for, so nothing may be closed, given back, tried again or finished."""
    job, facts, now = situation
    unknown = replace(facts.allocation, seen=Seen.UNKNOWN)
    blind = replace(facts, allocation=unknown, store_answers=False, confirms_gone=confirms_gone, refusal=None)
    decision = decide(replace(job, stop=None), blind, now, TIMING)
    if job.phase is Phase.STOPPING:
        assert decision.job == replace(job, stop=None)
    else:
        assert decision == Decision(job=replace(job, stop=None), wake_at=decision.wake_at)


@given(situations(*HELD))
def test_safety_without_the_stores_answer_nothing_concludes(situation):
    job, facts, now = situation
    decided = decide(job, replace(facts, store_answers=False), now, TIMING).job
    assert decided.phase not in {Phase.QUEUED, Phase.FINISHED}


@given(situations(*HELD))
def test_safety_nothing_concludes_before_the_machine_is_gone_and_its_claim_is_spent(situation):
    job, facts, now = situation
    if _decide(situation).job.phase in {Phase.QUEUED, Phase.FINISHED}:
        assert facts.allocation.seen is not Seen.PRESENT
        assert facts.allocation.seen is Seen.GONE or not facts.confirms_gone
        assert facts.exit is not None or facts.is_closed or facts.claim is ClaimState.CLOSED
        if facts.allocation.seen is Seen.UNKNOWN and facts.heartbeat is not None:
            assert max(now, job.updated_at) > facts.heartbeat.lease_until + timedelta(seconds=TIMING.lease_margin_s)


@given(situations(*HELD), STOPS)
def test_safety_a_stop_beats_every_retry(situation, stop):
    job, facts, now = situation
    decided = decide(replace(job, stop=stop), facts, now, TIMING).job
    assert decided.phase is not Phase.QUEUED
    if decided.phase is Phase.FINISHED:
        success = decided.current.ending.kind is EndingKind.SUCCEEDED
        assert decided.outcome is (Outcome.SUCCEEDED if success else Outcome.STOPPED)


@given(situations(*HELD))
def test_safety_success_needs_an_exit_0_and_an_exit_0_is_no_failure(situation):
    job, facts, _ = situation
    assume(job.ending is None or job.ending.kind is not EndingKind.SUCCEEDED)
    decided = _decide(situation).job
    exit_0 = facts.exit is not None and facts.exit.code == 0 and facts.exit.signal is None
    if decided.outcome is Outcome.SUCCEEDED:
        assert exit_0
    if exit_0 and facts.exit.stop_seen is None and not facts.exit.set_up_error:
        assert decided.outcome in {None, Outcome.SUCCEEDED}
        assert decided.phase is not Phase.QUEUED


@given(situations(*HELD))
def test_safety_each_ending_is_charged_once_to_its_own_budget(situation):
    job = situation[0]
    decided = _decide(situation).job
    kind = decided.current.ending.kind if decided.phase is Phase.QUEUED else None
    assert decided.failures - job.failures == (kind is EndingKind.FAILED)
    assert decided.interruptions - job.interruptions == (kind is EndingKind.INTERRUPTED)


@given(situations())
def test_safety_each_transition_leaves_a_line_and_instructions_concern_the_current_attempt(situation):
    job = situation[0]
    decision = _decide(situation)
    if decision.job.phase is not job.phase or decision.job.stop != job.stop:
        assert decision.lines
    assert all(line.sentence and line.rule and line.attempt == job.attempt for line in decision.lines)
    assert all(line.at == decision.job.updated_at for line in decision.lines)
    for instruction in decision.instructions:
        if isinstance(instruction, Launch | OrderStop | CloseAttempt | Release):
            assert instruction.name == allocation_name(job.id, job.attempt)


@given(situations())
def test_safety_the_head_never_goes_back_nor_to_a_late_commit_of_an_old_attempt(situation):
    job = situation[0]
    decided = _decide(situation).job
    if job.head is not None:
        assert parse_checkpoint_id(decided.head.id) >= parse_checkpoint_id(job.head.id)
    if decided.head != job.head:
        assert parse_checkpoint_id(decided.head.id)[0] == job.attempt


@given(situations(), st.integers(1, 10**6))
def test_safety_a_clock_that_went_back_is_harmless(situation, back_s):
    """What is decided is decided as if no time had passed; and the next look is as near as it would have been."""
    job, facts, _ = situation
    now = job.updated_at - timedelta(seconds=back_s)
    skewed, plain = decide(job, facts, now, TIMING), decide(job, facts, job.updated_at, TIMING)
    if plain.wake_at is not None:
        assert skewed.wake_at - now == plain.wake_at - job.updated_at
    assert replace(skewed, wake_at=None) == replace(plain, wake_at=None)


@given(situations(), STOPS)
def test_safety_a_stop_changes_nothing_but_the_wish(situation, stop):
    job = situation[0]
    decision = request_stop(job, stop)
    assert decision.instructions == ()
    wish = stop if job.stop is None and job.phase is not Phase.FINISHED else job.stop
    assert replace(invariants.check(decision.job), updated_at=job.updated_at) == replace(job, stop=wish)


@given(situations(Phase.QUEUED), PLACEMENTS)
def test_safety_each_placement_is_a_new_attempt_that_resumes_from_the_head(situation, placement):
    job, _, now = situation
    decision = place(job, placement, now)
    assert decision.wake_at == now
    if job.stop is not None:
        assert (decision.job, decision.instructions) == (job, ())
        return
    placed = invariants.check(decision.job)
    assert (placed.phase, placed.attempt, placed.current.resumes) == (Phase.PLACING, job.attempt + 1, job.head)
    assert [type(i) for i in decision.instructions] == [OpenAttempt, Launch]


@given(situations())
def test_safety_the_same_look_twice_asks_for_the_same_things(situation):
    """A crash between commit and perform is mended by the next look."""
    job, facts, now = situation
    first = _decide(situation)
    again = decide(first.job, facts, now, TIMING)
    if first.job.phase is job.phase or first.job.phase in {Phase.STOPPING, Phase.FINISHED}:
        assert set(first.instructions) <= set(again.instructions) or again.job.phase is not first.job.phase


# Progress.


@given(situations())
def test_progress_an_unfinished_job_is_looked_at_again(situation):
    job, _, now = situation
    decision = _decide(situation)
    assert (decision.wake_at is None) == (job.phase is Phase.FINISHED)
    if decision.wake_at is not None:
        assert decision.wake_at >= now


@given(jobs(Phase.QUEUED, *HELD), st.booleans())
def test_progress_in_a_kind_world_every_job_finishes(job, with_stop):
    """The machine comes, the runner claims, trains and ends with 0; everybody answers. Eight looks are enough from anywhere."""
    job = replace(job, stop=job.stop if with_stop else None)
    now = job.updated_at
    closed = released = ordered = False
    phases = [job.phase]
    for _ in range(8):
        if job.phase is Phase.FINISHED:
            break
        now += timedelta(seconds=1)
        exited = an_exit(0, stop_seen=StopSeen.ORDER if ordered else None) if Phase.RUNNING in phases else None
        claim = ClaimState.CLOSED if closed else ClaimState.TAKEN
        facts = some_facts(Seen.GONE if released else Seen.PRESENT, claim, exit=None if closed else exited)
        decision = decide(job, facts, now, TIMING)
        kinds = _kinds(decision)
        closed, released, ordered = closed or CloseAttempt in kinds, released or Release in kinds, ordered or OrderStop in kinds
        job = invariants.check(decision.job)
        if job.phase is Phase.QUEUED and job.stop is None:
            job = place(job, a_placement(), max(now, job.not_before or now)).job
            now, closed, released, ordered = job.updated_at, False, False, False
        phases.append(job.phase)
    assert job.phase is Phase.FINISHED, phases
    assert job.outcome is not None
