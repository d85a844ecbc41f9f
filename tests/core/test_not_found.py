"""A fleet says "not found": too new, long gone, or an old answer. The lease decides."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from trainmaster.core.decide import decide
from trainmaster.core.facts import ClaimState, Seen, Sighting, StopSeen
from trainmaster.core.instructions import CloseAttempt, Launch, Release
from trainmaster.core.job import Phase
from trainmaster.core.supervise import Quit, Run, RunState, StopWanted, Tick, supervise
from trainmaster.testing.builders import TIMING, a_heartbeat, a_job, a_stop, an_exit, at, some_facts

NOT_FOUND = Sighting(seen=Seen.UNKNOWN, evidence="not found", not_found=True)


def facts(claim=ClaimState.TAKEN, **more):
    return replace(some_facts(Seen.UNKNOWN, claim, **more), allocation=NOT_FOUND)


def test_a_runner_whose_lease_holds_is_left_alone():
    beat = a_heartbeat(seconds=50, lease_s=60)
    decision = decide(a_job(Phase.RUNNING), facts(heartbeat=beat), at(100), TIMING)
    assert (decision.job.phase, decision.instructions) == (Phase.RUNNING, ())


def test_a_runner_that_is_neither_found_nor_heard_counts_as_gone_after_its_lease_and_the_margin():
    beat = a_heartbeat(seconds=50, lease_s=60)
    decision = decide(a_job(Phase.RUNNING), facts(heartbeat=beat), at(111), TIMING)
    for look in range(1, 5):
        assert decision.job.phase is Phase.RUNNING
        decision = decide(decision.job, facts(heartbeat=beat), at(111 + look * TIMING.lease_margin_s / 4), TIMING)
    assert decision.job.phase is Phase.STOPPING
    assert [type(i) for i in decision.instructions] == [CloseAttempt, Release]


def test_what_was_never_claimed_is_asked_for_again_by_the_same_name():
    job = a_job(Phase.PLACING)
    launches = [i for i in decide(job, facts(ClaimState.FREE), at(5), TIMING).instructions if isinstance(i, Launch)]
    assert [launch.name for launch in launches] == ["j7-a1"]


@pytest.mark.parametrize("told", [{"claim": ClaimState.CLOSED}, {"exit": an_exit(1)}], ids=["closed", "exited"])
def test_an_attempt_that_cannot_go_on_does_not_wait_for_a_lease(told):
    """A stop of what was never launched would otherwise wait for minutes; should a machine come late, the sweeper finds it."""
    stopping = decide(a_job(Phase.PLACING, stop=a_stop()), facts(ClaimState.FREE), at(5), TIMING).job
    assert stopping.phase is Phase.STOPPING
    assert decide(stopping, facts(**told), at(6), TIMING).job.is_finished


@pytest.mark.parametrize(("seconds", "is_over"), [(99, False), (100, True)])
def test_a_claim_that_cannot_be_won_is_given_up(seconds, is_over):
    run = Run(lease_until=at(1000), claim_until=at(100))
    after, instructions = supervise(run, Tick(), at(seconds))
    assert (after.state is RunState.DONE, instructions) == (is_over, (Quit(),) if is_over else ())


def test_who_is_told_to_go_while_it_waits_for_its_claim_goes():
    run, _ = supervise(Run(lease_until=at(1000)), StopWanted(why=StopSeen.TERMINATED, grace_s=5), at(1))
    assert supervise(run, Tick(), at(1))[1] == (Quit(),)
