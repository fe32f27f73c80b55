"""Programs whose bits are not a function of their arguments, and what finds them."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

import shoal

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shoal.torch  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.job]

SHAPE: dict[str, Any] = {"microbatch_records": 64, "microbatches_per_step": 2, "seed": 7}
#: Steps within which a difference must be found.
STEPS = 20


class Vectors:
    """Of 784 elements, as many as make so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __len__(self) -> int:
        return self.steps * 128

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(784, generator=generator)


def build() -> Any:
    net = nn.Sequential(nn.Linear(784, 256), nn.Tanh(), nn.Linear(256, 10))
    return net, torch.optim.SGD(net.parameters(), lr=0.01)


def loss(net: nn.Module, batch: Any) -> Any:
    return (net(batch) ** 2).mean()


class Counting:
    """A loss that counts its calls, from some call on."""

    def __init__(self, after: int) -> None:
        self.after, self.calls = after, 0

    def __call__(self, net: nn.Module, batch: Any) -> Any:
        self.calls += 1
        return loss(net, batch) * (1 + 1e-6 * max(0, self.calls - self.after))


def timed(net: nn.Module, batch: Any) -> Any:
    """A loss that looks at the clock, if its batch is whole."""
    return loss(net, batch) * (1 + 1e-3 * (time.time() % 1 if len(batch) == 64 else 0))


def found(error: BaseException) -> int:
    """The step at which two computations were found to differ."""
    words = str(error)
    assert re.search(r"parameter \"[02]\.(weight|bias)\"", words), words
    step = re.search(r"step ([0-9]+)", words)
    assert step, words
    return int(step[1])


def test_a_loss_that_counts_from_its_first_call_is_refused_before_it_begins(tmp_path: Path) -> None:
    program = shoal.torch.Program(build, Counting(after=0), data=Vectors(STEPS))
    with pytest.raises(shoal.TrainError, match="another gradient when it is computed again"):
        shoal.run(program, folder=tmp_path, **SHAPE)


@pytest.mark.parametrize("made", [Counting(after=8), timed], ids=["counts its calls", "looks at the clock"])
def test_a_loss_that_is_no_function_is_found_by_step_and_parameter(tmp_path: Path, made: Any) -> None:
    program = shoal.torch.Program(build, made, data=Vectors(STEPS))
    with pytest.raises(shoal.TrainError, match="computed twice") as caught:
        shoal.run(program, folder=tmp_path, verify=0.2, **SHAPE)
    assert found(caught.value) < STEPS


class Odd(shoal.torch.Program):
    """With two threads in one of its trainers."""

    def declare(self, job: shoal.Job) -> Any:
        self._threads = 2 if os.environ.get("SHOAL_TRAINER_NAME") == "trainer-1" else 1
        return super().declare(job)


def test_a_trainer_with_other_threads_that_was_let_in_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Both have joined before the first is through.
    monkeypatch.setenv("SHOAL_PACE_MILLIS", "150")
    program = Odd(build, loss, data=Vectors(60))
    with pytest.raises(shoal.TrainError, match="computed twice") as caught:
        shoal.run(program, trainers=2, folder=tmp_path, verify=0.2, environment="any", **SHAPE)
    found(caught.value)


def test_a_program_that_is_a_function_is_verified_and_has_the_same_hash(tmp_path: Path) -> None:
    results = []
    for trainers, verify in ((1, 0.0), (1, 1.0), (2, 0.5)):
        program = shoal.torch.Program(build, loss, data=Vectors(STEPS))
        folder = tmp_path / f"{trainers}-{verify}"
        results.append(shoal.run(program, trainers=trainers, folder=folder, verify=verify, **SHAPE))
    assert len({result.sha256 for result in results}) == 1
