"""A script that the kernel ends for lack of memory: is that said? Needs root, to make a memory control group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.process]

#: Goes into the small group alone, so that the kernel ends it and nobody else; then takes more than there is.
GREEDY = """
import os
open(os.path.join(os.environ["GROUP"], "cgroup.procs"), "w").write(str(os.getpid()))
print("begins", flush=True)
hoard = [b"x" * (1 << 20) for _ in range(256)]
print("never said", flush=True)
"""


@pytest.fixture
def group():
    """A control group with 32 MB of memory, of either version."""
    old = Path("/sys/fs/cgroup/memory")
    parent, limit = (old, "memory.limit_in_bytes") if old.exists() else (Path("/sys/fs/cgroup"), "memory.max")
    made = parent / f"trainmaster-test-{os.getpid()}"
    made.mkdir()
    try:
        if not (made / limit).exists():
            pytest.skip("the memory controller is not given to groups here")
        (made / limit).write_text(str(32 << 20))
        yield made
    finally:
        made.rmdir()


def test_the_kernels_doing_is_the_reason(world, group):
    job = world.submit(world.job_file(GREEDY, env={"GROUP": str(group)}))
    record = world.until_finished(job)
    assert (record["outcome"], record["reason"]["code"]) == ("failed", "out_of_memory")
    assert "the kernel ended a process for lack of memory" in record["reason"]["sentence"]
    assert world.log(job) == "begins\n"
