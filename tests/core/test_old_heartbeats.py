"""A heartbeat that arrives late lies over a newer one for a while: nobody is given up for it, and what is known stays known."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from trainmaster.core.decide import decide
from trainmaster.core.facts import Seen
from trainmaster.core.inputs import InputSummary
from trainmaster.core.job import JobRecord, Phase, Timeline
from trainmaster.core.metrics import MetricSummary
from trainmaster.testing.builders import TIMING, a_heartbeat, a_job, an_exit, at, some_facts

UNSURE = replace(some_facts(Seen.UNKNOWN), confirms_gone=False)
OLD = replace(UNSURE, heartbeat=a_heartbeat(100, lease_s=60))
MARGIN_S = TIMING.lease_margin_s


def look(job: JobRecord, facts, seconds: float) -> JobRecord:
    return decide(job, facts, at(seconds), TIMING).job


def looks(job: JobRecord, facts, seconds: float, times: int) -> JobRecord:
    """So many looks, a sixth of the margin apart, the first at `seconds`."""
    for number in range(times):
        job = look(job, facts, seconds + number * MARGIN_S / 6)
    return job


def test_one_look_gives_nobody_up():
    """Found by a world: the look that saw the old heartbeat was hours after its lease."""
    decision = decide(a_job(Phase.RUNNING), OLD, at(9000), TIMING)
    assert (decision.job.phase, decision.instructions) == (Phase.RUNNING, ())
    assert decision.job.current.silent_s == 0
    assert decision.wake_at <= at(9000) + timedelta(seconds=MARGIN_S / 10)


def test_who_is_heard_again_begins_anew():
    silent = looks(a_job(Phase.RUNNING), OLD, 9000, 6)
    heard = look(silent, replace(UNSURE, heartbeat=a_heartbeat(9000 + MARGIN_S - 2, lease_s=60)), 9000 + MARGIN_S - 1)
    assert heard.current.silent_s is None
    assert look(heard, OLD, 9000 + MARGIN_S + 5).phase is Phase.RUNNING


def test_who_is_seen_begins_anew():
    silent = looks(a_job(Phase.RUNNING), OLD, 9000, 6)
    seen = look(silent, replace(some_facts(Seen.PRESENT), heartbeat=OLD.heartbeat), 9000 + MARGIN_S - 1)
    assert (seen.phase, seen.current.silent_s) == (Phase.RUNNING, None)


def test_the_margin_counts_from_the_end_of_the_newest_lease_that_was_seen():
    silent = looks(a_job(Phase.RUNNING), OLD, 9000, 6)
    newer = replace(UNSURE, heartbeat=a_heartbeat(9000, lease_s=10))
    assert look(silent, newer, 9010 + MARGIN_S).phase is Phase.RUNNING
    assert look(silent, newer, 9011 + MARGIN_S).phase is Phase.STOPPING


def test_silence_at_every_look_ends_the_attempt():
    assert looks(a_job(Phase.RUNNING), OLD, 9000, 6).phase is Phase.RUNNING
    assert looks(a_job(Phase.RUNNING), OLD, 9000, 7).phase is Phase.STOPPING


def test_time_in_which_nobody_looked_does_not_count():
    """A control plane that was away saw nothing of what was written meanwhile."""
    silent = look(a_job(Phase.RUNNING), OLD, 9000)
    later = look(silent, OLD, 9000 + 100 * MARGIN_S)
    assert (later.phase, later.current.silent_s) == (Phase.RUNNING, MARGIN_S / 4)


def test_looks_that_take_long_come_to_an_end():
    """Found by a world: each look waited half a minute for an answer, and the silence began anew with each."""
    job = a_job(Phase.RUNNING)
    for number in range(5):
        assert job.phase is Phase.RUNNING
        job = look(job, OLD, 9000 + number * 10 * MARGIN_S)
    assert job.phase is Phase.STOPPING


def test_an_attempt_that_is_being_ended_ends_however_seldom_anybody_looks():
    ending = looks(a_job(Phase.RUNNING), OLD, 9000, 7)
    assert ending.phase is Phase.STOPPING
    assert look(ending, replace(OLD, is_closed=True), 20_000).phase is Phase.QUEUED


def test_who_has_reported_its_end_is_gone_when_its_lease_and_the_margin_are_over():
    ended = looks(a_job(Phase.RUNNING), replace(OLD, exit=an_exit(0)), 9000, 6)
    assert ended.phase is Phase.STOPPING
    assert look(ended, replace(OLD, exit=an_exit(0)), 9000 + MARGIN_S).is_finished


def test_a_store_that_does_not_answer_says_nothing_of_silence():
    silent = looks(a_job(Phase.RUNNING), OLD, 9000, 3)
    assert look(silent, replace(OLD, store_answers=False), 9100).current.silent_s == silent.current.silent_s


def test_what_is_known_of_an_attempt_stays_known():
    told = Timeline(claimed_at=at(50), set_up_at=at(51), restored_at=at(52))
    newest = replace(UNSURE, heartbeat=replace(a_heartbeat(100, lease_s=60), timeline=told))
    known = look(a_job(Phase.RUNNING), newest, 101)
    oldest = replace(UNSURE, heartbeat=replace(a_heartbeat(50, lease_s=60), timeline=Timeline(claimed_at=at(50))))
    assert look(known, oldest, 102).current.timeline == told


def test_what_was_measured_and_read_stays_known():
    def beat(second, count, inputs):
        measured = {} if not count else {"loss": MetricSummary(count=count, last=1.0 / count)}
        return replace(UNSURE, heartbeat=replace(a_heartbeat(second, lease_s=60), metrics=measured, inputs=inputs))

    read = InputSummary(uri="s3://b/p", files=3, size_bytes=9, hash="f00d")
    warned = replace(read, warning="it changed")
    known = look(a_job(Phase.RUNNING), beat(100, 7, {"training": warned, "test": read}), 120)
    for older in (beat(50, 0, {}), beat(60, 5, {"training": read})):
        decision = decide(known, older, at(140), TIMING)
        assert (decision.job.current.metrics["loss"].count, decision.lines) == (7, ())
        assert decision.job.current.inputs == {"training": warned, "test": read}
    assert look(known, beat(130, 9, {}), 141).current.metrics["loss"].count == 9


def test_the_last_sign_of_life_is_the_latest():
    gone = replace(some_facts(Seen.GONE), is_closed=True)
    told = replace(gone, heartbeat=replace(a_heartbeat(100), metrics={"loss": MetricSummary(count=7)}))
    stopping = replace(look(a_job(Phase.RUNNING), replace(told, is_closed=False), 120), phase=Phase.STOPPING)
    ended = look(stopping, replace(gone, heartbeat=a_heartbeat(60)), 200)
    assert ended.current.metrics["loss"].count == 7
