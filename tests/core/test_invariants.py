import pytest
from core_strategies import jobs
from hypothesis import given
from msgspec.structs import replace

from trainmaster.core import invariants
from trainmaster.core.job import Budget, EndingKind, Outcome, Phase
from trainmaster.spec.job_spec import Retry
from trainmaster.testing.builders import a_commit, a_job, a_reason, a_spec, an_attempt, an_ending, at

RUNNING, QUEUED, STOPPING, DONE = a_job(Phase.RUNNING), a_job(), a_job(Phase.STOPPING), a_job(Phase.FINISHED)
LOST = an_attempt(1, ended=10)
FAILED = an_attempt(1, ended=10, ending=an_ending(EndingKind.FAILED))
ROWS = [
    (replace(DONE, outcome=None), "a finished job has an outcome, a reason and a time"),
    (replace(DONE, reason=None), "a finished job has an outcome, a reason and a time"),
    (replace(DONE, finished_at=None), "a finished job has an outcome, a reason and a time"),
    (replace(RUNNING, outcome=Outcome.FAILED), "only a finished job has an outcome, a reason or a time"),
    (replace(RUNNING, reason=a_reason()), "only a finished job has an outcome, a reason or a time"),
    (replace(RUNNING, finished_at=at(1)), "only a finished job has an outcome, a reason or a time"),
    (replace(RUNNING, attempts=(an_attempt(2),)), "attempts are numbered from 1 without a gap"),
    (replace(RUNNING, attempts=()), "an attempt is open exactly while the job holds machines"),
    (replace(RUNNING, phase=Phase.QUEUED), "an attempt is open exactly while the job holds machines"),
    (replace(DONE, attempts=(an_attempt(),)), "an attempt is open exactly while the job holds machines"),
    (replace(RUNNING, attempts=(replace(an_attempt(), ending=an_ending()),)), "an ended attempt says how it ended"),
    (
        replace(RUNNING, interruptions=1, attempts=(LOST, an_attempt(2, placed=9))),
        "an attempt begins after the last one ended",
    ),
    (replace(RUNNING, ending=an_ending()), "an ending is pending exactly while stopping"),
    (replace(STOPPING, ending=None), "an ending is pending exactly while stopping"),
    (replace(QUEUED, failures=1, attempts=(FAILED,)), "failures stay within their budget"),
    (
        replace(QUEUED, interruptions=1, attempts=(LOST,), spec=a_spec(retry=Retry(interruptions=0))),
        "interruptions stay within their budget",
    ),
    (replace(QUEUED, interruptions=1), "each debit stands at an attempt that ended so"),
    (replace(QUEUED, attempts=(LOST,)), "each debit stands at an attempt that ended so"),
    (
        replace(QUEUED, attempts=(replace(LOST, charged=Budget.FAILURES),), spec=a_spec(retry=Retry(failures=1))),
        "no attempt is charged for another kind of ending",
    ),
    (replace(QUEUED, updated_at=at(-1)), "the clock of a record never goes back"),
    (
        replace(RUNNING, head=a_commit(2), attempts=(an_attempt(head=a_commit(2)),)),
        "a commit belongs to the attempt that made it",
    ),
    (replace(RUNNING, head=a_commit(1)), "the head is the newest accepted commit"),
    (replace(RUNNING, attempts=(an_attempt(head=a_commit(1)),)), "the head is the newest accepted commit"),
]


@pytest.mark.parametrize(("job", "promise"), ROWS)
def test_a_broken_promise_is_named(job, promise):
    assert promise in invariants.broken(job)
    with pytest.raises(AssertionError, match="j7 at revision 0"):
        invariants.check(job)


def test_every_promise_has_a_record_that_breaks_it():
    assert len({promise for _, promise in ROWS}) == 14


@pytest.mark.parametrize("phase", Phase)
def test_built_records_keep_every_promise(phase):
    assert invariants.broken(a_job(phase)) == []


@given(jobs())
def test_drawn_records_keep_every_promise(job):
    assert invariants.check(job) is job
