"""A CPU-bound script: so many equal steps, one line with a metric after each; its own time goes to a file.

`python steps.py RESULT STEPS LOOPS log|print WINDOW`: the time of each WINDOW steps is taken apart.
"""

import json
import sys
import time
from itertools import pairwise

result, steps, loops, way, window = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])

if way == "log":
    from trainmaster import log
else:

    def log(**values):
        """What a bare script does about metrics: nothing."""


def work(loops):
    total = 0
    for number in range(loops):
        total = (total * 31 + number) & 0xFFFFFF
    return total


def main():
    marks, cpu_began = [time.perf_counter()], time.process_time()
    for step in range(steps):
        loss = 1.0 / (1 + step) + work(loops) % 7 * 1e-9
        print(f"step {step} loss {loss:.9f} lr 0.001 samples/s 12345.6")
        if way == "log":
            log(step=step, loss=loss)
        if (step + 1) % window == 0:
            marks.append(time.perf_counter())
    spent = {"windows_s": [b - a for a, b in pairwise(marks)], "cpu_s": time.process_time() - cpu_began}
    with open(result, "w") as file:
        json.dump(spent, file)


main()
