"""What makes a source folder too large?"""

from pathlib import Path

import pytest

from trainmaster.adapters.source_folder import list_source
from trainmaster.adapters.source_size import largest, over_limit, render_bytes
from trainmaster.errors import InvalidSource


def test_at_most_five_are_named_and_none_inside_another():
    sizes = {f"f{number}": number for number in range(9)} | {"d/a/x": 50, "d/a/y": 50, "d/b": 10}
    assert largest(sizes) == [("d/a/", 100), ("f8", 8), ("f7", 7), ("f6", 6), ("f5", 5)]


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (999_999, "1 MB"), (5 * 10**12, "5 TB")])
def test_sizes_are_written_for_people(size, text):
    assert render_bytes(size) == text


def test_an_empty_listing_can_be_too_large_only_in_theory():
    assert "0 B in 0 files" in over_limit({}, -1).sentence


def test_a_folder_that_is_too_large_is_refused_with_the_names_of_the_largest(tmp_path):
    sizes = {"train.py": 10, "data/train.bin": 3 * 10**9} | {f"images/{number}.png": 10**7 for number in range(30)}
    for path, size in sizes.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        with open(tmp_path / path, "wb") as file:
            file.truncate(size)

    with pytest.raises(InvalidSource) as caught:
        list_source(tmp_path, user_home=Path("/nowhere"), trainmaster_home=Path("/nowhere"), size_limit_bytes=5 * 10**8)

    assert caught.value.sentence == (
        "The source folder holds 3.3 GB in 32 files, more than the limit of 500 MB. "
        "The largest: data/train.bin (3 GB), images/ (300 MB), train.py (10 B)."
    )
    assert ".trainmasterignore" in caught.value.hint
    assert "--in-place" in caught.value.hint
