"""Are the words of tools read to their end, kept within bounds, and never with a secret?"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trainmaster.adapters.environments.tool import Tools
from trainmaster.adapters.environments.trouble import EnvironmentTrouble, Secrets

#: hands its pipes on to a process that outlives its group, says who that is, and ends
HANDED_ON = 'import subprocess, sys; p = subprocess.Popen(["sleep", "600"], start_new_session=True); print("pid", p.pid)'

#: a tool's words in a process of their own: the memory that took, how much was shown, whether a secret was, and the last word
MEASURED = """
import os, sys
from trainmaster.adapters.environments.tool import Tools
from trainmaster.adapters.environments.trouble import Secrets

log = []
words = [sys.executable, "-c", sys.argv[1]]
said = Tools(log.append, Secrets({"PW": "hunter22"}), lambda: True, lambda: None).ask(words, os.environ, "/", shows_output=True)
text = "".join(log)
has_secret = "hunter22" in text + said.output
# Not ru_maxrss: that counts the memory of pytest, from which the process was forked, as well.
peak_kb = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak_kb >> 10, len(text), has_secret, said.output.split()[-1])
"""


def tools(log=None, secret="hunter22"):
    return Tools((log if log is not None else []).append, Secrets({"PW": secret}), lambda: True, lambda: None)


def ask(code, *, shows_output, log=None):
    words = [sys.executable, "-c", code]
    return tools(log).ask(words, os.environ, "/", shows_output=shows_output)


def end(text):
    subprocess.run(["kill", text.split()[1]], check=True)


def test_an_answer_that_may_go_on_is_none():
    log: list[str] = []
    code = HANDED_ON + "; print('pid', p.pid, file=sys.stderr)"
    with pytest.raises(EnvironmentTrouble, match="still holds its output"):
        ask(code, shows_output=False, log=log)
    end("".join(log))


def test_what_is_only_shown_is_taken_as_far_as_it_came():
    said = ask(HANDED_ON, shows_output=True)
    assert said.code == 0
    end(said.output)


def test_an_answer_is_read_to_its_end():
    assert len(ask("print('x' * 10_000_000, end='')", shows_output=False).output) == 10_000_000


def test_an_answer_beyond_all_measure_is_refused():
    with pytest.raises(EnvironmentTrouble, match="more than 64 MiB"):
        ask("import os\nwhile True: os.write(1, b'x' * (1 << 20))", shows_output=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_line_that_does_not_end_takes_little_memory_and_shows_no_secret():
    code = "import os\nfor _ in range(300): os.write(1, b'x' * 999_995 + b'hunter22')\nos.write(1, b'\\nlast\\n')"
    done = subprocess.run([sys.executable, "-c", MEASURED, code], capture_output=True, text=True, check=True)
    megabytes, shown, has_secret, last = done.stdout.split()
    assert int(megabytes) < 150
    assert int(shown) < 1 << 20, "one line of that length is enough for nobody to read"
    assert (has_secret, last) == ("False", "last")


@pytest.mark.parametrize("cut", range(8))
def test_half_a_secret_is_not_shown_where_a_line_is_cut(cut):
    log: list[str] = []
    ask(f"print('x' * (65_536 - {cut}) + 'hunter22' * 20_000)", shows_output=True, log=log)
    assert "hunt" not in "".join(log)


def test_what_overwrites_its_line_is_passed_on_as_it_comes():
    log: list[str] = []
    ask("for n in range(50_000): print(f'{n:10}', end='\\r')", shows_output=True, log=log)
    assert "49999" in "".join(log)
