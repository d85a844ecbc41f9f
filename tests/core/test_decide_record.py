"""What does a decision leave behind? In the record: how far the runner came, the head, who pays. In the story: what was told."""

from __future__ import annotations

import pytest
from core.test_decide import HELD, _decide
from msgspec.structs import replace

from trainmaster.core.facts import ClaimState, Seen
from trainmaster.core.job import Budget, Phase
from trainmaster.spec.job_spec import Retry
from trainmaster.testing.builders import (
    a_commit,
    a_heartbeat,
    a_job,
    a_spec,
    a_timeline,
    an_attempt,
    an_exit,
    at,
    some_facts,
)

# What the facts add to the record.


@pytest.mark.parametrize("phase", HELD)
def test_the_runners_progress_is_noted(phase):
    timeline = a_timeline(claimed=20, set_up=30)
    assert _decide(a_job(phase), some_facts(heartbeat=a_heartbeat(timeline=timeline))).job.current.timeline == timeline
    assert _decide(a_job(phase), some_facts(exit=an_exit(timeline=timeline))).job.current.timeline == timeline


COMMIT_ROWS = [
    # known before, seen now → head
    (None, None, None),
    (None, a_commit(2, 1), a_commit(2, 1)),
    (a_commit(2, 1), a_commit(2, 2), a_commit(2, 2)),
    (a_commit(2, 2), a_commit(2, 1), a_commit(2, 2)),  # a heartbeat lags behind the markers
    (a_commit(2, 2), None, a_commit(2, 2)),
    (a_commit(2, 1), a_commit(1, 9), a_commit(2, 1)),  # a late commit of an old attempt
    (None, a_commit(1, 9), None),
]


@pytest.mark.parametrize("old_head", [None, a_commit(1, 5)])
@pytest.mark.parametrize("phase", HELD)
@pytest.mark.parametrize(("known", "seen", "head"), COMMIT_ROWS)
def test_the_head_is_the_newest_accepted_commit(old_head, phase, known, seen, head):
    job = a_job(phase, attempts=(an_attempt(1, ended=10, head=old_head), an_attempt(2, placed=20, head=known)))
    decided = _decide(job, some_facts(commit=seen)).job
    assert (decided.current.head, decided.head) == (head, head or old_head)


def test_an_unanswering_store_says_nothing_whatever_stands_in_its_fields():
    facts = replace(
        some_facts(Seen.GONE, ClaimState.CLOSED, exit=an_exit(), commit=a_commit()), store_answers=False, is_closed=True
    )
    for phase in HELD:
        assert _decide(a_job(phase), facts).job == a_job(phase)


# Who pays, and what the story says.


@pytest.mark.parametrize(
    ("report", "budgets", "charged", "sentence"),
    [
        (an_exit(1), (1, 0), Budget.FAILURES, "This is failure 1 of 2 allowed; the next attempt may start in 1 s."),
        (None, (0, 1), Budget.INTERRUPTIONS, "This is interruption 1 of 10 allowed; the next attempt may start in 0 s."),
    ],
)
def test_a_retry_is_paid_from_one_budget(report, budgets, charged, sentence):
    job = a_job(Phase.RUNNING, spec=a_spec(retry=Retry(failures=2)))
    decision = _decide(job, replace(some_facts(Seen.GONE, exit=report), is_closed=True))
    assert (decision.job.failures, decision.job.interruptions) == budgets
    assert (decision.job.current.charged, decision.job.phase, decision.job.waiting_since) == (charged, Phase.QUEUED, at(60))
    assert sentence in decision.lines[0].sentence
    assert decision.lines[0].sentence.endswith("No checkpoint was committed; it starts from the beginning.")
    assert decision.lines[0].rule == f"retry.{charged.value}"


@pytest.mark.parametrize(("step", "words"), [(None, "1-000001."), (7, "1-000001 (step 7).")])
def test_the_story_says_where_the_job_goes_on(step, words):
    facts = replace(some_facts(Seen.GONE, commit=a_commit(step=step)), is_closed=True)
    assert _decide(a_job(Phase.RUNNING), facts).lines[0].sentence.endswith(f"It goes on from checkpoint {words}")
