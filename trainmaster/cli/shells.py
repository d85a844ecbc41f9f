"""`completion`: how does a shell know what could come next?

A shell asks at each press of TAB; the answer must come at once. So commands and jobs are told without loading the command itself;
only options and their values are asked of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from trainmaster.cli import render
from trainmaster.cli.main import COMMANDS, COMPLETE_VARIABLE

SHELLS = ("bash", "zsh", "fish")
#: command → how many jobs it takes; checked against the commands by a test
JOBS = {
    "show": 1,
    "why": 1,
    "logs": 1,
    "wait": 1000,
    "stop": 1000,
    "checkpoints": 1,
    "metrics": 1,
    "compare": 1000,
    "best": 1000,
    "diff": 2,
    "resume": 1,
    "rerun": 1,
    "pull": 1,
    "export": 1000,
    "du": 1000,
    "delete": 1000,
}
#: commands whose first words are files
_FILES = {"run": "file", "submit": "file", "import": "file", "pull": "dir"}
#: options that take no value: what follows them may be a job
_FLAGS = {"--json", "-f", "--follow", "--wait", "--yes", "-y", "--force", "--no-checkpoints", "--csv", "--min", "--max"}


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def completion_command(shell: str, as_json: bool) -> int:  # noqa: FBT001
    """Print a script that lets your shell complete commands and jobs.

    Save it once; a new shell then completes commands, options, jobs, phases,
    outcomes and tags at each press of TAB.

    \b
    bash: append this to ~/.bashrc
      eval "$(trainmaster completion bash)"
    zsh: append this to ~/.zshrc, below `compinit`
      eval "$(trainmaster completion zsh)"
    fish: once
      trainmaster completion fish > ~/.config/fish/completions/trainmaster.fish

    \b
    Examples:
      trainmaster completion bash
      trainmaster completion fish
    """
    script = _script(shell)
    if as_json:
        render.json({"shell": shell, "script": script})
    else:
        render.raw(script.encode())
    return 0


def _script(shell: str) -> str:
    from trainmaster.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    # The class's own `source` would start the shell to ask for its version.
    return ShellComplete.source(kind(cli, {}, "trainmaster", COMPLETE_VARIABLE))


def answer_shell(cli: click.Command, asked: str) -> int:
    """What the script in the shell asked for, printed as it reads it."""
    shell, _, what = asked.partition("_")
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None or what != "complete":
        return 1
    completer = kind(cli, {}, "trainmaster", COMPLETE_VARIABLE)
    try:
        words, begun = completer.get_completion_args()
    except (KeyError, ValueError, IndexError):
        return 1
    found = _quick(words, begun)
    if found is None:
        found = completer.get_completions(words, begun) or _jobs_behind_options(words, begun)
    render.raw("".join(f"{completer.format_completion(item)}\n" for item in found).encode())
    return 0


def _quick(words: Sequence[str], begun: str) -> list[CompletionItem[str]] | None:
    """What can be told without loading a command; None: ask the command."""
    if not words:
        known = {**{name: sentence for name, (_, sentence) in COMMANDS.items()}, **dict.fromkeys(("--help", "--version"), "")}
        return [CompletionItem(name, help=help_) for name, help_ in known.items() if name.startswith(begun) and (begun or help_)]
    command, last = words[0], words[-1]
    if last == "--tag":
        from trainmaster.completing import tag_words

        # Who submits makes new ones.
        return [CompletionItem(word) for word, _ in tag_words(os.environ, begun)] if command not in {"run", "submit"} else []
    takes_value = last.startswith("-") and last not in _FLAGS
    if begun.startswith("-") or takes_value:
        return None
    given = _plain_words(words[1:])
    if given is not None and given < JOBS.get(command, 0):
        return _job_items(begun)
    return [CompletionItem(begun, type=_FILES[command])] if command in _FILES else None


def _jobs_behind_options(words: Sequence[str], begun: str) -> list[CompletionItem[str]]:
    """The command knew of no option or value that could stand here: then it is a job."""
    is_value = begun.startswith("-") or (words[-1].startswith("-") and words[-1] not in _FLAGS)
    is_job = words[0] in JOBS and _plain_words(words[1:]) is None and not is_value
    return _job_items(begun) if is_job else []


def _job_items(begun: str) -> list[CompletionItem[str]]:
    from trainmaster.completing import job_words

    return [CompletionItem(word, help=said) for word, said in job_words(os.environ, begun)]


def _plain_words(words: Sequence[str]) -> int | None:
    """How many words are no options and no values of options; None: that takes the command to know."""
    if any(word.startswith("-") and word not in _FLAGS and "=" not in word for word in words):
        return None if len(words) > 1 else 0
    return sum(not word.startswith("-") for word in words)
