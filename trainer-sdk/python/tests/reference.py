"""Shoal's rules and schedules in float64, read off their formulas (docs/training.md), for comparison with PyTorch's."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shoal import _declare
from shoal._declare import Rule, Schedule

Vector = npt.NDArray[np.float64]


def rate_at(schedule: Schedule, rate: float, step: int, all_steps: int) -> float:
    """The rate at a step."""
    json = schedule._json(rate, all_steps)
    base, warmup, decay = json["base"], json["warmup_steps"], json["decay"]
    if step < warmup:
        return float(base * (step + 1) / warmup)
    past = step - warmup
    if decay == "Constant":
        return float(base)
    ((kind, of),) = decay.items()
    match kind:
        case "Step":
            return float(base * of["factor"] ** (past // of["every"]))
        case "Exponential":
            return float(base * of["factor"] ** (past / of["every"]))
        case "Cosine":
            part = min(past, of["over"]) / of["over"]
            return float(of["floor"] + (base - of["floor"]) * 0.5 * (1 + math.cos(math.pi * part)))
        case "Polynomial":
            left = 1 - min(past, of["over"]) / of["over"]
            return float(of["floor"] + (base - of["floor"]) * left ** of["power"])
        case "InverseRoot":
            return float(base * math.sqrt(of["over"] / (past + of["over"])))
        case "Piecewise":
            begun = [stage["rate"] for stage in of["stages"] if stage["first_step"] <= past]
            return float(begun[-1] if begun else base)
    raise AssertionError(kind)


def train(rule: Rule, initial: Vector, gradients: list[Vector]) -> Vector:
    """The values after these mean gradients."""
    w = initial.copy()
    slots = [np.zeros_like(w) for _ in range(3)]
    for step, given in enumerate(gradients):
        g = given if isinstance(rule, _declare.AdamW) else given + rule.weight_decay * w
        rate = rate_at(rule.schedule, rule.rate, step, len(gradients))
        w = w - change(rule, rate, step + 1, w, g, slots)
    return w


def change(rule: Rule, rate: float, t: int, w: Vector, g: Vector, slots: list[Vector]) -> Vector:
    """What is taken off the values."""
    match rule:
        case _declare.SGD():
            return rate * g
        case _declare.Momentum():
            slots[0] = rule.momentum * slots[0] + g
            return rate * (g + rule.momentum * slots[0] if rule.nesterov else slots[0])
        case _declare.Adagrad():
            slots[0] = slots[0] + g * g
            return rate * g / (np.sqrt(slots[0]) + rule.epsilon)
        case _declare.Adam() | _declare.AdamW() | _declare.AMSGrad():
            beta1, beta2 = rule.betas
            slots[0] = beta1 * slots[0] + (1 - beta1) * g
            slots[1] = beta2 * slots[1] + (1 - beta2) * g * g
            slots[2] = np.maximum(slots[2], slots[1])
            second = slots[2] if isinstance(rule, _declare.AMSGrad) else slots[1]
            root = np.sqrt(second / (1 - beta2**t)) + rule.epsilon
            decoupled = rate * rule.weight_decay * w if isinstance(rule, _declare.AdamW) else 0.0
            return np.asarray(rate * (slots[0] / (1 - beta1**t)) / root + decoupled)
    raise AssertionError(rule)
