"""Long work on the machine is a bar on the terminal: restoring before the script starts, uploading after it has ended."""

from __future__ import annotations

import pytest
from cli.terminal import Terminal
from process.slow_line import SlowLine

from trainmaster.testing.s3_server import s3_server

pytestmark = pytest.mark.process

#: a dozen parts: a store sends several at once, and only what was sent counts
SIZE = 96 << 20

#: Attempt 1 saves a large checkpoint and waits to be killed; attempt 2 saves another and leaves a large model.
SCRIPT = f"""
import os, time
print("attempt", os.environ["TM_ATTEMPT"], "speaks", flush=True)
with open(os.path.join(os.environ["TM_CHECKPOINT_DIR"], "state"), "wb") as file:
    file.write(os.urandom({SIZE}))
if os.environ["TM_ATTEMPT"] == "1":
    time.sleep(600)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "wb") as file:
    file.write(os.urandom({SIZE}))
print("last words", flush=True)
"""


@pytest.fixture
def line(world, tmp_path):
    """A world whose store is a bucket at the end of a line that can be held."""
    with s3_server(tmp_path / "s3") as server, SlowLine(server.endpoint).open() as line:
        world.environ |= {
            # A runner that has something to tell speaks at once; so no bar waits for the next heartbeat.
            "TRAINMASTER_HEARTBEAT_S": "60",
            "TRAINMASTER_ATTEMPT_LEASE_S": "150",
            "TRAINMASTER_STORE": f"{server.url}/team/a",
            "AWS_ENDPOINT_URL": line.endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
        yield line


def _rows(output: str) -> list[list[str]]:
    """Each row of the terminal: what stood there, one after the other, each written over the one before."""
    return [row.rstrip("\r").split("\r") for row in output.split("\n")]


def _shares(rows: list[list[str]], what: str) -> list[int]:
    """How far a bar was, each time it was drawn."""
    bars = [text for row in rows for text in row if text.startswith(what)]
    return [int(bar.split("%")[0].split()[-1]) for bar in bars]


def test_long_work_on_the_machine_is_a_bar(world, line):
    """The line is held half-way through each; so each bar is seen before it is full, however fast the machine is."""
    run = Terminal(world, "run", world.job_file(SCRIPT, retry={"failures": 1}, checkpoints={"settle": 0.5}), env={"NO_COLOR": "1"})
    run.until(b"attempt 1 speaks")
    [job] = world.ids()
    world.until("it is committed", lambda: world.json("checkpoints", job))
    line.hold("down", SIZE // 2)
    line.hold("up", SIZE // 2)
    world.kill(*world.processes(job, 1))
    run.until("restoring  ━".encode())
    line.let_go("down")
    run.until("committing ━".encode())
    line.hold("up", SIZE)
    run.until("uploading  ━".encode())
    line.let_go("up")
    code, output = run.end()
    assert code == 0, output
    rows = _rows(output)
    for what in ("restoring", "committing", "uploading"):
        shares = _shares(rows, what)
        assert shares == sorted(shares), (what, shares)
        assert 0 < min(filter(None, shares)) < 100, (what, shares)
        assert shares[-1] == 100, (what, shares)
        assert shares.count(100) == 1, (what, shares)
    seen = [row[-1].strip() for row in rows]
    said = ["attempt 1 speaks", "attempt 2 speaks", "last words"]
    assert [text for text in seen if text in said] == said, output
    assert [text.split()[0] for text in seen if "━" in text] == ["restoring", "committing", "uploading"], output


def test_a_bar_goes_when_the_user_does(world, line):
    line.hold("up", SIZE // 2)
    run = Terminal(world, "run", world.job_file(SCRIPT.replace('== "1"', '== "0"')), env={"NO_COLOR": "1"})
    run.until("committing ━".encode())
    run.type(b"\x03")
    code, output = run.end()
    line.let_go("up")
    assert code == 130
    assert not [row for row in _rows(output) if "━" in row[-1]], output
    [job] = world.ids()
    assert world.wait(job)["outcome"] == "succeeded"
