"""Writes a checkpoint of many files, says when the last one was closed, and waits to be let go.

`python checkpoint.py FOLDER FILES BYTES CLOSED_FILE GO_FILE`; without a folder ("") to $TM_CHECKPOINT_DIR.
"""

import os
import sys
import time

folder, files, size, closed_file, go_file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
folder = folder or os.environ["TM_CHECKPOINT_DIR"]
block = os.urandom(4 << 20)

for number in range(files):
    with open(f"{folder}/shard-{number:02d}.bin", "wb") as file:
        left = size
        while left:
            left -= file.write(block[: min(left, len(block))])
        # Written out, so that what is measured next is the copying and not the writing of this file; it stays in memory.
        file.flush()
        os.fsync(file.fileno())

with open(closed_file + ".new", "w") as file:
    file.write(repr(time.time()))
os.rename(closed_file + ".new", closed_file)
while not os.path.exists(go_file):
    time.sleep(0.02)
