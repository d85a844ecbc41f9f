"""A machine whose runner is gone while something of the job still lives there, and a shell that dies before what it started."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from trainmaster.core.decide import decide
from trainmaster.core.facts import ClaimState, Seen, StopSeen
from trainmaster.core.instructions import CloseAttempt, Release
from trainmaster.core.job import EndingKind, Phase
from trainmaster.core.supervise import Exited, FinalCommit, Run, RunState, SignalTree, Upload, supervise
from trainmaster.testing.builders import TIMING, a_job, an_exit, at, some_facts, store_away

ORPHANS = replace(some_facts().allocation, runner_has_ended=True)


@pytest.mark.parametrize(("claim", "code"), [(ClaimState.TAKEN, "machine_lost"), (ClaimState.FREE, "never_started")])
def test_what_a_dead_runner_left_is_taken_away_before_the_next_attempt(claim, code):
    facts = replace(some_facts(Seen.PRESENT, claim), allocation=ORPHANS)
    decision = decide(a_job(Phase.RUNNING), facts, at(60), TIMING)
    assert decision.job.phase is Phase.STOPPING
    assert [type(i) for i in decision.instructions] == [CloseAttempt, Release]
    assert decision.job.ending.reason.code == code
    again = decide(decision.job, replace(facts, is_closed=True), at(61), TIMING)
    assert again.job.phase is Phase.STOPPING, "not before the last of them is gone"
    over = decide(decision.job, replace(some_facts(Seen.GONE), is_closed=True), at(62), TIMING)
    assert (over.job.phase, over.job.interruptions) == (Phase.QUEUED, 1)


def test_its_exit_record_beats_what_we_infer():
    facts = replace(some_facts(Seen.PRESENT, exit=an_exit(0)), allocation=ORPHANS)
    assert decide(a_job(Phase.RUNNING), facts, at(60), TIMING).job.ending.kind is EndingKind.SUCCEEDED


def test_without_the_store_nothing_is_taken_away_an_exit_record_may_wait_there():
    facts = replace(store_away(Seen.PRESENT), allocation=ORPHANS)
    decision = decide(a_job(Phase.RUNNING), facts, at(60), TIMING)
    assert (decision.job.phase, decision.instructions) == (Phase.RUNNING, ())


@pytest.mark.parametrize(
    ("stop_seen", "heirs", "trusted"),
    [(StopSeen.ORDER, True, True), (StopSeen.ORDER, False, False), (StopSeen.TERMINATED, True, True), (None, True, False)],
)
def test_a_shell_may_die_of_the_stop_if_what_it_started_ended_by_itself(stop_seen, heirs, trusted):
    run = Run(state=RunState.ENDING, lease_until=at(100), stop_seen=stop_seen)
    event = Exited(code=None, signal="SIGTERM", heirs_ended_by_themselves=heirs)
    _, instructions = supervise(run, event, at(10))
    assert instructions == (SignalTree("SIGKILL"), FinalCommit(trusted=trusted), Upload())
