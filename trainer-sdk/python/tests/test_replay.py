"""Steps of a run played again: the same hashes on another number of trainers, and the record that a spike comes from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shoal import _command

from . import scripts
from .local_run import environment

pytestmark = pytest.mark.job

RECORDS = 640
#: The record that is spoiled, and by how much more it says.
SPOILED, TIMES = 333, 1000

POINTS = f"""
import numpy as np, shoal

class Line(shoal.Program):
    data = [float(1 + record % 5) for record in range({RECORDS})]
    data[{SPOILED}] *= {TIMES}

    def declare(self, job):
        return [shoal.Parameter("slope", (4,), shoal.SGD(0.001))]

    def step(self, batch, parameters, gradient):
        for x in batch.samples:
            gradient["slope"] += (parameters["slope"] - x).astype(np.float32)

shoal.main(Line())
"""

NETWORK = f"""
import torch, shoal, shoal.torch
from torch import nn

class Points(torch.utils.data.Dataset):
    def __len__(self):
        return {RECORDS}

    def __getitem__(self, record):
        x = torch.randn(8, generator=torch.Generator().manual_seed(record))
        return x, x.sum() * ({TIMES} if record == {SPOILED} else 1)

def build():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return net, torch.optim.SGD(net.parameters(), lr=1e-4)

def loss(net, batch):
    x, y = batch
    return ((net(x).squeeze(1) - y) ** 2).mean()

shoal.main(shoal.torch.Program(build, loss, data=Points()))
"""


def replayed(folder: Path, *words: str) -> dict[str, Any]:
    """What a replay of the run in `folder` says."""
    command = [_command.shoal(), "replay", "-o", "json", "run", *words]
    ended = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


@pytest.mark.parametrize(
    ("program", "parameter", "counts_loss"),
    [(POINTS, "slope", False), pytest.param(NETWORK, "0.weight", True, marks=pytest.mark.torch)],
    ids=["numpy", "torch"],
)
def test_a_spike_is_traced_to_its_record_on_one_trainer_with_every_hash_of_two(
    program: str, parameter: str, counts_loss: bool, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(program)
    flags = {"folder": "run", "trainers": 2, "record_hashes": 1, "microbatch_records": 16, "microbatches_per_step": 4, "seed": 7}
    assert scripts.train(script, folder=tmp_path, flags=flags)["steps"] == RECORDS // 64

    said = replayed(tmp_path, "--inspect")
    assert (said["steps_same"], said["steps_not_made"], said["difference"]) == (RECORDS // 64 + 1, 0, None), said
    steps = said["inspected"]
    assert [step["step"] for step in steps] == list(range(1, RECORDS // 64 + 1))
    assert all(step["whole"]["records"] == 64 and len(step["microbatches"]) == 4 for step in steps)
    step, microbatch = max(
        ((step, microbatch) for step in steps for microbatch in step["microbatches"]), key=lambda found: float(found[1]["norm"])
    )
    (record,) = microbatch["alone"]
    assert record["record"] == SPOILED, record
    assert record["norm"] > 10 * microbatch["norm"] > 10 * step["whole"]["norm"], (record, microbatch, step)
    assert step["whole"]["norms"][parameter] > 0
    losses = [of["loss"] for of in (record, microbatch, step["whole"])]
    assert losses[0] > 10 * losses[1] > 10 * losses[2] if counts_loss else losses == [None] * 3, losses
