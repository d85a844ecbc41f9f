"""Which jobs and tags may a shell offer? Asked at each press of TAB, so it loads next to nothing, and trouble is no answer."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

_WORDS_MAX = 200
_WAIT_S = 0.1


def job_words(environ: Mapping[str, str], begun: str) -> list[tuple[str, str]]:
    """Ids and names of jobs that begin so, newest first, each with what became of it."""
    found: dict[str, str] = {}
    rows = _rows(environ, "job_words", {"text": begun, "end": begun + "\U0010ffff", "limit": _WORDS_MAX})
    for job_id, _, phase, outcome in rows:
        if job_id.startswith(begun):
            found[job_id] = outcome or phase
    for job_id, name, _, _ in rows:
        if name.startswith(begun) and name not in found:
            found[name] = f"the newest of that name: {job_id}"
    if (begun or rows) and "last".startswith(begun):
        found["last"] = "the newest job"
    return list(found.items())


def tag_words(environ: Mapping[str, str], begun: str) -> list[tuple[str, str]]:
    """Tags as NAME=VALUE."""
    rows = _rows(environ, "tag_words", {"limit": _WORDS_MAX})
    return [(word, "") for (word,) in rows if word.startswith(begun)]


def _rows(environ: Mapping[str, str], query: str, values: dict[str, str | int]) -> list[tuple[str, ...]]:
    """Only looks: no home is made, no schema changed, nobody waited for."""
    from trainmaster.adapters.databases.queries import named_queries

    home = environ.get("TRAINMASTER_HOME") or os.path.join(environ.get("HOME") or "/nonexistent", ".trainmaster")
    file = Path(home).absolute() / "trainmaster.db"
    try:
        with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=_WAIT_S)) as database:
            return database.execute(named_queries()[query], values).fetchall()
    except (sqlite3.Error, OSError, ValueError):
        return []
