"""A perceptron of one hidden layer over NumPy, on points in a plane."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shoal

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.programs.counting import Counting

RECORDS = 600


def point(index: int) -> tuple[Any, int]:
    """A point, and on which side of a circle it lies."""
    x, y = (index * 0.618034) % 2 - 1, (index * 0.414214) % 2 - 1
    return np.array([x, y, 1.0], np.float32), int(x * x + y * y < 0.6)


class Points(Sequence[Any]):
    """All points."""

    def __init__(self, records: int) -> None:
        self.records = records

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, index: Any) -> Any:
        return point(index)


class Perceptron(shoal.Program):
    """Logistic regression over 16 hidden units."""

    metrics = {"accuracy": shoal.Accuracy(), "auc": shoal.Auc(bins=64), "log_loss": shoal.LogLoss()}
    data: Any = Points(RECORDS)
    eval_data: Any = Points(200)

    def declare(self, job: shoal.Job) -> Sequence[Any]:
        rule = shoal.Adam(0.02, schedule=shoal.cosine(to=0.1))
        return [
            shoal.Parameter("hidden", (3, 16), rule, shoal.normal(0.8)),
            shoal.Parameter("output", (16,), rule, shoal.normal(0.5)),
        ]

    def points(self, batch: shoal.Batch) -> Sequence[Any]:
        return batch.samples

    def _forward(self, batch: shoal.Batch, parameters: shoal.Parameters) -> tuple[Any, Any, Any, Any]:
        points = self.points(batch)
        x = np.stack([x for x, _ in points])
        y = np.array([y for _, y in points], np.float32)
        hidden = np.tanh(x @ parameters["hidden"])
        return x, y, hidden, 1 / (1 + np.exp(-(hidden @ parameters["output"])))

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        x, y, hidden, said = self._forward(batch, parameters)
        error = said - y
        gradient["output"] += hidden.T @ error
        gradient["hidden"] += x.T @ (np.outer(error, parameters["output"]) * (1 - hidden**2))

    def evaluate(self, batch: shoal.Batch, parameters: shoal.Parameters, metrics: shoal.Metrics) -> None:
        _, y, _, said = self._forward(batch, parameters)
        metrics.add("accuracy", ((said > 0.5) == y).sum(), len(y))
        metrics.add("log_loss", -np.log(np.where(y > 0, said, 1 - said)).sum(), len(y))
        metrics.score("auc", said, y)

    def predict(self, batch: shoal.Batch, parameters: shoal.Parameters) -> Sequence[str]:
        return [f"{one:.6f}" for one in self._forward(batch, parameters)[3]]


class Counted(Counting, Perceptron):
    """With the count oracle."""


if __name__ == "__main__":
    shoal.main(Counted())
