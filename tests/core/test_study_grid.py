"""What is a study, and which jobs follow from it?"""

from __future__ import annotations

import pytest

from trainmaster.core.job import Code, Origin, Outcome, Phase
from trainmaster.core.study import (
    Child,
    StudyRecord,
    child_name,
    child_ref,
    child_specs,
    combinations,
    extremes,
    shown_combination,
    state,
    tally,
)
from trainmaster.spec.parse import spec_from_mapping
from trainmaster.testing.builders import T0

SPEC = spec_from_mapping(
    {
        "name": "sweep",
        "entry_point": "train.py",
        "hyperparameters": {"epochs": 3, "lr": 9},
        "study": {"grid": {"lr": [0.1, 0.01], "opt": ["sgd", "adamw"]}, "max_parallel": 2},
    }
)
STUDY = StudyRecord(
    id="sweep-k7q2m",
    spec=SPEC,
    code=Code(),
    origin=Origin(user="ada", host="laptop", folder="/", python="python", version="1"),
    submitted_at=T0,
    count=4,
)


def children(*words: str) -> list[Child]:
    outcomes = {outcome.value for outcome in Outcome}
    return [
        Child(
            job_id=f"j{index}",
            index=index,
            phase=Phase.FINISHED if word in outcomes else Phase(word),
            outcome=Outcome(word) if word in outcomes else None,
        )
        for index, word in enumerate(words, start=1)
    ]


def test_the_last_parameter_changes_fastest():
    assert list(combinations({"a": [1, 2], "b": ["x"], "c": [True, None]})) == [
        {"a": 1, "b": "x", "c": True},
        {"a": 1, "b": "x", "c": None},
        {"a": 2, "b": "x", "c": True},
        {"a": 2, "b": "x", "c": None},
    ]


def test_each_job_is_an_ordinary_one_with_its_own_parameters():
    specs = list(child_specs(SPEC))
    assert [spec.name for spec in specs] == ["sweep-1", "sweep-2", "sweep-3", "sweep-4"]
    assert [spec.hyperparameters for spec in specs[:2]] == [
        {"epochs": 3, "lr": 0.1, "opt": "sgd"},
        {"epochs": 3, "lr": 0.1, "opt": "adamw"},
    ]
    assert all(spec.study is None for spec in specs)
    assert child_ref(STUDY, 3).max_parallel == 2


@pytest.mark.parametrize(("name", "index"), [("a", 1), ("a" * 63, 10_000), ("a" * 57 + "." * 4 + "bb", 1234)])
def test_a_jobs_name_is_never_too_long(name, index):
    made = child_name(name, index)
    assert spec_from_mapping({"command": "x", "name": made}).name == made
    assert made.endswith(f"-{index}")


def test_the_first_and_the_largest_stand_for_all():
    first, largest = extremes(SPEC)
    assert first.hyperparameters["lr"] == 0.1
    assert largest.hyperparameters == {"epochs": 3, "lr": 0.01, "opt": "adamw"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["queued", "queued"], "queued"),
        (["queued", "placing"], "running"),
        (["succeeded", "queued"], "running"),
        (["succeeded", "succeeded"], "succeeded"),
        (["succeeded", "failed"], "failed"),
        (["stopped", "failed"], "stopped"),
    ],
)
def test_one_word_for_all_of_them(words, expected):
    assert state(children(*words)) == expected


def test_how_many_are_how_far():
    assert tally(children("queued", "running", "failed", "succeeded", "queued")) == {
        "succeeded": 1,
        "failed": 1,
        "running": 1,
        "queued": 2,
    }


def test_what_a_job_tries_in_one_cell():
    assert shown_combination(STUDY, {"lr": 0.1, "opt": "sgd", "epochs": 3}) == "lr=0.1 opt=sgd"
    assert STUDY.name == "sweep"
