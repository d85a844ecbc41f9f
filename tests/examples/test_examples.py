"""Do the examples run as their first line says?"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from process.world import COMMAND, World

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(world: World):
    """Copy an example, and give its commands."""

    def take(name: str, **environ: str):
        folder = world.folder / name
        shutil.copytree(ROOT / "examples" / name, folder)

        def command(*words: str) -> str:
            done = subprocess.run(
                [COMMAND, *words], cwd=folder, env={**world.environ, **environ}, capture_output=True, text=True, timeout=150
            )
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
            return done.stdout

        return folder, command

    return take


def measured(command, name):
    attempts = json.loads(command("show", "last", "--json"))["job"]["attempts"]
    return attempts[-1]["metrics"][name]


def test_text_intent(example):
    _, command = example("text-intent")
    assert "epoch 12: loss" in command("run", "job.yaml")
    assert measured(command, "accuracy")["max"] > 0.9


def test_requirements(example):
    _, command = example("requirements")
    assert "with numpy" in command("run", "job.yaml")
    assert measured(command, "loss")["last"] < 0.1


def test_study(example):
    _, command = example("study")
    command("study", "job.yaml")
    best = command("best", "--study", "valley", "--metric", "loss", "--min").split()[0]
    assert json.loads(command("show", best, "--json"))["job"]["spec"]["hyperparameters"] == {"lr": 0.05, "momentum": 0.9}


@pytest.mark.torch
def test_cifar(example):
    python = Path(os.environ["TORCH_VENV"]).resolve()
    folder, command = example("cifar", VIRTUAL_ENV=str(python))
    subprocess.run([sys.executable, "make_data.py", "data"], cwd=folder, check=True)
    assert "epoch=6" in command("run", "job.yaml")
    assert measured(command, "accuracy")["last"] > 0.9
    command("pull", "last", "results")
    assert {path.name for path in (folder / "results" / "model").iterdir()} == {"model.pth", "classes.json"}
