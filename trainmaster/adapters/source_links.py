"""Where does a link lead, and does it stay inside its tree?

Paths are relative to the root of the tree and "/"-separated. Nothing is read from disk here: the caller says what each
link holds, so that a tree on disk and a tree inside an archive are judged by the same code.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

#: Linux gives up after this many links, too.
HOPS_MAX = 40


class Destination(Struct, frozen=True):
    """Inside the tree: where the link ends ("" is the root), and the links passed on the way, itself included."""

    path: str
    via: tuple[str, ...]


class Outside(Struct, frozen=True):
    """The link, or one that it passes, leads out of the tree."""

    via: tuple[str, ...]


class Circle(Struct, frozen=True):
    """The link leads back to itself."""


def follow(path: str, target_of: Callable[[str], str | None]) -> Destination | Outside | Circle:
    """Follow `path` step by step; `target_of` answers None for what is not a link.

    Each step is taken on its own because "link/.." is the parent of the link's target, not the folder the link lies in.
    """
    ahead = path.split("/")[::-1]
    behind: list[str] = []
    via: list[str] = []
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not behind:
                return Outside(tuple(via))
            behind.pop()
            continue
        behind.append(part)
        here = "/".join(behind)
        target = target_of(here)
        if target is None:
            continue
        behind.pop()
        via.append(here)
        if target.startswith("/"):
            return Outside(tuple(via))
        if len(via) > HOPS_MAX:
            return Circle()
        ahead.extend(target.split("/")[::-1])
    return Destination("/".join(behind), tuple(via))
