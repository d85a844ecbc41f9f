"""Which paths are restless, look by look."""

from __future__ import annotations

import pytest

from trainmaster.runner.checkpoint_folder import EntryPrint
from trainmaster.runner.stillness import Stillness


def _file(inode: int, written: int) -> EntryPrint:
    return EntryPrint("file", 10, written, written, inode, 0o644)


A, B = _file(1, 0), _file(2, 0)


@pytest.mark.parametrize(
    ("looks", "restless"),
    [
        ([{"a": A, "b": B}], []),
        ([{"a": A, "b": _file(2, 1)}], ["b"]),
        ([{"a": _file(1, 1), "b": B}, {"a": _file(1, 1), "b": _file(2, 1)}], ["a", "b"]),
        ([{"a": A}], ["b"]),
        ([{"a": A}, {"a": A, "b": _file(3, 1)}], ["b"]),
        ([{"a": A, "b": B, "c": _file(3, 1)}], ["c"]),
        # Written beside and renamed into place: one path has changed, not two.
        ([{"a": A, "b": B, "b.tmp": _file(3, 1)}, {"a": A, "b": _file(3, 1)}], ["b"]),
        # Removed, and the number given to another file: that is no renaming.
        ([{"a": A, "c": _file(2, 1)}], ["b", "c"]),
    ],
)
def test_restless_paths(looks, restless):
    stillness = Stillness({"a": A, "b": B})
    for number, look in enumerate(looks):
        stillness.saw(look, 10.0 + number / 10)
    assert stillness.restless(10.5, 1.0) == restless
    stillness.saw(looks[-1], 11.0)
    assert stillness.restless(11.5, 1.0) == []
