"""What do the pages show? Their blocks, their commands with the output they promise, their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
_MARK = re.compile(r"^\s*<!-- (file|not run): (.+?) -->\s*$")
_BARS = "▁▂▃▄▅▆▇█"
#: What differs from run to run, and the word that stands for it.
_VARIABLE = (
    (re.compile(r"\S+ (submitted \S+:|asked to stop|stopped it)"), r"USER \1"),
    (re.compile(r"\bby \S+ on \S+"), "by USER on HOST"),
    (re.compile(r"(?<![\w.])/[^\s:;,]+"), "PATH"),
    (re.compile(r"\b[0-9a-f]{9,64}\b"), "HASH"),
    (re.compile(r"\b([a-z0-9]+)-[abcdefghjkmnpqrstuvwxyz23456789]{5}\b"), r"\1-ID"),
    (re.compile(rf"[{_BARS}]+"), "CURVE"),
    (re.compile(r"CPU, GPU [\d,]+"), "CPU"),
    (re.compile(r"\d[\d.,:-]*(e-?\d+)?( ?(ms|s|m\d+s|h\d+m|B|kB|MB|GB|GiB)\b)?"), "#"),
    (re.compile(r"# files?\b"), "# files"),
)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    #: the file the reader saves it as
    file: str = ""
    #: why it is not run
    not_run: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Step(NamedTuple):
    """A command a reader types, and what the page says it answers; empty: the page does not say."""

    command: str
    answer: str


def read_blocks(page: Path) -> list[Block]:
    """Every fenced block, in order, with the comment on the line before it."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    start, language, indent = 0, "", 0
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if not start:
            start, language, indent = number, fence.group(2), len(fence.group(1))
            continue
        mark = _MARK.match(lines[start - 2]) if start > 1 else None
        marks = {mark.group(1).replace(" ", "_"): mark.group(2)} if mark else {}
        text = "".join(f"{body[indent:]}\n" for body in lines[start : number - 1])
        yield Block(page, start, language, text, **marks)
        start = 0


def is_session(block: Block) -> bool:
    """Whether a block shows somebody typing commands."""
    return block.language in {"bash", "console"} and bool(re.search(r"^\$ ", block.text, re.MULTILINE))


def read_steps(block: Block) -> list[Step]:
    """A command begins with `$ ` and goes on with `> `; everything else is what it answers."""
    steps: list[Step] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif line.startswith("> ") and not steps[-1].answer:
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}", "")
        else:
            steps[-1] = Step(steps[-1].command, f"{steps[-1].answer}{line}\n")
    return steps


def agrees(promised: str, said: str) -> bool:
    """Whether an answer holds what the page promises: `…` is anything; numbers, ids, names and paths may differ."""
    parts = [re.escape(settled(part)) for part in promised.split("…")]
    return re.search(r"\s?.*?\s?".join(parts), settled(said)) is not None


def settled(text: str) -> str:
    """The text as one line, without what differs from run to run."""
    text = " ".join(text.split())
    for pattern, word in _VARIABLE:
        text = pattern.sub(word, text)
    return text


def read_links(page: Path) -> list[str]:
    """Where the page's links and pictures lead; fenced blocks have none."""
    text = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def read_named_files(page: Path) -> set[str]:
    """Files of this repository that the page names in passing."""
    text = page.read_text(encoding="utf-8")
    return set(re.findall(r"`((?:trainmaster|tests|docs|examples|bench|changelog\.d)/[\w./-]+\.\w+)(?:::[\w:]+)?`", text))


def read_named_tests(page: Path) -> set[tuple[str, str]]:
    """Tests that the page names: file and function."""
    return set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")))


def heading_anchors(page: Path) -> set[str]:
    """What a link may name after `#`."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
