"""How does a command begin? With its answer to Ctrl-C, before anything else is loaded; then the rest."""

from __future__ import annotations

import os
import signal
import sys

#: commands that make jobs
_SUBMITTING = frozenset({"run", "submit", "study", "resume", "rerun"})


def main() -> None:
    """Run one command."""
    answers = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # who was started in the background may be told not to
    if answers:
        signal.signal(signal.SIGINT, _leave)
    from trainmaster.cli.main import main as run_command

    if answers:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


def _leave(number: int, frame: object) -> None:  # noqa: ARG001
    """Nothing was begun: say so in one line, and go."""
    what = "submitted" if sys.argv[1:2] and sys.argv[1] in _SUBMITTING else "done"
    os.write(2, f"interrupted; nothing was {what}\n".encode())
    os._exit(130)
