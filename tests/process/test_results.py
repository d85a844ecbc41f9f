"""What a job leaves: reasons, model and output, checkpoints that are pruned and shared, metrics."""

from __future__ import annotations

import pytest
from process.scripts import COUNT

from trainmaster.spec import layout

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("raise SystemExit(7)", "exit_code", "exit code 7"),
        ("import os; os.abort()", "signal", "SIGABRT"),
        ("def f():\n    raise ValueError('the data is odd')\nf()", "exit_code", "ValueError: the data is odd"),
        ("raise MemoryError('no room for 9 GB')", "out_of_memory", "MemoryError: no room for 9 GB"),
        ("import os, sys\nopen(os.environ['TM_FAILURE_FILE'], 'w').write('bad labels')\nsys.exit(1)", "exit_code", "bad labels"),
    ],
    ids=["code", "signal", "traceback", "memory", "failure file"],
)
def test_the_reason_says_why(world, script, code, words):
    record = world.wait(world.submit(world.job_file(script)), expect=1)
    assert (record["outcome"], record["reason"]["code"]) == ("failed", code)
    assert words in record["reason"]["sentence"]


def test_a_traceback_is_kept_as_evidence(world):
    job = world.submit(world.job_file("def f():\n    raise ValueError('odd')\nf()"))
    record = world.wait(job, expect=1)
    trace = record["reason"]["evidence"]["traceback"]
    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("ValueError: odd")
    assert "job.py" in trace
    assert "ValueError: odd" in world.cli("show", job).stdout.decode()


def test_model_and_output_are_uploaded_and_pulled(world):
    script = """
import os
os.makedirs(os.environ["SM_MODEL_DIR"] + "/deep", exist_ok=True)
open(os.environ["SM_MODEL_DIR"] + "/deep/weights", "wb").write(b"\\0\\1" * 1000)
open(os.environ["TM_OUTPUT_DIR"] + "/data/table.csv", "w").write("a,b")
open("plot.png", "w").write("picture")
open("scratch.tmp", "w").write("nothing")
"""
    job = world.submit(world.job_file(script, outputs={"keep": ["*.png"]}))
    world.wait(job)
    world.cli("pull", job, "results")
    results = world.source / "results"
    assert {str(p.relative_to(results)) for p in results.rglob("*") if p.is_file()} == {
        "model/deep/weights",
        "output/data/table.csv",
        "working/plot.png",
    }
    assert (results / "model/deep/weights").read_bytes() == b"\0\1" * 1000


#: One large file that never changes, and the state of COUNT.
SHARED = (
    """
import os
large = os.path.join(os.environ["TM_CHECKPOINT_DIR"], "large")
if not os.path.exists(large):
    open(large, "wb").write(b"L" * 300_000)
elif open(large, "rb").read() != b"L" * 300_000:
    raise SystemExit("the large file is damaged")
"""
    + COUNT
)


def test_old_commits_are_pruned_and_unchanged_files_are_stored_once(world):
    job = world.submit(world.job_file(SHARED, arguments=["7"], checkpoints={"keep": 2}, retry={"failures": 1}))
    for step in (1, 2, 3, 4):
        world.open_gate(step)
        world.until_committed(job, str(step))
    world.until("two commits are kept", lambda: len(world.commits(job)) == 2)
    folder = world.home / "store" / layout.checkpoints(job)
    assert len(list(folder.rglob("large"))) == 1
    world.until("the rest is gone", lambda: len(list(folder.rglob("state"))) == 2)
    world.kill(world.script_pid(job))
    world.until_attempt(job, 2)
    assert "restored 4\n" in world.log(job, 2)
    for step in (5, 6, 7):
        world.open_gate(step)
        world.until_committed(job, str(step))
    world.wait(job)
    assert [c["id"] for c in world.commits(job)] == ["2-000002", "2-000003"]
    assert len(list(folder.rglob("large"))) == 1
    world.cli("pull", job, "results", "--only", "checkpoint")
    assert (world.source / "results/checkpoint/large").stat().st_size == 300_000
    assert (world.source / "results/checkpoint/state").read_text() == "7"


def test_metrics_come_from_the_helper_and_from_the_log(world):
    script = """
import sys, trainmaster
for step in range(1, 4):
    trainmaster.log(step=step, loss=1 / step)
    print(f"epoch {step} acc={step / 10}", flush=True)
sys.stdout.write("epoch 4 acc=0.9")
"""
    patterns = [{"name": "acc", "regex": r"acc=([0-9.]+)"}]
    job = world.submit(world.job_file(script, metrics={"patterns": patterns}))
    world.wait(job)
    points = world.json("metrics", job)
    assert [(p["step"], round(p["loss"], 3)) for p in points if "loss" in p] == [(1, 1.0), (2, 0.5), (3, 0.333)]
    assert [p["acc"] for p in points if "acc" in p] == [0.1, 0.2, 0.3, 0.9]


def test_in_place_runs_in_the_folder_itself(world):
    (world.source / ".gitignore").write_text("data.bin\n")
    world.write("data.bin", "beside the script")
    file = world.job_file("print(open('data.bin').read()); open('made.txt', 'w').write('here')")
    job = world.submit(file, "--in-place")
    record = world.wait(job)
    assert record["code"] == {"folder": str(world.source), "in_place": True}
    assert world.log(job) == "beside the script\n"
    assert (world.source / "made.txt").read_text() == "here"
    assert "in place" in world.cli("show", job).stdout.decode()
