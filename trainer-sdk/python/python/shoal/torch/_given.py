"""What a program's functions of PyTorch give: checked, and made into what Shoal adds up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ._optimizers import Refused

#: A loss: a mean over the records, one value for each record, or a sum and what it weighs (tokens, say).
Loss = torch.Tensor | tuple[torch.Tensor, int]
#: `at::Reduction::Sum`, as losses keep it for their way back.
_SUM = 2


def total_of(loss: Loss, records: int) -> tuple[torch.Tensor, int]:
    """The sum of a microbatch's loss, and its weight."""
    if isinstance(loss, tuple):
        if len(loss) != 2 or not isinstance(loss[0], torch.Tensor) or loss[0].ndim != 0:
            raise Refused("`loss` gave a tuple that is no (sum, weight): give a scalar tensor and a whole number")
        return loss[0], _whole(loss[1])
    if not isinstance(loss, torch.Tensor):
        raise Refused(f"`loss` gave a {type(loss).__name__}: give the mean, one value for each record, or (sum, weight)")
    if loss.ndim == 0:
        if getattr(loss.grad_fn, "_saved_reduction", None) == _SUM:
            raise Refused(
                '`loss` gave a sum (reduction="sum"), and a scalar is taken for the mean: leave the reduction out, or give '
                "(sum, len(batch))"
            )
        return loss * records, records
    if loss.shape == (records,):
        return loss.sum(), records
    raise Refused(
        f"`loss` has shape {tuple(loss.shape)} for {records} records: give the mean, one value for each record, or (sum, weight)"
    )


def _whole(weight: Any) -> int:
    """A weight: numbers of records or tokens are whole."""
    if isinstance(weight, torch.Tensor) and weight.numel() != 1:
        raise Refused(f"`loss` gave a weight of shape {tuple(weight.shape)}: give a whole number")
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
        if judged[name].shape != (records,):
            raise Refused(
                f"metric {name!r} has shape {tuple(judged[name].shape)} for {records} records: give one value for each record "
                '(`reduction="none"`, `squeeze(1)`)'
            )
    return judged


@contextlib.contextmanager
def without_ranks(function: str) -> Iterator[None]:
    """Says what to do where a function of the program calls `torch.distributed`."""
    try:
        yield
    except ValueError as error:
        refuse_ranks(function, error)
        raise


def refuse_ranks(function: str, error: ValueError) -> None:
    """Raises what to do about `torch.distributed`, where an error is of it."""
    if "process group" in str(error):
        raise Refused(
            f"`{function}` calls torch.distributed, and there are no ranks: leave DistributedDataParallel, samplers and "
            "collectives out; Shoal adds up what all trainers give"
        ) from error
