"""How do jobs differ, which did best, and which fit a condition? With real jobs."""

from __future__ import annotations

import csv
import io
import json

import pytest
from cli.terminal import Terminal, assert_fits, refused, run_cli
from process.world import world_in

pytestmark = pytest.mark.process

LEARNS = """
import os, trainmaster
lr, steps = float(os.environ["SM_HP_LR"]), int(os.environ["SM_HP_STEPS"])
for step in range(steps):
    trainmaster.log(step=step, val_loss=lr + 1 / (step + 1), accuracy=step / steps)
"""
RATES = (0.3, 0.1, 0.03)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Three jobs that learn, one with other code that measures nothing; tests only look at them."""
    for world in world_in(tmp_path_factory.mktemp("sweep")):
        file = world.job_file(LEARNS, name="sweep", hyperparameters={"steps": 8, "data(set)": "cifar"})
        ids = [world.submit(file, "--hp", f"lr={rate}", "--tag", f"team={'red' if rate > 0.2 else 'blue'}") for rate in RATES]
        world.write("extra.py", "x = 1\n")
        ids.append(world.submit(world.job_file("print('hello')\n", name="plain")))
        for job_id in ids:
            world.wait(job_id)
        yield world, ids


#: condition → which of the four jobs fit, the newest first
CONDITIONS = {
    "hp.lr < 0.2 and metric.val_loss < 0.2": [2],
    "metric.val_loss < 0.3": [2, 1],
    "min(metric.val_loss) > 0.3": [0],
    "max(metric.val_loss) > 1.2 or name = plain": [3, 0],
    "tag.team = blue": [2, 1],
    "not metric.val_loss": [3],
    "not metric.val_loss > 0.3": [2, 1],
    "outcome = succeeded and attempts = 1 and duration < 10m": [3, 2, 1, 0],
    'hp."data(set)" ~ CIF': [2, 1, 0],
    "phase = running": [],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_list_where(sweep, condition):
    world, ids = sweep
    found = [job["id"] for job in world.json("list", "--where", condition)]
    assert found == [ids[number] for number in CONDITIONS[condition]]


def test_a_condition_that_nothing_fits_is_no_mistake(sweep):
    world, _ = sweep
    assert run_cli(world, "list", "--where", "hp.nothing = 1") == (0, "", "no such jobs\n")
    assert run_cli(world, "compare", "--where", "hp.nothing = 1") == (0, "", "no such jobs\n")
    assert world.json("compare", "--where", "hp.nothing = 1") == []


def test_a_typo_in_a_condition_is_shown_with_its_position(sweep):
    world, _ = sweep
    said = ["--where", "did you mean `metric.val_loss`?", "(at character 17)"]
    answer = refused(world, "list", "--where", "hp.lr < 0.1 and metrc.val_loss < 0.3", says=said)
    lines = answer.err.splitlines()
    mark = next(line for line in lines if "^" in line)
    shown = lines[lines.index(mark) - 1]
    assert shown[mark.index("^") :].startswith("metrc.val_loss")
    refused(world, "compare", "--where", "hp.lr <", says=["wanted a value"])
    refused(world, "best", "--metric", "x", "--min", "--where", "(", says=["wanted a field"])


def test_compare_shows_what_differs_and_what_came_of_it(sweep):
    world, ids = sweep
    answer = run_cli(world, "compare", *ids[:3], "--metric", "val_loss")
    assert answer.code == 0
    assert_fits(answer.out)
    table, curves = answer.out.split("\n\n")
    heads, *rows = table.splitlines()
    assert heads.split() == ["JOB", "OUTCOME", "RAN", "lr", "val_loss", "(last)"]
    assert [(row.split()[0], row.split()[3:]) for row in rows] == [
        (ids[0], ["0.3", "0.425"]),
        (ids[1], ["0.1", "0.225"]),
        (ids[2], ["0.03", "0.155"]),
    ]
    heads, *rows = curves.splitlines()
    assert heads.split() == ["val_loss", "LAST", "MIN", "MAX", "CURVE"]
    assert rows[0].split() == [ids[0], "0.425", "0.425", "1.3", "█▄▂▂▁▁▁▁"]


def test_compare_chooses_as_list_does(sweep):
    world, ids = sweep
    found = world.json("compare", "--name", "sweep", "--tag", "team=blue")
    assert [job["job"] for job in found] == [ids[2], ids[1]]
    assert found[0]["parameters"] == {"lr": 0.03, "steps": 8, "data(set)": "cifar"}
    assert found[0]["metrics"]["val_loss"]["min_step"] == 7
    refused(world, "compare", ids[0], "--name", "sweep", says=["not both at once"])
    refused(world, "compare", "nobody", says=['no job is called "nobody"'])


def test_compare_without_room_says_what_is_left_out(sweep):
    world, _ = sweep
    answer = run_cli(world, "compare", env={"COLUMNS": "40"})
    assert "no room for" in answer.said
    answer = run_cli(world, "compare", "--name", "plain")
    assert answer.said == "one job; nothing to compare it with"


def test_compare_as_csv(sweep):
    world, ids = sweep
    answer = run_cli(world, "compare", "--csv")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [row["job"] for row in rows] == ids[::-1]
    assert [row["hp.lr"] for row in rows] == ["", "0.03", "0.1", "0.3"]
    assert rows[3]["metric.val_loss.last"] == "0.425"
    assert rows[0]["metric.val_loss.last"] == ""
    assert rows[1]["hp.data(set)"] == "cifar"
    refused(world, "compare", "--csv", "--json", says=["--csv or --json, not both"])


def test_best_is_one_id_for_another_command(sweep):
    world, ids = sweep
    answer = run_cli(world, "best", "--metric", "val_loss", "--min")
    assert answer == (0, f"{ids[2]}\n", "val_loss 0.155 at step 7, the lowest of 3 jobs\n")
    assert run_cli(world, "best", "--metric", "val_loss", "--max", "--tag", "team=blue").out == f"{ids[1]}\n"
    value = world.json("best", "--metric", "val_loss", "--min", *ids[:2])
    assert value["job"] == ids[1]
    assert value["best"] == {"metric": "val_loss", "value": 0.225, "step": 7, "of_jobs": 2}


def test_best_of_nothing(sweep):
    world, _ = sweep
    refused(world, "best", "--metric", "val_los", "--min", says=["did you mean `val_loss`?", "measured: accuracy, val_loss"])
    refused(world, "best", "--metric", "loss", "--min", "--name", "plain", says=["they have measured nothing"])
    refused(world, "best", "--metric", "loss", "--min", "--name", "nobody", says=["no job matches"])
    refused(world, "best", "--metric", "val_loss", says=["Say --min or --max"])
    refused(world, "best", "--metric", "val_loss", "--min", "--max", says=["Say --min or --max"])
    refused(world, "best", "--min", says=["--metric"])


def test_diff_shows_parameters_results_and_code(sweep):
    world, ids = sweep
    answer = run_cli(world, "diff", ids[0], ids[1])
    assert_fits(answer.out)
    rows = {line.split()[0]: line.split()[1:] for line in answer.out.splitlines() if line}
    assert rows["hp.lr"] == ["0.3", "0.1"]
    assert rows["tag.team"] == ["red", "blue"]
    assert rows["metric.val_loss"] == ["0.425", "(0.425", "…", "1.3)", "0.225", "(0.225", "…", "1.1)"]
    assert rows["code:"] == ["the", "same"]
    other = run_cli(world, "diff", ids[0], "plain").out
    assert "code: 4 files not the same" in other or "code: 3 files not the same" in other
    assert "--- /dev/null\n+++ b/extra.py\n@@ -0,0 +1 @@\n+x = 1\n" in other
    value = world.json("diff", ids[0], "plain")
    assert {"what": "hp.lr", "one": "0.3", "other": ""} in value["differences"]
    assert "extra.py" in [change["path"] for change in value["code"]]


def test_diff_without_a_snapshot_says_so_and_shows_the_rest(world):
    file = world.job_file("print('hello')\n", name="here")
    one, other = world.submit(file), world.submit(file, "--in-place")
    for job_id in (one, other):
        world.wait(job_id)
    out = run_cli(world, "diff", one, other).out
    assert "in_place" in out
    assert "code: one of the jobs ran in place" in out
    assert json.loads(run_cli(world, "diff", one, other, "--json").out)["code"] is None


def test_on_a_terminal_there_are_colours_unless_somebody_minds(sweep):
    world, ids = sweep
    assert "\x1b[32m" in Terminal(world, "diff", ids[0], "plain").end()[1]
    assert "\x1b" not in Terminal(world, "diff", ids[0], "plain", env={"NO_COLOR": "1"}).end()[1]
    assert "\x1b" not in Terminal(world, "compare", env={"NO_COLOR": "1"}).end()[1]


def test_what_a_running_job_measured_can_be_searched_for(world):
    script = LEARNS + "import time\nwhile not os.path.exists(os.environ['GATE'] + '.end'):\n    time.sleep(0.02)\n"
    job_id = world.submit(world.job_file(script, name="long", hyperparameters={"lr": 0.5, "steps": 3}))
    found = lambda: [job["id"] for job in world.json("list", "--where", "metric.val_loss < 1 and phase = running")]  # noqa: E731
    world.until("its metrics are in the record", lambda: found() == [job_id])
    (world.gate.parent / f"{world.gate.name}.end").touch()
    assert world.wait(job_id)["attempts"][0]["metrics"]["val_loss"]["count"] == 3
