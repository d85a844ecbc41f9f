"""Can a notebook or a script submit a job and wait for it?"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from process.scripts import COUNT
from process.world import DEADLINE_S

pytestmark = pytest.mark.process


def run_python(world, text, *words, code=0):
    """What a script of a user prints."""
    script = "from trainmaster.embedded import submit_job, wait_for\n" + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=world.source,
        env=world.environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == code, done.stderr + world.report()
    return done.stdout + done.stderr


def test_submit_and_wait(world):
    world.write("train.py", "import sys; print('lr', sys.argv[2])")
    text = """
        job_id = submit_job({"entry_point": "train.py", "hyperparameters": {"lr": 0.1}})
        record = wait_for(job_id, timeout_s=50)
        print(record.id == job_id, record.outcome, record.spec.hyperparameters)
        print(wait_for("last").id == job_id)
    """
    assert run_python(world, text) == "True succeeded {'lr': 0.1}\nTrue\n"
    assert world.log(world.ids()[0]) == "lr 0.1\n"


def test_a_spec_as_a_value_and_another_folder(world):
    other = world.folder / "other"
    other.mkdir()
    (other / "train.py").write_text("raise SystemExit(3)")
    text = """
        import sys
        from trainmaster.spec.job_spec import JobSpec
        print(wait_for(submit_job(JobSpec(name="x", command="python train.py"), sys.argv[1])).outcome)
    """
    assert run_python(world, text, str(other)) == "failed\n"
    assert world.record(world.ids()[0])["code"]["folder"] == str(other)


def test_inside_a_running_event_loop_as_in_a_notebook(world):
    world.write("train.py", "print(1)")
    text = """
        import asyncio
        async def cell():
            return wait_for(submit_job({"entry_point": "train.py"}), 50).outcome
        print(asyncio.run(cell()))
    """
    assert run_python(world, text) == "succeeded\n"


def test_waiting_ends_when_the_time_is_over(world):
    job = world.submit(world.job_file(COUNT, arguments=["1"]))
    text = """
        import sys
        try:
            wait_for(sys.argv[1], timeout_s=0.3)
        except TimeoutError:
            print("not yet")
    """
    assert run_python(world, text, job) == "not yet\n"
    world.open_gate(1)
    world.wait(job)


def test_mistakes_are_errors_of_ours(world):
    text = """
        from trainmaster.errors import UserError
        wrong = [{"comand": "x"}, {"entry_point": "gone.py"}, {"command": "x", "resources": {"cpus": 900}}]
        for spec in wrong:
            try:
                submit_job(spec)
            except UserError as error:
                print(type(error).__name__, error.sentence.splitlines()[0])
        try:
            wait_for("nobody")
        except UserError as error:
            print(error.sentence)
        try:
            submit_job({"command": "x"}, "nowhere")
        except UserError as error:
            print(error.sentence)
    """
    said = run_python(world, text).splitlines()
    assert said[0].startswith("InvalidSpec comand: unknown field")
    assert said[1].startswith("InvalidSpec entry_point: gone.py is not a file in ")
    assert said[2].startswith("Refused this job can never run here: resources.cpus")
    assert said[3] == 'no job is called "nobody"'
    assert said[4].endswith("nowhere is not a folder")
    assert world.ids() == []
