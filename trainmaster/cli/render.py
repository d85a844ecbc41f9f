"""How do values look? Text, tables, JSON; the only module that prints. Colours only on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from typing import TextIO

import msgspec

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_OUTCOME_STYLES = {"succeeded": "green", "failed": "red", "stopped": "yellow", "running": "cyan", "queued": "dim"}
_BARS = "▁▂▃▄▅▆▇█"


def has_colours(stream: TextIO) -> bool:
    """Whether this stream shows colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text in a style, where there are styles."""
    stream = stream or sys.stdout
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if has_colours(stream) and style in _STYLES else text


def symbol(sign: str, plain: str) -> str:
    """A sign, or what stands for it where only ASCII can be shown."""
    return sign if (sys.stdout.encoding or "").lower().startswith("utf") else plain


def phase(word: str) -> str:
    """A phase or outcome in its colour."""
    return styled(word, _OUTCOME_STYLES.get(word, "bold"))


def line(text: str = "") -> None:
    """One line of the answer; a stranger's text in it must be made printable first."""
    print(printable(text, keep_styles=True))


def note(text: str, style: str = "dim") -> None:
    """One line beside the answer."""
    print(styled(_beside(text, 0), style, sys.stderr), file=sys.stderr, flush=True)


def error(sentence: str, hint: str) -> None:
    """What went wrong and what to do."""
    print(f"{styled('error:', 'red', sys.stderr)} {_beside(sentence, 7)}", file=sys.stderr)
    if hint:
        print(f"{styled('hint:', 'dim', sys.stderr)}  {_beside(hint, 7)}", file=sys.stderr)


def json(value: object) -> None:
    """The answer for programs."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def json_line(value: object) -> None:
    """One of many answers for programs."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def raw(data: bytes, stream: TextIO | None = None) -> None:
    """A job's own bytes, untouched."""
    stream = stream or sys.stdout
    stream.buffer.write(data)
    stream.buffer.flush()


def progress(what: str, done: int, total: int) -> None:
    """A bar on a terminal for work of some size; nothing otherwise."""
    if not _has_bars() or total < 8 << 20:
        return
    share = min(1.0, done / total) if total else 1.0
    room = _stderr_columns() - 1  # a full row would wrap, and could not be taken back
    behind = f" {share:4.0%} of {size(total)}"
    length = min(30, room - max(10, len(what)) - 1 - len(f" 100% of {size(total)}"))
    if length >= 5:
        text = f"{what:<10} {'━' * int(share * length):<{length}}{behind}"
    else:
        text = f"{what} {share:.0%}"[: max(1, room)].ljust(min(len(what) + 5, max(1, room)))
    print(f"\r{text}", end="\n" if share >= 1.0 else "", file=sys.stderr, flush=True)


def hide_progress(total: int) -> None:
    """Take away a bar that is not full yet: something else is to be printed."""
    if _has_bars() and total >= 8 << 20:
        print(f"\r{'':<{min(70, _stderr_columns() - 1)}}\r", end="", file=sys.stderr, flush=True)


def interrupted(sentence: str) -> None:
    """One line below whatever stood there when somebody pressed Ctrl-C."""
    print(f"{chr(10) if sys.stderr.isatty() else ''}{sentence}", file=sys.stderr, flush=True)


def _has_bars() -> bool:
    """Whether a row can be written over."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _stderr_columns() -> int:
    """How wide the terminal is that bars are on; standard output may go elsewhere."""
    if os.environ.get("COLUMNS"):
        return columns()
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or columns()
    except (OSError, ValueError):
        return columns()


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that fits the terminal."""
    if not rows:
        return
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = _fitted_widths([max(_width(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))])
    print(styled("  ".join(_fit(head, width) for head, width in zip(heads, widths, strict=False)).rstrip(), "dim"))
    for row in cells:
        fitted = [_fit(cell, width) for cell, width in zip(row, widths, strict=False)]
        coloured = [
            phase(text.strip()) + " " * (len(text) - len(text.strip())) if text.strip() in _OUTCOME_STYLES else text
            for text in fitted
        ]
        print("  ".join(coloured).rstrip())


def _fitted_widths(widths: list[int]) -> list[int]:
    """Where there is too little room the last column gives way, then goes; then the first one gives way."""
    over = sum(widths) + 2 * (len(widths) - 1) - columns()
    if over <= 0:
        return widths
    if widths[-1] - over >= 8:
        return [*widths[:-1], widths[-1] - over]
    over -= widths[-1] + 2
    return [max(8, widths[0] - max(0, over)), *widths[1:-1]]


def columns() -> int:
    """How wide the terminal is."""
    return shutil.get_terminal_size((100, 24)).columns


def _beside(text: str, indent: int) -> str:
    """On a terminal broken at spaces; elsewhere one line, to be searched for."""
    return wrapped(text, indent) if sys.stderr.isatty() or "COLUMNS" in os.environ else printable(text)


def wrapped(text: str, indent: int) -> str:
    """Text broken at spaces to fit the terminal, continued below its beginning; the first line is indented by the caller."""
    room = max(20, columns() - indent)
    rows: list[str] = []
    for line_given in printable(text).split("\n"):
        words = line_given.lstrip(" ").split(" ")
        rows.append(" " * (len(line_given) - len(line_given.lstrip(" "))) + words[0])
        for word in words[1:]:
            if _width(rows[-1]) + 1 + _width(word) > room:
                rows.append(word)
            else:
                rows[-1] += f" {word}"
    return ("\n" + " " * indent).join(rows)


def pairs(rows: Sequence[tuple[str, str]], *, important: Sequence[str] = ()) -> None:
    """Names and values below each other; outcomes in their colour, what is important in bold."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        style = _OUTCOME_STYLES.get(value, "bold" if name in important else "")
        print(f"{styled(name.ljust(width), 'dim')}  {styled(wrapped(value, width + 2), style)}")


def age(seconds: float) -> str:
    """A duration, two units at most."""
    if seconds < 0.95:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for unit, label, small, small_label in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            return f"{whole // unit}{label}{whole % unit // small:02d}{small_label}"
    return f"{whole}s"


def count(number: int, thing: str) -> str:
    """So many things."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def size(size_bytes: int) -> str:
    """A number of bytes."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def clock(moment: datetime) -> str:
    """A time of day where the reader is."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def curve(values: Sequence[float], width: int = 60) -> str:
    """A small picture of a series."""
    finite = [v for v in values if isfinite(v)]
    if not finite:
        return ""
    width = min(width, len(finite))
    picked = [finite[i * (len(finite) - 1) // max(1, width - 1)] for i in range(width)]
    low, high = min(picked), max(picked)
    span = (high - low) or 1.0
    return "".join(_BARS[min(7, int((v - low) / span * 8))] for v in picked)


def printable(text: str, *, keep_styles: bool = False) -> str:
    """Text of strangers cannot move the cursor, recolour the screen or turn the direction of writing."""
    return "".join(c if c == "\n" or (keep_styles and c == "\x1b") or _is_harmless(c) else "�" for c in text)


def _is_harmless(character: str) -> bool:
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs"} or character == "\t"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def _fit(text: str, width: int) -> str:
    """Cut or pad to exactly `width` columns."""
    text = text[: 4 * width + 4]  # each character has at least a quarter of a column, in any script that reads well
    if _width(text) > width:
        while text and _width(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - _width(text))
