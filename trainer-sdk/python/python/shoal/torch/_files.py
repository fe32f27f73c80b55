"""Models that are exported, into and out of modules."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from .. import _safetensors
from ._module import STATISTICS, Module


def load(net: nn.Module, file: str | os.PathLike[str]) -> None:
    """Loads a model that was exported into a module: every trained parameter and statistic must be in the file, in its shape.

    Frozen parameters and other buffers stay as they are; tied parameters get theirs; counters and metrics are passed over.
    """
    tensors = _safetensors.load(file)
    # Of a norm that was put into evaluation mode nobody knows whether it stayed there while the job trained.
    constant = {
        f"{name}.{statistic}".removeprefix(".")
        for name, module in net.named_modules()
        if isinstance(module, _NormBase) and not module.training
        for statistic in STATISTICS
    }
    module = Module(net, counts=False)
    module.give_modes_back()
    fill({name: tensor for name, tensor in module.tensors().items() if name in tensors or name not in constant}, tensors, file)


def fill(wanted: Mapping[str, torch.Tensor], tensors: _safetensors.Tensors, file: str | os.PathLike[str]) -> None:
    """Gives tensors the values that a file has of them."""
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise KeyError(f"{file}: has no {', '.join(missing[:5])}{' and others' if len(missing) > 5 else ''}")
    with torch.no_grad():
        for name, tensor in wanted.items():
            given = tensors[name]
            if tuple(given.shape) != tuple(tensor.shape):
                raise ValueError(f"{name!r} has shape {tuple(given.shape)} in the file, {tuple(tensor.shape)} in the module")
            tensor.copy_(torch.from_numpy(given.copy()))


def save(net: nn.Module, file: str | os.PathLike[str]) -> None:
    """Writes a module's trained parameters and statistics to a file that a job may begin with (`--warm-start`)."""
    module = Module(net, counts=False)
    _safetensors.save(file, module.initial())
    module.give_modes_back()
