"""Several commands run the same old job again, or take it away, at one time: one of them wins, and nobody else loses anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3

import pytest
from msgspec.structs import replace
from process.scripts import COUNT
from process.test_again import stopped_at

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.config import read_config
from trainmaster.core.job import JobId
from trainmaster.embedded import Embedded, opened
from trainmaster.embedded.again import find_record, rerun_job, resume_job
from trainmaster.embedded.studies import submit_study
from trainmaster.errors import UnknownJob
from trainmaster.spec import layout
from trainmaster.spec.parse import spec_from_mapping

pytestmark = pytest.mark.process

#: Fails until the gate is opened, and says whose environment it has.
FAILS_FIRST = """
import os, sys
print(os.environ["MINE"], flush=True)
sys.exit(int(open(os.environ["GATE"]).read()) == 0)
"""


@contextlib.contextmanager
def nobody_writes(world):
    """Who wants to write into the database waits."""
    database = sqlite3.connect(world.home / "trainmaster.db", timeout=30, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        database.execute("ROLLBACK")
        database.close()


def environments(world) -> list[str]:
    folder = world.home / "environments"
    return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def failed_study(world) -> str:
    """A study whose two jobs failed; whoever resumes it now succeeds."""
    world.environ["MINE"] = "first"
    study = world.json("study", world.job_file(FAILS_FIRST, name="sweep"), "--grid", "a=1,2", expect=1)["study"]["id"]
    world.until("nobody drives", lambda: not world.drivers())
    world.open_gate(1)
    return study


def test_who_loses_takes_nothing_from_who_resumes_the_study(world, failed_study):
    with nobody_writes(world):
        winner = world.start("resume", failed_study, "--detach")
        world.until("it has kept its environment", lambda: environments(world))
        world.environ["MINE"] = "second"
        said = " ".join(world.cli("resume", failed_study, "--detach", expect=2).stderr.decode().split())
        assert f"another command resumes {failed_study} right now" in said
        said = " ".join(world.cli("resume", f"{failed_study}-2", "--detach", expect=2).stderr.decode().split())
        assert f"another command resumes {failed_study} right now" in said
        assert environments(world) == [f"{failed_study}-1-r2.json"]
    assert winner.wait(60) == 0, world.output_of(winner)
    world.cli("wait", failed_study)
    assert [world.log(f"{failed_study}-{number}-r2") for number in (1, 2)] == ["first\n", "first\n"]


def test_what_a_killed_resume_left_is_in_nobodys_way(world, failed_study):
    with nobody_writes(world):
        killed = world.start("resume", failed_study, "--detach")
        world.until("it has kept its environment", lambda: environments(world))
        world.kill(killed.pid)
        assert environments(world) == [f"{failed_study}-1-r2.json"]
    world.environ["MINE"] = "second"
    world.cli("resume", failed_study)
    assert [world.log(f"{failed_study}-{number}-r2") for number in (1, 2)] == ["second\n", "second\n"]
    assert environments(world) == []
    assert list((world.home / "resuming").iterdir()) == []


def test_of_two_who_resume_a_job_one_is_refused(world):
    old = stopped_at(world, 1)
    world.until("nobody drives", lambda: not world.drivers())
    with nobody_writes(world):
        winner = world.start("resume", old, "--detach")
        world.until("it has kept its environment", lambda: environments(world))
        assert f"another command resumes {old} right now" in world.cli("resume", old, "--detach", expect=2).stderr.decode()
    assert winner.wait(60) == 0, world.output_of(winner)
    assert len(world.ids()) == 2


@pytest.mark.parametrize("word", ["resume", "rerun"])
def test_interrupted_before_it_is_accepted_it_leaves_nothing_and_says_so(world, word):
    old = stopped_at(world, 1)
    world.until("nobody drives", lambda: not world.drivers())
    with nobody_writes(world):
        command = world.start(word, old, "--detach")
        world.until("it has kept its environment", lambda: environments(world))
        command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130
    assert world.output_of(command) == "interrupted; nothing was submitted\n"
    assert (world.ids(), environments(world)) == ([old], [])


class Interrupted(SqliteDatabase):
    """Ctrl-C, just when it has been written."""

    async def add_many(self, jobs, study=None):
        await super().add_many(jobs, study)
        raise KeyboardInterrupt


def test_a_study_that_was_accepted_before_the_interrupt_is_a_study(world):
    world.write("train.py", "print(1)")
    spec = spec_from_mapping({"name": "sweep", "entry_point": "train.py", "study": {"grid": {"a": [1, 2]}}})

    async def play() -> str:
        async with opened(read_config(world.environ)) as real:
            database = Interrupted.open(world.home / "trainmaster.db")
            embedded = Embedded(real.config, replace(real.ports, database=database), real.store)
            submission = await submit_study(embedded, spec, world.source, world.environ, lambda *_: None)
            await database.close()
            return submission.study.id

    study = asyncio.run(play())
    assert world.ids() == [f"{study}-1", f"{study}-2"]
    assert environments(world) == [f"{study}-1.json"]
    world.cli("wait", study)


def test_a_job_that_lost_its_environment_fails_and_does_not_guess(world):
    world.environ["TRAINMASTER_CPUS"] = "1"
    first = world.submit(world.job_file(COUNT, arguments=["1"], name="first"))
    world.until_attempt(first, 1)
    second = world.submit(world.job_file("print(1)", name="second"))
    (world.home / "environments" / f"{second}.json").unlink()
    world.open_gate(1)
    record = world.wait(second, expect=1)
    assert "the environment it was submitted from is not here any more" in json.dumps(record["reason"])
    assert world.log(second) == ""


@pytest.mark.parametrize("again", [resume_job, rerun_job])
def test_a_job_that_was_deleted_meanwhile_is_not_run_again(world, again):
    gone = stopped_at(world, 1)
    stopped_at(world, 1)  # has the same code
    world.until("nobody drives", lambda: not world.drivers())

    async def play() -> None:
        async with opened(read_config(world.environ)) as embedded:
            old = await find_record(embedded, gone)
            sealed = (world.store / layout.record(gone)).read_bytes()
            await embedded.ports.database.remove(JobId(gone), expect_revision=old.revision)
            assert (world.store / layout.record(gone)).read_bytes() == sealed, "only its record is gone yet"
            with pytest.raises(UnknownJob):
                await again(embedded, old, world.environ, lambda spec: spec)
            await embedded.house.finish()
            with pytest.raises(UnknownJob):
                await again(embedded, old, world.environ, lambda spec: spec)

    asyncio.run(play())
    assert len(world.ids()) == 1


def test_without_its_checkpoints_a_job_does_not_go_on(world):
    old = stopped_at(world, 2)
    world.json("prune", "--older-than", "0s", "--keep-models", "--yes")
    assert world.commits(old) == []
    said = " ".join(world.cli("resume", old, expect=2).stderr.decode().split())
    assert f"of {old}, from which {old} would go on, is not in the store" in said
    assert f"trainmaster rerun {old}" in said
    assert world.ids() == [old]


def test_a_study_does_not_go_on_without_the_checkpoints_of_its_jobs(world):
    script = COUNT.replace("int(sys.argv[1])", "9")
    world.open_gate(1)
    study = world.json("study", world.job_file(script, name="sweep"), "--grid", "a=1,2", "--detach")["study"]["id"]
    for number in (1, 2):
        world.until_committed(f"{study}-{number}", "1")
    world.cli("stop", study, "--wait")
    world.json("prune", "--older-than", "0s", "--name", "sweep-2", "--keep-models", "--yes")
    said = " ".join(world.cli("resume", study, expect=2).stderr.decode().split())
    assert f"{study}-2 would go on, is not in the store" in said
    assert len(world.ids()) == 2
