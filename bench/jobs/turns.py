"""A CPU-bound script that others let run in turns: equal steps, one line with a metric after each, until it is told to end.

`python turns.py NOTES LOOPS log|print CPU`: NOTES is a file of three numbers shared with whoever measures: the process, the steps
done, and whether to end; CPU is where to stay, or "any".
"""

import mmap
import os
import struct
import sys

notes, loops, way, cpu = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]

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
    if cpu != "any":
        os.sched_setaffinity(0, {int(cpu)})
    with open(notes, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 24)
    struct.pack_into("q", shared, 0, os.getpid())
    step = 0
    while not struct.unpack_from("q", shared, 16)[0]:
        loss = 1.0 / (1 + step) + work(loops) % 7 * 1e-9
        print(f"step {step} loss {loss:.9f} lr 0.001 samples/s 12345.6")
        if way == "log":
            log(step=step, loss=loss)
        step += 1
        struct.pack_into("q", shared, 8, step)


main()
