"""What is known of the job's processes; asked in a process of its own, because it waits for every child there is."""

from __future__ import annotations

import subprocess
import sys

WRITER = """
import sys, time
file = open(sys.argv[1], "wb", buffering=0)
file.write(b"half")
print("written", flush=True)
time.sleep(600)
"""

ASKED = f"""
import os, signal, sys, threading
from pathlib import Path
from trainmaster.runner.process import JobProcess
folder, ended = Path(sys.argv[1]), threading.Event()
job = JobProcess("job", None)
source, sink = os.pipe()
command = [sys.executable, "-c", {WRITER!r}, str(folder / "state")]
job.start(command, dict(os.environ), folder, sink, lambda _: ended.set())
assert os.read(source, 7) == b"written"
print(job.writes(folder), "|", job.writes(folder / "elsewhere"))
[pid] = job.pids()
os.kill(pid, signal.SIGSTOP)
os.kill(pid, signal.SIGKILL)
while job.writes(folder).startswith("state"):
    pass
print(job.writes(folder))
ended.wait()
print(job.writes(folder))
"""


def test_files_of_a_script_that_has_just_ended_are_not_known_to_be_whole(tmp_path):
    done = subprocess.run([sys.executable, "-c", ASKED, tmp_path], capture_output=True, timeout=60, text=True)
    assert done.stdout.splitlines() == [
        "state is still open for writing | ",
        "a process of the job has just ended",
        "a process of the job has just ended",
    ], done.stderr
