"""Optimizers and schedulers of PyTorch against Shoal's: the same mathematics, or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import optim  # noqa: E402
from torch.optim import lr_scheduler as schedulers  # noqa: E402

from shoal.torch import Refused, rule_of, schedules_of  # noqa: E402

from . import reference  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = 500
ELEMENTS = 50

Make = Callable[[Any], Any]

SUPPORTED: dict[str, Make] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd, L2": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
    "momentum, L2": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd, dampening without momentum": lambda p: optim.SGD(p, lr=0.1, dampening=0.5),
    "adam": lambda p: optim.Adam(p, lr=1e-2),
    "adam, L2": lambda p: optim.Adam(p, lr=1e-2, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.01),
    "adam, decoupled": lambda p: optim.Adam(p, lr=1e-2, weight_decay=0.01, decoupled_weight_decay=True),
    "amsgrad": lambda p: optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=0.01),
    "amsgrad of AdamW without decay": lambda p: optim.AdamW(p, lr=1e-2, amsgrad=True, weight_decay=0.0),
    "adamw": lambda p: optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "adamw without decay": lambda p: optim.AdamW(p, lr=1e-2, weight_decay=0.0),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "adagrad, L2": lambda p: optim.Adagrad(p, lr=0.1, weight_decay=0.01),
    "a rate that is a tensor": lambda p: optim.Adam(p, lr=torch.tensor(1e-2, dtype=torch.float64)),
}

REFUSED: dict[str, tuple[Make, str]] = {
    "dampening": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1), "give it 0"),
    "maximize": (lambda p: optim.SGD(p, lr=0.1, maximize=True), "let `loss` return the negative"),
    "amsgrad, decoupled": (lambda p: optim.AdamW(p, lr=0.1, amsgrad=True), "weight_decay=0, or amsgrad=False"),
    "adagrad, lr_decay": (lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1), "a `schedule=` to the program"),
    "adagrad, accumulator": (lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1), "begin at 0"),
    "RMSprop": (lambda p: optim.RMSprop(p), "no such rule"),
    "Adadelta": (lambda p: optim.Adadelta(p), "no such rule"),
    "Adamax": (lambda p: optim.Adamax(p), "no such rule"),
    "NAdam": (lambda p: optim.NAdam(p), "no such rule"),
    "RAdam": (lambda p: optim.RAdam(p), "no such rule"),
    "ASGD": (lambda p: optim.ASGD(p), "no such rule"),
    "Rprop": (lambda p: optim.Rprop(p), "no such rule"),
    "LBFGS": (lambda p: optim.LBFGS(p), "several times in a step"),
    "SparseAdam": (lambda p: optim.SparseAdam(p), "sparse=False"),
    "Adafactor": (lambda p: optim.Adafactor(p), "cut into blocks"),
    "Muon": (lambda p: optim.Muon([torch.nn.Parameter(torch.zeros(2, 2))]), "cut into blocks"),
    "one of the author's": (lambda p: type("Mine", (optim.SGD,), {"__module__": "mine"})(p, lr=0.1), "cannot be read"),
}


def gradients(steps: int = STEPS) -> list[np.ndarray[Any, Any]]:
    """Of very uneven size, and of both signs."""
    generator = np.random.default_rng(7)
    sizes = 10.0 ** generator.uniform(-4, 2, ELEMENTS)
    return [generator.normal(size=ELEMENTS) * sizes for _ in range(steps)]


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_supported_optimizer_is_the_rule_over_500_steps(name: str) -> None:
    initial = np.random.default_rng(3).normal(size=ELEMENTS)
    parameter = torch.nn.Parameter(torch.from_numpy(initial.copy()))
    optimizer = SUPPORTED[name]([parameter])
    rule = rule_of(optimizer, optimizer.param_groups[0])
    for gradient in gradients():
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
    theirs = parameter.detach().numpy()
    ours = reference.train(rule, initial, gradients())
    assert np.abs(ours - theirs).max() <= 1e-12 * max(1.0, np.abs(theirs).max())
    assert np.abs(theirs - initial).max() > 1e-2, "it has moved"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_other_mathematics_is_refused_with_what_to_do(name: str) -> None:
    make, way_out = REFUSED[name]
    optimizer = make([torch.nn.Parameter(torch.zeros(3))])
    with pytest.raises(Refused, match=way_out.replace("(", r"\(").replace("`", "`")):
        rule_of(optimizer, optimizer.param_groups[0])


SCHEDULERS: dict[str, Make] = {
    "step": lambda o: schedulers.StepLR(o, 70, 0.5),
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.99),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, STEPS, eta_min=0.001),
    "cosine that rises again": lambda o: schedulers.CosineAnnealingLR(o, 100),
    "multi-step": lambda o: schedulers.MultiStepLR(o, [100, 300], 0.1),
    "constant": lambda o: schedulers.ConstantLR(o, 0.5, 100),
    "linear": lambda o: schedulers.LinearLR(o, 0.1, 1.0, 200),
    "polynomial, longer than other rates may be": lambda o: schedulers.PolynomialLR(o, STEPS, 1.5),
    "polynomial": lambda o: schedulers.PolynomialLR(o, 300, 2.0),
    "lambda": lambda o: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)),
    "one cycle": lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=STEPS + 1, cycle_momentum=False),
    "warm restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 50),
    "cyclic": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, 40, cycle_momentum=False),
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.02, 1.0, 49), schedulers.ExponentialLR(o, 0.98)], [50]
    ),
    "chained": lambda o: schedulers.ChainedScheduler([schedulers.ConstantLR(o, 0.1, 20), schedulers.ExponentialLR(o, 0.9)]),
}


def two_groups() -> Any:
    """An optimizer of two parameters, each in a group with a rate of its own."""
    groups: Any = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (0.1, 0.3)]
    return optim.SGD(groups, momentum=0.9)


def rates(make: Make, calls: int) -> list[list[float]]:
    """The rates of two groups before each of so many steps, as PyTorch has them."""
    optimizer = two_groups()
    scheduler = make(optimizer)
    before: list[list[float]] = [[], []]
    for _ in range(calls):
        for of, group in zip(before, optimizer.param_groups, strict=True):
            of.append(float(group["lr"]))
        optimizer.step()
        scheduler.step()
    return before


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("unit", ["step", "epoch"])
def test_a_scheduler_is_the_schedule_at_every_step(name: str, unit: Any) -> None:
    per_epoch = 1 if unit == "step" else 10
    steps = STEPS * per_epoch
    with warnings.catch_warnings():
        # SequentialLR passes `epoch` on.
        warnings.simplefilter("ignore", UserWarning)
        theirs = rates(SCHEDULERS[name], STEPS)
        optimizer = two_groups()
        ours = schedules_of(SCHEDULERS[name](optimizer), steps, per_epoch, unit)
    assert len(ours) == 2
    for group, schedule, expected in zip(optimizer.param_groups, ours, theirs, strict=True):
        found = [reference.rate_at(schedule, float(group["initial_lr"]), step, steps) for step in range(steps)]
        wanted = np.repeat(expected, per_epoch)
        assert np.abs(np.array(found) - wanted).max() <= 1e-12


def test_more_rates_than_are_taken_are_refused_with_the_way_out() -> None:
    optimizer = optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = schedulers.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    with pytest.raises(Refused, match=r"1001 different rates .*schedule=shoal\.cosine"):
        schedules_of(scheduler, 1001, 1, "step")
    schedules_of(scheduler, 1000, 1, "step")


@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR"])
def test_a_scheduler_that_changes_momentum_is_refused(name: str) -> None:
    optimizer = two_groups()
    made = schedulers.OneCycleLR(optimizer, 0.1, 100) if name == "OneCycleLR" else schedulers.CyclicLR(optimizer, 0.01, 0.1)
    with pytest.raises(Refused, match=f"{name} changes 'momentum' as well.*cycle_momentum=False"):
        schedules_of(made, 100, 1, "step")


def test_a_scheduler_that_is_shorter_than_the_job_is_refused_with_the_way_out() -> None:
    def cycle() -> schedulers.LRScheduler:
        return schedulers.OneCycleLR(two_groups(), 0.1, total_steps=62, cycle_momentum=False)

    with pytest.raises(Refused, match=r"OneCycleLR fails at call 63, and the job has 64: .*schedule=shoal\.cosine"):
        schedules_of(cycle(), 64, 1, "step")
    schedules_of(cycle(), 62, 1, "step")


def test_a_scheduler_that_follows_a_metric_is_refused_with_the_way_out() -> None:
    optimizer = optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(Refused, match="plateau="):
        schedules_of(schedulers.ReduceLROnPlateau(optimizer), 10, 1, "step")


def test_the_authors_scheduler_and_optimizer_are_not_stepped() -> None:
    optimizer = optim.SGD([torch.nn.Parameter(torch.zeros(5))], lr=0.1)
    scheduler = schedulers.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    schedules_of(scheduler, 100, 1, "step")
    assert (scheduler.last_epoch, optimizer.param_groups[0]["lr"], optimizer.state) == (0, 0.1, {})
