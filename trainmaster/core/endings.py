"""How did an attempt end, in words? A signal is never success; exit 0 is never failure."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from trainmaster.core.facts import ExitReport, LaunchRefusal, Sighting, StopSeen
from trainmaster.core.job import Ending, EndingKind, Reason, StopRequest


def ending_of(report: ExitReport, stop: StopRequest | None) -> Ending:
    """What an exit report means."""
    if report.stop_seen is not None:
        return _told_to_end(report, report.stop_seen, stop)
    if report.code == 0 and report.signal is None:
        return Ending(
            kind=EndingKind.SUCCEEDED,
            reason=Reason(code="exit_0", sentence="The script ended by itself with exit code 0."),
        )
    if report.set_up_error and report.code is None and report.signal is None:
        if report.machine_is_to_blame:
            sentence = f"The machine could not run the job: {report.set_up_error}"
            return Ending(kind=EndingKind.INTERRUPTED, reason=Reason(code="machine_trouble", sentence=sentence))
        if report.environment_failed:
            return _failed("environment", f"The environment could not be made ready: {report.set_up_error}", report)
        return _failed("set_up_failed", f"The job could not be set up: {report.set_up_error}", report)
    if report.out_of_memory:
        return _failed("out_of_memory", f"The script ran out of memory: {report.out_of_memory}", report)
    if report.signal is not None:
        return _failed("signal", f"The script was ended by {report.signal}.{_said(report)}", report)
    return _failed("exit_code", f"The script ended with exit code {report.code}.{_said(report)}", report)


def lost(evidence: str) -> Ending:
    """The machine is gone and its runner left no exit record."""
    return Ending(
        kind=EndingKind.INTERRUPTED,
        reason=Reason(
            code="machine_lost",
            sentence="The machine or its runner vanished before the script ended.",
            evidence={"seen": evidence},
        ),
    )


def never_started(evidence: str) -> Ending:
    """The machine came and went, or stayed, without a runner claiming the attempt."""
    return Ending(
        kind=EndingKind.INTERRUPTED,
        reason=Reason(
            code="never_started",
            sentence="The machine was there, but no runner claimed the attempt.",
            evidence={"seen": evidence},
        ),
    )


def in_the_providers_words(ending: Ending, seen: Sighting) -> Ending:
    """Whoever took the machine back knows better why the attempt was interrupted than those who saw it vanish."""
    if ending.kind is not EndingKind.INTERRUPTED or not seen.preempted:
        return ending
    sentence = f"The provider took the machine back: {seen.preempted}."
    evidence = {**ending.reason.evidence, "seen": seen.evidence}
    return Ending(kind=ending.kind, reason=Reason(code="preempted", sentence=sentence, evidence=evidence))


def stopped(stop: StopRequest) -> Ending:
    """Somebody asked for the end."""
    return Ending(kind=EndingKind.STOPPED, reason=stop.reason)


def refused(refusal: LaunchRefusal) -> Ending:
    """The provider said no."""
    if refusal.is_final:
        return Ending(kind=EndingKind.REFUSED, reason=Reason(code="launch_refused", sentence=refusal.sentence))
    return Ending(kind=EndingKind.NO_CAPACITY, reason=Reason(code="no_capacity", sentence=refusal.sentence))


def _told_to_end(report: ExitReport, why: StopSeen, stop: StopRequest | None) -> Ending:
    evidence = _exit_evidence(report)
    match why:
        case StopSeen.ORDER:
            reason = stop.reason if stop is not None else Reason(code="stopped", sentence="The job was told to stop.")
            return Ending(kind=EndingKind.STOPPED, reason=replace(reason, evidence={**reason.evidence, **evidence}))
        case StopSeen.RUN_LIMIT:
            sentence = "The job used up its running time (limits.run)."
            return Ending(kind=EndingKind.STOPPED, reason=Reason(code="run_limit", sentence=sentence, evidence=evidence))
        case StopSeen.TERMINATED:
            sentence = "The machine told its runner to end (SIGTERM) before the script was done."
            return Ending(kind=EndingKind.INTERRUPTED, reason=Reason(code="terminated", sentence=sentence, evidence=evidence))
        case StopSeen.CLOSED:
            sentence = "The runner found its attempt closed and ended."
            return Ending(kind=EndingKind.INTERRUPTED, reason=Reason(code="closed", sentence=sentence, evidence=evidence))
        case _:
            assert_never(why)


def _failed(code: str, sentence: str, report: ExitReport) -> Ending:
    evidence = _exit_evidence(report)
    for name, text in (
        ("failure", report.failure),
        ("traceback", report.traceback),
        ("out_of_memory", report.out_of_memory),
    ):
        if text:
            evidence[name] = text
    return Ending(kind=EndingKind.FAILED, reason=Reason(code=code, sentence=sentence, evidence=evidence))


def _exit_evidence(report: ExitReport) -> dict[str, str]:
    evidence: dict[str, str] = {}
    if report.code is not None:
        evidence["exit_code"] = str(report.code)
    if report.signal is not None:
        evidence["signal"] = report.signal
    if report.max_rss_bytes:
        evidence["max_rss_mb"] = str(report.max_rss_bytes // 1_000_000)
    return evidence


def _said(report: ExitReport) -> str:
    """The script's own words: output/failure first, else the last line of its traceback."""
    words = report.failure.strip() or (report.traceback.strip().splitlines() or [""])[-1]
    if not words:
        return ""
    return f" It said: {words[:300]}" + ("" if words[-1] in ".!?" else ".")
