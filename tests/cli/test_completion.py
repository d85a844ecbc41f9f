"""Does TAB offer what could come next? Asked of a real bash; zsh and fish are asked by the system tests."""

from __future__ import annotations

import subprocess

import click
import pytest
from cli.terminal import run_cli
from process.world import COMMAND

from trainmaster.cli.main import COMMANDS, cli
from trainmaster.cli.shells import JOBS, SHELLS

pytestmark = pytest.mark.process


def offered(world, *words, cwd=None):
    """What bash offers for the last word."""
    script = """
eval "$("$1" completion bash)"; shift
PATH=$1:$PATH; shift
COMP_WORDS=(trainmaster "$@"); COMP_CWORD=$#; COMPREPLY=()
compopt() { local IFS=' '; echo "compopt $*"; }
_trainmaster_completion trainmaster
printf '%s\\n' "${COMPREPLY[@]}"
"""
    command = ["bash", "-c", script, "bash", COMMAND, COMMAND.parent, *words]
    done = subprocess.run(command, env=world.environ, cwd=cwd or world.source, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return [line for line in done.stdout.decode().splitlines() if line]


def test_commands(strict):
    assert offered(strict, "") == list(COMMANDS)
    assert offered(strict, "s") == [name for name in COMMANDS if name.startswith("s")]
    assert offered(strict, "nothing") == []
    assert offered(strict, "--v") == ["--version"]


def test_options_and_their_values(strict):
    assert offered(strict, "list", "--ph") == ["--phase"]
    assert offered(strict, "list", "--phase", "") == ["queued", "placing", "starting", "running", "stopping", "finished"]
    assert offered(strict, "prune", "--outcome", "f") == ["failed"]
    assert offered(strict, "completion", "") == list(SHELLS)
    assert offered(strict, "pull", "x", "--only", "ch") == ["checkpoint"]
    assert "--keep-models" in offered(strict, "prune", "-")


def test_jobs(scene):
    everything = {scene.good, scene.again, scene.bad, scene.running, scene.queued}
    assert set(offered(scene.world, "show", "")) == {*everything, "good", "bad", "running", "queued", "last"}
    assert offered(scene.world, "show", "ba") == [scene.bad, "bad"]
    assert offered(scene.world, "logs", "-f", scene.good[:-1]) == [scene.good]
    assert offered(scene.world, "logs", "--node", "0", "ba") == [scene.bad, "bad"]
    assert offered(scene.world, "wait", scene.good, "l") == ["last"]
    assert offered(scene.world, "diff", "last", "ba") == [scene.bad, "bad"]
    assert offered(scene.world, "show", scene.good, "") == [], "it takes one"
    assert offered(scene.world, "list", "--tag", "team=") == offered(scene.world, "list", "--tag", "team")
    assert set(offered(scene.world, "list", "--tag", "te")) == {"team=vision", "team=audio"}


def test_files_are_left_to_the_shell(strict):
    assert offered(strict, "run", "tr") == ["compopt -o default"]
    assert offered(strict, "import", "") == ["compopt -o default"]
    assert offered(strict, "pull", "job", "") == ["compopt -o dirnames"]


def test_a_home_that_is_not_there_is_not_made(world):
    assert offered(world, "show", "") == []
    assert not world.home.exists()
    (world.home).mkdir()
    (world.home / "trainmaster.db").write_bytes(b"no database")
    assert offered(world, "show", "") == []
    (world.home / "trainmaster.db").unlink()


def test_every_command_that_takes_jobs_offers_them():
    context = click.Context(cli)
    taking = {}
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        jobs = [p for p in command.params if isinstance(p, click.Argument) and p.name in {"job", "jobs", "one", "other"}]
        if jobs:
            taking[name] = 1000 if jobs[0].nargs == -1 else len(jobs)
    assert taking == JOBS


def test_the_scripts(strict):
    for shell, word in zip(SHELLS, ("complete -o nosort -F", "#compdef trainmaster", "complete --no-files"), strict=True):
        answer = run_cli(strict, "completion", shell)
        assert (answer.code, word in answer.out) == (0, True)
        assert strict.json("completion", shell) == {"shell": shell, "script": answer.out}
    assert run_cli(strict, "completion", "tcsh").code == 2


def test_an_answer_comes_at_once(scene):
    """CPU seconds of one press of TAB, the best of five; nothing heavy is loaded for it."""
    import resource

    environ = {"_TRAINMASTER_COMPLETE": "bash_complete", "COMP_WORDS": "trainmaster show ba", "COMP_CWORD": "2"}
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert scene.bad in run_cli(scene.world, env=environ).out
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.15, spent
