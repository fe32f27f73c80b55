"""What a trainer finds out before it joins, by a microbatch that it computes twice: state that programs keep, and differences."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shoal  # noqa: E402
import shoal.torch  # noqa: E402
from shoal import _environment  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.job]

SHAPE: dict[str, Any] = {"microbatch_records": 16, "microbatches_per_step": 4, "seed": 7}
DATA = [torch.full((4,), 1.0 + index / 10) for index in range(64)]


def square(net: nn.Module, batch: Any) -> Any:
    return net(batch).square().mean()


def build(net: Callable[[], nn.Module]) -> Any:
    def made() -> Any:
        module = net()
        return module, torch.optim.SGD(module.parameters(), lr=0.01)

    return made


def program(net: Callable[[], nn.Module] = lambda: nn.Linear(4, 1), loss: Any = square, **options: Any) -> shoal.torch.Program:
    return shoal.torch.Program(build(net), loss, **{"data": DATA, **options})


class Keeps(nn.Module):
    """Its way forward depends on how often it was gone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.tau = 1.0
        self.hidden: Any = None
        self.mean: Any = None
        self.generator = torch.Generator().manual_seed(3)


class Cools(Keeps):
    def forward(self, x: Any) -> Any:
        self.tau *= 0.9
        return self.linear(x) * self.tau


class Remembers(Keeps):
    def forward(self, x: Any) -> Any:
        y = self.linear(x) if self.hidden is None else self.linear(x) + self.hidden.mean()
        self.hidden = y.detach()
        return y


class Draws(Keeps):
    def forward(self, x: Any) -> Any:
        return self.linear(x + torch.randn(x.shape, generator=self.generator))


class Replaces(Keeps):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        self.linear.weight = nn.Parameter(self.linear.weight.detach().clone())
        return y


class Noisy(list[Any]):
    """Draws from a generator of its own."""

    generator = np.random.default_rng(0)

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) + float(self.generator.normal())


def backward(net: nn.Module, batch: Any) -> Any:
    loss = square(net, batch)
    loss.backward(retain_graph=True)
    return loss


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (lambda: program(Cools), "another gradient when it is computed again"),
        (lambda: program(Remembers), "another gradient when it is computed again"),
        (lambda: program(Draws), "another gradient when it is computed again"),
        (lambda: program(Replaces), "another gradient when it is computed again"),
        (lambda: program(data=Noisy(DATA)), "gives another sample when it is asked again"),
        (lambda: program(loss=backward), r"`loss` has called backward\(\)"),
        (lambda: program(loss=lambda net, batch: square(net, batch).detach()), "has no gradient: it was detached"),
    ],
    ids=["cools", "remembers", "draws", "replaces", "data", "backward", "detached"],
)
def test_a_program_that_keeps_what_a_trainer_may_lose_is_refused_before_it_begins(
    tmp_path: Path, of: Callable[[], shoal.torch.Program], told: str
) -> None:
    with pytest.raises(shoal.TrainError, match=f"cannot begin.*{told}"):
        shoal.run(of(), folder=tmp_path, **SHAPE)


def trial(tmp_path: Path, of: shoal.torch.Program) -> str:
    """What other trainers compare."""
    shoal.run(of, folder=tmp_path, **SHAPE)
    return of.environment()["gradient of some records"]


def test_trainers_of_which_a_script_has_made_others_have_other_environments(tmp_path: Path) -> None:
    def projected(seed: int) -> shoal.torch.Program:
        matrix = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        return program(loss=lambda net, batch: square(net, batch @ matrix))

    def ordered(words: list[str]) -> shoal.torch.Program:
        numbers = {word: float(number) for number, word in enumerate(words)}
        return program(collate=lambda samples: torch.stack(samples) * numbers["b"])

    first = [trial(tmp_path / f"first-{at}", projected(seed)) for at, seed in enumerate((1, 1, 2))]
    assert first[0] == first[1] != first[2]
    assert trial(tmp_path / "a", ordered(["a", "b"])) != trial(tmp_path / "b", ordered(["c", "a", "b"]))


def test_a_record_that_fails_in_a_trial_is_told_of_in_its_step_and_may_be_left_out(tmp_path: Path) -> None:
    class Lacking(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            if index == 0:
                raise ValueError("a bad record")
            return super().__getitem__(index)

    result = shoal.run(program(data=Lacking(DATA)), folder=tmp_path, exclude_max=1, **SHAPE)
    assert result.status["records_excluded"] == 1


def test_a_trial_that_has_no_memory_is_the_trainers(tmp_path: Path) -> None:
    def loss(net: nn.Module, batch: Any) -> Any:
        raise MemoryError("no memory for it")

    with pytest.raises(shoal.TrainError, match=r"no memory for it.*this trainer ends"):
        shoal.run(program(loss=loss), folder=tmp_path, **SHAPE)


class KeepsItsNorm(nn.Module):
    """Its norm is never trained, as authors of fine-tuning write it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 1), nn.BatchNorm1d(1)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x))


def parts() -> nn.Module:
    """Of one matrix, between whose rows those of others lie."""
    net = nn.Module()
    for number, part in enumerate(torch.randn(4, 6).split(2, dim=1)):
        net.register_parameter(f"part{number}", nn.Parameter(part))
    return net


@pytest.mark.parametrize(
    ("of", "options"),
    [
        (lambda: program(KeepsItsNorm), {}),
        (lambda: program(parts, lambda net, batch: (batch @ net.part0).square().mean()), {}),
        (lambda: program(data=[torch.ones(4), torch.ones(2, 4), torch.ones(3, 4)]), {"microbatch_records": 1}),
        (
            lambda: program(loss=lambda net, batch: nn.functional.mse_loss(net(batch), batch[:, :1], reduction="sum")),
            {"microbatch_records": 1},
        ),
        (lambda: program(data=Noisy(DATA)), {"mode": "async"}),
        (lambda: program(Cools), {"mode": "async"}),
    ],
    ids=["own train()", "parts", "lengths", "sum of one", "noisy async", "cools async"],
)
def test_what_breaks_no_promise_is_let_in(tmp_path: Path, of: Callable[[], shoal.torch.Program], options: dict[str, Any]) -> None:
    trained = of()
    shoal.run(trained, folder=tmp_path, **{**SHAPE, **options})
    assert not trained._built.norms


def test_values_that_a_script_has_drawn_do_not_matter_for_the_jobs_are_taken(tmp_path: Path) -> None:
    def built(seed: int) -> shoal.torch.Program:
        torch.manual_seed(seed)
        net = nn.Linear(4, 1)
        return program(lambda: net)

    assert trial(tmp_path / "one", built(1)) == trial(tmp_path / "other", built(2))


def test_a_job_that_only_predicts_wants_no_loss_and_no_labels(tmp_path: Path) -> None:
    def no_loss(net: nn.Module, batch: Any) -> Any:
        raise AssertionError("nothing is trained")

    model = shoal.run(program(), folder=tmp_path / "trained", **SHAPE).model
    told = tmp_path / "told"
    predicting = program(loss=no_loss, predict=lambda net, batch: net(batch).unbind())
    shoal.run(predicting, folder=tmp_path / "job", predict=told, warm_start=model, epochs=0, **SHAPE)
    assert len(list(shoal.predictions(told))) == len(DATA)


@dataclasses.dataclass
class Sample:
    """As many scripts have them."""

    x: Any
    words: frozenset[str] = frozenset()


def test_samples_of_ones_own_are_told_apart_and_sets_have_one_order() -> None:
    def told(*samples: Any) -> str:
        return _environment.digests({"data": samples}, lambda seed: None)["data"]

    assert told(Sample(1)) == told(Sample(1)) != told(Sample(2))
    letters = list("abcdefgh")
    assert told(Sample(1, frozenset(letters))) == told(Sample(1, frozenset(reversed(letters))))
    assert told(Sample(1, frozenset("ab"))) != told(Sample(1, frozenset("ac")))


class Colour(enum.Enum):
    """Some labels are such."""

    RED = 1


class Cyclic:
    """Refers to itself."""

    def __init__(self) -> None:
        self.data = self


def test_anything_has_words_that_are_the_same_in_every_process() -> None:
    words = _environment.words_of
    assert words(Colour.RED) == "Colour.RED"
    assert words(np.array([Sample(1)], dtype=object)) == words(np.array([Sample(1)], dtype=object))
    assert "0x" not in words(np.array([Sample(1)], dtype=object))
    assert words(Cyclic()) == words(Cyclic())
    ones = torch.ones(2)
    assert words(ones.bfloat16()) != words(2 * ones.bfloat16())
    assert words(ones.clone().requires_grad_()) == words(ones)
    assert words(ones.to_sparse()) == "Tensor (2,)"
    assert words({"a": 1}) != words({"a": 2})


def test_settings_of_pytorch_are_part_of_the_environment() -> None:
    from shoal.torch import _bits

    before = _bits.settings()
    changes: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch.set_float32_matmul_precision("medium"), lambda: torch.set_float32_matmul_precision("highest")),
        (lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)),
        (lambda: setattr(torch.backends.mkldnn, "enabled", False), lambda: setattr(torch.backends.mkldnn, "enabled", True)),
    ]
    for change, back in changes:
        change()
        try:
            assert _bits.settings() != before
        finally:
            back()
        assert _bits.settings() == before
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        assert _bits.settings() != before
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"
