from datetime import timedelta

import pytest
from msgspec.structs import replace

from trainmaster.core import invariants
from trainmaster.core.decide import Decision, decide, place, request_stop
from trainmaster.core.facts import NOBODY_KNOWS, ClaimState, Facts, Seen, StopSeen
from trainmaster.core.instructions import CloseAttempt, Launch, OpenAttempt, OrderStop, Release, Seal
from trainmaster.core.job import EndingKind, JobRecord, Outcome, Phase, allocation_name, parse_allocation_name
from trainmaster.spec.job_spec import Limits, Retry
from trainmaster.testing.builders import (
    TIMING,
    a_commit,
    a_heartbeat,
    a_job,
    a_placement,
    a_refusal,
    a_spec,
    a_stop,
    a_timeline,
    an_attempt,
    an_ending,
    an_exit,
    at,
    some_facts,
    store_away,
)

# One line for each phase × what the provider says × what the store says: the next phase and every instruction, first without and
# then with a stop that was asked for ten seconds ago. "never": gone, and the provider never launched it. "shut": claimed, and told
# to end by us. "exit1": ended with code 1, with one failure left to spend. "away": the store gives no answer.
TABLE = """
phase    machine store  | next: instructions       | the same when a stop was asked for
placing  present free   | starting: -              | stopping: close release
placing  present taken  | running: -               | running: order
placing  present closed | starting: -              | stopping: close release
placing  present shut   | running: -               | running: order
placing  present exit0  | stopping: close release  | stopping: close release
placing  present exit1  | stopping: close release  | stopping: close release
placing  present away   | starting: -              | starting: order
placing  gone    free   | stopping: close release  | stopping: close release
placing  gone    taken  | stopping: close release  | stopping: close release
placing  gone    closed | queued: release          | finished: release seal
placing  gone    shut   | queued: release          | finished: release seal
placing  gone    exit0  | finished: release seal   | finished: release seal
placing  gone    exit1  | queued: release          | finished: release seal
placing  gone    away   | placing: -               | placing: order
placing  never   free   | placing: open launch     | stopping: close release
placing  never   taken  | stopping: close release  | stopping: close release
placing  never   closed | queued: release          | finished: release seal
placing  never   shut   | queued: release          | finished: release seal
placing  never   exit0  | finished: release seal   | finished: release seal
placing  never   exit1  | queued: release          | finished: release seal
placing  never   away   | placing: -               | placing: order
placing  unknown free   | placing: -               | stopping: close release
placing  unknown taken  | running: -               | running: order
placing  unknown closed | placing: -               | stopping: close release
placing  unknown shut   | running: -               | running: order
placing  unknown exit0  | stopping: close release  | stopping: close release
placing  unknown exit1  | stopping: close release  | stopping: close release
placing  unknown away   | placing: -               | placing: order
starting present free   | starting: -              | stopping: close release
starting present taken  | running: -               | running: order
starting present closed | starting: -              | stopping: close release
starting present shut   | running: -               | running: order
starting present exit0  | stopping: close release  | stopping: close release
starting present exit1  | stopping: close release  | stopping: close release
starting present away   | starting: -              | starting: order
starting gone    free   | stopping: close release  | stopping: close release
starting gone    taken  | stopping: close release  | stopping: close release
starting gone    closed | queued: release          | finished: release seal
starting gone    shut   | queued: release          | finished: release seal
starting gone    exit0  | finished: release seal   | finished: release seal
starting gone    exit1  | queued: release          | finished: release seal
starting gone    away   | starting: -              | starting: order
starting never   free   | stopping: close release  | stopping: close release
starting never   taken  | stopping: close release  | stopping: close release
starting never   closed | queued: release          | finished: release seal
starting never   shut   | queued: release          | finished: release seal
starting never   exit0  | finished: release seal   | finished: release seal
starting never   exit1  | queued: release          | finished: release seal
starting never   away   | starting: -              | starting: order
starting unknown free   | starting: -              | stopping: close release
starting unknown taken  | running: -               | running: order
starting unknown closed | starting: -              | stopping: close release
starting unknown shut   | running: -               | running: order
starting unknown exit0  | stopping: close release  | stopping: close release
starting unknown exit1  | stopping: close release  | stopping: close release
starting unknown away   | starting: -              | starting: order
running  present free   | running: -               | running: order
running  present taken  | running: -               | running: order
running  present closed | running: -               | running: order
running  present shut   | running: -               | running: order
running  present exit0  | stopping: close release  | stopping: close release
running  present exit1  | stopping: close release  | stopping: close release
running  present away   | running: -               | running: order
running  gone    free   | stopping: close release  | stopping: close release
running  gone    taken  | stopping: close release  | stopping: close release
running  gone    closed | queued: release          | finished: release seal
running  gone    shut   | queued: release          | finished: release seal
running  gone    exit0  | finished: release seal   | finished: release seal
running  gone    exit1  | queued: release          | finished: release seal
running  gone    away   | running: -               | running: order
running  never   free   | stopping: close release  | stopping: close release
running  never   taken  | stopping: close release  | stopping: close release
running  never   closed | queued: release          | finished: release seal
running  never   shut   | queued: release          | finished: release seal
running  never   exit0  | finished: release seal   | finished: release seal
running  never   exit1  | queued: release          | finished: release seal
running  never   away   | running: -               | running: order
running  unknown free   | running: -               | running: order
running  unknown taken  | running: -               | running: order
running  unknown closed | running: -               | running: order
running  unknown shut   | running: -               | running: order
running  unknown exit0  | stopping: close release  | stopping: close release
running  unknown exit1  | stopping: close release  | stopping: close release
running  unknown away   | running: -               | running: order
stopping present free   | stopping: close release  | stopping: close release
stopping present taken  | stopping: close release  | stopping: close release
stopping present closed | stopping: close release  | stopping: close release
stopping present shut   | stopping: close release  | stopping: close release
stopping present exit0  | stopping: close release  | stopping: close release
stopping present exit1  | stopping: close release  | stopping: close release
stopping present away   | stopping: close release  | stopping: close release
stopping gone    free   | stopping: close release  | stopping: close release
stopping gone    taken  | stopping: close release  | stopping: close release
stopping gone    closed | queued: release          | finished: release seal
stopping gone    shut   | queued: release          | finished: release seal
stopping gone    exit0  | finished: release seal   | finished: release seal
stopping gone    exit1  | queued: release          | finished: release seal
stopping gone    away   | stopping: close release  | stopping: close release
stopping never   free   | stopping: close release  | stopping: close release
stopping never   taken  | stopping: close release  | stopping: close release
stopping never   closed | queued: release          | finished: release seal
stopping never   shut   | queued: release          | finished: release seal
stopping never   exit0  | finished: release seal   | finished: release seal
stopping never   exit1  | queued: release          | finished: release seal
stopping never   away   | stopping: close release  | stopping: close release
stopping unknown free   | stopping: close release  | stopping: close release
stopping unknown taken  | stopping: close release  | stopping: close release
stopping unknown closed | stopping: close release  | stopping: close release
stopping unknown shut   | stopping: close release  | stopping: close release
stopping unknown exit0  | stopping: close release  | stopping: close release
stopping unknown exit1  | stopping: close release  | stopping: close release
stopping unknown away   | stopping: close release  | stopping: close release
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()[1:]]
MACHINES = {
    "present": (Seen.PRESENT, True),
    "gone": (Seen.GONE, True),
    "never": (Seen.GONE, False),
    "unknown": (Seen.UNKNOWN, False),
}
WORDS = {OpenAttempt: "open", Launch: "launch", OrderStop: "order", CloseAttempt: "close", Release: "release", Seal: "seal"}
HELD = (Phase.PLACING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


def _facts(machine: str, store: str) -> Facts:
    seen, was_launched = MACHINES[machine]
    if store == "away":
        return store_away(seen, was_launched=was_launched)
    if store == "shut":
        return replace(some_facts(seen, was_launched=was_launched), is_closed=True)
    if store.startswith("exit"):
        return some_facts(seen, was_launched=was_launched, exit=an_exit(int(store[4:])))
    return some_facts(seen, ClaimState(store), was_launched=was_launched)


def _words(decision: Decision) -> str:
    return f"{decision.job.phase.value}: {' '.join(WORDS[type(i)] for i in decision.instructions) or '-'}"


def _decide(job: JobRecord, facts: Facts, seconds: float = 60.0) -> Decision:
    decision = decide(job, facts, at(seconds), TIMING)
    invariants.check(decision.job)
    return decision


def _events(decision: Decision) -> list[str]:
    return [line.event for line in decision.lines]


@pytest.mark.parametrize(("given", "expected", "when_stopped"), ROWS, ids=[row[0] for row in ROWS])
def test_the_next_step_and_nothing_else(given, expected, when_stopped):
    phase, machine, store = given.split()
    for stop, wanted in ((None, expected), (a_stop(seconds=50), when_stopped)):
        job = a_job(Phase(phase), spec=a_spec(retry=Retry(failures=1)), stop=stop)
        decision = _decide(job, _facts(machine, store))
        assert _words(decision) == wanted
        assert decision.wake_at is not None
        assert decision.wake_at >= at(60)
        assert bool(decision.lines) == (decision.job.phase is not job.phase), "a line for each transition, and only then"


def test_the_table_is_complete():
    assert len(ROWS) == len({row[0] for row in ROWS}) == len(HELD) * len(MACHINES) * 7


# Queued, finished, and the two other doors: place and request_stop.

QUEUED_ROWS = [
    # limits, not_before, now → outcome, reason, wake
    (Limits(), None, 10, None, None, 3610),
    (Limits(), 15, 10, None, None, 15),
    (Limits(), 15, 20, None, None, 3620),
    (Limits(queue=100), None, 10, None, None, 100),
    (Limits(queue=100, wait=50), None, 10, None, None, 50),
    (Limits(queue=100), None, 100, Outcome.STOPPED, "queue_limit", 100),
    (Limits(wait=100), None, 200, Outcome.STOPPED, "wait_limit", 200),
    (Limits(wait=0), None, 0, Outcome.STOPPED, "wait_limit", 0),
    (Limits(queue=1 / 3), None, 0.333333, Outcome.STOPPED, "queue_limit", 0.333333),  # less left than a clock can tell
]


@pytest.mark.parametrize(("limits", "not_before", "now", "outcome", "code", "wake"), QUEUED_ROWS)
def test_waiting_in_the_queue(limits, not_before, now, outcome, code, wake):
    job = replace(a_job(spec=a_spec(limits=limits)), not_before=None if not_before is None else at(not_before))
    decision = _decide(job, NOBODY_KNOWS, now)
    assert (decision.job.outcome, decision.job.reason and decision.job.reason.code) == (outcome, code)
    assert decision.wake_at == at(wake)
    assert _words(decision) == ("queued: -" if outcome is None else "finished: seal")


def test_total_waiting_counts_the_waits_of_all_attempts():
    job = a_job(spec=a_spec(limits=Limits(wait=50)), attempts=(an_attempt(placed=30, ended=40),))
    assert _decide(job, NOBODY_KNOWS, 45).wake_at == at(50)  # 30 s in the queue and 10 s placing so far, and 5 since
    assert _decide(job, NOBODY_KNOWS, 50).job.outcome is Outcome.STOPPED


def test_a_stop_ends_a_queued_job_at_once():
    decision = _decide(a_job(stop=a_stop()), NOBODY_KNOWS)
    assert (_words(decision), decision.job.outcome, _events(decision)) == ("finished: seal", Outcome.STOPPED, ["stopped"])


@pytest.mark.parametrize("job", [a_job(Phase.FINISHED), a_job(Phase.FINISHED, attempts=())])
@pytest.mark.parametrize("facts", [NOBODY_KNOWS, some_facts(exit=an_exit(1)), some_facts(Seen.GONE, commit=a_commit())])
def test_a_finished_job_is_given_back_and_sealed_again_and_never_changes(job, facts):
    decision = _decide(job, facts, 1e6)
    assert (decision.job, decision.wake_at, decision.lines) == (job, None, ())
    assert _words(decision) == ("finished: release seal" if job.attempts else "finished: seal")


def test_placing_opens_the_next_attempt_from_the_accepted_head():
    commit = a_commit(1, 3, step=40)
    job = a_job(attempts=(an_attempt(ended=50, head=commit),))
    decision = place(job, a_placement(gpus=(0, 1)), at(60))
    assert invariants.check(decision.job).phase is Phase.PLACING
    assert decision.instructions == (
        OpenAttempt(job_id=job.id, attempt=2, resumes=commit, heads=("1-000003",)),
        Launch(name=allocation_name(job.id, 2), job_id=job.id, attempt=2, placement=a_placement(gpus=(0, 1)), run_s_left=None),
    )
    assert (decision.wake_at, _events(decision)) == (at(60), ["placed", "resumes"])
    assert [line.sentence for line in decision.lines] == [
        "Attempt 2 goes to local: 1 CPU, GPU 0,1.",
        "It resumes from checkpoint 1-000003 at step 40.",
    ]


def test_a_checkpoint_without_a_step_is_resumed_without_saying_one():
    job = a_job(attempts=(an_attempt(ended=50, head=a_commit()),))
    assert place(job, a_placement(), at(60)).lines[1].sentence == "It resumes from checkpoint 1-000001."


def test_a_launch_says_how_much_running_time_is_left():
    ran = an_attempt(ended=50, timeline=a_timeline(claimed=1, set_up=2, restored=10, last_seen=40))
    job = a_job(spec=a_spec(limits=Limits(run=100)), attempts=(ran,))
    assert [i.run_s_left for i in place(job, a_placement(), at(60)).instructions if isinstance(i, Launch)] == [70.0]


def test_a_job_that_shall_stop_is_not_placed():
    job = a_job(stop=a_stop())
    assert place(job, a_placement(), at(60)) == Decision(job=job, wake_at=at(60))


@pytest.mark.parametrize("phase", [*HELD, Phase.FINISHED])
def test_only_queued_jobs_are_placed(phase):
    with pytest.raises(AssertionError, match="not queued"):
        place(a_job(phase), a_placement(), at(60))


@pytest.mark.parametrize("phase", [Phase.QUEUED, *HELD])
def test_a_stop_is_remembered_and_told(phase):
    decision = request_stop(a_job(phase), a_stop(seconds=10))
    assert (decision.job.phase, decision.job.stop) == (phase, a_stop(seconds=10))
    assert (decision.instructions, decision.wake_at, _events(decision)) == ((), at(10), ["stop_requested"])


@pytest.mark.parametrize("job", [a_job(Phase.FINISHED), a_job(Phase.RUNNING, stop=a_stop())])
def test_a_second_stop_changes_nothing(job):
    assert request_stop(job, a_stop(seconds=10, by="eve")) == Decision(job=job)


# Refused launches.


def test_a_refused_launch_closes_the_attempt_before_it_tries_again():
    refused = _decide(
        a_job(Phase.PLACING), replace(some_facts(Seen.GONE, ClaimState.FREE, was_launched=False), refusal=a_refusal())
    )
    assert (_words(refused), _events(refused)) == ("stopping: close release", ["ending"])
    again = _decide(refused.job, some_facts(Seen.GONE, ClaimState.CLOSED), 61)
    assert (_words(again), _events(again)) == ("queued: release", ["no_capacity"])
    assert (again.job.failures, again.job.interruptions, again.job.current.charged) == (0, 0, None)
    assert again.lines[0].rule == "capacity"
    assert again.job.not_before == again.wake_at == at(63)


@pytest.mark.parametrize(("stop", "outcome"), [(None, Outcome.FAILED), (a_stop(), Outcome.STOPPED)])
def test_a_launch_refused_for_good_is_not_retried(stop, outcome):
    job = a_job(Phase.PLACING, spec=a_spec(retry=Retry(failures=5)), stop=stop)
    refused = _decide(job, replace(some_facts(Seen.GONE, ClaimState.FREE, was_launched=False), refusal=a_refusal(is_final=True)))
    finished = _decide(refused.job, some_facts(Seen.GONE, ClaimState.CLOSED), 61)
    assert (_words(finished), finished.job.outcome) == ("finished: release seal", outcome)


@pytest.mark.parametrize("facts", [some_facts(Seen.PRESENT), some_facts(Seen.UNKNOWN)])
def test_a_refusal_means_nothing_when_an_earlier_launch_is_seen_to_have_worked(facts):
    assert _words(_decide(a_job(Phase.PLACING), replace(facts, refusal=a_refusal(is_final=True)))) == "running: -"


# Machines that nobody can confirm gone, and runners that do not come or do not obey.

UNSURE = replace(some_facts(Seen.UNKNOWN), confirms_gone=False)
RUNNERLESS = replace(some_facts(), allocation=replace(some_facts().allocation, runner_has_ended=True))
LEASE_ROWS = [
    # phase, facts, now → what happens
    (Phase.RUNNING, replace(UNSURE, heartbeat=a_heartbeat(60)), 150, "running: -"),  # lease until 120, margin 30
    (Phase.RUNNING, replace(UNSURE, heartbeat=a_heartbeat(60)), 151, "stopping: close release"),
    (Phase.RUNNING, replace(UNSURE, heartbeat=a_heartbeat(60), is_closed=True), 151, "queued: release"),
    (Phase.RUNNING, replace(UNSURE, heartbeat=a_heartbeat(60), confirms_gone=True), 1e5, "running: -"),
    (Phase.RUNNING, replace(UNSURE, heartbeat=a_heartbeat(60), store_answers=False), 1e5, "running: -"),
    (Phase.STOPPING, replace(UNSURE, heartbeat=a_heartbeat(60), is_closed=True), 150, "stopping: close release"),
    (Phase.STOPPING, replace(UNSURE, heartbeat=a_heartbeat(60), is_closed=True), 151, "queued: release"),
    (Phase.STARTING, UNSURE, 630, "running: -"),  # start 600, margin 30
    (Phase.STARTING, UNSURE, 631, "stopping: close release"),
    (Phase.PLACING, replace(UNSURE, claim=ClaimState.FREE), 630, "placing: -"),
    (Phase.PLACING, replace(UNSURE, claim=ClaimState.FREE), 631, "placing: close"),  # whoever wins the claim decides
    (Phase.PLACING, replace(UNSURE, claim=ClaimState.CLOSED), 631, "queued: release"),
    (Phase.STARTING, some_facts(Seen.PRESENT, ClaimState.FREE), 600, "starting: -"),
    (Phase.STARTING, some_facts(Seen.PRESENT, ClaimState.FREE), 601, "starting: close"),
    (Phase.STARTING, some_facts(Seen.PRESENT, ClaimState.CLOSED), 601, "stopping: close release"),
    (Phase.STARTING, store_away(Seen.PRESENT), 1e5, "starting: -"),
    (Phase.STARTING, RUNNERLESS, 60, "stopping: close release"),
    (Phase.RUNNING, RUNNERLESS, 60, "stopping: close release"),
    (Phase.STOPPING, replace(RUNNERLESS, is_closed=True), 60, "stopping: close release"),  # its machine is still there
    (Phase.RUNNING, replace(RUNNERLESS, store_answers=False), 60, "running: -"),
]


@pytest.mark.parametrize(("phase", "facts", "now", "expected"), LEASE_ROWS)
def test_what_counts_as_gone_and_as_never_started(phase, facts, now, expected):
    job = a_job(phase)
    silent = replace(job, attempts=(replace(job.current, silent_s=TIMING.lease_margin_s),), updated_at=at(min(now, 150)))
    assert _words(_decide(silent, facts, now)) == expected


def test_a_runner_that_vanished_was_last_seen_at_its_last_heartbeat():
    facts = replace(some_facts(Seen.GONE, heartbeat=a_heartbeat(70)), is_closed=True)
    assert _decide(a_job(Phase.RUNNING), facts, 200).job.current.timeline.last_seen_at == at(70)


@pytest.mark.parametrize("facts", [some_facts(), store_away(), store_away(Seen.GONE)])
def test_a_machine_whose_runner_does_not_obey_is_taken_away(facts):
    job = a_job(Phase.RUNNING, stop=a_stop(seconds=10))
    asked = _decide(job, facts, 69)
    assert (_words(asked), asked.wake_at) == ("running: order", at(70))  # grace 30, margin 30
    taken = _decide(asked.job, facts, 70)
    assert (_words(taken), _events(taken)) == ("stopping: close release", ["ending"])
    done = _decide(taken.job, replace(some_facts(Seen.GONE), is_closed=True), 72)
    assert (done.job.outcome, done.job.reason.sentence) == (Outcome.STOPPED, "Enough. The runner did not answer within its grace.")


@pytest.mark.parametrize(
    ("pending", "report", "outcome"),
    [
        (EndingKind.STOPPED, an_exit(0), Outcome.SUCCEEDED),
        (EndingKind.INTERRUPTED, an_exit(0), Outcome.SUCCEEDED),
        (EndingKind.INTERRUPTED, an_exit(1), Outcome.FAILED),
        (EndingKind.NO_CAPACITY, an_exit(0), Outcome.SUCCEEDED),
        (EndingKind.STOPPED, an_exit(None, stop_seen=StopSeen.CLOSED), Outcome.STOPPED),
        (EndingKind.REFUSED, an_exit(None, stop_seen=StopSeen.CLOSED), Outcome.FAILED),
    ],
)
def test_a_runners_own_words_beat_what_was_inferred(pending, report, outcome):
    job = a_job(Phase.STOPPING, ending=an_ending(pending))
    assert _decide(job, some_facts(Seen.GONE, exit=report)).job.outcome is outcome


# The running time.

RAN = a_heartbeat(1000, timeline=a_timeline(claimed=5, set_up=6, restored=10))
RUN_ROWS = [
    # facts, now → what happens; the limit is 1000 s, so 10 + 1000 + the margin of 30
    (some_facts(heartbeat=RAN), 1039, "running: -"),
    (some_facts(heartbeat=RAN), 1040, "running: order"),
    (some_facts(Seen.UNKNOWN, heartbeat=RAN), 1040, "running: order"),  # its lease runs until 1060
    (some_facts(Seen.UNKNOWN, heartbeat=RAN), 1060, "running: -"),  # nobody knows whether it still runs
    (
        some_facts(Seen.PRESENT, heartbeat=RAN),
        1060,
        "running: -",
    ),  # the machine is there; its runner may be cut off, and wait to tell
    (store_away(), 9999, "running: -"),
    (store_away(Seen.PRESENT), 9999, "running: -"),
    (store_away(Seen.GONE), 9999, "running: -"),
]


@pytest.mark.parametrize(("facts", "now", "expected"), RUN_ROWS)
def test_running_time_is_used_up_only_by_what_is_seen_to_run(facts, now, expected):
    job = a_job(Phase.RUNNING, spec=a_spec(limits=Limits(run=1000)), attempts=(an_attempt(timeline=RAN.timeline),))
    decision = _decide(job, facts, now)
    assert _words(decision) == expected
    assert _events(decision) == (["stop_requested"] if expected.endswith("order") else [])


def test_each_transition_of_one_look_leaves_its_line():
    limits = Limits(run=1000, grace=0)
    job = a_job(Phase.PLACING, spec=a_spec(limits=limits))
    decision = decide(job, some_facts(heartbeat=RAN), at(1040), replace(TIMING, stop_margin_s=0))
    assert (_words(decision), _events(decision)) == ("stopping: close release", ["started", "stop_requested", "ending"])
    slow = decide(a_job(Phase.PLACING), some_facts(claim=ClaimState.FREE), at(601), TIMING)
    assert (_words(slow), _events(slow)) == ("starting: close", ["starting"])
    assert slow.instructions[0].if_free, "a runner that comes at the last moment is welcome"


def test_a_clock_that_went_back_neither_undoes_the_order_nor_makes_anybody_sleep_on():
    job = replace(a_job(Phase.RUNNING), updated_at=at(5000))
    decision = _decide(job, some_facts(heartbeat=a_heartbeat(60)), 60)
    assert decision.job.updated_at == at(5000)
    assert decision.wake_at == at(60) + timedelta(seconds=TIMING.look_s)


def test_allocation_names_are_derived_and_read_back():
    job = a_job(job_id="my-a1-job-a")
    assert parse_allocation_name(allocation_name(job.id, 12)) == (job.id, 12)
    assert [parse_allocation_name(name) for name in ("lost+found", "-a1", "x-a", "x-a²", "x-a-1")] == [None] * 5
