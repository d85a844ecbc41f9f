"""zsh and fish: do they offer what could come next?"""

from __future__ import annotations

import subprocess

import pytest
from process.world import COMMAND

pytestmark = [pytest.mark.system, pytest.mark.process]


def ask(world, *command):
    environ = {**world.environ, "PATH": f"{COMMAND.parent}:{world.environ['PATH']}", "HOME": str(world.folder)}
    done = subprocess.run(command, env=environ, cwd=world.source, capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


@pytest.fixture
def job(world):
    return world.wait(world.submit(world.job_file("print(1)", name="mnist")))["id"]


def test_fish(world, job):
    script = 'trainmaster completion fish | source; complete -C "$argv[1]"'
    asked = {"trainmaster sh": ["show"], "trainmaster show mn": [job, "mnist"], "trainmaster list --ph": ["--phase"]}
    for line, wanted in asked.items():
        found = [row.split("\t")[0] for row in ask(world, "fish", "-c", script, line).splitlines()]
        assert sorted(found) == sorted(wanted), line


ZSH = """
autoload -Uz compinit; compinit -u -D
compdef() { :; }
eval "$(trainmaster completion zsh)"
unfunction compdef
compadd() { print -rl -- "${(@)completions}"; }
_describe() { print -rl -- "${(@)completions_with_descriptions}"; }
words=("$@"); CURRENT=$#
_trainmaster_completion
"""


def test_zsh(world, job):
    """The function itself, with zsh's own words around it."""
    assert "show:Show everything about one job, or about one study." in ask(world, "zsh", "-c", ZSH, "zsh", "trainmaster", "sh")
    assert job in ask(world, "zsh", "-c", ZSH, "zsh", "trainmaster", "show", "mn")
