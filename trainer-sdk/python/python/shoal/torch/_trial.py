"""A microbatch that a trainer computes before it joins, and twice: what differs then would differ between trainers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from .._batch import Batch, DataSet
from ._module import Module

#: The most records of the microbatch that is computed twice.
RECORDS = 4


class _Numbers:
    """Records that no job has given: what of the compiled module's batch a program reads."""

    epoch = step = seed = 0

    def __init__(self, indices: Sequence[int]) -> None:
        self.indices = list(indices)

    def __len__(self) -> int:
        return len(self.indices)


def trial(indices: Sequence[int], data: DataSet | None) -> Batch:
    """A batch of these records of a data set."""
    core: Any = _Numbers(indices)
    return Batch(core, data)


def spread(records: int, count: int) -> list[int]:
    """So many records from all over a data set, the first among them."""
    return sorted({at * (records - 1) // max(1, count - 1) for at in range(count)}) if records else []


def drawn(parameter: torch.Tensor, seed: int) -> torch.Tensor:
    """Values for a parameter that are the same in every trainer, whatever its script has made of it."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype).mul_(0.1)


def digest_of(total: torch.Tensor, module: Module) -> str:
    """The bits of a loss, of its gradients and of the norms' statistics, as a short hash."""
    digest = hashlib.sha256()
    tensors = [total, *(parameter.grad for parameter in module.trained.values()), *(of for _, _, of in module.statistics())]
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
        else:
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
