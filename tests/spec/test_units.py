"""Are durations and sizes what people mean by them?"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as shapes

from trainmaster.spec.job_spec import JobSpec
from trainmaster.spec.units import DURATIONS, SIZES, parse_duration, parse_size, settle_units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("15m", 900.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1h30m", 5400.0),
        ("1d 2h 3m 4s 5ms", 93784.005),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("", None),
        (" ", None),
        ("s", None),
        ("1w", None),
        ("30m1h", None),
        ("-5s", None),
        ("5s\n", None),
        ("1e3", None),
        ("٣s", None),
        ("9" * 13, None),
        ("1d" + " " * 100_000 + "x", None),
    ],
)
def test_durations(text, seconds):
    started = time.process_time()
    assert parse_duration(text) == (pytest.approx(seconds) if seconds is not None else None)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("1k", 1024),
        ("1kB", 1000),
        ("500MB", 500_000_000),
        ("16GiB", 16 << 30),
        ("16Gi", 16 << 30),
        ("8G", 8 << 30),
        ("2 TB", 2 * 10**12),
        ("1.5GiB", 3 << 29),
        ("1gib", 1 << 30),
        ("1P", 1 << 50),
        ("0.1MB", 100_000),
        ("", None),
        ("GiB", None),
        ("-1G", None),
        ("1XB", None),
        ("1G\n", None),
        ("lots", None),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@given(st.text())
def test_any_text_is_answered(text):
    parse_duration(text)
    parse_size(text)


def test_only_text_in_the_right_places_is_turned():
    mapping: dict[str, object] = {"limits": {"run": "1m", "queue": 5}, "retry": "x", "resources": {"disk": "1k"}, "name": "1m"}
    assert settle_units(mapping) == []
    assert mapping == {"limits": {"run": 60.0, "queue": 5}, "retry": "x", "resources": {"disk": 1024}, "name": "1m"}


def described(prefix: str) -> set[tuple[str, str]]:
    found = set()
    job = shapes.type_info(JobSpec)
    for section in job.fields:
        for field in getattr(section.type, "fields", ()):
            if f"'description': '{prefix}" in str(field.type):
                found.add((section.name, field.name))
    return found


def test_the_tables_name_every_duration_and_size():
    assert described("a duration") == set(DURATIONS)
    assert described("a size") == set(SIZES)
