"""Every byte a job prints arrives, in order, whatever it is and however fast it comes."""

from __future__ import annotations

import hashlib
import subprocess

import pytest
from process.world import COMMAND

pytestmark = pytest.mark.process

GARBAGE = """
import os, random
rng = random.Random(7)
for size in (1, 3, 70, 5, 1000, 17):
    for _ in range(300):
        os.write(1 + size % 2, rng.randbytes(size))
os.write(1, b"no newline at the end \\xff\\x00")
"""

FLOOD = """
import os
block = bytes(range(256)) * 4096
for _ in range(200):
    view = memoryview(block)
    while view:
        view = view[os.write(1, view):]
"""

BOTH = """
import os
for n in range(500):
    os.write(1, f"out {n}\\n".encode())
    os.write(2, f"err {n}\\n".encode())
"""


def _expected(script: str) -> bytes:
    return subprocess.run(["python3", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout


@pytest.mark.parametrize("script", [GARBAGE, BOTH, "import os; os.write(1, b'x')", "pass"], ids=["garbage", "both", "one", "none"])
def test_every_byte_in_order(world, script):
    job = world.submit(world.job_file(script))
    world.wait(job)
    assert world.cli("logs", job).stdout == _expected(script)
    world.cli("logs", job, "--json")


def test_a_flood_arrives_whole(world):
    job = world.submit(world.job_file(FLOOD))
    world.wait(job)
    printed = subprocess.Popen([COMMAND, "logs", job], env=world.environ, stdout=subprocess.PIPE)
    digest, size = hashlib.sha256(), 0
    while block := printed.stdout.read(1 << 20):
        digest.update(block)
        size += len(block)
    printed.stdout.close()
    assert printed.wait() == 0
    assert size == 200 << 20
    assert digest.hexdigest() == hashlib.sha256(bytes(range(256)) * 4096 * 200).hexdigest()


def test_what_was_printed_before_a_crash_of_the_script_is_there(world):
    job = world.submit(world.job_file("import os; os.write(1, b'last words'); os.kill(os.getpid(), 9)"))
    world.wait(job, expect=1)
    assert world.cli("logs", job).stdout == b"last words"


def test_run_prints_what_the_job_prints(world):
    done = world.cli("run", world.job_file(GARBAGE))
    assert done.stdout == _expected(GARBAGE)


def test_a_reader_that_goes_away_ends_the_command_but_not_the_job(world):
    """`trainmaster run job.yaml | head -1`: the job goes on, and somebody drives it."""
    from process.scripts import COUNT

    process = subprocess.Popen(
        [COMMAND, "run", world.job_file(COUNT, arguments=["3"])], cwd=world.source, env=world.environ, stdout=subprocess.PIPE
    )
    world.started.append(process)
    assert process.stdout.readline().startswith(b"attempt 1")
    process.stdout.close()
    world.open_gate(2)
    process.wait(30)
    [job] = world.ids()
    world.open_gate(3)
    record = world.until_finished(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
