"""Bad scripts, job files and flags: is each answered in one sentence, with nothing done?"""

from __future__ import annotations

import os
import resource

import pytest
from cli.terminal import refused, run_cli

pytestmark = pytest.mark.process

#: file name → (bytes, what is said)
FILES = {
    "tabs.yaml": (b"name: x\n\tcommand: python\n", ["tabs.yaml", "line 2", "tab", "spaces"]),
    "twice.yaml": (b"name: x\ncommand: a\nname: y\n", ["twice.yaml", "line 3", '"name" is given twice', "line 1"]),
    "empty.yaml": (b"", ["empty.yaml", "empty", "`command` or `entry_point`"]),
    "comment.yaml": (b"# nothing\n", ["comment.yaml"]),
    "list.yaml": (b"- a\n- b\n", ["list.yaml", "a list", "mapping"]),
    "word.yaml": (b"hello\n", ["word.yaml", "mapping"]),
    "latin.yaml": (b"name: caf\xe9\n", ["latin.yaml", "not UTF-8", "save it as UTF-8"]),
    "flow.yaml": (b"command: [a\n", ["flow.yaml", "line"]),
    "anchor.yaml": (b"command: *nothing\n", ["anchor.yaml", "line 1", "*nothing"]),
    "two.yaml": (b"command: a\n---\ncommand: b\n", ["two.yaml"]),
    "tag.yaml": (b"command: !!python/object/apply:os.system [echo]\n", ["tag.yaml"]),
    "typo.yaml": (b"comand: a\nretries: 3\n", ["comand: unknown field; did you mean `command`?", "did you mean `retry`?"]),
    "inner.yaml": (b"command: a\nretry: {failure: 3}\n", ["retry.failure", "unknown field", "`failures`"]),
    "type.yaml": (b"command: a\nretry: {failures: many}\n", ["retry.failures", '"many"', "whole number"]),
    "range.yaml": (b"command: a\ncheckpoints: {keep: 0}\n", ["checkpoints.keep", "found 0"]),
    "shape.yaml": (b"command: a\nretry: [1]\n", ["retry", "a list"]),
    "nothing.yaml": (b"name: x\n", ["command", "entry_point", "exactly one"]),
    "both.yaml": (b"command: a\nentry_point: train.py\n", ["command", "entry_point", "exactly one"]),
    "broken.json": (b'{"command": "a",', ["broken.json", "line 1"]),
    "list.json": (b"[1]", ["list.json", "mapping"]),
    "deep.json": (b'{"a":' * 50_000, ["deep.json", "deep"]),
    "deep.yaml": (b"a: " + b"[" * 50_000, ["deep.yaml", "deep"]),
    "binary.json": (bytes(range(256)), ["binary.json", "UTF-8"]),
    "gone.yaml": (b"entry_point: gone.py\n", ["entry_point", "gone.py", "not a file"]),
    "outside.yaml": (b"entry_point: ../train.py\n", ["entry_point", "`..`"]),
    "nowhere.yaml": (b"command: a\nsource_dir: nowhere\n", ["source_dir", "nowhere", "not a folder"]),
    "image.yaml": (b"command: a\nenvironment: {image: x}\n", ["provider local does not support environment.image yet"]),
    "nodes.yaml": (b"command: a\nresources: {nodes: 2}\n", ["provider local does not support resources.nodes yet"]),
    "market.yaml": (b"command: a\nmarket: {kind: spot}\npool: x\n", ["does not support market.kind yet", "not support pool yet"]),
    "provider.yaml": (b"command: a\nprovider: locl\n", ["provider", '"locl"', "did you mean `local`?"]),
    "owned.yaml": (b"command: a\nenv: {TM_JOB: x}\n", ["env.TM_JOB", "set by Trainmaster"]),
}


#: words after `submit` → what is said
FLAGS = {
    ("missing.py",): ["missing.py does not exist"],
    ("trian.py",): ["trian.py does not exist", "did you mean train.py?"],
    ("nowhere/train.py",): ["nowhere/train.py does not exist"],
    ("train.py/x.py",): ["train.py/x.py does not exist"],
    ("missing.yaml",): ["missing.yaml does not exist"],
    (".",): [". is a folder", "name a script or a job file in it"],
    ("x" * 300 + ".py",): ["File name too long"],
    ("train.py", "--name", "a/b"): ["name", '"a/b"', 'contains "/"'],
    ("train.py", "--name", "../../etc"): ["name", "wanted 1 to 63"],
    ("train.py", "--name", "naïve"): ["name", "naïve", 'contains "ï"'],
    ("train.py", "--name", "模型"): ["name", "模型"],
    ("train.py", "--name", "x" * 300): ["name", "300 characters", "1 to 63"],
    ("train.py", "--name", ""): ["name"],
    ("train.py", "--name", "-"): ["name"],
    ("train.py", "--env", "NOEQUALS"): ["--env", "NOEQUALS is not set here", "--env NOEQUALS=VALUE"],
    ("train.py", "--env", "=x"): ["env"],
    ("train.py", "--env", "1A=x"): ["env", "1A"],
    ("train.py", "--env", "A B=x"): ["env", "A B"],
    ("train.py", "--env", "TM_HOME=/tmp"): ["env.TM_HOME", "set by Trainmaster", "Choose another name"],
    ("train.py", "--env", "SM_MODEL_DIR=/tmp"): ["env.SM_MODEL_DIR"],
    ("train.py", "--env", "RANK=1"): ["env.RANK"],
    ("train.py", "--env", "CUDA_VISIBLE_DEVICES=1"): ["env.CUDA_VISIBLE_DEVICES", "resources.gpus"],
    ("train.py", "--tag", "x"): ["--tag", '"x"', "NAME=VALUE"],
    ("train.py", "--hp", "x"): ["--hp", '"x"', "NAME=VALUE"],
    ("train.py", "--cpus", "64"): ["resources.cpus: 64 wanted, but this machine has 4", "ask for less"],
    ("train.py", "--gpus", "1"): ["resources.gpus: 1 wanted, but this machine has 0"],
    ("train.py", "--memory", "900TiB"): ["resources.memory: 921600.0 GiB wanted, but this machine has"],
    ("train.py", "--memory", "lots"): ["resources.memory", '"lots"', "16GiB"],
    ("train.py", "--cpus", "many"): ["--cpus", "many"],
    ("train.py", "--cpus", "nan"): ["resources.cpus", "finite"],
    ("train.py", "--cpus", "0"): ["resources.cpus", "more than 0"],
    ("train.py", "--failures", "-1"): ["retry.failures", "-1"],
    ("train.py", "--max-run", "soon"): ["limits.run", '"soon"', "2h"],
    ("train.py", "--source-dir", "nowhere"): ["--source-dir", "nowhere is not a folder"],
    ("train.py", "--source-dir", "train.py"): ["--source-dir", "train.py is not a folder"],
    ("train.py", "--source-dir", "/usr/share"): ["--source-dir", "train.py does not lie in /usr/share"],
    ("train.py", "--in-plce"): ["No such option", "--in-place"],
    (): ["Missing argument", "SCRIPT|JOB_FILE", "trainmaster submit --help"],
}


@pytest.mark.parametrize("words", FLAGS, ids=lambda words: " ".join(words)[:40])
def test_bad_flags(strict, words):
    refused(strict, "submit", *words, says=FLAGS[words])


#: file name → (bytes, what is said)
SCRIPTS = {
    "binary.py": (bytes(range(256)), ["entry_point", "binary.py is not a Python script", "binary data"]),
    "data.csv": (b"a,b\n1,2\n", ["data.csv is neither a job file (.yaml, .json) nor a script"]),
    "notes.txt": (b"hello\n", ["notes.txt is neither"]),
    "prose.py": (b"Dear diary,\ntoday I trained.\n", ["prose.py is not a Python script: line 1"]),
    "later.py": (b"x = 1\nif x:\nprint(x)\n", ["later.py is not a Python script: line 3", "indented"]),
    "latin.py": (b"x = '\xe9'\n", ["latin.py is not a Python script", "utf-8"]),
}


@pytest.mark.parametrize("name", [*FILES, *SCRIPTS])
def test_job_files_and_scripts_that_are_none(strict, name):
    content, says = {**FILES, **SCRIPTS}[name]
    path = strict.source / name
    path.write_bytes(content)
    try:
        refused(strict, "submit", name, says=says)
    finally:
        path.unlink()


def test_files_that_are_no_files(strict):
    fifo = strict.source / "fifo.yaml"
    os.mkfifo(fifo)
    try:
        refused(strict, "submit", "fifo.yaml", says=["fifo.yaml is not a file"])
    finally:
        fifo.unlink()


@pytest.mark.parametrize("name", ["empty.py", "my script é.py", "-dash.py", "模型.py", "a'b\"c$(d).py", "run"])
def test_odd_names_are_fine(world, name):
    text = "" if name == "empty.py" else "print('ran')\n"
    path = world.write(name, ("#!/bin/sh\necho ran\n" if name == "run" else text))
    path.chmod(0o755)
    words = ["--", name] if name.startswith("-") else [name]
    answer = run_cli(world, "run", *words)
    assert answer.code == 0, answer
    assert answer.out == ("" if name == "empty.py" else "ran\n")


def test_a_bomb_of_anchors_is_refused_in_little_time_and_memory(strict):
    lines = ["a: &a [" + ",".join(["x"] * 100) + "]"]
    lines += [f"{chr(97 + n)}: &{chr(97 + n)} [{','.join(['*' + chr(96 + n)] * 100)}]" for n in range(1, 12)]
    small = "\n".join(lines) + "\n"
    path = strict.source / "bomb.yaml"
    try:
        path.write_text(small)
        refused(strict, "submit", "bomb.yaml", says=["bomb.yaml", "values"], preexec_fn=_little)
        path.write_text(small + "# more\n" * (10_000_000 // 7))
        refused(strict, "submit", "bomb.yaml", says=["bomb.yaml", "larger than 4 MiB"], preexec_fn=_little)
        path.write_text("command: a\nenv:\n" + "".join(f"  A{n}: &a{n} x\n" for n in range(100_000)))
        refused(strict, "submit", "bomb.yaml", says=["bomb.yaml", "at most 1048576"], preexec_fn=_little)
    finally:
        path.unlink()


def _little():
    """The kernel ends whoever wants more: time of its own, whatever else the machine does, and memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("rnu train.py", ['no command "rnu"', "did you mean `run`?"]),
        ("lsit", ["did you mean `list`?"]),
        ("frobnicate", ['no command "frobnicate"', "lists the commands"]),
        ("--verzion", ["No such option", "--version"]),
        ("list --nmae x", ["--name"]),
        ("list --phase runing", ["--phase", "'running'"]),
        ("list --outcome ok", ["--outcome", "'succeeded'"]),
        ("list --since yesterday", ["--since", '"yesterday"', "7d", "2026-01-31"]),
        ("list --since 2026-13-45", ["--since"]),
        ("list --since 99999999d", ["--since"]),
        ("list --limit 0", ["--limit"]),
        ("list --tag x", ["--tag", "NAME=VALUE"]),
        ("logs", ["Missing argument", "JOB"]),
        ("logs last --node x", ["--node"]),
        ("logs last --node -1", ["--node"]),
        ("wait last --timeout soon", ["--timeout"]),
        ("wait last --timeout -1", ["--timeout"]),
        ("pull last x --only everything", ["--only", "'model'"]),
        ("show a b", ["unexpected extra argument"]),
    ],
)
def test_bad_words(strict, words, says):
    refused(strict, *words.split(), says=says)


def test_an_argument_that_is_no_text(strict):
    refused(strict, "show", "a\udcff", says=["is not UTF-8 text"])
    refused(strict, "submit", "train.py", "--env", "A=\udcff", says=["is not UTF-8 text"])


def test_looks_that_ask_for_what_is_not_there(scene, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    world, target = scene.world, str(tmp_path / "new")
    refusals = {
        ("logs", scene.good, "--attempt", "2"): ["--attempt", "one attempt"],
        ("logs", scene.good, "--node", "1"): ["--node", "one machine"],
        ("pull", scene.bad, target): ["has no model or output or working to pull", f"trainmaster show {scene.bad}"],
        ("pull", scene.running, target): ["has not finished", f"trainmaster wait {scene.running}"],
        ("pull", scene.bad, target, "--only", "checkpoint"): ["has no committed checkpoint"],
        ("pull", scene.good, target, "--checkpoint", "9-000009"): ["no committed checkpoint 9-000009", "lists them"],
        ("pull", scene.good, target, "--checkpoint", "../../.."): ["--checkpoint", "1-000001"],
        ("pull", scene.good, str(tmp_path / "full")): ["is there already", "--force"],
        ("pull", scene.good, str(tmp_path / "full" / "file")): ["is not a folder"],
    }
    for words, says in refusals.items():
        refused(world, *words, says=says)
    refused(world, "pull", scene.good, str(tmp_path / "full" / "file" / "x"), says=["Not a directory"], code=5)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full"]
