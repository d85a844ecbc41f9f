"""An environment that cannot be built: is the job failed, in the words of whoever knows, and is no secret told?"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from process.packages import Index, make_broken_source, make_wheel, serving
from process.test_environments import found_in, set_up_log

pytestmark = pytest.mark.process
SCRIPT = "print('never')"


def failed(world, **environment) -> tuple[str, str]:
    """The id and the reason of a job that could not have its environment."""
    job = world.submit(world.job_file(SCRIPT, environment=environment))
    record = world.wait(job, expect=1)
    assert record["outcome"] == "failed"
    assert len(record["attempts"]) == 1, "trying again would not help"
    assert record["reason"]["code"] == "environment"
    assert world.log(job) == ""
    assert world.json("envs", "list") == []
    return job, record["reason"]["sentence"]


@pytest.fixture
def index(world, tmp_path):
    make_wheel(tmp_path / "wheels", "alpha", "1.0")
    make_wheel(tmp_path / "wheels", "beta", "1.0", requires=("alpha>=7",))
    make_broken_source(tmp_path / "wheels", "broken")
    with serving(Index(tmp_path / "wheels")) as served:
        world.environ["UV_DEFAULT_INDEX"] = served.url
        yield served


def test_what_cannot_be_resolved_is_told_in_the_resolvers_words(world, index):
    world.write("requirements.txt", "beta\n")
    job, said = failed(world, requirements="requirements.txt")
    assert "requirements.txt could not be resolved" in said
    assert "alpha>=7" in said
    assert "beta" in said
    assert "alpha>=7" in set_up_log(world, job)
    assert b"alpha>=7" in world.cli("show", job).stdout.replace(b"\n", b" ")


def test_a_package_that_is_not_there(world, index):
    assert "nosuch" in failed(world, requirements=["nosuch"])[1]


def test_a_package_that_fails_to_build_says_why(world, index):
    job, said = failed(world, requirements=["broken"])
    assert "broken" in said
    assert "no compiler for snafu" in said
    assert "Traceback" in set_up_log(world, job)


def test_an_index_that_is_down(world):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world.environ["UV_HTTP_RETRIES"] = "0"
    said = failed(world, requirements=["alpha"], index=f"http://127.0.0.1:{port}/simple")[1]
    assert f"127.0.0.1:{port}" in said


def test_a_wrong_password_is_never_printed(world, tmp_path):
    make_wheel(tmp_path / "private", "alpha", "5.0")
    with serving(Index(tmp_path / "private", password="right-4711")) as private:
        world.environ["PACKAGES_PASSWORD"] = "wrong-0815"
        job, said = failed(world, requirements=["alpha"], index=private.address("ada:${PACKAGES_PASSWORD}"))
        done = world.cli("run", "job.json", expect=1)
        world.until("the driver has left", lambda: not world.drivers())
    assert "alpha" in said
    assert "401" in said or "nauthorized" in said
    shown = b"".join(world.cli(*words).stdout for words in (("why", job), ("show", job), ("logs", job, "--setup")))
    assert not found_in(world, shown + done.stdout + done.stderr, ["wrong-0815"])


def test_a_failing_setup_command_is_quoted(world):
    job, said = failed(world, setup=["echo one", "echo two; echo no data >&2; exit 3", "echo three"])
    assert "environment.setup[1]" in said
    assert "exit code 3" in said
    assert said.rstrip(".").endswith("two no data")
    log = set_up_log(world, job)
    assert "one\n" in log
    assert "three" not in log


def test_a_lock_that_is_not_in_the_store_any_more(world, index):
    import json

    world.environ["TRAINMASTER_CPUS"] = "1"
    blocker = world.submit(world.spec_file(name="block", command='while [ "$(cat $GATE)" -lt 1 ]; do sleep 0.05; done'))
    world.until("the blocker runs", lambda: world.record(blocker)["phase"] == "running")
    job = world.submit(world.job_file(SCRIPT))
    path = world.store / "jobs" / job / "spec.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lock": "0" * 32}))
    world.open_gate(1)
    assert "not in the store any more" in world.wait(job, expect=1)["reason"]["sentence"]


def test_the_words_for_a_full_disk_are_the_machines_trouble():
    """What uv prints when the kernel tells it so; no disk is filled here."""
    from trainmaster.adapters.environments.trouble import refuse_full_disk

    with pytest.raises(OSError, match="disk filled up"):
        refuse_full_disk("error: failed to write: No space left on device (os error 28)")
    refuse_full_disk("error: no solution")


FAKE_CONDA = """#!{python}
import os, pathlib, subprocess, sys
words = sys.argv[1:]
prefix = words[words.index("--prefix") + 1]
if "create" in words:
    text = pathlib.Path(words[words.index("--file") + 1]).read_text()
    if "nosuch" in text:
        sys.exit("error    libmamba Could not solve for environment specs: nosuch does not exist")
    subprocess.run([{python!r}, "-m", "venv", "--without-pip", prefix], check=True)
    meta = pathlib.Path(prefix, "conda-meta")
    meta.mkdir()
    (meta / "python-3.json").write_text("{{}}")
else:
    print("@EXPLICIT\\nhttps://conda.example.org/linux-64/python-3.conda#abc")
"""


@pytest.fixture
def conda(world):
    """A stand-in on the PATH: makes what the real one would, from files here."""
    program = world.folder / "bin" / "micromamba"
    program.write_text(FAKE_CONDA.format(python=os.path.realpath(sys.executable)))
    program.chmod(0o755)
    return program


def test_a_conda_environment(world, conda):
    world.write("environment.yml", "dependencies: [python]\n")
    script = "import os, sys; print('in', sys.prefix == os.environ['CONDA_PREFIX'], os.environ.get('VIRTUAL_ENV'))"
    job = world.submit(world.job_file(script, environment={"conda": "environment.yml"}))
    record = world.wait(job)
    assert world.log(job) == "in True None\n"
    key = record["attempts"][0]["environment"]["key"]
    lock = (world.store / "envs" / key / "lock.txt").read_text()
    assert "@EXPLICIT" in lock
    again = world.wait(world.submit("job.json"))
    assert again["attempts"][0]["environment"]["was_there"]


def test_a_conda_file_that_cannot_be_solved(world, conda):
    world.write("environment.yml", "dependencies: [nosuch]\n")
    assert "nosuch does not exist" in failed(world, conda="environment.yml")[1]


def test_another_python(world):
    found = [Path(p) for p in ("/usr/bin/python3.11", "/usr/bin/python3.12", "/usr/bin/python3.13") if Path(p).exists()]
    if not found:
        pytest.skip("this machine has no Python of its own")
    import subprocess

    version = subprocess.run([found[0], "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True)
    asked = version.stdout.strip()
    job = world.submit(world.job_file("import platform; print(platform.python_version())", environment={"python": asked}))
    world.wait(job)
    assert world.log(job) == f"{asked}\n"
