"""Does a source folder become one archive, the same one every time, and come back as it was?"""

import hashlib
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainmaster.adapters.source_archive import STORED_HEADER_BYTES, digest, pack
from trainmaster.adapters.source_folder import SourceFile, SourceListing, list_source
from trainmaster.adapters.source_unpack import unpack
from trainmaster.errors import InvalidSource

NOWHERE = Path("/nowhere")
KNOWN_DIGEST = "1de7bc322f8501721288e9bee038b1c92d6cbb2585d45cea5086d1c3e5a7bbf3"
LONG = "long/" + "/".join("n" * 90 for _ in range(3))


def add(folder, path, content=b"", mode=0o644):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(mode)
    return file


def list_of(folder):
    return list_source(folder, user_home=NOWHERE, trainmaster_home=NOWHERE, size_limit_bytes=10**12)


def pack_all(folder, destination):
    return pack(list_of(folder), folder, destination)


def contents(folder):
    """Everything that a snapshot promises to keep."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in [*names, *folders]:
            path = Path(parent, name)
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = os.readlink(path)
            elif path.is_file():
                found[key] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "project"
    add(made, "train.py", b"print(1)\n")
    add(made, "run.sh", b"#!/bin/sh\n", 0o755)
    add(made, "empty")
    add(made, "exactly-a-block", b"x" * 512)
    add(made, f"{LONG}/deep.py", b"deep")
    add(made, "new\nline ü 日本.py", b"odd")
    (made / "latest").symlink_to("train.py")
    (made / "to-deep").symlink_to(f"{LONG}/deep.py")
    return made


@pytest.fixture(params=["small", "large"])
def any_size(request, folder):
    """Small archives are stored, large ones compressed."""
    if request.param == "large":
        add(folder, "weights.bin", random.Random(1).randbytes(3_000_000))
    return folder


class TestRoundTrip:
    def test_a_folder_comes_back_as_it_was(self, any_size, tmp_path):
        packed = pack_all(any_size, tmp_path / "a.tar.zst")
        assert packed.size_bytes == (tmp_path / "a.tar.zst").stat().st_size

        unpack(tmp_path / "a.tar.zst", tmp_path / "back", expect_sha256=packed.sha256)

        assert contents(tmp_path / "back") == contents(any_size)

    def test_a_stream_that_trickles_is_read_as_well(self, any_size, tmp_path):
        pack_all(any_size, tmp_path / "a.tar.zst")

        class Trickle(io.BytesIO):
            def read(self, size=-1):
                return super().read(min(size, 1000) if size >= 0 else 1000)

        unpack(Trickle((tmp_path / "a.tar.zst").read_bytes()), tmp_path / "back")
        assert contents(tmp_path / "back") == contents(any_size)

    def test_an_empty_folder_makes_an_empty_archive(self, tmp_path):
        (tmp_path / "empty").mkdir()
        pack_all(tmp_path / "empty", tmp_path / "a.tar.zst")
        unpack(tmp_path / "a.tar.zst", tmp_path / "back")
        assert contents(tmp_path / "back") == {}

    def test_the_name_is_the_hash_of_the_stream_inside(self, any_size, tmp_path):
        packed = pack_all(any_size, tmp_path / "a.tar.zst")
        with zstandard.open(tmp_path / "a.tar.zst") as stream:
            assert hashlib.sha256(stream.read()).hexdigest() == packed.sha256
        assert digest(list_of(any_size), any_size) == packed.sha256

    def test_progress_adds_up_to_the_whole(self, any_size, tmp_path):
        heard = []
        listing = list_of(any_size)
        pack(listing, any_size, tmp_path / "a.tar.zst", heard.append)
        assert sum(heard) == listing.total_bytes
        assert min(heard) > 0

    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        files=st.dictionaries(
            st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60)
            .map(lambda name: f"d/{name}x")
            .filter(lambda name: len(name.encode()) < 250),
            st.binary(max_size=1500),
            max_size=6,
        )
    )
    def test_any_names_and_contents_come_back(self, tmp_path_factory, files):
        root = tmp_path_factory.mktemp("any")
        for path, content in files.items():
            add(root / "project", path, content)
        (root / "project").mkdir(exist_ok=True)
        listing = SourceListing(
            files=tuple(SourceFile(path, len(content)) for path, content in files.items()),
            left_out=(), commit=None, is_dirty=False, total_bytes=0,
        )  # fmt: skip
        pack(listing, root / "project", root / "a.tar.zst")
        unpack(root / "a.tar.zst", root / "back")
        assert contents(root / "back") == contents(root / "project")
        shutil.rmtree(root)


class TestOtherTools:
    @pytest.mark.skipif(not (shutil.which("tar") and shutil.which("zstd")), reason="compares with GNU tar")
    def test_gnu_tar_reads_it(self, any_size, tmp_path):
        pack_all(any_size, tmp_path / "a.tar.zst")
        (tmp_path / "back").mkdir()
        done = subprocess.run(
            ["tar", "--zstd", "-xf", tmp_path / "a.tar.zst", "-C", tmp_path / "back"], check=True, capture_output=True
        )
        assert done.stderr == b""
        assert contents(tmp_path / "back") == contents(any_size)

    def test_pythons_tarfile_reads_it(self, any_size, tmp_path):
        pack_all(any_size, tmp_path / "a.tar.zst")
        with zstandard.open(tmp_path / "a.tar.zst") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            members = list(tar)
        assert {member.name for member in members} == set(contents(any_size))
        assert {(member.mtime, member.uid, member.gid) for member in members} == {(0, 0, 0)}
        assert {member.mode for member in members if member.isfile()} == {0o644, 0o755}

    def test_headers_are_those_that_pythons_tarfile_writes(self):
        from trainmaster.adapters.source_archive import _header

        for file in [
            SourceFile("train.py", 12345),
            SourceFile("run.sh", 1, is_executable=True),
            SourceFile("ü/" + "n" * 120, 7),
            SourceFile("latest", link_target="train.py"),
            SourceFile("m" * 101, link_target="n" * 101),
            SourceFile("k" * 100, link_target="n" * 100),
            SourceFile("large", 9 * 2**30),
        ]:
            info = tarfile.TarInfo(file.path)
            info.size = file.size_bytes
            info.mode = 0o755 if file.is_executable else 0o644
            if file.link_target is not None:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, file.link_target, 0o777
            assert _header(file) == info.tobuf(tarfile.GNU_FORMAT)


class TestSameTreeSameHash:
    def test_times_modes_and_order_of_creation_do_not_matter(self, folder, tmp_path):
        other = tmp_path / "other"
        for path, content in sorted(contents(folder).items(), reverse=True):
            if isinstance(content, str):
                (other / path).parent.mkdir(parents=True, exist_ok=True)
                (other / path).symlink_to(content)
            else:
                made = add(other, path, content[0], 0o740 if content[1] else 0o600)
                os.utime(made, (5, 5))
                if os.geteuid() == 0:
                    os.chown(made, 4321, 4321)

        one, two = pack_all(folder, tmp_path / "1"), pack_all(other, tmp_path / "2")

        assert one == two
        assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()

    @pytest.mark.parametrize(
        "change",
        [
            lambda folder: add(folder, "train.py", b"print(2)\n"),
            lambda folder: (folder / "train.py").chmod(0o755),
            lambda folder: (folder / "train.py").rename(folder / "train2.py") and (folder / "latest").unlink(),
            lambda folder: (folder / "latest").unlink() or (folder / "latest").symlink_to("run.sh"),
        ],
    )
    def test_contents_run_bits_names_and_links_do(self, folder, tmp_path, change):
        before = digest(list_of(folder), folder)
        change(folder)
        assert digest(list_of(folder), folder) != before

    def test_the_format_stays_what_it_is(self, tmp_path):
        """A changed hash would mean that every snapshot in every store is uploaded again."""
        add(tmp_path / "p", "train.py", b"print(1)\n")
        add(tmp_path / "p", "run.sh", b"true\n", 0o755)
        (tmp_path / "p" / "latest").symlink_to("train.py")
        add(tmp_path / "p", "n" * 120, b"long")
        assert digest(list_of(tmp_path / "p"), tmp_path / "p") == KNOWN_DIGEST

    def test_the_command_line_of_git_and_a_plain_copy_agree(self, folder, tmp_path):
        plain = digest(list_of(folder), folder)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        assert digest(list_of(folder), folder) == plain


class TestChangesWhilePacking:
    def test_a_file_that_grew_or_shrank_is_named_and_nothing_is_left(self, folder, tmp_path):
        listing = list_of(folder)
        for content in [b"longer than before\n", b""]:
            add(folder, "train.py", content)
            with pytest.raises(InvalidSource, match=r"The file train\.py changed while"):
                pack(listing, folder, tmp_path / "a.tar.zst")
            assert not (tmp_path / "a.tar.zst").exists()

    def test_a_file_rewritten_while_it_is_read_is_named(self, tmp_path):
        project = tmp_path / "project"
        big = add(project, "big.bin", bytes(5_000_000))
        os.utime(big, (1, 1))

        def rewrite(_):
            with open(big, "r+b") as file:
                file.write(b"other")

        with pytest.raises(InvalidSource, match=r"big\.bin changed while"):
            pack(list_of(project), project, tmp_path / "a.tar.zst", rewrite)

    def test_a_file_that_is_gone_or_became_something_else_is_named(self, folder, tmp_path):
        listing = list_of(folder)
        (folder / "train.py").unlink()
        with pytest.raises(InvalidSource, match=r"train\.py cannot be read: No such file"):
            pack(listing, folder, tmp_path / "a.tar.zst")
        os.mkfifo(folder / "train.py")
        with pytest.raises(InvalidSource, match=r"train\.py changed"):
            pack(listing, folder, tmp_path / "a.tar.zst")


def archive_of(*members):
    """An archive as an enemy would write it: (name, type, link target or contents)."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, value in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
            else:
                info.linkname = value
                tar.addfile(info)
    return io.BytesIO(zstandard.compress(plain.getvalue()))


FILE, LINK = tarfile.REGTYPE, tarfile.SYMTYPE


class TestHostileArchives:
    @pytest.mark.parametrize(
        "members",
        [
            [("/etc/evil", FILE, b"x")],
            [("../evil", FILE, b"x")],
            [("a/../../evil", FILE, b"x")],
            [("a//b", FILE, b"x")],
            [("./a", FILE, b"x")],
            [("n" * 150 + "/../../evil", FILE, b"x")],
            [("out", LINK, "/etc")],
            [("out", LINK, "..")],
            [("a/out", LINK, "../../x")],
            [("a" * 120, LINK, "../" * 60)],
            [("out", LINK, ".."), ("out/evil", FILE, b"x")],
            [("here", LINK, "."), ("here/evil", FILE, b"x")],
            [("here", LINK, "sub"), ("here/evil", LINK, "x"), ("sub/y", FILE, b"")],
            [("x/y", LINK, ".."), ("z", LINK, "x/y/../..")],
            [("loop", LINK, "loop")],
            [("twice", FILE, b"1"), ("twice", FILE, b"2")],
            [("twice", FILE, b"1"), ("twice", LINK, "x")],
            [("twice", LINK, "x"), ("twice", LINK, "y")],
            [("a", FILE, b"1"), ("a/b", FILE, b"2")],
            [("a/b", FILE, b"1"), ("a", FILE, b"2")],
            [("x", FILE, b"1"), ("hard", tarfile.LNKTYPE, "x")],
            [("hard", tarfile.LNKTYPE, "/etc/passwd")],
            [("device", tarfile.CHRTYPE, "")],
            [("disk", tarfile.BLKTYPE, "")],
            [("pipe", tarfile.FIFOTYPE, "")],
            [("odd\udcff", FILE, b"x")],
        ],
    )
    def test_it_is_refused_and_nothing_outside_is_touched(self, tmp_path, members):
        inside = tmp_path / "parent" / "back"
        with pytest.raises(InvalidSource, match="The archive of the source folder is refused"):
            unpack(archive_of(*members), inside)
        assert os.listdir(tmp_path) == ["parent"]
        assert os.listdir(tmp_path / "parent") == ["back"]
        assert not any(path.is_symlink() for path in inside.rglob("*"))

    def test_a_folder_that_holds_something_is_refused(self, folder, tmp_path):
        pack_all(folder, tmp_path / "a.tar.zst")
        add(tmp_path / "back", "old")
        with pytest.raises(InvalidSource, match="is not empty"):
            unpack(tmp_path / "a.tar.zst", tmp_path / "back")

    def test_another_archive_than_the_expected_one_is_refused(self, any_size, tmp_path):
        pack_all(any_size, tmp_path / "a.tar.zst")
        with pytest.raises(InvalidSource, match="does not hold what its name promises"):
            unpack(tmp_path / "a.tar.zst", tmp_path / "back", expect_sha256="0" * 64)

    @pytest.mark.parametrize("keep", [0, 3, 12, 500, 0.5, 0.99])
    def test_half_an_archive_is_refused(self, any_size, tmp_path, keep):
        packed = pack_all(any_size, tmp_path / "a.tar.zst")
        whole = (tmp_path / "a.tar.zst").read_bytes()
        half = whole[: keep if isinstance(keep, int) else int(len(whole) * keep)]
        with pytest.raises(InvalidSource, match="refused"):
            unpack(io.BytesIO(half), tmp_path / "back", expect_sha256=packed.sha256)

    def test_a_header_with_a_wrong_sum_is_refused_even_if_no_hash_is_expected(self, folder, tmp_path):
        pack_all(folder, tmp_path / "a.tar.zst")
        damaged = bytearray((tmp_path / "a.tar.zst").read_bytes())
        damaged[STORED_HEADER_BYTES] ^= 1
        with pytest.raises(InvalidSource, match="a checksum is wrong"):
            unpack(io.BytesIO(bytes(damaged)), tmp_path / "back")

    def test_a_link_with_contents_is_refused(self, tmp_path):
        link = tarfile.TarInfo("link")
        link.type, link.linkname, link.size = LINK, "x", 512
        with pytest.raises(InvalidSource, match="link is not a plain file or link"):
            unpack(io.BytesIO(zstandard.compress(link.tobuf(tarfile.GNU_FORMAT) + bytes(2048))), tmp_path / "back")

    def test_noise_is_refused(self, tmp_path):
        rng = random.Random(3)
        for number, noise in enumerate([rng.randbytes(5000), zstandard.compress(rng.randbytes(5000)), b"\x28\xb5\x2f\xfd" * 99]):
            with pytest.raises(InvalidSource, match="refused"):
                unpack(io.BytesIO(noise), tmp_path / str(number))

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
    def test_a_flipped_byte_is_refused_or_changes_nothing(self, tmp_path_factory, at, flip):
        root = tmp_path_factory.mktemp("flip")
        add(root / "p", "train.py", b"print(1)\n", 0o755)
        (root / "p" / "link").symlink_to("train.py")
        packed = pack_all(root / "p", root / "a.tar.zst")
        damaged = bytearray((root / "a.tar.zst").read_bytes())
        damaged[at % len(damaged)] ^= flip
        try:
            unpack(io.BytesIO(bytes(damaged)), root / "back", expect_sha256=packed.sha256)
        except InvalidSource:
            pass
        else:
            assert contents(root / "back") == contents(root / "p")
        shutil.rmtree(root)


def run_elsewhere(script, *arguments):
    """Peak memory, in bytes, of a process of its own."""
    # Not ru_maxrss: that counts the memory of pytest, from which the process was forked, as well.
    peak = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    head = (
        "import sys; from pathlib import Path\n"
        "from trainmaster.adapters.source_folder import list_source\n"
        "from trainmaster.adapters.source_archive import pack\n"
        "from trainmaster.adapters.source_unpack import unpack\n"
        "one, two = map(Path, sys.argv[1:])\n"
        "def list_of(folder):\n"
        "    nowhere = Path('/nowhere')\n"
        "    return list_source(folder, user_home=nowhere, trainmaster_home=nowhere, size_limit_bytes=2 * 10**9)\n"
    )
    command = [sys.executable, "-c", head + script + peak, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
class TestMemory:
    def test_a_gigabyte_in_twenty_thousand_files_is_packed_in_little(self, tmp_path):
        project = tmp_path / "project"
        for number in range(20_000):
            if number < 100:
                (project / f"{number}").mkdir(parents=True)
            (project / f"{number % 100}" / f"{number}.txt").write_bytes(b"%d" % number)
        with open(project / "big.bin", "wb") as file:
            file.truncate(10**9)
        # What cannot be compressed fills other buffers than what can.
        add(project, "noise.bin", random.Random(1).randbytes(10**8))
        peak = run_elsewhere("pack(list_of(one), one, two)\n", project, tmp_path / "a.tar.zst")
        shutil.rmtree(project)
        assert peak < 100 * 10**6

    def test_a_large_file_is_unpacked_in_little(self, tmp_path):
        project = tmp_path / "project"
        project.mkdir()
        with open(project / "big.bin", "wb") as file:
            file.truncate(400 * 10**6)
        pack_all(project, tmp_path / "a.tar.zst")
        peak = run_elsewhere("unpack(one, two)\n", tmp_path / "a.tar.zst", tmp_path / "back")
        assert (tmp_path / "back" / "big.bin").stat().st_size == 400 * 10**6
        shutil.rmtree(tmp_path / "back")
        assert peak < 100 * 10**6
