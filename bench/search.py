"""How long does `list` take when there are many jobs, and `list --where` over all of them?"""

import asyncio
import contextlib
import random
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.scene import TRAINMASTER, Scene, best, interleaved, seconds, timed
from bench.table import Row
from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.core.job import (
    Attempt,
    Code,
    Ending,
    EndingKind,
    JobId,
    JobRecord,
    Origin,
    Outcome,
    Phase,
    Placement,
    Reason,
    Timeline,
)
from trainmaster.core.metrics import MetricSummary
from trainmaster.core.story import StoryLine
from trainmaster.spec.job_spec import JobSpec

LIST_JOBS, LIST_WANTED_S = 10_000, 0.3
WHERE_JOBS, WHERE_WANTED_S = 100_000, 1.0
#: Few fit, so that every record has to be looked at.
WHERE = "hp.lr < 0.1 and metric.val_loss < 0.3"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class _Bulk(SqliteDatabase):
    """The real adapter; the one who fills it holds one transaction for everything."""

    @contextlib.contextmanager
    def _transaction(self):
        yield


def measure(scene: Scene) -> list[Row]:
    share = 0.01 if scene.quick else 1.0
    return [
        _row(scene, int(LIST_JOBS * share), ["list"], LIST_WANTED_S, "SELECT record FROM jobs ORDER BY submitted_at DESC LIMIT 50"),
        _row(scene, int(WHERE_JOBS * share), ["list", "--where", WHERE], WHERE_WANTED_S, "SELECT record FROM jobs"),
    ]


def _row(scene: Scene, jobs: int, words: list[str], wanted_s: float, bare: str) -> Row:
    home = scene.new_folder("home")
    path = home / "trainmaster.db"
    asyncio.run(fill(path, jobs))
    environ = scene.environ(TRAINMASTER_HOME=str(home))
    cpu_s: list[float] = []

    def ours_once() -> float:
        spent = timed([TRAINMASTER, *words], environ, scene.folder)
        cpu_s.append(spent.cpu_s)
        return spent.wall_s

    ways = {
        "trainmaster": ours_once,
        "bare sqlite3": lambda: _bare(path, bare),
    }
    interleaved(1, ways)
    found = interleaved(scene.rounds(9), ways)
    ours, beside = found["trainmaster"], found["bare sqlite3"]
    shown = " ".join(words[:2])
    return Row(
        what=f"`{shown}` with {jobs:,} jobs",
        ours=f"{seconds(ours)}, CPU {best(cpu_s):.2f} s",
        beside=f"bare sqlite3, the rows alone: {best(beside) * 1000:.1f} ms; {best(ours) / best(beside):.1f} ×",
        wanted=f"≤ {wanted_s} s",
        reached=best(ours) <= wanted_s,
        how=f"wall time of the command on a database filled through our adapter ({path.stat().st_size / 1e6:.0f} MB); "
        f"`{bare}` over the same file beside it, interleaved.",
    )


def _bare(path: Path, query: str) -> float:
    began = time.perf_counter()
    connection = sqlite3.connect(path)
    for _ in connection.execute(query):
        pass
    connection.close()
    return time.perf_counter() - began


async def fill(path: Path, jobs: int) -> None:
    """So many finished jobs, with what real ones have: parameters, tags, a story, metrics."""
    plain = SqliteDatabase.open(path)
    database = _Bulk(plain._db, plain._sql)
    rng = random.Random(1)
    plain._db.execute("BEGIN IMMEDIATE")
    for number in range(jobs):
        job = a_finished_job(number, rng)
        line = StoryLine(at=job.submitted_at, event="submitted", sentence="ada submitted it.", rule="asked by a user")
        await database.add(job, [line], job.submitted_at)
        await database.give_back(job.id, "nobody", None)
    plain._db.execute("UPDATE jobs SET wake_at = NULL")
    plain._db.execute("COMMIT")
    plain._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await plain.close()


def a_finished_job(number: int, rng: random.Random) -> JobRecord:
    began = BEGIN + timedelta(seconds=60 * number)
    moments = [began + timedelta(seconds=s) for s in (0.1, 0.3, 0.4, 0.5, 1800.0, 1801.0, 1802.0)]
    placed, claimed, set_up, restored, exited, uploaded, ended = moments
    loss = 0.295 + rng.random() * 100
    metrics = {
        name: MetricSummary(count=100, last=value, last_step=99, min=value * 0.9, min_step=90, max=value * 3, max_step=0)
        for name, value in (("loss", loss * 0.8), ("val_loss", loss), ("accuracy", rng.random()))
    }
    attempt = Attempt(
        number=1,
        waiting_since=began,
        placed_at=placed,
        placement=Placement(provider="local", cpus=1.0, gpus=(0,)),
        timeline=Timeline(claimed_at=claimed, set_up_at=set_up, restored_at=restored, exited_at=exited, uploaded_at=uploaded),
        ending=Ending(kind=EndingKind.SUCCEEDED, reason=Reason(code="exit_0", sentence="The script ended with exit code 0.")),
        ended_at=ended,
        metrics=metrics,
    )
    return JobRecord(
        id=JobId(f"train-{number:06d}"),
        spec=JobSpec(
            name="train",
            entry_point="train.py",
            hyperparameters={"lr": rng.choice([0.3, 0.1, 0.03, 0.01]), "batch_size": rng.choice([32, 64]), "epochs": 10},
            tags={"team": rng.choice(["vision", "audio"])},
        ),
        code=Code(
            sha256=f"{number % 97:064x}", size_bytes=20_000, files=12, commit=f"{number % 97:040x}", folder="/home/ada/project"
        ),
        origin=Origin(user="ada", host="laptop", folder="/home/ada/project", python="/home/ada/.venv/bin/python", version="0.1.0"),
        submitted_at=began,
        updated_at=ended,
        waiting_since=began,
        phase=Phase.FINISHED,
        attempts=(attempt,),
        outcome=Outcome.SUCCEEDED,
        reason=Reason(code="exit_0", sentence="The script ended with exit code 0."),
        finished_at=ended,
    )
