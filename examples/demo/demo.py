"""The demonstration: train, kill it half-way, watch it resume. Everything shown is read back through Trainmaster's own commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(os.environ.get("DEMO_HOME", HERE.parent.parent / ".demo")).absolute()
TRAINMASTER = Path(sys.executable).with_name("trainmaster")
ENVIRON = {**os.environ, "TRAINMASTER_HOME": str(HOME), "TRAINMASTER_HEARTBEAT_S": "0.5"}
ON_TERMINAL = sys.stdout.isatty()
HEIGHT, WIDTH, STEPS, KILL_AT = 12, 72, 240, 120
BOLD, DIM, RED, GREEN, CYAN, END = (
    ("\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m") if ON_TERMINAL else ("",) * 6
)


def say(text: str) -> None:
    print(f"\n{BOLD}{text}{END}", flush=True)


def command(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(TRAINMASTER), *words], env=ENVIRON, check=False, text=True, capture_output=True)


def show(*words: str) -> None:
    print(f"{DIM}$ trainmaster {' '.join(words)}{END}", flush=True)
    subprocess.run([str(TRAINMASTER), *words], env=ENVIRON, check=False)


def answer(*words: str) -> list:
    done = command(*words, "--json")
    if done.returncode:
        sys.exit(f"trainmaster {' '.join(words)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def plot(points: list, *, killed: bool) -> list[str]:
    """The loss so far: one column for each few steps, attempts in two colours, a mark where the process was killed."""
    killed_at = max((p["step"] for p in points if p["attempt"] == 1), default=0) if killed else None
    columns: dict[int, tuple[float, int]] = {}
    for point in points:
        columns[min(WIDTH - 1, point["step"] * WIDTH // STEPS)] = (point["loss"], point["attempt"])
    top = max((loss for loss, _ in columns.values()), default=1.0) * 1.001
    rows = []
    for row in range(HEIGHT):
        high, low = top * (HEIGHT - row) / HEIGHT, top * (HEIGHT - row - 1) / HEIGHT
        text = ""
        for column in range(WIDTH):
            loss, attempt = columns.get(column, (-1.0, 0))
            dot = f"{CYAN if attempt == 1 else GREEN}●{END}" if low <= loss < high or (row == 0 and loss >= high) else " "
            if dot == " " and killed_at is not None and column == killed_at * WIDTH // STEPS:
                dot = f"{RED}┆{END}"
            text += dot
        rows.append(f"{high:6.2f} │{text}")
    rows.append(f"{'':6} └{'─' * WIDTH}")
    rows.append(f"{'loss':>6}  step 1{'step ' + str(STEPS):>{WIDTH - 6}}")
    return rows


def training_process(job_id: str) -> int:
    """The job's own process, by the mark that Trainmaster gives to every process of an attempt."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"TM_ALLOCATION={job_id}-a".encode() in (entry / "environ").read_bytes():
                    return int(entry.name)
            except OSError:
                continue
    return 0


def watch(job_id: str) -> None:
    """Draw the curve until the job is over; kill the training process once, half-way."""
    killed, drawn, began = False, 0, time.monotonic()
    while time.monotonic() - began < 120:
        points = [p for p in answer("metrics", job_id) if "loss" in p]
        status = answer("show", job_id)
        step = points[-1]["step"] if points else 0
        if ON_TERMINAL:
            rows = plot(points, killed=killed)
            sys.stdout.write(f"\x1b[{drawn}A" * bool(drawn) + "\n".join(f"\x1b[2K{row}" for row in rows) + "\n")
            drawn = len(rows)
            sys.stdout.flush()
        elif step % 20 < 8:
            print(f"  step {step:3d}  loss {points[-1]['loss'] if points else float('nan'):.4f}", flush=True)
        if not killed and step >= KILL_AT and status["durable"]["checkpoint"]:
            pid = training_process(job_id)
            if pid:
                os.kill(pid, signal.SIGKILL)
                killed, drawn = True, 0
                print(f"{RED}  ✗ kill -9 {pid}{END}", flush=True)
        if status["job"]["phase"] == "finished":
            if not ON_TERMINAL:
                print("\n".join(plot([p for p in answer("metrics", job_id) if "loss" in p], killed=killed)))
            return
        time.sleep(0.2)
    sys.exit("the demonstration took too long; `trainmaster why last` may say why")


def main() -> int:
    shutil.rmtree(HOME, ignore_errors=True)
    began = time.monotonic()
    say("1. Submit: the folder is packed, the job is queued, a background driver starts it. No daemon, no Docker, no account.")
    print(f"{DIM}$ trainmaster submit examples/demo/spirals/job.yaml{END}")
    done = command("submit", str(HERE / "spirals" / "job.yaml"))
    sys.stderr.write(done.stderr)
    if done.returncode:
        return done.returncode
    job_id = done.stdout.strip()
    say(f"2. Train, and kill it with SIGKILL at step {KILL_AT}: a second attempt resumes from the last committed step.")
    watch(job_id)
    say("3. Its story: every decision, with its rule and its evidence.")
    show("why", job_id)
    say("4. What was kept, and where the time went.")
    show("checkpoints", job_id)
    show("metrics", job_id)
    show("show", job_id)
    show("list")
    job = answer("show", job_id)["job"]
    resumed = job["attempts"][1]["resumes"]["step"] if len(job["attempts"]) > 1 else None
    ok = job.get("outcome") == "succeeded" and resumed is not None
    say(f"{'Done' if ok else 'Something is wrong'} in {time.monotonic() - began:.0f} s.")
    print(f"Look around: TRAINMASTER_HOME={HOME} {TRAINMASTER} show last")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
