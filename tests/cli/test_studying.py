"""Bad studies: is each answered in one sentence, with nothing done?"""

from __future__ import annotations

import pytest
from cli.terminal import refused

pytestmark = pytest.mark.process

MANY = ",".join(map(str, range(101)))
BAD = {
    "no grid": ([], ["study.grid", "--grid lr=0.1,0.01"]),
    "the same name twice": (["--grid", "lr=1", "--grid", "lr=2"], ["--grid", "lr twice", "--grid lr=V,V,V"]),
    "no values": (["--grid", "lr="], ["--grid", "empty value"]),
    "an empty value": (["--grid", "lr=1,,2"], ["--grid", "empty value"]),
    "no name": (["--grid", "0.1,0.2"], ["--grid", "NAME=VALUE"]),
    "a name that is none": (["--grid", "-lr=1"], ["study.grid", "the first not a dash"]),
    "a reserved name": (["--grid", "sagemaker_x=1"], ["study.grid.sagemaker_x", "reserved"]),
    "a value twice": (["--grid", "lr=1,1"], ["study.grid.lr", "twice"]),
    "too many": (["--grid", f"a={MANY}", "--grid", f"b={MANY}"], ["10201 combinations", "at most 10000"]),
    "none at a time": (["--grid", "a=1", "--max-parallel", "0"], ["study.max_parallel", "found 0"]),
    "too much of a value": (["--grid", f"a=1,{'x' * 60_000}"], ["hyperparameters", "bytes"]),
    "what never fits": (["--grid", "a=1", "--cpus", "9000"], ["can never run here"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_grids(strict, name):
    words, says = BAD[name]
    refused(strict, "study", "train.py", *words, says=says)


def test_a_command_that_cannot_take_the_parameters(strict):
    path = strict.source / "pipe.yaml"
    path.write_text("command: python train.py | cat\nstudy: {grid: {lr: [1, 2]}}\n")
    try:
        refused(strict, "study", "pipe.yaml", says=["command", '"$@"'])
        refused(strict, "run", "pipe.yaml", says=["study", "trainmaster study"])
        path.write_text("command: python train.py\nstudy: {grid: {lr: [1], lr: [2]}}\n")
        refused(strict, "study", "pipe.yaml", says=["pipe.yaml", '"lr" is given twice'])
        path.write_text("command: python train.py\nstudy: 3\n")
        refused(strict, "study", "pipe.yaml", says=["study", "found 3"])
    finally:
        path.unlink()
