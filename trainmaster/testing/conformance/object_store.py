"""Does a store keep every promise of ports/object_store.py? Subclass with a fixture `address` and let pytest run it."""

# ruff: noqa: D102 – a test's name is its sentence.
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3
from msgspec import Struct

from trainmaster.adapters.object_store import open_store
from trainmaster.ports.object_store import BlockingStore, StoredFile
from trainmaster.spec.layout import Key

RACERS = 16
LARGE_BYTES = 21_000_000

#: File names that users' checkpoints really have, and some that nobody should have.
ODD_NAMES = (
    "with space",
    " lead",
    "trail ",
    "trail.",
    "...",
    "..a",
    ".hidden",
    "ünï/cödé",
    "e\u0301",
    "\U0001f600",
    "a%20b",
    "%",
    "a%2Fb",
    "shard#1",
    "a#b",
    "back\\slash",
    "new\nline",
    "tab\tdel\x7f",
    "~",
    "~41",
    "star*?[x]{y}",
    "a&amp;b<c>\"d'e",
    "a+b=c;d,e@f$g!",
    "a:b|c^d`e",
    "\ufffe\uffff",
    "-",
    "#1",
    "x" * 200,
)
BAD_KEYS = ("", "/a", "a/", "a//b", ".", "..", "a/./b", "../a", "a/../b", "nul\0", "\udcff", ".staging/x")


class Address(Struct, frozen=True):
    """Where the store under test is; opening it twice must reach the same objects."""

    url: str
    options: dict[str, str] = {}
    #: Whether another process can reach it.
    is_shared: bool = True
    #: How many races to run; SeaweedFS makes the losers of one wait for seconds.
    races: int = 10

    def open(self) -> BlockingStore:
        """The store."""
        return open_store(self.url, options=self.options)


class ObjectStoreConformance:
    """The promises, one test each. A fixture `address` names an empty store."""

    @pytest.fixture
    def store(self, address: Address) -> BlockingStore:
        """The store under test."""
        return address.open()

    def test_unknown_keys_are_not_an_error(self, store: BlockingStore, tmp_path: Path) -> None:
        key = Key("jobs/none/spec.json")
        assert store.get(key) is None
        assert store.get_range(key, 0, 10) is None
        assert store.get_range(key, 0, 0) is None
        assert store.get_file(key, tmp_path / "file") is None
        assert list(store.list_keys(key)) == []
        assert store.delete_prefix(key) == 0
        assert list(tmp_path.iterdir()) == []

    def test_folders_are_what_has_something_below_it(self, store: BlockingStore) -> None:
        assert store.list_folders(Key("jobs")) == []
        for key in ("jobs/b/spec.json", "jobs/a b/1/2", "jobs/a b/1/3", "jobs/file", "jobsworth/x/y", "jobs/c%ü/x"):
            store.put(Key(key), b"x")
        assert store.list_folders(Key("jobs")) == ["jobs/a b", "jobs/b", "jobs/c%ü"]
        store.delete_prefix(Key("jobs/b"))
        assert set(store.list_folders(Key("jobs"))) - {"jobs/b"} == {"jobs/a b", "jobs/c%ü"}
        assert store.list_folders(Key("jobs/a b")) == ["jobs/a b/1"]
        assert store.list_folders(Key("jobs/file")) == []

    def test_a_prefix_is_not_a_key(self, store: BlockingStore) -> None:
        store.put(Key("jobs/a/spec.json"), b"x")
        assert store.get(Key("jobs/a")) is None
        assert store.get_range(Key("jobs/a"), 0, 1) is None
        assert store.get(Key("jobs/a/spec.json/deeper")) is None

    @pytest.mark.parametrize("size", [0, 1, 4096, LARGE_BYTES])
    def test_a_value_comes_back(self, store: BlockingStore, size: int) -> None:
        value = os.urandom(size)
        store.put(Key("a/b"), value)
        assert store.get(Key("a/b")) == value

    def test_put_replaces_and_may_be_repeated(self, store: BlockingStore) -> None:
        for value in (b"long value", b"short", b"short", b""):
            store.put(Key("k"), value)
            assert store.get(Key("k")) == value

    def test_put_if_absent_keeps_what_is_there(self, store: BlockingStore) -> None:
        assert store.put_if_absent(Key("a/claim"), b"first")
        assert not store.put_if_absent(Key("a/claim"), b"second")
        assert not store.put_if_absent(Key("a/claim"), b"first")
        assert store.get(Key("a/claim")) == b"first"
        store.put(Key("other"), b"")
        assert not store.put_if_absent(Key("other"), b"x")
        store.delete_prefix(Key("a"))
        assert store.put_if_absent(Key("a/claim"), b"third")

    def test_one_of_sixteen_threads_wins(self, store: BlockingStore, address: Address) -> None:
        barrier = threading.Barrier(RACERS)

        def race(racer: int, key: Key) -> bool:
            barrier.wait()
            return store.put_if_absent(key, b"%d" % racer)

        with ThreadPoolExecutor(RACERS) as pool:
            for number in range(address.races):
                key = Key(f"races/{number}/claim")
                won = list(pool.map(race, range(RACERS), [key] * RACERS))
                assert won.count(True) == 1
                assert store.get(key) == b"%d" % won.index(True)

    def test_one_of_sixteen_processes_wins(self, store: BlockingStore, address: Address) -> None:
        if not address.is_shared:
            pytest.skip("this store lives in one process")
        won = _race_processes(address, Key("races/claim"))
        assert won.count("won") == 1
        assert won.count("lost") == RACERS - 1
        assert store.get(Key("races/claim")) == b"%d" % won.index("won")

    def test_a_reader_never_sees_half_a_value(self, store: BlockingStore, tmp_path: Path) -> None:
        key = Key("jobs/a/heartbeat.json")
        store.put(key, _pattern(0))
        done = threading.Event()

        def write() -> None:
            for number in range(60):
                store.put(key, _pattern(number))

        def read(number: int) -> int:
            path = tmp_path / str(number)
            seen = 0
            while not done.is_set():
                value = store.get(key)
                store.get_file(key, path)
                assert _is_pattern(value or b"")
                assert _is_pattern(path.read_bytes())
                seen += 1
            return seen

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read, number) for number in range(2)]
            try:
                write()
            finally:
                done.set()
            assert all(reader.result() for reader in readers)

    def test_a_write_is_listed_at_once(self, store: BlockingStore) -> None:
        for number in range(20):
            key = Key(f"a/{number:03d}")
            store.put(key, b"x" * number)
            listed = list(store.list_keys(Key("a")))
            assert [entry.key for entry in listed] == [f"a/{earlier:03d}" for earlier in range(number + 1)]
            assert listed[-1].size_bytes == number
            assert listed[-1].modified_at_s > 1.6e9

    def test_a_listing_is_in_ascending_order(self, store: BlockingStore) -> None:
        names = ("a-b/x", "a/x", "a.x", "ab", "a/y/z", "B", "é", "z", "0", "a/y-z", "~", "_", "a b", "b\\", "a/\n")
        keys = sorted(f"top/{name}" for name in names)
        for key in reversed(keys):
            store.put(Key(key), b"")
        assert [entry.key for entry in store.list_keys(Key("top"))] == keys
        for after in [*keys, "top", "top/", "top/a", "top/a/", "top/a/y", "top/zz", "a", "zz", "top/a/y/0"]:
            listed = [entry.key for entry in store.list_keys(Key("top"), after=Key(after))]
            assert listed == [key for key in keys if key > after], after

    def test_a_listing_stays_below_its_prefix(self, store: BlockingStore) -> None:
        for key in ("jobs/a/1", "jobs/ab", "jobs/abc/1", "jobs/a.b", "jobs-old/1", "other/jobs/a/1"):
            store.put(Key(key), b"")
        assert [entry.key for entry in store.list_keys(Key("jobs/a"))] == ["jobs/a/1"]
        assert [entry.key for entry in store.list_keys(Key("jobs/ab"))] == []
        assert [entry.key for entry in store.list_keys(Key("job"))] == []
        assert len(list(store.list_keys(Key("")))) == 6

    def test_a_long_listing_is_complete(self, store: BlockingStore) -> None:
        keys = [Key(f"log/{seq:08d}") for seq in range(1_100)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b""), keys))
        assert [entry.key for entry in store.list_keys(Key("log"))] == keys
        assert [entry.key for entry in store.list_keys(Key("log"), after=keys[1_090])] == keys[1_091:]
        assert store.delete_prefix(Key("log")) == len(keys)
        assert list(store.list_keys(Key("log"))) == []

    @pytest.mark.parametrize(("start", "length"), [(0, 3), (2, 3), (5, 100), (9, 1), (10, 1), (11, 5), (0, 0), (3, 0)])
    def test_ranges(self, store: BlockingStore, start: int, length: int) -> None:
        store.put(Key("k"), b"0123456789")
        assert store.get_range(Key("k"), start, length) == b"0123456789"[start : start + length]

    def test_ranges_of_empty_and_of_large_values(self, store: BlockingStore) -> None:
        store.put(Key("empty"), b"")
        assert store.get_range(Key("empty"), 0, 0) == b""
        assert store.get_range(Key("empty"), 0, 5) == b""
        value = os.urandom(LARGE_BYTES)
        store.put(Key("large"), value)
        assert store.get_range(Key("large"), 1_000_000, LARGE_BYTES) == value[1_000_000:]

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
    def test_a_negative_range_is_a_mistake(self, store: BlockingStore, start: int, length: int) -> None:
        with pytest.raises(ValueError, match="not a range"):
            store.get_range(Key("k"), start, length)

    def test_odd_names_come_back(self, store: BlockingStore, tmp_path: Path) -> None:
        keys = [Key(f"odd/{name}") for name in ODD_NAMES]
        for key in keys:
            store.put(key, key.encode())
        for key in keys:
            assert store.get(key) == key.encode()
            assert not store.put_if_absent(key, b"")
            assert store.get_file(key, tmp_path / "file") is not None
        assert [entry.key for entry in store.list_keys(Key("odd"))] == sorted(keys)
        for key in keys:
            assert store.delete_prefix(key) == 1
        assert list(store.list_keys(Key("odd"))) == []

    def test_odd_names_as_prefixes(self, store: BlockingStore) -> None:
        keys = [Key(f"odd/{name}/inner") for name in ODD_NAMES]
        for key in keys:
            store.put(key, b"")
        for key in keys:
            assert [entry.key for entry in store.list_keys(Key(key.rpartition("/")[0]))] == [key]

    @pytest.mark.parametrize("bad", BAD_KEYS)
    def test_a_bad_key_is_a_mistake(self, store: BlockingStore, tmp_path: Path, bad: str) -> None:
        key, path = Key(bad), tmp_path / "file"
        path.write_bytes(b"")
        calls: list[Callable[[], object]] = [
            lambda: store.get(key),
            lambda: store.get_range(key, 0, 1),
            lambda: store.put(key, b""),
            lambda: store.put_if_absent(key, b""),
            lambda: store.put_file(key, path),
            lambda: store.move_file(key, path),
            lambda: store.get_file(key, path),
            lambda: store.delete_prefix(key),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="not a key"):
                call()
        assert path.exists()

    @pytest.mark.parametrize("size", [0, 1, LARGE_BYTES, 8 << 20])
    def test_files_go_up_and_come_down(self, store: BlockingStore, tmp_path: Path, size: int) -> None:
        value = os.urandom(size)
        stored = StoredFile(size_bytes=size, blake3=blake3(value).hexdigest())
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(value)
        target.write_bytes(b"something older and quite different")
        up: list[int] = []
        down: list[int] = []
        store.put(Key("files/model.bin"), b"older")
        assert store.put_file(Key("files/model.bin"), source, up.append) == stored
        assert store.put_file(Key("files/model.bin"), source) == stored
        assert store.get_file(Key("files/model.bin"), target, down.append) == stored
        assert target.read_bytes() == source.read_bytes() == store.get(Key("files/model.bin")) == value
        assert sum(up) == sum(down) == size
        assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]

    def test_trouble_with_the_callers_files_is_not_the_stores(self, store: BlockingStore, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            store.put_file(Key("k"), tmp_path / "none")
        with pytest.raises(IsADirectoryError):
            store.put_file(Key("k"), tmp_path)
        with pytest.raises(FileNotFoundError):
            store.move_file(Key("k"), tmp_path / "none")
        assert list(store.list_keys(Key(""))) == []
        store.put(Key("k"), b"x")
        with pytest.raises(FileNotFoundError):
            store.get_file(Key("k"), tmp_path / "no folder" / "file")

    @pytest.mark.parametrize("size", [0, 100, 65 << 20])
    def test_a_moved_file_is_gone_and_stored(self, store: BlockingStore, tmp_path: Path, size: int) -> None:
        path = tmp_path / "chunk"
        key = Key("log/00000001")
        with path.open("wb") as file:
            file.truncate(size)
        store.move_file(key, path)
        assert not path.exists()
        assert [entry.size_bytes for entry in store.list_keys(Key("log"))] == [size]
        store.move_file(key, path)

    def test_a_moved_file_never_replaces_a_chunk(self, store: BlockingStore, tmp_path: Path) -> None:
        path = tmp_path / "chunk"
        store.put(Key("log/00000001"), b"first")
        path.write_bytes(b"second")
        store.move_file(Key("log/00000001"), path)
        assert not path.exists()
        assert store.get(Key("log/00000001")) == b"first"

    def test_deleting_a_prefix(self, store: BlockingStore) -> None:
        for key in ("jobs/a/1", "jobs/a/b/c/2", "jobs/ab/3", "jobs/a.b", "single"):
            store.put(Key(key), b"")
        assert store.delete_prefix(Key("jobs/a")) == 2
        assert store.delete_prefix(Key("jobs/a")) == 0
        assert store.delete_prefix(Key("single")) == 1
        assert [entry.key for entry in store.list_keys(Key(""))] == ["jobs/a.b", "jobs/ab/3"]
        store.put(Key("jobs/a/b/c/2"), b"again")
        assert store.get(Key("jobs/a/b/c/2")) == b"again"

    def test_a_half_deleted_checkpoint_does_not_look_committed(self, store: BlockingStore) -> None:
        files, commit = Key("checkpoints/1-000001/files"), Key("checkpoints/1-000001/COMMIT")
        count = 150
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.put(Key(f"{files}/{number}"), b""), range(count)))
        store.put(commit, b"")
        with ThreadPoolExecutor(1) as pool:
            deletion = pool.submit(store.delete_prefix, Key("checkpoints/1-000001"))
            is_done = False
            while not is_done:
                is_done = deletion.done()
                is_whole = len(list(store.list_keys(files))) == count
                assert is_whole or store.get(commit) is None
        assert deletion.result() == count + 1

    def test_writing_into_a_prefix_while_it_is_deleted(self, store: BlockingStore) -> None:
        done = threading.Event()

        def delete() -> None:
            while not done.is_set():
                store.delete_prefix(Key("busy"))

        with ThreadPoolExecutor(1) as pool:
            deletion = pool.submit(delete)
            try:
                for number in range(30):
                    store.put(Key(f"busy/{number % 3}/deep/{number}"), b"x")
            finally:
                done.set()
            deletion.result()

    def test_the_address_leads_back_to_the_same_objects(self, store: BlockingStore, address: Address) -> None:
        store.put(Key("a/b"), b"x")
        again = open_store(store.url, options=address.options)
        assert again.get(Key("a/b")) == b"x"
        assert again.url == store.url


def _race_processes(address: Address, key: Key) -> list[str]:
    """What each racer says; all stand at the line before the first may run."""
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(_racer()) for _ in range(RACERS)]
        for number, racer in enumerate(racers):
            race = {"url": address.url, "options": address.options, "key": key, "value": str(number)}
            _tell(racer, json.dumps(race))
        assert [_hear(racer) for racer in racers] == ["ready"] * RACERS
        for racer in racers:
            _tell(racer, "go")
        return [_hear(racer) for racer in racers]


def _racer() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trainmaster.testing.conformance.racer"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def _hear(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


def _tell(racer: subprocess.Popen[str], line: str) -> None:
    assert racer.stdin is not None
    racer.stdin.write(f"{line}\n")
    racer.stdin.flush()


def _pattern(number: int) -> bytes:
    """A value of which every torn piece or mixture can be told: its number, over and over, as often as the number says."""
    return b"%08d" % number * (number * 997 + 1)


def _is_pattern(value: bytes) -> bool:
    return len(value) >= 8 and value == _pattern(int(value[:8]))
