"""Does the help help? Every command has a sentence, an example, and a text for each option."""

from __future__ import annotations

import click
import pytest
from cli.terminal import assert_fits

from trainmaster.cli.main import COMMANDS, cli


def commands() -> dict[str, click.Command]:
    context = click.Context(cli, info_name="trainmaster")
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def help_of(name: str) -> str:
    command = commands()[name]
    context = click.Context(command, info_name=f"trainmaster {name}", terminal_width=80, help_option_names=["-h", "--help"])
    return command.get_help(context)


def test_the_table_names_every_command():
    assert list(commands()) == list(COMMANDS)
    wanted = {"run", "submit", "list", "show", "logs", "why", "stop", "wait", "checkpoints", "metrics", "pull", "doctor"}
    wanted |= {"compare", "best", "diff", "envs", "delete", "prune", "du", "export", "import", "completion"}
    wanted |= {"study", "resume", "rerun"}
    assert set(COMMANDS) == wanted


@pytest.mark.parametrize("name", COMMANDS)
def test_a_sentence_an_example_and_a_text_for_each_option(name):
    command = commands()[name]
    assert (command.help or "").split("\n")[0] == COMMANDS[name][1]
    text = help_of(name)
    assert "Examples:" in text
    assert f"  trainmaster {name} " in text or f"  trainmaster {name}\n" in text
    assert_fits(text)
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert [option.name for option in options if not option.help] == []
    assert "--json" in text


def test_examples_name_options_that_there_are():
    for name, command in commands().items():
        known = {word for p in command.params for word in (*p.opts, *p.secondary_opts)}
        examples = [line.split(" -- ")[0] for line in (command.help or "").splitlines() if line.startswith(f"  trainmaster {name}")]
        used = {word for line in examples for word in line.split() if word.startswith("-")}
        assert used <= known, name


def test_the_list_of_commands_fits():
    text = cli.get_help(click.Context(cli, info_name="trainmaster", terminal_width=80, help_option_names=["-h", "--help"]))
    assert_fits(text)
    for name, (_, sentence) in COMMANDS.items():
        assert any(line.split() == [name, *sentence.split()] for line in text.splitlines()), name
