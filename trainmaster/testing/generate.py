"""Which committed files are made from code, and are they current?

``python -m trainmaster.testing.generate`` writes them; with ``--check`` it writes nothing and exits 1 when one is stale.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import inspect as shapes

from trainmaster.spec import job_spec
from trainmaster.spec.explain import wanted_words
from trainmaster.spec.schema import job_schema

ROOT = Path(__file__).resolve().parents[2]
#: class name → field name (or "" for the class itself) → what its comment says
Comments = Mapping[str, Mapping[str, str]]


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write every generated file, or with ``--check`` say which is stale."""
    stale = [path for path, content in generated_files().items() if _read(root / path) != content]
    for path in stale:
        sys.stdout.write(
            f"{path} is stale; run: python -m trainmaster.testing.generate\n" if "--check" in arguments else f"{path}\n"
        )
        if "--check" not in arguments:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(generated_files()[path], encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


def generated_files() -> dict[str, str]:
    """Path in the repository and content of every generated file."""
    return {
        "docs/reference/job.schema.json": json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n",
        "docs/reference/job-spec.md": job_spec_page(inspect.getsource(job_spec)),
    }


def job_spec_page(source: str) -> str:
    """The reference page of a job file; `source` is the text of job_spec.py, whose comments it shows."""
    lines = [
        "<!-- Made from trainmaster/spec/job_spec.py by `make schema`. Do not edit. -->",
        "# The job file",
        "",
        "A job is written as YAML, JSON or Python; unknown fields are an error. Exactly one of `command` and `entry_point` is",
        "needed. Durations are seconds or text such as `90s`, `15m`, `2h`, `1d`, `1h30m`; sizes are bytes or text such as `500MB`,",
        "`16GiB`.",
        "[job.schema.json](job.schema.json) is the same for editors.",
        "",
        "| field | value | default | meaning |",
        "|---|---|---|---|",
        *_rows(job_spec.JobSpec, "", field_comments(source)),
    ]
    return "\n".join(lines) + "\n"


def field_comments(source: str) -> Comments:
    """The ``#:`` comment above each field of each class, and each class's docstring under the empty name."""
    lines = source.splitlines()
    comments: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            fields = {
                statement.target.id: _comment_above(lines, statement.lineno)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            }
            comments[node.name] = {"": (ast.get_docstring(node) or "").removesuffix("."), **fields}
    return comments


def _comment_above(lines: list[str], lineno: int) -> str:
    found: list[str] = []
    for line in reversed(lines[: lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        found.insert(0, line.strip().removeprefix("#:").strip())
    return " ".join(found)


def _rows(struct: type[msgspec.Struct], prefix: str, comments: Comments) -> Iterator[str]:
    shape = shapes.type_info(struct)
    assert isinstance(shape, shapes.StructType)
    for field in shape.fields:
        path = f"{prefix}{field.name}"
        part = _part(field.type)
        meaning = comments[struct.__name__][field.name] or comments[part[0].__name__ if part else struct.__name__][""]
        value = "see below" if part else wanted_words(field.type)
        yield f"| `{path}` | {_cell(value)} | {_default(field)} | {_cell(meaning.replace('``', '`'))} |"
        if part:
            yield from _rows(part[0], f"{path}{part[1]}.", comments)


def _part(shape: shapes.Type) -> tuple[type[msgspec.Struct], str] | None:
    """The class a field holds, and how its fields are reached from there: directly, in a list, or by a name."""
    match shape:
        case shapes.StructType():
            return shape.cls, ""
        case shapes.ListType(item_type=shapes.StructType(cls=cls)):
            return cls, "[]"
        case shapes.DictType(value_type=shapes.UnionType(types=types)):
            return next(((one.cls, ".NAME") for one in types if isinstance(one, shapes.StructType)), None)
        case shapes.UnionType(types=types):
            return next(((one.cls, "") for one in types if isinstance(one, shapes.StructType)), None)
        case _:
            return None


def _default(field: shapes.Field) -> str:
    if field.default is msgspec.NODEFAULT:
        return "" if field.required or field.default_factory not in (list, dict) else "empty"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
