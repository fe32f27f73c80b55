"""Networks of PyTorch on made images: LeNet's kind, and one with batch norm, dropout and augmentation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import shoal
import shoal.torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.programs.counting import Counting

SIDE = 12
CLASSES = 4


def image(index: int) -> tuple[torch.Tensor, int]:
    """Noise, with a bright quarter that says what it is."""
    generator = np.random.default_rng(index)
    label = int(generator.integers(CLASSES))
    pixels = generator.normal(size=(1, SIDE, SIDE)).astype(np.float32)
    row, column = divmod(label, 2)
    pixels[:, 6 * row : 6 * row + 6, 6 * column : 6 * column + 6] += 1.0
    return torch.from_numpy(pixels), label


class Images(Sequence[Any]):
    """So many of them; augmented ones are shifted by chance."""

    def __init__(self, records: int, first: int = 0, is_augmented: bool = False) -> None:
        self.records, self.first, self.is_augmented = records, first, is_augmented

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, index: Any) -> Any:
        pixels, label = image(self.first + index)
        if self.is_augmented:
            return augmented(pixels), label
        return pixels, label


def augmented(pixels: torch.Tensor) -> torch.Tensor:
    """Shifted, and brighter or darker, by chance."""
    dy, dx = torch.randint(0, 3, (2,)).tolist()
    pixels = F.pad(pixels, (1, 1, 1, 1))[:, dy : dy + SIDE, dx : dx + SIDE]
    return pixels * (1 + 0.1 * float(np.random.normal()))


class LeNet(nn.Module):
    """Convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 12, 3, padding=1)
        self.last = nn.Linear(12 * 9, CLASSES)

    def forward(self, x: torch.Tensor) -> Any:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return self.last(x.flatten(1))


class Residual(nn.Module):
    """With batch norm, a constant buffer, a frozen layer and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.body_norm = nn.BatchNorm2d(8, momentum=0.2)
        self.frozen = nn.Conv2d(8, 8, 1, bias=False)
        self.frozen.weight.requires_grad = False
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.tensor(0.5))
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> Any:
        x = F.relu(self.stem_norm(self.stem(x)))
        x = x + self.scale * F.relu(self.body_norm(self.body(self.frozen(x))))
        return self.head(self.dropout(F.avg_pool2d(x, 3).amax((2, 3))))


def build_lenet() -> Any:
    net = LeNet()
    return net, torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)


def build_residual() -> Any:
    net = Residual()
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": 1e-3},
        {"params": [parameter for parameter in trained if parameter.ndim == 1], "lr": 0.02},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True)
    return net, optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [10, 15], 0.3)


def loss(net: nn.Module, batch: Any) -> torch.Tensor:
    x, y = batch
    return F.cross_entropy(net(x), y)


def losses(net: nn.Module, batch: Any) -> torch.Tensor:
    x, y = batch
    return F.cross_entropy(net(x), y, reduction="none")


def evaluate(net: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
    x, y = batch
    said = net(x)
    return {"accuracy": said.argmax(1) == y, "log_loss": F.cross_entropy(said, y, reduction="none")}


def predict(net: nn.Module, batch: Any) -> torch.Tensor:
    said: torch.Tensor = net(batch[0])
    return said


class Counted(Counting, shoal.torch.Program):
    """With the count oracle."""


def program(name: str, records: int = 640, **options: Any) -> shoal.torch.Program:
    """One of the networks as a program."""
    options = {"evaluate": evaluate, "predict": predict, "eval_data": Images(128, 100_000), **options}
    if name == "lenet":
        return Counted(build_lenet, loss, **{"clip_norm": 1.0, "schedule": shoal.cosine(), "data": Images(records), **options})
    return Counted(build_residual, losses, **{"data": Images(records, is_augmented=True), **options})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=["lenet", "residual"])
    parser.add_argument("--records", type=int, default=640)
    arguments = parser.parse_args()
    shoal.main(program(arguments.name, arguments.records))
