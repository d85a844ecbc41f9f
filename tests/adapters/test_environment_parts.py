"""The parts that environments are made of: secrets, words of tools, locks, and a shelf that several processes use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trainmaster.adapters import file_locks
from trainmaster.adapters.environments.builder import filled_address
from trainmaster.adapters.environments.lock_file import Lock, LockHead, conda_body, parse_lock, requirements_of_pylock
from trainmaster.adapters.environments.question import Question
from trainmaster.adapters.environments.shelf import EnvironmentFile, Shelf, mark_of
from trainmaster.adapters.environments.trouble import EnvironmentTrouble, Secrets, telling_lines
from trainmaster.spec.job_spec import Environment


def nobody_waits() -> None:
    raise AssertionError("somebody is in the way")


class TestSecrets:
    def test_nothing_of_them_is_shown(self):
        secrets = Secrets({"PW": "a/b c", "SHORT": "x"})
        assert secrets.hidden("got a/b c and a%2Fb%20c at https://ada:q@h/x") == "got *** and *** at https://***@h/x"

    def test_nor_is_a_part_that_was_taken_for_a_host(self):
        assert (
            Secrets({"PW": "a@b/topsecret"}).hidden("cannot fetch http://b/topsecret@h/simple/")
            == "cannot fetch http://b/***@h/simple/"
        )

    def test_whatever_characters_a_password_has_it_stays_in_the_user_part(self):
        values = {"PW": "a@b/c#d?e:f", "HOST": "h:8080"}
        assert filled_address("http://ada:${PW}@${HOST}/simple", values) == "http://ada:a%40b%2Fc%23d%3Fe%3Af@h:8080/simple"
        assert filled_address("http://${HOST}/simple", values) == "http://h:8080/simple"
        assert filled_address("http://u:${PW}@h/", {"PW": "a%40b"}) == "http://u:a%40b@h/"  # written for an address already

    def test_a_lock_keeps_references(self):
        assert Secrets({"PW": "hunter22"}).named("a @ https://u:hunter22@h/a") == "a @ https://u:${PW}@h/a"


class TestTellingLines:
    def test_the_error_and_its_causes(self):
        said = "warning: old\nUsing Python 3.11\nerror: No solution found\n  cause: Because a>9\n\nhint: ask for less\n"
        assert telling_lines(said) == "No solution found Because a>9 hint: ask for less"

    def test_of_a_long_story_beginning_and_end(self):
        said = telling_lines("error: build failed\n" + "".join(f"  line {n}\n" for n in range(50)))
        assert said.startswith("build failed line 0 line 1 …")
        assert said.endswith("line 49")

    def test_without_the_word_the_last_lines(self):
        assert telling_lines("".join(f"{n}\n" for n in range(20))).split() == [str(n) for n in range(12, 20)]

    def test_it_is_never_long(self):
        assert len(telling_lines("error: " + "x" * 10_000)) < 1000


class TestLock:
    def test_it_is_read_as_it_was_written(self):
        lock = Lock(head=LockHead(python="cpython 3.11.7", wheelhouse="ab"), body="six==1\n")
        assert parse_lock(lock.text, lock.key) == lock

    def test_the_key_is_what_it_holds_for_which_python(self):
        lock = Lock(head=LockHead(python="cpython 3.11.7"), body="six==1\n")
        assert lock.key == Lock(head=LockHead(python="cpython 3.11.7"), body="six==1\n").key
        assert lock.key != Lock(head=LockHead(python="cpython 3.12.1"), body="six==1\n").key
        assert lock.key != Lock(head=LockHead(python="cpython 3.11.7"), body="six==2\n").key

    @pytest.mark.parametrize("text", ["", "six==1\n", "# trainmaster: {\n", '# trainmaster: {"python": 3}\nsix==1'])
    def test_what_is_none_is_refused(self, text):
        with pytest.raises(EnvironmentTrouble, match="cannot be read"):
            parse_lock(text, "k")

    def test_of_conda_with_what_pip_added(self):
        lock = Lock(head=LockHead(kind="conda"), body=conda_body("@EXPLICIT\nhttps://h/a.conda\n", ["six==1"]))
        assert lock.pip_lines == ["six==1"]
        assert "\n@EXPLICIT\nhttps://h/a.conda\n" in lock.text


class TestPylock:
    def test_versions_addresses_and_commits(self):
        text = """
            lock-version = "1.0"
            [[packages]]
            name = "six"
            version = "1.0"
            marker = "python_version > '3'"
            wheels = [{ url = "u", hashes = { sha256 = "aa" } }]
            [[packages]]
            name = "arc"
            archive = { url = "https://h/arc.zip", hashes = { sha256 = "bb" } }
            [[packages]]
            name = "git"
            vcs = { type = "git", url = "https://h/g", commit-id = "cc" }
        """
        assert requirements_of_pylock(text, "pylock.toml") == (
            "arc @ https://h/arc.zip\ngit @ git+https://h/g@cc\nsix==1.0 ; python_version > '3' \\\n    --hash=sha256:aa\n"
        )

    @pytest.mark.parametrize("text", ["", "a = [", "packages = [3]", '[[packages]]\nname = "a"\ndirectory = { path = "x" }'])
    def test_what_is_none_is_refused(self, text):
        with pytest.raises(EnvironmentTrouble, match="is no pylock file"):
            requirements_of_pylock(text, "pylock.toml")


class TestQuestion:
    """What decides the answer is part of the question; what does not, or is secret, is none."""

    def name(self, folder, **base):
        given = Environment(requirements=["alpha"])
        return Question(environment=given, folder=folder, python=sys.executable, base={"HOME": str(folder / "home"), **base}).name

    @pytest.mark.parametrize(
        "name",
        [
            "UV_CONSTRAINT",
            "UV_OVERRIDE",
            "UV_TORCH_BACKEND",
            "UV_NO_BINARY",
            "UV_CONFIG_FILE",
            "UV_INDEX_PRIVATE_URL",
            "UV_EXCLUDE_NEWER",
        ],
    )
    def test_settings_of_uv(self, tmp_path, name):
        assert self.name(tmp_path, **{name: "one"}) != self.name(tmp_path, **{name: "other"}) != self.name(tmp_path)

    @pytest.mark.parametrize(
        "name", ["UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_INDEX_OWN_PASSWORD", "UV_INDEX_OWN_USERNAME", "UV_PYTHON", "LANG"]
    )
    def test_what_does_not_decide(self, tmp_path, name):
        assert self.name(tmp_path, **{name: "one"}) == self.name(tmp_path)

    def test_a_password_is_none_of_it(self, tmp_path):
        one, other = (self.name(tmp_path, UV_INDEX_URL=f"https://ada:{word}@host/simple") for word in ("old", "new"))
        assert one == other

    @pytest.mark.parametrize("name", ["UV_CONSTRAINT", "UV_OVERRIDE", "UV_CONFIG_FILE", "UV_BUILD_CONSTRAINT"])
    def test_files_that_settings_name(self, tmp_path, name):
        files = [tmp_path / "a b.txt", tmp_path / "other.txt"]
        named = {name: str(files[0]) if name == "UV_CONFIG_FILE" else f"{str(files[0]).replace(' ', chr(92) + ' ')} other.txt"}
        names = [self.name(tmp_path, **named)]
        for file in files[: 1 if name == "UV_CONFIG_FILE" else 2]:
            file.write_text("beta<2")
            names.append(self.name(tmp_path, **named))
        assert len(set(names)) == len(names)

    @pytest.mark.parametrize("where", ["home/.config/uv/uv.toml", "elsewhere/uv/uv.toml"])
    def test_the_settings_of_the_user(self, tmp_path, where):
        base = {"XDG_CONFIG_HOME": str(tmp_path / "elsewhere")} if "elsewhere" in where else {}
        before = self.name(tmp_path, **base)
        path = tmp_path / where
        path.parent.mkdir(parents=True)
        path.write_text('exclude-newer = "2024-01-01"')
        assert self.name(tmp_path, **base) != before
        assert self.name(tmp_path, **base, UV_NO_CONFIG="1") == self.name(tmp_path / "none", **base, UV_NO_CONFIG="1")


class TestFileLocks:
    def test_many_share_or_one_alone(self, tmp_path):
        path = tmp_path / "new" / "lock"
        one, other = (file_locks.try_hold(path, shared=True) for _ in range(2))
        assert file_locks.try_hold(path, shared=False) is None
        os.close(one)
        os.close(other)
        alone = file_locks.try_hold(path, shared=False)
        assert alone is not None
        assert file_locks.try_hold(path, shared=True) is None
        os.close(alone)

    def test_a_lock_on_a_file_that_is_gone_is_none(self, tmp_path):
        path = tmp_path / "lock"
        first = file_locks.try_hold(path, shared=False)
        path.unlink()
        second = file_locks.try_hold(path, shared=False)
        assert second is not None
        assert file_locks.try_hold(path, shared=False) is None
        os.close(first)
        assert file_locks.try_hold(path, shared=False) is None, "whoever held the old file has let go of nothing"
        os.close(second)

    def test_it_ends_with_its_holder(self, tmp_path):
        path = tmp_path / "lock"
        code = "import sys; from pathlib import Path; from trainmaster.adapters import file_locks as f\n"
        code += "f.try_hold(Path(sys.argv[1]), shared=False); print('held', flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code, path], stdin=-1, stdout=-1) as holder:
            assert holder.stdout.readline() == b"held\n"
            assert file_locks.try_hold(path, shared=True) is None
            holder.kill()
            holder.wait()
        descriptor = file_locks.try_hold(path, shared=True)
        assert descriptor is not None
        os.close(descriptor)


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "envs")


def built(shelf, key="k", asked="q"):
    with shelf.building(key, nobody_waits) as place:
        (place / "bin").mkdir()
        (place / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
        shelf.write(EnvironmentFile(key=key, folder=place.name, path=str(place), python="cpython 3", base=mark_of(sys.executable)))
    with shelf.asking(asked, nobody_waits):
        shelf.answer(asked, key)
    return place


class TestShelf:
    def test_what_was_built_is_found_by_what_was_asked(self, shelf):
        assert shelf.find("q") is None
        place = built(shelf)
        held = shelf.find("q")
        assert held.folder == place
        assert held.was_there
        held.let_go()

    def test_what_was_not_finished_is_not_there(self, shelf):
        def build():
            with shelf.building("k", nobody_waits) as place:
                (place / "half").touch()
                raise RuntimeError

        with pytest.raises(RuntimeError):
            build()
        assert shelf.take("k", was_there=True) is None
        assert shelf.listing() == []

    def test_a_dead_builders_leavings_are_seen_and_go(self, shelf):
        (shelf.folder / "k" / "abcd").mkdir(parents=True)
        assert [one.broken for one in shelf.listing()] == ["its build was interrupted"]
        built(shelf)
        assert not (shelf.folder / "k" / "abcd").exists()

    def test_what_is_being_built_is_neither_listed_nor_removed(self, shelf):
        with shelf.building("k", nobody_waits):
            assert shelf.listing() == []
            assert not shelf.remove("k")

    def test_what_is_used_stays(self, shelf):
        built(shelf)
        held = shelf.find("q")
        assert shelf.listing()[0].in_use
        assert not shelf.remove("k")
        held.let_go()
        assert shelf.remove("k")
        assert shelf.find("q") is None
        assert list((shelf.folder / "asked").iterdir()) == []

    def test_one_that_is_broken_is_built_beside_those_who_still_run_in_it(self, shelf):
        old = built(shelf)
        held = shelf.find("q")
        (old / "bin" / "python").unlink()
        assert shelf.find("q") is None
        new = built(shelf)
        assert old.exists(), "a job runs in it"
        assert new != old
        assert shelf.find("q").folder == new
        held.let_go()

    @pytest.mark.parametrize("damage", [lambda p: (p / "bin" / "python").unlink(), lambda p: p.rename(p.with_name("elsewhere"))])
    def test_what_is_broken_is_not_found(self, shelf, damage):
        damage(built(shelf))
        assert shelf.find("q") is None
        assert "not there any more" in shelf.listing()[0].broken

    def test_what_was_moved_with_its_home_is_built_anew(self, shelf, tmp_path):
        built(shelf)
        shelf.folder.rename(tmp_path / "moved")
        moved = Shelf(tmp_path / "moved")
        assert moved.find("q") is None
        assert "and moved" in moved.listing()[0].broken

    def test_a_replaced_interpreter_is_another_one(self, shelf, tmp_path):
        python = tmp_path / "python"
        python.write_text("1")
        with shelf.building("k", nobody_waits) as place:
            (place / "bin").mkdir()
            (place / "bin" / "python").symlink_to(python)
            shelf.write(EnvironmentFile(key="k", folder=place.name, path=str(place), python="p", base=mark_of(str(python))))
        assert shelf.take("k", was_there=True) is not None
        python.write_text("22")
        assert shelf.take("k", was_there=True) is None
