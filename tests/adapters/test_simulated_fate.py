"""What does a machine of the laptop fleet live to see? Pure: the same name, the same fate."""

from __future__ import annotations

import pytest

from trainmaster.adapters.providers.simulated.fate import FleetSettings, draw_fate, in_words, is_preempted, life_s
from trainmaster.adapters.providers.simulated.translate import MachineState, MachineView, sighting
from trainmaster.core.facts import Seen
from trainmaster.core.job import JobId, allocation_name
from trainmaster.ports.provider import LaunchRequest
from trainmaster.testing.builders import a_placement

SETTINGS = FleetSettings(boot_s=2.0, preempt_s=20.0, notice_s=5.0)
WEEK_S = 604_800.0


def a_request(job="j", attempt=1, machine_s_max=WEEK_S):
    return LaunchRequest(
        name=allocation_name(JobId(job), attempt),
        job_id=JobId(job),
        attempt=attempt,
        placement=a_placement(),
        store_url="/x",
        attempt_lease_s=60,
        heartbeat_s=5,
        machine_s_max=machine_s_max,
    )


def test_one_name_one_fate_and_another_name_another():
    fates = {draw_fate(a_request(job), SETTINGS).preempt_s for job in ("a", "b", "c", "a", "b", "c")}
    assert len(fates) == 3


@pytest.mark.parametrize("attempt", range(1, 8))
@pytest.mark.parametrize("job", ["a", "spirals-k7q2m", "z"])
def test_each_machine_lives_about_twice_as_long_as_the_one_before(job, attempt):
    fate = draw_fate(a_request(job, attempt), SETTINGS)
    about = 20.0 * 2 ** (attempt - 1)
    assert fate.preempt_s is not None
    assert 0.9 * about <= fate.preempt_s == life_s(fate) <= 1.1 * about
    assert 1.6 <= fate.boot_s <= 2.4
    assert is_preempted(fate)


def test_a_thousandth_attempt_has_a_fate():
    assert is_preempted(draw_fate(a_request(attempt=1000, machine_s_max=1e9), SETTINGS))


def test_nobody_is_taken_back_for_0_seconds():
    fate = draw_fate(a_request(), FleetSettings(preempt_s=0.0))
    assert fate.preempt_s is None
    assert not is_preempted(fate)
    assert life_s(fate) == WEEK_S - fate.boot_s


@pytest.mark.parametrize("limit_s", [0.0, 1.0, 10.0])
def test_no_machine_outlives_its_time(limit_s):
    fate = draw_fate(a_request(machine_s_max=limit_s), SETTINGS)
    assert not is_preempted(fate)
    assert life_s(fate) == max(0.0, limit_s - fate.boot_s)


def test_the_words_say_when_and_whether_it_was_told():
    fate = draw_fate(a_request(), SETTINGS)
    assert in_words(fate, 21.4) == "preempted by the fleet 21 s after it booted, with 5 s of notice"
    silent = draw_fate(a_request(), FleetSettings(notice_s=0.0))
    assert in_words(silent, 21.4) == "preempted by the fleet 21 s after it booted, without notice"
    assert in_words(fate, None) == "preempted by the fleet while it booted"


@pytest.mark.parametrize(
    ("view", "seen", "preempted"),
    [
        (None, Seen.UNKNOWN, ""),
        (MachineView(state=MachineState.BOOTING), Seen.PRESENT, ""),
        (MachineView(state=MachineState.RUNNING), Seen.PRESENT, ""),
        (MachineView(state=MachineState.ENDING, why="deleted"), Seen.PRESENT, ""),
        (MachineView(state=MachineState.ENDING, why="wanted back", preempted=True), Seen.PRESENT, "wanted back"),
        (MachineView(state=MachineState.ENDED), Seen.GONE, ""),
        (MachineView(state=MachineState.ENDED, why="its runner ended"), Seen.GONE, ""),
        (MachineView(state=MachineState.ENDED, why="wanted back", preempted=True), Seen.GONE, "wanted back"),
    ],
)
def test_what_a_fleet_says_and_what_it_means(view, seen, preempted):
    found = sighting(view)
    assert (found.seen, found.preempted, found.was_launched) == (seen, preempted, view is not None)
    assert found.not_found == (view is None)
    assert found.evidence
    assert view is None or view.why in found.evidence
