"""How is a spec changed by words such as hp.lr=0.2?"""

from __future__ import annotations

import pytest

from trainmaster.errors import InvalidSpec
from trainmaster.spec.changes import changed, overridden, yaml_value
from trainmaster.spec.parse import spec_from_mapping

SPEC = spec_from_mapping({"name": "a", "entry_point": "train.py", "hyperparameters": {"lr": 0.1, "bs": 32}, "env": {"A": "1"}})


def test_fields_are_laid_over_the_spec():
    words = ["hp.lr=0.2", "hp.model.depth=3", "env.B=on", "env.A=", "tag.team=7", "retry.failures=3", "name=9", "hp.note=a: b"]
    made = changed(SPEC, words)
    assert made.hyperparameters == {"lr": 0.2, "bs": 32, "model.depth": 3, "note": "a: b"}
    assert (made.env, made.tags, made.retry.failures, made.name) == ({"A": "", "B": "on"}, {"team": "7"}, 3, "9")
    assert made.entry_point == "train.py"
    assert changed(SPEC, []) is SPEC
    assert overridden(SPEC, {"limits.run": "2h"}).limits.run == 7200


def test_values_read_as_in_a_job_file():
    assert [yaml_value(text) for text in ("0.2", "true", "", "two words", "1e-3", "a\nb: 2", "[1, 2]")] == [
        0.2,
        True,
        None,
        "two words",
        1e-3,
        "a\nb: 2",
        [1, 2],
    ]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("lr", "--set: found"),
        ("=3", "--set: found"),
        ("retyr.failures=1", "retyr: unknown field; did you mean `retry`?"),
        ("retry.failure=1", "retry.failure: unknown field; did you mean `failures`?"),
        ("retry.failures=many", 'retry.failures: found "many"'),
        ("env.TM_X=1", "env.TM_X"),
        ("priority.x=1", "priority is one value"),
        ("hp=3", "hyperparameters"),
        ("source_dir=/x", "--set source_dir: cannot be changed"),
        ("study.max_parallel=1", "cannot be changed"),
        ("environment.wheels=dist", "--set environment.wheels: cannot be changed"),
        ("environment={requirements: [a], wheels: dist}", "--set environment.wheels: cannot be changed"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(word, says):
    with pytest.raises(InvalidSpec) as error:
        changed(SPEC, [word])
    assert says in error.value.sentence
