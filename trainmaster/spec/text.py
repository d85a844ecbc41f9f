"""How does the text of a job file become plain values?

Scalars keep what was written beside what it means, until the field decides which of the two is wanted: ``PORT: 8080`` and
``DEBUG: on`` in ``env`` are text, ``python: 3.10`` is not 3.1, and ``failures: 3`` is a number. Only ``true`` and ``false`` are
booleans, as in YAML 1.2. Nothing here grows beyond VALUES_MAX values, whatever anchors say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ..errors import InvalidSpec
from .problems import quoted

if TYPE_CHECKING:
    import yaml

TEXT_CHARACTERS_MAX = 1 << 20
VALUES_MAX = 20_000
DEPTH_MAX = 20

#: Maps whose values are text exactly as written, whatever they look like.
VERBATIM = frozenset({"env", "secrets", "tags"})
#: Fields that hold text only: a number or a boolean there is text, but null is still null.
TEXT_FIELDS = frozenset(
    {
        "name",
        "command",
        "entry_point",
        "arguments",
        "source_dir",
        "pool",
        "provider",
        "environment.python",
        "environment.requirements",
        "environment.apt",
        "environment.setup",
        "environment.conda",
        "environment.index",
        "environment.image",
        "outputs.keep",
        "checkpoints.directory",
        "resources.machine_type",
        "resources.image",
        "resources.zone",
        "metrics.tensorboard",
    }
)

_INT = re.compile(r"[-+]?[0-9]{1,40}")
_BASED_INT = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Written(NamedTuple):
    """A scalar: what was written, and what it means."""

    text: str
    value: str | int | float | bool | None


def load_yaml(text: str, source: str) -> dict[str, object]:
    """The mapping a YAML text holds; anything else is an InvalidSpec that says where."""
    import yaml

    text = _opened(text, source)
    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        tree = _Builder(source).build(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        raise InvalidSpec(source, _yaml_sentence(text, error)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidSpec(source, f"is not YAML: {' '.join(str(error).split())[:200]}") from None
    return _settled(tree, source)


def load_json(text: str, source: str) -> dict[str, object]:
    """The mapping a JSON text holds; anything else is an InvalidSpec that says where."""
    import json

    text = _opened(text, source)

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key, value in items:
            if key in mapping:
                raise InvalidSpec(source, f"key {quoted(key)} is given twice")
            mapping[key] = value
        return mapping

    def refuse(constant: str) -> NoReturn:
        raise InvalidSpec(source, f"{constant} is not a JSON number")

    try:
        tree: object = json.loads(text, object_pairs_hook=pairs, parse_int=_scalar, parse_float=_scalar, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InvalidSpec(source, f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InvalidSpec(source, f"is nested more than {DEPTH_MAX} deep") from None
    return _settled(tree, source)


def _opened(text: str, source: str) -> str:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InvalidSpec(source, f"found {len(text)} characters, at most {TEXT_CHARACTERS_MAX} are read")
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise InvalidSpec(source, "the file is empty", hint="A job needs at least `command` or `entry_point`.")
    return text


def _scalar(text: str) -> Written:
    """What a plain scalar means, by the core schema of YAML 1.2; JSON's numbers are a part of it."""
    if text in _WORDS:
        return Written(text, _WORDS[text])
    if _INT.fullmatch(text):
        return Written(text, int(text))
    if _BASED_INT.fullmatch(text):
        return Written(text, int(text, 0))
    if _FLOAT.fullmatch(text):
        return Written(text, float(text.lower().replace(".inf", "inf").replace(".nan", "nan")))
    return Written(text, text)


class _Anchored(NamedTuple):
    anchor: str | None
    value: list[object] | dict[str, object]
    lines: dict[str, int]


class _Builder:
    """Builds a tree from YAML's events. Aliases share what they name: the tree stays as small as the text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.anchors: dict[str, object] = {}
        self.open: list[_Anchored] = []
        self.keys: list[str | None] = []
        self.root: object = None
        self.documents = 0
        self.count = 0

    def build(self, events: Iterator[yaml.Event]) -> object:
        import yaml

        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    self._document(event)
                case yaml.MappingStartEvent():
                    self._start(event, {})
                case yaml.SequenceStartEvent():
                    self._start(event, [])
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end(event)
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.AliasEvent():
                    self._alias(event)
                case _:
                    pass
        return self.root

    def _refuse(self, event: yaml.Event, sentence: str) -> NoReturn:
        raise InvalidSpec(self.source, f"line {_line(event)}: {sentence}")

    def _document(self, event: yaml.Event) -> None:
        self.documents += 1
        if self.documents > 1:
            self._refuse(event, "a second document starts; a job file holds one")

    def _start(self, event: yaml.CollectionStartEvent, value: list[object] | dict[str, object]) -> None:
        self._refuse_tag(event)
        if self.open and self._awaits_key():
            self._refuse(event, "a list or mapping cannot be a key")
        if len(self.open) == DEPTH_MAX:
            self._refuse(event, f"is nested more than {DEPTH_MAX} deep")
        self.open.append(_Anchored(event.anchor, value, {}))
        self.keys.append(None)

    def _end(self, event: yaml.Event) -> None:
        done = self.open.pop()
        self.keys.pop()
        if done.anchor:
            self.anchors[done.anchor] = done.value
        self._put(event, done.value)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._refuse_tag(event)
        is_plain = event.implicit[0] and event.tag is None
        value = _scalar(event.value) if is_plain else Written(event.value, event.value)
        if self.open and self._awaits_key():
            self._key(event, value.text)
            return
        if event.anchor:
            self.anchors[event.anchor] = value
        self._put(event, value)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if self.open and self._awaits_key():
            self._refuse(event, "an alias cannot be a key")
        if event.anchor not in self.anchors:
            self._refuse(event, f"*{event.anchor} names no anchor that is complete before it")
        self._put(event, self.anchors[event.anchor])

    def _refuse_tag(self, event: yaml.NodeEvent) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", "tag:yaml.org,2002:str"):
            self._refuse(event, f"tag {quoted(tag)} is not used in job files")

    def _awaits_key(self) -> bool:
        return isinstance(self.open[-1].value, dict) and self.keys[-1] is None

    def _key(self, event: yaml.Event, key: str) -> None:
        lines = self.open[-1].lines
        if key in lines:
            self._refuse(event, f"key {quoted(key)} is given twice, first on line {lines[key]}")
        lines[key] = _line(event)
        self.keys[-1] = key

    def _put(self, event: yaml.Event, value: object) -> None:
        self.count += 1
        if self.count > VALUES_MAX:
            self._refuse(event, f"holds more than {VALUES_MAX} values")
        if not self.open:
            self.root = value
            return
        parent, key = self.open[-1], self.keys[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif key == "<<":
            self._merge(event, parent, value)
        else:
            parent.value[str(key)] = value
        self.keys[-1] = None

    def _merge(self, event: yaml.Event, parent: _Anchored, value: object) -> None:
        """``<<: *defaults``: the keys of another mapping, unless given here."""
        for other in value if isinstance(value, list) else [value]:
            if not isinstance(other, dict) or not isinstance(parent.value, dict):
                self._refuse(event, "`<<` wants an alias of a mapping")
            # Keys given before stay, and keys given later are assigned over the merged ones: what is written here wins.
            for key, item in other.items():
                parent.value.setdefault(key, item)
            self.count += len(other)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "events read from text know their place"
    return event.start_mark.line + 1


def _yaml_sentence(text: str, error: yaml.MarkedYAMLError) -> str:
    row, column = getattr(error.problem_mark, "line", 0), getattr(error.problem_mark, "column", 0)
    line = (re.split(r"\r\n|[\r\n\x85\u2028\u2029]", text)[row:] or [""])[0]
    indentation = line[: len(line) - len(line.lstrip(" \t"))]
    if "\t" in indentation:
        return f"line {row + 1} starts with a tab; YAML wants spaces"
    return f"line {row + 1}, column {column + 1}: {error.problem}"


def _settled(tree: object, source: str) -> dict[str, object]:
    """The tree as plain values, each field with the text or the meaning it wants."""
    if not isinstance(tree, Mapping):
        found = "a list" if isinstance(tree, list) else "a single value"
        raise InvalidSpec(source, f"found {found} at the top, wanted a mapping of field names such as `command: …`")
    return _Settler(source).mapping(tree, "", 1)


class _Settler:
    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0

    def mapping(self, tree: Mapping[str, object], path: str, depth: int) -> dict[str, object]:
        return {key: self.value(value, f"{path}.{key}" if path else key, depth) for key, value in tree.items()}

    def value(self, tree: object, path: str, depth: int) -> object:
        """A fresh copy, so that what an alias shares is not shared afterwards; counted, so that sharing cannot explode."""
        self.count += 1
        if self.count > VALUES_MAX or depth > DEPTH_MAX:
            raise InvalidSpec(
                self.source, f"holds more than {VALUES_MAX} values or {DEPTH_MAX} levels once its aliases are followed"
            )
        match tree:
            case Written():
                return self._scalar(tree, path)
            case dict():
                return self.mapping(tree, path, depth + 1)
            case list():
                return [self.value(item, path, depth + 1) for item in tree]
            case bool():
                return self._scalar(Written("true" if tree else "false", tree), path)
            case _:
                return tree

    def _scalar(self, written: Written, path: str) -> object:
        section = path.partition(".")[0]
        if section in VERBATIM and path != section:
            return written.text
        return written.text if path in TEXT_FIELDS and written.value is not None else written.value
