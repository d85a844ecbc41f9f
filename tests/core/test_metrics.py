"""What is left of a metric in the record, over several attempts and while the job runs?"""

from __future__ import annotations

from msgspec.structs import replace

from trainmaster.core.decide import decide
from trainmaster.core.facts import Seen
from trainmaster.core.job import Phase
from trainmaster.core.metrics import MetricSummary, combined
from trainmaster.testing.builders import TIMING, a_commit, a_heartbeat, a_job, an_exit, at, some_facts

LOW = MetricSummary(count=2, last=3.0, last_step=2, min=1.0, min_step=1, max=3.0, max_step=2)
HIGH = MetricSummary(count=3, last=5.0, last_step=9, min=2.0, min_step=7, max=8.0, max_step=8)
NOTHING = MetricSummary(count=1, last_step=4)


def test_attempts_together():
    assert combined([{"a": LOW}, {"a": HIGH, "b": LOW}]) == {
        "a": MetricSummary(count=5, last=5.0, last_step=9, min=1.0, min_step=1, max=8.0, max_step=8),
        "b": LOW,
    }
    assert combined([{"a": HIGH}, {"a": LOW}])["a"] == replace(LOW, count=5, max=8.0, max_step=8)
    assert combined([{"a": NOTHING}, {"a": LOW}])["a"] == replace(LOW, count=3)
    assert combined([{"a": LOW}, {"a": NOTHING}])["a"] == replace(LOW, count=3, last=None, last_step=4)
    assert combined([]) == {}


def test_the_exit_report_has_the_last_word():
    facts = some_facts(exit=replace(an_exit(), metrics={"loss": LOW}), heartbeat=replace(a_heartbeat(), metrics={"loss": HIGH}))
    assert decide(a_job(Phase.RUNNING), facts, at(100), TIMING).job.metrics == {"loss": LOW}


def test_a_running_job_is_measured_now_and_then():
    job = a_job(Phase.RUNNING)
    beat = replace(a_heartbeat(), metrics={"loss": LOW})
    first = decide(job, some_facts(heartbeat=beat), at(1), TIMING).job
    assert first.metrics == {"loss": LOW}, "the timeline is new, so there is a write in any case"
    later = some_facts(heartbeat=replace(beat, metrics={"loss": HIGH}))
    assert decide(first, later, at(2), TIMING).job == first, "values alone are not worth a write each second"
    assert decide(first, later, at(1 + TIMING.measure_s), TIMING).job.metrics == {"loss": HIGH}
    saved = replace(later, commit=a_commit())
    assert decide(first, saved, at(2), TIMING).job.metrics == {"loss": HIGH}, "a commit is written anyhow"


def test_a_lost_attempt_keeps_what_its_last_heartbeat_said():
    job = a_job(Phase.RUNNING)
    beat = replace(a_heartbeat(), metrics={"loss": LOW})
    stopping = decide(job, some_facts(Seen.GONE, heartbeat=beat), at(61), TIMING).job
    over = replace(some_facts(Seen.GONE, heartbeat=replace(beat, metrics={"loss": HIGH})), is_closed=True)
    after = decide(stopping, over, at(62), TIMING).job
    assert after.attempts[0].ended_at is not None
    assert after.metrics == {"loss": HIGH}
