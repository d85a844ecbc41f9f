"""Writes to its output as fast as it can; its own time goes to a file. `python flood.py RESULT BYTES BLOCK`"""

import json
import os
import sys
import time

result, size, block_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
line = b"step 000001 loss 0.123456789 lr 0.001 samples/s 12345.6 grad norm 1.25\n"
block = (line * (block_bytes // len(line) + 1))[:block_bytes]

began = time.perf_counter()
left = size
while left:
    left -= os.write(1, block[:left] if left < block_bytes else block)
with open(result, "w") as file:
    json.dump({"wall_s": time.perf_counter() - began}, file)
