"""Learns to tell two spirals apart: a small network in plain Python, saved every ten steps, resumed from where it was saved."""

import json
import math
import os
import random
import time
from pathlib import Path

import trainmaster  # optional: reports metrics; does nothing outside Trainmaster

STEPS, HIDDEN, RATE, PER_STEP_S = 240, 12, 0.12, 0.045


def spirals(count: int) -> list[tuple[list[float], float]]:
    points = []
    for i in range(count):
        for label in (0.0, 1.0):
            radius, angle = 0.2 + i / count, 6.5 * i / count + math.pi * label
            points.append(([radius * math.cos(angle), radius * math.sin(angle)], label))
    return points


def new_weights() -> dict:
    chance = random.Random(7)
    return {
        "hidden": [[chance.gauss(0, 1.5) for _ in range(3)] for _ in range(HIDDEN)],
        "out": [chance.gauss(0, 0.5) for _ in range(HIDDEN + 1)],
    }


def train_step(weights: dict, points: list[tuple[list[float], float]]) -> float:
    """One step of gradient descent over all points; the mean loss before it."""
    hidden, out = weights["hidden"], weights["out"]
    grad_hidden = [[0.0] * 3 for _ in hidden]
    grad_out = [0.0] * len(out)
    loss = 0.0
    for (x, y), label in points:
        acts = [math.tanh(w[0] * x + w[1] * y + w[2]) for w in hidden]
        score = sum(w * a for w, a in zip(out, acts, strict=False)) + out[-1]
        guess = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
        loss -= math.log(max(1e-9, guess if label else 1 - guess))
        error = guess - label
        grad_out[-1] += error
        for j, act in enumerate(acts):
            grad_out[j] += error * act
            back = error * out[j] * (1 - act * act)
            for k, value in enumerate((x, y, 1.0)):
                grad_hidden[j][k] += back * value
    scale = RATE / len(points) * 10
    weights["out"] = [w - scale * g for w, g in zip(out, grad_out, strict=True)]
    weights["hidden"] = [[w - scale * g for w, g in zip(ws, gs, strict=True)] for ws, gs in zip(hidden, grad_hidden, strict=True)]
    return loss / len(points)


def main() -> None:
    folder = Path(os.environ.get("TM_CHECKPOINT_DIR", "checkpoints"))
    folder.mkdir(exist_ok=True)
    saved = folder / "state.json"
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "weights": new_weights()}
    print(f"starting at step {state['step']}", flush=True)
    points = spirals(60)
    for step in range(state["step"] + 1, STEPS + 1):
        began = time.monotonic()
        loss = train_step(state["weights"], points)
        state["step"] = step
        trainmaster.log(step=step, loss=loss)
        if step % 10 == 0:
            print(f"step {step:3d}  loss {loss:.4f}", flush=True)
            draft = folder / "state.new"
            draft.write_text(json.dumps(state))
            draft.rename(saved)
        time.sleep(max(0.0, PER_STEP_S - (time.monotonic() - began)))  # a step of a real model takes its time, too
    model = Path(os.environ.get("SM_MODEL_DIR", "."))
    (model / "spirals.json").write_text(json.dumps(state["weights"]))


if __name__ == "__main__":
    main()
