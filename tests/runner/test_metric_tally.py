"""What is counted of the points that go by?"""

from __future__ import annotations

from trainmaster.core.metrics import METRICS_MAX, MetricSummary
from trainmaster.runner.metric_tally import MetricTally


def test_last_lowest_and_highest_with_their_steps():
    tally = MetricTally()
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        tally.add([{"t": 1.0, "step": step, "loss": loss}])
    found = MetricSummary(count=3, last=2.0, last_step=2, min=1.0, min_step=1, max=3.0, max_step=0)
    assert tally.summary() == {"loss": found}


def test_lines_from_the_log():
    tally = MetricTally()
    tally.add_lines(b'{"t":1.5,"loss":1}\n{"t":1.5,"step":7,"loss":NaN}\n{"t":2,"x":-Infinity}')
    assert tally.summary() == {
        "loss": MetricSummary(count=2, last=None, last_step=7, min=1.0, max=1.0),
        "x": MetricSummary(count=1),
    }


def test_what_is_no_number_is_left_out():
    tally = MetricTally()
    tally.add([{"text": "a", "flag": True, "list": [1], "none": None, "step": "x", "huge": 10**400}])
    assert tally.summary() == {"huge": MetricSummary(count=1)}


def test_it_stays_small():
    tally = MetricTally()
    tally.add([{"n" * 201: 1.0}])
    assert tally.is_full
    tally.add([{f"m{number}": 1.0 for number in range(METRICS_MAX + 5)}])
    tally.add([{"m0": 2.0}])
    assert len(tally.summary()) == METRICS_MAX
    assert tally.summary()["m0"].last == 2.0
