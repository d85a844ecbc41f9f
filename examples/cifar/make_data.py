"""Make a small set of pictures in the layout of CIFAR-10: `python make_data.py FOLDER`. Five classes of stripes, in noise."""

import pickle
import random
import sys
from pathlib import Path

CLASSES = ["across", "down", "rising", "falling", "plain"]
SIDE = 32


def picture(kind, rng):
    """3 × 32 × 32 bytes: all of red, all of green, all of blue."""
    shift, width = rng.randrange(8), 4
    right, down = {"across": (0, 1), "down": (1, 0), "rising": (1, 1), "falling": (1, -1), "plain": (0, 0)}[kind]
    values = bytearray()
    for _colour in range(3):
        light = rng.randrange(90, 160)
        for y in range(SIDE):
            for x in range(SIDE):
                stripe = 60 if (right * x + down * y + shift) // width % 2 else -60
                values.append(max(0, min(255, light + stripe + rng.randrange(-50, 50))))
    return bytes(values)


def main(folder):
    rng = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("data_batch_1", 400), ("data_batch_2", 400), ("test_batch", 200)):
        labels = [rng.randrange(len(CLASSES)) for _ in range(count)]
        batch = {"data": [picture(CLASSES[label], rng) for label in labels], "labels": labels}
        with open(folder / name, "wb") as file:
            pickle.dump(batch, file)
    with open(folder / "batches.meta", "wb") as file:
        pickle.dump({"label_names": CLASSES}, file)


main(Path(sys.argv[1]))
