"""A shell between runner and script: it dies of SIGTERM at once, and what it started still gets the grace."""

from __future__ import annotations

import pytest
from process.scripts import POLITE

pytestmark = pytest.mark.process


@pytest.mark.parametrize("command", ["python polite.py 0 && echo never", "entry"])
def test_what_a_shell_started_may_save_too(world, command):
    world.write("polite.py", POLITE)
    world.write("start.sh", "python polite.py 0\necho never\n")
    fields = {"entry_point": "start.sh"} if command == "entry" else {"command": command}
    job = world.submit(world.spec_file(name="shell", checkpoints={"settle": 0.1}, **fields))
    world.script_pid(job)
    [record] = world.json("stop", job, "--wait")
    assert (record["outcome"], len(record["attempts"])) == ("stopped", 1)
    assert world.log(job).endswith("saved\n")
    assert world.committed(job) == "final, told 1 times"
