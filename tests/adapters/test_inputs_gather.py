"""Do data come as they are, once, and is it said clearly when they do not?"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from adapters.data_server import data_server, etag

from trainmaster.adapters.inputs.bucket_source import BucketSource
from trainmaster.adapters.inputs.cache import InputCache, usage
from trainmaster.adapters.inputs.fetcher import Stopped
from trainmaster.adapters.inputs.gather import Gatherer, Gathering
from trainmaster.adapters.inputs.source import NoData
from trainmaster.errors import StoreRejected, StoreUnavailable
from trainmaster.spec.data_uri import parse_uri
from trainmaster.spec.job_spec import Input
from trainmaster.testing.s3_server import s3_server


@pytest.fixture
def server():
    with data_server() as found:
        yield found


class Jobs:
    """Jobs that share a cache, one after the other or at once."""

    def __init__(self, folder, environ, bytes_max=1 << 40):
        self.folder, self.environ, self.bytes_max = folder, environ, bytes_max
        self.told: list[tuple[int, int]] = []
        self.number = 0

    def gather(self, uri, *, is_over=lambda: False, patience_s=20.0, makes_room=True, **work):
        """One job's data: the files in its folder, and the plan that was carried out."""
        self.number += 1
        folder = self.folder / f"job-{self.number}"
        cache = InputCache(self.folder / "cache", self.bytes_max, time.time)
        tell = lambda *progress: self.told.append(progress)  # noqa: E731
        gathering = Gathering(
            folder=folder, cache=cache, environ=self.environ, tell=tell, is_over=is_over, patience_s=patience_s, **work
        )
        gatherer = Gatherer(gathering)
        given = uri if isinstance(uri, Input) else Input(uri=uri)
        plan = gatherer.find("training", given)
        if plan.missing and makes_room:
            cache.make_room(plan.missing_bytes)
        return files_in(folder / "training"), gatherer.fetch(plan), folder / "training"


def files_in(folder):
    """A function that reads every file."""
    return lambda: {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def jobs(tmp_path, server):
    return Jobs(tmp_path, {**server.environ, "HOME": str(tmp_path)})


class TestBucket:
    def test_everything_below_a_prefix_once(self, jobs, server):
        server.objects = {"data/a.csv": b"a" * 10, "data/sub/b.csv": b"b" * 20, "data/empty": b"", "database/c": b"c"}
        expected = {"a.csv": b"a" * 10, "sub/b.csv": b"b" * 20, "empty": b""}
        read, plan, _ = jobs.gather("s3://bucket/data")
        assert read() == expected
        assert (plan.manifest.files, plan.manifest.size_bytes, plan.manifest.uri) == (3, 30, "s3://bucket/data")
        assert jobs.told[-1] == (30, 30)
        again, second, _ = jobs.gather("s3://bucket/data/")
        assert again() == expected
        assert second.manifest.hash == plan.manifest.hash
        assert second.missing == []
        assert set(server.sent.values()) == {1}

    def test_one_object(self, jobs, server):
        server.objects = {"data/a.csv": b"a"}
        read, plan, _ = jobs.gather("s3://bucket/data/a.csv")
        assert read() == {"a.csv": b"a"}
        assert plan.manifest.uri == "s3://bucket/data/a.csv"

    def test_a_large_object_comes_in_parts(self, jobs, server):
        value = os.urandom((40 << 20) + 17)
        server.objects = {"data/large": value}
        read, _, _ = jobs.gather("s3://bucket/data")
        assert read() == {"large": value}
        assert server.sent["data/large"] == 6
        assert jobs.told[-1] == (len(value), len(value))

    def test_odd_names(self, jobs, server):
        names = ["ü ñ.txt", "日本/語.txt", "a%20b", "a+b#c?d", "~x", "…", "-rf", "a b/c\\d"]
        server.objects = {f"data/{name}": name.encode() for name in names}
        read, _, _ = jobs.gather("s3://bucket/data")
        assert read() == {name: name.encode() for name in names}

    def test_a_share_for_each_machine(self, jobs, server):
        server.objects = {f"data/{number}": b"x" for number in range(5)}
        given = Input(uri="s3://bucket/data", distribution="sharded")
        first, plan, _ = jobs.gather(given, node=0, nodes=2)
        second, other, _ = jobs.gather(given, node=1, nodes=2)
        assert sorted(first()) == ["0", "2", "4"]
        assert sorted(second()) == ["1", "3"]
        assert plan.manifest == other.manifest
        assert plan.manifest.files == 5

    def test_folder_marks_are_no_data(self, jobs, server):
        server.objects = {"data/sub": b""}
        assert jobs.gather("s3://bucket/data")[0]() == {"sub": b""}
        server.objects = {"data/sub": b"", "data/sub/a": b"a"}
        read, plan, _ = jobs.gather("s3://bucket/data")
        assert read() == {"sub/a": b"a"}
        assert plan.manifest.files == 1

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            (["data/a", "data/a/b"], "'a' is both an object and the folder of 'a/b'"),
            (["data/../../x"], "cannot be a file"),
            (["data/a//b"], "cannot be a file"),
            (["data/" + "x" * 300], "too long"),
        ],
    )
    def test_keys_that_cannot_be_files(self, jobs, server, keys, said):
        server.objects = dict.fromkeys(keys, b"x")
        with pytest.raises(NoData, match=said) as caught:
            jobs.gather("s3://bucket/data")
        assert "s3://bucket/data" in caught.value.sentence
        assert sorted(path.name for path in jobs.folder.iterdir()) == ["cache", "job-1"]

    def test_nothing_there(self, jobs, server):
        server.objects = {"training-data/a": b"a"}
        with pytest.raises(NoData, match=r"nothing at s3://bucket/trainig-data; did you mean s3://bucket/training-data\?"):
            jobs.gather("s3://bucket/trainig-data")
        server.objects = {}
        with pytest.raises(NoData, match=r"nothing at s3://bucket$"):
            jobs.gather("s3://bucket")

    @pytest.mark.parametrize(("status", "said"), [(403, "AccessDenied"), (404, "NoSuchBucket")])
    def test_refused(self, jobs, server, status, said):
        server.objects = {"data/a": b"a"}
        server.list_statuses = [status]
        with pytest.raises(StoreRejected, match=said) as caught:
            jobs.gather("s3://bucket/data")
        assert "hunter2" not in caught.value.sentence

    def test_an_object_nobody_may_read(self, jobs, server):
        server.objects = {"data/a": b"a"}
        server.statuses = [403]
        with pytest.raises(StoreRejected, match="s3://bucket/data/a cannot be read: AccessDenied"):
            jobs.gather("s3://bucket/data")

    def test_a_server_that_stumbles_is_asked_again(self, jobs, server):
        server.objects = {f"data/{number}": b"x" * 100 for number in range(20)}
        server.list_statuses = [500]
        server.statuses = [500, 503, 500]
        read, _, _ = jobs.gather("s3://bucket/data")
        assert len(read()) == 20

    def test_a_server_that_falls_silent(self, jobs, server, tmp_path):
        server.objects = {"data/a": b"x" * 1000}
        source = BucketSource(parse_uri("s3://bucket/data"), jobs.environ, read_timeout="0.2s", connect_timeout="1s")
        [[found]] = source.pages()
        server.hold_after = 10
        server.go.clear()
        with open(tmp_path / "a", "wb") as file, pytest.raises(StoreUnavailable, match="s3://bucket/data/a cannot be read"):
            source.read(found, file.fileno(), lambda _size: None)

    def test_a_server_that_stays_away(self, jobs, server):
        server.list_statuses = [500] * 1000
        with pytest.raises(StoreUnavailable, match="cannot be listed"):
            jobs.gather("s3://bucket/data", patience_s=0.1)

    @pytest.mark.parametrize("new", [b"newer", b"new"])
    def test_what_changes_while_it_is_fetched_is_listed_anew(self, jobs, server, new):
        server.objects = {f"data/{number}": b"old" for number in range(40)}

        def change(key):
            if key == "data/7":
                server.before = lambda _key: None
                server.objects["data/7"] = new

        server.before = change
        read, plan, _ = jobs.gather("s3://bucket/data")
        assert read()["7"] == new
        assert "s3://bucket/data/7 changed while it was fetched" in plan.note
        [seven] = [one for one in plan.manifest.objects if one.path == "7"]
        assert seven.version == etag(new).strip('"')
        assert jobs.told[-1] == (39 * 3 + len(new), 39 * 3 + len(new))

    def test_what_vanishes_while_it_is_fetched(self, jobs, server):
        server.objects = {f"data/{number}": b"old" for number in range(10)}

        def vanish(key):
            if key == "data/7":
                server.objects.pop("data/7", None)

        server.before = vanish
        read, plan, _ = jobs.gather("s3://bucket/data")
        assert len(read()) == 9
        assert "s3://bucket/data/7 vanished while it was fetched" in plan.note
        assert plan.manifest.files == 9

    def test_data_that_never_lie_still(self, jobs, server):
        server.objects = {"data/a": b"0"}

        def change(key):
            server.objects[key] += b"x"

        server.before = change
        with pytest.raises(NoData, match=r"changed while it was fetched.*wait until nobody writes there"):
            jobs.gather("s3://bucket/data")

    def test_nobody_wants_them_any_more(self, jobs, server):
        server.objects = {f"data/{number}": b"x" for number in range(100)}
        over = threading.Event()
        server.before = lambda _key: over.set()
        with pytest.raises(Stopped):
            jobs.gather("s3://bucket/data", is_over=over.is_set)
        assert len(server.sent) < 100

    def test_with_a_real_server(self, tmp_path):
        from trainmaster.adapters.object_store import open_store

        with s3_server(tmp_path / "s3") as real:
            store = open_store(f"{real.url}/data", options=real.options)
            expected = {"ü ñ.txt": b"1", "a/b/c": b"22", "a/d": b""}
            for key, value in expected.items():
                store.put(key, value)
            environ = {
                "AWS_ENDPOINT_URL": real.endpoint,
                "AWS_ACCESS_KEY_ID": real.access_key,
                "AWS_SECRET_ACCESS_KEY": real.secret_key,
            }
            jobs = Jobs(tmp_path, environ)
            read, _, _ = jobs.gather(f"{real.url}/data")
            assert read() == expected
            assert jobs.gather(f"{real.url}/data")[1].missing == []
            with pytest.raises(StoreRejected, match="NoSuchBucket"):
                jobs.gather("s3://elsewhere/data")
            jobs.environ["AWS_SECRET_ACCESS_KEY"] = "wrong-hunter2"
            with pytest.raises(StoreRejected, match="SignatureDoesNotMatch") as caught:
                jobs.gather(f"{real.url}/data")
            assert "hunter2" not in str(caught.value)


class TestWeb:
    def test_one_file_once(self, jobs, server):
        server.objects = {"a b.csv": b"hello"}
        for _ in range(2):
            read, plan, _ = jobs.gather(f"{server.url}/a%20b.csv?signature=hunter2")
            assert read() == {"a b.csv": b"hello"}
            assert plan.manifest.uri == f"{server.url}/a%20b.csv"
        assert jobs.told[-1] == (5, 5)
        # Two jobs asked three times: the first twice, for the headers and for the body; the second was content with the headers.
        assert server.sent["a b.csv"] == 3

    def test_an_address_that_was_signed_anew_is_the_same_file(self, jobs, server):
        server.objects = {"a.csv": b"hello"}
        for day in (1, 2):
            address = f"{server.url}/a.csv?part=1&X-Amz-Date={day}&X-Amz-Signature=hunter{day}"
            assert jobs.gather(address)[0]() == {"a.csv": b"hello"}
        assert server.sent["a.csv"] == 3, "the second was content with the headers"
        _, plan, _ = jobs.gather(f"{server.url}/a.csv?part=2&X-Amz-Date=3&X-Amz-Signature=hunter3")
        assert len(plan.missing) == 1, "another part is another file"

    @pytest.mark.parametrize("without", [{"ETag", "Last-Modified"}, {"Content-Length"}])
    def test_a_server_that_says_little(self, jobs, server, without):
        server.objects, server.without = {"a.csv": b"hello"}, without
        first, one, _ = jobs.gather(f"{server.url}/a.csv")
        server.objects = {"a.csv": b"hallo"}
        second, other, _ = jobs.gather(f"{server.url}/a.csv")
        assert (first(), second()) == ({"a.csv": b"hello"}, {"a.csv": b"hallo"})
        assert one.manifest.hash != other.manifest.hash

    @pytest.mark.parametrize("status", [500, 503, 429])
    def test_a_server_that_stumbles_is_asked_again(self, jobs, server, status):
        server.objects, server.statuses = {"a.csv": b"hello"}, [status]
        assert jobs.gather(f"{server.url}/a.csv")[0]() == {"a.csv": b"hello"}

    @pytest.mark.parametrize(
        ("status", "error", "said"),
        [
            (404, NoData, "nothing at"),
            (403, StoreRejected, "Check the"),
            (401, StoreRejected, "netrc"),
            (500, StoreUnavailable, "500"),
        ],
    )
    def test_refused(self, jobs, server, status, error, said):
        server.statuses = [status] * 1000
        with pytest.raises(error) as caught:
            jobs.gather(f"{server.url}/a.csv?token=hunter2", patience_s=0.1)
        assert said in caught.value.sentence + caught.value.hint
        assert "hunter2" not in caught.value.sentence

    def test_broken_off_at_the_same_place_again_and_again_it_is_given_up(self, jobs, server):
        server.objects = {"a.csv": b"x" * 100_000}
        server.break_off = [0, *[50_000] * 10_000]
        with pytest.raises(StoreUnavailable):
            jobs.gather(f"{server.url}/a.csv", patience_s=1.0)

    def test_broken_off_it_is_fetched_anew(self, jobs, server):
        server.objects = {"a.csv": b"x" * 100_000}
        server.break_off = [0, 50_000]  # the first answer is for the headers
        assert jobs.gather(f"{server.url}/a.csv")[0]() == {"a.csv": b"x" * 100_000}
        assert jobs.told[-1] == (100_000, 100_000)
        assert jobs.told.count((0, 100_000)) == 2, "what broke off does not count"

    def test_what_changes_between_headers_and_body(self, jobs, server):
        server.objects = {"a.csv": b"old"}

        def change(_key):
            if server.sent["a.csv"] == 1:
                server.objects = {"a.csv": b"new"}

        server.before = change
        read, plan, _ = jobs.gather(f"{server.url}/a.csv")
        assert read() == {"a.csv": b"new"}
        assert plan.manifest.objects[0].version == etag(b"new").strip('"')
        assert plan.note == f"{server.url}/a.csv changed while it was fetched; it was listed anew"

    def test_broken_off_where_only_the_length_is_known(self, jobs, server):
        server.objects, server.without = {"a.csv": b"x" * 100_000}, {"ETag", "Last-Modified"}
        server.break_off = [50_000]
        assert jobs.gather(f"{server.url}/a.csv")[0]() == {"a.csv": b"x" * 100_000}

    def test_nobody_listens(self, jobs):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            jobs.gather("http://127.0.0.1:9/a.csv", patience_s=0.1)

    def test_a_password_from_netrc(self, jobs, server):
        server.objects = {"a.csv": b"hello"}
        netrc = jobs.folder / ".netrc"
        netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
        netrc.chmod(0o600)
        jobs.gather(f"{server.url}/a.csv")
        assert server.authorizations[0].startswith("Basic ")


class TestCache:
    def test_eight_jobs_at_once_fetch_each_object_once(self, jobs, server):
        server.objects = {f"data/{number}": os.urandom(1000) for number in range(100)}
        with ThreadPoolExecutor(8) as several:
            found = [read() for read, _, _ in several.map(lambda _: jobs.gather("s3://bucket/data"), range(8))]
        assert all(files == {key.removeprefix("data/"): value for key, value in server.objects.items()} for files in found)
        assert set(server.sent.values()) == {1}

    def test_what_a_script_changed_is_fetched_anew(self, jobs, server):
        server.objects = {"data/a": b"good"}
        _, _, folder = jobs.gather("s3://bucket/data")
        assert (folder / "a").stat().st_mode & 0o777 == 0o444
        (folder / "a").chmod(0o644)
        (folder / "a").write_bytes(b"evil")
        read, plan, _ = jobs.gather("s3://bucket/data")
        assert read() == {"a": b"good"}
        assert plan.note == "the cached copy of a had been changed; it was fetched anew"
        assert server.sent["data/a"] == 2

    def test_a_folder_is_the_jobs_own(self, jobs, server):
        server.objects = {"data/a": b"good"}
        _, _, folder = jobs.gather("s3://bucket/data")
        (folder / "cache.npy").write_bytes(b"made by the script")
        (folder / "a").unlink()
        assert jobs.gather("s3://bucket/data")[0]() == {"a": b"good"}
        assert server.sent["data/a"] == 1

    def test_the_least_recently_used_goes_first(self, jobs, server):
        server.objects = {f"{name}/x": name.encode() * 1000 for name in "abcd"}
        jobs.bytes_max = 3000
        for name in "abc":
            _, _, folder = jobs.gather(f"s3://bucket/{name}")
            (folder / "x").unlink()
        cache = InputCache(jobs.folder / "cache", 3000, time.time)
        _used_long_ago(jobs.folder / "cache", {b"a": 300, b"b": 200, b"c": 100})
        jobs.gather("s3://bucket/a")[2].joinpath("x").unlink()  # used again: now b is the oldest
        jobs.gather("s3://bucket/d")[2].joinpath("x").unlink()
        assert usage(cache.folder) == (3, 3000)
        assert kept(jobs.folder / "cache") == {b"a", b"c", b"d"}

    def test_what_a_job_uses_is_not_removed(self, jobs, server):
        server.objects = {f"{name}/x": name.encode() * 1000 for name in "abc"}
        jobs.bytes_max = 1000
        first, _, folder = jobs.gather("s3://bucket/a")
        _used_long_ago(jobs.folder / "cache", {b"a": 300})
        jobs.gather("s3://bucket/b")[2].joinpath("x").unlink()
        assert kept(jobs.folder / "cache") == {b"a", b"b"}
        assert first() == {"x": b"a" * 1000}
        (folder / "x").unlink()  # the job is over
        jobs.gather("s3://bucket/c")
        assert kept(jobs.folder / "cache") == {b"c"}

    def test_a_part_whose_writer_died_is_begun_anew_or_removed(self, jobs, server):
        server.objects = {"data/a": b"good", "other/b": b"b"}
        _, _, folder = jobs.gather("s3://bucket/data")
        [entry] = [path for path in (jobs.folder / "cache").rglob("*") if path.is_file()]
        (folder / "a").unlink()
        entry.chmod(0o600)
        entry.rename(f"{entry}.part")
        entry.with_suffix(".part").write_bytes(b"torn bytes that are longer")
        assert jobs.gather("s3://bucket/data", makes_room=False)[0]() == {"a": b"good"}
        abandoned = entry.with_name("f" * 64 + ".part")
        abandoned.write_bytes(b"torn")
        jobs.gather("s3://bucket/other")
        assert not abandoned.exists()


def kept(folder):
    """The first letter of each file that is kept whole."""
    return {path.read_bytes()[:1] for path in folder.rglob("*") if path.is_file() and path.suffix != ".part"}


def _used_long_ago(folder, ages_s):
    for path in folder.rglob("*"):
        if path.is_file():
            status = path.stat()
            os.utime(path, ns=(time.time_ns() - ages_s[path.read_bytes()[:1]] * 10**9, status.st_mtime_ns))
