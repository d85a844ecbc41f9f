"""What does each command answer, to people and to programs, about every kind of job?"""

from __future__ import annotations

import json

import pytest
from cli.terminal import assert_fits, run_cli

pytestmark = pytest.mark.process

LOOKS = ("show", "logs", "why", "checkpoints", "metrics")
KINDS = ("good", "bad", "running", "queued")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", LOOKS)
def test_every_look_at_every_kind_of_job(scene, command, kind):
    job = getattr(scene, kind)
    plain = run_cli(scene.world, command, job)
    assert plain.code == 0
    if command != "logs":  # a job's own output is printed as it is
        assert "\x1b" not in plain.out + plain.err
        assert_fits(plain.out)
    answer = run_cli(scene.world, command, job, "--json")
    assert (answer.code, answer.err) == (0, "")
    if command == "logs":
        values = [json.loads(line) for line in answer.out.splitlines()]
        assert all(value.keys() == {"attempt", "node", "text"} for value in values)
    else:
        value = json.loads(answer.out)
        assert isinstance(value, dict if command == "show" else list)


def test_list_shows_all_newest_first(scene):
    out = run_cli(scene.world, "list").out
    heads, *rows = out.splitlines()
    assert heads.split() == ["JOB", "PHASE", "AGE", "RAN", "TRY", "DURABLE", "ABOUT"]
    phases = {
        scene.queued: "queued",
        scene.running: "running",
        scene.again: "succeeded",
        scene.bad: "failed",
        scene.good: "succeeded",
    }
    assert {row.split()[0]: row.split()[1] for row in rows} == phases
    assert [row.split()[0] for row in rows][:2] == [scene.queued, scene.running]
    assert "waits for 4 CPU" in out
    assert_fits(out)


def filters(scene):
    everything = {scene.good, scene.again, scene.bad, scene.running, scene.queued}
    return {
        ("--phase", "running"): {scene.running},
        ("--phase", "running", "--phase", "queued"): {scene.running, scene.queued},
        ("--phase", "finished"): {scene.good, scene.again, scene.bad},
        ("--outcome", "failed"): {scene.bad},
        ("--outcome", "failed", "--outcome", "succeeded"): {scene.bad, scene.good, scene.again},
        ("--outcome", "stopped"): set(),
        ("--tag", "team=vision"): {scene.good},
        ("--tag", "team=audio", "--tag", "kind=again"): {scene.again},
        ("--tag", "team=audio", "--tag", "kind=other"): set(),
        ("--name", "good"): {scene.good, scene.again},
        ("--name", "goo"): set(),
        ("--since", "1h"): everything,
        ("--since", "0s"): set(),
        ("--since", "2020-01-31"): everything,
        ("--since", "2999-01-31T10:00:00"): set(),
        ("--limit", "1"): {scene.queued},
        ("--name", "good", "--outcome", "succeeded", "--since", "7d", "--tag", "team=vision"): {scene.good},
    }


def test_list_filters(scene):
    for words, wanted in filters(scene).items():
        found = {job["id"] for job in scene.world.json("list", *words)}
        assert found == wanted, words


def test_list_without_a_match_says_so_beside_the_answer(scene):
    answer = run_cli(scene.world, "list", "--name", "nobody")
    assert (answer.code, answer.out, answer.err) == (0, "", "no such jobs\n")


def test_show_says_what_happened(scene):
    good, bad, running = (run_cli(scene.world, "show", job).out for job in (scene.good, scene.bad, scene.running))
    assert f"job        {scene.good}\n" in good
    assert "tags       team=vision\n" in good
    assert "together" in good
    assert "ValueError: no good" in bad
    assert "The script ended with exit code 1" in bad
    assert "of work would be lost now" in " ".join(running.split())


def test_show_for_programs_adds_up(scene):
    for job in (scene.good, scene.bad, scene.running, scene.queued):
        value = scene.world.json("show", job)
        assert {"job", "ledger_s", "durable", "heartbeat"} <= value.keys()
        assert value["job"]["id"] == job
        assert {"checkpoint", "step", "age_s", "lost_if_killed_now_s"} == value["durable"].keys()


def test_the_same_question_has_the_same_answer(scene):
    for words in (("show", scene.good), ("list", "--name", "good"), ("why", scene.bad), ("checkpoints", scene.good)):
        first, second = (run_cli(scene.world, *words, "--json").out for _ in range(2))
        assert first == second


def test_logs_are_what_was_printed(scene):
    assert sorted(run_cli(scene.world, "logs", scene.good).out.splitlines()) == ["a line on stderr", "a line on stdout"]
    assert run_cli(scene.world, "logs", "-f", scene.good, "--attempt", "1", "--node", "0").out.count("\n") == 2
    texts = [json.loads(line)["text"] for line in run_cli(scene.world, "logs", scene.bad, "--json").out.splitlines()]
    assert texts[0] == "about to fail"
    assert run_cli(scene.world, "logs", scene.queued).out == ""


def test_why_tells_the_story(scene):
    story = run_cli(scene.world, "why", scene.bad).out
    assert [word for word in ("submitted", "placed", "failed") if word not in story] == []
    assert "rule: asked by a user" in story
    assert "now: waits for 4 CPU" in run_cli(scene.world, "why", scene.queued).out
    assert "now: is running" in run_cli(scene.world, "why", scene.running).out
    lines = scene.world.json("why", scene.good)
    assert lines[0]["event"] == "submitted"
    assert {"at", "event", "sentence", "rule"} <= lines[0].keys()


def test_checkpoints_and_metrics(scene):
    [row] = run_cli(scene.world, "checkpoints", scene.good).out.splitlines()[1:]
    assert row.split()[0] == "1-000001"
    [commit] = scene.world.json("checkpoints", scene.good)
    assert commit["accepted"]
    assert commit["checkpoint"]["files"] == 1
    table = run_cli(scene.world, "metrics", scene.good).out
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [["loss", "5"], ["accuracy", "5"]]
    points = scene.world.json("metrics", scene.good, "--metric", "loss")
    assert [point["step"] for point in points] == [0, 1, 2, 3, 4]
    assert points[0]["loss"] == 1.0
    assert "accuracy" not in points[0]
    assert run_cli(scene.world, "metrics", scene.bad).said == f"{scene.bad} has no metrics"
    assert run_cli(scene.world, "metrics", scene.good, "--metric", "los").said == f"{scene.good} has measured no los"


def test_pull_brings_results_home(scene, tmp_path):
    target = tmp_path / "results"
    answer = run_cli(scene.world, "pull", scene.good, str(target))
    assert answer.out.startswith("2 files, 1.0 kB, in ")
    assert (target / "model" / "model.bin").stat().st_size == 1000
    assert (target / "working" / "kept.txt").read_text() == "kept"
    parts = ("--only", "checkpoint", "--only", "logs", "--only", "code")
    value = scene.world.json("pull", scene.good, str(tmp_path / "rest"), *parts)
    assert value["folder"] == str(tmp_path / "rest")
    assert {path.split("/")[0] for path in value["files"] if "/" in path} == {"checkpoint", "logs"}
    assert (tmp_path / "rest" / "checkpoint" / "state").read_text() == "5"
    assert all((tmp_path / "rest" / path).is_file() for path in value["files"])
    assert run_cli(scene.world, "pull", scene.good, str(target), "--force").code == 0


def test_doctor_looks_around(scene):
    answer = run_cli(scene.world, "doctor")
    assert answer.code == 0
    assert "2 unfinished" in answer.out
    assert_fits(answer.out)
    checks = {check["check"]: check["state"] for check in scene.world.json("doctor")}
    assert {"version", "interpreter", "machine", "store", "home", "jobs"} <= checks.keys()


def test_an_empty_home(world):
    assert run_cli(world, "list") == (0, "", "no jobs\n")
    assert world.json("list") == []
    for command in (*LOOKS, "stop", "wait", "pull"):
        answer = run_cli(world, command, "last")
        assert (answer.code, answer.out) == (2, "")
        assert answer.said == "error: there is no job yet hint: `trainmaster run train.py` makes one"
    assert run_cli(world, "doctor").code == 0


def test_without_a_command_there_is_help(strict):
    bare, asked = run_cli(strict), run_cli(strict, "--help")
    assert bare.code == asked.code == 0
    assert bare.out == asked.out
    assert run_cli(strict, "--version").out.startswith("trainmaster, version ")
