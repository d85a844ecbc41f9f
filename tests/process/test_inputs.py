"""Data of real jobs: linked, fetched, shared, recorded; killed and changed in the middle."""

from __future__ import annotations

import json
import os
import signal

import pytest
from adapters.data_server import data_server
from cli.terminal import Terminal

from trainmaster.spec import layout

pytestmark = pytest.mark.process

#: Prints each file of its channel and its size, then waits for its gate if it is told to.
READ = """
import os, sys, time
folder = os.environ["SM_CHANNEL_TRAINING"]
names = sorted(os.path.relpath(os.path.join(root, name), folder) for root, _, names in os.walk(folder) for name in names)
print("read", *(f"{name}:{os.path.getsize(os.path.join(folder, name))}" for name in names), flush=True)
while len(sys.argv) > 1 and int(open(os.environ["GATE"]).read()) < int(os.environ["TM_ATTEMPT"]):
    time.sleep(0.02)
"""


@pytest.fixture
def server(world):
    with data_server() as found:
        world.environ |= found.environ
        yield found


def read_lines(world, job, attempt=1):
    return [line.split()[1:] for line in world.log(job, attempt).splitlines() if line.startswith("read")]


def data_lines(world, job):
    return [line["sentence"] for line in world.story(job) if line["event"] == "data_changed"]


@pytest.mark.parametrize("provider", ["local", "simulated"])
def test_a_folder_is_linked_and_told_when_it_changes(world, provider):
    world.environ |= {"TRAINMASTER_SIMULATED_BOOT_S": "0", "TRAINMASTER_SIMULATED_PREEMPT_S": "0"}
    data = world.source / "data"
    data.mkdir()
    (data / "a.csv").write_text("hello")
    job = world.submit(world.job_file(READ, inputs={"training": "data"}, arguments=["wait"], provider=provider))
    world.until("the script read", lambda: read_lines(world, job))
    [channel] = world.home.glob("**/home/input/data/training")
    assert os.path.realpath(channel) == os.path.realpath(data)
    assert json.loads((channel.parent.parent / "config" / "inputdataconfig.json").read_text())["training"]
    (data / "a.csv").write_text("something else")
    (data / "b.csv").write_text("b")
    world.open_gate(1)
    record = world.wait(job)
    [attempt] = record["attempts"]
    found = attempt["inputs"]["training"]
    assert (found["uri"], found["files"], found["size_bytes"]) == (str(data), 1, 5)
    said = f"{data} changed while the job ran: 1 changed (a.csv), 1 added (b.csv)"
    assert found["warning"] == said
    assert data_lines(world, job) == [f"Channel training: {said}."]
    shown = world.cli("show", job).stdout.decode()
    assert f"training: 1 file, 5 B, {found['hash'][:12]} from {data}" in " ".join(shown.split())
    assert "changed while the job ran" in " ".join(shown.split())
    manifest = json.loads((world.store / layout.inputs(job, "training")).read_bytes())
    assert [one["path"] for one in manifest["objects"]] == ["a.csv"]
    assert manifest["hash"] == found["hash"]
    assert (data / "a.csv").read_text() == "something else", "the data are still there when the job's folder is gone"


def test_data_from_a_bucket_and_nothing_secret_is_kept(world, server):
    server.objects = {"data/a": b"a" * 10, "data/sub/b": b"b" * 20}
    job = world.submit(world.job_file(READ, inputs={"training": "s3://bucket/data"}))
    record = world.wait(job)
    assert read_lines(world, job) == [["a:10", "sub/b:20"]]
    [attempt] = record["attempts"]
    assert attempt["timeline"]["fetched_at"]
    assert (attempt["inputs"]["training"]["files"], attempt["inputs"]["training"]["size_bytes"]) == (2, 30)
    # The submitter's environment is kept for its owner alone until the job is over; nothing else knows the secret.
    stored = [path for path in world.home.rglob("*") if path.is_file() and path.parent.name != "environments"]
    assert not [path for path in stored if b"hunter2" in path.read_bytes()]
    # Another job by flag, from the cache, with the same data.
    again = world.wait(world.submit(world.job_file(READ, name="again"), "--input", "training=s3://bucket/data"))
    assert again["attempts"][0]["inputs"] == attempt["inputs"]
    assert set(server.sent.values()) == {1}
    assert "data.training" not in world.cli("diff", job, again["id"]).stdout.decode()
    server.objects["data/a"] = b"c" * 10
    other = world.wait(world.submit(world.job_file(READ, name="other", inputs={"training": "s3://bucket/data"})))
    assert "data.training" in world.cli("diff", job, other["id"]).stdout.decode()


def test_eight_jobs_at_once_fetch_each_object_once(world, server):
    world.environ["TRAINMASTER_CPUS"] = "8"
    server.objects = {f"data/{number}": os.urandom(10_000) for number in range(60)}
    server.go.clear()
    server.hold_after = 100
    job_file = world.job_file(READ, inputs={"training": "s3://bucket/data"})
    jobs = [world.submit(job_file) for _ in range(8)]
    world.until("all of them are at it", lambda: server.listings >= 8)
    server.go.set()
    for job in jobs:
        assert world.wait(job)["outcome"] == "succeeded"
        assert len(read_lines(world, job)[0]) == 60
    assert set(server.sent.values()) == {1}


def test_killed_in_the_middle_of_a_download(world, server):
    server.objects = {"data/0-small": b"s" * 1000, "data/1-large": os.urandom(1 << 20)}
    server.hold_after = 1 << 19
    server.before = lambda key: server.go.clear() if key.endswith("large") else None
    job = world.submit(world.job_file(READ, inputs={"training": "s3://bucket/data"}))
    world.until("the small one is here", lambda: server.sent["data/0-small"] and len(list(kept(world))) == 1)
    world.until("the large one is on its way", lambda: server.sent["data/1-large"])
    world.kill(world.runner_pid(job))
    server.before = lambda _key: None
    server.go.set()
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 2)
    assert read_lines(world, job, 2) == [["0-small:1000", f"1-large:{1 << 20}"]]
    assert server.sent == {"data/0-small": 1, "data/1-large": 2}
    assert sorted(map(len, (path.read_bytes() for path in kept(world)))) == [1000, 1 << 20]


def kept(world):
    return (path for path in (world.home / "inputs").rglob("*") if path.is_file() and path.suffix != ".part")


def test_a_later_attempt_that_finds_other_data_says_so(world, server):
    server.objects = {"data/a": b"old"}
    job = world.submit(world.job_file(READ, inputs={"training": "s3://bucket/data"}, arguments=["wait"], retry={"failures": 1}))
    world.until("attempt 1 read", lambda: read_lines(world, job))
    server.objects = {"data/a": b"newer", "data/b": b"b"}
    world.kill(*world.processes(job, 1))
    world.until("attempt 2 read", lambda: read_lines(world, job, 2))
    world.open_gate(2)
    record = world.wait(job)
    first, second = (attempt["inputs"]["training"] for attempt in record["attempts"])
    assert first["hash"] != second["hash"]
    said = "not the data that an earlier attempt read: 1 changed (a), 1 added (b)"
    assert second["warning"] == said
    assert data_lines(world, job) == [f"Channel training: {said}."]
    own = json.loads((world.store / layout.attempt_inputs(job, 2, "training")).read_bytes())
    assert (own["files"], own["hash"]) == (2, second["hash"])
    assert json.loads((world.store / layout.inputs(job, "training")).read_bytes())["hash"] == first["hash"]


def test_stopped_while_it_fetches(world, server):
    server.objects = {f"data/{number:04}": b"x" * 1000 for number in range(3000)}
    server.hold_after = 10
    server.before = lambda key: server.go.clear() if key.endswith("0500") else None
    job = world.submit(world.job_file(READ, inputs={"training": "s3://bucket/data"}))
    world.until("it is in the middle", lambda: server.sent["data/0500"])
    world.cli("stop", job)
    server.go.set()
    assert world.wait(job, expect=3)["outcome"] == "stopped"
    assert not read_lines(world, job)
    assert len(server.sent) < 3000


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://bucket/trainin", "inputs.training: there is nothing at s3://bucket/trainin; did you mean s3://bucket/training?"),
        ("s3://bucket/forbidden", "inputs.training: s3://bucket/forbidden cannot be listed: AccessDenied"),
        ("{url}/missing.csv?key=hunter2", "inputs.training: there is nothing at {url}/missing.csv: the server answers 404"),
    ],
)
def test_what_cannot_be_had_is_the_reason(world, server, uri, said):
    server.objects = {"training/a": b"a"}
    server.list_statuses = [403] if "forbidden" in uri else []
    job = world.submit(world.job_file(READ, inputs={"training": uri.format(url=server.url)}))
    record = world.wait(job, expect=1)
    assert said.format(url=server.url) in record["reason"]["sentence"]
    assert record["reason"]["code"] == "set_up_failed"
    assert "hunter2" not in record["reason"]["sentence"]


def test_a_folder_that_is_gone_when_the_job_starts(world):
    (world.source / "data").mkdir()
    (world.source / "data" / "a").write_text("a")
    world.environ["TRAINMASTER_CPUS"] = "1"
    first = world.submit(world.job_file(READ, name="first", inputs={"training": "data"}, arguments=["wait"]))
    second = world.submit(world.job_file(READ, name="second", inputs={"training": "data"}))
    world.until("the first one read", lambda: read_lines(world, first))
    (world.source / "data").rename(world.source / "dates")
    world.open_gate(1)
    reason = world.wait(second, expect=1)["reason"]["sentence"]
    assert f"inputs.training: {world.source}/data does not exist; did you mean {world.source}/dates?" in reason


def test_fetching_is_a_bar(world, server):
    size = 32 << 20
    server.objects = {f"data/{number}": bytes(size // 32) for number in range(32)}
    server.hold_after = 1000
    server.before = lambda key: server.go.clear() if key.endswith("/31") else None
    run = Terminal(world, "run", world.job_file(READ, inputs={"training": "s3://bucket/data"}), env={"NO_COLOR": "1"})
    run.until("fetching   ━".encode())
    server.before = lambda _key: None
    server.go.set()
    code, output = run.end()
    assert code == 0, output
    shares = [int(text.split("%")[0].split()[-1]) for text in output.replace("\n", "\r").split("\r") if text.startswith("fetching")]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert 0 < min(filter(None, shares)) < 100


def test_a_runner_that_is_told_to_go_while_it_fetches_is_followed_by_another(world, server):
    server.objects = {f"data/{number:04}": b"x" * 1000 for number in range(200)}
    server.hold_after = 10
    server.before = lambda key: server.go.clear() if key.endswith("0100") else None
    job = world.submit(world.job_file(READ, inputs={"training": "s3://bucket/data"}))
    world.until("it is in the middle", lambda: server.sent["data/0100"])
    os.kill(world.runner_pid(job), signal.SIGTERM)
    server.before = lambda _key: None
    server.go.set()
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 2)
    assert len(read_lines(world, job, 2)[0]) == 200
