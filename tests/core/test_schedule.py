import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from trainmaster.core.job import JobRecord, StudyRef
from trainmaster.core.schedule import Capacity, Placed, Waits, need_of, schedule, why_never
from trainmaster.spec.job_spec import Resources
from trainmaster.testing.builders import a_job, a_placement, a_spec, at

GIB = 2**30
SMALL = Capacity(cpus=4, memory=8 * GIB, gpus=(0, 1))


def _job(job_id: str, *, seconds: float = 0, priority: int = 0, paused_until: float | None = None, **asked) -> JobRecord:
    job = a_job(job_id=job_id, spec=a_spec(resources=Resources(**asked), priority=priority))
    not_before = None if paused_until is None else at(paused_until)
    return replace(job, submitted_at=at(seconds), updated_at=at(seconds), not_before=not_before)


def _words(waiting, held=(), capacity=SMALL) -> list[str]:
    placed, waits = schedule(waiting, held, capacity, at(100))
    assert sorted([p.job_id for p in placed] + [w.job_id for w in waits]) == sorted(j.id for j in waiting)
    said = [f"{p.job_id}: cpus {p.placement.cpus:g} gpus {','.join(map(str, p.placement.gpus)) or '-'}" for p in placed]
    return said + [f"{w.job_id}: {w.sentence}" for w in waits]


ROWS = [
    # waiting, held → what each is told
    ([], [], []),
    ([_job("a")], [], ["a: cpus 1 gpus 0"]),
    ([_job("a", gpus=0)], [], ["a: cpus 1 gpus -"]),
    ([_job("a", gpus=2)], [], ["a: cpus 1 gpus 0,1"]),
    ([_job("a", gpus="A100:2")], [], ["a: cpus 1 gpus 0,1"]),
    ([_job("a")], [a_placement(gpus=(0,))], ["a: cpus 1 gpus 1"]),
    ([_job("b", seconds=1), _job("a", seconds=2)], [], ["b: cpus 1 gpus 0", "a: cpus 1 gpus 1"]),
    ([_job("b"), _job("a")], [], ["a: cpus 1 gpus 0", "b: cpus 1 gpus 1"]),  # the same moment: by id
    ([_job("a"), _job("b", priority=1, seconds=9)], [], ["b: cpus 1 gpus 0", "a: cpus 1 gpus 1"]),
    ([_job("a", cpus=4, gpus=0)], [a_placement(cpus=1)], ["a: 4 CPU; 3 free"]),
    ([_job("a", cpus=4, gpus=0)], [a_placement(cpus=9)], ["a: 4 CPU; 0 free"]),
    ([_job("a", memory=8 * GIB, gpus=0)], [a_placement(memory=GIB)], ["a: 8.0 GiB of memory; 7.0 GiB free"]),
    ([_job("a", memory=8 * GIB, gpus=0)], [a_placement(memory=9 * GIB)], ["a: 8.0 GiB of memory; 0.0 GiB free"]),
    ([_job("a", gpus=2)], [a_placement(gpus=(1,))], ["a: 2 GPU; 1 free"]),
    ([_job("a", cpus=4), _job("b", cpus=1)], [a_placement()], ["a: 4 CPU; 3 free", "b: its turn: a is ahead"]),
    ([_job("a", cpus=5), _job("b", cpus=1)], [], ["b: cpus 1 gpus 0", "a: resources.cpus: 5 wanted, but this machine has 4"]),
    (
        [_job("a", paused_until=101), _job("b", paused_until=100)],
        [],
        ["b: cpus 1 gpus 0", "a: a pause before the next attempt, until 12:01:41 UTC"],
    ),
]


@pytest.mark.parametrize(("waiting", "held", "expected"), ROWS)
def test_who_goes_where_and_what_the_others_wait_for(waiting, held, expected):
    assert _words(waiting, held) == expected


NEVER_ROWS = [
    ({}, ""),
    ({"cpus": 4, "memory": 8 * GIB, "gpus": 2}, ""),
    ({"cpus": 4.5}, "resources.cpus: 4.5 wanted, but this machine has 4"),
    ({"memory": 9 * GIB}, "resources.memory: 9.0 GiB wanted, but this machine has 8.0 GiB"),
    ({"gpus": 3}, "resources.gpus: 3 wanted, but this machine has 2"),
    ({"gpus": "A100:3"}, "resources.gpus: 3 wanted, but this machine has 2"),
]


@pytest.mark.parametrize(("asked", "sentence"), NEVER_ROWS)
def test_what_never_fits_is_told_with_what_would(asked, sentence):
    assert why_never(_job("a", **asked).spec, SMALL) == sentence


def test_a_job_must_fit_one_machine_of_several():
    fleet = replace(SMALL, gpus=(), machine_cpus=1)
    assert why_never(_job("a", cpus=2).spec, fleet) == "resources.cpus: 2 wanted, but each machine there has 1"
    assert why_never(_job("a", cpus=1).spec, fleet) == ""


def test_a_job_that_says_nothing_about_gpus_takes_one_where_there_are_any():
    assert need_of(a_spec(), SMALL).gpus == 1
    assert need_of(a_spec(), replace(SMALL, gpus=())).gpus == 0


RESOURCES = st.builds(
    Resources,
    cpus=st.sampled_from([0.1, 0.5, 1.0, 3.0, 8.0]),
    memory=st.none() | st.sampled_from([GIB, 6 * GIB, 20 * GIB]),
    gpus=st.none() | st.integers(0, 4),
)
QUEUES = st.lists(st.tuples(RESOURCES, st.integers(0, 5), st.integers(-1, 1), st.none() | st.integers(90, 110)), max_size=8).map(
    lambda rows: [
        replace(_job(f"j{n}", seconds=s, priority=p, paused_until=pause), spec=a_spec(resources=r, priority=p))
        for n, (r, s, p, pause) in enumerate(rows)
    ]
)
HELD = st.lists(st.builds(a_placement, cpus=st.sampled_from([0.1, 1.0]), memory=st.just(GIB)), max_size=3)


@given(QUEUES, HELD, st.booleans())
def test_safety_nothing_is_given_twice_and_nobody_is_forgotten(waiting, held, holds_gpu):
    held = [*held, a_placement(cpus=0, gpus=(1,))] if holds_gpu else held
    placed, waits = schedule(waiting, held, SMALL, at(100))
    assert {p.job_id for p in placed} | {w.job_id for w in waits} == {j.id for j in waiting}
    assert len(placed) + len(waits) == len(waiting)
    given_now = [p.placement for p in placed]
    if given_now:
        assert sum(p.cpus for p in [*held, *given_now]) <= SMALL.cpus + 1e-6
    assert sum(p.memory for p in [*held, *given_now]) <= SMALL.memory
    gpus = [gpu for p in [*held, *given_now] for gpu in p.gpus]
    assert len(gpus) == len(set(gpus))
    assert set(gpus) <= set(SMALL.gpus)
    assert all(w.sentence for w in waits)


@given(QUEUES)
def test_safety_nobody_overtakes(waiting):
    """Among those that could ever start now, the placed ones are the first of the line."""
    line = sorted(
        (j for j in waiting if not why_never(j.spec, SMALL) and (j.not_before is None or j.not_before <= at(100))),
        key=lambda j: (-j.spec.priority, j.submitted_at, j.id),
    )
    placed, _ = schedule(waiting, [], SMALL, at(100))
    assert [p.job_id for p in placed] == [j.id for j in line[: len(placed)]]


@given(QUEUES)
def test_progress_on_an_empty_machine_somebody_who_fits_goes(waiting):
    placed, _ = schedule(waiting, [], SMALL, at(1000))
    assert placed or all(why_never(j.spec, SMALL) for j in waiting)


def test_decisions_are_plain_values():
    assert Placed(job_id=a_job().id, placement=a_placement()) == Placed(job_id=a_job().id, placement=a_placement())
    assert Waits(job_id=a_job().id, sentence="x") != Waits(job_id=a_job().id, sentence="y")


def _of_study(job_id: str, *, most: int | None, study: str = "s", **asked) -> JobRecord:
    return replace(_job(job_id, gpus=0, **asked), study=StudyRef(id=study, index=1, max_parallel=most))


def test_a_study_has_so_many_at_work_and_holds_up_nobody():
    waiting = [_of_study("a", most=2), _of_study("b", most=2), _of_study("c", most=2), _job("d", gpus=0)]
    placed, waits = schedule(waiting, [a_placement()], SMALL, at(100), {"s": 1})
    assert [p.job_id for p in placed] == ["a", "d"]
    assert {w.job_id: w.sentence for w in waits} == dict.fromkeys("bc", "study.max_parallel: 2 of s at a time")
    placed, _ = schedule([_of_study("a", most=None), _of_study("b", most=1, study="t")], [], SMALL, at(100), {"s": 9})
    assert [p.job_id for p in placed] == ["a", "b"]


def test_far_behind_it_is_said_that_others_are_ahead_not_who():
    waiting = [_job("a", cpus=4), *(_job(f"b{number:02}", seconds=1) for number in range(20))]
    said = {w.job_id: w.sentence for w in schedule(waiting, [a_placement()], SMALL, at(100))[1]}
    assert said["b07"] == "its turn: a is ahead"
    assert {said[f"b{number:02}"] for number in range(8, 20)} == {"its turn: others are ahead"}
