"""Is the same data the same, and other data told apart? Does every file belong to exactly one machine?"""

from __future__ import annotations

import pytest
from core.test_decide import HELD, _decide
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from trainmaster.core import ledger
from trainmaster.core.compare import Difference, differences
from trainmaster.core.inputs import InputObject, InputSummary, difference, make_manifest, share, summarize, why_no_folder
from trainmaster.core.job import Phase
from trainmaster.testing.builders import a_heartbeat, a_job, a_spec, a_timeline, an_attempt, an_exit, at, some_facts

PATHS = st.sets(st.text(min_size=1), max_size=30)


def objects(**sizes):
    return [InputObject(path=path, size_bytes=size, version=f"v{size}") for path, size in sizes.items()]


@given(PATHS, st.integers(1, 7))
def test_shares_are_everything_and_nothing_twice(paths, nodes):
    shares = [share(paths, node, nodes) for node in range(nodes)]
    assert sorted(path for one in shares for path in one) == sorted(paths)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_there_is_no_share_for_nobody():
    with pytest.raises(ValueError, match="no machine 2 of 2"):
        share(["a"], 2, 2)


def test_a_manifest_does_not_depend_on_the_order_of_a_listing():
    one = make_manifest("training", "s3://b", objects(a=1, b=2))
    other = make_manifest("training", "s3://b", objects(b=2, a=1))
    assert one == other
    assert (one.files, one.size_bytes, one.unlisted) == (2, 3, 0)
    assert summarize(one, "x") == InputSummary(uri="s3://b", files=2, size_bytes=3, hash=one.hash, warning="x")


def test_more_than_can_be_listed_is_counted_and_hashed():
    one = make_manifest("t", "u", objects(a=1, b=2), listed_max=1)
    other = make_manifest("t", "u", objects(a=1, b=2, c=3), listed_max=1)
    assert (len(one.objects), one.unlisted, other.unlisted) == (1, 1, 2)
    assert difference(one, other) == "2 files before, 3 now"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"a": 1, "b": 2}, ""),
        ({"a": 1, "b": 3}, "1 changed (b)"),
        ({"a": 2, "b": 3, "c": 1}, "2 changed (a, …), 1 added (c)"),
        ({"a": 1}, "1 gone (b)"),
    ],
)
def test_how_data_differ(after, said):
    assert difference(make_manifest("t", "u", objects(a=1, b=2)), make_manifest("t", "u", objects(**after))) == said


@pytest.mark.parametrize("paths", [[], ["a", "b/c", "b/d/e", "…"], ["x" * 255, "/".join(["y" * 200] * 14)], ["ab", "a/b"]])
def test_keys_that_can_be_files(paths):
    assert why_no_folder(paths) == ""


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["../x"], "empty part"),
        (["a/./b"], "empty part"),
        (["a//b"], "empty part"),
        (["a/"], "empty part"),
        (["a\0b"], "empty part"),
        (["ok", "x" * 256], "too long"),
        (["ü" * 128], "too long"),
        (["/".join(["y" * 200] * 16)], "too long"),
        (["a", "a/b"], "both an object and the folder of 'a/b'"),
        (["a/b/c/d", "a/b"], "'a/b' is both"),
    ],
)
def test_keys_that_cannot_be_files(paths, said):
    assert said in why_no_folder(paths)


# What becomes of it in the record.

OLD = InputSummary(uri="s3://b", files=1, size_bytes=10, hash="a" * 64)
OTHER = InputSummary(uri="s3://b", files=2, size_bytes=20, hash="b" * 64, warning="not what it was")


@pytest.mark.parametrize("phase", HELD)
@pytest.mark.parametrize("found", [OLD, OTHER])
def test_what_was_read_is_noted_and_a_warning_told_once(phase, found):
    for facts in (
        some_facts(heartbeat=replace(a_heartbeat(), inputs={"training": found})),
        some_facts(exit=replace(an_exit(), inputs={"training": found})),
    ):
        decision = _decide(a_job(phase), facts)
        assert decision.job.current.inputs == {"training": found}
        told = [line.sentence for line in decision.lines if line.event == "data_changed"]
        assert told == (["Channel training: not what it was."] if found.warning else [])
        if not decision.job.is_finished:
            again = _decide(decision.job, facts)
            assert not [line for line in again.lines if line.event == "data_changed"]


def test_what_a_job_read_is_what_its_newest_attempt_read_that_got_so_far():
    first, second = an_attempt(1, ended=10), an_attempt(2, placed=20)
    assert a_job(Phase.RUNNING, attempts=(first, second)).inputs == {}
    assert a_job(Phase.RUNNING, attempts=(replace(first, inputs={"x": OLD}), second)).inputs == {"x": OLD}
    assert a_job(Phase.RUNNING, attempts=(replace(first, inputs={"x": OLD}), replace(second, inputs={"x": OTHER}))).inputs == {
        "x": OTHER
    }


def test_two_jobs_that_read_other_data_differ():
    one = a_job(Phase.RUNNING, attempts=(replace(an_attempt(), inputs={"x": OLD}),))
    other = a_job(Phase.RUNNING, attempts=(replace(an_attempt(), inputs={"x": OTHER}),))
    assert differences(one, one, at(50)) == []
    assert differences(one, other, at(50)) == [
        Difference("data.x", "1 file, 10 bytes, aaaaaaaaaaaa", "2 files, 20 bytes, bbbbbbbbbbbb")
    ]


@pytest.mark.parametrize(
    ("timeline", "lines"),
    [
        (a_timeline(claimed=20, set_up=30), {"set_up": 10, "fetching": 20}),
        (replace(a_timeline(claimed=20, set_up=30), fetched_at=at(45)), {"set_up": 10, "fetching": 15, "restoring": 5}),
        (
            replace(a_timeline(claimed=20, set_up=30, restored=46), fetched_at=at(45)),
            {"set_up": 10, "fetching": 15, "restoring": 1, "at_risk_compute": 4},
        ),
    ],
)
def test_fetching_has_a_line_of_its_own(timeline, lines):
    spec = replace(a_spec(), inputs={"training": "s3://b"})
    job = a_job(Phase.RUNNING, spec=spec, attempts=(an_attempt(placed=10, timeline=timeline),))
    found = {line: seconds for line, seconds in ledger.totals(job, at(50)).items() if seconds}
    assert found == {"queued": 10, "placing": 10, **lines}
