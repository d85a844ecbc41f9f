"""What does a customer want? A small network over words, told everything by its environment: LR EPOCHS BATCH_SIZE FC_SIZE.

Plain Python, so that it runs everywhere. The words and sentences are in intents.csv, beside this file.
"""

import csv
import json
import math
import os
import random
from pathlib import Path

LR = float(os.environ.get("LR", "0.1"))
EPOCHS = int(os.environ.get("EPOCHS", "10"))
BATCH_SIZE = int(os.environ.get("BATCH_SIZE", "8"))
FC_SIZE = int(os.environ.get("FC_SIZE", "16"))
CHECKPOINT = Path(os.environ.get("TM_CHECKPOINT_DIR", "."), "state.json")
MODEL = Path(os.environ.get("TM_MODEL_DIR", "."), "intents.json")


class Network:
    """Words → hidden layer of FC_SIZE → intents. One sentence is the set of its known words."""

    def __init__(self, words, intents, rng):
        self.words = {word: number for number, word in enumerate(words)}
        self.intents = intents
        self.first = [[rng.gauss(0, 0.3) for _ in range(FC_SIZE)] for _ in words]
        self.second = [[rng.gauss(0, 0.3) for _ in range(FC_SIZE)] for _ in intents]

    def think(self, text):
        known = [self.words[word] for word in text.split() if word in self.words]
        hidden = [math.tanh(sum(self.first[word][unit] for word in known)) for unit in range(FC_SIZE)]
        scores = [sum(w * h for w, h in zip(row, hidden, strict=True)) for row in self.second]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        return known, hidden, [power / sum(powers) for power in powers]

    def answer(self, text):
        _, _, chances = self.think(text)
        return self.intents[chances.index(max(chances))]

    def learn(self, batch, lr):
        """One step down the slope of a whole batch; the sum of the losses before it."""
        loss, steps = 0.0, []
        for text, intent in batch:
            known, hidden, chances = self.think(text)
            wanted = self.intents.index(intent)
            wrong = [chance - (number == wanted) for number, chance in enumerate(chances)]
            slopes = [sum(w * row[u] for w, row in zip(wrong, self.second, strict=True)) for u in range(FC_SIZE)]
            steps.append((known, hidden, wrong, [slope * (1 - h**2) for slope, h in zip(slopes, hidden, strict=True)]))
            loss -= math.log(max(chances[wanted], 1e-12))
        for known, hidden, wrong, back in steps:
            for row, error in zip(self.second, wrong, strict=True):
                row[:] = [weight - lr * error * h for weight, h in zip(row, hidden, strict=True)]
            for word in known:
                self.first[word] = [weight - lr * b for weight, b in zip(self.first[word], back, strict=True)]
        return loss


def save(path, value):
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(value))
    draft.rename(path)


def main():
    with open(Path(__file__).with_name("intents.csv"), newline="") as file:
        rows = [(row["text"], row["intent"]) for row in csv.DictReader(file)]
    held_back, rows = rows[::5], [row for number, row in enumerate(rows) if number % 5]
    words = sorted({word for text, _ in rows for word in text.split()})
    network = Network(words, sorted({intent for _, intent in rows}), random.Random(1))
    begin = 0
    if CHECKPOINT.exists():
        state = json.loads(CHECKPOINT.read_text())
        begin, network.first, network.second = state["epoch"], state["first"], state["second"]
        print(f"goes on after epoch {begin}")
    for epoch in range(begin + 1, EPOCHS + 1):
        random.Random(epoch).shuffle(rows)
        total = 0.0
        for start in range(0, len(rows), BATCH_SIZE):
            total += network.learn(rows[start : start + BATCH_SIZE], LR)
        right = sum(network.answer(text) == intent for text, intent in held_back) / len(held_back)
        print(f"epoch {epoch}: loss {total / len(rows):.4f}, accuracy {right:.3f}", flush=True)
        save(CHECKPOINT, {"epoch": epoch, "first": network.first, "second": network.second})
    save(MODEL, {"words": words, "intents": network.intents, "first": network.first, "second": network.second})


main()
