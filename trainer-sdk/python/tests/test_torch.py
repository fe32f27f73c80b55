"""Programs of PyTorch: whole jobs, and what a module may and may not do."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import records

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import shoal.torch  # noqa: E402

from .programs import counting, images  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.job]

SHAPE: dict[str, Any] = {"microbatch_records": 16, "microbatches_per_step": 4, "seed": 7}
NETWORKS = ["lenet", "residual"]


@pytest.mark.parametrize("name", NETWORKS)
def test_trainers_1_2_and_3_give_one_hash_and_every_record_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SHOAL_PACE_MILLIS", "10")
    results = [
        shoal.run(images.program(name), trainers=trainers, epochs=2, folder=tmp_path / str(trainers), **SHAPE)
        for trainers in (1, 2, 3)
    ]
    assert len({result.sha256 for result in results}) == 1
    for trainers, result in zip((1, 2, 3), results, strict=True):
        assert sum(trainer["microbatches"] > 0 for trainer in result.status["trainers"]) == trainers
        for counter in counting.NAMES:
            assert (result.tensors()[counter] == 1 + 4).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_exported_model_in_plain_pytorch_has_the_evaluated_metrics_to_all_digits(tmp_path: Path, name: str) -> None:
    program = images.program(name)
    result = shoal.run(program, epochs=4, folder=tmp_path, **SHAPE)
    assert result.metrics["accuracy"] > 0.4
    net: Any = images.LeNet() if name == "lenet" else images.Residual()
    if name == "residual":
        # What is frozen is the program's, and not the model's.
        trained: Any = program.net
        net.frozen.load_state_dict(trained.frozen.state_dict())
    shoal.torch.load(net, result.model)
    net.eval()
    data = images.Images(128, 100_000)
    batches = [[data[index] for index in range(first, first + 16)] for first in range(0, 128, 16)]
    sums = {"accuracy": np.float32(0), "log_loss": np.float32(0)}
    with torch.no_grad():
        for batch in batches:
            for metric, values in images.evaluate(net, torch.utils.data.default_collate(batch)).items():
                sums[metric] += np.float32(values.double().sum())
    assert result.metrics["accuracy"] == sums["accuracy"] / 128
    # The order of evaluated batches' sums is a tree's.
    assert result.metrics["log_loss"] == pytest.approx(sums["log_loss"] / 128, rel=1e-6)


def test_a_linear_model_trained_by_plain_pytorch_comes_to_the_same_values(tmp_path: Path) -> None:
    class Points:
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            x = torch.tensor([np.sin(index), np.cos(3 * index), 1.0], dtype=torch.float32)
            return x, x @ torch.tensor([2.0, -1.0, 0.5])

    def build() -> Any:
        net = nn.Linear(3, 1)
        return net, torch.optim.AdamW(net.parameters(), lr=0.05)

    def loss(net: Any, batch: Any) -> Any:
        x, y = batch
        return functional.mse_loss(net(x)[:, 0], y)

    data: Any = Points()
    result = shoal.run(
        shoal.torch.Program(build, loss, data=data), epochs=50, folder=tmp_path, microbatch_records=64, microbatches_per_step=1
    )
    torch.manual_seed(0)
    net, optimizer = build()
    for _ in range(50):
        optimizer.zero_grad()
        loss(net, torch.utils.data.default_collate([data[index] for index in range(64)])).backward()
        optimizer.step()
    ours = result.state_dict()
    assert torch.allclose(ours["weight"], net.weight.detach(), rtol=0, atol=1e-5)
    assert torch.allclose(ours["bias"], net.bias.detach(), rtol=0, atol=1e-5)


class Tied(nn.Module):
    """An autoencoder whose decoder has the encoder's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 4, bias=False)
        self.decode = nn.Linear(4, 4, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, x: Any) -> Any:
        return self.decode(self.encode(x))


def vectors(build: Any, **options: Any) -> shoal.torch.Program:
    """A program over vectors, whose loss is the square of what the module makes of them."""

    def loss(net: nn.Module, batch: Any) -> Any:
        return (net(batch) ** 2).mean()

    data = [torch.full((4,), 1.0 + index / 10) for index in range(32)]
    return shoal.torch.Program(build, loss, data=data, **options)


def sgd(net: nn.Module) -> Any:
    return net, torch.optim.SGD([parameter for parameter in net.parameters() if parameter.requires_grad], lr=0.01)


def test_a_tied_parameter_is_one_and_loads_into_both(tmp_path: Path) -> None:
    result = shoal.run(vectors(lambda: sgd(Tied())), folder=tmp_path, **SHAPE)
    assert sorted(result.tensors()) == ["encode.weight", "loss"]
    net = Tied()
    shoal.torch.load(net, result.model)
    assert net.decode.weight is net.encode.weight
    assert torch.equal(net.decode.weight.detach(), result.state_dict()["encode.weight"])


def test_what_is_frozen_stays_in_the_program(tmp_path: Path) -> None:
    def build() -> Any:
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        net[0].requires_grad_(False)
        return sgd(net)

    result = shoal.run(vectors(build), folder=tmp_path, **SHAPE)
    assert sorted(result.tensors()) == ["1.bias", "1.weight", "loss"]


class Spoiling(nn.Module):
    """Does in each forward pass what a step must not do."""

    def __init__(self, spoil: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.norm = nn.BatchNorm1d(1)
        self.count: Any
        self.register_buffer("count", torch.zeros(()))
        self.spoil = spoil

    def forward(self, x: Any) -> Any:
        made = self.norm(self.linear(x))
        self.spoil(self, x)
        return made


def count(net: Any, x: Any) -> None:
    net.count += 1


def replace(net: Any, x: Any) -> None:
    net.count = net.count + 1


def clip(net: Any, x: Any) -> None:
    with torch.no_grad():
        net.linear.weight.clamp_(-1, 1)


def twice(net: Any, x: Any) -> None:
    net.norm(net.linear(x))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (count, "the step changed buffer 'count'"),
        (replace, "the step changed buffer 'count'"),
        (clip, "the step changed parameter 'linear.weight' in place"),
        (twice, "norm 'norm' ran 2 times in one step"),
    ],
)
def test_what_is_no_function_of_its_arguments_is_refused_by_name(tmp_path: Path, spoil: Any, told: str) -> None:
    with pytest.raises(shoal.TrainError, match=told):
        shoal.run(vectors(lambda: sgd(Spoiling(spoil))), folder=tmp_path, **SHAPE)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: sgd(nn.Linear(4, 1).double()), r"parameter 'weight' is torch\.float64"),
        (lambda: sgd(nn.Linear(4, 1).bfloat16()), "`autocast=torch.bfloat16`"),
        (lambda: sgd(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=None))), "norm '1' has momentum=None"),
        (lambda: sgd(nn.Sequential(nn.Linear(4, 2), nn.SyncBatchNorm(2))), "'1' is a SyncBatchNorm"),
        (lambda: sgd(nn.Embedding(4, 2, sparse=True)), "module '' has sparse gradients"),
        (lambda: (nn.Linear(4, 1), torch.optim.SGD([torch.zeros(1)], lr=0.1)), "'weight' is not the optimizer's"),
        (lambda: (net := nn.Linear(4, 1), torch.optim.RMSprop(net.parameters())), "RMSprop: Shoal has no such rule"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_trainer_joins(tmp_path: Path, make: Any, told: str) -> None:
    with pytest.raises((shoal.TrainError, shoal.torch.Refused), match=told):
        shoal.run(vectors(make), folder=tmp_path, **SHAPE)


def test_losses_of_other_shapes_are_refused_with_those_that_are_taken(tmp_path: Path) -> None:
    program = vectors(lambda: sgd(nn.Linear(4, 3)))
    program._loss = lambda net, batch: net(batch)
    with pytest.raises(shoal.TrainError, match=r"`loss` has shape \(4, 3\) for 4 records: give the mean"):
        shoal.run(program, folder=tmp_path, **SHAPE)


def test_a_mean_one_loss_for_each_record_and_a_sum_with_its_weight_are_the_same(tmp_path: Path) -> None:
    ways: list[Any] = [
        lambda net, batch: (net(batch)[:, 0] ** 2).mean(),
        lambda net, batch: net(batch)[:, 0] ** 2,
        lambda net, batch: ((net(batch)[:, 0] ** 2).sum(), len(batch)),
    ]
    found = []
    for number, loss in enumerate(ways):
        program = vectors(lambda: sgd(nn.Linear(4, 1)))
        program._loss = loss
        found.append(shoal.run(program, folder=tmp_path / str(number), **SHAPE).state_dict()["weight"])
    assert all(torch.allclose(found[0], other, rtol=1e-6) for other in found)


def test_autocast_and_loss_scale_train(tmp_path: Path) -> None:
    for kind, scale in ((torch.bfloat16, None), (torch.float16, 1024.0)):
        program = images.program("lenet", autocast=kind, loss_scale=scale)
        result = shoal.run(program, epochs=2, folder=tmp_path / str(kind), **SHAPE)
        assert result.metrics["accuracy"] > 0.4
    with pytest.raises(shoal.torch.Refused, match="loss_scale"):
        images.program("lenet", autocast=torch.float16)


def test_threads_are_the_programs_and_not_the_machines(tmp_path: Path) -> None:
    seen = []

    def loss(net: nn.Module, batch: Any) -> Any:
        seen.append((torch.get_num_threads(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()))
        return (net(batch) ** 2).mean()

    program = vectors(lambda: sgd(nn.Linear(4, 1)))
    program._loss = loss
    shoal.run(program, folder=tmp_path, **SHAPE)
    assert set(seen) == {(1, True, True)}


def test_a_job_without_initial_values_is_refused_with_the_way_out(tmp_path: Path) -> None:
    program = vectors(lambda: sgd(nn.Linear(4, 1)))
    program.initial = lambda seed: {}  # type: ignore[method-assign]
    with pytest.raises(shoal.TrainError, match=r"the job has no initial values.*--warm-start"):
        shoal.run(program, folder=tmp_path, **SHAPE)


def test_a_file_that_lacks_a_parameter_or_has_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    shoal.torch.save(nn.Linear(4, 1), tmp_path / "model.safetensors")
    with pytest.raises(KeyError, match=r"0\.weight"):
        shoal.torch.load(nn.Sequential(nn.Linear(4, 1)), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"'weight' has shape \(1, 4\) in the file, \(1, 5\)"):
        shoal.torch.load(nn.Linear(5, 1), tmp_path / "model.safetensors")


def test_what_is_saved_starts_another_job(tmp_path: Path) -> None:
    net = nn.Linear(4, 1)
    shoal.torch.save(net, tmp_path / "model.safetensors")

    def build() -> Any:
        linear = nn.Linear(4, 1)
        return linear, torch.optim.SGD(linear.parameters(), lr=0.0)

    result = shoal.run(vectors(build), warm_start=tmp_path / "model.safetensors", folder=tmp_path / "job", **SHAPE)
    assert torch.equal(result.state_dict()["weight"], net.weight.detach())


def test_a_data_set_and_recordio_of_the_same_records_give_one_hash(tmp_path: Path) -> None:
    data, judged = images.Images(640), images.Images(128, 100_000)
    for name, of in (("data", data), ("judged", judged)):
        packed = (pickle.dumps(of[index]) for index in range(len(of)))
        records.pack(packed, tmp_path / f"{name}.recordio", **records.NUMBERED_CHUNK)  # type: ignore[arg-type]
    options: dict[str, Any] = {"decode": pickle.loads, "metrics": {"accuracy": shoal.Accuracy(), "log_loss": shoal.Mean()}}
    program = shoal.torch.Program(images.build_lenet, images.loss, images.evaluate, **options)
    files: dict[str, Any] = {"data": tmp_path / "data.recordio", "eval_data": tmp_path / "judged.recordio"}
    of_files = shoal.run(program, folder=tmp_path / "files", **files, **SHAPE)
    program = shoal.torch.Program(images.build_lenet, images.loss, images.evaluate, data=data, eval_data=judged)
    of_data = shoal.run(program, folder=tmp_path / "numbers", **SHAPE)
    assert of_files.sha256 == of_data.sha256
    assert of_files.metrics == of_data.metrics


class Odd(shoal.torch.Program):
    """With two threads in one of its trainers."""

    def declare(self, job: shoal.Job) -> Any:
        self._threads = 2 if os.environ.get("SHOAL_TRAINER_NAME") == "trainer-1" else 1
        return super().declare(job)


def test_a_trainer_with_other_threads_is_refused_with_the_difference_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Until the other one, which has to import PyTorch, has joined.
    monkeypatch.setenv("SHOAL_PACE_MILLIS", "100")
    program = Odd(images.build_lenet, images.loss, data=images.Images(640))
    with pytest.warns(UserWarning, match="trainer-1 ended with exit code 5"):
        shoal.run(program, trainers=2, epochs=2, folder=tmp_path, **SHAPE)
    log = (tmp_path / "trainer-1.log").read_text()
    assert "torch.threads" in log
    assert "--environment" in log


def test_what_is_frozen_is_part_of_the_environment(tmp_path: Path) -> None:
    found: list[str] = []
    for seed in (1, 1, 2):
        program = images.program("residual")
        shoal.run(program, folder=tmp_path / str(len(found)), **{**SHAPE, "seed": seed})
        found.append(program.environment()["constants"])
    assert found[0] == found[1] != found[2]


@pytest.mark.nightly
@pytest.mark.parametrize("name", NETWORKS)
def test_a_compiled_program_gives_one_hash_whoever_compiles_it(tmp_path: Path, name: str) -> None:
    def run(trainers: int) -> shoal.Result:
        program = images.program(name, compile=True)
        return shoal.run(program, trainers=trainers, epochs=20, folder=tmp_path / str(trainers), **SHAPE)

    alone, together = run(1), run(2)
    assert alone.metrics["accuracy"] > 0.5
    assert all(trainer["records"] > 0 for trainer in together.status["trainers"])
    assert len(together.status["trainers"]) == 2
    assert alone.sha256 == together.sha256


def test_compilations_whose_bits_are_chance_are_refused() -> None:
    with pytest.raises(shoal.torch.Refused, match="by the clock"):
        images.program("lenet", compile={"mode": "max-autotune"})
    with pytest.raises(shoal.torch.Refused, match="dynamic shapes"):
        images.program("lenet", compile={"dynamic": True})
