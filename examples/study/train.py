"""Walk down a valley, with the step size and the momentum that the study gives: `--lr 0.1 --momentum 0.9`."""

import argparse
import json
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

saved = Path(os.environ.get("TM_CHECKPOINT_DIR", "."), "state.json")
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "x": [4.0, 4.0], "speed": [0.0, 0.0]}
while state["step"] < args.steps:
    x, speed = state["x"], state["speed"]
    slope = [x[0], 20 * x[1]]  # a narrow valley: steep across, flat along
    state["speed"] = [args.momentum * v - args.lr * s for v, s in zip(speed, slope, strict=True)]
    state["x"] = [a + v for a, v in zip(x, state["speed"], strict=True)]
    state["step"] += 1
    loss = min(1e9, (state["x"][0] ** 2 + 20 * state["x"][1] ** 2) / 2)
    print(f"step {state['step']} loss {loss:.6f}", flush=True)
    if state["step"] % 20 == 0:
        draft = saved.with_suffix(".new")
        draft.write_text(json.dumps(state))
        draft.rename(saved)
