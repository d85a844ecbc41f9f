"""What differs between two snapshots of code?"""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.adapters.object_store import open_store
from trainmaster.adapters.source_archive import pack
from trainmaster.adapters.source_diff import FILE_BYTES_MAX, changes_between, compare_folders
from trainmaster.adapters.source_folder import list_source
from trainmaster.adapters.source_unpack import unpack
from trainmaster.core.job import Code
from trainmaster.errors import InvalidSource, Refused
from trainmaster.spec import layout

NOWHERE = Path("/nowhere")


def folder(tmp_path, name, **files):
    made = tmp_path / name
    made.mkdir()
    for path, content in files.items():
        (made / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return made


def changes(one, other):
    return {change.path: change for change in compare_folders(one, other)}


def test_text_is_a_unified_diff(tmp_path):
    one = folder(tmp_path, "one", same="x\n", train="a\nb\nc\n", gone="old\n")
    other = folder(tmp_path, "other", same="x\n", train="a\nB\nc", new="fresh\n", empty="")
    found = changes(one, other)
    assert list(found) == ["empty", "gone", "new", "train"]
    assert found["train"].lines == (
        "--- a/train", "+++ b/train", "@@ -1,3 +1,3 @@", " a", "-b", "-c", "+B", "+c\n\\ No newline at end of file",
    )  # fmt: skip
    assert (found["gone"].kind, found["gone"].lines) == ("removed", ("--- a/gone", "+++ /dev/null", "@@ -1 +0,0 @@", "-old"))
    assert (found["new"].kind, found["new"].lines[:2]) == ("added", ("--- /dev/null", "+++ b/new"))
    assert (found["empty"].kind, found["empty"].lines) == ("added", ())


def test_what_is_no_text_or_too_large_is_only_named(tmp_path):
    large = b"a" * (FILE_BYTES_MAX + 10)
    one = folder(tmp_path, "one", zero=b"\0", latin=b"\xe9", large=large + b"1", many="x\n", alike=large)
    other = folder(tmp_path, "other", zero=b"\0\1", latin=b"\xe8", large=large + b"2", many="x\n" * 10_001, alike=large)
    found = changes(one, other)
    assert {path: change.why_no_lines for path, change in found.items()} == {
        "zero": "binary", "latin": "binary", "large": "too large to be shown", "many": "too large to be shown",
    }  # fmt: skip


def test_links_are_compared_by_where_they_lead(tmp_path):
    one, other = folder(tmp_path, "one", a="1\n", b="1\n"), folder(tmp_path, "other", a="1\n", b="1\n")
    (one / "sub").mkdir()
    (other / "sub").mkdir()
    (one / "link").symlink_to("a")
    (other / "link").symlink_to("b")
    (one / "dir").symlink_to("sub")
    (other / "dir").symlink_to("sub")
    assert list(changes(one, other)) == ["link"]


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "store"))


def kept(tmp_path, store, source) -> Code:
    listing = list_source(source, user_home=NOWHERE, trainmaster_home=NOWHERE, size_limit_bytes=10**9)
    packed = pack(listing, source, tmp_path / "archive", lambda _: None)
    store.move_file(layout.code(packed.sha256), tmp_path / "archive")
    return Code(sha256=packed.sha256, size_bytes=packed.size_bytes)


def test_snapshots_come_from_the_store_and_leave_nothing(tmp_path, store, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    one = kept(tmp_path, store, folder(tmp_path, "one", train="a\n"))
    other = kept(tmp_path, store, folder(tmp_path, "other", train="b\n"))
    [change] = changes_between(store, one, other)
    assert change.lines[-2:] == ("-a", "+b")
    assert changes_between(store, one, one) == []


def test_what_cannot_be_compared_is_said(tmp_path, store):
    one = kept(tmp_path, store, folder(tmp_path, "one", train="a\n"))
    with pytest.raises(Refused, match="ran in place"):
        changes_between(store, one, Code(in_place=True, folder="/home/ada"))
    with pytest.raises(Refused, match="no longer in the store"):
        changes_between(store, one, Code(sha256="0" * 64))
    with pytest.raises(Refused, match="too large"):
        changes_between(store, one, Code(sha256="0" * 64, size_bytes=1 << 40))


def test_an_archive_that_holds_too_much_is_refused(tmp_path, store):
    one = kept(tmp_path, store, folder(tmp_path, "one", train="a" * 1000))
    archive = tmp_path / "archive"
    store.get_file(layout.code(one.sha256), archive)
    with pytest.raises(InvalidSource, match="more than 999 bytes"):
        unpack(archive, tmp_path / "small", bytes_max=999)
    unpack(archive, tmp_path / "enough", bytes_max=1000)
