"""The house rules that a syntax tree can show. Each failure names the rule."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trainmaster"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PROVIDERS = {"local", "docker", "gce", "ec2", "slurm", "kubernetes", "simulated"}
#: the default of a spec and the default of a script's machine type must name it
MAY_NAME_LOCAL = {"job_spec.py", "script_contract.py"}
BAD_NAMES = {"utils", "util", "common", "helpers", "base", "manager", "misc"}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _depth(node: ast.AST, depth: int = 0) -> int:
    """Deepest nesting of blocks inside a function; an elif is not deeper than its if."""
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith, ast.Match)
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
        deepest = max(deepest, _depth(child, depth + (isinstance(child, blocks) and not is_elif)))
    return deepest


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_one_file_one_question(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 500, "rule 6: a file has at most 500 lines; look for the second question in it"
    assert ast.get_docstring(tree), "rule 11: a module opens with one sentence saying which question it answers"
    assert path.stem not in BAD_NAMES, "rule 11: this name says nothing"
    for function in _functions(tree):
        where = f"{_name(path)}:{function.lineno} {function.name}"
        assert (function.end_lineno or 0) - function.lineno + 1 <= 60, f"rule 6: at most 60 lines: {where}"
        arguments = [a for a in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs] if a.arg != "self"]
        is_command = any("command" in ast.unparse(d) for d in function.decorator_list)
        assert len(arguments) <= 6 or is_command, f"rule 6: at most 6 parameters: {where}"
        assert _depth(function) <= 4, f"rule 6: nesting: {where}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "ports").glob("*.py")), ids=_name)
def test_ports_state_their_promises(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in node.bases):
            for method in _functions(node):
                assert ast.get_docstring(method), f"rule 11: {node.name}.{method.name} promises nothing"


@pytest.mark.parametrize("path", [p for p in MODULES if p.parent.name in {"core", "spec", "ports"}], ids=_name)
def test_no_any_inside(path):
    assert not re.search(r"\bAny\b", path.read_text()), "rule 9: no Any in core, spec and ports"


@pytest.mark.parametrize("path", [p for p in MODULES if not {"providers", "testing", "embedded"} & set(p.parts)], ids=_name)
def test_nobody_asks_a_provider_who_it_is(path):
    found = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PROVIDERS
    }
    found -= {"local"} if path.name in MAY_NAME_LOCAL else set()
    assert not found, f"rule 7: a provider's name belongs in its own folder: {found}"


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=_name)
def test_nothing_is_left_for_later(path):
    marks = "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"])
    assert not re.search(rf"\b({marks})\b", path.read_text()), "do it, or open an issue"


@pytest.mark.parametrize("path", TESTS, ids=_name)
def test_no_patching(path):
    words = ["mock" + ".patch", "monkeypatch" + ".setattr", "mocker" + ".patch"]
    assert not [word for word in words if word in path.read_text()], "rule 12: pass a fake in"


def test_one_word_per_thing():
    homes: dict[str, list[str]] = {}
    for path in (path for path in MODULES if "testing" not in path.parts):
        for node in ast.parse(path.read_text()).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else _aliases(node)
            for name in (name for name in names if not name.startswith("_")):
                homes.setdefault(name, []).append(_name(path))
    twice = {name: found for name, found in homes.items() if len(found) > 1}
    assert not twice, f"rule 11: one word per thing; rename one of each: {twice}"


def _aliases(node: ast.stmt) -> list[str]:
    """Names of types made by assignment, such as `Entries = dict[str, Entry]`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Subscript | ast.BinOp):
        return []
    return [target.id for target in node.targets if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z][a-z]\w+", target.id)]
