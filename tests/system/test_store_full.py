"""Is a full disk, a full quota or a read-only one told apart from a store that is away? Needs root, to mount a small one."""

from __future__ import annotations

import subprocess

import pytest

from trainmaster.adapters.object_store import open_store
from trainmaster.errors import StoreFull, StoreRejected, StoreUnavailable

pytestmark = pytest.mark.system


@pytest.fixture
def small(tmp_path):
    mounted = tmp_path / "small"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=50", "none", mounted], check=True)
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_full_disk_is_a_clear_no_and_room_helps(small, tmp_path):
    store = open_store(str(small / "store"))
    store.put("ballast/1", b"x" * 700_000)
    source = tmp_path / "source"
    source.write_bytes(b"x" * 600_000)
    writes = {
        "put": lambda: store.put("jobs/new", b"x" * 600_000),
        "put_if_absent": lambda: store.put_if_absent("jobs/new", b"x" * 600_000),
        "put_file": lambda: store.put_file("jobs/new", source),
        "move_file": lambda: store.move_file("jobs/new", source),
    }
    for name, write in writes.items():
        with pytest.raises(StoreFull, match="No space left") as caught:
            write()
        assert str(small) in caught.value.sentence, name
        assert store.get("jobs/new") is None
        assert list((small / "store" / ".staging").iterdir()) == []
    assert source.exists()
    store.put("small", b"fits")
    store.delete_prefix("ballast")
    store.move_file("jobs/new", source)
    assert len(store.get("jobs/new")) == 600_000


def test_no_inodes_left_is_full_too(small):
    store = open_store(str(small / "store"))

    def fill():
        for number in range(100):
            store.put(f"a/{number}", b"")

    with pytest.raises(StoreFull):
        fill()


def test_a_read_only_disk_is_a_clear_no(small):
    store = open_store(str(small / "store"))
    store.put("k", b"1")
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    for write in (lambda: store.put("k", b"2"), lambda: store.delete_prefix("k"), lambda: open_store(store.url)):
        with pytest.raises(StoreRejected):
            write()
    assert store.get("k") == b"1"
    assert open_store(store.url, create=False).get("k") == b"1"


def test_an_unmounted_disk_is_away_until_it_is_back(small):
    store = open_store(str(small))
    subprocess.run(["umount", small], check=True)
    try:
        with pytest.raises(StoreUnavailable):
            store.put("k", b"1")
        with pytest.raises(StoreUnavailable):
            store.get("k")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=True)
