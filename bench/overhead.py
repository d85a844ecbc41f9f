"""How much slower is a CPU-bound script that prints a thousand lines a second, when it runs under Trainmaster?"""

import statistics
import time

from bench.ours import Home
from bench.paired import is_below, shift
from bench.scene import Scene
from bench.table import Row
from bench.turns import Notes, Player, play, processes_that_know, started

LINES_A_SECOND = 1000
TURN_S = 1.0
ROUNDS = 120
WANTED = 0.01
PATTERN = {"name": "loss", "regex": r"^step (?P<step>\d+) loss (?P<loss>\S+)"}
TITLES = {"regex": "regex on the log", "log": "trainmaster.log()"}


def measure(scene: Scene) -> list[Row]:
    """Two bare ones and two of ours, in turns of a second."""
    source = scene.source("turns.py")
    rounds = scene.rounds(ROUNDS)
    loops = _loops_of_a_step()
    players = {name: Player(name, Notes(scene.folder / f"{name}.notes")) for name in ("bare", "like")}
    for name, player in players.items():
        words = [scene.python, "turns.py", player.notes.path, loops, "print", scene.cpu]
        started(words, scene.environ(), source, scene.folder / f"{name}.log")
    jobs: list[tuple[Home, str]] = []
    for way in TITLES:
        home = Home(scene, source)
        notes = Notes(scene.folder / f"{way}.notes")
        arguments = [str(notes.path), str(loops), "log" if way == "log" else "print", scene.cpu]
        patterns = {"metrics": {"patterns": [PATTERN]}} if way == "regex" else {}
        job = home.job_file(way, entry_point="turns.py", arguments=arguments, **patterns)
        jobs.append((home, home.submit(job.name)))
        players[way] = Player(way, notes, lambda home=home: processes_that_know(home.folder))
    play([players["bare"], players["regex"], players["like"], players["log"]], rounds, TURN_S)
    for home, job_id in jobs:
        home.wait(job_id)
    return [_row(way, players, rounds) for way in TITLES]


def _row(way: str, players: dict[str, Player], rounds: int) -> Row:
    def slowness(name: str) -> list[float]:
        return [1 / rate for rate in players[name].rates]

    def beside(of_one: list[float], of_other: list[float]) -> list[float]:
        return [(a + b) / 2 for a, b in zip(of_one, of_other, strict=True)]

    wall = shift(slowness(way), beside(slowness("bare"), slowness("like")))
    cpu = shift(players[way].costs, beside(players["bare"].costs, players["like"].costs))
    noise = shift(slowness("like"), slowness("bare"))
    cpu_noise = shift(players["like"].costs, players["bare"].costs)
    rate = statistics.median(players["bare"].rates)
    return Row(
        what=f"overhead on a CPU-bound script printing 1,000 lines/s, a metric a step: {TITLES[way]}",
        ours=f"{wall} of its wall time; {cpu} of its own CPU time",
        beside=f"bare process > file, {rate:,.0f} lines/s; bare against bare in the same rounds: {noise} wall, {cpu_noise} CPU",
        wanted=f"≤ {WANTED:.0%}",
        reached=is_below(wall, WANTED, noise),
        how=(
            f"two bare processes and two jobs of ours live at once and take turns of {TURN_S:g} s, {rounds} rounds: all others are "
            "stopped meanwhile, and with a job its runner, the process that searches its log, and the driver. Steps done in a "
            "turn give the time a step takes; each is compared with the mean of the two bare ones in the same round. Shown are "
            "the median of the rounds and, in brackets, the interval of that median (bootstrap, 95 %). The verdict is about the "
            "wall time, and only given when the whole interval is on one side of what is wanted and bare against bare is the "
            f"same within {WANTED:.0%}. Timers of the runner that ran out while it was stopped fire when it goes on, so it works "
            "more often here than in a life without pauses. Under Trainmaster every line is written at once "
            "(PYTHONUNBUFFERED), where the bare one writes 8 kB at a time; that is part of it."
        ),
    )


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
