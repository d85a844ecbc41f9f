"""Source folders that cannot be packed: is the file named, and is nothing left behind?"""

from __future__ import annotations

import os
import socket

import pytest
from cli.terminal import refused, run_cli

pytestmark = pytest.mark.process


@pytest.fixture
def source(strict):
    """The source folder; what a test adds is taken away."""
    before = set(strict.source.iterdir())
    yield strict.source
    for path in set(strict.source.iterdir()) - before:
        path.chmod(0o700) if not path.is_symlink() else None
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_a_broken_link(strict, source):
    (source / "latest").symlink_to("gone")
    refused(strict, "submit", "train.py", says=["The link latest is broken: gone does not exist", ".trainmasterignore"])


def test_a_link_out_of_the_folder(strict, source):
    (source / "data").symlink_to("/etc")
    refused(strict, "submit", "train.py", says=["The link data leads out of the source folder, to /etc", ".trainmasterignore"])


def test_a_fifo_and_a_socket(strict, source):
    os.mkfifo(source / "pipe")
    refused(strict, "submit", "train.py", says=["pipe is a FIFO, not a file", ".trainmasterignore"])
    (source / "pipe").unlink()
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(source)  # the whole path may be too long for a socket
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
        refused(strict, "submit", "train.py", says=["sock is a socket, not a file"])


def test_what_cannot_be_read(strict, source):
    for name, kind in (("secret.txt", "file"), ("closed", "folder")):
        path = source / name
        path.touch() if kind == "file" else path.mkdir()
        path.chmod(0)
        says = [f"The {kind} {name} cannot be read: Permission denied", "chmod u+r", ".trainmasterignore"]
        refused(strict, "submit", "train.py", says=says, without_power=True)
        path.chmod(0o700)
        path.unlink() if kind == "file" else path.rmdir()
    for name in ("mine.py", "mine.yaml"):
        (source / name).touch()
        (source / name).chmod(0)
        refused(strict, "submit", name, says=[name, "cannot be read: Permission denied"], without_power=True)


def test_too_much(strict, source):
    (source / "weights.bin").write_bytes(bytes(5000))
    env = {"TRAINMASTER_SOURCE_BYTES_MAX": "4kB"}
    refused(strict, "submit", "train.py", says=["more than the limit", "weights.bin (5 kB)", "--in-place"], env=env)


def test_a_home_folder(strict):
    refused(strict, "submit", "train.py", says=["your whole home folder", "folder of its own"], env={"HOME": str(strict.source)})
    refused(strict, "submit", "train.py", says=["holds your home folder"], env={"HOME": str(strict.source / "me")})


def test_a_folder_with_an_odd_name(strict, tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    with open(folder + b"/train.py", "w") as file:
        file.write("print(1)")
    refused(strict, "submit", "train.py", says=["source_dir", "not UTF-8"], cwd=folder)


def test_no_python_anywhere(strict):
    says = ["no `python` was found on your PATH", "activate the virtual environment"]
    refused(strict, "submit", "train.py", says=says, env={"PATH": "/nonexistent"})
    refused(strict, "submit", "train.py", says=says, env={"PATH": "", "VIRTUAL_ENV": "/gone", "CONDA_PREFIX": None})
    doctor = run_cli(strict, "doctor", env={"PATH": "/nonexistent"})
    assert doctor.code == 1
    assert "✗ interpreter  no `python` was found" in doctor.out


def test_the_interpreter_is_the_active_one(world):
    world.write("train.py", "import sys; print(sys.executable)")
    active = world.folder / "active"
    (active / "bin").mkdir(parents=True)
    (active / "bin" / "python").symlink_to(os.path.realpath(world.folder / "bin" / "python"))
    assert run_cli(world, "run", "train.py", env={"VIRTUAL_ENV": str(active)}).out == f"{active}/bin/python\n"
    assert run_cli(world, "run", "train.py", env={"VIRTUAL_ENV": None}).out == f"{world.folder}/bin/python\n"


def test_what_is_left_out_is_said(world):
    world.write("train.py", "import os; print(sorted(os.listdir()))")
    world.write(".env", "SECRET=1")
    answer = run_cli(world, "run", "train.py")
    assert answer.out == "['train.py']\n"
    assert "left out of the snapshot: .env" in answer.said
    assert world.json("show", "last")["job"]["code"]["left_out"] == [".env"]


def test_in_place_runs_in_the_folder_itself(world):
    world.write("train.py", "print(open('ignored.txt').read())")
    world.write(".trainmasterignore", "ignored.txt\n")
    world.write("ignored.txt", "here")
    answer = run_cli(world, "run", "train.py", "--in-place")
    assert answer.out == "here\n"
    assert f"runs in {world.source} itself; there is no snapshot of the code" in answer.said
    assert world.json("show", "last")["job"]["code"]["in_place"] is True
    pulled = run_cli(world, "pull", "last", "--only", "code")
    assert pulled.code == 2
    assert "ran in place" in pulled.said
