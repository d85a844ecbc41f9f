"""Does a job get the environment it asks for, once, and the same again?"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from process.packages import Index, make_wheel, serving

pytestmark = pytest.mark.process

SHOW = """
import os, shutil, sys
import alpha
print("python", sys.executable)
print("active", os.environ.get("VIRTUAL_ENV"), os.environ["PATH"].split(":")[0])
print("alpha", alpha.VERSION)
"""
WAIT = """
import os, time, alpha
print("in", alpha.VERSION, flush=True)
while int(open(os.environ["GATE"]).read()) < 1:
    time.sleep(0.02)
"""


@pytest.fixture
def index(world, tmp_path):
    """An index with two packages; alpha needs beta."""
    make_wheel(tmp_path / "wheels", "alpha", "1.0", requires=("beta",))
    make_wheel(tmp_path / "wheels", "beta", "2.0", program=True)
    with serving(Index(tmp_path / "wheels")) as served:
        world.environ["UV_DEFAULT_INDEX"] = served.url
        yield served


def attempt_of(record, number=1):
    return record["attempts"][number - 1]


def keys_of(world) -> list[str]:
    return sorted(one["key"] for one in world.json("envs", "list"))


def set_up_log(world, job_id) -> str:
    return world.cli("logs", job_id, "--setup").stdout.decode()


def test_packages_of_a_file_are_installed_and_the_script_runs_among_them(world, index):
    world.write("requirements.txt", "alpha  # for the heart\n")
    job = world.submit(world.job_file(SHOW, environment={"requirements": "requirements.txt"}))
    record = world.wait(job)
    environment = attempt_of(record)["environment"]
    place = world.home / "envs" / environment["key"]
    [built] = [path for path in place.iterdir() if path.is_dir()]
    assert f"python {built}/bin/python\nactive {built} {built}/bin\nalpha 1.0" in world.log(job)
    assert environment["packages"] == 2
    assert environment["python"] == f"{sys.implementation.name} {sys.version.split()[0]}"
    lock = (world.store / "envs" / environment["key"] / "lock.txt").read_text()
    assert "alpha==1.0" in lock
    assert "beta==2.0" in lock
    assert "--hash=sha256:" in lock
    assert "uv pip compile" in set_up_log(world, job)


def test_without_a_word_nothing_changes_and_a_file_that_lies_there_is_named(world, index):
    world.write("requirements.txt", "alpha\n")
    world.write("train.py", "import os, sys; print('python', sys.executable, os.environ.get('VIRTUAL_ENV'))")
    done = world.cli("run", "train.py")
    assert b"--requirements requirements.txt" in done.stderr
    assert f"python {world.folder}/bin/python None".encode() in done.stdout
    assert not (world.home / "envs").exists()
    world.environ["VIRTUAL_ENV"] = sys.prefix
    assert b"--requirements" not in world.cli("run", "train.py").stderr


def test_the_flag_does_as_the_note_says(world, index):
    world.write("requirements.txt", "alpha\n")
    world.write("train.py", SHOW)
    done = world.cli("run", "train.py", "--requirements", "requirements.txt")
    assert b"alpha 1.0" in done.stdout
    assert b"--requirements" not in done.stderr


def test_the_next_job_finds_it_and_asks_nobody(world, index):
    spec = world.job_file(SHOW, environment={"requirements": ["alpha"]})
    first = world.wait(world.submit(spec))
    asked = len(index.asked)
    again = world.wait(world.submit(spec))
    assert len(index.asked) == asked
    assert attempt_of(first)["environment"]["key"] == attempt_of(again)["environment"]["key"]
    assert attempt_of(again)["environment"]["was_there"]
    assert "nothing was built" in world.cli("logs", again["id"], "--setup").stderr.decode()
    assert "was there" in world.cli("show", again["id"]).stdout.decode()


def test_eight_at_once_build_once(world, index):
    world.environ["TRAINMASTER_CPUS"] = "8"
    spec = world.job_file(SHOW, environment={"requirements": ["alpha"]})
    index.gate.clear()
    jobs = [world.submit(spec) for _ in range(8)]
    world.until("somebody resolves", lambda: index.asked)
    world.until("all eight are there", lambda: len([*world.home.glob("machines/*/process.json")]) == 8)
    index.gate.set()
    records = [world.wait(job) for job in jobs]
    built = [r for r in records if not attempt_of(r)["environment"].get("was_there")]
    assert len(built) == 1
    assert len({attempt_of(r)["environment"]["key"] for r in records}) == 1
    assert index.asked.count("/files/alpha-1.0-py3-none-any.whl") == 1


def test_whoever_waits_takes_over_from_a_killed_builder(world, index):
    spec = world.job_file(SHOW, environment={"requirements": ["alpha"]}, retry={"interruptions": 0})
    index.gate.clear()
    first = world.submit(spec)
    world.until("the first resolves", lambda: index.asked)
    second = world.submit(spec)
    world.until("the second waits", lambda: "waiting" in world.heartbeat(second).get("doing", ""))
    world.kill(world.runner_pid(first))
    index.gate.set()
    assert world.wait(second)["outcome"] == "succeeded"
    assert world.wait(first, expect=1)["reason"]["code"] == "machine_lost"


def test_a_build_that_was_killed_leaves_nothing_that_is_taken_for_one(world, index):
    spec = world.job_file(SHOW, environment={"requirements": ["alpha"]})
    job = world.submit(spec)
    key = attempt_of(world.wait(job))["environment"]["key"]
    place = world.home / "envs" / key
    [built] = [path for path in place.iterdir() if path.is_dir()]
    (place / "environment.json").unlink()
    (built / "half").touch()
    record = world.wait(world.submit(spec))
    assert record["outcome"] == "succeeded"
    assert not attempt_of(record)["environment"].get("was_there")
    assert not built.exists(), "what was left unfinished is cleared away"


def test_programs_of_the_environment_are_on_the_path(world, index):
    job = world.submit(world.spec_file(name="cmd", command="beta", environment={"requirements": ["beta"]}))
    world.wait(job)
    assert world.log(job) == "beta speaks\n"


def test_the_helper_still_works_among_them(world, index):
    script = "import trainmaster, alpha\ntrainmaster.log(step=1, loss=0.5)\n"
    record = world.wait(world.submit(world.job_file(script, environment={"requirements": ["alpha"]})))
    assert attempt_of(record)["metrics"]["loss"]["last"] == 0.5


def test_wheels_alone_need_no_network(world, tmp_path):
    make_wheel(tmp_path / "house", "alpha", "3.0")
    world.environ["UV_DEFAULT_INDEX"] = "http://127.0.0.1:9/simple"
    spec = world.job_file(SHOW, environment={"requirements": ["alpha"], "wheels": str(tmp_path / "house")})
    job = world.submit(spec)
    assert world.wait(job)["outcome"] == "succeeded"
    assert "alpha 3.0" in world.log(job)
    assert "--offline" in set_up_log(world, job)
    # The wheels lie in the store: another machine, or this one without its folder, builds the same.
    (tmp_path / "house" / "alpha-3.0-py3-none-any.whl").rename(tmp_path / "gone.whl")
    world.cli("envs", "prune", "--all")
    rerun(world, job)


def rerun(world, job) -> dict:
    """As a job that names a lock: what was built for another job, from its lock alone."""
    key = attempt_of(world.record(job))["environment"]["key"]
    file = world.store / "jobs" / job / "spec.json"
    return with_lock(world, json.loads(file.read_text()), key)


def with_lock(world, given, key):
    """Submit the same again while no machine is free, name the lock in its file, then let it go."""
    world.environ["TRAINMASTER_CPUS"] = "1"
    world.open_gate(0)
    blocker = world.submit(world.spec_file(name="block", command='while [ "$(cat $GATE)" -lt 1 ]; do sleep 0.05; done'))
    world.until("the blocker runs", lambda: world.record(blocker)["phase"] == "running")
    fields = {**given["spec"]}
    fields["environment"] = {k: v for k, v in fields.get("environment", {}).items() if k not in {"wheels"}}
    waiting = world.submit(world.spec_file(**{**fields, "name": "again"}))
    path = world.store / "jobs" / waiting / "spec.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lock": key}))
    world.open_gate(1)
    record = world.wait(waiting)
    assert record["outcome"] == "succeeded"
    assert attempt_of(record)["environment"]["key"] == key
    return record


def test_a_lock_is_installed_as_it_is(world, index):
    job = world.submit(world.job_file(SHOW, environment={"requirements": ["alpha"]}))
    world.wait(job)
    make_wheel(index.folder, "alpha", "9.0")
    world.cli("envs", "prune", "--all")
    record = rerun(world, job)
    assert "alpha 1.0" in world.log(record["id"])
    assert "pip compile" not in set_up_log(world, record["id"])


def test_setup_commands_run_before_the_script_with_the_environment_active(world, index):
    commands = ["echo set up > made.txt; echo $TM_JOB_NAME $TM_ATTEMPT", "beta >> made.txt"]
    script = "print(open('made.txt').read(), end='')"
    job = world.submit(world.job_file(script, environment={"requirements": ["beta"], "setup": commands}))
    record = world.wait(job)
    assert world.log(job) == "set up\nbeta speaks\n"
    assert "job 1" in set_up_log(world, job)
    assert "made.txt" not in str(world.json("show", job)["exit"].get("left_behind"))
    assert attempt_of(record)["environment"]["packages"] == 1


def test_setup_commands_alone_build_nothing(world):
    job = world.submit(world.job_file("print(open('a').read())", environment={"setup": ["echo here > a"]}))
    assert world.wait(job)["outcome"] == "succeeded"
    assert not (world.home / "envs").exists()
    assert "environment" not in attempt_of(world.record(job))


def test_packages_of_the_project_itself(world, index):
    world.write("pyproject.toml", '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["alpha"]\n')
    job = world.submit(world.job_file(SHOW, environment={"requirements": "pyproject.toml"}))
    assert world.wait(job)["outcome"] == "succeeded"


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml", "requirements.lock"])
def test_locks_of_the_user(world, index, name):
    import subprocess

    uv = Path(sys.prefix) / "bin" / "uv"
    world.write("pyproject.toml", '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["alpha"]\n')
    words = {
        "uv.lock": ["lock"],
        "pylock.toml": ["pip", "compile", "pyproject.toml", "--format", "pylock.toml", "-o", "pylock.toml"],
        "requirements.lock": ["pip", "compile", "pyproject.toml", "--generate-hashes", "-o", "requirements.lock"],
    }[name]
    environ = {**world.environ, "UV_CACHE_DIR": str(world.folder / "cache"), "UV_PYTHON": sys.executable}
    subprocess.run([uv, *words], cwd=world.source, env=environ, check=True)
    make_wheel(index.folder, "alpha", "9.0")
    job = world.submit(world.job_file(SHOW, environment={"requirements": name}))
    assert world.wait(job)["outcome"] == "succeeded"
    assert "alpha 1.0" in world.log(job)


def test_a_package_in_the_source_folder_is_built_anew_when_it_changes(world, tmp_path):
    world.environ["UV_NO_INDEX"] = "1"
    wheel = make_wheel(world.source, "alpha", "1.0")
    world.write("requirements.txt", f"./{wheel.name}\n")
    spec = world.job_file(SHOW, environment={"requirements": "requirements.txt"})
    one = world.wait(world.submit(spec))
    wheel.write_bytes(make_wheel(tmp_path, "alpha", "1.0", requires=()).read_bytes() + b"")
    make_wheel(world.source, "alpha", "1.0", program=True)
    other = world.wait(world.submit(spec))
    assert attempt_of(one)["environment"]["key"] != attempt_of(other)["environment"]["key"]


def test_credentials_by_reference_are_kept_nowhere(world, tmp_path):
    password = "s3cret/pa:ss-4711"
    make_wheel(tmp_path / "private", "alpha", "5.0")
    with serving(Index(tmp_path / "private", password=password)) as private:
        world.environ["PACKAGES_PASSWORD"] = password
        address = private.address("ada:${PACKAGES_PASSWORD}")
        spec = world.job_file(SHOW, environment={"requirements": ["alpha"], "index": address}, env={})
        done = world.cli("run", spec)
        assert b"alpha 5.0" in done.stdout
        world.until("the driver has left", lambda: not world.drivers())
    said = done.stdout + done.stderr
    assert not found_in(world, said, [password, world.environ["PACKAGES_PASSWORD"]])


def found_in(world, said: bytes, words: list[str]) -> list[str]:
    """Where any of the words stands: what was printed, and every file of the home folder."""
    wanted = [word.encode() for word in words]
    found = ["printed"] if any(word in said for word in wanted) else []
    for root, _, files in os.walk(world.home):
        for path in (Path(root, name) for name in files):
            if not path.is_symlink() and any(word in path.read_bytes() for word in wanted):
                found.append(str(path))
    return found


def test_an_extra_index_is_asked_first(world, index, tmp_path):
    make_wheel(tmp_path / "own", "alpha", "0.1")
    with serving(Index(tmp_path / "own")) as own:
        environment = {"requirements": ["alpha"], "index": index.url, "extra_indexes": [own.url]}
        job = world.submit(world.job_file(SHOW, environment=environment))
        assert world.wait(job)["outcome"] == "succeeded"
    assert "alpha 0.1" in world.log(job)


def test_what_a_job_runs_in_is_never_pruned(world, index):
    job = world.submit(world.job_file(WAIT, environment={"requirements": ["alpha"]}))
    world.until("it runs", lambda: "in 1.0" in world.log(job))
    [one] = world.json("envs", "list")
    assert one["in_use"]
    assert world.json("envs", "prune", "--all")["in_use"] == [one["key"]]
    assert "in use" in world.cli("envs", "list").stdout.decode()
    world.open_gate(1)
    world.wait(job)
    world.until("its runner has ended", lambda: not world.json("envs", "list")[0]["in_use"])
    assert world.json("envs", "prune")["removed"] == [], "used a moment ago"
    assert world.json("envs", "prune", "--all", "--dry-run")["removed"] == [one["key"]]
    assert keys_of(world) == [one["key"]]
    assert world.json("envs", "prune", "--all")["removed"] == [one["key"]]
    assert keys_of(world) == []
    assert not [*(world.home / "envs" / "asked").iterdir()]


def test_a_killed_runner_uses_nothing_any_more(world, index):
    job = world.submit(world.job_file(WAIT, environment={"requirements": ["alpha"]}, retry={"interruptions": 0}))
    world.until("it runs", lambda: "in 1.0" in world.log(job))
    world.kill(world.runner_pid(job))
    world.wait(job, expect=1)
    assert len(world.json("envs", "prune", "--all")["removed"]) == 1


def test_an_environment_whose_python_vanished_is_built_anew(world, index):
    spec = world.job_file(SHOW, environment={"requirements": ["alpha"]})
    first = world.wait(world.submit(spec))
    key = attempt_of(first)["environment"]["key"]
    place = world.home / "envs" / key
    [built] = [path for path in place.iterdir() if path.is_dir()]
    (built / "bin" / "python").unlink()
    (built / "bin" / "python").symlink_to(world.folder / "vanished")
    assert "not there any more" in world.json("envs", "list")[0]["broken"]
    again = world.wait(world.submit(spec))
    assert again["outcome"] == "succeeded"
    assert not attempt_of(again)["environment"].get("was_there")


def test_the_python_of_the_submission_gone_missing_is_named(world, index):
    world.environ["TRAINMASTER_CPUS"] = "1"
    own = world.folder / "own"
    own.mkdir()
    (own / "python").symlink_to(os.path.realpath(sys.executable))
    world.environ["PATH"] = f"{own}:{world.environ['PATH']}"
    blocker = world.submit(world.spec_file(name="block", command='while [ "$(cat $GATE)" -lt 1 ]; do sleep 0.05; done'))
    world.until("the blocker runs", lambda: world.record(blocker)["phase"] == "running")
    plain = world.submit(world.job_file("print(1)", name="plain"))
    asked = world.submit(world.job_file("print(1)", name="asked", environment={"requirements": ["alpha"]}))
    (own / "python").unlink()
    world.open_gate(1)
    for job, code in ((plain, "set_up_failed"), (asked, "environment")):
        reason = world.wait(job, expect=1)["reason"]
        assert reason["code"] == code
        assert f"{own}/python" in reason["sentence"]
        assert "not there any more" in reason["sentence"]


def test_a_stop_while_it_is_built_is_obeyed(world, index):
    index.gate.clear()
    job = world.submit(world.job_file(SHOW, environment={"requirements": ["alpha"]}))
    world.until("it resolves", lambda: index.asked)
    world.cli("stop", job)
    record = world.wait(job, expect=3)
    assert record["outcome"] == "stopped"
    assert "did not answer" not in record["reason"]["sentence"], "nobody had to take the machine away"
    assert keys_of(world) == []


def test_machines_that_are_taken_back_share_it_too(world, index):
    world.environ["TRAINMASTER_SIMULATED_BOOT_S"] = "0"
    world.environ["TRAINMASTER_SIMULATED_PREEMPT_S"] = "0"
    job = world.submit(world.job_file(SHOW, environment={"requirements": ["alpha"]}, provider="simulated"))
    assert world.wait(job)["outcome"] == "succeeded"
    again = world.wait(world.submit(world.job_file(SHOW, environment={"requirements": ["alpha"]})))
    assert attempt_of(again)["environment"]["was_there"], "one machine, one shelf"


def test_progress_is_told_while_it_is_built(world, index):
    index.gate.clear()
    run = world.start("run", world.job_file(SHOW, environment={"requirements": ["alpha"]}))
    world.until("it says what it does", lambda: "resolving environment" in world.output_of(run))
    index.gate.set()
    assert run.wait(60) == 0
