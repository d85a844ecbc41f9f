"""Does a store in trouble say truly what the caller may do next: try again, make room, or give up?"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from trainmaster.adapters.object_store import open_store
from trainmaster.errors import InvalidConfig, StoreRejected, StoreUnavailable
from trainmaster.testing.s3_server import s3_server

#: Root may do anything; without these two powers it may do what its files' modes say, like everybody.
MORTAL = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def calls(store, tmp_path):
    """Every method as a call that needs the store to be there."""
    source = tmp_path / "source file"
    source.write_bytes(b"x")
    return {
        "get": lambda: store.get("jobs/a"),
        "get_range": lambda: store.get_range("jobs/a", 0, 1),
        "get_file": lambda: store.get_file("jobs/a", tmp_path / "target"),
        "list_keys": lambda: list(store.list_keys("jobs")),
        "put": lambda: store.put("jobs/new", b"x"),
        "put_if_absent": lambda: store.put_if_absent("jobs/claim", b"x"),
        "put_file": lambda: store.put_file("jobs/file", source),
        "move_file": lambda: store.move_file("jobs/moved", source),
        "delete_prefix": lambda: store.delete_prefix("jobs"),
    }


def python(code, *arguments, mortal=False, **keywords):
    command = [*(MORTAL if mortal else []), sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **keywords)


# --- a folder -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(folder):
    opened = open_store(str(folder))
    opened.put("jobs/a", b"1")
    return opened


@contextlib.contextmanager
def a_file_in_its_place(folder):
    away = folder.with_name("away")
    folder.rename(away)
    folder.write_text("not a folder")
    yield
    assert folder.read_text() == "not a folder"
    folder.unlink()
    away.rename(folder)


@contextlib.contextmanager
def nothing_in_its_place(folder):
    away = folder.with_name("away")
    folder.rename(away)
    yield
    assert not folder.exists()
    away.rename(folder)


@contextlib.contextmanager
def an_empty_mount_point_in_its_place(folder):
    away = folder.with_name("away")
    folder.rename(away)
    folder.mkdir()
    yield
    assert list(folder.iterdir()) == []
    folder.rmdir()
    away.rename(folder)


@pytest.mark.parametrize("trouble", [a_file_in_its_place, nothing_in_its_place, an_empty_mount_point_in_its_place])
def test_a_folder_that_is_away_is_unavailable_and_never_made_anew(store, folder, tmp_path, trouble):
    with trouble(folder):
        for name, call in calls(store, tmp_path).items():
            with pytest.raises(StoreUnavailable, match="is not there now") as caught:
                call()
            assert str(folder) in caught.value.sentence, name
    assert store.get("jobs/a") == b"1"
    assert [entry.key for entry in store.list_keys("")] == ["jobs/a"]


def test_no_permission_is_a_clear_no(tmp_path):
    done = python(
        """
        import sys
        from pathlib import Path
        from trainmaster.adapters.object_store import open_store
        from trainmaster.errors import StoreRejected
        root = Path(sys.argv[1])
        def rejected(call):
            try:
                call()
            except StoreRejected as error:
                assert str(root) in error.sentence and "ermission denied" in error.sentence, error.sentence
                assert error.hint
            else:
                raise AssertionError("not refused")
        store = open_store(str(root / "store"))
        store.put("jobs/a", b"x")
        store.put("jobs/b/c", b"x")
        source = root / "source"
        source.write_bytes(b"x")
        (root / "store/jobs").chmod(0o500)
        rejected(lambda: store.put("jobs/new", b""))
        rejected(lambda: store.put("jobs/d/new", b""))
        rejected(lambda: store.put_if_absent("jobs/new", b""))
        rejected(lambda: store.put_file("jobs/new", source))
        rejected(lambda: store.move_file("jobs/new", source))
        rejected(lambda: store.delete_prefix("jobs/a"))
        assert source.exists() and store.get("jobs/a") == b"x"
        (root / "store/jobs").chmod(0o000)
        rejected(lambda: store.get("jobs/a"))
        rejected(lambda: list(store.list_keys("jobs")))
        (root / "store/jobs").chmod(0o700)
        assert list((root / "store/.staging").iterdir()) == []
        (root / "closed").mkdir(mode=0o500)
        rejected(lambda: open_store(str(root / "closed/store")))
        rejected(lambda: open_store(str(root / "closed")))
        """,
        tmp_path,
        mortal=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_store_may_be_read_without_permission_to_write(store, folder):
    folder.chmod(0o500)
    (folder / ".staging").chmod(0o500)
    code = "import sys; from trainmaster.adapters.object_store import open_store as o; "
    done = python(code + "print(o(sys.argv[1], create=False).get('jobs/a'))", folder, mortal=True)
    refused = python(code + "o(sys.argv[1])", folder, mortal=True)
    assert done.stdout == "b'1'\n", done.stderr
    assert "StoreRejected" in refused.stderr


def test_a_key_that_a_folder_cannot_hold_is_refused(store, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    for key in ("jobs/a/below an object", "x" * 256):
        with pytest.raises(StoreRejected):
            store.put(key, b"")
        with pytest.raises(StoreRejected):
            store.put_if_absent(key, b"")
        with pytest.raises(StoreRejected):
            store.put_file(key, source)
    with pytest.raises(StoreRejected):
        store.put("jobs", b"")
    assert [entry.key for entry in store.list_keys("")] == ["jobs/a"]


def test_a_file_is_no_place_for_a_store(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x")
    for url in (file, file / "below"):
        with pytest.raises(InvalidConfig, match=str(file)):
            open_store(str(url))


def test_without_create_a_missing_folder_stays_missing(tmp_path):
    with pytest.raises(StoreUnavailable):
        open_store(str(tmp_path / "none"), create=False).get("k")
    assert list(tmp_path.iterdir()) == []


def test_folder_addresses(tmp_path):
    open_store(str(tmp_path / "a b%")).put("k", b"1")
    for url in (f"file://{tmp_path}/a%20b%25", f"file://localhost{tmp_path}/a%20b%25", os.path.relpath(tmp_path / "a b%")):
        again = open_store(url)
        assert again.get("k") == b"1"
        assert again.url == str(tmp_path / "a b%")


@pytest.mark.parametrize("url", ["ftp://host/x", "http://host", "file://host/x", "s3://", "s3://key:secret@bucket", "S3://b"])
def test_a_wrong_address_is_named_and_the_allowed_ones_shown(url):
    with pytest.raises(InvalidConfig) as caught:
        open_store(url)
    assert url.partition("://")[0] in caught.value.sentence
    assert caught.value.hint
    assert "secret" not in caught.value.sentence


def test_a_killed_writer_leaves_nothing_half_written(folder):
    store = open_store(str(folder))
    code = """
        import sys
        from pathlib import Path
        from trainmaster.adapters.object_store import open_store
        store = open_store(sys.argv[1])
        source = Path(sys.argv[2])
        source.write_bytes(b"f" * 3_000_000)
        for number in range(1_000_000):
            store.put("a/overwritten", b"p" * 3_000_000)
            store.put_if_absent(f"a/created/{number}", b"c" * 3_000_000)
            store.put_file(f"a/file/{number}", source)
            print(number, flush=True)
        """
    for rounds in range(3):
        command = [sys.executable, "-c", textwrap.dedent(code), str(folder), str(folder.with_name("source"))]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            for _ in range(2 + rounds):
                assert writer.stdout.readline()
            writer.kill()
    listed = list(store.list_keys(""))
    assert len(listed) >= 5
    assert {entry.size_bytes for entry in listed} == {3_000_000}
    assert all(entry.key.startswith("a/") for entry in listed)


def test_what_a_crash_left_is_swept_a_day_later(store, folder):
    old, fresh = folder / ".staging" / "old", folder / ".staging" / "fresh"
    for path in (old, fresh):
        path.write_bytes(b"half")
    two_days_ago = fresh.stat().st_mtime - 2 * 86_400
    os.utime(old, (two_days_ago, two_days_ago))
    assert [entry.key for entry in store.list_keys("")] == ["jobs/a"]
    open_store(str(folder))
    assert [path.name for path in (folder / ".staging").iterdir()] == ["fresh"]


def test_a_write_that_fails_leaves_nothing(store, folder, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x" * 5_000_000)

    def give_up(_count):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        store.put_file("jobs/file", source, give_up)
    store.put_file("jobs/file", source)
    with pytest.raises(RuntimeError, match="enough"):
        store.get_file("jobs/file", tmp_path / "target", give_up)
    assert list((folder / ".staging").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["source"]


def test_deleting_leaves_no_empty_folders(store, folder):
    store.put("jobs/b/c/d/e", b"")
    store.put("code/x", b"")
    store.delete_prefix("jobs")
    assert sorted(path.name for path in folder.iterdir()) == [".staging", "code"]


def test_a_file_moves_in_from_another_file_system(store, tmp_path):
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is only one file system")
    path = other / f"trainmaster-test-{os.getpid()}"
    path.write_bytes(b"chunk")
    try:
        store.move_file("log/1", path)
        assert not path.exists()
        assert store.get("log/1") == b"chunk"
        path.write_bytes(b"other")
        store.move_file("log/1", path)
        assert not path.exists()
        assert store.get("log/1") == b"chunk"
    finally:
        path.unlink(missing_ok=True)


def test_a_folder_costs_no_import_of_obstore_or_asyncio(tmp_path):
    code = """
        import sys
        from trainmaster.adapters.object_store import AsyncDoor, open_store
        store = open_store(sys.argv[1])
        store.put("a/b", b"1")
        AsyncDoor(store)
        heavy = {"obstore", "asyncio", "concurrent.futures", "ctypes"} & set(sys.modules)
        assert not heavy, heavy
        """
    done = python(code, tmp_path / "store")
    assert done.returncode == 0, done.stderr


# --- a bucket -------------------------------------------------------------------------------------------------------


def test_a_wrong_secret_is_a_clear_no(server, tmp_path):
    wrong = "wrong-secret-0123456789"
    store = open_store(server.url, options=server.options | {"secret_access_key": wrong})
    for name, call in calls(store, tmp_path).items():
        with pytest.raises(StoreRejected) as caught:
            call()
        text = f"{caught.value.sentence} {caught.value.hint}"
        assert "SignatureDoesNotMatch" in text, name
        assert wrong not in text
        assert "\n" not in text
        assert len(text) < 500


def test_a_missing_bucket_is_a_clear_no_and_not_an_unknown_key(server, tmp_path):
    store = open_store("s3://nobody-made-this/prefix", options=server.options)
    for call in calls(store, tmp_path).values():
        with pytest.raises(StoreRejected, match="NoSuchBucket"):
            call()


def test_a_stopped_server_is_unavailable_in_bounded_time(tmp_path):
    with s3_server(tmp_path / "s3") as server:
        store = open_store(server.url, options=server.options | {"timeout_s": "0.6", "transfer_timeout_s": "0.6"})
        store.put("jobs/a", b"1")
        assert store.get("jobs/a") == b"1"
    for name, call in calls(store, tmp_path).items():
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            call()
        assert time.monotonic() - began < 3, name


def test_a_server_that_never_answers_is_unavailable_in_bounded_time(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = an_s3_store(silent.getsockname()[1], timeout_s="0.3", transfer_timeout_s="0.3")
        for name, call in calls(store, tmp_path).items():
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                call()
            assert time.monotonic() - began < 2, name


def test_a_404_that_is_not_the_stores_is_not_an_unknown_key():
    with answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as (port, _):
        store = an_s3_store(port)
        with pytest.raises(StoreUnavailable):
            store.get("jobs/a/claim")
        with pytest.raises(StoreUnavailable):
            list(store.list_keys("jobs"))


def test_a_lost_answer_to_a_create_is_not_a_lost_race():
    """A retry would meet our own value and be told that somebody else was first."""
    with answering(b"") as (port, requests):
        with pytest.raises(StoreUnavailable):
            an_s3_store(port).put_if_absent("jobs/a/claim", b"mine")
        assert [request.split()[0] for request in requests] == [b"PUT"]


def test_endpoint_and_credentials_come_from_the_environment(server):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }
    code = """
        import sys
        from trainmaster.adapters.object_store import open_store
        store = open_store(sys.argv[1])
        store.put("from/environment", b"1")
        print(store.get("from/environment"))
        """
    done = python(code, server.url, env=environment)
    assert done.stdout == "b'1'\n", done.stderr


@pytest.mark.parametrize("options", [{"colour": "red"}, {"timeout_s": "soon"}, {"timeout_s": "0"}, {"allow_http": "hm"}])
def test_a_wrong_option_is_named(options):
    with pytest.raises(InvalidConfig) as caught:
        open_store("s3://bucket", options=options)
    assert next(iter(options)) in f"{caught.value.sentence} {caught.value.hint}"


def an_s3_store(port, **options):
    credentials = {"endpoint": f"http://127.0.0.1:{port}", "access_key_id": "ak", "secret_access_key": "sk"}
    return open_store("s3://bucket/prefix", options=credentials | {"timeout_s": "2"} | options)


@contextlib.contextmanager
def answering(answer):
    """A server that reads each request, notes it, gives always the same answer and hangs up."""
    requests = []

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    if request := connection.recv(65536):
                        requests.append(request)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1], requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
