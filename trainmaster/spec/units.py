"""How many seconds is ``1h30m``, and how many bytes ``16GiB``?"""

from __future__ import annotations

import re
from typing import Literal

from .problems import Problem, join, shown

#: Fields that take a duration as text; a test holds this against the types in job_spec.py.
DURATIONS = (
    ("checkpoints", "interval"),
    ("checkpoints", "settle"),
    ("limits", "grace"),
    ("limits", "queue"),
    ("limits", "run"),
    ("limits", "wait"),
    ("market", "deadline"),
    ("retry", "backoff"),
    ("retry", "backoff_max"),
)
#: Fields that take a size as text.
SIZES = (("resources", "disk"), ("resources", "memory"))

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
# Spaces are optional but single: runs of them would let the pattern try every way to share them out.
#: Durations and sizes as text; the JSON Schema carries the same two patterns.
DURATION_PATTERN = (
    rf"^(?:({_NUMBER})|(?=[0-9])(?:({_NUMBER}) ?d)? ?(?:({_NUMBER}) ?h)? ?(?:({_NUMBER}) ?m)? ?(?:({_NUMBER}) ?s)?"
    rf" ?(?:({_NUMBER}) ?ms)?)$"
)
SIZE_PATTERN = r"^([0-9]{1,15})(?:\.([0-9]{1,9}))? ?(?:[Bb]|([KMGTPkmgtp])([Ii]?[Bb]?))?$"
_PART_SECONDS = (1.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)


def parse_duration(text: str) -> float | None:
    """Seconds, or None when the text is no duration."""
    found = re.fullmatch(DURATION_PATTERN, text)
    if found is None:
        return None
    return sum(float(number) * seconds for number, seconds in zip(found.groups("0"), _PART_SECONDS, strict=True))


def parse_size(text: str) -> int | None:
    """Bytes, or None when the text is no size. ``MB`` is 1000², ``MiB`` and the bare ``M`` (as Docker and Slurm say it) 1024²."""
    found = re.fullmatch(SIZE_PATTERN, text)
    if found is None:
        return None
    whole, fraction, prefix, suffix = found.groups("")
    step = 1000 if suffix.lower() == "b" else 1024
    unit: int = step ** " kmgtp".index(prefix.lower() or " ")
    # Whole numbers only: a float would lose the last bytes of a large size.
    scale: int = 10 ** len(fraction)
    return int(whole) * unit + int(fraction or "0") * unit // scale


def settle_units(mapping: dict[str, object]) -> list[Problem]:
    """Turn text into seconds and bytes where the spec wants them, in place. What is no unit is told and taken out."""
    problems = []
    for section, field in DURATIONS:
        problems += _settle(mapping, section, field, "duration")
    for section, field in SIZES:
        problems += _settle(mapping, section, field, "size")
    return problems


def _settle(mapping: dict[str, object], section: str, field: str, kind: Literal["duration", "size"]) -> list[Problem]:
    part = mapping.get(section)
    text = part.get(field) if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(text, str):
        return []
    part[field] = parse_duration(text) if kind == "duration" else parse_size(text)
    if part[field] is not None:
        return []
    del part[field]
    wanted = "seconds, or text such as 90s, 15m, 2h, 1d, 1h30m" if kind == "duration" else "bytes, or text such as 500MB, 16GiB"
    return [Problem(join(section, field), f"found {shown(text)}, wanted a {kind}: {wanted}")]
