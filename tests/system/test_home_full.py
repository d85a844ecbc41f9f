"""A home on a full disk: is it said, is nothing half-done, and does it go on when there is room? Needs root, to mount it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing

import pytest
from cli.terminal import run_cli, strays
from process.world import world_in

pytestmark = pytest.mark.system


@pytest.fixture
def small(tmp_path):
    """A world whose home is on a disk of 4 MB."""
    for made in world_in(tmp_path):
        made.home.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", made.home], check=True)
        try:
            yield made
        finally:
            made.close()
            subprocess.run(["umount", "-l", made.home], check=True)


def fill(world) -> None:
    with open(world.home / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def test_no_room_for_a_job_and_then_room(small):
    small.write("train.py", "print('ran')")
    small.write("data.bin", "")
    (small.source / "data.bin").write_bytes(os.urandom(1 << 20))
    assert run_cli(small, "list").code == 0
    with closing(sqlite3.connect(small.home / "trainmaster.db")) as somebody:  # else the database itself finds no room to open
        somebody.execute("SELECT id FROM jobs").fetchall()
        fill(small)
        answer = run_cli(small, "submit", "train.py")
        assert (answer.code, answer.out) == (5, "")
        assert answer.err.startswith("error: ")
        assert "No space left" in answer.said
        assert "hint: free some space" in answer.said
        assert small.ids() == []
        assert strays(small) == []
        assert run_cli(small, "list").code == 0
    (small.home / "ballast").unlink()
    answer = run_cli(small, "run", "train.py")
    assert (answer.code, answer.out) == (0, "ran\n")


def test_no_room_for_a_home(small):
    small.write("train.py", "print('ran')")
    fill(small)
    for words in (("list",), ("submit", "train.py")):
        answer = run_cli(small, *words)
        assert (answer.code, answer.out) == (5, "")
        assert "database" in answer.said
        assert "free some space" in answer.said
    (small.home / "ballast").unlink()
    assert run_cli(small, "run", "train.py").out == "ran\n"
