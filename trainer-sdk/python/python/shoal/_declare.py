"""What a program declares: parameters, each with a rule, a rate and initial values; metrics; decisions over all of them.

Rules, schedules and initial values are Shoal's: they are computed by its parameter servers, not here. Each class says which
formula it stands for; the numbers are rounded to f32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Json = Any


@dataclass(frozen=True)
class Schedule:
    """How a learning rate changes over the steps: a factor of the rate that a rule was given.

    Made by :func:`constant`, :func:`cosine`, :func:`step_decay`, :func:`exponential`, :func:`linear`,
    :func:`polynomial`, :func:`inverse_root` and :func:`piecewise`.
    """

    kind: Literal["constant", "step", "exponential", "cosine", "polynomial", "inverse_root", "piecewise"] = "constant"
    warmup: int = 0
    factor: float = 1.0
    every: int = 1
    to: float = 0.0
    power: float = 1.0
    steps: int | None = None
    stages: tuple[tuple[int, float], ...] = ()
    is_absolute: bool = False
    """Whether ``to`` and the stages are rates, and not factors of the rate that the rule was given."""

    def after_warmup(self, steps: int) -> Schedule:
        """The same after a linear rise over so many steps, from ``1 / steps`` of the rate on."""
        return replace(self, warmup=steps)

    def _over(self, all_steps: int) -> int:
        return self.steps if self.steps is not None else max(1, all_steps - self.warmup)

    def _json(self, rate: float, all_steps: int) -> Json:
        """The schedule of a rate in a job of so many steps."""
        unit = 1.0 if self.is_absolute else rate
        decay: Json
        match self.kind:
            case "constant":
                decay = "Constant"
            case "step":
                decay = {"Step": {"factor": self.factor, "every": self.every}}
            case "exponential":
                decay = {"Exponential": {"factor": self.factor, "every": self.every}}
            case "polynomial":
                decay = {"Polynomial": {"floor": unit * self.to, "power": self.power, "over": self._over(all_steps)}}
            case "inverse_root":
                decay = {"InverseRoot": {"over": self.every}}
            case "cosine":
                over = self._over(all_steps)
                decay = {"Cosine": {"floor": unit * self.to, "over": over}}
            case "piecewise":
                stages = [{"first_step": first, "rate": unit * factor} for first, factor in self.stages]
                decay = {"Piecewise": {"stages": stages}}
        return {"base": rate, "warmup_steps": self.warmup, "decay": decay}


def linear(*, to: float = 0.0, steps: int | None = None, warmup: int = 0) -> Schedule:
    """A straight line from the rate to ``to`` times the rate, over ``steps`` steps, by default all after the warm-up."""
    return Schedule("polynomial", warmup, to=to, steps=steps)


def polynomial(power: float, *, to: float = 0.0, steps: int | None = None, warmup: int = 0) -> Schedule:
    """From the rate to ``to`` times the rate, by a power of what is left of the steps."""
    return Schedule("polynomial", warmup, to=to, power=power, steps=steps)


def inverse_root(warmup: int) -> Schedule:
    """After a linear rise over ``warmup`` steps the rate times ``sqrt(warmup / step)`` (Vaswani et al. 2017)."""
    return Schedule("inverse_root", warmup, every=warmup)


def constant(*, warmup: int = 0) -> Schedule:
    """The same rate at every step."""
    return Schedule(warmup=warmup)


def cosine(*, to: float = 0.0, steps: int | None = None, warmup: int = 0) -> Schedule:
    """Half a cosine from the rate down to ``to`` times the rate (Loshchilov and Hutter 2017, without restarts).

    It takes ``steps`` steps, by default all that the job has after its warm-up; then the rate stays.
    """
    return Schedule("cosine", warmup, to=to, steps=steps)


def step_decay(factor: float, every: int, *, warmup: int = 0) -> Schedule:
    """The rate times ``factor`` after every ``every`` steps."""
    return Schedule("step", warmup, factor=factor, every=every)


def exponential(factor: float, every: int = 1, *, warmup: int = 0) -> Schedule:
    """``factor`` times the rate after every ``every`` steps, falling at each."""
    return Schedule("exponential", warmup, factor=factor, every=every)


def piecewise(stages: Sequence[tuple[int, float]], *, warmup: int = 0) -> Schedule:
    """From each step on that factor of the rate: ``[(1000, 0.1), (2000, 0.01)]``; at most 1,000 stages."""
    return Schedule("piecewise", warmup, stages=tuple(stages))


@dataclass(frozen=True)
class Initial:
    """A parameter's values before the first step, made by the parameter servers from the job's seed and the parameter's name."""

    json: Json


def zeros() -> Initial:
    """All zero."""
    return Initial("Zeros")


def full(value: float) -> Initial:
    """All the same."""
    return Initial({"Constant": {"value": value}})


def uniform(limit: float) -> Initial:
    """Uniform from ``-limit`` to ``limit``."""
    return Initial({"Uniform": {"limit": limit}})


def normal(deviation: float) -> Initial:
    """Normal around 0 with this standard deviation."""
    return Initial({"Normal": {"deviation": deviation}})


def truncated_normal(deviation: float) -> Initial:
    """Normal around 0, drawn again where it lies further than two deviations from it."""
    return Initial({"TruncatedNormal": {"deviation": deviation}})


@dataclass(frozen=True)
class Rule:
    """How a parameter is updated by the mean of its gradients, at a learning rate.

    ``weight_decay`` is added to the gradient (L2), of :class:`AdamW` taken off the value beside its change (decoupled).
    """

    rate: float
    schedule: Schedule = field(default=Schedule(), kw_only=True)
    weight_decay: float = field(default=0.0, kw_only=True)

    def _rule(self) -> Json:
        raise NotImplementedError("take one of the rules: shoal.SGD, shoal.Adam, ...")


@dataclass(frozen=True)
class SGD(Rule):
    """``w - rate * g``."""

    def _rule(self) -> Json:
        return "Sgd"


@dataclass(frozen=True)
class Momentum(Rule):
    """``v = momentum * v + g; w - rate * v``; with ``nesterov`` ``w - rate * (g + momentum * v)``."""

    momentum: float = 0.9
    nesterov: bool = field(default=False, kw_only=True)

    def _rule(self) -> Json:
        return {"Nesterov" if self.nesterov else "Momentum": {"momentum": self.momentum}}


@dataclass(frozen=True)
class Adagrad(Rule):
    """``s = s + g^2; w - rate * g / (sqrt(s) + epsilon)``."""

    epsilon: float = 1e-10

    def _rule(self) -> Json:
        return {"Adagrad": {"epsilon": self.epsilon}}


@dataclass(frozen=True)
class _Moments(Rule):
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def _moments(self) -> Json:
        return {"beta1": self.betas[0], "beta2": self.betas[1], "epsilon": self.epsilon}


@dataclass(frozen=True)
class Adam(_Moments):
    """Adam (Kingma and Ba 2015, algorithm 1)."""

    def _rule(self) -> Json:
        return {"Adam": self._moments()}


@dataclass(frozen=True)
class AdamW(_Moments):
    """Adam whose weight decay stays out of the moments (Loshchilov and Hutter 2019)."""

    weight_decay: float = field(default=0.01, kw_only=True)

    def _rule(self) -> Json:
        return {"AdamW": self._moments()}


@dataclass(frozen=True)
class AMSGrad(_Moments):
    """Adam that divides by the largest second moment so far (Reddi, Kale and Kumar 2018)."""

    def _rule(self) -> Json:
        return {"AmsGrad": self._moments()}


@dataclass(frozen=True)
class FTRL(Rule):
    """FTRL-Proximal (McMahan et al. 2013), whose rate falls by itself: no schedule."""

    l1: float = 0.0
    l2: float = 0.0
    beta: float = 1.0

    def _rule(self) -> Json:
        return {"Ftrl": {"l1": self.l1, "l2": self.l2, "beta": self.beta}}


@dataclass(frozen=True)
class Parameter:
    """A named tensor that is trained: ``shoal.Parameter("weight", (10, 784), shoal.Adam(1e-3), shoal.normal(0.01))``."""

    name: str
    shape: tuple[int, ...]
    rule: Rule
    initial: Initial = Initial("Zeros")

    def _json(self, all_steps: int) -> Json:
        rate = self.rule.schedule._json(float(self.rule.rate), all_steps)
        group = {"rate_multiplier": 1.0, "weight_decay": self.rule.weight_decay, "is_frozen": False}
        return _parameter(self.name, self.shape, self.rule._rule(), rate, self.initial.json, group)


@dataclass(frozen=True)
class Counter:
    """A number that steps add to and nobody divides, such as the sum of the loss: exact for whole numbers up to 2^48."""

    name: str
    shape: tuple[int, ...] = ()

    def _json(self, all_steps: int) -> Json:
        return _parameter(self.name, self.shape, "Sum")


@dataclass(frozen=True)
class Average:
    """A running mean of what steps give, which steps read: ``decay * w + (1 - decay) * mean``. Batch norm has such."""

    name: str
    shape: tuple[int, ...]
    decay: float
    initial: Initial = Initial("Zeros")

    def _json(self, all_steps: int) -> Json:
        return _parameter(self.name, self.shape, {"Ema": {"decay": self.decay}}, initial=self.initial.json)


@dataclass(frozen=True)
class Target:
    """What a job aims at with a metric."""

    stop_after: int | None = None
    """The job ends after so many evaluations in a row that were no better than the best before them."""
    keep_best: bool = False
    """Whether the checkpoint of the best evaluation is kept, however old it grows."""
    least_change: float = 0.0
    """A value is better only if it is by more than this."""
    plateau: tuple[int, float] | None = None
    """After so many evaluations without a better one all rates are multiplied with this factor."""

    def _json(self) -> Json:
        plateau = self.plateau and {"after": self.plateau[0], "factor": self.plateau[1]}
        least, best = self.least_change, self.keep_best
        return {"least_change": least, "keep_best": best, "stop_after": self.stop_after, "plateau": plateau}


@dataclass(frozen=True)
class Metric:
    """A metric of evaluations; see :func:`Accuracy`, :func:`LogLoss`, :func:`Mean` and :func:`Auc`."""

    kind: Json
    aim: Target | None = None

    def _json_of(self, name: str) -> Json:
        return {"name": name, "metric": self.kind, "target": self.aim and self.aim._json()}


def Accuracy(*, aim: Target | None = None) -> Metric:
    """The share of records that were told right."""
    return Metric("Accuracy", aim=aim)


def LogLoss(*, aim: Target | None = None) -> Metric:
    """The mean of ``-ln`` of the probability that was given to what happened; smaller is better."""
    return Metric("LogLoss", aim=aim)


def Mean(better: Literal["larger", "smaller"] = "smaller", *, aim: Target | None = None) -> Metric:
    """Any other mean."""
    return Metric({"Mean": {"better": better.capitalize()}}, aim=aim)


def Auc(bins: int = 1024, *, aim: Target | None = None) -> Metric:
    """The area under the receiver operating characteristic, of scores from 0 to 1."""
    return Metric({"Auc": {"bins": bins}}, aim=aim)


@dataclass(frozen=True)
class Decisions:
    """What is decided over all parameters before a step is applied; synchronous jobs only."""

    clip_norm: float | None = None
    """The largest Euclidean norm of a step's mean gradient; a larger one is scaled down to it."""
    skip_non_finite: int | None = None
    """Steps whose gradient is no number are skipped, at most so many in a row; ``None``: they fail the job."""
    loss_scale: float | None = None
    """The first dynamic loss scale, a power of two from 2^-16 to 2^24; ``None``: none. With it such steps are skipped."""
    loss_scale_growth: int = 2000
    """Steps without a skipped one after which the loss scale is doubled."""

    def _json(self) -> Json:
        skip = self.skip_non_finite
        if skip is None and self.loss_scale is not None:
            skip = 1000
        scale = None
        if self.loss_scale is not None:
            scale = {"initial": self.loss_scale, "growth_interval": self.loss_scale_growth}
        non_finite = "Fail" if skip is None else {"Skip": {"in_a_row_max": skip}}
        return {"clip_norm": self.clip_norm, "non_finite": non_finite, "loss_scale": scale}


#: What a program may declare.
Declared = Parameter | Counter | Average


def declaration(
    declared: Sequence[Declared],
    metrics: dict[str, Metric],
    decisions: Decisions | None,
    block_elements: int,
    all_steps: int,
) -> str:
    """The declaration as the compiled module reads it."""
    made = {
        "parameters": [each._json(all_steps) for each in declared],
        "metrics": [metric._json_of(name) for name, metric in metrics.items()],
        "decisions": decisions and decisions._json(),
        "block_elements": block_elements,
    }
    return json.dumps(made, allow_nan=False, default=_number)


def _parameter(
    name: str,
    shape: Sequence[int],
    rule: Json,
    rate: Json = None,
    initial: Json = "Zeros",
    group: Json = None,
) -> Json:
    if not isinstance(shape, Sequence):
        raise TypeError(f"{name!r} has shape {shape!r}: give a tuple, ({shape!r},)")
    rate = rate or {"base": 0.0, "warmup_steps": 0, "decay": "Constant"}
    group = group or {"rate_multiplier": 1.0, "weight_decay": 0.0, "is_frozen": False}
    made = {"name": name, "shape": list(shape), "rule": rule, "learning_rate": rate, "initial": initial, "group": group}
    _finite(name, made)
    return made


def _number(value: Any) -> Json:
    """A number of NumPy or PyTorch, as Python has it."""
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"a {type(value).__name__} is declared, where a number is wanted: {value!r}") from None


def _finite(name: str, value: Json) -> None:
    """Numbers that are none have no JSON: they are refused by the parameter's name."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"parameter {name!r}: {value} is declared, where a finite number is wanted")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(name, part)
