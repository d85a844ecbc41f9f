"""When a folder may be committed: looked at with a script that only exists as its words, and a store that lets files change."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime

import msgspec
import pytest

from trainmaster.adapters import host
from trainmaster.adapters.object_store import open_store
from trainmaster.core.job import CheckpointRef
from trainmaster.core.messages import Manifest
from trainmaster.errors import StoreUnavailable
from trainmaster.runner.committer import Committer, CommitterSettings
from trainmaster.spec import layout
from trainmaster.spec.job_spec import Checkpoints

FOREVER_S = 3600.0


class Words:
    """What the script says."""

    def __init__(self) -> None:
        self.complete_s: float | None = None

    def complete_at_s(self):
        return self.complete_s

    def step_of(self, changed):
        return None


class Store:
    """A real store; before each copy of a file, `meanwhile` happens."""

    def __init__(self, store) -> None:
        self._store = store
        self.meanwhile = lambda _: None
        self.copied: list[str] = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put_file(self, key, path, progress=None):
        self.copied.append(path.name)
        stored = self._store.put_file(key, path, progress)
        self.meanwhile(path)
        return stored


class Place:
    """A checkpoint folder with its committer."""

    def __init__(self, folder, settle) -> None:
        self.folder = folder / "checkpoints"
        self.folder.mkdir()
        self.store = Store(open_store(str(folder / "store")))
        self.words = Words()
        rules = Checkpoints(settle=settle, keep=100)
        settings = CommitterSettings(job_id="job", attempt=1, folder=self.folder, rules=rules)
        self.committer = Committer(settings, self.store, lambda: datetime.now(UTC), lambda _: "", lambda: True, self.words)

        self._is_watched = False

    def start(self) -> None:
        self._is_watched = True
        self.committer.start()

    def look(self) -> None:
        """One look, when it is time for a commit; for tests that do not start the thread."""
        self.until(lambda: self.committer._is_due(host.elapsed_s()))
        self.committer._look(self.words.complete_s)

    def write(self, name, text) -> None:
        (self.folder / name).write_text(text)

    def say_complete(self) -> None:
        """As trainmaster.checkpoint() does: what is written afterwards has a later stamp."""
        self.words.complete_s = said_s = time.time()
        while time.clock_gettime(5) <= said_s:
            time.sleep(0.001)

    def commits(self) -> list[dict[str, str]]:
        """The files of each commit."""
        entries = [entry.key for entry in self.store.list_keys(layout.checkpoints("job"))]
        refs = [msgspec.json.decode(self.store.get(k), type=CheckpointRef) for k in entries if layout.is_commit("job", k)]
        return [self._files(ref.id) for ref in sorted(refs, key=lambda ref: layout.parse_checkpoint_id(ref.id))]

    def _files(self, name) -> dict[str, str]:
        manifest = msgspec.json.decode(self.store.get(layout.manifest("job", name)), type=Manifest)
        return {f.path: self.store.get(layout.checkpoint_file("job", f.stored_in, f.path)).decode() for f in manifest.files}

    def until(self, condition) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, (self.commits(), self.committer.trouble)
            time.sleep(0.005)

    def finish(self) -> None:
        if self._is_watched:
            self.committer.finish(trusted=False, is_closed=lambda: False, tell=lambda _done, _total: None)


@pytest.fixture
def place(tmp_path):
    """A folder that would have to lie still for an hour."""
    made = Place(tmp_path, FOREVER_S)
    yield made
    made.finish()


@pytest.fixture
def quick(tmp_path):
    """A folder that has to lie still for a moment, many times longer than the pauses of whoever is restless."""
    made = Place(tmp_path, 0.3)
    yield made
    made.finish()


def test_what_is_said_to_be_complete_is_committed_at_once(place):
    place.start()
    place.write("a", "1")
    place.say_complete()
    place.until(lambda: place.commits() == [{"a": "1"}])
    place.write("a", "2")
    place.say_complete()
    place.until(lambda: place.commits() == [{"a": "1"}, {"a": "2"}])


@pytest.mark.parametrize("deed", ["write", "replace", "remove", "add", "remove the folder"])
def test_what_was_touched_since_is_not_what_was_said(place, deed):
    (place.folder / "sub").mkdir()
    for name in ("a", "b", "sub/c"):
        place.write(name, "1")
    place.say_complete()
    match deed:
        case "write":
            place.write("a", "2")
        case "replace":
            place.write("new", "2")
            os.replace(place.folder / "new", place.folder / "a")
        case "remove":
            (place.folder / "sub/c").unlink()
        case "add":
            place.write("sub/d", "2")
        case "remove the folder":
            (place.folder / "sub/c").unlink()
            (place.folder / "sub").rmdir()
    place.look()
    assert place.commits() == []
    place.say_complete()
    place.look()
    assert len(place.commits()) == 1


def test_a_file_that_changes_while_it_is_copied_spoils_the_commit_and_that_is_said(place):
    place.write("a", "1")
    place.say_complete()
    place.store.meanwhile = lambda path: path.write_text(path.read_text() + "1")
    for number in range(3):
        assert place.committer.trouble == "", number
        place.look()
        place.say_complete()
    assert place.commits() == []
    assert place.committer.trouble == "no checkpoint could be committed, 3 times in a row: a changed while it was copied"
    place.store.meanwhile = lambda _: None
    place.look()
    assert (place.commits(), place.committer.trouble) == ([{"a": "1111"}], "")


def test_a_file_that_is_removed_while_it_is_copied_spoils_the_commit(place):
    place.write("a", "1")
    place.write("b", "1")
    place.say_complete()
    place.store.meanwhile = lambda path: path.unlink()
    place.look()
    assert place.commits() == []


def test_what_is_new_or_was_stored_before_spoils_nothing(place):
    """A script that goes on: it writes the next file and removes an old one while this one is copied."""
    place.write("step-1", "1")
    place.say_complete()
    place.look()
    place.write("step-2", "2")
    place.say_complete()

    def go_on(path):
        place.write("step-3", "half")
        (place.folder / "step-1").unlink()

    place.store.meanwhile = go_on
    place.look()
    assert place.commits() == [{"step-1": "1"}, {"step-1": "1", "step-2": "2"}]
    assert place.store.copied == ["step-1", "step-2"]


class Restless:
    """Rewrites files all the time, one after the other."""

    def __init__(self, place, *names, forget=False) -> None:
        self._place, self._names, self._forget = place, names, forget
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0
        #: the longest time a file was away: a machine that stands still makes it longer than was meant
        self.away_s_max = 0.0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            self.rounds += 1
            for name in self._names:
                gone_s = host.elapsed_s()
                if self._forget:
                    (self._place.folder / name).unlink(missing_ok=True)
                    self._over.wait(0.02)
                beside = self._place.folder.parent / "beside"
                beside.write_text(str(self.rounds))
                os.replace(beside, self._place.folder / name)
                self.away_s_max = max(self.away_s_max, host.elapsed_s() - gone_s)


def test_one_restless_file_beside_others_that_lie_still(quick):
    quick.write("big", "weights")
    quick.write("latest", "0")
    quick.start()
    with Restless(quick, "latest"):
        quick.until(quick.commits)
        assert all(set(files) == {"big", "latest"} and files["latest"].isdigit() for files in quick.commits())
        quick.write("big", "better")
        quick.until(lambda: quick.commits()[-1]["big"] == "better")


def test_two_restless_files_are_a_warning(quick):
    """Nobody can tell in which moments they belong together."""
    quick.write("big", "weights")
    quick.start()
    with Restless(quick, "a", "b") as restless:
        quick.until(lambda: "keeps changing" in quick.committer.trouble)
        before = restless.rounds
        quick.until(lambda: restless.rounds > before + 20)
        assert quick.commits() == []


def test_a_restless_file_that_is_not_there_is_waited_for(quick):
    """Removed and made again: the moments without it are none to be resumed from."""
    quick.write("big", "weights")
    quick.write("a", "0")
    quick.start()
    with Restless(quick, "a", forget=True) as restless:
        quick.until(quick.commits)
    is_whole = all(set(files) == {"a", "big"} for files in quick.commits())
    # On a machine that stood still the file may have been away for as long as a folder has to lie still: then that is how it lay.
    assert is_whole or restless.away_s_max > 0.2


class Deaf(Store):
    """The answer to the first marker is lost; the marker itself may be, too."""

    arrives = True
    lost = 1

    def put_if_absent(self, key, value):
        if key.endswith("/COMMIT") and self.lost:
            self.lost -= 1
            if self.arrives:
                self._store.put_if_absent(key, value)
            raise StoreUnavailable("no answer")
        return self._store.put_if_absent(key, value)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_marker_without_an_answer_is_put_again_before_anything_else(tmp_path, arrives, goes_on):
    """Were it left alone for another commit, it could arrive when its files are gone: a marker over nothing."""
    place = Place(tmp_path, settle=0.0)
    place.store = place.committer._store = Deaf(place.store._store)
    place.store.arrives = arrives
    place.write("weights", "1")
    place.until(lambda: (place.look(), not place.store.lost)[1])
    assert place.committer.newest is None
    if goes_on:
        place.write("weights", "22")
    place.until(lambda: (place.look(), place.committer.newest is not None)[1])
    found = [ref.id for ref in place.committer.commits()]
    assert found == (["1-000001", "1-000002"] if goes_on else ["1-000001"])
    assert place.store.copied == ["weights"] * len(found), "nothing is copied twice for a lost answer"


def test_a_marker_that_arrives_after_its_checkpoint_was_removed_is_no_commit(tmp_path):
    place = Place(tmp_path, settle=0.0)
    place.store.put_if_absent(layout.commit("job", "1-000001"), b"{}")
    assert place.committer.commits() == []
