"""What does an environment cost? Built already; new, for one job and for eight at once; beside bare uv, from the same cache."""

import shutil
import statistics
from datetime import datetime
from pathlib import Path

from bench.ours import Home, until
from bench.scene import PROGRAMS, BenchFailed, Scene, best, interleaved, seconds, timed
from bench.table import Row

UV = PROGRAMS / "uv"
#: With what they need, thirty packages that many projects have; wheels for every platform.
PACKAGES = [
    *("numpy", "requests", "pyyaml", "click", "rich", "jinja2", "tqdm", "packaging"),
    *("attrs", "pydantic", "httpx", "python-dateutil", "filelock", "fsspec"),
]
JOBS_AT_ONCE = 8
ADDED_S, AT_ONCE, BARE = 0.1, 1.2, 2.0


def measure(scene: Scene) -> list[Row]:
    source = scene.source("trivial.py")
    (source / "requirements.txt").write_text("\n".join(PACKAGES) + "\n")
    home = Home(scene, source, cpus=str(JOBS_AT_ONCE))
    with_environment = home.job_file("asks", entry_point="trivial.py", environment={"requirements": "requirements.txt"})
    first = home.wait(home.submit(with_environment))
    count = _ref(first)["packages"]
    return [
        _already_built(scene, home, with_environment),
        _beside_bare_uv(scene, home, with_environment, count),
        _at_once(scene, home, with_environment, count),
    ]


def _already_built(scene: Scene, home: Home, job_file: Path) -> Row:
    plain = home.job_file("plain", entry_point="trivial.py")
    ways = {
        "with": lambda: home.command("run", job_file).wall_s,
        "without": lambda: home.command("run", plain).wall_s,
    }
    interleaved(1, ways)
    found = interleaved(scene.rounds(15), ways)
    added = [a - b for a, b in zip(found["with"], found["without"], strict=True)]
    return Row(
        what="environment already built: added to a job's start",
        ours=f"{statistics.median(added) * 1000:+.0f} ms (median of {len(added)} rounds)",
        beside=f"`run` with it {seconds(found['with'])}; without {seconds(found['without'])}",
        wanted=f"≤ {ADDED_S:g} s",
        reached=statistics.median(added) <= ADDED_S,
        how="`trainmaster run` of a script that prints one line, with `environment.requirements` and without, in turns; "
        "the median of the differences of whole commands, from typing to the end.",
    )


def _beside_bare_uv(scene: Scene, home: Home, job_file: Path, count: int) -> Row:
    environ = {**home.environ, "UV_CACHE_DIR": str(home.folder / "uv-cache")}

    def ours() -> float:
        home.command("envs", "prune", "--all")
        record = home.wait(home.submit(job_file))
        _refuse_unless(not _ref(record).get("was_there"), "the environment was there already")
        return _span(record, record)

    def bare() -> float:
        place = scene.new_folder("bare")
        spent = timed([UV, "venv", "--quiet", "--python", scene.python, place / "venv"], environ, job_file.parent).wall_s
        words = [UV, "pip", "install", "--quiet", "--python", place / "venv", "-r", "requirements.txt"]
        spent += timed(words, environ, job_file.parent).wall_s
        shutil.rmtree(place)
        return spent

    ways = {"trainmaster": ours, "uv": bare}
    interleaved(1, ways)
    found = interleaved(scene.rounds(7), ways)
    ratio = statistics.median(found["trainmaster"]) / statistics.median(found["uv"])
    return Row(
        what=f"new environment of {count} packages, warm cache",
        ours=f"{seconds(found['trainmaster'])} = {ratio:.2f} × bare uv (medians)",
        beside=f"`uv venv` and `uv pip install` {seconds(found['uv'])}",
        wanted=f"≤ {BARE:g} × bare uv",
        reached=ratio <= BARE,
        how="from the runner's claim to the end of its set-up, by its own clock: it resolves into a lock with hashes, makes "
        "the environment, installs from the lock and keeps the lock in the store. Beside it the two commands by hand, from the "
        "same cache.",
    )


def _at_once(scene: Scene, home: Home, job_file: Path, count: int) -> Row:
    """Both from an empty cache, so that there is something to build."""

    def asked_by(number: int) -> float:
        home.command("envs", "prune", "--all", "--cache")
        shutil.rmtree(home.folder / "uv-cache", ignore_errors=True)
        gate = scene.new_folder("gate") / "open"
        blocker = home.job_file("block", command=f"while ! test -e {gate}; do sleep 0.05; done", resources={"cpus": JOBS_AT_ONCE})
        blocked = home.submit(blocker)
        until(lambda: home.stored(blocked, "attempts/1/0/heartbeat.json"), "the machine is taken")
        jobs = [home.submit(job_file) for _ in range(number)]
        gate.touch()
        records = [home.wait(job) for job in jobs]
        built = sum(not _ref(record).get("was_there") for record in records)
        _refuse_unless(built == 1, f"{built} of {number} jobs built it")
        first = min(records, key=lambda record: _at(record, "claimed_at"))
        last = max(records, key=lambda record: _at(record, "set_up_at"))
        return _span(first, last)

    ways = {"eight": lambda: asked_by(JOBS_AT_ONCE), "one": lambda: asked_by(1)}
    found = interleaved(scene.rounds(5), ways)
    ratio = statistics.median(found["eight"]) / statistics.median(found["one"])
    return Row(
        what=f"{JOBS_AT_ONCE} jobs asking for the same new environment at once",
        ours=f"built once; {seconds(found['eight'])} = {ratio:.2f} × one build (medians)",
        beside=f"one job alone {seconds(found['one'])}, best to best {best(found['eight']) / best(found['one']):.2f} ×",
        wanted=f"built once; ≤ {AT_ONCE:g} × one build",
        reached=ratio <= AT_ONCE,
        how=f"{count} packages from an empty cache. The jobs wait in the queue and are placed together; the time is from the "
        "first claim to the last end of set-up.",
    )


def _ref(record: dict) -> dict:
    return record["attempts"][0]["environment"]


def _at(record: dict, moment: str) -> datetime:
    return datetime.fromisoformat(record["attempts"][0]["timeline"][moment])


def _span(first: dict, last: dict) -> float:
    return (_at(last, "set_up_at") - _at(first, "claimed_at")).total_seconds()


def _refuse_unless(condition: bool, why: str) -> None:
    if not condition:
        raise BenchFailed(why)
