"""Which files of a source folder belong to a job? Real repositories, real FIFOs, real links."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.adapters.source_folder import list_source
from trainmaster.errors import InvalidSource

NOWHERE = Path("/nowhere")
IDENTITY = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always"]
IS_ROOT = os.geteuid() == 0


def list_of(folder, *, user_home=NOWHERE, trainmaster_home=NOWHERE, size_limit_bytes=10**9):
    return list_source(folder, user_home=user_home, trainmaster_home=trainmaster_home, size_limit_bytes=size_limit_bytes)


def paths(listing):
    return [file.path for file in listing.files]


def left_out(listing):
    return {entry.path: entry.why for entry in listing.left_out}


def add(folder, path, text=""):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def git(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *IDENTITY, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout


def commit_all(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def repository(folder):
    git(folder, "init", "-q")
    add(folder, "train.py", "print(1)\n")
    add(folder, ".gitignore", "data/\n*.log\n")
    commit_all(folder)
    return folder


def ask_elsewhere(folder, *, environment=None, prefix=()):
    """The listing as another process sees it: with another environment, or with less power."""
    script = (
        "import json, sys; from pathlib import Path; from trainmaster.adapters.source_folder import list_source\n"
        "from trainmaster.errors import InvalidSource\n"
        "try:\n"
        "    made = list_source(Path(sys.argv[1]), user_home=Path('/nowhere'), trainmaster_home=Path('/nowhere'),"
        " size_limit_bytes=10**9)\n"
        "    print(json.dumps([[file.path for file in made.files], list(made.notes), made.commit, made.is_dirty]))\n"
        "except InvalidSource as error:\n"
        "    print(json.dumps([error.sentence, error.hint]))\n"
    )
    command = [*prefix, sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd="/")
    return json.loads(done.stdout)


def without_power():
    """A command that gives up root's right to read everything."""
    if not IS_ROOT:
        return ()
    lost = "-dac_override,-dac_read_search"
    return ("setpriv", f"--bounding-set={lost}", f"--inh-caps={lost}", "--")


class TestWithoutGit:
    def test_everything_goes_along(self, folder):
        add(folder, "train.py", "x = 1\n")
        add(folder, "package/model.py")
        script = add(folder, "run.sh")
        script.chmod(0o700)
        (folder / "latest").symlink_to("package/model.py")
        (folder / "empty").mkdir()

        listing = list_of(folder)

        assert paths(listing) == ["latest", "package/model.py", "run.sh", "train.py"]
        by_path = {file.path: file for file in listing.files}
        assert by_path["run.sh"].is_executable
        assert not by_path["train.py"].is_executable
        assert by_path["latest"].link_target == "package/model.py"
        assert listing.total_bytes == 6
        assert (listing.commit, listing.is_dirty, listing.notes, listing.left_out) == (None, False, (), ())

    def test_files_are_in_the_order_of_their_bytes(self, folder):
        for name in ["b", "a/z", "a.b", "a-b", "é", "Z"]:
            add(folder, name)

        assert paths(list_of(folder)) == sorted(["b", "a/z", "a.b", "a-b", "é", "Z"], key=str.encode)

    def test_what_never_belongs_to_a_job_is_left_out_and_said_so(self, folder):
        for path in [
            ".venv/bin/python", "env/pyvenv.cfg", "env/lib/x.py", "src/__pycache__/a.pyc", "node_modules/x/index.js",
            ".env", ".env.local", ".env.example", "id_rsa", "id_rsa.pub", "tls/server.key", "tls/CA.PEM", ".ssh/config",
            ".netrc", ".DS_Store", "old.pyc", ".ipynb_checkpoints/x.ipynb", "train.py", "credentials.json",
        ]:  # fmt: skip
            add(folder, path)
        add(folder, "my-service-account.json", '{"type": "service_account", "private_key": "-----BEGIN"}')

        listing = list_of(folder)

        assert paths(listing) == [".env.example", "credentials.json", "id_rsa.pub", "train.py"]
        assert left_out(listing) == {
            ".DS_Store": "a cache",
            ".env": "it may hold passwords",
            ".env.local": "it may hold passwords",
            ".ipynb_checkpoints/": "a cache",
            ".netrc": "it looks like a key or password file",
            ".ssh/": "it looks like a key or password file",
            ".venv/": "a virtual environment",
            "env/": "a virtual environment",
            "id_rsa": "it looks like a key or password file",
            "my-service-account.json": "it looks like a key or password file",
            "node_modules/": "installed packages",
            "old.pyc": "a cache",
            "src/__pycache__/": "a cache",
            "tls/CA.PEM": "it looks like a key or password file",
            "tls/server.key": "it looks like a key or password file",
        }

    def test_the_ignore_file_leaves_out_and_calls_back_by_name(self, folder):
        for path in ["train.py", "data/big.bin", "logs/a.log", "logs/keep.log", "certs/ca.pem", "certs/own.pem", ".git/x"]:
            add(folder, path)
        add(folder, ".trainmasterignore", "data/\n*.log\n!keep.log\n!certs/ca.pem\n!.git\n")
        add(folder, "sub/.trainmasterignore", "local.py\n")
        add(folder, "sub/local.py")

        listing = list_of(folder)

        assert [path for path in paths(listing) if ".trainmasterignore" not in path] == [
            "certs/ca.pem", "logs/keep.log", "train.py",
        ]  # fmt: skip
        assert left_out(listing)["data/"] == ".trainmasterignore says data/"
        assert left_out(listing)["sub/local.py"] == ".trainmasterignore says local.py"
        assert left_out(listing)["certs/own.pem"] == "it looks like a key or password file"
        assert left_out(listing)[".git/"] == "git's own data"

    def test_a_pattern_for_all_the_rest_does_not_call_back_a_virtual_environment(self, folder):
        add(folder, "train.py")
        add(folder, ".venv/lib/site.py")
        add(folder, "a.pem")
        add(folder, ".trainmasterignore", "*\n!*/\n!*.py\n!*.pem\n")

        assert paths(list_of(folder)) == ["train.py"]

    def test_trainmasters_own_folder_stays(self, folder):
        add(folder, "train.py")
        add(folder, "state/jobs.db")

        listing = list_of(folder, trainmaster_home=folder / "state")

        assert paths(listing) == ["train.py"]
        assert left_out(listing) == {"state/": "Trainmaster's own data"}
        with pytest.raises(InvalidSource, match="is Trainmaster's own"):
            list_of(folder, trainmaster_home=folder)

    def test_a_name_may_hold_anything_that_is_text(self, folder):
        names = ["new\nline.py", "sp ace", "-rf", "ü", "x" * 200, "\t", "日本/語"]
        for name in names:
            add(folder, name)
        assert sorted(paths(list_of(folder))) == sorted(names)

    def test_a_name_that_is_no_text_is_refused_or_left_out(self, folder):
        os.close(os.open(os.fsencode(folder) + b"/caf\xe9.py", os.O_CREAT))

        with pytest.raises(InvalidSource, match=r"caf\\xe9\.py is not valid UTF-8"):
            list_of(folder)

        add(folder, ".trainmasterignore", "caf?.py\n")
        assert left_out(list_of(folder)) == {"caf\\xe9.py": ".trainmasterignore says caf?.py"}


class TestWithGit:
    def test_tracked_and_untracked_files_go_along_ignored_ones_do_not(self, repository):
        commit = git(repository, "rev-parse", "HEAD").strip()
        add(repository, "data/train.bin", "0" * 100)
        add(repository, "run.log")
        before = list_of(repository)
        assert (before.commit, before.is_dirty) == (commit, False)

        add(repository, "new.py")
        listing = list_of(repository)

        assert paths(listing) == [".gitignore", "new.py", "train.py"]
        assert left_out(listing) == {".git/": "git's own data", "data/": "git ignores it", "run.log": "git ignores it"}
        assert (listing.commit, listing.is_dirty) == (commit, True)

    def test_an_untracked_file_that_stays_behind_makes_nothing_dirty(self, repository):
        add(repository, ".env", "TOKEN=1")
        add(repository, "state/jobs.db")
        assert not list_of(repository, trainmaster_home=repository / "state").is_dirty

    def test_a_changed_file_is_dirty_and_a_deleted_one_is_gone(self, repository):
        add(repository, "train.py", "changed\n")
        assert list_of(repository).is_dirty

        (repository / "train.py").unlink()
        listing = list_of(repository)
        assert paths(listing) == [".gitignore"]
        assert listing.is_dirty

    def test_before_the_first_commit_there_is_no_commit(self, folder):
        git(folder, "init", "-q")
        add(folder, "train.py")

        listing = list_of(folder)

        assert paths(listing) == ["train.py"]
        assert (listing.commit, listing.is_dirty) == (None, True)

    def test_a_folder_inside_a_repository_holds_only_its_own(self, repository):
        add(repository, "jobs/one/train.py")
        add(repository, "jobs/one/data/x")
        commit = commit_all(repository)
        add(repository, "elsewhere.py")

        listing = list_of(repository / "jobs" / "one")

        assert paths(listing) == ["train.py"]
        assert (listing.commit, listing.is_dirty) == (commit, False)
        assert left_out(listing) == {"data/": "git ignores it"}

    def test_secrets_stay_even_if_git_tracks_them(self, repository):
        add(repository, "keys/server.pem")
        add(repository, "venv/x.py")
        commit_all(repository)

        assert left_out(list_of(repository)) == {
            ".git/": "git's own data",
            "keys/server.pem": "it looks like a key or password file, though git tracks it",
            "venv/": "a virtual environment, though git tracks it",
        }

    def test_the_ignore_file_leaves_out_tracked_files(self, repository):
        add(repository, "docs/a.md")
        add(repository, ".trainmasterignore", "docs/\n")
        commit_all(repository)
        assert paths(list_of(repository)) == [".gitignore", ".trainmasterignore", "train.py"]

    def test_submodules_and_repositories_lying_around_go_along(self, repository, tmp_path):
        library = tmp_path / "library"
        library.mkdir()
        git(library, "init", "-q")
        add(library, "lib.py")
        commit_all(library)
        git(repository, "submodule", "--quiet", "add", str(library), "vendor/library")
        commit_all(repository)
        assert paths(list_of(repository)) == [".gitignore", ".gitmodules", "train.py", "vendor/library/lib.py"]
        assert not list_of(repository).is_dirty

        add(repository, "vendor/library/lib.py", "changed")
        assert list_of(repository).is_dirty
        git(repository / "vendor/library", "checkout", "-q", ".")
        add(repository, "vendor/library/own.py")
        assert list_of(repository).is_dirty

        shutil.copytree(library, repository / "checkout")
        assert "checkout/lib.py" in paths(list_of(repository))

        clone = tmp_path / "clone"
        git(tmp_path, "clone", "-q", str(repository), str(clone))
        assert "not checked out" in left_out(list_of(clone))["vendor/library/"]

    def test_a_folder_replaced_by_a_link_is_that_link(self, repository):
        add(repository, "old/a.py")
        commit_all(repository)
        (repository / "old").rename(repository / "moved")
        (repository / "old").symlink_to("moved")
        assert paths(list_of(repository)) == [".gitignore", "moved/a.py", "old", "train.py"]

    def test_a_folder_that_git_ignores_as_a_whole_is_walked(self, repository):
        add(repository, "data/train.py")

        listing = list_of(repository / "data")

        assert paths(listing) == ["train.py"]
        assert "git ignores this folder" in listing.notes[0]

    def test_git_variables_of_the_caller_do_not_matter(self, repository, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        git(other, "init", "-q")
        environment = {**os.environ, "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": "/x"}

        found, notes, commit, is_dirty = ask_elsewhere(repository, environment=environment)

        assert (found, notes, is_dirty) == ([".gitignore", "train.py"], [], False)
        assert commit == git(repository, "rev-parse", "HEAD").strip()

    def test_without_git_on_the_machine_its_ignore_files_still_count(self, repository, tmp_path):
        add(repository, "data/x")
        add(repository, "sub/y.log")
        environment = {**os.environ, "PATH": str(tmp_path)}

        assert ask_elsewhere(repository, environment=environment) == [
            [".gitignore", "train.py"],
            ["The files were found without git, and the commit is not recorded: git is not installed."],
            None,
            False,
        ]
        assert ask_elsewhere(repository / "sub", environment=environment)[0] == []

    @pytest.mark.skipif(not IS_ROOT, reason="only root can give files away")
    def test_a_repository_of_another_user_is_walked(self, repository, tmp_path):
        for path in [repository, repository / ".git"]:
            os.chown(path, 12345, 12345)
        environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

        found, notes, commit, _ = ask_elsewhere(repository, environment=environment)

        assert found == [".gitignore", "train.py"]
        assert "belongs to another user" in notes[0]
        assert commit is None

    def test_a_broken_repository_is_walked(self, folder):
        add(folder, "train.py")
        add(folder, ".git", "gitdir: /nowhere\n")

        listing = list_of(folder)

        assert paths(listing) == ["train.py"]
        assert "git says: not a git repository" in listing.notes[0]

    def test_our_look_leaves_the_repository_as_it_was(self, repository):
        index = repository / ".git" / "index"
        os.utime(repository / "train.py")
        before = index.stat().st_mtime_ns, sorted(os.listdir(repository / ".git"))
        list_of(repository)
        assert (index.stat().st_mtime_ns, sorted(os.listdir(repository / ".git"))) == before


@pytest.fixture(params=["plain", "git"])
def either(request, folder):
    add(folder, "train.py")
    if request.param == "git":
        git(folder, "init", "-q")
        add(folder, ".gitignore", "ignored/\n*.pipe\n")
        commit_all(folder)
    return folder


class TestRefusals:
    def test_a_fifo_is_refused_with_the_remedy(self, either):
        os.mkfifo(either / "events")
        with pytest.raises(InvalidSource, match=r"^events is a FIFO, not a file; ") as caught:
            list_of(either)
        assert ".trainmasterignore" in caught.value.hint

        add(either, ".trainmasterignore", "events\n")
        assert "train.py" in paths(list_of(either))

    def test_a_fifo_alone_in_a_folder_is_refused(self, either):
        (either / "sub").mkdir()
        os.mkfifo(either / "sub" / "events")
        with pytest.raises(InvalidSource, match="sub/events is a FIFO"):
            list_of(either)

    def test_a_fifo_that_git_ignores_is_left_out(self, folder):
        git(folder, "init", "-q")
        add(folder, ".gitignore", "*.pipe\n")
        os.mkfifo(folder / "x.pipe")
        assert left_out(list_of(folder))["x.pipe"] == "git ignores it"

    def test_a_socket_is_refused(self, either):
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.open(either, os.O_RDONLY)
            # By way of the open folder: the path of a socket may only have 108 bytes.
            listener.bind(f"/proc/self/fd/{here}/agent.sock")
            os.close(here)
            with pytest.raises(InvalidSource, match=r"agent\.sock is a socket"):
                list_of(either)

    @pytest.mark.skipif(not IS_ROOT, reason="only root can make devices")
    def test_a_device_is_refused(self, either):
        os.mknod(either / "null", 0o020666, os.makedev(1, 3))
        with pytest.raises(InvalidSource, match="null is a device"):
            list_of(either)

    @pytest.mark.parametrize("target", ["/etc/hostname", "../other", "sub/../../other", "../project/train.py", "/"])
    def test_a_link_out_of_the_folder_is_refused(self, either, target):
        add(either, "sub/x")
        add(either.parent, "other")
        (either / "data").symlink_to(target)
        with pytest.raises(InvalidSource, match="The link data leads out of the source folder, to ") as caught:
            list_of(either)
        assert ".trainmasterignore" in caught.value.hint

    def test_an_absolute_link_into_the_folder_is_to_be_made_relative(self, either):
        (either / "data").symlink_to(either / "train.py")
        with pytest.raises(InvalidSource) as caught:
            list_of(either)
        assert caught.value.hint == "Make it a relative link."

    def test_a_link_that_leaves_by_way_of_another_is_refused(self, either):
        add(either, "a/b/x")
        (either / "hop").symlink_to("a/b")
        (either / "out").symlink_to("hop/../../../project")
        with pytest.raises(InvalidSource, match="The link out leads out"):
            list_of(either)

    def test_a_broken_link_is_refused(self, either):
        (either / "data").symlink_to("missing")
        with pytest.raises(InvalidSource, match="The link data is broken: missing does not exist"):
            list_of(either)

    def test_a_link_to_itself_is_refused(self, either):
        (either / "data").symlink_to("data")
        with pytest.raises(InvalidSource, match="The link data leads back to itself"):
            list_of(either)

    def test_a_link_to_what_is_left_out_is_left_out(self, either):
        add(either, ".env")
        (either / "one").symlink_to(".env")
        (either / "two").symlink_to("one")
        (either / ".venv").symlink_to("/opt/environment")
        (either / ".env.local").symlink_to("train.py")
        (either / "by-way-of-a-link-that-stays").symlink_to(".env.local")
        (either / "up").symlink_to(".")

        listing = list_of(either)

        assert "up" in paths(listing)
        assert left_out(listing)["one"] == "it leads to .env, which is left out or empty"
        assert left_out(listing)["two"] == "it leads to .env, which is left out or empty"
        assert left_out(listing)[".venv"] == "a virtual environment"
        assert "by-way-of-a-link-that-stays" in left_out(listing)

    def test_an_unreadable_file_is_named(self, either):
        add(either, "sub/secret.py", "x").chmod(0)
        sentence, hint = ask_elsewhere(either, prefix=without_power())
        assert sentence == "The file sub/secret.py cannot be read: Permission denied."
        assert "chmod u+r sub/secret.py" in hint

    def test_an_unreadable_folder_is_named(self, either):
        add(either, "sub/x.py")
        (either / "sub").chmod(0)
        sentence, _ = ask_elsewhere(either, prefix=without_power())
        (either / "sub").chmod(0o700)
        assert "sub" in sentence
        assert "Permission denied" in sentence

    def test_an_unreadable_folder_that_is_ignored_is_left_out(self, either):
        for name in ["ignored", "ignored/deep", "other"]:
            (either / name).mkdir()
        (either / "ignored/deep").chmod(0)
        (either / "other").chmod(0)
        add(either, ".trainmasterignore", "other/\n" + ("" if (either / ".git").exists() else "ignored/\n"))
        assert "train.py" in ask_elsewhere(either, prefix=without_power())[0]

    def test_missing_folders_and_files_are_refused(self, folder):
        with pytest.raises(InvalidSource, match="No such file or directory"):
            list_of(folder / "missing")
        with pytest.raises(InvalidSource, match="is not a folder"):
            list_of(add(folder, "train.py"))

    def test_the_whole_machine_and_a_whole_home_are_refused(self, folder):
        home = folder / "ada"
        home.mkdir()
        (folder / "shortcut").symlink_to(home)
        for refused in [home, folder, folder / "shortcut", Path("/")]:
            with pytest.raises(InvalidSource, match="home folder") as caught:
                list_of(refused, user_home=home)
            assert "a folder of its own" in caught.value.hint
        assert list_of(add(home, "job/train.py").parent, user_home=home).files
