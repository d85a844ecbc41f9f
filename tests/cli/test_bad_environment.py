"""An environment that can never be: is it refused at submission, by field, with nothing left behind?"""

from __future__ import annotations

import json

import pytest
from cli.terminal import run_cli


def refused(world, environment, *, field, says, hint=""):
    world.write("train.py", "print(1)")
    world.write("job.json", json.dumps({"name": "a", "entry_point": "train.py", "environment": environment}))
    done = run_cli(world, "run", "job.json")
    said = " ".join(done.err.split())
    assert done.code == 2, said
    assert f"{field}: " in said
    assert says in said
    assert hint in said
    assert "Traceback" not in said
    assert world.ids() == []
    assert not (world.store / "jobs").exists()
    assert not (world.store / "wheels").exists()
    return said


def test_a_requirements_file_that_is_not_there(world):
    world.write("requirements.txt", "six\n")
    hint = "did you mean requirements.txt?"
    refused(world, {"requirements": "requirement.txt"}, field="environment.requirements", says="is not a file", hint=hint)


def test_a_requirements_file_outside(world):
    refused(world, {"requirements": "../r.txt"}, field="environment.requirements", says="contains `..`")
    (world.folder / "r.txt").write_text("six\n")
    (world.source / "link.txt").symlink_to(world.folder / "r.txt")
    refused(world, {"requirements": "link.txt"}, field="environment.requirements", says="lies outside the source folder")
    world.write("more.txt", "-r ../r.txt\n")
    refused(world, {"requirements": "more.txt"}, field="environment.requirements", says="../r.txt lies outside")


def test_a_requirements_file_that_stays_behind(world):
    world.write("requirements.txt", "six\n")
    world.write(".trainmasterignore", "requirements.txt\n")
    refused(world, {"requirements": "requirements.txt"}, field="environment.requirements", says="left out of the snapshot")


def test_a_requirements_file_with_a_password(world):
    world.write("requirements.txt", "six\n--index-url https://ada:hunter22@host/simple\n")
    said = refused(world, {"requirements": "requirements.txt"}, field="environment.requirements", says="line 2, holds a password")
    assert "hunter22" not in said


def test_an_index_with_a_password(world):
    asked = {"requirements": ["six"], "index": "https://ada:hunter22@host/simple"}
    said = refused(world, asked, field="environment.index", says="holds a password", hint="${NAME}")
    assert "hunter22" not in said


def test_a_reference_that_stands_for_nothing(world):
    asked = {"requirements": ["six"], "index": "https://ada:${PACKAGES_PASSWORD}@host/simple"}
    refused(world, asked, field="environment.index", says="PACKAGES_PASSWORD is not set here", hint="export PACKAGES_PASSWORD=")
    asked = {"requirements": ["six"], "extra_indexes": ["https://${TOKEN_4711}@host/simple"]}
    refused(world, asked, field="environment.extra_indexes[0]", says="TOKEN_4711 is not set here")


def test_a_link_to_the_folder(world):
    world.write("requirements.txt", "-e .\n")
    refused(world, {"requirements": "requirements.txt"}, field="environment.requirements", says="line 1, installs a link")


def test_a_wheel_folder_that_is_not_there(world):
    refused(world, {"requirements": ["six"], "wheels": "house"}, field="environment.wheels", says="is not a folder")
    (world.source / "house").mkdir()
    refused(world, {"requirements": ["six"], "wheels": "house"}, field="environment.wheels", says="holds no wheels")


def test_a_python_that_is_not_installed(world):
    said = refused(world, {"python": "3.99"}, field="environment.python", says="Python 3.99 is not installed on this machine")
    assert "there are: 3." in said


def test_no_conda_at_all(world):
    world.write("environment.yml", "dependencies: []\n")
    world.environ["PATH"] = f"{world.folder / 'bin'}:/usr/bin:/bin"
    world.environ.pop("CONDA_EXE", None)
    world.environ.pop("MAMBA_EXE", None)
    says = "none of micromamba, mamba, conda is on your PATH"
    refused(world, {"conda": "environment.yml"}, field="environment.conda", says=says)
    refused(world, {"conda": "environment.yaml"}, field="environment.conda", says="is not a file")


@pytest.mark.parametrize("asked", [{"apt": ["git"]}, {"image": "a:1"}, {"docker": {"shm_size": "1g"}}])
def test_what_needs_a_container_is_refused(world, asked):
    field = f"environment.{next(iter(asked))}"
    refused(world, asked, field=field, says=f"does not support {field} yet")


def test_prune_options_belong_to_prune(world):
    assert run_cli(world, "envs", "list", "--all").code == 2
    assert run_cli(world, "envs", "prune", "--older-than", "soon").code == 2
    assert run_cli(world, "envs", "prune", "--older-than", "1d", "--all").code == 2
    assert run_cli(world, "envs", "remove").code == 2
    done = run_cli(world, "envs", "prune", "--all")
    assert done.code == 0
    assert "nothing to remove" in done.err
