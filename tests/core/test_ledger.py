from datetime import timedelta
from itertools import pairwise

import pytest
from core_strategies import MOMENTS, jobs
from hypothesis import given

from trainmaster.core import ledger
from trainmaster.core.job import EndingKind, JobRecord, Phase
from trainmaster.spec.job_spec import Retry
from trainmaster.testing.builders import a_commit, a_job, a_spec, a_timeline, an_attempt, an_ending, at


def _book(job: JobRecord, now: float) -> str:
    return " ".join(f"{line}={s:g}" for line, s in ledger.totals(job, at(now)).items() if s)


def _running(timeline, head=None) -> JobRecord:
    return a_job(Phase.RUNNING, attempts=(an_attempt(placed=10, timeline=timeline, head=head),))


def _ended(timeline, head=None, kind=EndingKind.INTERRUPTED) -> JobRecord:
    attempt = an_attempt(placed=10, ended=100, timeline=timeline, head=head, ending=an_ending(kind))
    return a_job(attempts=(attempt,), spec=a_spec(retry=Retry(failures=1)))


FULL = a_timeline(claimed=20, set_up=30, restored=40, exited=80, uploaded=95)
ROWS = [
    # job, now → where the time went
    (a_job(), 50, "queued=50"),
    (a_job(Phase.PLACING, attempts=(an_attempt(placed=10),)), 50, "queued=10 placing=40"),
    (_running(a_timeline(claimed=20)), 50, "queued=10 placing=10 set_up=30"),
    (_running(a_timeline(claimed=20, set_up=30)), 50, "queued=10 placing=10 set_up=10 restoring=20"),
    (
        _running(a_timeline(claimed=20, set_up=30, restored=40)),
        50,
        "queued=10 placing=10 set_up=10 restoring=10 at_risk_compute=10",
    ),
    (
        _running(a_timeline(claimed=20, set_up=30, restored=40), a_commit(seconds=45)),
        50,
        "queued=10 placing=10 set_up=10 restoring=10 kept_compute=5 at_risk_compute=5",
    ),
    (  # the script has ended and its results are on their way: not lost yet
        _running(a_timeline(claimed=20, set_up=30, restored=40, exited=80), a_commit(seconds=45)),
        90,
        "queued=10 placing=10 set_up=10 restoring=10 kept_compute=5 at_risk_compute=35 uploading=10",
    ),
    (_ended(a_timeline()), 120, "queued=30 placing=90"),  # never claimed
    (_ended(a_timeline(claimed=20)), 100, "queued=10 placing=10 set_up=80"),
    (_ended(a_timeline(claimed=20, last_seen=50)), 100, "queued=10 placing=10 set_up=30 idle=50"),
    (_ended(a_timeline(claimed=20, set_up=30, last_seen=50)), 100, "queued=10 placing=10 set_up=10 restoring=20 idle=50"),
    (
        _ended(a_timeline(claimed=20, set_up=30, restored=40, last_seen=50)),
        100,
        "queued=10 placing=10 set_up=10 restoring=10 lost_compute=10 idle=50",
    ),
    (
        _ended(a_timeline(claimed=20, set_up=30, restored=40, last_seen=50), a_commit(seconds=45)),
        100,
        "queued=10 placing=10 set_up=10 restoring=10 kept_compute=5 lost_compute=5 idle=50",
    ),
    (
        _ended(a_timeline(claimed=20, set_up=30, restored=40, last_seen=50), a_commit(seconds=60)),  # committed after the last beat
        100,
        "queued=10 placing=10 set_up=10 restoring=10 kept_compute=10 idle=50",
    ),
    (_ended(FULL), 100, "queued=10 placing=10 set_up=10 restoring=10 lost_compute=40 uploading=15 idle=5"),
    (
        _ended(FULL, a_commit(seconds=70), EndingKind.FAILED),
        100,
        "queued=10 placing=10 set_up=10 restoring=10 kept_compute=30 lost_compute=10 uploading=15 idle=5",
    ),
]


@pytest.mark.parametrize(("job", "now", "expected"), ROWS)
def test_where_the_time_went(job, now, expected):
    assert _book(job, now) == expected
    assert sum(ledger.totals(job, at(now)).values()) == now


def test_the_work_of_a_successful_attempt_is_kept_to_its_end():
    ended = an_attempt(placed=10, ended=100, timeline=FULL, head=a_commit(seconds=50), ending=an_ending(EndingKind.SUCCEEDED))
    job = a_job(Phase.FINISHED, attempts=(ended,))
    assert _book(job, 1e6) == "queued=10 placing=10 set_up=10 restoring=10 kept_compute=40 uploading=15 idle=5"


def test_limits_count_all_attempts():
    first = an_attempt(1, placed=10, ended=100, timeline=FULL)
    second = an_attempt(2, placed=110, timeline=a_timeline(claimed=120, set_up=130, restored=140))
    job = a_job(Phase.RUNNING, attempts=(first, second))
    assert ledger.running_s(job, at(150)) == 40 + 10
    assert ledger.waiting_s(job, at(150)) == 20 + 20


def test_a_moment_before_the_submission_has_no_book():
    assert ledger.spans(a_job(), at(-5)) == []


@given(jobs(), MOMENTS)
def test_safety_no_gap_no_overlap_and_the_lines_add_up_exactly(job, now):
    found = ledger.spans(job, now)
    age = max(timedelta(0), (job.finished_at or now) - job.submitted_at)
    assert sum((s.end - s.start for s in found), timedelta(0)) == age
    assert all(s.start < s.end and s.line in ledger.LINES for s in found)
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(a.attempt <= b.attempt for a, b in pairwise(found))
    if found:
        assert (found[0].start, found[-1].end) == (job.submitted_at, job.submitted_at + age)
    totals = ledger.totals(job, now)
    assert tuple(totals) == ledger.LINES
    assert sum(totals.values()) == pytest.approx(age.total_seconds())
    assert ledger.running_s(job, now) + ledger.waiting_s(job, now) <= age.total_seconds() + 1e-6


@given(jobs(Phase.QUEUED, Phase.FINISHED), MOMENTS)
def test_safety_nothing_is_at_risk_when_nothing_runs(job, now):
    if job.phase is Phase.FINISHED or all(a.ended_at <= now for a in job.attempts):
        assert ledger.totals(job, now)["at_risk_compute"] == 0
