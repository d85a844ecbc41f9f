"""What is the JSON Schema of a job file? Editors complete and check with it; the parser does not need it."""

from __future__ import annotations

import msgspec

from .job_spec import JobSpec
from .text import TEXT_FIELDS, VERBATIM
from .units import DURATION_PATTERN, DURATIONS, SIZE_PATTERN, SIZES

_Definition = dict[str, dict[str, dict[str, object]]]


def job_schema() -> dict[str, object]:
    """The schema of a job file: everything the parser takes, durations and sizes as text included."""
    schema = msgspec.json.schema(JobSpec)
    definitions: dict[str, _Definition] = schema["$defs"]
    for fields, pattern in ((DURATIONS, DURATION_PATTERN), (SIZES, SIZE_PATTERN)):
        for section, field in fields:
            _allow(_field(definitions, f"{section}.{field}"), {"type": "string", "pattern": pattern})
    for path in sorted(VERBATIM | TEXT_FIELDS):
        _allow_any_scalar(_field(definitions, path))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trainmaster job",
        **schema,
        # The parser names a job after its script.
        "$defs": {**definitions, "JobSpec": {**definitions["JobSpec"], "required": []}},
    }


def _field(definitions: dict[str, _Definition], path: str) -> dict[str, object]:
    """The schema of a field; a section's definition is named after its class: `limits` is Limits."""
    section, _, field = path.rpartition(".")
    return definitions[section.title() or "JobSpec"]["properties"][field]


def _allow(schema: dict[str, object], other: dict[str, object]) -> None:
    """Let a schema accept another form too, in place; its default and description stay where they are."""
    kept: dict[str, object] = {key: schema.pop(key) for key in ("default", "description") if key in schema}
    forms = schema.pop("anyOf", None)
    forms = forms if isinstance(forms, list) else [dict(schema)]
    schema.clear()
    schema.update({**kept, "anyOf": [*forms, other]})


def _allow_any_scalar(schema: dict[str, object]) -> None:
    """Wherever the schema wants text, take numbers and booleans too: they become the text that was written."""
    if schema.get("type") == "string":
        schema["type"] = ["string", "number", "boolean"]
    forms = schema.get("anyOf")
    for inner in [schema.get("items"), schema.get("additionalProperties"), *(forms if isinstance(forms, list) else [])]:
        if isinstance(inner, dict):
            _allow_any_scalar(inner)
