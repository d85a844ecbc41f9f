"""Data that cannot be had: said at once where that can be known at once, with the channel's name, and no job is left."""

from __future__ import annotations

import os

import pytest
from cli.terminal import run_cli, strays

pytestmark = pytest.mark.process


@pytest.fixture
def place(world):
    world.write("train.py", "print('ran')")
    (world.source / "data").mkdir()
    (world.source / "data" / "a.csv").write_text("a")
    os.mkfifo(world.source / "data" / "pipe")
    return world


@pytest.mark.parametrize(
    ("given", "said", "hint"),
    [
        ("training=./dat", "inputs.training: {source}/dat does not exist", "did you mean {source}/data?"),
        ("training=data/b.csv", "inputs.training: {source}/data/b.csv does not exist", "did you mean {source}/data/a.csv?"),
        ("training=data/a.csv/x", "inputs.training: {source}/data/a.csv/x does not exist", ""),
        ("training=data/pipe", "inputs.training: {source}/data/pipe is neither a folder nor a file", ""),
        ("training=file://{source}/nix", "inputs.training: {source}/nix does not exist", ""),
        ("training=ftp://host/x", 'inputs.training: found "ftp://", which is no kind of address known here', ""),
        ("training=gcs://bucket/x", "did you mean `gs`?", ""),
        ("training=", "inputs.training: is blank", ""),
        ("training=https://me:hunter2@host/x.csv", "put it into ~/.netrc", ""),
        ("../x=data", 'inputs["../x"]: as a name: wanted 1 to 64 of', ""),
        ("a b=data", 'inputs["a b"]: as a name', ""),
        ("=data", '--input: found "=data", wanted NAME=VALUE', ""),
        ("data", "--input", ""),
    ],
)
def test_refused_at_submission(place, given, said, hint):
    source = place.source
    answer = run_cli(place, "run", "train.py", "--input", given.format(source=source))
    assert (answer.code, answer.out) == (2, "")
    assert said.format(source=source) in answer.said
    assert hint.format(source=source) in answer.said
    assert "hunter2" not in answer.said
    assert place.ids() == []
    assert strays(place) == []


def test_streaming_is_refused_with_the_usual_sentence(place):
    job = place.job_file("print(1)", inputs={"training": {"uri": "s3://b", "mode": "fastfile"}})
    answer = run_cli(place, "submit", job)
    assert answer.code == 2
    assert "provider local does not support inputs in mode fastfile yet" in answer.said


def test_a_path_in_a_job_file_is_relative_to_the_file_and_one_by_flag_to_the_folder_we_stand_in(place):
    jobs = place.source / "jobs"
    jobs.mkdir()
    (jobs / "data").mkdir()
    (jobs / "data" / "near").write_text("x")
    (jobs / "job.yaml").write_text(
        "command: ls $SM_CHANNEL_A $SM_CHANNEL_B\ninputs:\n  A: data\n  B: {uri: ~/far}\nsource_dir: ..\n"
    )
    (place.folder / "far").mkdir()
    place.environ["HOME"] = str(place.folder)
    (place.source / "data" / "pipe").unlink()
    answer = run_cli(place, "run", "jobs/job.yaml")
    assert answer.code == 0, answer.said
    assert "near" in answer.out
    answer = run_cli(place, "run", "jobs/job.yaml", "--input", "A=data")
    assert answer.code == 0, answer.said
    assert "a.csv" in answer.out
    assert "near" not in answer.out
