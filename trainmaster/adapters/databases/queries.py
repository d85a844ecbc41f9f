"""Which queries are there? Each by its name, from queries.sql."""

from __future__ import annotations

from pathlib import Path


def named_queries() -> dict[str, str]:
    """The text of each query."""
    text = Path(__file__).with_name("queries.sql").read_text()
    return {part.split("\n", 1)[0].strip(): part.split("\n", 1)[1].strip() for part in text.split("-- name:")[1:]}
