"""How does a job begin, and how does an old one begin again?"""

from __future__ import annotations

from msgspec.structs import replace

from trainmaster.core.decide import decide, place
from trainmaster.core.instructions import OpenAttempt
from trainmaster.core.job import Code, Continues, EndingKind, EnvironmentRef, JobId, JobRecord, Machine, Outcome, Phase, StudyRef
from trainmaster.core.messages import job_file
from trainmaster.core.submission import environment_key, new_job, repeated, resumed, submitted_line, why_not_resume
from trainmaster.spec.job_spec import Retry
from trainmaster.testing.builders import (
    TIMING,
    ClaimState,
    Seen,
    a_commit,
    a_heartbeat,
    a_job,
    a_placement,
    a_spec,
    an_attempt,
    an_ending,
    an_exit,
    at,
    some_facts,
)

HEAD = a_commit(1, 3, step=30)
FAILED = replace(
    a_job(
        Phase.FINISHED,
        job_id="old",
        spec=a_spec(retry=Retry(failures=1)),
        attempts=(an_attempt(1, ended=50.0, ending=an_ending(EndingKind.FAILED), head=HEAD),),
    ),
    seed=7,
)


def fresh(job_id: str = "new", *, old: JobRecord = FAILED) -> JobRecord:
    return new_job(JobId(job_id), old.spec, old.code, old.origin, at(100))


def opened(job: JobRecord) -> OpenAttempt:
    [found] = [i for i in place(job, a_placement(), at(100)).instructions if isinstance(i, OpenAttempt)]
    return found


def test_only_what_ended_early_goes_on():
    assert why_not_resume(FAILED) == ""
    assert why_not_resume(replace(FAILED, outcome=Outcome.STOPPED)) == ""
    assert "succeeded" in why_not_resume(a_job(Phase.FINISHED))
    assert "not finished: it is running" in why_not_resume(a_job(Phase.RUNNING))


def test_a_resumed_job_restores_the_old_ones_head_with_new_budgets():
    job = resumed(FAILED, fresh())
    assert (job.failures, job.attempts, job.head, job.seed) == (0, (), None, 7)
    instruction = opened(job)
    assert (instruction.resumes, instruction.of_job, instruction.heads) == (HEAD, "old", ("1-000003",))
    decision = place(job, a_placement(), at(100))
    assert decision.job.current.resumes == HEAD
    assert decision.lines[-1].sentence == "It resumes from checkpoint 1-000003 of job old at step 30."


def test_until_it_has_committed_itself_it_restores_the_old_ones_head_again():
    job = replace(resumed(FAILED, fresh()), spec=a_spec(retry=Retry(failures=2)))
    running = replace(place(job, a_placement(), at(100)).job, phase=Phase.RUNNING)
    queued = decide(running, some_facts(Seen.GONE, exit=an_exit(1)), at(200), TIMING)
    assert "It goes on from checkpoint 1-000003 of job old (step 30)." in queued.lines[-1].sentence
    assert opened(queued.job).of_job == "old"


def test_its_own_commit_beats_the_inherited_one_though_it_may_have_the_same_name():
    job = replace(resumed(FAILED, fresh()), spec=a_spec(retry=Retry(failures=2)))
    running = replace(place(job, a_placement(), at(100)).job, phase=Phase.RUNNING)
    own = a_commit(1, 3, seconds=150, step=40)
    queued = decide(running, some_facts(Seen.GONE, exit=an_exit(1, commit=own), commit=own), at(200), TIMING).job
    assert opened(queued).resumes == own
    assert (opened(queued).of_job, opened(queued).heads) == ("", ("1-000003",))
    # Asked again while it is being launched, its first attempt still restores what it was opened with.
    placed = place(job, a_placement(), at(100)).job
    again = decide(placed, some_facts(Seen.GONE, ClaimState.FREE, was_launched=False), at(101), TIMING)
    assert [i.of_job for i in again.instructions if isinstance(i, OpenAttempt)] == ["old"]


def test_a_job_that_had_committed_nothing_starts_from_the_beginning():
    bare = replace(FAILED, head=None, attempts=(replace(FAILED.current, head=None),))
    job = resumed(bare, fresh())
    assert job.continues == Continues(job=JobId("old"))
    assert opened(job).resumes is None
    assert opened(job).of_job == ""
    queued = replace(job, spec=a_spec(retry=Retry(failures=1)))
    running = replace(place(queued, a_placement(), at(100)).job, phase=Phase.RUNNING)
    said = decide(running, some_facts(Seen.GONE, exit=an_exit(1)), at(200), TIMING).lines[-1].sentence
    assert said.endswith("it starts from the beginning.")


def test_whoever_goes_on_from_one_that_committed_nothing_inherits_what_that_one_inherited():
    second = replace(resumed(FAILED, fresh("second")), phase=Phase.FINISHED, outcome=Outcome.STOPPED)
    third = resumed(second, fresh("third"))
    assert third.continues is not None
    assert (third.continues.job, third.continues.source, third.continues.checkpoint) == ("second", "old", HEAD)
    assert opened(third).of_job == "old"


def test_a_repeated_job_begins_anew_with_the_same_seed():
    job = repeated(FAILED, fresh())
    assert (job.reruns, job.seed, job.continues, job.lock) == ("old", 7, None, "")
    assert opened(job).resumes is None
    assert repeated(FAILED, replace(fresh(), spec=replace(FAILED.spec, seed=8))).seed == 8
    with_lock = repeated(replace(FAILED, lock="abc", wheelhouse="w"), fresh())
    assert (with_lock.lock, with_lock.wheelhouse) == ("abc", "w")
    assert job_file(replace(job, lock="abc")).lock == "abc"


def test_the_environment_it_ran_in_last_is_used_again():
    ran, other = (replace(an_attempt(n, ended=50.0), environment=EnvironmentRef(key=f"e{n}", python="")) for n in (1, 2))
    lost = an_attempt(3, ended=60.0)  # interrupted before it had one
    assert environment_key(replace(FAILED, attempts=(ran, other, lost))) == "e2"
    assert environment_key(FAILED) == ""
    assert environment_key(fresh()) == ""
    again = repeated(replace(FAILED, attempts=(ran, other, lost), lock="e0"), fresh())
    assert again.lock == "e2"


def test_who_goes_on_is_younger_however_the_clock_was_set():
    set_back = new_job(JobId("new"), FAILED.spec, FAILED.code, FAILED.origin, at(-3600))
    job = resumed(FAILED, set_back)
    assert job.submitted_at > FAILED.updated_at >= FAILED.submitted_at
    assert job.submitted_at == job.updated_at == job.waiting_since
    assert resumed(FAILED, fresh()).submitted_at == fresh().submitted_at


def test_the_first_line_says_how_it_began():
    said = [
        submitted_line(job).sentence
        for job in (
            fresh(),
            replace(fresh(), code=Code(in_place=True, folder="/w")),
            resumed(FAILED, fresh()),
            repeated(FAILED, fresh()),
            replace(fresh(), study=StudyRef(id="s", index=4)),
        )
    ]
    assert [text.partition(": ")[0] for text in said] == [
        "ada submitted train",
        "ada submitted train",
        "ada resumed old as train",
        "ada ran old again as train",
        "ada submitted train, number 4 of study s",
    ]
    assert said[1].endswith("the folder /w in place.")


def test_the_machine_is_noted_as_the_runner_tells_it():
    box, other = Machine(host="box"), Machine(host="other")
    running = a_job(Phase.RUNNING)
    seen = decide(running, some_facts(heartbeat=replace(a_heartbeat(), machine=box)), at(60), TIMING).job
    assert seen.current.machine == box
    assert decide(seen, some_facts(heartbeat=a_heartbeat(70)), at(70), TIMING).job.current.machine == box
    ended = decide(seen, some_facts(Seen.GONE, exit=replace(an_exit(0), machine=other)), at(99), TIMING).job
    assert ended.current.machine == other
