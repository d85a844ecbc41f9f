"""Fit a line through noisy points; numpy comes from requirements.txt, whatever Python the job was submitted with."""

import os
from pathlib import Path

import numpy as np

rng = np.random.default_rng(int(os.environ.get("TM_SEED", "7")))
x = rng.uniform(-1, 1, size=(200, 1))
y = 3 * x[:, 0] - 1 + rng.normal(0, 0.1, size=200)
weight = np.zeros(2)
columns = np.hstack([x, np.ones((200, 1))])
for step in range(1, 101):
    wrong = columns @ weight - y
    weight -= 0.5 * columns.T @ wrong / len(y)
    if step % 10 == 0:
        print(f"step {step} loss {np.mean(wrong**2):.5f}", flush=True)
np.save(Path(os.environ.get("TM_MODEL_DIR", ".")) / "line.npy", weight)
print(f"y = {weight[0]:.2f} x + {weight[1]:.2f}, with numpy {np.__version__}")
