"""How much slower is a CPU-bound script that prints a thousand lines a second, when it runs under Trainmaster?"""

import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.ours import Home
from bench.scene import Scene, best, interleaved, timed
from bench.table import Row

LINES_A_SECOND = 1000
SECONDS = 10
ROUNDS = 6
WANTED = 0.01
#: When equal seconds of the bare script lie further apart than this, one per cent cannot be seen, and nothing is judged.
NOISE_MAX = 0.05
PATTERN = {"name": "loss", "regex": r"^step (?P<step>\d+) loss (?P<loss>\S+)"}


@dataclass
class Times:
    """What the script says of itself, over all rounds."""

    #: a second's worth of steps each; long enough that every one has a flush of the log in it
    windows_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @property
    def quiet_s(self) -> float:
        """A second's worth of steps when nobody else disturbs: the fastest tenth of them ends here."""
        return statistics.quantiles(self.windows_s, n=10)[0]


def measure(scene: Scene) -> list[Row]:
    source = scene.source("steps.py")
    home = Home(scene, source)
    result = scene.folder / "steps.json"
    steps = LINES_A_SECOND * (2 if scene.quick else SECONDS)
    words = [str(result), str(steps), str(_loops_of_a_step())]
    times = {"bare": Times(), "regex": Times(), "log": Times()}

    def bare() -> float:
        output = scene.folder / "bare.log"
        script = [scene.python, "steps.py", *words, "print", LINES_A_SECOND]
        timed(["/bin/sh", "-c", f'"$@" > {output}', "sh", *script], scene.environ(), source)
        return _read(result, times["bare"])

    def under(way: str, script_way: str, **fields: object) -> float:
        job = home.job_file(way, entry_point="steps.py", arguments=[*words, script_way, str(LINES_A_SECOND)], **fields)
        home.wait(home.submit(job.name))
        return _read(result, times[way])

    ways = {
        "bare": bare,
        "regex": lambda: under("regex", "print", metrics={"patterns": [PATTERN]}),
        "log": lambda: under("log", "log"),
    }
    interleaved(scene.rounds(ROUNDS), ways)
    titles = {"regex": "regex on the log", "log": "trainmaster.log()"}
    return [_row(titles[way], times["bare"], times[way]) for way in ("regex", "log")]


def _row(title: str, bare: Times, ours: Times) -> Row:
    over = ours.quiet_s / bare.quiet_s - 1
    noise = statistics.median(bare.windows_s) / bare.quiet_s - 1
    told = "the noise" if noise <= NOISE_MAX else "the noise, too much to judge"
    return Row(
        what=f"overhead on a CPU-bound script printing 1,000 lines/s, a metric a step: {title}",
        ours=(
            f"{over:+.1%} (median {statistics.median(ours.windows_s) / statistics.median(bare.windows_s) - 1:+.1%}); "
            f"of its CPU time {best(ours.cpu_s) / best(bare.cpu_s) - 1:+.1%}"
        ),
        beside=f"bare process > file, {bare.quiet_s:.3f} s for 1,000 steps (median + {noise:.1%}: {told})",
        wanted=f"≤ {WANTED:.0%}",
        reached=over <= WANTED if noise <= NOISE_MAX else None,
        how=(
            f"fixed work in {LINES_A_SECOND * SECONDS:,} steps, {SECONDS} s of it, a plain print() after each; the script takes "
            f"the time of every 1,000 steps itself. {ROUNDS} interleaved rounds, submitted and waited for. Under Trainmaster "
            "every line is written at once (PYTHONUNBUFFERED); that is part of it. Compared are the ends of the fastest tenth "
            "of those seconds (and the medians): each has a flush of the log in it, and some of them are undisturbed even on "
            "a busy machine."
        ),
    )


def _read(result: Path, times: Times) -> float:
    spent = json.loads(result.read_text())
    result.unlink()
    times.windows_s += spent["windows_s"]
    times.cpu_s.append(spent["cpu_s"])
    return sum(spent["windows_s"])


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
