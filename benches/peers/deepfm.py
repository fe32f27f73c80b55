#!/usr/bin/env python3
"""The peer of the example `clicks`: the same DeepFM in PyTorch on the same rows, on the CPU.

    python3 -m venv data/venv && data/venv/bin/pip install torch
    data/venv/bin/python benches/peers/deepfm.py --data data/adult
    data/venv/bin/python benches/peers/deepfm.py --data data/movielens --json data/movielens.json

The folder has train.tsv and test.tsv, which `clicks --pack` writes beside the records. Sizes, initial distributions,
optimizer, rates, batch and epochs are those of trainer-sdk/examples/clicks; the draws are PyTorch's own. AdaGrad leaves
a row without a gradient as it is, so that the dense tables here are trained as Shoal's sparse ones are. A value that
occurs in test.tsv alone keeps the row that it began with. Areas under the curve are exact, by ranks.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from torch import nn

DIMENSION = 8
HIDDEN = (64, 32)
DEVIATION = 0.01
SEEDS = range(7, 12)


class DeepFm(nn.Module):
    """Guo et al. 2017. Its logits, for rows of value numbers, one column a field."""

    def __init__(self, values, fields):
        super().__init__()
        self.first_order = nn.Parameter(torch.zeros(values))
        self.embedding = nn.Parameter(torch.randn(values, DIMENSION) * DEVIATION)
        sizes, layers = (fields * DIMENSION, *HIDDEN, 1), []
        for inputs, outputs in zip(sizes, sizes[1:]):
            layer = nn.Linear(inputs, outputs)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.ReLU()]
        self.deep = nn.Sequential(*layers[:-1])

    def forward(self, rows):
        embedded = self.embedding[rows]
        pairs = embedded.sum(1).square().sum(1) - embedded.square().sum((1, 2))
        return self.first_order[rows].sum(1) + pairs / 2 + self.deep(embedded.flatten(1)).squeeze(1)


def auc(scores, labels):
    """The area under the ROC curve: the share of pairs told right, ties as a half."""
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    ranks = (last - (counts.double() - 1) / 2)[places]
    positive = labels.bool()
    positives, negatives = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def read(folder):
    """The rows of train.tsv and test.tsv as (value numbers, labels); how many values there are."""
    numbers, sides = {}, []
    for name in ("train.tsv", "test.tsv"):
        try:
            text = (folder / name).read_text(encoding="utf-8")
        except OSError as error:
            raise SystemExit(f"error: {error}: write it with `clicks --pack {folder}`, see docs/examples.md") from error
        header, *lines = text.removesuffix("\n").split("\n")
        rows = [line.split("\t") for line in lines]
        for number, row in enumerate(rows, 2):
            if len(row) != len(header.split("\t")) or row[0] not in ("0", "1"):
                what = f"is no label and a value for each of {header!r}"
                raise SystemExit(f"error: {folder / name}, line {number}: {what}")
        values = [[numbers.setdefault(pair, len(numbers)) for pair in enumerate(row[1:])] for row in rows]
        sides.append((torch.tensor(values), torch.tensor([float(row[0]) for row in rows])))
    return sides, len(numbers)


def train(seed, train_side, test_side, values, told):
    """One model: its area under the curve and its log loss (nats) on the rows held out."""
    torch.manual_seed(seed)
    rows, labels = train_side
    model = DeepFm(values, rows.shape[1])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=told.rate, eps=1e-8)
    steps = told.epochs * math.ceil(len(labels) / told.batch)

    def cosine(step):
        return (1 + math.cos(math.pi * min(step / steps, 1))) / 2

    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine)
    for _ in range(told.epochs):
        for chosen in torch.randperm(len(labels)).split(told.batch):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(rows[chosen]), labels[chosen]).backward()
            optimizer.step()
            falling.step()
    with torch.no_grad():
        logits = model(test_side[0])
        loss = nn.functional.binary_cross_entropy_with_logits(logits, test_side[1])
    return {"seed": seed, "auc": auc(logits, test_side[1]), "log_loss": float(loss)}


def main():
    parser = argparse.ArgumentParser(description="DeepFM in PyTorch on the rows of the example `clicks`, five seeds.")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="has train.tsv and test.tsv")
    parser.add_argument("--rate", type=float, default=0.02, help="at the start; it falls to 0 along half a cosine")
    parser.add_argument("--batch", type=int, default=256, help="rows of an update")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well, for `click_through`")
    told = parser.parse_args()
    torch.set_num_threads(1)  # The matrices are small, and one thread adds up in one order.
    sides, values = read(told.data)
    print(f"{len(sides[0][1])} rows to train on, {len(sides[1][1])} held out, {values} values", flush=True)
    models = []
    for seed in SEEDS:
        models.append(train(seed, *sides, values, told))
        print("seed {seed}: AUC {auc:.4f}, log loss {log_loss:.4f}".format(**models[-1]), flush=True)
    result = {name: sum(model[name] for model in models) / len(models) for name in ("auc", "log_loss")}
    print("mean: AUC {auc:.4f}, log loss {log_loss:.4f}".format(**result))
    if told.json:
        told.json.write_text(json.dumps({**result, "models": models}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
