"""Does the witness of the store tell what was written, and is a torn checkpoint, or one of somebody else's, found?"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from blake3 import blake3

from trainmaster.core.messages import ClaimFile, Manifest, ManifestFile, OrderFile, OrderKind
from trainmaster.spec import layout
from trainmaster.testing.chaos.http_ear import Exchange
from trainmaster.testing.chaos.proxy import Caller
from trainmaster.testing.chaos.store_witness import StoreWitness
from trainmaster.testing.chaos.train import content
from trainmaster.testing.witness import Claimed, Closed, Flushed, Marked, Unmarked

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNER = "host:77:2026-01-01"
JOB, NAME = "job-1", "1-000001"


class Bucket:
    """A store of one job, as the witness hears of it."""

    def __init__(self) -> None:
        self.events: list = []
        self.witness = StoreWitness("/bucket/team/a/", self.events.append, 0.0)
        self.seconds = 0.0

    def say(self, method: str, target: str, body: bytes = b"", status: int = 200, pid: int = 77) -> None:
        self.seconds += 1
        exchange = Exchange(
            method=method, target=target, body=body, status=status, sent_s=self.seconds, answered_s=self.seconds + 0.5
        )
        self.witness.heard(exchange, Caller(pid=pid))

    def put(self, key: str, body: bytes, **more: int) -> None:
        self.say("PUT", f"/bucket/team/a/{key}", body, **more)

    def claim(self) -> None:
        self.put(layout.claim(JOB, 1), msgspec.json.encode(ClaimFile(runner=RUNNER, at=NOW)))

    def commit(self, weights: bytes, optimizer: bytes, stored: bytes | None = None, pid: int = 77) -> Marked:
        """Two files, a manifest, a marker; `stored`: what the server was given instead of the weights."""
        files = []
        for path, value in (("weights", weights), ("optimizer", optimizer)):
            given = stored if stored is not None and path == "weights" else value
            self.put(layout.checkpoint_file(JOB, NAME, path), given)
            files.append(ManifestFile(path=path, size_bytes=len(value), blake3=blake3(value).hexdigest(), stored_in=NAME))
        self.put(layout.manifest(JOB, NAME), msgspec.json.encode(Manifest(id=NAME, taken_at=NOW, files=files)))
        self.put(layout.commit(JOB, NAME), b"{}", pid=pid)
        [mark] = [e for e in self.events if isinstance(e, Marked)]
        return mark


@pytest.fixture
def bucket():
    made = Bucket()
    made.claim()
    return made


def test_a_whole_commit_of_the_claimed_runner(bucket):
    mark = bucket.commit(content(3, 100), content(3, 200))
    assert (mark.job_id, mark.attempt, mark.checkpoint, mark.step, mark.runner) == (JOB, 1, NAME, 3, RUNNER)
    assert bucket.events[0] == Claimed(1.0, JOB, 1, RUNNER)


@pytest.mark.parametrize(
    ("weights", "optimizer", "stored"),
    [
        (content(3, 100), content(2, 100), None),
        (content(3, 100)[:50], content(3, 100), None),
        (content(3, 100), content(3, 100), content(2, 100)),
    ],
    ids=["files of two steps", "half a file", "other bytes than written down"],
)
def test_a_torn_commit_is_told(bucket, weights, optimizer, stored):
    assert bucket.commit(weights, optimizer, stored).step == -1


def test_a_commit_of_another_process_is_not_the_claimed_runners(bucket):
    assert bucket.commit(content(3, 1), content(3, 1), pid=78).runner == "process 78"


def test_a_marker_without_its_files_is_torn(bucket):
    bucket.put(layout.commit(JOB, NAME), b"{}")
    assert bucket.events[-1].step == -1


def test_closings_logs_and_removals():
    bucket = Bucket()
    bucket.put(layout.claim(JOB, 2), msgspec.json.encode(ClaimFile(at=NOW)))
    bucket.put(layout.order(JOB, 1), msgspec.json.encode(OrderFile(kind=OrderKind.STOP)))
    bucket.put(layout.order(JOB, 1), msgspec.json.encode(OrderFile(kind=OrderKind.CLOSE)))
    chunk = layout.chunk(layout.log_prefix(JOB, 1), 4)
    bucket.put(chunk, b"step 1\n", status=412)
    bucket.put(chunk, b"step 1\n")
    bucket.say("DELETE", f"/bucket/team/a/{layout.commit(JOB, NAME)}", status=204)
    keys = f"<Delete><Object><Key>team/a/{layout.commit(JOB, '1-000002')}</Key></Object></Delete>"
    bucket.say("POST", "/bucket?delete", keys.encode())
    assert bucket.events == [
        Claimed(1.0, JOB, 2, ""),
        Closed(1.0, JOB, 2),
        Closed(3.0, JOB, 1),
        Flushed(5.5, chunk, b"step 1\n"),
        Unmarked(6.5, JOB, NAME),
        Unmarked(7.5, JOB, "1-000002"),
    ]
