"""What PyTorch's bits depend on beside a program's functions: generators, settings, compilation."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ._optimizers import Refused

#: Of the microbatch's randomness the part that samples are made with; the rest is the module's.
SAMPLES = 1


def mix(*numbers: int) -> int:
    """A seed of several numbers, each of which changes all of it (splitmix64, Steele, Lea and Flood 2014)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E37_79B9_7F4A_7C15) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & 0xFFFF_FFFF_FFFF_FFFF
        mixed ^= mixed >> 31
    return mixed


def seed_all(seed: int) -> None:
    """Seeds the generators that a program may draw from.

    Not by `torch.manual_seed`, which takes a hundred times as long: it formats a stack trace for a device that may come.
    """
    torch.default_generator.manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)


def settings() -> str:
    """What a script may have set in PyTorch, and changes bits."""
    try:
        matmul = torch.get_float32_matmul_precision()
    except RuntimeError:
        # It was said by the newer names, some of which it cannot say.
        matmul = "mixed"
    # By either name; what was never set is what was set back.
    onednn = getattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", "none")
    settings = {
        "dtype": torch.get_default_dtype(),
        "matmul": matmul,
        "mkldnn": torch.backends.mkldnn.enabled,
        "mkldnn.matmul": "ieee" if onednn == "none" else onednn,
        "denormals": bool(torch.full((), 1e-39, dtype=torch.float32) * 0.5),
    }
    return " ".join(f"{name}={value}" for name, value in settings.items())


def compilation(asked: bool | dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of `torch.compile`; one program for each shape, so that bits do not depend on which shapes came before."""
    if asked is False:
        return None
    if not isinstance(asked, bool | dict):
        raise Refused(f"compile={asked!r}: give True, or arguments of torch.compile in a dictionary: {{'mode': {asked!r}}}")
    arguments = {"dynamic": False, **(asked if isinstance(asked, dict) else {})}
    if "max-autotune" in str(arguments.get("mode")):
        raise Refused('compile: mode "max-autotune" chooses code by the clock, in each trainer other code: leave the mode out')
    if arguments["dynamic"] is not False:
        raise Refused("compile: with dynamic shapes bits depend on which shapes came before: leave `dynamic` out")
    return arguments
