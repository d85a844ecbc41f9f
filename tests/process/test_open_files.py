"""Files that stay open in the checkpoint folder: a log does not hold up commits, a writer does, and that is said."""

from __future__ import annotations

import pytest
from process.scripts import COUNT

pytestmark = pytest.mark.process


def test_a_log_kept_open_in_the_checkpoint_folder_holds_up_nothing(world):
    script = COUNT.replace("while step < last:", 'log = open(os.path.join(folder, "train.log"), "a")\nwhile step < last:', 1)
    script = script.replace('    print(f"step', '    log.write(f"{step} ")\n    log.flush()\n    print(f"step', 1)
    job = world.submit(world.job_file(script, arguments=["3"]))
    for step in (1, 2):
        world.open_gate(step)
        world.until_committed(job, str(step))
    world.until_committed(job, "1 2 ", name="train.log")
    world.open_gate(3)
    assert world.wait(job)["outcome"] == "succeeded"


def test_a_file_that_is_never_closed_is_a_warning(world):
    script = COUNT.replace("while step < last:", 'kept = open(os.path.join(folder, "kept"), "wb")\nwhile step < last:', 1)
    job = world.submit(world.job_file(script, arguments=["2"], checkpoints={"settle": 0.05}))
    world.open_gate(1)
    world.until("the user is told", lambda: "kept is still open" in " ".join(world.heartbeat(job).get("warnings", [])))
    assert "kept is still open" in " ".join(world.cli("show", job).stdout.decode().split())
    assert world.commits(job) == []
    world.open_gate(2)
    assert world.wait(job)["outcome"] == "succeeded"
    assert world.committed(job) == "2"
