import pytest
from core_strategies import REPORTS, STOPS
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from trainmaster.core import endings
from trainmaster.core.facts import ExitReport, Seen, Sighting, StopSeen
from trainmaster.core.job import EndingKind, Reason
from trainmaster.testing.builders import a_refusal, a_stop, a_timeline, an_exit


def _report(**fields) -> ExitReport:
    return ExitReport(timeline=a_timeline(), **fields)


ROWS = [
    # report → kind, code, sentence
    (_report(code=0), EndingKind.SUCCEEDED, "exit_0", "The script ended by itself with exit code 0."),
    (_report(code=0, out_of_memory="once"), EndingKind.SUCCEEDED, "exit_0", "The script ended by itself with exit code 0."),
    (_report(code=0, signal="SIGTERM"), EndingKind.FAILED, "signal", "The script was ended by SIGTERM."),
    (_report(code=3), EndingKind.FAILED, "exit_code", "The script ended with exit code 3."),
    (
        _report(code=3, failure=" bad data\n"),
        EndingKind.FAILED,
        "exit_code",
        "The script ended with exit code 3. It said: bad data.",
    ),
    (
        _report(code=1, traceback="Traceback:\n  File\nValueError: 3\n"),
        EndingKind.FAILED,
        "exit_code",
        "The script ended with exit code 1. It said: ValueError: 3.",
    ),
    (
        _report(code=1, failure="mine!", traceback="theirs"),
        EndingKind.FAILED,
        "exit_code",
        "The script ended with exit code 1. It said: mine!",
    ),
    (_report(signal="SIGSEGV"), EndingKind.FAILED, "signal", "The script was ended by SIGSEGV."),
    (
        _report(signal="SIGKILL", out_of_memory="2 GiB of 2 GiB."),
        EndingKind.FAILED,
        "out_of_memory",
        "The script ran out of memory: 2 GiB of 2 GiB.",
    ),
    (
        _report(set_up_error="No space left on device", machine_is_to_blame=True),
        EndingKind.INTERRUPTED,
        "machine_trouble",
        "The machine could not run the job: No space left on device",
    ),
    (
        _report(set_up_error="no numpy.", environment_failed=True),
        EndingKind.FAILED,
        "environment",
        "The environment could not be made ready: no numpy.",
    ),
    (_report(set_up_error="no code."), EndingKind.FAILED, "set_up_failed", "The job could not be set up: no code."),
    (_report(code=0, set_up_error="no room."), EndingKind.SUCCEEDED, "exit_0", "The script ended by itself with exit code 0."),
    (_report(code=0, stop_seen=StopSeen.ORDER), EndingKind.STOPPED, "stopped", "The job was told to stop."),
    (
        _report(code=0, stop_seen=StopSeen.RUN_LIMIT),
        EndingKind.STOPPED,
        "run_limit",
        "The job used up its running time (limits.run).",
    ),
    (
        _report(signal="SIGTERM", stop_seen=StopSeen.TERMINATED),
        EndingKind.INTERRUPTED,
        "terminated",
        "The machine told its runner to end (SIGTERM) before the script was done.",
    ),
    (
        _report(stop_seen=StopSeen.CLOSED),
        EndingKind.INTERRUPTED,
        "closed",
        "The runner found its attempt closed and ended.",
    ),
]


@pytest.mark.parametrize(("report", "kind", "code", "sentence"), ROWS)
def test_what_an_exit_report_means(report, kind, code, sentence):
    ending = endings.ending_of(report, None)
    assert (ending.kind, ending.reason.code, ending.reason.sentence) == (kind, code, sentence)


def test_an_ordered_stop_carries_the_reason_of_who_asked_and_the_evidence_of_both():
    stop = replace(a_stop(), reason=Reason(code="cost", sentence="Too dear.", evidence={"by": "rule 3"}))
    ending = endings.ending_of(an_exit(143, stop_seen=StopSeen.ORDER), stop)
    assert ending.reason == Reason(code="cost", sentence="Too dear.", evidence={"by": "rule 3", "exit_code": "143"})
    assert endings.stopped(stop).reason == stop.reason


def test_a_failure_shows_everything_it_rests_on():
    report = _report(code=1, failure="f", traceback="t", out_of_memory="m", max_rss_bytes=5_900_000)
    assert endings.ending_of(report, None).reason.evidence == {
        "exit_code": "1",
        "max_rss_mb": "5",
        "failure": "f",
        "traceback": "t",
        "out_of_memory": "m",
    }


@pytest.mark.parametrize(
    ("ending", "kind", "code"),
    [
        (endings.lost("seen"), EndingKind.INTERRUPTED, "machine_lost"),
        (endings.never_started("seen"), EndingKind.INTERRUPTED, "never_started"),
        (endings.refused(a_refusal()), EndingKind.NO_CAPACITY, "no_capacity"),
        (endings.refused(a_refusal(is_final=True)), EndingKind.REFUSED, "launch_refused"),
    ],
)
def test_endings_without_a_report(ending, kind, code):
    assert (ending.kind, ending.reason.code) == (kind, code)


TAKEN_BACK = Sighting(seen=Seen.GONE, evidence="the fleet said so", preempted="preempted at noon")


@pytest.mark.parametrize(
    "ending",
    [
        endings.lost("seen"),
        endings.never_started("seen"),
        endings.ending_of(_report(code=143, stop_seen=StopSeen.TERMINATED), None),
    ],
)
def test_an_interruption_is_told_in_the_words_of_whoever_took_the_machine_back(ending):
    told = endings.in_the_providers_words(ending, TAKEN_BACK)
    assert told.kind is EndingKind.INTERRUPTED
    assert told.reason.code == "preempted"
    assert told.reason.sentence == "The provider took the machine back: preempted at noon."
    assert told.reason.evidence == {**ending.reason.evidence, "seen": "the fleet said so"}
    assert endings.in_the_providers_words(ending, replace(TAKEN_BACK, preempted="")) == ending


@pytest.mark.parametrize("report", [_report(code=0), _report(code=3), _report(code=0, stop_seen=StopSeen.ORDER)])
def test_what_ended_before_the_machine_was_taken_back_is_no_preemption(report):
    ending = endings.ending_of(report, a_stop())
    assert endings.in_the_providers_words(ending, TAKEN_BACK) == ending


@given(REPORTS, st.none() | STOPS)
def test_safety_a_signal_is_never_success_and_exit_0_is_never_failure(report, stop):
    kind = endings.ending_of(report, stop).kind
    if report.signal is not None or report.code != 0:
        assert kind is not EndingKind.SUCCEEDED
    elif not report.set_up_error:
        assert kind is not EndingKind.FAILED


@given(REPORTS, st.none() | STOPS)
def test_safety_every_ending_says_why_in_a_sentence(report, stop):
    reason = endings.ending_of(report, stop).reason
    assert reason.code
    assert reason.sentence.strip()
    assert all(reason.evidence.values())
