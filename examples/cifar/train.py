"""A convolutional network on CIFAR-like pictures: a SageMaker script, unchanged.

It knows nothing of Trainmaster. Data, model and hyperparameters come as SageMaker gives them: SM_CHANNEL_TRAINING, SM_MODEL_DIR and
`--name value`; checkpoints lie in the `checkpoints` folder beside `model`, and training goes on from the last one.
"""

import argparse
import json
import os
import pickle
from pathlib import Path

import torch
from torch import nn


def read(folder, names):
    pixels, labels = [], []
    for name in names:
        with open(folder / name, "rb") as file:
            batch = pickle.load(file)
        pixels += batch["data"]
        labels += batch["labels"]
    data = torch.frombuffer(bytearray(b"".join(pixels)), dtype=torch.uint8).view(len(pixels), 3, 32, 32)
    return data.float() / 255 - 0.5, torch.tensor(labels)


def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4, classes),
    )


def accuracy(model, pictures, labels):
    model.eval()
    with torch.no_grad():
        return (model(pictures).argmax(1) == labels).float().mean().item()


def one_epoch(model, optimizer, pictures, labels, batch_size):
    model.train()
    order = torch.randperm(len(labels))
    total = 0.0
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        loss = nn.functional.cross_entropy(model(pictures[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(chosen)
    return total / len(order)


def save(path, state):
    """Written beside it and renamed: whoever looks sees the old one or the new one, whole."""
    draft = path.with_suffix(".new")
    torch.save(state, draft)
    draft.rename(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--data", type=Path, default=os.environ.get("SM_CHANNEL_TRAINING"))
    parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR"))
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)

    with open(args.data / "batches.meta", "rb") as file:
        classes = pickle.load(file)["label_names"]
    pictures, labels = read(args.data, ["data_batch_1", "data_batch_2"])
    test_pictures, test_labels = read(args.data, ["test_batch"])
    model = network(len(classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)

    saved = args.model_dir.parent / "checkpoints" / "last.pt"
    begin = 0
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"]
        print(f"goes on after epoch {begin}")
    for epoch in range(begin + 1, args.epochs + 1):
        loss = one_epoch(model, optimizer, pictures, labels, args.batch_size)
        print(f"epoch={epoch} loss={loss:.4f} accuracy={accuracy(model, test_pictures, test_labels):.4f}", flush=True)
        save(saved, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch})

    torch.save(model.state_dict(), args.model_dir / "model.pth")
    (args.model_dir / "classes.json").write_text(json.dumps(classes))


main()
