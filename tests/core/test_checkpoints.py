import msgspec
import pytest

from trainmaster.core import checkpoints
from trainmaster.core.checkpoints import read_marker
from trainmaster.core.job import Phase
from trainmaster.core.messages import ClaimFile, JobFile, Manifest, ManifestFile, OpenFile, OrderFile, OrderKind
from trainmaster.spec import layout
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


def _keys(*names: str, half: str = "", alone: str = "") -> list[str]:
    """Keys of whole checkpoints, of one without a marker, and of a marker without anything."""
    found = [
        key
        for name in names
        for key in (layout.checkpoint_file("j", name, "w"), layout.manifest("j", name), layout.commit("j", name))
    ]
    if half:
        found += [layout.checkpoint_file("j", half, "w")]
    if alone:
        found += [layout.commit("j", alone)]
    return sorted(found)


def test_a_marker_alone_is_no_commit():
    keys = _keys("1-000002", alone="1-000001")
    assert checkpoints.committed("j", keys) == [layout.commit("j", "1-000002")]


def test_the_newest_are_kept_and_of_the_others_the_marker_goes_first():
    keys = _keys("1-000001", "1-000003", "2-000001", half="1-000002")
    kept = checkpoints.kept("j", keys, 2, attempt=2)
    assert kept == ["1-000003", "2-000001"]
    needed = [layout.checkpoint_file("j", "1-000002", "w")]
    gone = checkpoints.removable("j", keys, kept, needed)
    assert gone == [layout.commit("j", "1-000001"), layout.manifest("j", "1-000001"), layout.checkpoint_file("j", "1-000001", "w")]
    assert checkpoints.removable("j", keys, kept, ()) == [*gone, *needed]


def test_a_commit_under_way_is_not_removed():
    keys = _keys("1-000001", half="1-000002")
    assert checkpoints.removable("j", keys, ["1-000001"], ()) == []


def test_an_old_runner_removes_nothing_once_a_newer_attempt_writes():
    assert checkpoints.kept("j", _keys("1-000001", half="2-000001"), 1, attempt=1) is None


@pytest.mark.parametrize(
    ("manifest", "outside"),
    [
        (
            Manifest(
                id="1-000001", taken_at=at(0), files=[ManifestFile(path="a/b", size_bytes=1, stored_in="1-000001")], folders=["c"]
            ),
            "",
        ),
        (Manifest(id="1-000001", taken_at=at(0), files=[ManifestFile(path="../evil", size_bytes=1)]), "../evil"),
        (Manifest(id="1-000001", taken_at=at(0), files=[ManifestFile(path="/etc/passwd", size_bytes=1)]), "/etc/passwd"),
        (Manifest(id="1-000001", taken_at=at(0), files=[ManifestFile(path="a", size_bytes=1, stored_in="../2")]), "../2"),
        (Manifest(id="1-000001", taken_at=at(0), folders=["a/../../b"]), "a/../../b"),
    ],
)
def test_a_name_that_leads_out_of_its_folder_is_found(manifest, outside):
    assert checkpoints.name_outside(manifest) == outside


@pytest.mark.parametrize(
    ("name", "text", "counts"),
    [
        ("1-000001", None, True),
        ("1-000002", None, False),
        ("1-000001", b"", False),
        ("1-000001", b"\xff\xfe", False),
        ("x", b'{"id":"x","taken_at":"2026-01-01T00:00:00Z","committed_at":"2026-01-01T00:00:00Z"}', False),
    ],
)
def test_a_marker_counts_when_it_speaks_of_its_own_checkpoint(name, text, counts):
    value = msgspec.json.encode(a_commit(1, 1)) if text is None else text
    assert (read_marker(name, value) is not None) is counts
