"""Do the pages tell the truth? Commands answer what they show, job files parse, links lead somewhere, tables are complete.

A page's blocks are worked through in order, in a fresh folder with a fresh home. A block of `$ ` lines is typed; each command must
succeed, unless the page asks `echo $?` next. A block below `<!-- file: NAME -->` is saved under that name. A block below
`<!-- not run: REASON -->` is only shown.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from doc_pages import (
    PAGES,
    ROOT,
    Step,
    agrees,
    heading_anchors,
    is_session,
    read_blocks,
    read_links,
    read_named_files,
    read_named_tests,
    read_steps,
)

from trainmaster.cli.main import COMMANDS, cli
from trainmaster.config import Config, read_config
from trainmaster.core import endings
from trainmaster.errors import TrainmasterError
from trainmaster.spec.parse import load_mapping_yaml, spec_from_mapping
from trainmaster.spec.script_contract import script_environment
from trainmaster.testing.generate import EXAMPLE_CONTEXT, EXAMPLE_SPEC, main

COMMAND = Path(sys.prefix) / "bin" / "trainmaster"
BLOCKS = [block for page in PAGES for block in read_blocks(page)]
SPOKEN = [page for page in PAGES if any((is_session(b) or b.language == "python") and not b.not_run for b in read_blocks(page))]
END = "\x1e"
PAGE_S_MAX = 150


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def home(tmp_path):
    """A home folder of the test's own; what still runs in it at the end is stopped."""
    folder = tmp_path / ".trainmaster"
    folder.mkdir()
    yield folder
    listed = subprocess.run([COMMAND, "list", "--json"], env=_environ(tmp_path), capture_output=True, timeout=60)
    unfinished = [job["id"] for job in json.loads(listed.stdout or "[]") if job["phase"] != "finished"]
    if unfinished:
        subprocess.run([COMMAND, "stop", "--wait", *unfinished], env=_environ(tmp_path), capture_output=True, timeout=60)


def _environ(folder: Path) -> dict[str, str]:
    """A reader's shell: `python` and `trainmaster` are on the PATH, no virtual environment is active."""
    programs = folder / "bin"
    if not programs.exists():
        programs.mkdir()
        (programs / "python").symlink_to(os.path.realpath(sys.executable))
    ours = ("TRAINMASTER_", "TM_", "VIRTUAL_ENV", "CONDA_PREFIX", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **kept,
        "PATH": f"{programs}:{COMMAND.parent}:{kept['PATH']}",
        "HOME": str(folder),
        "TRAINMASTER_HOME": str(folder / ".trainmaster"),
        "TRAINMASTER_DRIVER_IDLE_S": "0.5",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }


def _script(page: Path, folder: Path) -> tuple[list[Step], str]:
    """Everything a reader of the page does, as one script; after each step its exit code."""
    steps: list[Step] = []
    lines: list[str] = []

    def add(step: Step) -> None:
        steps.append(step)
        lines.append(f'{step.command}\ncode=$?; printf "{END}%d{END}" $code; (exit $code)')

    for block in read_blocks(page):
        saved = folder / "blocks" / str(block.line)
        if block.not_run:
            continue
        if block.file:
            saved.write_text(block.text, encoding="utf-8")
            lines.append(f"cp {shlex.quote(str(saved))} {block.file}")
        elif is_session(block):
            for step in read_steps(block):
                add(step)
        elif block.language == "python":
            saved.write_text(block.text, encoding="utf-8")
            add(Step(f"{sys.executable} {shlex.quote(str(saved))}", ""))
    return steps, "\n".join(lines) + "\n"


@pytest.mark.process
@pytest.mark.parametrize("page", SPOKEN, ids=_name)
def test_what_a_page_shows_happens(page, home, tmp_path):
    (tmp_path / "blocks").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    steps, script = _script(page, tmp_path)
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"], cwd=work, env=_environ(tmp_path), stdin=subprocess.DEVNULL, capture_output=True,
        timeout=PAGE_S_MAX,
    )  # fmt: skip
    parts = done.stdout.decode(errors="replace").split(END)
    said = list(zip(parts[::2], parts[1::2], strict=False))
    assert len(said) == len(steps), f"the page ended early:\n{done.stdout.decode(errors='replace')}"
    following = [step.command for step in steps[1:]] + [""]
    for step, (answer, code), after in zip(steps, said, following, strict=True):
        assert code == "0" or after == "echo $?", f"$ {step.command}\n{answer}\nexit code {code}"
        assert agrees(step.answer, answer), f"$ {step.command}\n--- the page says\n{step.answer}--- it said\n{answer}"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=lambda b: b.where)
def test_job_files_parse(block, tmp_path):
    if block.file.endswith("config.yaml"):
        (tmp_path / "config.yaml").write_text(block.text)
        read_config({"TRAINMASTER_HOME": str(tmp_path)})
        return
    mapping = load_mapping_yaml(block.text, block.where)
    if "command" not in mapping:
        mapping.setdefault("entry_point", "train.py")
    spec_from_mapping(mapping)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "python" and b.file], ids=lambda b: b.where)
def test_scripts_are_python(block):
    compile(block.text, block.where, "exec")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_and_files_are_there(page):
    for link in read_links(page):
        target, _, anchor = link.partition("#")
        assert not re.match(r"[a-z]+:", link), f"{link} leads out of the repository"
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in heading_anchors(path), f"{link}: there is no such heading"
    for name in read_named_files(page):
        assert (ROOT / name).exists(), f"{name} is not there"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_named_tests_exist(page):
    for file, function in read_named_tests(page):
        found = {n.name for n in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        assert function in found, f"{file} has no {function}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_shown_exists(page):
    text = re.sub(r"^\s*```text.*?^\s*```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for name, rest in re.findall(r"(?:`|\$ |^)trainmaster ([a-z]+)\b([^`\n]*)", text, re.MULTILINE):
        assert name in COMMANDS, f"there is no command {name}"
        own = rest.partition(" -- ")[0]
        known = {word for parameter in _command(name).params for word in parameter.opts} | {"--help"}
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", own.partition("|")[0]):
            assert option in known, f"trainmaster {name} has no {option}"


def _command(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def test_generated_pages_are_current(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_in_the_reference(name):
    page = (ROOT / "docs/reference/commands.md").read_text()
    _, _, section = page.partition(f"\n## {name}\n")
    assert section, f"{name} is missing"
    section = section.partition("\n## ")[0]
    for parameter in _command(name).params:
        if isinstance(parameter, click.Option):
            assert all(word in section for word in parameter.opts), f"{name}: {parameter.opts}"


def test_every_setting_is_in_the_reference():
    page = (ROOT / "docs/reference/settings.md").read_text()
    assert [name for name in Config.__struct_fields__ if f"| `{name}` | `TRAINMASTER_{name.upper()}` |" not in page] == []


def test_every_variable_of_a_script_is_in_the_reference():
    page = (ROOT / "docs/reference/script-environment.md").read_text()
    names = {*script_environment(EXAMPLE_SPEC, EXAMPLE_CONTEXT), "TM_RESUME_STEP", "TM_RESUME_CHECKPOINT", "TM_ALLOCATION"}
    shown = set(re.findall(r"^\| `(\w[\w-]*)` \|", page, re.MULTILINE))
    assert names - shown == set()
    assert {n for n in shown - names if n.startswith(("TM_", "SM_", "PET_", "AIP_"))} == set()


def test_every_error_is_in_the_reference():
    page = (ROOT / "docs/reference/errors.md").read_text()
    kinds = [TrainmasterError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    names = {kind.__name__ for kind in kinds if kind.__module__ == "trainmaster.errors"}
    assert {name for name in names if name not in page} == set()


def test_every_reason_is_in_the_reference():
    page = (ROOT / "docs/reference/errors.md").read_text()
    found = set()
    for module in (endings.__file__, ROOT / "trainmaster/core/decide.py", ROOT / "trainmaster/control/service.py"):
        text = Path(module).read_text()
        found |= set(re.findall(r'Reason\(\s*code="(\w+)"', text)) | set(re.findall(r'_failed\("(\w+)"', text))
    assert {code for code in found if f"`{code}`" not in page} == set()


def test_blocks_that_are_not_run_are_rare():
    shown = [b for b in BLOCKS if is_session(b)]
    skipped = [b.where for b in shown if b.not_run]
    assert len(skipped) <= max(3, len(shown) // 5), skipped


def test_no_page_names_the_machine_it_was_written_on():
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    assert pictures
    for page in [*PAGES, *pictures]:
        assert not re.search(r"/tmp/|/[r]oot/|/[w]ork/", page.read_text()), _name(page)


def test_yaml_of_the_pages_has_no_tabs():
    for block in BLOCKS:
        if block.language == "yaml":
            yaml.safe_load(block.text)
