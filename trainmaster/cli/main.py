"""Which commands are there? Each is imported only when it is called: a command must feel instant."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from trainmaster.quick_imports import import_msgspec

#: name → (module, what it does). The sentences are checked against the commands by a test.
COMMANDS = {
    "run": ("submitting", "Submit a job and follow it to its end."),
    "submit": ("submitting", "Submit a job and return at once."),
    "list": ("looking", "Show jobs, newest first."),
    "show": ("looking", "Show everything about one job."),
    "why": ("looking", "Tell a job's story: what happened, and why."),
    "logs": ("following", "Print what a job printed."),
    "wait": ("following", "Wait until a job has finished."),
    "stop": ("following", "Ask jobs to stop, gracefully."),
    "checkpoints": ("looking", "Show a job's committed checkpoints."),
    "metrics": ("looking", "Show what a job measured."),
    "pull": ("fetching", "Copy what a job made into a folder."),
    "doctor": ("fetching", "Check this installation and this machine."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order a job's life has."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module that holds the command."""
        if cmd_name not in COMMANDS:
            return None
        import_msgspec()
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
@click.version_option(package_name="trainmaster", prog_name="trainmaster")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Managed training on machines you own or rent.

    \b
    trainmaster run train.py -- --lr 0.1    train, keep everything, survive a kill
    trainmaster why last                    what happened, and why

    A JOB is named by its id, the first letters of it, its name, or `last`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. A user's mistake is one sentence and a hint, never a traceback."""
    from trainmaster.errors import TrainmasterError, UserError

    try:
        status: Any = cli.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; that is not an error
        sys.exit(0)
    except TrainmasterError as error:
        from trainmaster.cli import render

        render.error(error.sentence, error.hint)
        sys.exit(2 if isinstance(error, UserError) else 5)
