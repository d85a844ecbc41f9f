"""What makes a source folder too large?"""

import pytest

from trainmaster.adapters.source_size import largest, over_limit, render_bytes


def test_at_most_five_are_named_and_none_inside_another():
    sizes = {f"f{number}": number for number in range(9)} | {"d/a/x": 50, "d/a/y": 50, "d/b": 10}
    assert largest(sizes) == [("d/a/", 100), ("f8", 8), ("f7", 7), ("f6", 6), ("f5", 5)]


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (999_999, "1 MB"), (5 * 10**12, "5 TB")])
def test_sizes_are_written_for_people(size, text):
    assert render_bytes(size) == text


def test_an_empty_listing_can_be_too_large_only_in_theory():
    assert "0 B in 0 files" in over_limit({}, -1).sentence
