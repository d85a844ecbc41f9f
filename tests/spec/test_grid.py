"""Which grids can be tried?"""

from __future__ import annotations

import pytest

from trainmaster.errors import InvalidSpec
from trainmaster.spec.parse import spec_from_mapping


def study(**fields: object) -> dict[str, object]:
    return {"command": "python train.py", "study": fields}


def test_a_grid_of_all_kinds_of_values():
    spec = spec_from_mapping(study(grid={"lr": [0.1, 1, "0.1", True, None, [1, 2], {"a": 1}]}, max_parallel=4))
    assert spec.study is not None
    assert len(spec.study.grid["lr"]) == 7


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "study.grid: is missing"),
        ({"grid": {}}, "study.grid: is empty"),
        ({"grid": {"lr": []}}, "study.grid.lr: is empty"),
        ({"grid": {"lr": 0.1}}, "study.grid.lr"),
        ({"grid": {"lr": [0.1, 0.1]}}, "study.grid.lr: found 0.1 twice"),
        ({"grid": {"lr": ["x" * 99, "x" * 99]}}, "…"),
        ({"grid": {"a b": [1]}}, 'study.grid["a b"]: as a name'),
        ({"grid": {"sagemaker_x": [1]}}, "reserved"),
        ({"grid": {"a": list(range(101)), "b": list(range(100))}}, "found 10100 combinations, at most 10000"),
        ({"grid": {"a": [1]}, "max_parallel": 0}, "study.max_parallel: found 0"),
        ({"grid": {"a": [1]}, "max_paralel": 1}, "did you mean `max_parallel`?"),
    ],
)
def test_what_cannot_be_tried_is_named(fields, says):
    with pytest.raises(InvalidSpec) as error:
        spec_from_mapping(study(**fields))
    assert says in error.value.sentence


@pytest.mark.parametrize("seed", [-1, 2**31, "x"])
def test_a_seed_is_a_small_number(seed):
    with pytest.raises(InvalidSpec, match="seed"):
        spec_from_mapping({"command": "x", "seed": seed})
