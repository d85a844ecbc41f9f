"""How fast may a job print while every byte is kept, and how much memory does its runner take meanwhile?"""

import json
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from bench.ours import Home
from bench.scene import BenchFailed, Scene, interleaved, remove, timed
from bench.table import Row

BYTES = 4_000_000_000
BLOCK = 8192
ROUNDS = 4
WANTED_MB_S = 400
WANTED_RSS_MB = 40


@dataclass
class Seen:
    """What the rounds under Trainmaster showed beside the speed."""

    rss_mb: list[float] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


def measure(scene: Scene) -> list[Row]:
    source = scene.source("flood.py")
    size = BYTES // (10 if scene.quick else 1)
    result = scene.folder / "flood.json"
    words = [str(result), str(size), str(BLOCK)]
    seen = Seen()

    def to_file() -> float:
        scene.rest()
        output = scene.folder / "flood.log"
        timed(["/bin/sh", "-c", f'"$@" > {output}', "sh", scene.python, "flood.py", *words], scene.environ(), source)
        output.unlink()
        return _read(result, size)

    def under_trainmaster() -> float:
        scene.rest()
        home = Home(scene, source)
        _flood(home, words, size, seen)
        remove(home.folder)
        return _read(result, size)

    # Megabytes a second: here the most is the best.
    found = interleaved(scene.rounds(ROUNDS), {"> file": to_file, "trainmaster": under_trainmaster})
    ours, limit = max(found["trainmaster"]), max(found["> file"])
    kept = "every byte kept" if not any(seen.lost) else f"LOST {max(seen.lost)} BYTES"
    return [
        Row(
            what="log volume kept while the job prints at full speed",
            ours=f"{ours:.0f} MB/s (worst {min(found['trainmaster']):.0f}), {kept}",
            beside=f"the same job > file {limit:.0f} MB/s (worst {min(found['> file']):.0f}); ours is {ours / limit:.0%} of it",
            wanted=f"≥ {WANTED_MB_S} MB/s",
            reached=ours >= WANTED_MB_S and not any(seen.lost),
            how=(
                f"a job that writes {BYTES / 1e9:g} GB in {BLOCK} byte writes, with `submit` and `wait`; its own time from the "
                f"first to the last write. Best of {ROUNDS} interleaved rounds, each after a rest of six seconds with the disk "
                "synced; kept means that the sizes of the stored chunks add up to what was written."
            ),
        ),
        Row(
            what="runner's resident memory meanwhile",
            ours=f"{max(seen.rss_mb):.1f} MB (most of {len(seen.rss_mb)} runs)",
            beside="–",
            wanted=f"≤ {WANTED_RSS_MB} MB",
            reached=max(seen.rss_mb) <= WANTED_RSS_MB,
            how="VmHWM of the runner's process: the most it ever had, shared libraries included.",
        ),
    ]


def _flood(home: Home, words: list[str], size: int, seen: Seen) -> None:
    job = home.job_file("flood", entry_point="flood.py", arguments=words)
    most = [0.0]
    over = threading.Event()
    watcher = threading.Thread(target=_watch_memory, args=(home, most, over))
    watcher.start()
    try:
        job_id = home.submit(job.name)
        home.wait(job_id)
    finally:
        over.set()
        watcher.join()
    if not most[0]:
        raise BenchFailed("no runner was seen")
    seen.rss_mb.append(most[0])
    seen.lost.append(size - sum(path.stat().st_size for path in home.stored(job_id, "attempts/1/0/log/*")))


def _watch_memory(home: Home, most: list[float], over: threading.Event) -> None:
    """The kernel keeps the peak itself; it only has to be read before the runner is gone."""
    while not over.wait(0.05):
        for pid in home.runner_pids():
            try:
                text = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            peak = re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)
            if peak is not None:
                most[0] = max(most[0], int(peak[1]) * 1024 / 1e6)


def _read(result: Path, size: int) -> float:
    wall_s = json.loads(result.read_text())["wall_s"]
    result.unlink()
    return size / wall_s / 1e6
