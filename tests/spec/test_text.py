"""Is text read as it was meant, and hostile text refused quickly?"""

from __future__ import annotations

import time
import tracemalloc

import pytest

from trainmaster.errors import InvalidSpec
from trainmaster.spec.text import load_json, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("", None),
        ("~", None),
        ("7", 7),
        ("-7", -7),
        ("0o17", 15),
        ("0x1f", 31),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.INF", float("-inf")),
        ("'7'", "7"),
        ("!!str 7", "7"),
        ("! 7", "7"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("9" * 41, float("9" * 41)),
        ("|\n    two\n    lines\n", "two\nlines\n"),
        ("[1, [a, {b: c}]]", [1, ["a", {"b": "c"}]]),
    ],
)
def test_yaml_scalars_follow_the_core_schema(text, value):
    found = load_yaml(f"hyperparameters:\n  x: {text}", "job.yaml")["hyperparameters"]["x"]
    assert (found, type(found)) == (value, type(value))


def test_aliases_and_merges():
    text = """
env: &e {A: 1, B: 2}
secrets: {<<: *e, B: 3}
tags: {B: 4, <<: [*e, {A: 9, C: 5}]}
name: &n x
pool: *n
1: yes
"""
    assert load_yaml(text, "job.yaml") == {
        "env": {"A": "1", "B": "2"},
        "secrets": {"A": "1", "B": "3"},
        "tags": {"B": "4", "A": "1", "C": "5"},
        "name": "x",
        "pool": "x",
        "1": "yes",
    }


def test_what_an_alias_shares_is_not_shared_afterwards():
    loaded = load_yaml("env: &e {A: 1}\ntags: *e", "job.yaml")
    assert loaded["env"] is not loaded["tags"]


def test_a_byte_order_mark_is_skipped():
    assert load_yaml("\ufeffname: a", "f") == load_json('\ufeff{"name": "a"}', "f") == {"name": "a"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        (" \n# nothing\n", "found a single value at the top"),
        ("[1]", "found a list at the top"),
        ("5", "found a single value at the top"),
        ("a: 1\nb:\n\t- c", "line 3 starts with a tab; YAML wants spaces"),
        ("\ta: 1", "line 1 starts with a tab; YAML wants spaces"),
        ("a: 1\n \tb: 2", "line 2 starts with a tab; YAML wants spaces"),
        ("a: 'x", "line 1, column"),
        ("a: 'x\n", "line "),
        ("a: b: c", "line 1, column 5: mapping values are not allowed"),
        ("a: \x00", "is not YAML: unacceptable character"),
        ("a: \ud800", "is not YAML"),
        ("a: 1\nb: 2\na: 3", 'line 3: key "a" is given twice, first on line 1'),
        ("env:\n  A: 1\n  A: 2", 'line 3: key "A" is given twice, first on line 2'),
        ("a: 1\n---\nb: 2", "line 2: a second document starts"),
        ("a: !!python/object:os.system x", "line 1: tag"),
        ("a: !thing {}", "line 1: tag"),
        ("? [1]\n: 2", "line 1: a list or mapping cannot be a key"),
        ("a: &x 1\n*x : 2", "line 2: an alias cannot be a key"),
        ("&a [*a]", "line 1: *a names no anchor"),
        ("a: *nowhere", "*nowhere names no anchor"),
        ("<<: 3", "`<<` wants an alias of a mapping"),
        ("a: " + "[" * 100_000, "nested more than 20 deep"),
        ("a: " + "{a: " * 1000, "nested more than 20 deep"),
        ("a: [" + "1," * 30_000 + "]", "holds more than 20000 values"),
        ("a: 1\n" * 300_000, "at most 1048576 are read"),
    ],
)
def test_yaml_that_is_refused(text, sentence):
    with pytest.raises(InvalidSpec) as caught:
        load_yaml(text, "job.yaml")
    assert str(caught.value).startswith("job.yaml: ")
    assert sentence in caught.value.sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("[]", "found a list at the top"),
        ("{", "line 1, column 2"),
        ('{"a": 1,\n "a": 2}', 'key "a" is given twice'),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": ' + "[" * 500_000, "nested"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", "20 levels"),
        ('{"a": [' + "1," * 30_000 + "1]}", "more than 20000 values"),
    ],
)
def test_json_that_is_refused(text, sentence):
    with pytest.raises(InvalidSpec) as caught:
        load_json(text, "job.json")
    assert sentence in caught.value.sentence


def laughs(levels: int, width: int) -> str:
    lines = ["a0: &a0 [" + ",".join(["lol"] * width) + "]"]
    lines += [f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * width) + "]" for n in range(1, levels)]
    return "\n".join(lines)


def merges() -> str:
    keys = ", ".join(f"k{n}: 1" for n in range(9000))
    return f"a: &a {{{keys}}}\nb: [" + "{<<: *a}, " * 9000 + "]"


@pytest.mark.parametrize(
    "text",
    [
        laughs(9, 9),
        laughs(30, 2),
        laughs(1000, 1),
        merges(),
        "a: &a [" + "x, " * 3_000_000 + "]\nb: [" + "*a, " * 250_000 + "]",
        "[" * 1_000_000,
        "- " * 500_000,
        "? " * 500_000,
    ],
    ids=["laughs", "doubling", "chain", "merges", "ten-megabytes", "brackets", "dashes", "questions"],
)
def test_bombs_are_refused_quickly_and_with_little_memory(text):
    started = time.process_time()
    with pytest.raises(InvalidSpec):
        load_yaml(text, "job.yaml")
    assert time.process_time() - started < 2
    tracemalloc.start()
    try:
        with pytest.raises(InvalidSpec):
            load_yaml(text, "job.yaml")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
