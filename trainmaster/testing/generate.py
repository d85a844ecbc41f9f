"""Which committed files are made from code, and are they current?

``python -m trainmaster.testing.generate`` writes them; with ``--check`` it writes nothing and exits 1 when one is stale. Some pages
are made whole; in others only what stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is made, the rest is written by
hand.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import msgspec
from msgspec import inspect as shapes

from trainmaster import config, errors
from trainmaster.adapters.providers.local.translate import FEATURES
from trainmaster.cli.main import COMMANDS, cli
from trainmaster.spec import job_spec, layout, script_contract
from trainmaster.spec.explain import wanted_words
from trainmaster.spec.schema import job_schema
from trainmaster.spec.support import NEEDS

ROOT = Path(__file__).resolve().parents[2]
#: class name → field name (or "" for the class itself) → what its comment says
Comments = Mapping[str, Mapping[str, str]]


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write every generated file, or with ``--check`` say which is stale."""
    stale = {path: content for path, content in generated_files(root).items() if _read(root / path) != content}
    for path, content in stale.items():
        sys.stdout.write(
            f"{path} is stale; run: python -m trainmaster.testing.generate\n" if "--check" in arguments else f"{path}\n"
        )
        if "--check" not in arguments:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


def generated_files(root: Path = ROOT) -> dict[str, str]:
    """Path in the repository and content of every generated file."""
    whole = {
        "docs/reference/job.schema.json": json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n",
        "docs/reference/job-spec.md": job_spec_page(inspect.getsource(job_spec)),
        "docs/reference/commands.md": commands_page(),
    }
    parts = {
        "docs/reference/settings.md": {"settings": settings_table(inspect.getsource(config))},
        "docs/reference/script-environment.md": {"sagemaker": sagemaker_table(), "files": config_files_table()},
        "docs/reference/bucket-layout.md": {"layout": _tree(layout.__doc__)},
        "docs/reference/errors.md": {"errors": _tree(errors.__doc__)},
    }
    return whole | {path: _with_parts(_read(root / path), made) for path, made in parts.items()}


def _with_parts(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part between its marks made anew."""
    for name, content in parts.items():
        before, begin, rest = page.partition(f"<!-- begin {name} -->")
        _, end, after = rest.partition(f"<!-- end {name} -->")
        page = f"{before}{begin}\n{content}\n{end}{after}" if end else page
    return page


def commands_page() -> str:
    """The reference page of the commands: what ``--help`` says."""
    lines = [
        "<!-- Made from the commands' own help by `make schema`. Do not edit. -->",
        "# Commands",
        "",
        "This is what `trainmaster COMMAND --help` prints. [Exit codes](exit-codes.md) have a page of their own.",
        "",
        *_help("trainmaster", cli),
    ]
    context = click.Context(cli, info_name="trainmaster")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        lines += ["", f"## {name}", "", *_help(f"trainmaster {name}", command)]
    return "\n".join(lines) + "\n"


def _help(name: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100, help_option_names=["-h", "--help"])
    return ["```text", *(line.rstrip() for line in command.get_help(context).splitlines()), "```"]


def settings_table(source: str) -> str:
    """One row for each setting; `source` is the text of config.py. A field without a comment shares the one above it."""
    comments = field_comments(source)["Config"]
    rows = ["| setting | variable | default | meaning |", "|---|---|---|---|"]
    meaning = ""
    for field in msgspec.structs.fields(config.Config):
        meaning = comments[field.name] or meaning
        default = "~/.trainmaster" if field.name == "home" else field.default
        shown = "" if default in {None, ""} else f"`{default}`"
        rows.append(f"| `{field.name}` | `TRAINMASTER_{field.name.upper()}` | {shown} | {_cell(meaning)} |")
    return "\n".join(rows)


#: What the tables about the script's surroundings show: a small job, as its script would see it.
EXAMPLE_SPEC = job_spec.JobSpec(name="mnist", entry_point="train.py", hyperparameters={"learning-rate": 0.1, "epochs": 3})
EXAMPLE_CONTEXT = script_contract.ScriptContext(
    job_id="mnist-k7q2m",
    job_name="mnist",
    attempt=1,
    base_dir="$TM_HOME",
    metrics_file="$TM_HOME/metrics.jsonl",
    master_port=29500,
    seed=1042009015,
)


def sagemaker_table() -> str:
    """Every variable of the SageMaker family, with the value the example job sees."""
    found = script_contract.script_environment(EXAMPLE_SPEC, EXAMPLE_CONTEXT)
    ours = {name: value for name, value in found.items() if name.startswith(("SM_", "SAGEMAKER_", "TRAINING_"))}
    return "\n".join(["| variable | example |", "|---|---|", *(f"| `{n}` | {_shortened(v)} |" for n, v in sorted(ours.items()))])


def config_files_table() -> str:
    """Every file written before the script starts, with what the example job finds in it."""
    found = script_contract.config_files(EXAMPLE_SPEC, EXAMPLE_CONTEXT)
    rows = [f"| `$TM_HOME/{path}` | {_shortened(content.decode())} |" for path, content in sorted(found.items())]
    return "\n".join(["| file | example |", "|---|---|", *rows])


def _shortened(text: str) -> str:
    return f"`{_cell(text if len(text) <= 90 else text[:80] + '…')}`" if text else "(empty)"


def _tree(docstring: str | None) -> str:
    """What a module's docstring shows below its first paragraph."""
    _, _, rest = (docstring or "").partition("\n\n")
    return f"```text\n{rest.strip()}\n```"


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
        "A field marked **not yet** is understood and refused: the only provider there is, `local`, cannot do it.",
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
        meaning = f"{_not_yet(path, field)}{meaning}".replace("``", "`")
        yield f"| `{path}` | {_cell(value)} | {_default(field)} | {_cell(meaning)} |"
        if part:
            yield from _rows(part[0], f"{path}{part[1]}.", comments)


def _not_yet(path: str, field: shapes.Field) -> str:
    """What to say about a field that is refused, wholly or in part."""
    wanting = {need.path: need.feature for need in NEEDS if need.feature not in FEATURES and not need.words}
    if path == "inputs.NAME.mode" and "inputs.fastfile" not in FEATURES:
        return "**not yet: `fastfile`**; "
    if not any(path == known or path.startswith(f"{known}.") or path.startswith(f"{known}[]") for known in wanting):
        return ""
    if wanting.get(path, path) == f"{path}.type":
        return "**not yet: `TYPE:COUNT`**; "
    has_default = field.default is not msgspec.NODEFAULT and field.default is not None
    return f"**not yet: anything but `{field.default}`**; " if has_default and path in wanting else "**not yet**; "


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
