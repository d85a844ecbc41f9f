"""Which values can turn up? Hypothesis strategies for records, facts and reports, as odd as the types allow."""

from hypothesis import strategies as st
from msgspec.structs import replace

from trainmaster.core.facts import ClaimState, ExitReport, Facts, Heartbeat, Seen, Sighting, StopSeen
from trainmaster.core.job import Attempt, EndingKind, JobRecord, Phase, Timeline
from trainmaster.spec.job_spec import Limits, Retry
from trainmaster.testing.builders import a_commit, a_job, a_placement, a_refusal, a_spec, a_stop, an_attempt, an_ending, at

SECONDS = st.integers(-50 * 10**6, 2000 * 10**6).map(lambda microseconds: microseconds / 10**6)
MOMENTS = SECONDS.map(at)
MAYBE_MOMENTS = st.none() | MOMENTS
TIMELINES = st.builds(
    Timeline,
    claimed_at=MAYBE_MOMENTS,
    set_up_at=MAYBE_MOMENTS,
    restored_at=MAYBE_MOMENTS,
    exited_at=MAYBE_MOMENTS,
    uploaded_at=MAYBE_MOMENTS,
    last_seen_at=MAYBE_MOMENTS,
)
WORDS = st.sampled_from(["", "oh no", "Traceback:\n  ValueError: 3\n", "\n \n"])
REPORTS = st.builds(
    ExitReport,
    timeline=TIMELINES,
    code=st.none() | st.sampled_from([0, 1, 2, 137, 255]),
    signal=st.none() | st.sampled_from(["SIGKILL", "SIGTERM", "SIGSEGV"]),
    stop_seen=st.none() | st.sampled_from(StopSeen),
    set_up_error=WORDS,
    failure=WORDS,
    traceback=WORDS,
    out_of_memory=WORDS,
    max_rss_bytes=st.sampled_from([0, 10**9]),
)
HEARTBEATS = st.builds(
    lambda seconds, lease_s, timeline: Heartbeat(at=at(seconds), lease_until=at(seconds + lease_s), state="x", timeline=timeline),
    SECONDS,
    st.integers(0, 90),
    TIMELINES,
)
STOPS = st.builds(a_stop, seconds=SECONDS)


@st.composite
def facts_about(draw: st.DrawFn, attempt: int) -> Facts:
    """Anything that may be observed of an attempt, contradictions included."""
    commits = st.builds(a_commit, st.integers(1, max(1, attempt)), st.integers(1, 4), seconds=SECONDS)
    return Facts(
        allocation=Sighting(
            seen=draw(st.sampled_from([Seen.GONE, *Seen])),
            was_launched=draw(st.booleans()),
            runner_has_ended=draw(st.booleans()),
            evidence="drawn",
        ),
        store_answers=draw(st.sampled_from([True, True, True, False])),
        claim=draw(st.sampled_from(ClaimState)),
        is_closed=draw(st.booleans()),
        heartbeat=draw(st.none() | HEARTBEATS),
        exit=draw(st.none() | REPORTS),
        commit=draw(st.none() | commits),
        refusal=draw(st.none() | st.builds(a_refusal, is_final=st.booleans())),
        confirms_gone=draw(st.booleans()),
    )


LIMIT = st.none() | st.sampled_from([0.0, 1 / 3, 50.0, 500.0])
SPECS = st.builds(
    a_spec,
    retry=st.builds(Retry, failures=st.integers(0, 2), interruptions=st.integers(0, 2)),
    limits=st.builds(Limits, queue=LIMIT, wait=LIMIT, run=LIMIT, grace=st.sampled_from([0.0, 30.0])),
)


@st.composite
def ended_attempts(draw: st.DrawFn, failures: int, interruptions: int) -> tuple[Attempt, ...]:
    """Attempts that are over, within the budgets; their moments in order, what their runners say of time in any."""
    left = {EndingKind.FAILED: failures, EndingKind.INTERRUPTED: interruptions}
    found: list[Attempt] = []
    clock = 0.0
    for number in range(1, draw(st.integers(0, 3)) + 1):
        kinds = [EndingKind.NO_CAPACITY, *(kind for kind, budget in left.items() if budget)]
        kind = draw(st.sampled_from(kinds))
        left[kind] = left.get(kind, 1) - 1
        placed = clock + draw(st.integers(0, 40))
        clock = placed + draw(st.integers(0, 300))
        head = draw(st.none() | st.builds(a_commit, st.just(number), st.integers(1, 3), seconds=SECONDS))
        timeline = draw(TIMELINES)
        found.append(an_attempt(number, placed=placed, ended=clock, ending=an_ending(kind), timeline=timeline, head=head))
    return tuple(found)


@st.composite
def jobs(draw: st.DrawFn, *phases: Phase) -> JobRecord:
    """A valid record in one of the phases; all of them when none is named."""
    phase = draw(st.sampled_from(phases or tuple(Phase)))
    spec = draw(SPECS)
    attempts = draw(ended_attempts(spec.retry.failures, spec.retry.interruptions))
    if phase not in {Phase.QUEUED, Phase.FINISHED}:
        last = max((a.ended_at for a in attempts if a.ended_at is not None), default=at(0))
        placed = (last - at(0)).total_seconds() + draw(st.integers(0, 40))
        number = len(attempts) + 1
        head = draw(st.none() | st.builds(a_commit, st.just(number), st.integers(1, 3), seconds=SECONDS))
        attempts = (*attempts, an_attempt(number, placed=placed, timeline=draw(TIMELINES), head=head))
    ending = an_ending(draw(st.sampled_from(EndingKind)))
    job = a_job(phase, spec=spec, attempts=attempts, ending=ending, stop=draw(STOPS) if draw(st.integers(0, 3)) == 0 else None)
    if phase is Phase.QUEUED:
        job = replace(job, not_before=draw(MAYBE_MOMENTS), waits_for=draw(st.sampled_from(["", "1 CPU; 0 free"])))
    return job


PLACEMENTS = st.builds(a_placement, cpus=st.sampled_from([0.5, 1.0]), gpus=st.sampled_from([(), (0,), (0, 1)]))
