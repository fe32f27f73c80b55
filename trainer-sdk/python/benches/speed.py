"""Processor time of a Shoal trainer against the plain PyTorch loop, on the same images: python benches/speed.py lenet

In one run, alternated, so that both have the same machine: the plain loop with torch.optim, then a trainer of a whole job in
this process. Only this process's time counts, all of its threads; that of the master and the parameter server, which are
others, is told beside it. The figure is the median of the ratios of neighbours.

`python benches/speed.py handover` is the time between two microbatches of a program that does nothing: from the end of one step's
function to the beginning of the next one's.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import default_collate

import shoal
import shoal.torch


class LeNet(nn.Module):
    """LeNet-5's kind, on 28 x 28."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.linear = nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, x: torch.Tensor) -> Any:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.linear(F.max_pool2d(F.relu(self.second(x)), 2).flatten(1))


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = outputs // inputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        around: list[nn.Module] = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.around = nn.Sequential(*around) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        return F.relu(self.body(x) + self.around(x))


def resnet20() -> nn.Module:
    """ResNet-20 (He et al. 2016), on one channel."""
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Block(inputs, outputs) for inputs, outputs in pairwise(widths)]
    stem = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {"lenet": (LeNet, 32), "resnet20": (resnet20, 64)}
MICROBATCHES = 8


class Images:
    """Made images of MNIST's shape."""

    def __init__(self, count: int) -> None:
        generator = np.random.default_rng(1)
        self.pixels = generator.integers(0, 256, (count, 1, 28, 28), np.uint8)
        self.labels = generator.integers(0, 10, count)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.pixels[index]).float() / 255, int(self.labels[index])


def loss(net: nn.Module, batch: Any) -> torch.Tensor:
    """Of a microbatch the mean."""
    x, y = batch
    return F.cross_entropy(net(x), y)


def plain(make: Callable[[], nn.Module], data: Images, records: int) -> float:
    """Processor seconds of the plain loop: eight microbatches a step."""
    torch.manual_seed(1)
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    began = time.process_time()
    net.train()
    for step in range(0, len(data), records * MICROBATCHES):
        optimizer.zero_grad()
        for first in range(step, min(step + records * MICROBATCHES, len(data)), records):
            batch = default_collate([data[index] for index in range(first, min(first + records, len(data)))])
            (loss(net, batch) / MICROBATCHES).backward()
        optimizer.step()
    return time.process_time() - began


class Timed(shoal.torch.Program):
    """A program that notes when it has joined: building it is no training."""

    began = 0.0

    def environment(self) -> dict[str, str]:
        told = super().environment()
        self.began = time.process_time()
        return told


def as_trainer(make: Callable[[], nn.Module], data: Images, records: int) -> tuple[float, float]:
    """Processor seconds of a trainer, from its joining to the job's end, and of the job's other processes."""

    def build() -> Any:
        net = make()
        return net, torch.optim.AdamW(net.parameters(), lr=1e-3)

    program = Timed(build, loss, data=data)
    others = _of_children()
    with tempfile.TemporaryDirectory() as folder:
        shape: dict[str, Any] = {"microbatch_records": records, "microbatches_per_step": MICROBATCHES}
        shoal.run(program, folder=folder, progress=False, **shape)
    return time.process_time() - program.began, _of_children() - others


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Nothing(shoal.Program):
    """A program that does nothing, and notes when."""

    def __init__(self, records: int) -> None:
        self.data = range(records)
        self.times: list[tuple[int, int]] = []

    def declare(self, job: shoal.Job) -> list[shoal.Parameter]:
        return [shoal.Parameter("w", (1,), shoal.SGD(0.1))]

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        began = time.perf_counter_ns()
        self.times.append((began, time.perf_counter_ns()))


def handover(records: int) -> None:
    """Prints how long microbatches of one record lie apart, 1,024 in a step."""
    program = Nothing(records)
    with tempfile.TemporaryDirectory() as folder:
        shoal.run(program, folder=folder, progress=False, microbatch_records=1, microbatches_per_step=1024)
    apart = sorted((began - ended) / 1e3 for (_, ended), (began, _) in pairwise(program.times))
    median, high = statistics.median(apart), apart[len(apart) * 9 // 10]
    print(f"handover, {len(program.times)} microbatches: median {median:.1f} us, nine of ten at most {high:.1f} us")


def main() -> None:
    """Alternates both and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*NETWORKS, "handover"])
    parser.add_argument("--images", type=int, default=20_032)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.what == "handover":
        handover(arguments.images)
        return
    make, records = NETWORKS[arguments.what]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    data = Images(arguments.images)
    plain(make, Images(records * MICROBATCHES), records)
    ratios = []
    for number in range(arguments.rounds):
        alone, (ours, others) = plain(make, data, records), as_trainer(make, data, records)
        ratios.append(ours / alone)
        seconds = f"plain {alone:.3f} s, trainer {ours:.3f} s, master and pserver {others:.3f} s"
        print(f"round {number}: {seconds}, ratio {ratios[-1]:.3f}", flush=True)
    print(
        f"{arguments.what}, {arguments.images} images, microbatch {records}: ratio {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f})"
    )


if __name__ == "__main__":
    main()
