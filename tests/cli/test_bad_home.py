"""Settings, databases and stores that are wrong: is it said which, and what to do?"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing

import pytest
from cli.terminal import refused, run_cli, strays
from process.scripts import COUNT

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TRAINMASTER_HEARTBEAT_S", "abc", ["TRAINMASTER_HEARTBEAT_S", '"abc"', "seconds"]),
        ("TRAINMASTER_HARTBEAT_S", "3", ["TRAINMASTER_HARTBEAT_S is not a setting", "did you mean heartbeat_s?"]),
        ("TRAINMASTER_STORE", "ftp://host/x", ["ftp:// is not a kind of object store", "s3://bucket/prefix"]),
        ("TRAINMASTER_STORE", "s3://", ["s3://", "bucket"]),
        ("TRAINMASTER_STORE", "/etc/passwd", ["/etc/passwd", "folder"]),
        ("TRAINMASTER_HOME", "/etc/passwd", ["TRAINMASTER_HOME", "/etc/passwd is not a folder"]),
    ],
)
def test_bad_settings(strict, tmp_path, name, value, says):
    fresh: dict[str, str | None] = {"TRAINMASTER_HOME": str(tmp_path / "home")}
    env = {**fresh, name: value}
    for words in (("list",), ("submit", "train.py")):
        refused(strict, *words, says=says, env=env)
    doctor = run_cli(strict, "doctor", env=env)
    assert doctor.code == 1
    assert "✗ home" in doctor.out
    assert says[0] in " ".join(doctor.out.split())
    assert run_cli(strict, "list", env=fresh).code == 0, "nothing of it was kept"


def test_a_bad_settings_file(world):
    world.home.mkdir()
    for text, says in {
        b"heartbeat_s: [": ["config.yaml", "line"],
        b"hartbeat_s: 3": ["config.yaml", "hartbeat_s is not a setting", "did you mean heartbeat_s?"],
        b"look_s: often": ["config.yaml: look_s", '"often"', "seconds"],
        b"\xff\xfe": ["config.yaml", "not UTF-8"],
    }.items():
        (world.home / "config.yaml").write_bytes(text)
        refused(world, "list", says=says)
    (world.home / "config.yaml").write_text("# nothing yet\nsource_bytes_max: 1MiB\n")
    assert run_cli(world, "list").code == 0


def test_a_home_without_permission(strict, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for home in (closed, closed / "home"):
        env = {"TRAINMASTER_HOME": str(home)}
        says = ["cannot open the database", str(home), "TRAINMASTER_HOME"]
        answer = run_cli(strict, "submit", "train.py", env=env, without_power=True)
        assert (answer.code, answer.out) == (5, "")
        assert [text for text in says if text not in answer.said] == []
    assert list(closed.iterdir()) == []


def test_a_store_without_permission(world, tmp_path):
    world.write("train.py", "print(1)")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for store in (closed, closed / "store"):
        says = [f"Cannot keep a store in {store}: Permission denied", "may write to"]
        refused(world, "submit", "train.py", says=says, code=5, env={"TRAINMASTER_STORE": str(store)}, without_power=True)
    assert list(closed.iterdir()) == []


def test_a_store_that_turns_read_only_takes_no_job(world):
    world.write("train.py", "print(1)")
    assert run_cli(world, "list").code == 0
    store = world.home / "store"
    for folder in (store, *(path for path in store.rglob("*") if path.is_dir())):
        folder.chmod(0o500)
    refused(world, "submit", "train.py", says=["store", "ermission"], code=5, without_power=True)
    assert list((world.home / "environments").glob("*")) == []


def test_a_relative_store_is_meant_from_here(world):
    """The driver and the runner stand elsewhere."""
    world.environ["TRAINMASTER_STORE"] = "../kept"
    job = world.submit(world.job_file("print('hello')"))
    world.environ["TRAINMASTER_STORE"] = str(world.folder / "kept")
    world.wait(job)
    assert (world.folder / "kept" / "jobs" / job / "spec.json").exists()
    assert not (world.home / "store").exists()


def test_one_home_has_one_store(world):
    world.write("train.py", "print(1)")
    assert run_cli(world, "list").code == 0
    assert run_cli(world, "list", env={"TRAINMASTER_STORE": str(world.home / "store")}).code == 0, "the same one"
    for store in ("elsewhere", "s3://bucket/x"):
        says = [f"{world.home} keeps its jobs in the folder `store`", "TRAINMASTER_HOME"]
        refused(world, "submit", "train.py", says=says, env={"TRAINMASTER_STORE": store})
    assert not (world.source / "elsewhere").exists()
    moved = world.folder / "moved"
    world.home.rename(moved)
    assert run_cli(world, "list", env={"TRAINMASTER_HOME": str(moved)}).code == 0
    refused(world, "list", says=["memory://", "a folder or a bucket"], env={"TRAINMASTER_STORE": "memory://x"})


def test_what_a_killed_submission_left_goes_after_a_day(world):
    world.write("train.py", "print(1)")
    packing = world.home / "packing"
    packing.mkdir(parents=True)
    for name, age_s in (("old", 90_000), ("new", 10)):
        (packing / name).touch()
        os.utime(packing / name, (time.time() - age_s,) * 2)
    assert run_cli(world, "run", "train.py").code == 0
    assert [path.name for path in packing.iterdir()] == ["new"]


def test_a_database_from_a_newer_version(world):
    world.write("train.py", "print(1)")
    assert run_cli(world, "list").code == 0
    with closing(sqlite3.connect(world.home / "trainmaster.db")) as database:
        database.execute("PRAGMA user_version = 99")
    for words in (("list",), ("submit", "train.py"), ("wait", "last")):
        says = ["trainmaster.db was written by a newer Trainmaster (schema 99", "upgrade", "TRAINMASTER_HOME"]
        refused(world, *words, says=says, code=5)
    with closing(sqlite3.connect(world.home / "trainmaster.db")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (99,)


def test_a_database_that_is_none(world):
    world.write("train.py", "print(1)")
    world.home.mkdir()
    garbage = os.urandom(10_000)
    (world.home / "trainmaster.db").write_bytes(garbage)
    for words in (("list",), ("submit", "train.py")):
        answer = run_cli(world, *words)
        assert (answer.code, answer.out) == (5, "")
        for text in ("cannot open the database", "trainmaster.db", "not a database", "move it aside"):
            assert text in answer.said
    assert (world.home / "trainmaster.db").read_bytes() == garbage
    (world.home / "trainmaster.db").rename(world.home / "aside")
    assert run_cli(world, "list").code == 0


def test_a_database_that_is_damaged(world):
    world.write("train.py", "print(1)")
    run_cli(world, "submit", "train.py")
    world.wait(world.ids()[0])
    path = world.home / "trainmaster.db"
    world.until("nobody drives", lambda: not world.drivers())
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA journal_mode = DELETE")
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xaa" * (len(whole) - 4096))
    for words in (("list",), ("submit", "train.py")):
        answer = run_cli(world, *words)
        assert (answer.code, answer.out) == (5, "")
        assert "malformed" in answer.said
        assert "move it aside" in answer.said
    path.write_bytes(whole)
    assert len(world.json("list")) == 1


def test_a_locked_database_is_waited_for(world):
    """Somebody writes for a while; readers do not care, and writers wait."""
    world.write("train.py", "print(1)")
    assert run_cli(world, "list").code == 0
    with closing(sqlite3.connect(world.home / "trainmaster.db", isolation_level=None, check_same_thread=False)) as database:
        database.execute("BEGIN IMMEDIATE")
        assert run_cli(world, "list").code == 0
        refused(world, "submit", "train.py", says=["locked", "try again"], code=5, env={"TRAINMASTER_DATABASE_WAIT_S": "0.2"})
        release = threading.Timer(1.0, database.execute, ["COMMIT"])
        release.start()
        answer = run_cli(world, "submit", "train.py")
        release.join()
    assert answer.code == 0
    assert world.wait(world.ids()[0])["outcome"] == "succeeded"
    assert strays(world) == []


def test_a_look_answers_while_the_database_is_locked(world):
    job = world.submit(world.job_file(COUNT, arguments=["1"]))
    world.until_attempt(job, 1)
    world.kill_drivers()
    with closing(sqlite3.connect(world.home / "trainmaster.db", isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        answer = run_cli(world, "list", "--json", env={"TRAINMASTER_DATABASE_WAIT_S": "0.2"})
        database.execute("ROLLBACK")
    assert answer.code == 0
    assert job in answer.out
    assert "not looked after for now" in answer.said


def test_homes_are_made_where_they_are_wanted(world):
    world.environ["TRAINMASTER_HOME"] = "not/yet/there"
    world.write("train.py", "print(1)")
    assert run_cli(world, "list").code == 0
    assert (world.source / "not" / "yet" / "there" / "trainmaster.db").exists()
