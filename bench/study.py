"""How fast is a study of a thousand jobs accepted, and what does each of them cost us until all are done?"""

import contextlib
import json
import os
import sqlite3
import subprocess
import time
from pathlib import Path

from bench.ours import Home
from bench.scene import JOBS, OUR_PYTHON, TRAINMASTER, BenchFailed, Scene, best, interleaved, remove, timed
from bench.table import Row

COUNT = 1000
SLOTS = 2
ROUNDS = 3
WANTED_PER_S = 1000
WANTED_CPU_S = 0.1
#: how much dearer the dearer end of the queue may be before it is not flat
FLAT = 1.25
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def measure(scene: Scene) -> list[Row]:
    count = 40 if scene.quick else COUNT
    source = scene.source("trivial.py")
    return [_submitted(scene, source, count), _drained(scene, source, count)]


def _submitted(scene: Scene, source: Path, count: int) -> Row:
    def library() -> float:
        home = Home(scene, source, cpus=str(SLOTS))
        spent = timed([OUR_PYTHON, JOBS / "our_study.py", source / "trivial.py", count], home.environ, source)
        return json.loads(spent.output)["submit_s"]

    def command() -> float:
        home = Home(scene, source, cpus=str(SLOTS))
        spent = timed([TRAINMASTER, "study", "trivial.py", *_grid(count), "--detach"], home.environ, source)
        _stop(home)
        return spent.wall_s

    found = interleaved(scene.rounds(ROUNDS), {"call": library, "command": command})
    rate = count / best(found["call"])
    return Row(
        what=f"{count} jobs of a study submitted in one call",
        ours=f"{rate:,.0f} per second",
        beside=f"the whole `trainmaster study --detach` command: {best(found['command']):.2f} s, which is "
        f"{count / best(found['command']):,.0f} per second",
        wanted=f"≥ {WANTED_PER_S:,} per second",
        reached=rate >= WANTED_PER_S,
        how="the call packs the folder, writes every job and the study into the database in one durable transaction, and returns; "
        f"best of {ROUNDS}, a fresh home each. The command beside it is timed from its start to its end, interpreter included.",
    )


def _drained(scene: Scene, source: Path, count: int) -> Row:
    home = Home(scene, source, cpus=str(SLOTS))
    began = time.perf_counter()
    with open(home.folder / "output", "wb") as output:
        process = subprocess.Popen(
            [TRAINMASTER, "study", "trivial.py", *_grid(count)], env=home.environ, cwd=source, stdout=output, stderr=output
        )
        samples = _watched(process, home)
    wall_s = time.perf_counter() - began
    if process.returncode:
        raise BenchFailed(f"study ended with {process.returncode}: …{(home.folder / 'output').read_text()[-600:]}")
    scripts = _script_cpu_s(home)
    end_s, part = samples[-1][1], count // 10
    all_s = (end_s - sum(scripts)) / count
    first_s = (_at(samples, part) - sum(scripts[:part])) / part
    last_s = (end_s - _at(samples, count - part) - sum(scripts[-part:])) / part
    remove(home.folder)
    is_flat = max(first_s, last_s) <= FLAT * min(first_s, last_s)
    return Row(
        what=f"{count} trivial jobs of a study drained on {SLOTS} slots: our own CPU per job",
        ours=f"{1000 * all_s:.0f} ms; the first {part}: {1000 * first_s:.0f} ms, the last {part}: {1000 * last_s:.0f} ms",
        beside=f"the script itself: {1000 * sum(scripts) / count:.0f} ms; all done in {wall_s:.0f} s",
        wanted=f"≤ {1000 * WANTED_CPU_S:.0f} ms, flat from first to last",
        reached=all_s <= WANTED_CPU_S and is_flat,
        how="user and system time, as the kernel counts it, of `trainmaster study` and of all processes it waited for: the "
        "command, the control loop in it, each runner from its start to its end; minus what each runner measured of its "
        "script. The first jobs carry the start of the command and the submission; flat: one end at most "
        f"{FLAT:g} times the other. One round.",
    )


def _grid(count: int) -> list[str]:
    tens = ",".join(map(str, range(count // 10)))
    return ["--grid", f"a={tens}", "--grid", "b=0,1,2,3,4,5,6,7,8,9"]


def _watched(process: subprocess.Popen, home: Home) -> list[tuple[int, float]]:
    """Jobs that are done, and CPU seconds so far, until the end."""
    samples: list[tuple[int, float]] = [(0, 0.0)]
    while True:
        seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is not None:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            return [*samples, (_done(home), usage.ru_utime + usage.ru_stime)]
        samples.append((_done(home), _cpu_s(process.pid)))
        time.sleep(0.05)


def _cpu_s(pid: int) -> float:
    """Of a process and of those it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * _TICK_S


def _done(home: Home) -> int:
    if not (home.folder / "trainmaster.db").exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{home.folder / 'trainmaster.db'}?mode=ro", uri=True)) as database:
        try:
            return database.execute("SELECT COUNT(*) FROM jobs WHERE phase = 'finished'").fetchone()[0]
        except sqlite3.OperationalError:
            return 0  # just being made


def _at(samples: list[tuple[int, float]], done: int) -> float:
    return next(cpu_s for count, cpu_s in samples if count >= done)


def _script_cpu_s(home: Home) -> list[float]:
    """What each script used, in the order they ended."""
    with contextlib.closing(sqlite3.connect(f"file:{home.folder / 'trainmaster.db'}?mode=ro", uri=True)) as database:
        ids = [row[0] for row in database.execute("SELECT id FROM jobs ORDER BY json_extract(record, '$.finished_at')")]
    return [json.loads(home.stored(job_id, "attempts/1/0/exit.json")[0].read_text()).get("cpu_s", 0.0) for job_id in ids]


def _stop(home: Home) -> None:
    """Nobody needs these jobs: their command is what was timed."""
    home.command("stop", "trivial", "--wait")
    remove(home.folder)
