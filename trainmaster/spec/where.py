"""Which jobs does ``hp.lr < 0.1 and metric.val_loss < 0.3`` mean? Text → Condition; a mistake is shown with its position.

    condition   := every ("or" every)*          every := single ("and" single)*
    single      := "not" single | "(" condition ")" | field | field operator value
    operator    := = == != < <= > >= ~ !~       value := number | word | "text" | 'text'
    field       := hp.NAME | tag.NAME | metric.NAME | min(metric.NAME) | max(metric.NAME)
                 | id | name | outcome | phase | priority | attempts | duration

A NAME that is no plain word is quoted: ``hp."learning rate"``. A field alone asks whether there is a value.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, NoReturn

from msgspec import Struct

from ..errors import InvalidSpec
from .problems import nearest, quoted
from .units import parse_duration

Kind = Literal["hp", "tag", "metric", "id", "name", "outcome", "phase", "priority", "attempts", "duration"]
Extreme = Literal["last", "min", "max"]
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "!~"]

_NAMED: tuple[Kind, ...] = ("hp", "tag", "metric")
_ALONE: tuple[Kind, ...] = ("id", "name", "outcome", "phase", "priority", "attempts", "duration")
_EXTREMES: tuple[Extreme, ...] = ("min", "max")
_OPERATORS: dict[str, Operator] = {
    "=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "~": "~", "!~": "!~",
}  # fmt: skip
_WORDS = {
    "outcome": ("succeeded", "failed", "stopped"),
    "phase": ("queued", "placing", "starting", "running", "stopping", "finished"),
}
_NUMBERS = frozenset({"priority", "attempts", "duration"})
_EXAMPLES = "hp.lr < 0.1 and metric.val_loss < 0.3"
_TEXT_MAX = 4000
_DEPTH_MAX = 50
_SHOWN_BEFORE, _SHOWN_AFTER = 40, 20

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<operator><=|>=|==|!=|!~|[=<>~])|(?P<bracket>[()])"""
    r"""|(?P<text>"[^"]*"|'[^']*')|(?P<word>[^\s()<>=!~"']+(?:(?<=\.)(?:"[^"]*"|'[^']*'))?)"""
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,3})?")


class Field(Struct, frozen=True, kw_only=True):
    """A value of a job."""

    kind: Kind
    #: of a parameter, tag or metric
    name: str = ""
    #: of a metric: the last value, or the lowest or highest there ever was
    extreme: Extreme = "last"


class Compared(Struct, frozen=True, kw_only=True):
    """A field beside a value."""

    field: Field
    operator: Operator
    value: float | str


class Has(Struct, frozen=True, kw_only=True):
    """Whether there is a value at all."""

    field: Field


class Not(Struct, frozen=True, kw_only=True):
    """The contrary."""

    condition: Condition


class Every(Struct, frozen=True, kw_only=True):
    """All of them."""

    conditions: tuple[Condition, ...]


class Either(Struct, frozen=True, kw_only=True):
    """At least one of them."""

    conditions: tuple[Condition, ...]


Condition = Compared | Has | Not | Every | Either


def parse_where(text: str) -> Condition:
    """The condition that a text means. InvalidSpec: it means nothing, and here is where."""
    if len(text) > _TEXT_MAX:
        raise InvalidSpec("--where", f"{len(text)} characters; {_TEXT_MAX} at most")
    return _Parser(text).whole()


def fields(condition: Condition) -> list[Field]:
    """Every field that a condition asks for, in the order written."""
    match condition:
        case Compared() | Has():
            return [condition.field]
        case Not():
            return fields(condition.condition)
        case _:
            return [field for part in condition.conditions for field in fields(part)]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """One token after the other, from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._cut()
        self._next = 0
        self._depth = 0

    def whole(self) -> Condition:
        """Everything there is."""
        if self._token.kind == "end":
            self._fail(self._token, "there is no condition")
        found = self._either()
        if self._token.kind != "end":
            self._fail(self._token, f'found {quoted(self._token.text)}, wanted "and", "or" or the end')
        return found

    def _cut(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                what = "this quote is not closed" if self._text[at] in "\"'" else f"{quoted(self._text[at])} has no meaning here"
                self._fail(_Token("", "", at), what)
            assert found.lastgroup is not None
            if found.lastgroup != "space":
                tokens.append(_Token(found.lastgroup, found.group(), at))
            at = found.end()
        return [*tokens, _Token("end", "", len(self._text))]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _is_word(self, word: str) -> bool:
        return self._token.kind == "word" and self._token.text.lower() == word

    def _either(self) -> Condition:
        parts = [self._every()]
        while self._is_word("or"):
            self._take()
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Either(conditions=tuple(parts))

    def _every(self) -> Condition:
        parts = [self._single()]
        while self._is_word("and"):
            self._take()
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else Every(conditions=tuple(parts))

    def _single(self) -> Condition:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail(self._token, "this is nested too deep")
        try:
            if self._is_word("not"):
                self._take()
                return Not(condition=self._single())
            if self._token.text == "(" and self._token.kind == "bracket":
                self._take()
                found = self._either()
                self._close()
                return found
            return self._comparison()
        finally:
            self._depth -= 1

    def _close(self) -> None:
        token = self._take() if self._token.text == ")" and self._token.kind == "bracket" else None
        if token is None:
            self._fail(self._token, 'wanted ")"')

    def _comparison(self) -> Condition:
        field = self._field()
        if self._token.kind != "operator":
            return self._alone(field)
        operator = _OPERATORS[self._take().text]
        return Compared(field=field, operator=operator, value=self._value(field, operator))

    def _alone(self, field: Field) -> Condition:
        if self._token.kind == "end" or self._token.text == ")" or self._is_word("and") or self._is_word("or"):
            return Has(field=field)
        self._fail(self._token, f"found {quoted(self._token.text)}, wanted an operator such as = < >= ~")

    def _field(self) -> Field:
        token = self._token
        if token.kind != "word" or token.text.lower() in {"and", "or", "not"}:
            self._fail(token, "wanted a field", hint=f"such as {_EXAMPLES}")
        self._next += 1
        for extreme in _EXTREMES:
            if token.text.lower() == extreme and self._token.text == "(":
                self._take()
                inner = self._token
                field = self._field()
                if field.kind != "metric":
                    self._fail(inner, f"{extreme}() is for metrics, such as {extreme}(metric.loss)")
                self._close()
                return Field(kind="metric", name=field.name, extreme=extreme)
        return self._plain_field(token)

    def _plain_field(self, token: _Token) -> Field:
        kind, dot, name = token.text.partition(".")
        for known in _NAMED:
            if kind == known and dot:
                name = name[1:-1] if name[:1] in {'"', "'"} else name
                if not name:
                    self._fail(token, f"{kind}. what? A name follows, such as {kind}.{'loss' if kind == 'metric' else 'lr'}")
                return Field(kind=known, name=name)
        for known in _ALONE:
            if token.text == known:
                return Field(kind=known)
        near = nearest(kind, [*_NAMED, *_ALONE])
        if dot:
            near = near.replace("`?", f".{name}`?") if near and near.split("`")[1] in _NAMED else ""
        hint = "fields: hp.NAME, tag.NAME, metric.NAME, min(metric.NAME), max(metric.NAME), " + ", ".join(_ALONE)
        self._fail(token, f"there is no field {quoted(token.text)}{near}", hint=hint)

    def _value(self, field: Field, operator: Operator) -> float | str:
        token = self._token
        if token.kind not in {"word", "text"}:
            self._fail(token, "wanted a value: a number, a word, or text in quotes")
        self._next += 1
        text = token.text[1:-1] if token.kind == "text" else token.text
        if operator in {"~", "!~"}:
            return text
        number = float(text) if token.kind == "word" and _NUMBER.fullmatch(text) else None
        if field.kind in _NUMBERS:
            if number is None and field.kind == "duration":
                number = parse_duration(text)
            if number is None:
                wanted = "seconds, or a duration such as 90s, 15m, 1h30m" if field.kind == "duration" else "a number"
                self._fail(token, f"found {quoted(text)}, wanted {wanted}")
        known = _WORDS.get(field.kind)
        if known is not None and text not in known:
            self._fail(token, f"no {field.kind} is called {quoted(text)}{nearest(text, list(known))}", hint="; ".join(known))
        return text if number is None else number

    def _fail(self, token: _Token, sentence: str, hint: str = "") -> NoReturn:
        """The sentence, the part of the text it is about, and a mark below it."""
        start = max(0, token.at - _SHOWN_BEFORE)
        end = min(len(self._text), token.at + max(_SHOWN_AFTER, len(token.text[:_SHOWN_AFTER])))
        before, after = "…" if start else "", "…" if end < len(self._text) else ""
        shown = "".join(c if c.isprintable() else " " for c in self._text[start:end])
        mark = " " * (len(before) + token.at - start) + "^" * max(1, min(len(token.text), end - token.at))
        said = f"{sentence} (at character {token.at + 1})\n  {before}{shown}{after}\n  {mark}"
        raise InvalidSpec("--where", said, hint=hint)
