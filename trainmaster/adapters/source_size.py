"""What makes a source folder too large?"""

from __future__ import annotations

from trainmaster.errors import InvalidSource

_NAMED_MAX = 5


def over_limit(sizes: dict[str, int], limit_bytes: int) -> InvalidSource:
    """The refusal of a folder with these files, naming the largest."""
    named = ", ".join(f"{path} ({render_bytes(size)})" for path, size in largest(sizes))
    return InvalidSource(
        f"The source folder holds {render_bytes(sum(sizes.values()))} in {len(sizes):,} files, "
        f"more than the limit of {render_bytes(limit_bytes)}. The largest: {named}.",
        hint="Name what the job does not need in .trainmasterignore, or use --in-place, which copies nothing.",
    )


def largest(sizes: dict[str, int]) -> list[tuple[str, int]]:
    """The files and folders to look at first: the names that say most, none inside another.

    A folder gives way to what is in it as long as one thing in it is more than half of it: "data/train.bin" says more
    than "data/", but of ten thousand pictures no single one is to blame.
    """
    inside: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        parent, slash, _ = path.rpartition("/")
        children = inside.setdefault(parent + slash, {})
        children[path] = size
        while parent:
            above, slash, _ = parent.rpartition("/")
            children = inside.setdefault(above + slash, {})
            children[f"{parent}/"] = children.get(f"{parent}/", 0) + size
            parent = above
    named = [_most_telling(path, size, inside) for path, size in inside.get("", {}).items()]
    return sorted(named, key=lambda entry: (-entry[1], entry[0]))[:_NAMED_MAX]


def _most_telling(path: str, size: int, inside: dict[str, dict[str, int]]) -> tuple[str, int]:
    while path.endswith("/"):
        child, child_size = max(inside[path].items(), key=lambda entry: entry[1])
        if child_size * 2 <= size:
            break
        path, size = child, child_size
    return path, size


def render_bytes(size: int) -> str:
    """A size for people: "1.3 GB"."""
    if size < 1000:
        return f"{size} B"
    number = float(size)
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 999.5:
            return f"{number:.3g} {unit}"
    return f"{number / 1000:,.3g} TB"
