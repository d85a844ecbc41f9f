"""Which keys may a store be asked for, and in which order do they go when a prefix is deleted?"""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.spec.layout import Key

#: The one top-level name a store keeps for itself: writes that are not finished yet.
STAGING = ".staging"

#: Last part of the key that makes a checkpoint count (spec/layout.py).
MARKER = "/COMMIT"


def parse_key(key: str) -> Key:
    """The key itself, or ValueError: a wrong key is a programmer's mistake, whatever the store behind it could bear."""
    parts = key.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\0" in key:
        raise ValueError(f"not a key: {key!r}: it has an empty part, '.', '..' or a NUL")
    if parts[0] == STAGING:
        raise ValueError(f"not a key: {key!r}: {STAGING} belongs to the store itself")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"not a key: {key!r}: it is not text; buckets name objects in UTF-8 only") from None
    return Key(key)


def in_deletion_order(keys: Iterable[Key]) -> tuple[list[Key], list[Key]]:
    """Markers, which go first, and the rest: a checkpoint that is half deleted must not look committed."""
    markers: list[Key] = []
    rest: list[Key] = []
    for key in keys:
        (markers if key.endswith(MARKER) else rest).append(key)
    return markers, rest
