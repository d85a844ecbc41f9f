import pytest
from core_strategies import jobs
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.job import Budget, EndingKind, Outcome, Phase
from trainmaster.core.retry import Finish, TryAgain, backoff_s, next_step
from trainmaster.spec.job_spec import Retry
from trainmaster.testing.builders import a_job, a_reason, a_spec, a_stop, an_attempt, an_ending, at

FAIL, LOST, NONE, NEVER = EndingKind.FAILED, EndingKind.INTERRUPTED, EndingKind.NO_CAPACITY, EndingKind.REFUSED
ROWS = [
    # endings before, this ending → budget and pause, or outcome
    ((), FAIL, (Budget.FAILURES, 1)),
    ((FAIL,), FAIL, (Budget.FAILURES, 2)),
    ((FAIL, FAIL), FAIL, Outcome.FAILED),
    ((), LOST, (Budget.INTERRUPTIONS, 0)),
    ((LOST,), LOST, (Budget.INTERRUPTIONS, 2)),
    ((LOST, LOST), LOST, (Budget.INTERRUPTIONS, 3)),  # backoff_max
    ((LOST, LOST, LOST), LOST, Outcome.FAILED),
    ((FAIL, FAIL), LOST, (Budget.INTERRUPTIONS, 0)),
    ((LOST, LOST, LOST), FAIL, (Budget.FAILURES, 1)),
    ((), NONE, (None, 2)),
    ((NONE, NONE), NONE, (None, 8)),
    ((NONE,) * 9, NONE, (None, 60)),
    ((), NEVER, Outcome.FAILED),
    ((), EndingKind.STOPPED, Outcome.STOPPED),
    ((FAIL, FAIL), EndingKind.SUCCEEDED, Outcome.SUCCEEDED),
]


def _job(before, stop=None):
    spec = a_spec(retry=Retry(failures=2, interruptions=3, backoff=1, backoff_max=3))
    current = an_attempt(len(before) + 1)
    ended = (an_attempt(n, ended=0, ending=an_ending(kind)) for n, kind in enumerate(before, 1))
    return a_job(Phase.PLACING, spec=spec, attempts=(*ended, current), stop=stop)


@pytest.mark.parametrize(("before", "kind", "expected"), ROWS)
def test_who_pays_and_how_long_is_the_pause(before, kind, expected):
    step = next_step(_job(before), an_ending(kind), at(100))
    if isinstance(step, TryAgain):
        assert (step.charged, (step.not_before - at(100)).total_seconds()) == expected
    else:
        assert step.outcome is expected


@pytest.mark.parametrize("kind", EndingKind)
def test_a_stop_beats_every_retry_and_success_beats_the_stop(kind):
    step = next_step(_job((), stop=a_stop()), an_ending(kind), at(100))
    assert isinstance(step, Finish)
    assert step.outcome is (Outcome.SUCCEEDED if kind is EndingKind.SUCCEEDED else Outcome.STOPPED)
    own_words = kind in {EndingKind.SUCCEEDED, EndingKind.STOPPED}
    assert step.reason == (an_ending(kind).reason if own_words else a_reason())


def test_a_used_up_budget_is_told_unless_there_never_was_one():
    assert (
        next_step(_job((FAIL, FAIL)), an_ending(FAIL), at(0)).reason.sentence
        == "It was failed. The budget of 2 failures is used up."
    )
    assert next_step(a_job(Phase.PLACING), an_ending(FAIL), at(0)).reason.sentence == "It was failed."


@pytest.mark.parametrize(("first", "most", "times", "pause"), [(1, 300, 0, 1), (1, 300, 3, 8), (1, 300, 99, 300), (0, 9, 9, 0)])
def test_the_pause_doubles_up_to_the_most(first, most, times, pause):
    assert backoff_s(first, most, times) == pause


@given(jobs(Phase.PLACING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING), st.sampled_from(EndingKind))
def test_safety_no_budget_is_overdrawn_and_none_pays_for_the_other(job, kind):
    step = next_step(job, an_ending(kind), at(0))
    if isinstance(step, TryAgain):
        assert step.charged is {FAIL: Budget.FAILURES, LOST: Budget.INTERRUPTIONS}.get(kind)
        assert step.not_before >= at(0)
        assert step.charged is not Budget.FAILURES or job.failures < job.spec.retry.failures
        assert step.charged is not Budget.INTERRUPTIONS or job.interruptions < job.spec.retry.interruptions
