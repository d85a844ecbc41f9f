"""Colours, width, Ctrl-C, readers that go away: how does a command behave where it runs?"""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from cli.terminal import Terminal, assert_fits, run_cli, strays
from process.scripts import COUNT
from process.world import COMMAND, is_alive

pytestmark = pytest.mark.process


def test_colours_on_a_terminal_only(scene):
    code, output = Terminal(scene.world, "list").end()
    assert code == 0
    assert "\x1b[32msucceeded\x1b[0m" in output
    assert "\x1b[31mfailed\x1b[0m" in output
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in Terminal(scene.world, "list", env=env).end()[1]
    assert "\x1b" in Terminal(scene.world, "list", env={"NO_COLOR": ""}).end()[1], "an empty NO_COLOR is none"
    assert "\x1b[31merror:\x1b[0m" in Terminal(scene.world, "show", "nobody").end()[1]
    assert "\x1b" not in Terminal(scene.world, "show", scene.good, "--json").end()[1]


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(scene, columns):
    for words in (("list",), ("checkpoints", scene.good), ("metrics", scene.good), ("why", scene.bad), ("doctor",)):
        output = Terminal(scene.world, *words, env={"NO_COLOR": "1"}, columns=columns).end()[1]
        assert_fits(output.replace("\r", ""), columns)


def test_strangers_cannot_command_the_terminal(scene):
    """The script of this job put escape sequences into its error."""
    for words in (("show", scene.bad), ("why", scene.bad), ("list",)):
        output = Terminal(scene.world, *words, env={"NO_COLOR": "1"}).end()[1]
        assert "\x1b" not in output
        assert "\x07" not in output
    refusal = Terminal(scene.world, "show", "\x1b]0;title\x07", env={"NO_COLOR": "1"}).end()[1]
    assert "\x1b" not in refusal


def test_ctrl_c_detaches_and_the_job_can_be_followed_again(world):
    run = Terminal(world, "run", world.job_file(COUNT, arguments=["3"]))
    world.open_gate(1)
    run.until(b"step 1")
    run.type(b"\x03")
    code, output = run.end()
    [job] = world.ids()
    assert code == 130
    assert f"detached; {job} goes on" in output
    assert f"come back: trainmaster logs -f {job}" in output
    assert f"stop it:   trainmaster stop {job}" in output
    assert world.record(job)["phase"] == "running"
    script = world.script_pid(job)
    again = Terminal(world, "logs", "-f", "last")
    again.until(b"step 1")
    again.type(b"\x03")
    assert again.end()[0] == 130
    assert is_alive(script)
    last = Terminal(world, "logs", "-f", job)
    last.until(b"step 1")
    world.open_gate(3)
    code, output = last.end()
    assert (code, output.count("step 3")) == (0, 1)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)


def test_ctrl_c_while_waiting_only_ends_the_waiting(scene):
    wait = Terminal(scene.world, "wait", scene.running)
    scene.world.until("it waits", lambda: wait.has_open("trainmaster.db"))
    wait.type(b"\x03")
    code, output = wait.end()
    assert code == 130
    assert "Traceback" not in output
    assert scene.world.record(scene.running)["phase"] == "running"


def test_ctrl_c_while_packing_leaves_nothing(world):
    """A large folder takes a while to pack."""
    world.write("train.py", "print(1)")
    for number in range(20):
        with open(world.source / f"data-{number}", "wb") as file:
            file.write(os.urandom(1 << 20) * 16)
    for words in (["run"], ["submit"], ["study", "--grid", "a=1,2"]):
        run = Terminal(world, words[0], "train.py", *words[1:])
        run.until(b"packing")
        run.type(b"\x03")
        code, output = run.end()
        assert code == 130
        assert output.endswith("\ninterrupted; nothing was submitted\r\n")
        assert "Traceback" not in output
        assert world.ids() == []
        assert strays(world) == []


LOADING = """
import builtins, os, signal, sys
import trainmaster.start as start
real, left = builtins.__import__, [int(sys.argv[1])]
def loading(*args, **more):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGINT)
    return real(*args, **more)
builtins.__import__ = loading
sys.argv[1:] = sys.argv[2:]
start.main()
"""


WORDS = {"submit": ["train.py"], "study": ["train.py", "--grid", "a=1,2"], "resume": ["last"], "rerun": ["last"]}


@pytest.mark.parametrize(
    ("after", "word"), [*((after, "submit") for after in (1, 5, 20, 60, 150, 300)), (60, "study"), (60, "resume"), (60, "rerun")]
)
def test_ctrl_c_while_a_command_is_loaded_is_one_line(strict, after, word):
    """Interrupted at the n-th import."""
    command = [COMMAND.with_name("python"), "-c", LOADING, str(after), word, *WORDS[word]]
    more = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60}
    done = subprocess.run(command, env=strict.environ, cwd=strict.source, **more)
    assert (done.returncode, done.stderr.decode()) == (130, "interrupted; nothing was submitted\n")
    assert strict.ids() == []


def test_a_command_that_is_told_to_ignore_ctrl_c_does(strict):
    script = "import signal, os, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [COMMAND.with_name("python"), "-c", script, COMMAND, "list", "--json"]
    done = subprocess.run(command, env=strict.environ, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"[]\n")


def test_progress_is_a_bar_on_a_terminal_and_nothing_elsewhere(world):
    world.write("train.py", "print(1)")
    with open(world.source / "data", "wb") as file:
        file.write(os.urandom(1 << 20) * 9)
    code, output = Terminal(world, "submit", "train.py").end()
    assert code == 0
    assert "━━━━" in output
    assert "100% of 9.4 MB" in output
    assert "━" not in run_cli(world, "submit", "train.py").err


def test_a_reader_that_has_seen_enough_is_no_error(scene):
    for words in ("list", "list --json", f"logs {scene.good}", f"why {scene.bad} --json", "doctor", "--help"):
        for unbuffered in ("", "1"):
            reading, writing = os.pipe()
            os.close(reading)
            env = {"PYTHONUNBUFFERED": unbuffered}
            answer = run_cli(scene.world, *words.split(), env=env, stdout=writing)
            os.close(writing)
            assert answer.err == "", words
            assert answer.code in {0, 1} if words == "--help" else answer.code == 0, words


def test_list_into_head(scene):
    pipe = f"{COMMAND} list | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", pipe], env=scene.world.environ, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"JOB ")


def test_a_run_whose_reader_goes_away_goes_on(world):
    file = world.job_file(COUNT, arguments=["2"])
    reading, writing = os.pipe()
    command = subprocess.Popen([COMMAND, "run", file], cwd=world.source, env=world.environ, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    world.started.append(command)
    [job] = world.until("the job is there", world.ids)
    world.until_attempt(job, 1)
    os.close(reading)
    world.open_gate(1)
    err = command.communicate(timeout=60)[1]
    assert command.returncode == 0
    assert b"Traceback" not in err
    world.open_gate(2)
    assert world.until_finished(job)["outcome"] == "succeeded", "a driver took over"


@pytest.mark.parametrize("words", ["list", "list --json", "doctor", "show nobody"])
def test_streams_that_are_closed(scene, words):
    script = f"{COMMAND} {words} >&- 2>&- <&-"
    done = subprocess.run(["bash", "-c", script], env=scene.world.environ, timeout=60)
    assert done.returncode == (2 if "nobody" in words else 0)


def test_output_to_a_full_disk_is_said(scene):
    for unbuffered in ("", "1"):
        with open("/dev/full", "wb") as full:
            answer = run_cli(scene.world, "list", stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
        assert answer.code == 5
        assert "No space left on device" in answer.said


def test_a_terminal_that_knows_only_ascii(scene):
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in (("doctor",), ("list",), ("metrics", scene.good), ("show", scene.bad)):
        answer = run_cli(scene.world, *words, env=env)
        assert answer.code == 0
        assert answer.out.isascii()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_go_detaches(world, number):
    command = world.start("run", world.job_file(COUNT, arguments=["1"]), "--json")
    [job] = world.until("the job is there", world.ids)
    world.until_attempt(job, 1)
    world.kill(command.pid, number=number)
    assert command.wait(30) == 130
    assert f"trainmaster logs -f {job}" in world.output_of(command)
    world.open_gate(1)
    assert world.wait(job)["outcome"] == "succeeded"
