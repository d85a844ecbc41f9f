"""Would an attacked world that broke a promise be found? What was seen of it goes through the builder and the checkers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from trainmaster.core.job import Phase
from trainmaster.core.messages import Manifest, ManifestFile
from trainmaster.spec import layout
from trainmaster.testing import builders
from trainmaster.testing.chaos import train
from trainmaster.testing.chaos.chronicle import KILLED, last_kind, machine_events, read_journal, training_events
from trainmaster.testing.chaos.draw import Mood, draw_jobs
from trainmaster.testing.chaos.gather import damaged, in_order, promise_of
from trainmaster.testing.chaos.processes import Lifetime, Role, Seat
from trainmaster.testing.checkers import check_world
from trainmaster.testing.witness import Closed, Marked, TrainingBegan, TrainingEnded, World

JOB, NAME = "job-1", "1-000001"


def line(at: float, kind: str, attempt: int, pid: int, **more: object) -> str:
    return json.dumps({"at": 1000.0 + at, "kind": kind, "job": JOB, "attempt": attempt, "pid": pid, **more})


def life(pid: int, attempt: int, last_s: float, role: Role = Role.SCRIPT) -> Lifetime:
    seat = Seat(pid=pid, start="1", role=role, allocation=f"{JOB}-a{attempt}")
    return Lifetime(seat=seat, first_s=0.0, last_s=last_s, is_over=True)


@pytest.fixture
def journal(tmp_path):
    def write(*lines: str) -> Path:
        path = tmp_path / "journal.jsonl"
        path.write_text("".join(f"{text}\n" for text in lines))
        return path

    return write


def findings(events, store=None) -> list[str]:
    """What the checkers say of a world in which only this was seen."""
    job = msgspec.structs.replace(builders.a_job(phase=Phase.RUNNING), id=JOB)
    world = World(
        events=tuple(in_order([*events, *damaged(store or {}, list(events), 90.0)])),
        records={JOB: job},
        stories={},
        store=store or {},
        destinies={},
        promise=promise_of(Mood.HARSH, 50.0, 60.0),
        ended_at_s=100.0,
    )
    return [f"{finding.checker}: {finding.sentence}" for finding in check_world(world)]


def found(events, checker: str, store=None) -> bool:
    return any(text.startswith(f"{checker}:") for text in findings(events, store))


OVERLAP = (line(1, "began", 1, 11, step=0, resumed=""), line(5, "began", 2, 12, step=0, resumed=""))


def test_two_scripts_that_train_at_once_are_found(journal):
    lives = [life(11, 1, last_s=8.0), life(12, 2, last_s=9.0)]
    events = training_events(read_journal(journal(*OVERLAP), 1000.0), lives, {})
    assert found(events, "one_claimed_runner")
    assert not found([*events, Closed(4.0, JOB, 1)], "one_claimed_runner"), "its attempt was closed: nothing it does counts"


def test_one_script_after_the_other_is_as_it_should_be(journal):
    lives = [life(11, 1, last_s=4.9), life(12, 2, last_s=9.0)]
    events = training_events(read_journal(journal(*OVERLAP), 1000.0), lives, {})
    assert not found(events, "one_claimed_runner")
    assert [e.at_s for e in events if isinstance(e, TrainingEnded)] == [4.9, 9.0]


def test_two_scripts_of_one_attempt_are_found(journal):
    lines = (
        line(1, "began", 1, 11, step=0, resumed=""),
        line(2, "ended", 1, 11, code=0),
        line(5, "began", 1, 12, step=0, resumed=""),
    )
    assert found(training_events(read_journal(journal(*lines), 1000.0), [], {}), "one_claimed_runner")


def test_a_script_that_was_killed_did_not_say_so_itself(journal):
    lines = (line(1, "began", 1, 11, step=0, resumed=""), line(2, "saving", 1, 11, step=3))
    path = journal(*lines)
    events = training_events(read_journal(path, 1000.0), [], {(f"{JOB}-a1", 11): 3.0, (f"{JOB}-a2", 12): 4.0})
    ends = [(e.attempt, e.code) for e in events if isinstance(e, TrainingEnded)]
    assert ends == [(1, KILLED), (2, KILLED)]
    assert [e.step for e in events if isinstance(e, TrainingBegan)] == [0]
    assert last_kind(path, life(11, 1, 0.0).seat) == "saving"
    assert last_kind(path, life(11, 2, 0.0).seat) == last_kind(path, life(1, 1, 0.0).seat) == ""


def checkpoint(weights: bytes, optimizer: bytes) -> dict[str, bytes]:
    """A bucket with one committed checkpoint."""
    files, store = [], {}
    for path, value in (("weights", weights), ("optimizer", optimizer)):
        store[layout.checkpoint_file(JOB, NAME, path)] = value
        files.append(ManifestFile(path=path, size_bytes=len(value), blake3=blake3(value).hexdigest(), stored_in=NAME))
    manifest = Manifest(id=NAME, taken_at=builders.at(0), files=files)
    return {**store, layout.manifest(JOB, NAME): msgspec.json.encode(manifest), layout.commit(JOB, NAME): b"{}"}


WHOLE = checkpoint(train.content(3, 50), train.content(3, 60))
MARK = Marked(7.0, JOB, 1, "r", NAME, 3)


@pytest.mark.parametrize(
    "store",
    [
        checkpoint(train.content(3, 50), train.content(4, 50)),
        checkpoint(train.content(3, 50)[:-1], train.content(3, 50)),
        {k: v for k, v in WHOLE.items() if not k.endswith("optimizer")},
        {**WHOLE, layout.checkpoint_file(JOB, NAME, "weights"): train.content(2, 50)},
    ],
    ids=["two steps", "half a file", "a file is missing", "another file than was committed"],
)
def test_a_torn_checkpoint_in_the_bucket_is_found(store):
    assert found([MARK], "checkpoints_never_torn", store)


def test_a_whole_checkpoint_is_not_torn():
    assert not found([MARK], "checkpoints_never_torn", WHOLE)


def test_a_runner_that_never_went_is_found():
    stays = life(21, 1, last_s=99.0, role=Role.RUNNER)
    stays.is_over = False
    assert found(machine_events([stays]), "everything_ends")


def test_the_same_seed_draws_the_same_jobs():
    one, other = draw_jobs(5), draw_jobs(5)
    assert [next(one) for _ in range(20)] == [next(other) for _ in range(20)]


PLAN = {
    "steps": 4,
    "step_s": 0.0,
    "save_every": 2,
    "in_place": True,
    "size_bytes": 1000,
    "piece_s": 0.0,
    "code": 5,
    "crashes": 1,
    "crash_after": 3,
    "hangs_at": None,
    "ignores_term": True,
    "saves_on_term": False,
}


@pytest.mark.parametrize("in_place", [True, False])
def test_the_script_saves_and_says_what_it_did(tmp_path, in_place):
    plan = json.dumps({**PLAN, "in_place": in_place})
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    environ = {"TM_CHECKPOINT_DIR": str(folder), "TM_JOB_ID": JOB, "CHAOS_JOURNAL": str(tmp_path / "j"), "PATH": os.environ["PATH"]}
    codes = [
        subprocess.run(
            [sys.executable, train.__file__, plan], env={**environ, "TM_ATTEMPT": str(n)}, capture_output=True
        ).returncode
        for n in (1, 2)
    ]
    lines = read_journal(tmp_path / "j", 0.0)
    assert codes == [3, 5]
    assert [(entry.kind, entry.step) for entry in lines if entry.kind in {"began", "saved"}] == [
        ("began", 0),
        ("saved", 2),
        ("began", 2),
        ("saved", 4),
    ]
    assert [entry.code for entry in lines if entry.kind == "ended"] == [3, 5]
    assert sorted(path.name for path in folder.iterdir()) == ["optimizer", "weights"]
    assert train.step_of({path.name: path.read_bytes() for path in folder.iterdir()}) == 4
