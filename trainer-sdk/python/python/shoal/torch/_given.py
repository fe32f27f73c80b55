"""What a program's functions of PyTorch give: checked, and made into what Shoal adds up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from .._declare import Metric, Schedule
from ._optimizers import Refused

#: A loss: a mean over the records, one value for each record, or a sum and what it weighs (tokens, say).
Loss = torch.Tensor | tuple[torch.Tensor, int]
#: The most that a microbatch may weigh.
WEIGHT_MAX = 1 << 40
#: `at::Reduction::Sum`, as losses keep it for their way back.
_SUM = 2


def check_functions(functions: Mapping[str, Any]) -> None:
    """Refuses arguments of a program that are no functions, where they are given."""
    for name, function in functions.items():
        if not callable(function):
            raise Refused(f"{name}={function!r}: give a function")


def check_kinds(schedule: Any, metrics: Any, autocast: Any) -> None:
    """Refuses arguments of a wrong kind, likewise."""
    if not isinstance(schedule, Schedule | None):
        raise Refused(
            f"schedule={schedule!r}: give one of Shoal's, such as shoal.cosine(); one of PyTorch's is for `build` to give"
        )
    if not isinstance(metrics, Mapping):
        raise Refused(f"metrics={metrics!r}: give a dictionary, {{NAME: shoal.Accuracy()}}")
    for name, metric in metrics.items():
        if not isinstance(metric, Metric):
            raise Refused(f"metrics: {name!r} is {metric!r}: give shoal.Accuracy(), shoal.LogLoss() or shoal.Mean()")
    if autocast not in (None, torch.bfloat16, torch.float16):
        raise Refused(f"autocast={autocast!r}: give torch.bfloat16 or torch.float16")


def built_of(given: Any) -> tuple[nn.Module, optim.Optimizer, lr_scheduler.LRScheduler | None]:
    """What `build` gives: a module, its optimizer, and a scheduler of that, or none."""
    match given:
        case (nn.Module() as net, optim.Optimizer() as optimizer):
            return net, optimizer, None
        case (nn.Module() as net, optim.Optimizer() as optimizer, None):
            return net, optimizer, None
        case (nn.Module() as net, optim.Optimizer() as optimizer, lr_scheduler.LRScheduler() as scheduler):
            if scheduler.optimizer is not optimizer:
                raise Refused("`build` gave a scheduler of another optimizer: give it the one that is given beside it")
            return net, optimizer, scheduler
    kinds = f"({', '.join(type(one).__name__ for one in given)})" if isinstance(given, tuple | list) else type(given).__name__
    raise Refused(f"`build` gave {kinds}: give (module, optimizer) or (module, optimizer, scheduler)")


def total_of(loss: Loss, records: int) -> tuple[torch.Tensor, int]:
    """The sum of a microbatch's loss, and its weight."""
    if isinstance(loss, tuple):
        if len(loss) != 2 or not isinstance(loss[0], torch.Tensor) or loss[0].ndim != 0:
            raise Refused("`loss` gave a tuple that is no (sum, weight): give a scalar tensor and a whole number")
        return _graded(loss[0]), _whole(loss[1])
    if not isinstance(loss, torch.Tensor):
        raise Refused(f"`loss` gave a {type(loss).__name__}: give the mean, one value for each record, or (sum, weight)")
    _graded(loss)
    if loss.ndim == 0:
        if records > 1 and getattr(loss.grad_fn, "_saved_reduction", None) == _SUM:
            raise Refused(
                '`loss` gave a sum (reduction="sum"), and a scalar is taken for the mean: leave the reduction out, or give '
                "(sum, records), such as (sum, len(y))"
            )
        return loss * records, records
    if loss.shape == (records,):
        return loss.sum(), records
    raise Refused(
        f"`loss` has shape {tuple(loss.shape)} for {records} records: give the mean, one value for each record, or (sum, weight)"
    )


def _graded(loss: torch.Tensor) -> torch.Tensor:
    if not loss.requires_grad:
        raise Refused(
            "`loss` gave a tensor that has no gradient: it was detached, made below no_grad, or is of nothing that is trained"
        )
    return loss


def _whole(weight: Any) -> int:
    """A weight: numbers of records or tokens are whole."""
    if isinstance(weight, torch.Tensor) and weight.numel() != 1:
        raise Refused(f"`loss` gave a weight of shape {tuple(weight.shape)}: give a whole number")
    if not 0 <= float(weight) <= WEIGHT_MAX:
        raise Refused(f"`loss` gave {float(weight):g} as its weight: give a whole number from 0 to 2^40")
    if int(weight) != weight:
        raise Refused(
            f"`loss` gave {float(weight):g} as its weight, which is no whole number: multiply sum and weight by the same number, "
            "such as 1000, and round the weight: the mean stays"
        )
    return int(weight)


def judgements_of(given: Any, records: int) -> dict[str, torch.Tensor]:
    """What an evaluation gives, one value for each record."""
    if not isinstance(given, Mapping):
        raise Refused(f"`evaluate` gave a {type(given).__name__}: give a dictionary with one value for each record by metric")
    judged = {}
    for name, values in given.items():
        try:
            judged[name] = torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError):
            raise Refused(f"metric {name!r} is a {type(values).__name__}: give a tensor, one value for each record") from None
        if judged[name].is_complex():
            raise Refused(f"metric {name!r} is of complex numbers: give real ones")
        if judged[name].shape != (records,):
            raise Refused(
                f"metric {name!r} has shape {tuple(judged[name].shape)} for {records} records: give one value for each record "
                '(`reduction="none"`, `squeeze(1)`)'
            )
    return judged


def predictions_of(given: Any, records: int) -> Sequence[Any]:
    """What `predict` gives, one output for each record; of narrow numbers as float32, which NumPy knows."""
    if isinstance(given, dict) or (isinstance(given, tuple) and len(given) != records):
        raise Refused(f"`predict` gave a {type(given).__name__}: give a tensor or a list with one output for each record")
    outputs = (one.float() if isinstance(one, torch.Tensor) and one.dtype is torch.bfloat16 else one for one in given)
    return [one.cpu().numpy() if isinstance(one, torch.Tensor) else one for one in outputs]


@contextlib.contextmanager
def without_ranks(function: str) -> Iterator[None]:
    """Says what to do where a function of the program calls `torch.distributed`."""
    try:
        yield
    except ValueError as error:
        if "process group" not in str(error):
            raise
        raise Refused(
            f"`{function}` calls torch.distributed, and there are no ranks: leave DistributedDataParallel, samplers and "
            "collectives out; Shoal adds up what all trainers give"
        ) from error
