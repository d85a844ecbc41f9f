"""A checkpoint comes home as it was committed, or not at all."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.process

SAVES = """
import os
os.chdir(os.environ["TM_CHECKPOINT_DIR"])
os.makedirs("epoch-1")
os.makedirs("empty")
open("epoch-1/weights", "w").write("w" * 1000)
open("epoch-1/run.sh", "w").write("true")
os.chmod("epoch-1/run.sh", 0o755)
os.symlink("epoch-1", "latest")
os.symlink("../elsewhere", "epoch-1/away")
"""


@pytest.fixture
def job(world):
    job = world.submit(world.job_file(SAVES))
    world.wait(job)
    return job


def _stored(world, job, name):
    [path] = (world.store / "jobs" / job / "checkpoints").glob(f"*/files/{name}")
    return path


def test_links_empty_folders_and_run_bits_come_with_it(world, job):
    answer = world.json("pull", job, "got", "--only", "checkpoint")
    got = world.source / "got" / "checkpoint"
    assert os.readlink(got / "latest") == "epoch-1"
    assert os.readlink(got / "epoch-1" / "away") == "../elsewhere"
    assert (got / "latest" / "weights").read_text() == "w" * 1000
    assert os.access(got / "epoch-1" / "run.sh", os.X_OK)
    assert not os.access(got / "epoch-1" / "weights", os.X_OK)
    assert (got / "empty").is_dir()
    assert sorted(answer["files"]) == [f"checkpoint/{n}" for n in ("epoch-1/away", "epoch-1/run.sh", "epoch-1/weights", "latest")]


def test_pulling_twice_into_the_same_folder_is_fine(world, job):
    for _ in range(2):
        world.cli("pull", job, "got", "--only", "checkpoint", "--force")
    assert os.readlink(world.source / "got" / "checkpoint" / "latest") == "epoch-1"


def test_a_link_does_not_lead_what_is_pulled_elsewhere(world, job):
    """A link that was in the folder before is replaced, not followed."""
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir()
    (world.source / "got" / "checkpoint").mkdir(parents=True)
    (world.source / "got" / "checkpoint" / "latest").symlink_to(elsewhere)
    world.cli("pull", job, "got", "--only", "checkpoint", "--force")
    assert os.readlink(world.source / "got" / "checkpoint" / "latest") == "epoch-1"
    assert list(elsewhere.iterdir()) == []


def test_a_folder_in_the_place_of_a_link_is_left_alone(world, job):
    (world.source / "got" / "checkpoint" / "latest" / "mine").mkdir(parents=True)
    said = world.cli("pull", job, "got", "--only", "checkpoint", "--force", expect=2).stderr.decode()
    assert "latest is a folder" in " ".join(said.split())
    assert (world.source / "got" / "checkpoint" / "latest" / "mine").is_dir()


def test_damaged_bytes_are_not_brought_home(world, job):
    path = _stored(world, job, "epoch-1/weights")
    path.write_bytes(b"x" * 1000)
    said = world.cli("pull", job, "got", "--only", "checkpoint", expect=2).stderr.decode()
    assert "checkpoint 1-000001 is damaged: epoch-1/weights has other bytes than were committed" in " ".join(said.split())
    assert f"trainmaster checkpoints {job}" in said
    assert not (world.source / "got" / "checkpoint" / "epoch-1" / "weights").exists()


def test_a_missing_file_is_said(world, job):
    _stored(world, job, "epoch-1/weights").unlink()
    said = world.cli("pull", job, "got", "--only", "checkpoint", expect=2).stderr.decode()
    assert "checkpoint 1-000001 is damaged: epoch-1/weights is missing" in " ".join(said.split())


def test_a_manifest_that_leads_elsewhere_is_damaged(world, job):
    [manifest] = (world.store / "jobs" / job / "checkpoints").glob("*/manifest.json")
    manifest.write_text(manifest.read_text().replace("epoch-1/weights", "../../evil"))
    said = world.cli("pull", job, "got", "--only", "checkpoint", expect=2).stderr.decode()
    assert "is damaged: its manifest names '../../evil'" in " ".join(said.split())
    assert "Traceback" not in said


def test_a_manifest_that_cannot_be_read_is_said(world, job):
    [manifest] = (world.store / "jobs" / job / "checkpoints").glob("*/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:40])
    said = world.cli("pull", job, "got", "--only", "checkpoint", expect=2).stderr.decode()
    assert "checkpoint 1-000001 is damaged: its manifest cannot be read" in " ".join(said.split())


@pytest.mark.parametrize("text", [b"garbage", b"", b"\xff", b'{"id": "x"}', None])
def test_a_damaged_marker_is_named_and_counts_for_nothing(world, job, text):
    [marker] = (world.store / "jobs" / job / "checkpoints").glob("*/COMMIT")
    other = marker.read_bytes().replace(b"1-000001", b"nonsense")
    marker.write_bytes(other if text is None else text)
    shown = world.cli("checkpoints", job)
    assert b"checkpoint 1-000001 does not count: its COMMIT cannot be read" in shown.stderr
    assert world.json("checkpoints", job) == []
    for words in (("--only", "checkpoint"), ("--checkpoint", "1-000001")):
        done = world.cli("pull", job, "got", *words, expect=2)
        assert b"checkpoint 1-000001 is damaged: its COMMIT cannot be read" in done.stderr
    assert not (world.source / "got").exists()


def test_the_path_is_printed_as_it_is(world, job):
    (world.source / "deep").mkdir()
    answer = world.json("pull", job, "deep/../got", "--only", "checkpoint")
    assert answer["folder"] == str(world.source / "got")
