"""How is a spec changed by words such as ``hp.lr=0.2``? A path of the job file and a value; the result is judged as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import InvalidSpec
from .job_spec import JobSpec
from .parse import load_mapping_yaml, spec_from_mapping, with_overrides

_SHORT = {"hp": "hyperparameters", "tag": "tags"}
#: Their values are text, whatever they look like.
_TEXTS = frozenset({"env", "tags", "secrets", "name"})
#: The code and the wheels are the record's own; to run others is another job.
_FIXED = ("source_dir", "in_place", "study", "environment.wheels")


def changed(spec: JobSpec, words: Sequence[str]) -> JobSpec:
    """A new spec with each ``PATH=VALUE`` laid over it. InvalidSpec names the path, as for a job file."""
    overrides: dict[str, object] = {}
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not path:
            raise InvalidSpec("--set", f'found "{word}", wanted PATH=VALUE', hint="such as --set hp.lr=0.2 or --set env.DEBUG=1")
        section, dot, field = path.partition(".")
        section = _SHORT.get(section, section)
        if section in _FIXED or path in _FIXED:
            raise _unchangeable(path)
        there = getattr(spec, section, None)
        if dot and isinstance(there, str | int | float | list):
            raise InvalidSpec(
                f"--set {path}", f"{section} is one value and has no field {field}", hint=f"write --set {section}=VALUE"
            )
        overrides[f"{section}{dot}{field}"] = text if section in _TEXTS else yaml_value(text)
    new = overridden(spec, overrides)
    if new.environment.wheels != spec.environment.wheels:
        raise _unchangeable("environment.wheels")
    return new


def _unchangeable(path: str) -> InvalidSpec:
    return InvalidSpec(f"--set {path}", "cannot be changed", hint="submit another job with `trainmaster run`")


def overridden(spec: JobSpec, overrides: dict[str, object]) -> JobSpec:
    """A new spec with fields laid over it, checked as a job file is."""
    return spec_from_mapping(with_overrides(msgspec.to_builtins(spec), overrides)) if overrides else spec


def yaml_value(text: str) -> object:
    """A value as a job file would have it: 0.2 is a number, true is a truth value, nothing is null; the rest is text."""
    if "\n" in text:
        return text
    try:
        return load_mapping_yaml(f"value: {text}", "--set").get("value")
    except InvalidSpec:
        return text
