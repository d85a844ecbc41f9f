"""A cache on a full disk: is room made by what nobody uses, and if that is not enough, said? Needs root, to mount it."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from adapters.data_server import data_server
from process.world import world_in

from trainmaster.adapters.inputs.cache import CacheFull, InputCache, usage
from trainmaster.adapters.inputs.gather import Gatherer, Gathering
from trainmaster.spec.job_spec import Input

pytestmark = pytest.mark.system


@pytest.fixture
def server():
    with data_server() as found:
        yield found


@pytest.fixture
def disk(tmp_path):
    """A disk of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def gather(disk, server, name, prefix, *, looks_first=True):
    cache = InputCache(disk / "inputs", 1 << 40, time.time)
    work = Gathering(
        folder=disk / name, cache=cache, environ=server.environ, tell=lambda *_: None, is_over=lambda: False, patience_s=5.0
    )
    gatherer = Gatherer(work)
    plan = gatherer.find("training", Input(uri=f"s3://bucket/{prefix}"))
    if looks_first:
        cache.make_room(plan.missing_bytes)
    gatherer.fetch(plan)
    return disk / name / "training"


@pytest.mark.parametrize("looks_first", [True, False])
def test_what_nobody_uses_makes_room(disk, server, looks_first):
    """Seen before the first byte is fetched; or, where others fill the disk meanwhile, when there is no room for the next."""
    server.objects = {"old/a": os.urandom(3 << 20), "used/b": os.urandom(2 << 20), "new/c": os.urandom(4 << 20)}
    (gather(disk, server, "first", "old") / "a").unlink()
    used = gather(disk, server, "second", "used")
    new = gather(disk, server, "third", "new", looks_first=looks_first)
    assert (new / "c").read_bytes() == server.objects["new/c"]
    assert (used / "b").read_bytes() == server.objects["used/b"]
    assert usage(disk / "inputs") == (2, 6 << 20)


@pytest.mark.parametrize("looks_first", [True, False])
def test_no_room_is_said_and_nothing_torn_is_left(disk, server, looks_first):
    server.objects = {"used/b": os.urandom(5 << 20), "new/c": os.urandom(4 << 20)}
    used = gather(disk, server, "first", "used")
    with pytest.raises(CacheFull, match=r"the disk of .* is full: 4\.2 MB are to be fetched") as caught:
        gather(disk, server, "second", "new", looks_first=looks_first)
    assert str(disk / "inputs") in caught.value.sentence
    assert (used / "b").read_bytes() == server.objects["used/b"]
    assert [path.stat().st_size for path in (disk / "inputs").rglob("*") if path.is_file()] == [5 << 20]


@pytest.fixture
def small(tmp_path):
    """A world whose home is on a disk of 16 MB."""
    for made in world_in(tmp_path):
        made.home.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", made.home], check=True)
        try:
            yield made
        finally:
            made.close()
            subprocess.run(["umount", "-l", made.home], check=True)


def test_a_job_on_a_full_disk_goes_on_when_there_is_room(small, server):
    server.objects = {"data/a": os.urandom(12 << 20)}
    small.environ |= server.environ
    ballast = small.home / "ballast"
    ballast.write_bytes(bytes(6 << 20))
    job = small.submit(small.job_file("print('ran')", inputs={"training": "s3://bucket/data"}, retry={"interruptions": 1000}))
    small.until("it was told", lambda: any("is full" in line["sentence"] for line in small.story(job)))
    ballast.unlink()
    record = small.wait(job)
    assert record["outcome"] == "succeeded"
    assert record["interruptions"] > 0
