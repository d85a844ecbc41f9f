"""What may go wrong with an environment, in whose words? And what of it must nobody ever read?"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from urllib.parse import quote

from trainmaster.errors import UserError

_FULL = re.compile(r"No space left on device|Disk quota exceeded|os error 28\b|os error 122\b")
_NOISE = re.compile(r"^\s*(help|warning|info)\b", re.IGNORECASE)
_LINES_MAX, _CHARACTERS_MAX = 8, 900
#: shorter text is no secret, and hiding it would make every sentence unreadable
_SECRET_CHARACTERS_MIN = 4


class EnvironmentTrouble(UserError):
    """The environment that a job asks for cannot be built; trying again here would not help."""


class GivenUp(EnvironmentTrouble):
    """Nobody wants the environment any more."""


class Secrets:
    """Text that must never be printed, logged or kept, by the name it is referred to with."""

    def __init__(self, named: Mapping[str, str]) -> None:
        found = {value: name for name, value in named.items() if len(value) >= _SECRET_CHARACTERS_MIN}
        found |= {quote(value, safe=safe): name for value, name in found.items() for safe in ("", "%")}
        self._names = dict(sorted(found.items(), key=lambda pair: -len(pair[0])))
        #: what is left of one that was taken for an address: its end may look like a host or a path
        pieces = {piece for value in found for piece in re.split(r"[@/:#?]", value) if len(piece) >= _SECRET_CHARACTERS_MIN}
        self._pieces = sorted(pieces, key=len, reverse=True)

    @property
    def characters_max(self) -> int:
        """The length of the longest of them."""
        return max(map(len, self._names), default=0)

    def named(self, text: str) -> str:
        """The text with references in place of them."""
        for value, name in self._names.items():
            text = text.replace(value, f"${{{name}}}")
        return text

    def hidden(self, text: str) -> str:
        """The text without any of them, and without the user part of any address."""
        for value in (*self._names, *self._pieces):
            text = text.replace(value, "***")
        return re.sub(r"(?<=://)[^/@\s'\"`]+@", "***@", text)


def refuse_full_disk(output: str) -> None:
    """A full disk is the machine's trouble, whoever noticed it."""
    if _FULL.search(output):
        raise OSError(errno.ENOSPC, "the disk filled up while the environment was built")


def telling_lines(output: str) -> str:
    """The few lines of a tool's output that say what went wrong, as one paragraph."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip() and not _NOISE.match(line)]
    start = next((number for number, line in enumerate(lines) if line.lstrip(" ×").lower().startswith("error")), None)
    chosen = lines[-_LINES_MAX:] if start is None else lines[start:]
    if len(chosen) > _LINES_MAX:
        # What fails to build says who at the beginning, and why at the end.
        chosen = [*chosen[:3], "…", *chosen[-(_LINES_MAX - 4) :]]
    text = " ".join(re.sub(r"^[\s│├╰─▶×╭]+", "", line).removeprefix("cause: ").strip() for line in chosen)
    text = text.removeprefix("error: ").strip()
    return text if len(text) <= _CHARACTERS_MAX else f"{text[: _CHARACTERS_MAX // 2]} … {text[-_CHARACTERS_MAX // 2 :]}"
