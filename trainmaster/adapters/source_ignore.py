"""Which paths do the lines of an ignore file name? The syntax and the precedence are those of gitignore(5).

One promise differs from git on purpose: ``?`` and ``[…]`` stand for one character, not for one byte, so that ``caf?``
matches ``café``. Everything else is compared with ``git check-ignore`` by the tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from trainmaster.errors import InvalidSource

if TYPE_CHECKING:
    import re

POSIX_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


class Rule(Struct, frozen=True):
    """One line of an ignore file."""

    line: str
    pattern: re.Pattern[str]
    is_negated: bool
    is_for_folders: bool
    is_for_basename: bool
    #: No wildcard in it: the writer named exactly this path.
    is_literal: bool


class RuleBook:
    """All ignore files of one name in a tree, read when the first path below them is asked for."""

    def __init__(self, root: str, file_name: str) -> None:
        self._root = root
        self._file_name = file_name
        self._chains: dict[str, tuple[tuple[str, tuple[Rule, ...]], ...]] = {}

    def last_match(self, path: str, *, is_folder: bool) -> Rule | None:
        """The rule with the last word on `path`, or None. Only for a path whose folders are not ignored themselves."""
        parent, _, name = path.rpartition("/")
        for base, rules in self._chain(parent):
            below = path[len(base) + 1 :] if base else path
            for rule in rules:
                if rule.is_for_folders and not is_folder:
                    continue
                if rule.pattern.fullmatch(name if rule.is_for_basename else below):
                    return rule
        return None

    def _chain(self, folder: str) -> tuple[tuple[str, tuple[Rule, ...]], ...]:
        """The rules that govern what lies in `folder`: deepest file first, last line first."""
        chain = self._chains.get(folder)
        if chain is None:
            above = self._chain(folder.rpartition("/")[0]) if folder else ()
            own = self._read(folder)
            chain = ((folder, own), *above) if own else above
            self._chains[folder] = chain
        return chain

    def _read(self, folder: str) -> tuple[Rule, ...]:
        path = os.path.join(self._root, folder, self._file_name)
        if not os.path.isfile(path):
            return ()
        try:
            with open(path, "rb") as file:
                text = os.fsdecode(file.read())
        except OSError as error:
            raise InvalidSource(f"{path} cannot be read: {error.strerror}.", hint=f"Make it readable: chmod u+r {path}") from error
        return tuple(reversed(parse_rules(text)))


def parse_rules(text: str) -> list[Rule]:
    """The rules of one ignore file, in the order of its lines."""
    rules = []
    for line in text.removeprefix("\ufeff").split("\n"):
        rule = _parse_line(_trim_trailing_spaces(line.removesuffix("\r")))
        if rule is not None:
            rules.append(rule)
    return rules


def _trim_trailing_spaces(line: str) -> str:
    end = len(line.rstrip(" "))
    backslashes = end - len(line[:end].rstrip("\\"))
    # An odd number of backslashes quotes the first of the spaces.
    return line[: end + 1] if backslashes % 2 else line[:end]


def _parse_line(line: str) -> Rule | None:
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    glob = line[1:] if is_negated else line
    is_for_folders = glob.endswith("/")
    if is_for_folders:
        glob = glob[:-1]
    is_for_basename = "/" not in glob
    expression = _translate(glob.removeprefix("/"))
    if not glob or expression is None:
        return None
    import re

    return Rule(
        line=line,
        pattern=re.compile(expression, re.DOTALL),
        is_negated=is_negated,
        is_for_folders=is_for_folders,
        is_for_basename=is_for_basename,
        is_literal=not any(char in "*?[\\" for char in glob),
    )


def _translate(glob: str) -> str | None:
    """A regular expression for `glob`, or None where it can match nothing."""
    import re

    parts = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            expression, at = _translate_stars(glob, at)
        elif char == "?":
            expression, at = "[^/]", at + 1
        elif char == "[":
            translated = _translate_class(glob, at + 1)
            if translated is None:
                return None
            expression, at = translated
        elif char == "\\":
            if at + 1 == len(glob):
                return None
            expression, at = re.escape(glob[at + 1]), at + 2
        else:
            expression, at = re.escape(char), at + 1
        parts.append(expression)
    return "".join(parts)


def _translate_stars(glob: str, start: int) -> tuple[str, int]:
    end = start
    while end < len(glob) and glob[end] == "*":
        end += 1
    # git cuts off the text before the first wildcard and matches the rest alone, so stars that come first count as
    # standing at the beginning: "a**/b" means "a" and then "**/b".
    is_first_wildcard = not any(char in "*?[\\" for char in glob[:start])
    opens = start == 0 or glob[start - 1] == "/" or is_first_wildcard
    if end - start >= 2 and opens:
        if end == len(glob):
            return ".*", end
        if glob[end] == "/":
            return "(?:.*/)?", end + 1
    return "[^/]*", end


def _translate_class(glob: str, start: int) -> tuple[str, int] | None:
    """`glob` from behind a "[" to behind its "]"; None where it never ends."""
    at = start
    is_negated = glob[at : at + 1] in ("!", "^")
    if is_negated:
        at += 1
    members: list[str] = []
    previous = ""
    is_first = True
    while is_first or glob[at : at + 1] != "]":
        member = _next_member(glob, at, previous)
        if member is None:
            return None
        text, previous, at = member
        members.append(text)
        is_first = False
    inside = "".join(members)
    if not inside:
        return ("[^/]" if is_negated else "(?!)"), at + 1
    return f"(?!/)[{'^' if is_negated else ''}{inside}]", at + 1


def _next_member(glob: str, at: int, previous: str) -> tuple[str, str, int] | None:
    """One member of a class: its regular expression, the character a range may start from, and what comes next."""
    import re

    char = glob[at : at + 1]
    following = glob[at + 1 : at + 2]
    if char == "-" and previous and following not in ("", "]"):
        at += 2 if following == "\\" else 1
        last = glob[at : at + 1]
        if not last:
            return None
        text = f"{re.escape(previous)}-{re.escape(last)}" if previous <= last else ""
        return text, "", at + 1
    if char == "[" and following == ":":
        end = glob.find("]", at + 2)
        if end < 0:
            return None
        if end > at + 2 and glob[end - 1] == ":":
            named = POSIX_CLASSES.get(glob[at + 2 : end - 1])
            return None if named is None else (named, "", end + 1)
    if char == "\\":
        at += 1
        char = glob[at : at + 1]
    return (re.escape(char), char, at + 1) if char else None
