"""What holds for every command: examples that work, JSON for programs, no colours where they are not wanted, 80 columns."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from cli.terminal import CURVE, Terminal, assert_fits, run_cli
from cli.test_help import commands, help_of

from trainmaster.cli.main import COMMANDS

pytestmark = pytest.mark.process

LONG = "a-name-that-is-as-long-as-names-get-here"


def examples(name):
    """The lines below `Examples:`."""
    _, _, rest = (commands()[name].help or "").partition("Examples:\n")
    return [line.strip() for line in rest.split("\n\n")[0].splitlines() if line.strip()]


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_can_be_typed(name):
    found = examples(name)
    assert found, f"{name} has no examples"
    for line in found:
        words = shlex.split(re.split(r" [|>] ", line)[0])
        assert words[:2] == ["trainmaster", name], line
        command = commands()[name]
        with command.make_context(name, words[2:]) as context:
            assert context.params is not None
        assert len(line) + 4 <= 80, line


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_more_than_the_table(name):
    """A sentence, then what it shows or does, then examples, and all of it within 80 columns."""
    text = commands()[name].help or ""
    paragraphs = [part for part in text.split("\n\n") if part.strip("\b\n ")]
    assert len(paragraphs) >= 3, f"{name}: a sentence, an explanation, examples"
    for line in help_of(name).splitlines():
        assert len(line) <= 80, line


def asks(scene):
    """Each command, asked in a way that changes nothing here."""
    target = str(scene.world.folder / "pulled")
    return {
        "run": None,
        "submit": None,
        "study": None,
        "resume": None,
        "rerun": None,
        "stop": ("stop", scene.good),
        "wait": ("wait", scene.good),
        "pull": ("pull", scene.good, target, "--force"),
        "export": ("export", scene.good, "-o", str(scene.world.folder / "exported.tar"), "--force"),
        "import": None,
        "prune": ("prune", "--dry-run", "--older-than", "0s"),
        "delete": None,
        "diff": ("diff", scene.good, scene.again),
        "best": ("best", "--metric", "loss", "--min"),
        "list": ("list",),
        "compare": ("compare",),
        "du": ("du",),
        "envs": ("envs", "list"),
        "completion": ("completion", "bash"),
        "doctor": ("doctor",),
        **{name: (name, scene.good) for name in ("show", "why", "logs", "checkpoints", "metrics")},
    }


def test_every_command_answers_programs(scene):
    """Those that change something are asked in tests of their own; here it counts that they have the option."""
    assert asks(scene).keys() == COMMANDS.keys()
    for name, words in asks(scene).items():
        assert any(parameter.name == "as_json" for parameter in commands()[name].params), name
        if words is None:
            continue
        answer = run_cli(scene.world, *words, "--json")
        assert answer.code == 0, (name, answer)
        assert "\x1b" not in answer.out
        for part in answer.out.splitlines() if name == "logs" else [answer.out]:
            json.loads(part)


def test_no_colours_where_nobody_wants_them(scene):
    for name, words in asks(scene).items():
        if words is None or name == "logs":
            continue
        assert "\x1b" not in Terminal(scene.world, *words, env={"NO_COLOR": "1"}).end()[1], name


@pytest.fixture(scope="module")
def long_names(tmp_path_factory):
    """Two jobs with names, parameters and tags as long as they get."""
    from process.world import world_in

    for world in world_in(tmp_path_factory.mktemp("long")):
        script = CURVE + f"trainmaster.log(step=9, {'a' * 60}=1.5)\n"
        for value in ("one", "other"):
            more = {"hyperparameters": {f"hp{'x' * 50}": value * 20}, "tags": {f"tag{'y' * 50}": value * 20}}
            world.wait(world.submit(world.job_file(script, name=LONG, **more)))
        yield world


def test_every_table_fits_80_columns(long_names):
    first, second = long_names.ids()
    asked = [
        ("list",),
        ("compare",),
        ("du",),
        ("du", first),
        ("prune", "--dry-run", "--older-than", "0s"),
        ("prune", "--dry-run", "--older-than", "0s", "--keep-models"),
        ("checkpoints", first),
        ("metrics", first),
        ("why", first),
        ("show", first),
        ("diff", first, second),
        ("best", "--metric", "loss", "--min"),
        ("doctor",),
    ]
    for words in asked:
        answer = run_cli(long_names, *words)
        assert answer.code == 0, words
        for line in (answer.out + answer.err).splitlines():
            is_one_word = max(map(len, line.split()), default=0) > 40
            assert len(line) <= 80 or is_one_word, f"{words}: {len(line)} columns: {line}"
        tables = {"list", "compare", "du", "prune", "checkpoints", "metrics"}
        if words[0] in tables:
            assert_table_fits(words, answer.out)


def assert_table_fits(words, out):
    for line in out.splitlines():
        assert len(line) <= 80, f"{words}: {len(line)} columns: {line}"


@pytest.mark.parametrize("columns", [20, 40, 56])
def test_a_bar_keeps_to_one_row_of_a_narrow_terminal(world, columns):
    world.write("train.py", "print(1)")
    (world.source / "data").write_bytes(bytes(9 << 20))
    code, output = Terminal(world, "submit", "train.py", columns=columns).end()
    assert code == 0
    rows = [row for part in output.split("\n") for row in part.split("\r") if "packing" in row]
    assert rows
    assert max(map(len, rows)) < columns


def test_no_bar_where_a_row_cannot_be_written_over(world):
    world.write("train.py", "print(1)")
    (world.source / "data").write_bytes(bytes(9 << 20))
    code, output = Terminal(world, "submit", "train.py", env={"TERM": "dumb"}).end()
    assert (code, "packing" in output) == (0, False)


def test_every_exit_code_is_in_the_reference(scene):
    """3 and 130 need a job that is stopped and a hand at the keyboard: test_names_and_codes, test_terminal."""
    page = (Path(__file__).parents[2] / "docs/reference/exit-codes.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    with open("/dev/full", "wb") as full:
        seen = {
            run_cli(scene.world, "wait", scene.good).code,
            run_cli(scene.world, "wait", scene.bad).code,
            run_cli(scene.world, "show", "nobody").code,
            run_cli(scene.world, "wait", scene.running, "--timeout", "0").code,
            run_cli(scene.world, "list", stdout=full).code,
        }
    assert documented == {*seen, 3, 130}


def test_usage_errors_fit(strict):
    for words in (["list", "--nothing"], ["shw"], ["show"], ["prune", "--outcome", "x"], ["wait", "--timeout", "x", "y"]):
        answer = run_cli(strict, *words)
        assert answer.code == 2
        assert_fits(answer.err)
