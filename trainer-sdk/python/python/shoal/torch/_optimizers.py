"""Optimizers and schedulers of PyTorch, read and never stepped: which of Shoal's rules and schedules they are.

What is not the same mathematics is refused, with what to do instead.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import optim
from torch.optim import lr_scheduler

from .. import _declare
from .._declare import Rule, Schedule

#: The most stages of one rate (`STAGES_MAX` of the runtime).
STAGES_MAX = 1000

#: Why others are refused.
_NO_RULE = "Shoal has no such rule: take SGD, Adam, AdamW or Adagrad"
_NEEDS_WHOLE = "it needs a whole matrix or the norm of a tensor, and parameters are cut into blocks: take AdamW"
_REFUSED = {
    "RMSprop": _NO_RULE,
    "Adadelta": _NO_RULE,
    "Adamax": _NO_RULE,
    "NAdam": _NO_RULE,
    "RAdam": _NO_RULE,
    "ASGD": _NO_RULE,
    "Rprop": _NO_RULE,
    "Muon": _NEEDS_WHOLE,
    "Adafactor": _NEEDS_WHOLE,
    "LBFGS": "it evaluates the loss several times in a step: take AdamW",
    "SparseAdam": "it is of sparse gradients: give `sparse=False` to the embedding and take Adam",
}


class Refused(Exception):
    """What a program asks for has no equal in Shoal; the message says what to do."""

    # Where its users find it, and what tracebacks say.
    __module__ = "shoal.torch"


def rule_of(optimizer: optim.Optimizer, group: Mapping[str, Any]) -> Rule:
    """The rule of one of an optimizer's parameter groups."""
    kind = type(optimizer)
    name = kind.__name__
    if kind.__module__.partition(".")[0] != "torch":
        raise Refused(
            f"{kind.__module__}.{name} is not one of torch.optim: what it computes cannot be read; take one of SGD, Adam, "
            "AdamW, Adagrad"
        )
    if group.get("maximize"):
        raise Refused(f"{name}(maximize=True): Shoal minimises: let `loss` return the negative")
    rate = float(group["lr"])
    decay = float(group.get("weight_decay", 0.0))
    if kind is optim.SGD:
        return _sgd(group, rate, decay)
    if kind is optim.Adam or kind is optim.AdamW:
        return _adam(name, group, rate, decay)
    if kind is optim.Adagrad:
        if group["lr_decay"]:
            raise Refused("Adagrad(lr_decay=...): give it 0 and a `schedule=` to the program")
        if group["initial_accumulator_value"]:
            raise Refused("Adagrad(initial_accumulator_value=...): Shoal's sums begin at 0: give it 0")
        return _declare.Adagrad(rate, float(group["eps"]), weight_decay=decay)
    raise Refused(f"torch.optim.{name}: {_REFUSED.get(name, _NO_RULE)}")


def _sgd(group: Mapping[str, Any], rate: float, decay: float) -> Rule:
    momentum = float(group["momentum"])
    if not momentum:
        return _declare.SGD(rate, weight_decay=decay)
    if group["dampening"]:
        raise Refused("SGD(dampening=...) with momentum: give it 0")
    return _declare.Momentum(rate, momentum, nesterov=bool(group["nesterov"]), weight_decay=decay)


def _adam(name: str, group: Mapping[str, Any], rate: float, decay: float) -> Rule:
    betas = (float(group["betas"][0]), float(group["betas"][1]))
    epsilon = float(group["eps"])
    is_decoupled = bool(group.get("decoupled_weight_decay", name == "AdamW")) and decay != 0
    if group["amsgrad"]:
        if is_decoupled:
            raise Refused(f"{name}(amsgrad=True) with decoupled weight decay: give it weight_decay=0, or amsgrad=False")
        return _declare.AMSGrad(rate, betas, epsilon, weight_decay=decay)
    kind = _declare.AdamW if is_decoupled else _declare.Adam
    return kind(rate, betas, epsilon, weight_decay=decay)


def check_optimizer(optimizer: optim.Optimizer) -> None:
    """Says what of an optimizer is left behind.

    Raises:
        Refused: It does something at each step, which is never made.

    """
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise Refused("the optimizer has hooks for its steps, which are never made: parameter servers do what it says")
    if optimizer.state:
        warnings.warn(
            "the optimizer has state from earlier steps, which is not taken: moments and velocities begin at zero",
            stacklevel=2,
        )


def schedules_of(
    scheduler: lr_scheduler.LRScheduler, steps: int, steps_per_epoch: int, unit: Literal["step", "epoch"]
) -> list[Schedule]:
    """The schedule of each parameter group over a job's ``steps``.

    ``unit`` says how often the author would call ``scheduler.step()``: after every step, or after every epoch.
    """
    if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
        raise Refused(
            "ReduceLROnPlateau: the rate follows a metric: give the program "
            "`metrics={NAME: shoal.Mean(aim=shoal.Target(plateau=(after, factor)))}` and no scheduler"
        )
    groups = len(scheduler.optimizer.param_groups)
    known = _closed_form(scheduler, steps) if unit == "step" else None
    if known is not None:
        return [known] * groups
    every = 1 if unit == "step" else steps_per_epoch
    return [_stages(rates, every) for rates in _dry_run(scheduler, -(-steps // every))]


def _closed_form(scheduler: lr_scheduler.LRScheduler, steps: int) -> Schedule | None:
    """The schedule of those schedulers whose formula is Shoal's, before they have made a step."""
    if getattr(scheduler, "last_epoch", 0) > 0:
        return None
    if type(scheduler) is lr_scheduler.StepLR:
        return _declare.step_decay(float(scheduler.gamma), int(scheduler.step_size))
    if type(scheduler) is lr_scheduler.ExponentialLR:
        return _declare.exponential(float(scheduler.gamma))
    if type(scheduler) is lr_scheduler.PolynomialLR:
        return _declare.polynomial(float(scheduler.power), steps=int(scheduler.total_iters))
    # PyTorch's rises again after T_max.
    if type(scheduler) is lr_scheduler.CosineAnnealingLR and steps <= scheduler.T_max + 1:
        return Schedule("cosine", to=float(scheduler.eta_min), steps=int(scheduler.T_max), is_absolute=True)
    return None


def _dry_run(scheduler: lr_scheduler.LRScheduler, calls: int) -> list[list[float]]:
    """The rates of each group before each of so many calls of ``step``: of a copy, over parameters of one element."""
    optimizer = scheduler.optimizer
    stand_ins = {
        id(parameter): torch.nn.Parameter(torch.zeros(1)) for group in optimizer.param_groups for parameter in group["params"]
    }
    copied = copy.deepcopy(scheduler, dict(stand_ins))
    groups = copied.optimizer.param_groups
    others = [_others(group) for group in groups]
    rates: list[list[float]] = [[float(group["lr"])] for group in groups]
    with warnings.catch_warnings():
        # That the optimizer makes no steps is what is wanted.
        warnings.simplefilter("ignore")
        for call in range(1, calls):
            _call(copied, call, calls)
            for of, group, before in zip(rates, groups, others, strict=True):
                if changed := [name for name, value in _others(group).items() if value != before.get(name)]:
                    raise Refused(
                        f"{type(scheduler).__name__} changes {changed[0]!r} as well, which stays as it is in Shoal: let it "
                        "change the rates alone (`cycle_momentum=False`), or give the program one of Shoal's schedules"
                    )
                of.append(float(group["lr"]))
    return rates


def _call(scheduler: lr_scheduler.LRScheduler, call: int, calls: int) -> None:
    try:
        scheduler.step()
    except Exception as error:
        raise Refused(
            f"{type(scheduler).__name__} fails at call {call}, and the job has {calls}: {error}; give the program one of Shoal's "
            "schedules, which are as long as the job (`schedule=shoal.cosine(warmup=...)`), and no scheduler"
        ) from error


def _others(group: Mapping[str, Any]) -> dict[str, Any]:
    """What a group has beside parameters and rate."""
    return {name: value for name, value in group.items() if name not in ("params", "lr")}


def _stages(rates: Iterable[float], every: int) -> Schedule:
    """Constant rates, one for each so many steps."""
    stages: list[tuple[int, float]] = []
    for number, rate in enumerate(rates):
        if not stages or stages[-1][1] != rate:
            stages.append((number * every, rate))
    if len(stages) > STAGES_MAX:
        raise Refused(
            f"the scheduler has {len(stages)} different rates over the job, and at most {STAGES_MAX} are taken: give the program "
            "one of Shoal's schedules (`schedule=shoal.cosine(...)`, `shoal.linear(...)`) and no scheduler, or let it step once "
            'an epoch (`scheduler_unit="epoch"`)'
        )
    return Schedule("piecewise", stages=tuple(stages), is_absolute=True)
