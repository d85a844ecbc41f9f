"""How long does it take to commit a checkpoint of 4 GiB in 16 files, beside copying it with `cp` and `sync` to the same disk?"""

import json
import os
import statistics
import subprocess
import time
from datetime import datetime

from bench.ours import Home, until
from bench.scene import BenchFailed, Scene, best, interleaved, remove, timed
from bench.table import Row

FILES = 16
FILE_BYTES = 256 << 20
SETTLE_S = 0.2
ROUNDS = 4
WANTED = 1.3


def measure(scene: Scene) -> list[Row]:
    source = scene.source("checkpoint.py")
    size = FILE_BYTES // (10 if scene.quick else 1)
    since_closed: list[float] = []
    ways = {
        "cp + sync": lambda: _copy(scene, size),
        "commit": lambda: _commit(scene, source, size, since_closed),
    }
    found = interleaved(scene.rounds(ROUNDS), ways)
    ours, limit = best(found["commit"]), best(found["cp + sync"])
    return [
        Row(
            what="4 GiB checkpoint in 16 files, committed and synced",
            ours=(
                f"{ours:.2f} s (median {statistics.median(found['commit']):.2f}) = {ours / limit:.2f} × cp; "
                f"since the last file was closed {best(since_closed):.2f} s"
            ),
            beside=f"cp -r + sync {limit:.2f} s (median {statistics.median(found['cp + sync']):.2f})",
            wanted=f"≤ {WANTED} × cp + sync",
            reached=ours / limit <= WANTED,
            how=(
                f"a job writes {FILES} × {size >> 20} MiB to $TM_CHECKPOINT_DIR; the time from the moment the folder was "
                f"found lying still (`taken_at`, which leaves out `settle`, here {SETTLE_S} s) until the COMMIT marker "
                "is there: copied, hashed, synced. The second number counts from the script's closing of the last file, "
                f"settling included. Sources are in the page cache and written out before, for cp too. Best of {ROUNDS} "
                "interleaved rounds."
            ),
        )
    ]


def _copy(scene: Scene, size: int) -> float:
    """`cp -r` and `sync` of files made by the same script."""
    scene.rest()
    made, copied = scene.new_folder("made"), scene.folder / "copied"
    go = made.with_suffix(".go")
    go.touch()
    script = [scene.python, scene.source("checkpoint.py") / "checkpoint.py", made, FILES, size, made.with_suffix(".closed"), go]
    timed(script, scene.environ(), scene.folder)
    os.sync()
    began = time.perf_counter()
    subprocess.run(["cp", "-r", made, copied], check=True)
    subprocess.run(["sync"], check=True)
    took_s = time.perf_counter() - began
    remove(made)
    remove(copied)
    return took_s


def _commit(scene: Scene, source, size: int, since_closed: list[float]) -> float:
    scene.rest()
    home = Home(scene, source)
    closed, go = home.folder / "closed", home.folder / "go"
    job = home.job_file(
        "checkpoint",
        entry_point="checkpoint.py",
        arguments=["", str(FILES), str(size), str(closed), str(go)],
        checkpoints={"settle": SETTLE_S},
    )
    job_id = home.submit(job.name)
    until(closed.exists, "the script to write its files")
    marker = until(lambda: home.stored(job_id, "checkpoints/*/COMMIT"), "the commit")[0]
    seen_at = time.time()
    go.touch()
    ref = json.loads(marker.read_text())
    if ref["files"] != FILES or ref["size_bytes"] != FILES * size:
        raise BenchFailed(f"a commit of {ref['files']} files, {ref['size_bytes']} bytes")
    since_closed.append(seen_at - float(closed.read_text()))
    home.wait(job_id)
    remove(home.folder)
    return seen_at - datetime.fromisoformat(ref["taken_at"]).timestamp()
