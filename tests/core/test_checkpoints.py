import msgspec
import pytest

from trainmaster.core import checkpoints
from trainmaster.core.job import Phase
from trainmaster.core.messages import ClaimFile, JobFile, Manifest, ManifestFile, OpenFile, OrderFile, OrderKind
from trainmaster.testing.builders import a_commit, a_job, an_attempt, at

JOB = a_job(
    Phase.RUNNING,
    attempts=(an_attempt(1, ended=10, head=a_commit(1, 5)), an_attempt(2, placed=10, ended=20), an_attempt(3, placed=20)),
)
ROWS = [
    ("0-000001", False),
    ("1-000001", True),
    ("1-000005", True),
    ("1-000006", False),  # came after attempt 1 was over
    ("2-000001", False),
    ("3-000001", True),
    ("3-999999", True),
    ("4-000001", False),
]


@pytest.mark.parametrize(("checkpoint_id", "accepted"), ROWS)
def test_a_commit_counts_when_its_attempt_was_open(checkpoint_id, accepted):
    assert checkpoints.is_accepted(JOB, checkpoint_id) is accepted


def test_the_newest_commit_is_the_attempts_own_with_the_highest_number():
    commits = [a_commit(1, 2), a_commit(1, 10), a_commit(1, 9), a_commit(2, 1)]
    assert checkpoints.newest(commits, 1) == a_commit(1, 10)
    assert checkpoints.newest(commits, 2) == a_commit(2, 1)
    assert checkpoints.newest(commits, 3) is None
    assert checkpoints.newest([], 1) is None


def test_accepted_commits_stand_in_for_a_damaged_head_newest_first_and_late_ones_never():
    commits = [a_commit(1, 1), a_commit(1, 2), a_commit(1, 3), a_commit(2, 1), a_commit(2, 2), a_commit(2, 3), a_commit(3, 1)]
    found = checkpoints.stand_ins(a_commit(2, 2), ["1-000002", "2-000002"], commits)
    assert [c.id for c in found] == ["2-000002", "2-000001", "1-000002", "1-000001"]
    assert checkpoints.stand_ins(a_commit(1, 1), [], []) == [a_commit(1, 1)]


def test_heads_are_those_of_attempts_that_are_over():
    job = a_job(
        Phase.RUNNING,
        attempts=(an_attempt(1, ended=10, head=a_commit(1, 4)), an_attempt(2, placed=12, ended=20), an_attempt(3, placed=22)),
    )
    assert checkpoints.heads(job) == ("1-000004",)


@pytest.mark.parametrize(
    "message",
    [
        JobFile(id=JOB.id, spec=JOB.spec, code=JOB.code, origin=JOB.origin),
        OpenFile(attempt=2, resumes=a_commit()),
        ClaimFile(runner="r1", at=at(0)),
        OrderFile(kind=OrderKind.STOP, sentence="Enough.", grace_s=3.0),
        Manifest(id="1-000001", taken_at=at(0), files=[ManifestFile(path="a", size_bytes=1, blake3="00")]),
        JOB,
    ],
)
def test_what_is_written_is_read_back(message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=type(message)) == message
