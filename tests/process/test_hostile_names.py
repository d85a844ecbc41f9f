"""Names and numbers a script may come up with: none of them may hang a job, lose its log, or repeat a training that was done."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.process

MARKERS = """
import os, sys
folder = os.environ["TM_CHECKPOINT_DIR"]
seen = os.path.exists(os.path.join(folder, "COMMIT"))
for path in ("COMMIT", "step_1/COMMIT", "files/COMMIT", "manifest.json"):
    os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
    open(os.path.join(folder, path), "w").write("not json")
print("restored", seen, flush=True)
open(os.environ["GATE"] + ".written", "w").close()
while not seen and not os.path.exists(os.environ["GATE"] + ".go"):
    pass
sys.exit(0 if seen else 3)
"""

ODD = """
import os
for folder in (os.environ["TM_CHECKPOINT_DIR"], os.environ["SM_MODEL_DIR"], "."):
    open(os.path.join(os.fsencode(folder), b"bad-\\xff-name"), "w").write("x")
    open(os.path.join(folder, "good"), "w").write("x")
os.mkfifo(os.path.join(os.environ["TM_CHECKPOINT_DIR"], "pipe"))
"""

NUMBERS = """
import trainmaster
for step in ("1", "nan", "1e999", "2"):
    print(f"step={step} loss=0.5", flush=True)
    trainmaster.log(step=float(step), loss="x", other=1)
open(__import__("os").environ["TM_METRICS_FILE"], "a").write('{"step": 1e999}\\n[1]\\n{"step": "x"}\\n')
"""


def test_a_checkpoint_with_files_named_like_our_markers(world):
    job = world.submit(world.job_file(MARKERS, retry={"failures": 1}))
    world.until("the commit", lambda: world.commits(job))
    open(f"{world.gate}.go", "w").close()
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 2)
    assert "restored True" in world.log(job, 2)
    assert world.json("checkpoints", job)


def test_names_that_are_not_text_are_left_out_and_said(world):
    job = world.submit(world.job_file(ODD))
    record = world.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    shown = world.json("show", job)["exit"]
    assert "bad-\\xff-name" in shown["left_behind"]
    assert any("pipe" in text and "bad-\\xff-name" in text for text in shown["warnings"])
    assert set(world.files_of(job, record["head"]["id"])) == {"good"}
    world.cli("pull", job, "got")
    assert (world.source / "got" / "model" / "good").read_text() == "x"


def test_numbers_that_are_none_lose_no_log(world):
    patterns = [{"name": "loss", "regex": r"step=(?P<step>\S+) loss=(?P<loss>\S+)"}]
    job = world.submit(world.job_file(NUMBERS, metrics={"patterns": patterns}))
    assert world.wait(job)["outcome"] == "succeeded"
    assert world.log(job).count("loss=0.5") == 4
    points = world.json("metrics", job)
    assert {point["step"] for point in points if isinstance(point.get("step"), int)} == {1, 2}
