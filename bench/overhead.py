"""How much slower is a CPU-bound script that prints a thousand lines a second, when it runs under Trainmaster?"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench.ours import Home
from bench.paired import is_below, shift
from bench.scene import Scene, tell, timed
from bench.table import Row

LINES_A_SECOND = 1000
WARM_S = 1
SECONDS = 5
ROUNDS = 12
WANTED = 0.01
PATTERN = {"name": "loss", "regex": r"^step (?P<step>\d+) loss (?P<loss>\S+)"}
TITLES = {"regex": "regex on the log", "log": "trainmaster.log()"}
#: What a script says of one run of itself, by name: wall_s, cpu_s, user_s, system_s, pushed_aside.
Spent = dict[str, float]


def measure(scene: Scene) -> list[Row]:
    """Each round: bare, ours, ours, bare; in the next round ours come in the other order."""
    ways = _ways(scene)
    rounds = scene.rounds(ROUNDS)
    found: dict[str, list[Spent]] = {"bare first": [], "regex": [], "log": [], "bare last": []}
    for number in range(rounds):
        ours = ["regex", "log"] if number % 2 == 0 else ["log", "regex"]
        for name in ("bare first", *ours, "bare last"):
            found[name].append(ways[name.split()[0]]())
            tell(f"  {name}: {found[name][-1]['wall_s']:.3f} s, of it on the CPU {found[name][-1]['cpu_s']:.3f}")
    return [_row(way, found, rounds) for way in TITLES]


def _ways(scene: Scene) -> dict[str, Callable[[], Spent]]:
    source = scene.source("steps.py")
    home = Home(scene, source)
    result = scene.folder / "steps.json"
    warm = LINES_A_SECOND * WARM_S
    steps = warm + LINES_A_SECOND * (1 if scene.quick else SECONDS)
    loops = _loops_of_a_step()

    def words(way: str) -> list[str]:
        return [str(result), str(steps), str(loops), way, str(warm), scene.cpu]

    def bare() -> Spent:
        output = scene.folder / "bare.log"
        timed(["/bin/sh", "-c", f'"$@" > {output}', "sh", scene.python, "steps.py", *words("print")], scene.environ(), source)
        return _read(result)

    def under(name: str, way: str, **fields: object) -> Spent:
        job = home.job_file(name, entry_point="steps.py", arguments=words(way), **fields)
        home.wait(home.submit(job.name))
        return _read(result)

    return {
        "bare": bare,
        "regex": lambda: under("regex", "print", metrics={"patterns": [PATTERN]}),
        "log": lambda: under("log", "log"),
    }


def _row(way: str, found: dict[str, list[Spent]], rounds: int) -> Row:
    def beside(what: str) -> list[float]:
        return [(a[what] + b[what]) / 2 for a, b in zip(found["bare first"], found["bare last"], strict=True)]

    def of(name: str, what: str) -> list[float]:
        return [spent[what] for spent in found[name]]

    wall, cpu = (shift(of(way, what), beside(what)) for what in ("wall_s", "cpu_s"))
    noise = shift(of("bare last", "wall_s"), of("bare first", "wall_s"))
    cpu_noise = shift(of("bare last", "cpu_s"), of("bare first", "cpu_s"))
    more_system = statistics.median(a - b for a, b in zip(of(way, "system_s"), beside("system_s"), strict=True))
    more_aside = statistics.median(a - b for a, b in zip(of(way, "pushed_aside"), beside("pushed_aside"), strict=True))
    bare_s = statistics.median(beside("wall_s"))
    return Row(
        what=f"overhead on a CPU-bound script printing 1,000 lines/s, a metric a step: {TITLES[way]}",
        ours=(
            f"{wall} of its wall time; {cpu} of its CPU time ({more_system / bare_s:+.1%} in the kernel); "
            f"{more_aside / bare_s:+.1f} times a second pushed aside"
        ),
        beside=f"bare process > file, {bare_s:.2f} s; bare against bare in the same rounds: {noise} wall, {cpu_noise} CPU",
        wanted=f"≤ {WANTED:.0%}",
        reached=is_below(wall, WANTED, noise),
        how=(
            f"fixed work in {LINES_A_SECOND * SECONDS:,} steps, {SECONDS} s of it after {WARM_S} s to warm up, a plain print() "
            "after each. The script itself takes its wall time and asks the kernel for its CPU time, so neither has "
            "start-up in it nor what our own processes use on other cores. Bare is the same script with the same "
            f"interpreter, its output in a file. {rounds} rounds of bare, ours, ours, bare, every other one the other way "
            "round; ours is submitted and waited for. Each is compared with the mean of the two bare runs around it; "
            "shown are the median of the rounds and, in brackets, the interval of that median (bootstrap, 95 %). The verdict is "
            "about the wall time, and only given when the whole interval is on one side of what is wanted and bare against bare "
            f"is the same within {WANTED:.0%}. Under Trainmaster every line is written at once (PYTHONUNBUFFERED), where the bare "
            "one writes 8 kB at a time; that is part of it."
        ),
    )


def _read(result: Path) -> Spent:
    spent = json.loads(result.read_text())
    result.unlink()
    return spent


def _loops_of_a_step() -> int:
    """How many turns of the script's inner loop take a thousandth of a second here."""
    loops = 20_000
    fastest = 1e9
    for _ in range(200):
        began = time.perf_counter()
        total = 0
        for number in range(loops):
            total = (total * 31 + number) & 0xFFFFFF
        fastest = min(fastest, time.perf_counter() - began)
    return max(1, int(loops / fastest / LINES_A_SECOND))
