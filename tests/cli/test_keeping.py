"""`delete`, `prune`, `du` and retention: what goes, what stays, and what is said about it."""

from __future__ import annotations

import json
import os
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from cli.terminal import CURVE, Terminal, assert_fits, refused, run_cli, strays
from process.scripts import COUNT

from trainmaster.config import Config, read_config
from trainmaster.errors import InvalidConfig

pytestmark = pytest.mark.process

DAY_S = 86400.0


def finished(world, name="job", script=CURVE, **fields):
    return world.wait(world.submit(world.job_file(script, name=name, **fields)))["id"]


def make_older(world, job_id, days):
    """As if the job had finished so many days ago."""
    with sqlite3.connect(world.home / "trainmaster.db", timeout=30) as database:
        record = json.loads(database.execute("SELECT record FROM jobs WHERE id = ?", (job_id,)).fetchone()[0])
        moved = {}
        for field in ("submitted_at", "updated_at", "waiting_since", "finished_at"):
            moved[field] = (datetime.fromisoformat(record[field]) - timedelta(days=days)).isoformat()
        for attempt in record["attempts"]:
            for field in ("waiting_since", "placed_at", "ended_at"):
                attempt[field] = (datetime.fromisoformat(attempt[field]) - timedelta(days=days)).isoformat()
        submitted_s = datetime.fromisoformat(moved["submitted_at"]).astimezone(UTC).timestamp()
        values = (json.dumps({**record, **moved}).encode(), submitted_s, job_id)
        database.execute("UPDATE jobs SET record = ?, submitted_at = ? WHERE id = ?", values)


def objects(world, *parts):
    folder = world.store.joinpath(*parts)
    return sorted(str(path.relative_to(world.store)) for path in folder.rglob("*") if path.is_file())


def codes(world):
    return objects(world, "code")


def test_delete_takes_everything_and_leaves_the_others(world):
    first, second = finished(world, "one"), finished(world, "two")
    both = codes(world)
    answer = run_cli(world, "delete", "--yes", first)
    assert (answer.code, answer.out) == (0, f"deleted {first}\n")
    assert world.ids() == [second]
    assert objects(world, "jobs", first) == []
    assert len(codes(world)) == len(both) - 1
    assert strays(world) == []
    assert run_cli(world, "pull", second, "there").code == 0
    refused(world, "show", first, says=["no job is called"])
    assert world.json("delete", "--yes", second) == {"deleted": [second]}
    assert objects(world) == []


def test_code_that_another_job_has_stays(world):
    file = world.job_file("print(1)")
    jobs = [world.wait(world.submit(file))["id"] for _ in range(2)]
    [code] = codes(world)
    run_cli(world, "delete", "-y", jobs[0])
    assert codes(world) == [code]
    assert run_cli(world, "pull", jobs[1], "code", "--only", "code").code == 0
    run_cli(world, "delete", "-y", jobs[1])
    assert codes(world) == []


def test_code_of_a_job_that_this_home_does_not_know_stays(world):
    """Two homes may share a bucket; and a database may have been lost."""
    job = finished(world, script="print(1)")
    other = world.store / "jobs" / "elsewhere-abcde"
    other.mkdir()
    (other / "spec.json").write_bytes((world.store / "jobs" / job / "spec.json").read_bytes())
    run_cli(world, "delete", "-y", job)
    assert len(codes(world)) == 1
    assert (other / "spec.json").exists()


def test_what_has_not_finished_is_refused(scene):
    world = scene.world
    refused(
        world,
        "delete",
        "--yes",
        scene.running,
        says=[f"{scene.running} has not finished", f"trainmaster stop --wait {scene.running}"],
    )
    refused(world, "delete", "--yes", scene.good, scene.queued, says=["has not finished; nothing was deleted"])
    refused(world, "delete", "--yes", "nobody", says=["no job is called"])
    refused(world, "delete", scene.good, says=["there is no terminal to ask at", "add --yes"])


@pytest.fixture
def two_studies(world):
    """Two studies, the first of them with a job that was run anew, and a job of no study."""
    world.open_gate(1)
    file = world.job_file(COUNT.replace("int(sys.argv[1])", "2"), name="sweep")
    one = world.json("study", file, "--grid", "a=1,2", "--detach")["study"]["id"]
    world.until_committed(f"{one}-1", "1")
    world.cli("stop", one, "--wait")
    world.open_gate(9)
    world.cli("resume", one)
    other = world.json("study", world.job_file("print(1)", name="other"), "--grid", "a=1,2")["study"]["id"]
    alone = finished(world, "alone", script="print(1)")
    world.until("nobody drives", lambda: not world.drivers())
    return one, other, alone


def test_a_study_is_deleted_with_all_its_jobs(world, two_studies):
    one, other, alone = two_studies
    refused(world, "delete", one, says=["there is no terminal to ask at"])
    gone = world.json("delete", "--yes", one)["deleted"]
    assert sorted(gone) == sorted(f"{one}-{name}" for name in ("1", "1-r2", "2", "2-r2"))
    assert sorted(world.ids()) == sorted([alone, f"{other}-1", f"{other}-2"])
    assert [key for key in objects(world) if one in key] == []
    refused(world, "show", one, says=["no job is called"])
    world.cli("delete", "--yes", other, alone)
    assert objects(world) == []


def test_a_study_that_has_not_finished_is_not_deleted(world):
    file = world.job_file(COUNT.replace("int(sys.argv[1])", "9"), name="sweep")
    study = world.json("study", file, "--grid", "a=1,2", "--detach")["study"]["id"]
    refused(world, "delete", "--yes", study, says=["has not finished; nothing was deleted", f"trainmaster stop --wait {study}"])
    world.cli("stop", study, "--wait")
    assert len(world.json("delete", "--yes", study)["deleted"]) == 2


def test_prune_of_one_study_leaves_the_others(world, two_studies):
    one, other, alone = two_studies
    refused(world, "prune", "--study", one, says=["--older-than", "is missing"])
    refused(world, "prune", "--older-than", "0s", "--study", "nobody", says=["no study is called"])
    items = world.json("prune", "--older-than", "0s", "--study", one, "--yes")["items"]
    names = [item["name"] for item in items if item["kind"] == "job"]
    assert sorted(names) == sorted(f"{one}-{name}" for name in ("1", "1-r2", "2", "2-r2"))
    assert sorted(world.ids()) == sorted([alone, f"{other}-1", f"{other}-2"])


def test_delete_asks_on_a_terminal(world):
    job = finished(world, script="print(1)")
    no = Terminal(world, "delete", job)
    no.until(b"[y/N]")
    no.type(b"n\n")
    assert no.end()[0] == 2
    stop = Terminal(world, "delete", job)
    stop.until(b"[y/N]")
    world.until("it waits for an answer", stop.is_waiting)
    stop.type(b"\x03")
    code, output = stop.end()
    assert (code, "interrupted; nothing was removed" in output) == (130, True)
    assert world.ids() == [job]
    yes = Terminal(world, "delete", job)
    yes.until(b"[y/N]")
    yes.type(b"y\n")
    assert yes.end()[0] == 0
    assert world.ids() == []


def test_a_job_that_another_needs_stays(world):
    """The younger one went on from a checkpoint of the older."""
    old, young = finished(world, "old"), finished(world, "young")
    with sqlite3.connect(world.home / "trainmaster.db", timeout=30) as database:
        record = json.loads(database.execute("SELECT record FROM jobs WHERE id = ?", (young,)).fetchone()[0])
        record["continues"] = {"job": old, "checkpoint": record.pop("head")}
        record["outcome"] = "failed"
        database.execute("UPDATE jobs SET record = ? WHERE id = ?", (json.dumps(record).encode(), young))
    refused(world, "delete", "--yes", old, says=[f"{old} cannot be deleted: {young} needs it"])
    plan = world.json("prune", "--older-than", "0s", "--name", "old", "--keep-models", "--yes")
    assert (plan["items"], plan["kept"]) == ([], [{"job": old, "why": f"{young} needs it"}])
    assert world.commits(old)
    both = world.json("prune", "--older-than", "0s", "--keep-models", "--yes")
    assert {item["name"] for item in both["items"]} == {old, young}
    assert (world.commits(old), world.commits(young)) == ([], [])
    assert set(world.json("delete", "--yes", old, young)["deleted"]) == {old, young}


def test_prune_by_age_outcome_and_condition(world):
    old, new = finished(world, "old"), finished(world, "new")
    bad = world.wait(world.submit(world.job_file("raise SystemExit(1)", name="bad")), expect=1)["id"]
    for job, days in ((old, 40), (bad, 35)):
        make_older(world, job, days)

    def would_go(*words):
        plan = world.json("prune", "--dry-run", *words)
        assert plan["removed"] is False
        return {item["name"] for item in plan["items"] if item["kind"] == "job"}

    assert would_go("--older-than", "30d") == {old, bad}
    assert would_go("--older-than", "37d") == {old}
    assert would_go("--older-than", "0s") == {old, bad, new}
    assert would_go("--older-than", "30d", "--outcome", "failed") == {bad}
    assert would_go("--older-than", "30d", "--where", "metric.loss < 1") == {old}
    assert would_go("--older-than", "30d", "--name", "old") == {old}
    assert would_go("--older-than", "90d") == set()
    assert would_go() == set()
    assert len(world.ids()) == 3, "nothing went yet"
    shown = run_cli(world, "prune", "--older-than", "30d", "--dry-run")
    assert_fits(shown.out)
    assert old in shown.out
    assert "finished 40 days ago" in shown.out
    answer = run_cli(world, "prune", "--older-than", "30d", "--yes")
    assert "2 jobs" in answer.out
    assert world.ids() == [new]
    assert {key.split("/")[1] for key in objects(world, "jobs")} == {new}
    assert len(codes(world)) == 1
    assert run_cli(world, "prune", "--older-than", "30d").said == "nothing to remove"


def test_prune_refuses_what_is_unclear(strict):
    refused(strict, "prune", "--outcome", "failed", says=["--older-than: is missing"])
    refused(strict, "prune", "--keep-models", says=["--older-than: is missing"])
    refused(strict, "prune", "--older-than", "a while", says=['--older-than: found "a while"', "30d"])
    refused(strict, "prune", "--older-than", "1d", "--where", "metrc.a < 1", says=["there is no field"])


def test_a_model_that_is_kept_can_still_be_used(world):
    job = finished(world, outputs={"keep": ["*.txt"]})
    before = world.record(job), world.story(job)
    plan = world.json("prune", "--older-than", "0s", "--keep-models", "--yes")
    assert [(item["kind"], item["name"]) for item in plan["items"]] == [("model_kept", job)]
    assert plan["removed"] is True
    assert (world.record(job), world.story(job)) == before
    assert world.commits(job) == []
    assert run_cli(world, "pull", job, "model", "--only", "model").code == 0
    assert (world.source / "model" / "model" / "model.bin").stat().st_size == 1000
    assert "its logs were pruned at" in run_cli(world, "logs", job).said
    assert "its checkpoints were pruned at" in run_cli(world, "checkpoints", job).said
    assert "model and metrics stay" in run_cli(world, "show", job).said
    assert world.json("show", job)["pruned_at"]
    assert len(world.json("metrics", job)) == 5
    assert run_cli(world, "compare", job).code == 0
    assert run_cli(world, "pull", job, "code", "--only", "code").code == 0
    assert run_cli(world, "prune", "--older-than", "0s", "--keep-models", "--yes").said == "nothing to remove"
    whole = world.json("du", job)["jobs"][0]
    assert (whole["checkpoints"], whole["output"], whole["model"]) == (0, 0, 1000)


def test_pruning_while_a_job_runs(world):
    """Same code, same home, same moment: what runs is not touched."""
    file = world.job_file(COUNT, arguments=["3"])
    running = world.submit(file)
    world.open_gate(1)
    world.until_committed(running, "1")
    old = world.wait(world.submit(world.job_file(COUNT, arguments=["1"])))["id"]
    plan = world.json("prune", "--older-than", "0s", "--yes", "--unknown")
    assert [item["name"] for item in plan["items"] if item["kind"] == "job"] == [old]
    assert plan["kept"] == []
    world.open_gate(3)
    record = world.wait(running)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    assert world.committed(running) == "3"
    assert run_cli(world, "pull", running, "code", "--only", "code").code == 0


def test_leftovers_go_a_day_later(world):
    """A submission, a packing and a snapshot of which nothing came."""
    world.cli("list")
    packing, environments = world.home / "packing", world.home / "environments"
    for folder in (packing, environments, world.store / "code", world.store / "jobs" / "unborn-abcde"):
        folder.mkdir(parents=True, exist_ok=True)
    files = [
        packing / "killed.tar.zst",
        environments / "unborn-abcde.json",
        world.store / "jobs" / "unborn-abcde" / "spec.json",
        world.store / "code" / f"{'0' * 64}.tar.zst",
    ]
    for file in files:
        file.write_bytes(b"left")
    assert world.json("prune", "--dry-run")["items"] == [], "somebody may still be at it"
    long_ago = datetime.now(UTC).timestamp() - 2 * DAY_S
    for file in files:
        os.utime(file, (long_ago, long_ago))
    plan = world.json("prune", "--yes")
    assert {item["kind"] for item in plan["items"]} == {"leftover", "code", "packing"}
    assert not any(file.exists() for file in files)


def test_jobs_that_this_home_does_not_know_go_only_when_asked(world):
    world.cli("list")
    place = world.store / "jobs" / "foreign-abcde"
    place.mkdir(parents=True)
    (place / "spec.json").write_bytes(b"{}")
    long_ago = datetime.now(UTC).timestamp() - 2 * DAY_S
    os.utime(place / "spec.json", (long_ago, long_ago))
    assert world.json("prune", "--yes")["items"] == []
    assert "1 job in the store that this home does not know" in run_cli(world, "du").said
    shown = run_cli(world, "prune", "--unknown", "--dry-run").out
    assert "not of this home" in shown
    assert "another home may have it" in shown
    asks = Terminal(world, "prune", "--unknown")
    asks.until(b"with 1 job that another home may have? [y/N]")
    asks.type(b"n\n")
    assert asks.end()[0] == 2
    [item] = world.json("prune", "--unknown", "--yes")["items"]
    assert (item["kind"], item["name"]) == ("unknown", "foreign-abcde")
    assert not place.exists()


def test_du_adds_up_and_counts_shared_code_once(world):
    file = world.job_file(CURVE, name="same")
    first, second = (world.wait(world.submit(file))["id"] for _ in range(2))
    alone = finished(world, "alone")
    found = world.json("du")
    jobs = {one["job"]: one for one in found["jobs"]}
    sizes = {job: sum((world.store / key).stat().st_size for key in objects(world, "jobs", job)) for job in jobs}
    assert {job: one["total"] - (0 if one["is_code_shared"] else one["code"]) for job, one in jobs.items()} == sizes
    assert [jobs[job]["is_code_shared"] for job in (first, second, alone)] == [True, True, False]
    assert found["shared_code"] == jobs[first]["code"]
    everything = sum((world.store / key).stat().st_size for key in objects(world))
    assert found["store_total"] == everything
    assert sum(one["total"] for one in found["jobs"]) + found["shared_code"] == everything
    assert [one["total"] for one in found["jobs"]] == sorted((one["total"] for one in found["jobs"]), reverse=True)
    assert found["home"]["database"] > 0
    assert "store" not in found["home"]
    shown = run_cli(world, "du")
    assert_fits(shown.out)
    assert shown.out.split()[:3] == ["JOB", "TOTAL", "CKPTS"]
    one = run_cli(world, "du", alone)
    assert (alone in one.out, first in one.out) == (True, False)


def test_retention_is_applied_once_a_day_and_told(world):
    old, new = finished(world, "old"), finished(world, "new")
    make_older(world, old, 40)
    world.until("the driver that knows nothing of it is gone", lambda: not world.drivers())
    (world.home / "config.yaml").write_text("retention: {older_than: 30d, keep_models: true}\n")
    world.cli("list")
    world.until("the driver has pruned", lambda: not world.commits(old))
    world.until("nobody drives any more", lambda: not world.drivers())
    assert f"retention: removed model_kept {old}" in (world.home / "driver.log").read_text()
    assert world.commits(new)
    assert (world.store / "jobs" / old / "model" / "model.bin").exists()
    make_older(world, new, 40)
    world.cli("list")
    assert world.drivers() == [], "today's is done"
    assert world.commits(new)


def test_retention_settings(tmp_path):
    environ = {"TRAINMASTER_HOME": str(tmp_path)}
    assert read_config(environ) == Config(home=str(tmp_path))
    (tmp_path / "config.yaml").write_text("retention: {older_than: 30d, keep_models: false}\n")
    config = read_config(environ)
    assert (config.retention_older_than, config.retention_keep_models) == (30 * DAY_S, False)
    over = read_config({**environ, "TRAINMASTER_RETENTION_KEEP_MODELS": "yes", "TRAINMASTER_RETENTION_OLDER_THAN": "1h"})
    assert (over.retention_older_than, over.retention_keep_models) == (3600.0, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retention: 30d", "retention: wanted a mapping"),
        ("retention: {older_then: 30d}", "retention_older_then is not a setting; did you mean retention_older_than?"),
        ("retention: {older_than: long}", "retention_older_than: found"),
        ("retention: {older_than: 0}", "retention_older_than: found"),
        ("retention: {keep_models: 7}", "retention_keep_models: found"),
        ("retention: {older_than: 1d}\nretention_older_than: 2d", "given twice"),
        ("simulated_machines: 99999999999999", "wanted a whole number from 1 to 10000"),
    ],
)
def test_retention_settings_that_do_not_fit(tmp_path, text, says):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        read_config({"TRAINMASTER_HOME": str(tmp_path)})
    assert says in caught.value.sentence
