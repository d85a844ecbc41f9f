"""A CPU-bound script: so many equal steps, one line with a metric after each; what it took goes to a file, as it says itself.

`python steps.py RESULT STEPS LOOPS log|print WARM CPU`: the first WARM steps are not counted; CPU is where to stay, or "any".
"""

import json
import os
import resource
import sys
import time

result, steps, loops, way, warm, cpu = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6]

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


def spent():
    """The kernel's count for this process alone, and the clocks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall_s": time.perf_counter(),
        "cpu_s": time.process_time(),
        "user_s": used.ru_utime,
        "system_s": used.ru_stime,
        "pushed_aside": used.ru_nivcsw,
    }


def main():
    if cpu != "any":
        os.sched_setaffinity(0, {int(cpu)})
    before = spent()
    for step in range(steps):
        if step == warm:
            before = spent()
        loss = 1.0 / (1 + step) + work(loops) % 7 * 1e-9
        print(f"step {step} loss {loss:.9f} lr 0.001 samples/s 12345.6")
        if way == "log":
            log(step=step, loss=loss)
    after = spent()
    with open(result, "w") as file:
        json.dump({what: after[what] - before[what] for what in after}, file)


main()
