"""kill -9 in the middle of deleting, pruning and importing: nothing half is ever shown, and the next one finishes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from cli.terminal import CURVE, run_cli, strays
from process.world import DEADLINE_S, World

pytestmark = pytest.mark.process

#: Does the work with a store or a database that kills the process before its n-th call, and says "done" if it came to no such call.
MORTAL = """
import asyncio, os, signal, sys
from pathlib import Path
from msgspec.structs import replace
from trainmaster.embedded import Embedded, opened

what, calls, word = sys.argv[1], int(sys.argv[2]), sys.argv[3]

class Mortal:
    def __init__(self, inner, names):
        self._inner, self._names = inner, names

    def __getattr__(self, name):
        global calls
        if name in self._names:
            calls -= 1
            if calls < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._inner, name)

WRITES = {"put", "put_if_absent", "put_file", "move_file", "delete_prefix"}
DATABASE = {"add", "remove", "cleared"}

async def main():
    async with opened() as real:
        ports = replace(real.ports, store=Mortal(real.ports.store, WRITES), database=Mortal(real.ports.database, DATABASE))
        mortal = Embedded(real.config, ports, Mortal(real.store, WRITES))
        if what == "delete":
            await mortal.house.delete([await mortal.service.get(await mortal.service.resolve(word))])
        elif what == "thin":
            from trainmaster.core.house import Wish
            async for _ in mortal.house.carry_out(await mortal.house.plan(Wish(older_than_s=0.0, keep_models=True))):
                pass
        else:
            from trainmaster.embedded.moving import import_job
            await import_job(mortal, Path(word), lambda *_: None)
    print("done")

asyncio.run(main())
"""


def die(world, what, calls, word):
    """Whether it was killed before it was done."""
    command = [sys.executable, "-c", MORTAL, what, str(calls), word]
    done = subprocess.run(command, env=world.environ, cwd=world.source, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr.decode()
    return done.returncode != 0


def files(world, job_id):
    folder = world.store / "jobs" / job_id
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def everything(world):
    return sorted(str(path.relative_to(world.store)) for path in world.store.rglob("*") if path.is_file())


@pytest.mark.parametrize("finisher", ["prune", "delete"])
def test_a_delete_that_is_killed_is_finished_by_the_next(world, finisher):
    bystander = world.wait(world.submit(world.job_file("print(2)", name="other")))["id"]
    world.until("its record is sealed", lambda: not world.drivers())
    kept = everything(world)
    calls, killed = 0, True
    while killed:
        job = world.wait(world.submit(world.job_file(CURVE, name="job")))["id"]
        world.until("its record is sealed", lambda: not world.drivers())
        whole = files(world, job)
        killed = die(world, "delete", calls, job)
        shown = [record["id"] for record in world.json("list")]
        assert bystander in shown
        assert job not in shown or files(world, job) == whole, "a job that is shown is whole"
        if finisher == "prune" or job not in shown:
            world.cli("prune", "--yes")
        if job in world.ids():
            world.cli("delete", "--yes", job)
        assert everything(world) == kept, f"killed before call {calls}"
        assert strays(world) == []
        calls += 1
    assert calls >= 5


def test_a_thinning_that_is_killed_is_finished_by_the_next(world):
    calls, killed = 0, True
    job = world.wait(world.submit(world.job_file(CURVE)))["id"]
    while killed:
        killed = die(world, "thin", calls, job)
        assert [record["id"] for record in world.json("list")] == [job]
        assert run_cli(world, "checkpoints", job).code == 0
        calls += 1
    assert calls >= 3
    assert (files(world, job).count("model/model.bin"), world.commits(job)) == (1, [])


def test_an_import_that_is_killed_leaves_nothing_that_counts(world, tmp_path):
    job = world.wait(world.submit(world.job_file(CURVE)))["id"]
    world.cli("export", job, "-o", str(tmp_path / "job.tar"))
    exported, record = files(world, job), world.record(job)
    elsewhere = World(tmp_path / "elsewhere")
    calls, killed = 0, True
    while killed:
        killed = die(elsewhere, "import", calls, str(tmp_path / "job.tar"))
        if killed:
            assert elsewhere.json("list") == []
            if calls % 3 == 0:
                elsewhere.cli("import", str(tmp_path / "job.tar"))  # goes on over what is left
                assert files(elsewhere, job) == exported
                elsewhere.cli("delete", "--yes", job)
            elsewhere.cli("prune", "--yes")
            assert [key for key in everything(elsewhere) if not key.startswith("code/")] == []
        calls += 1
    assert calls >= len(exported)
    assert (files(elsewhere, job), elsewhere.record(job)) == (exported, record)
    assert not list((elsewhere.home / "importing").iterdir())
    elsewhere.close()


def test_code_is_not_taken_from_under_a_submission(world):
    """A submitter has found its code in the store and has not yet said which job needs it."""
    file = world.job_file("print(1)")
    job = world.wait(world.submit(file))["id"]
    script = """
import sys
from pathlib import Path
from trainmaster.adapters.home_folder import HomeFolder
with HomeFolder(Path(sys.argv[1]), lambda: 0.0).submitting():
    print("held", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", script, str(world.home)]
    submitter = subprocess.Popen(command, env=world.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert submitter.stdout is not None
    assert submitter.stdout.readline() == b"held\n"
    answer = run_cli(world, "delete", "--yes", job)
    assert answer.code == 2
    assert "somebody is submitting a job right now" in answer.said
    assert world.ids() == [job]
    assert any(key.startswith("code/") for key in everything(world))
    submitter.kill()
    submitter.communicate()
    assert json.loads(run_cli(world, "delete", "--yes", job, "--json").out) == {"deleted": [job]}
    assert everything(world) == []


def test_submitting_and_deleting_at_once_never_parts_a_job_from_its_code(world):
    """Many jobs of the same code come and go; each that came can be run."""
    file = world.job_file("print(1)")
    first = world.wait(world.submit(file))["id"]
    deleters = [world.start("delete", "--yes", first)]
    submitters = [world.start("submit", file) for _ in range(4)]
    assert [process.wait(DEADLINE_S) for process in submitters] == [0] * 4
    for job in [job for job in world.ids() if job != first]:
        assert world.wait(job)["outcome"] == "succeeded"
        deleters.append(world.start("delete", "--yes", job))
        deleters.append(world.start("submit", file))
    for process in deleters:
        assert process.wait(DEADLINE_S) in {0, 2}, world.output_of(process)
    for job in world.ids():
        assert world.wait(job)["outcome"] == "succeeded"
