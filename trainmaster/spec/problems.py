"""How is something wrong in a job told? As a field path, what was found, what is allowed, and what to do."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import InvalidSpec

#: More lines than this help nobody; the rest is counted.
PROBLEMS_SHOWN_MAX = 8
TEXT_SHOWN_MAX = 60


class Problem(NamedTuple):
    """One thing that is wrong."""

    path: str
    sentence: str
    hint: str = ""


def as_error(problems: list[Problem]) -> InvalidSpec:
    """All problems as one error, in the order found; its path is the first one's."""
    first, *others = problems[:PROBLEMS_SHOWN_MAX]
    lines = [first.sentence, *(f"{other.path}: {other.sentence}" if other.path else other.sentence for other in others)]
    if len(problems) > PROBLEMS_SHOWN_MAX:
        lines.append(f"and {len(problems) - PROBLEMS_SHOWN_MAX} more")
    hint = next((problem.hint for problem in problems if problem.hint), "")
    return InvalidSpec(first.path, "\n".join(lines), hint=hint)


def join(path: str, key: str) -> str:
    """The path of a field inside another: ``retry.failures``; odd keys are quoted: ``env["a b"]``."""
    if not re.fullmatch(r"[\w-]{1,60}", key):
        return f"{path}[{quoted(key)}]"
    return f"{path}.{key}" if path else key


def shown(value: object) -> str:
    """A value as a sentence shows it: short, on one line, without control characters."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case int() | float():
            return _shortened(str(value))
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def quoted(text: str) -> str:
    """Text in double quotes, shortened; what cannot be printed is escaped."""
    return f'"{repr(_shortened(text))[1:-1]}"'


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN_MAX else f"{text[:TEXT_SHOWN_MAX]}… ({len(text)} characters)"


def nearest(word: str, known: list[str]) -> str:
    """``; did you mean `retry`?``, or nothing when no known name is near."""
    from difflib import get_close_matches

    near = get_close_matches(word[:100].lower(), known, n=3, cutoff=0.6)
    # People get the end of a word wrong more often than its start: `retries` is nearer to `retry` than to `metrics`.
    best = next((name for name in near if name[:2] == word[:2].lower()), near[0] if near else "")
    return f"; did you mean `{best}`?" if best else ""
