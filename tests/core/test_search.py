"""Does a job fit a condition? The same answer from the record and from the view of it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from trainmaster.core.job import Phase
from trainmaster.core.metrics import MetricSummary
from trainmaster.core.search import JobView, Search, verdict
from trainmaster.spec.where import parse_where
from trainmaster.testing.builders import a_job, a_spec, a_timeline, an_attempt, at

PARAMETERS = {
    "lr": 0.05,
    "n": 3,
    "opt": "AdamW",
    "seed": "7",
    "amp": True,
    "off": False,
    "none": None,
    "dims": [1, "a"],
    "m": {"k": 2},
}
LOSS = MetricSummary(count=9, last=0.2, min=0.1, max=0.9)
JOB = a_job(
    Phase.RUNNING,
    spec=replace(a_spec(name="sweep", tags={"team": "vision", "week": "12"}, priority=5), hyperparameters=PARAMETERS),
    attempts=(
        replace(an_attempt(1, ended=10), metrics={"loss": replace(LOSS, min=0.05)}),
        replace(an_attempt(2, placed=20, timeline=a_timeline(claimed=21, set_up=22, restored=23)), metrics={"loss": LOSS}),
    ),
)

#: True, False, or None: the job lacks the value.
VERDICTS = {
    "hp.lr < 0.1": True,
    "hp.lr > 0.1": False,
    "hp.lr = 0.05": True,
    "hp.lr = '0.05'": True,
    "hp.lr != 0.05": False,
    "hp.n <= 3": True,
    "hp.n >= 3": True,
    "hp.n = '3'": True,
    "hp.opt = AdamW": True,
    "hp.opt ~ adam": True,
    "hp.opt !~ adam": False,
    "hp.opt < 3": None,
    "hp.opt < zzz": None,
    "hp.seed > 6": True,
    "hp.amp = true": True,
    "hp.off = false": True,
    "hp.none": False,
    "hp.dims = '1,a'": True,
    "hp.m = 'k=2'": True,
    "hp.missing": False,
    "hp.missing = 1": None,
    "hp.missing != 1": None,
    "hp.missing != a": None,
    "hp.missing ~ a": None,
    "not hp.missing = 1": None,
    "not hp.missing": True,
    "not hp.lr": False,
    "tag.team = vision": True,
    "tag.week > 11": True,
    "metric.loss < 0.3": True,
    "min(metric.loss) = 0.05": True,
    "max(metric.loss) > 1": False,
    "metric.other < 1": None,
    "id = j7": True,
    "name = sweep": True,
    "outcome": False,
    "outcome = failed": None,
    "phase = running": True,
    "priority > 4": True,
    "attempts = 2": True,
    "hp.lr < 0.1 and metric.loss < 0.3": True,
    "hp.lr < 0.1 and hp.missing = 1": None,
    "hp.lr > 0.1 and hp.missing = 1": False,
    "hp.missing = 1 and hp.lr > 0.1": False,
    "hp.lr > 0.1 or hp.missing = 1": None,
    "hp.missing = 1 or hp.lr > 0.1": None,
    "hp.missing = 1 or hp.lr < 0.1": True,
    "hp.lr > 0.1 or hp.lr > 0.2": False,
}


@pytest.mark.parametrize("text", VERDICTS)
def test_the_verdict_on_a_job(text):
    search = Search(condition=parse_where(text), now=at(100))
    view = msgspec.json.decode(msgspec.json.encode(JOB), type=JobView)
    assert not search.needs_record
    assert verdict(search)(JOB) is VERDICTS[text]
    assert verdict(search)(view) is VERDICTS[text]


def test_an_outcome_and_a_single_attempt():
    job = a_job(Phase.FINISHED)
    job = replace(job, attempts=(replace(job.current, metrics={"loss": LOSS}),))
    assert verdict(Search(condition=parse_where("outcome = succeeded and metric.loss = 0.2"), now=at(0)))(job) is True


def test_a_duration_is_how_long_the_script_ran_until_now():
    search = Search(condition=parse_where("duration >= 77s and duration < 78"), now=at(100))
    assert search.needs_record
    assert verdict(search)(JOB) is True
    assert verdict(search)(a_job()) is None, "a job that was never placed has not run"
