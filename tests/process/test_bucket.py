"""The same job with a real S3 server as its store: killed, resumed, read, pulled; and the server away for a while."""

from __future__ import annotations

import os
import signal

import pytest
from process.scripts import COUNT
from process.world import steps

from trainmaster.testing.s3_server import s3_server

pytestmark = pytest.mark.process


@pytest.fixture
def bucket(world, tmp_path):
    """A world whose store is a bucket."""
    with s3_server(tmp_path / "s3") as server:
        world.environ |= {
            "TRAINMASTER_STORE": f"{server.url}/team/a",
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
        yield server


def test_a_job_lives_in_a_bucket(world, bucket):
    job = world.submit(world.job_file(COUNT, arguments=["4"], retry={"failures": 1}))
    world.open_gate(2)
    world.until("a commit", lambda: world.json("checkpoints", job))
    world.kill(*world.processes(job, 1))
    state = world.home / "machines" / f"{job}-a2" / "home" / "checkpoints" / "state"
    world.until("attempt 2 restored the commit", lambda: state.exists() and state.read_text() == "2" and world.processes(job, 2))
    # The server is asleep while the script goes on: it does not wait for the store, and everything arrives later.
    os.kill(bucket.pid, signal.SIGSTOP)
    world.open_gate(3)
    world.until("the script went on alone", lambda: state.read_text() == "3")
    os.kill(bucket.pid, signal.SIGCONT)
    world.open_gate(4)
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 2)
    assert record["attempts"][1]["resumes"]["id"] == "1-000001"
    assert steps(world.cli("logs", job).stdout.decode()) == [1, 2, 3, 4]
    world.cli("pull", job, "got", "--only", "checkpoint")
    assert any(path.is_file() for path in (world.source / "got" / "checkpoint").rglob("*"))
    assert not world.store.exists()


def test_keeping_house_in_a_bucket(world, bucket, tmp_path):
    """What is deleted, pruned, written into a file and taken in is the same as in a folder."""
    script = (
        "import os\nfor name in ('SM_MODEL_DIR', 'TM_CHECKPOINT_DIR'):\n    open(os.environ[name] + '/x', 'w').write('x' * 1000)"
    )
    file = world.job_file(script)
    first, second = (world.wait(world.submit(file))["id"] for _ in range(2))
    usage = world.json("du")
    assert {one["job"]: one["model"] for one in usage["jobs"]} == {first: 1000, second: 1000}
    assert all(one["is_code_shared"] for one in usage["jobs"])
    assert usage["store_total"] == sum(one["total"] for one in usage["jobs"]) + usage["shared_code"]
    world.cli("export", first, "-o", str(tmp_path / "first.tar"))
    world.cli("delete", "--yes", first)
    assert [one["job"] for one in world.json("du")["jobs"]] == [second]
    world.cli("import", str(tmp_path / "first.tar"))
    world.cli("pull", first, "got", "--only", "model")
    thinned = world.json("prune", "--older-than", "0s", "--keep-models", "--yes")
    assert {item["name"] for item in thinned["items"]} == {first, second}
    assert {one["checkpoints"] for one in world.json("du")["jobs"]} == {0}
    world.cli("prune", "--older-than", "0s", "--yes")
    assert world.json("du")["store_total"] == 0
    assert not world.store.exists()
