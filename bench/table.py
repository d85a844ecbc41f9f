"""How are results shown? The same rows on a terminal and in docs/benchmarks.md."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HEAD = ("what", "trainmaster", "beside it, in the same run", "wanted", "verdict")
_WIDTHS = (34, 26, 44, 22, 8)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number and what it is compared with."""

    what: str
    ours: str
    beside: str
    wanted: str
    #: whether the wanted value was reached; None where nothing is wanted, the peer to compare with is missing, or it is too noisy
    reached: bool | None
    how: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        verdict = {True: "ok", False: "MISSED", None: "–"}[self.reached]
        return (self.what, self.ours, self.beside, self.wanted, verdict)


def as_text(rows: Sequence[Row]) -> str:
    """A table for a terminal, wrapped where a cell is long."""
    lines = [*_wrapped(HEAD), "  ".join("-" * width for width in _WIDTHS)]
    for row in rows:
        lines += _wrapped(row.cells)
        lines.append("")
    return "\n".join(lines)


def as_markdown(rows: Sequence[Row], facts: Mapping[str, str], command: str, date: str) -> str:
    """The page docs/benchmarks.md."""
    lines = [
        "# Benchmarks",
        "",
        f"Measured on {date} with `{command}`; `make bench-peers` installs the peers. Peers and physical limits are measured in",
        "the same run, interleaved with ours. Unless it says otherwise, a number is the best of its rounds, the median beside it:",
        "the distance between the two is the noise of the machine. These are numbers of one machine on one day; run the command to",
        "get yours.",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
        _markdown_line(HEAD),
        _markdown_line(["---"] * len(HEAD)),
        *(_markdown_line(row.cells) for row in rows),
        "",
        "## How each is measured",
        "",
    ]
    for row in rows:
        if row.how:
            lines += textwrap.wrap(f"- **{row.what}**: {row.how}", 130, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _wrapped(cells: Sequence[str]) -> list[str]:
    columns = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)]
    height = max(map(len, columns))
    padded = [column + [""] * (height - len(column)) for column in columns]
    return [
        "  ".join(part.ljust(width) for part, width in zip(line, _WIDTHS, strict=True)).rstrip()
        for line in zip(*padded, strict=True)
    ]


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
