"""Does each thing lie under the key that the layout promises?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.spec import layout


@pytest.mark.parametrize(
    ("found", "key"),
    [
        (layout.code("ab"), "code/ab.tar.zst"),
        (layout.environment_lock("k"), "envs/k/lock.txt"),
        (layout.wheelhouse("ab"), "wheels/ab.json"),
        (layout.wheel("ab", "x.whl"), "wheels/ab/x.whl"),
        (layout.job("j"), "jobs/j"),
        (layout.spec("j"), "jobs/j/spec.json"),
        (layout.record("j"), "jobs/j/record.json"),
        (layout.pruned("j"), "jobs/j/pruned.json"),
        (layout.attempt("j", 2), "jobs/j/attempts/2"),
        (layout.inputs("j", "training"), "jobs/j/inputs/training.json"),
        (layout.attempt_inputs("j", 2, "training"), "jobs/j/attempts/2/inputs/training.json"),
        (layout.opened("j", 2), "jobs/j/attempts/2/open.json"),
        (layout.claim("j", 2), "jobs/j/attempts/2/claim"),
        (layout.order("j", 2), "jobs/j/attempts/2/order.json"),
        (layout.heartbeat("j", 2), "jobs/j/attempts/2/0/heartbeat.json"),
        (layout.heartbeat("j", 2, 3), "jobs/j/attempts/2/3/heartbeat.json"),
        (layout.exit_record("j", 2), "jobs/j/attempts/2/0/exit.json"),
        (layout.runner_log("j", 2), "jobs/j/attempts/2/0/runner.log"),
        (layout.setup_log("j", 2), "jobs/j/attempts/2/0/setup.log"),
        (layout.log_prefix("j", 2), "jobs/j/attempts/2/0/log"),
        (layout.metrics_prefix("j", 2), "jobs/j/attempts/2/0/metrics"),
        (layout.chunk(layout.log_prefix("j", 2), 7), "jobs/j/attempts/2/0/log/00000007"),
        (layout.checkpoints("j"), "jobs/j/checkpoints"),
        (layout.checkpoint("j", "2-000007"), "jobs/j/checkpoints/2-000007"),
        (layout.checkpoint_file("j", "2-000007", "a/b.pt"), "jobs/j/checkpoints/2-000007/files/a/b.pt"),
        (layout.manifest("j", "2-000007"), "jobs/j/checkpoints/2-000007/manifest.json"),
        (layout.commit("j", "2-000007"), "jobs/j/checkpoints/2-000007/COMMIT"),
        (layout.model("j"), "jobs/j/model"),
        (layout.output("j"), "jobs/j/output"),
        (layout.working("j"), "jobs/j/working"),
    ],
)
def test_keys(found, key):
    assert found == key


@given(st.integers(1, 10**6), st.integers(0, 10**6 - 1))
def test_a_checkpoint_id_says_its_attempt_and_number(attempt, seq):
    assert layout.parse_checkpoint_id(layout.checkpoint_id(attempt, seq)) == (attempt, seq)


@given(st.integers(0, 10**8 - 1), st.integers(0, 10**8 - 1))
def test_chunks_sort_as_they_were_written(one, other):
    prefix = layout.log_prefix("j", 1)
    assert (layout.chunk(prefix, one) < layout.chunk(prefix, other)) == (one < other)


def test_a_marker_is_told_from_a_file_of_the_same_name():
    assert layout.is_commit("j", layout.commit("j", "1-000001"))
    others = ["jobs/j/checkpoints/1-000001/files/COMMIT", "jobs/j/checkpoints/COMMIT", "jobs/k/checkpoints/1-000001/COMMIT"]
    assert not any(layout.is_commit("j", key) for key in others)
