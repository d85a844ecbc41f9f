"""How does what somebody wrote become a JobSpec, or one error that says what to mend?

Text is loaded by text.py, units are settled by units.py, msgspec fits the shape and explain.py says why it did not, rules.py looks
across fields. Whatever goes in, out comes a JobSpec or an InvalidSpec.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec

from .job_spec import JobSpec
from .problems import Problem, as_error, join, shown
from .rules import broken_rules
from .text import DEPTH_MAX, load_json, load_yaml
from .units import settle_units

load_mapping_yaml = load_yaml
load_mapping_json = load_json


def parse_yaml(text: str, source: str) -> JobSpec:
    """The job a YAML text describes; `source` names the text in errors."""
    return spec_from_mapping(load_yaml(text, source))


def parse_json(text: str, source: str) -> JobSpec:
    """The job a JSON text describes; `source` names the text in errors."""
    return spec_from_mapping(load_json(text, source))


def spec_from_mapping(mapping: Mapping[str, object]) -> JobSpec:
    """The job that plain values describe. The mapping is not changed."""
    problems: list[Problem] = []
    plain = _plain(mapping, "", problems, 0)
    if problems or not isinstance(plain, dict):
        raise as_error(problems or [Problem("", f"found {shown(plain)}, wanted a mapping of field names")])
    problems += settle_units(plain)
    plain.setdefault("name", default_name(plain))
    try:
        spec = msgspec.convert(plain, JobSpec)
    except msgspec.ValidationError:
        from .explain import explain

        problems += explain(plain, msgspec.inspect.type_info(JobSpec))
        raise as_error(problems or [Problem("", "does not have the shape of a job")]) from None
    problems += broken_rules(spec)
    if problems:
        raise as_error(problems)
    return spec


def with_overrides(mapping: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """A new mapping with `overrides` laid over it; nothing is validated yet.

    A key is a field or `section.field` (only the first dot counts, so `hyperparameters.model.lr` sets `model.lr`). A mapping is
    laid over a mapping key by key; anything else replaces what was there.
    """
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in mapping.items()}
    for key, value in overrides.items():
        section, dot, field = key.partition(".")
        entries = {field: value} if dot else value
        there = result.get(section, {})
        if isinstance(entries, Mapping) and isinstance(there, dict):
            result[section] = {**there, **entries}
        elif not dot:
            result[section] = value
    return result


def default_name(mapping: Mapping[str, object]) -> str:
    """The name of a job that was given none: its script's, or `job` when no script can be seen."""
    command = mapping.get("command")
    words = [mapping.get("entry_point"), *(command if isinstance(command, list) else str(command).split())]
    scripts = (word for word in words if isinstance(word, str) and word.endswith((".py", ".sh")))
    stem = next(scripts, str(words[0] or ""))[:-3].rsplit("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:63].strip("._-") or "job"


def _plain(value: object, path: str, problems: list[Problem], depth: int) -> object:
    """A fresh copy made of text, numbers, booleans, None, lists and dicts; what is none of these is told."""
    if depth > DEPTH_MAX:
        problems.append(Problem(path[:200], f"is nested more than {DEPTH_MAX} deep"))
        return None
    match value:
        case None | bool():
            return value
        case str():
            return _plain_text(str.__str__(value), path, problems)
        case int() | float():
            return _plain_number(value, path, problems)
        case Mapping():
            return _plain_mapping(value, path, problems, depth)
        case list() | tuple():
            return [_plain(item, f"{path}[{index}]", problems, depth + 1) for index, item in enumerate(value)]
        case _:
            problems.append(Problem(path, f"found {shown(value)}, wanted text, a number, true or false, a list or a mapping"))
            return None


def _plain_mapping(value: Mapping[object, object], path: str, problems: list[Problem], depth: int) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            problems.append(Problem(path, f"found {shown(key)} as a name, wanted text"))
            continue
        name = _plain_text(str.__str__(key), join(path, key), problems)
        result[name] = _plain(item, join(path, key), problems, depth + 1)
    return result


def _plain_text(text: str, path: str, problems: list[Problem]) -> str:
    # Neither can be given to a process: one ends its C strings early, the other is no character at all.
    if "\0" in text:
        problems.append(Problem(path, "contains a NUL character"))
    if re.search("[\ud800-\udfff]", text):
        problems.append(Problem(path, "contains bytes that are not UTF-8 text"))
    return text


def _plain_number(value: float, path: str, problems: list[Problem]) -> float:
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            problems.append(Problem(path, "found a whole number of more than 64 bits", "Write it in quotes, as text."))
        return int(value)
    if not math.isfinite(value):
        problems.append(Problem(path, f"found {value}, wanted a finite number", "Write it in quotes, as text."))
    return float(value)
