"""One minute of a real world under attack; and worlds with a planted bug, which must be found. Needs root, to fill a small disk."""

from __future__ import annotations

import shutil

import pytest

from trainmaster.testing.chaos.__main__ import render
from trainmaster.testing.chaos.draw import Mood
from trainmaster.testing.chaos.stage import ChaosOptions, run_chaos

pytestmark = [pytest.mark.system, pytest.mark.process, pytest.mark.timeout(900)]


def play(options: ChaosOptions):
    return run_chaos(options, lambda _: None)


def test_every_promise_is_kept_through_a_minute_of_attacks():
    report = play(ChaosOptions(seed=1, minutes=1.0, mood=Mood.HARSH))
    assert not report.findings, render(report)
    assert report.missing == []
    troubles = {name for name in report.counts if name != "commands"}
    assert len(troubles) >= 8, f"hardly anything was attacked: {report.counts}"
    assert report.attempts > report.jobs > 0


def test_a_kind_world_is_as_it_should_be():
    report = play(ChaosOptions(seed=2, minutes=0.2, mood=Mood.KIND))
    assert not report.findings, render(report)
    assert report.jobs > 0


#: What is made wrong, in which file, and which checker must find it.
PLANTED = {
    "a lost machine is the script's fault": (
        Mood.HARSH,
        "core/endings.py",
        'kind=EndingKind.INTERRUPTED,\n        reason=Reason(\n            code="machine_lost"',
        'kind=EndingKind.FAILED,\n        reason=Reason(\n            code="machine_lost"',
        "budgets_hold",
    ),
    "nobody is seen writing": (
        Mood.KIND,
        "adapters/host.py",
        '    below = f"{os.path.realpath(folder)}/"\n',
        '    return ""\n',
        "checkpoints_never_torn",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    mood, file, old, new, checker = PLANTED[name]
    report = play(ChaosOptions(seed=3, minutes=0.4, mood=mood, changes={file: (old, new)}))
    try:
        assert checker in {finding.checker for finding in report.findings}, render(report)
    finally:
        if report.evidence is not None:
            shutil.rmtree(report.evidence)
