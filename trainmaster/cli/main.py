"""Which commands are there? Each is imported only when it is called: a command must feel instant."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from trainmaster import __version__
from trainmaster.quick_imports import import_asyncio, import_msgspec

#: name → (module, what it does). The sentences are checked against the commands by a test.
COMMANDS = {
    "run": ("submitting", "Submit a job and follow it to its end."),
    "submit": ("submitting", "Submit a job and return at once."),
    "study": ("studying", "Try a job with every combination of some parameters."),
    "resume": ("again", "Go on with a job or study that was stopped or failed."),
    "rerun": ("again", "Run a job again as its record says."),
    "list": ("looking", "Show jobs, newest first."),
    "show": ("looking", "Show everything about one job, or about one study."),
    "why": ("looking", "Tell a job's story: what happened, and why."),
    "logs": ("following", "Print what a job printed."),
    "wait": ("following", "Wait until jobs have finished, and all jobs of studies."),
    "stop": ("following", "Ask jobs to stop, gracefully, and all jobs of studies."),
    "checkpoints": ("looking", "Show a job's committed checkpoints."),
    "metrics": ("looking", "Show what a job measured."),
    "compare": ("comparing", "Show side by side how jobs differ and what came of it."),
    "best": ("comparing", "Name the job with the lowest or highest value of a metric."),
    "diff": ("differing", "Show what differs between two jobs: parameters, code, results."),
    "pull": ("fetching", "Copy what a job made into a folder."),
    "export": ("moving", "Write a job with everything it left into one file."),
    "import": ("moving", "Take in a job that `export` wrote."),
    "du": ("keeping", "Show how much room jobs take, the largest first."),
    "prune": ("keeping", "Remove old jobs and what nobody needs any more."),
    "delete": ("keeping", "Delete finished jobs with everything they left."),
    "completion": ("shells", "Print a script that lets your shell complete commands and jobs."),
    "envs": ("environments", "Show or remove the environments built on this machine."),
    "doctor": ("fetching", "Check this installation and this machine."),
}

#: modules of commands that make jobs; `start` knows the commands by name
_SUBMITTING = {"submitting", "studying", "again"}

#: Set by the script that `completion` prints: a shell asks what could come next.
COMPLETE_VARIABLE = "_TRAINMASTER_COMPLETE"

_FULL = {errno.ENOSPC, errno.EDQUOT}


class ReaderGone(Exception):
    """Nobody reads our output any more."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def invoke(self, ctx: click.Context) -> Any:
        """Take a broken pipe out of click's hands: it would call it a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order a job's life has."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module that holds the command."""
        if cmd_name not in COMMANDS:
            return None
        import_msgspec()
        import_asyncio()
        module = import_module(f"trainmaster.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command for a typo."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`trainmaster --help` lists the commands"
            raise click.UsageError(f'there is no command "{args[0]}"; {hint}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """One line each, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="trainmaster")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Managed training on machines you own or rent.

    \b
    trainmaster run train.py -- --lr 0.1    train, keep everything, survive a kill
    trainmaster why last                    what happened, and why

    A JOB is named by its id, the first letters of it, its name, or `last`; a STUDY likewise, but for `last`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. A user's mistake is one sentence and a hint, never a traceback."""
    _have_streams()
    if COMPLETE_VARIABLE in os.environ:
        import_msgspec()
        from trainmaster.cli.shells import answer_shell

        sys.exit(answer_shell(cli, os.environ[COMPLETE_VARIABLE]))
    status = _run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody takes what is still buffered; Python would complain at exit
    sys.exit(status)


def _have_streams() -> None:
    """Output has somewhere to go, whatever we were started with: closed streams, a terminal that knows only ASCII."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _run(words: list[str]) -> int:
    """Exit codes: 2, the user can mend it; 130, interrupted; 5, other trouble; the rest is the command's answer."""
    from trainmaster.errors import TrainmasterError, UserError

    try:
        for word in words:
            if word.encode(errors="replace").decode() != word:
                raise click.UsageError(f'the argument "{word}" is not UTF-8 text')
        status: Any = cli.main(args=words, prog_name="trainmaster", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        _tell(error.format_message(), _usage_hint(error))
        return 2
    except (click.Abort, KeyboardInterrupt):
        if words and COMMANDS.get(words[0], ("",))[0] in _SUBMITTING:  # who has a job to speak of has caught it
            from trainmaster.cli import render

            render.interrupted("interrupted; nothing was submitted")
        return 130
    except (ReaderGone, BrokenPipeError):
        return 0  # whoever read our output has seen enough
    except TrainmasterError as error:
        _tell(error.sentence, error.hint)
        return 2 if isinstance(error, UserError) else 5
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _tell(f"{error.strerror or error}{where}", "free some space on that disk" if error.errno in _FULL else "")
        return 5


def _tell(sentence: str, hint: str) -> None:
    from trainmaster.cli import render

    render.error(sentence, hint)


def _usage_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{context.command_path} --help says how" if context is not None else "trainmaster --help says how"
