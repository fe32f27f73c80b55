"""What the bits of NumPy's and PyTorch's results depend on beside their arguments.

Two trainers of one job that differ in any of it may give other gradients, without a word.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import itertools
import os
import platform
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._batch import samples_of

if TYPE_CHECKING:
    from ._batch import DataSet


def usual() -> dict[str, str]:
    """Of every program: versions, and what NumPy chooses its code by."""
    import numpy as np

    from . import _core

    return {
        "python": platform.python_version(),
        "shoal": _core.__version__,
        "numpy": np.__version__,
        "numpy.instructions": _instructions(),
        "processor": f"{platform.machine()} {_processor()}".strip(),
        **{f"${name}": value for name in _VARIABLES if (value := os.environ.get(name))},
    }


#: Variables by which libraries of mathematics choose code, or how work is divided among threads.
_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "BLIS_NUM_THREADS",
    "CUBLAS_WORKSPACE_CONFIG",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "OMP_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "XLA_FLAGS",
)


def _instructions() -> str:
    """The instruction sets that NumPy has found, as a short hash: there are dozens."""
    import numpy as np

    extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return short_hash(" ".join(map(str, extensions.get("found", []))))


def _processor() -> str:
    """The kind of processor: its family and model on x86, by which BLAS libraries choose their kernels."""
    if sys.platform != "linux":
        return platform.processor()
    wanted = {"vendor_id", "cpu family", "model", "CPU implementer", "CPU part"}
    found: dict[str, str] = {}
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
        for line in lines:
            name, _, value = line.partition(":")
            if not name.strip():
                break
            if name.strip() in wanted:
                found[name.strip()] = value.strip()
    return " ".join(found.values())


#: What is wrong with a data set that keeps something from sample to sample.
CHANGES = (
    "gives another sample when it is asked again, as other trainers will: a generator of its own, or a counter? Let it depend on "
    "the number alone; where the program is `shoal.torch`'s, Shoal seeds PyTorch's, NumPy's and Python's own generators, too"
)


def digests(of: Mapping[str, DataSet | None], seed: Callable[[int], None], is_sync: bool = True) -> dict[str, str]:
    """Of each data set a short hash of its length and of its first, middle and last sample.

    By it trainers are found that have drawn it each in its own way, by `random_split` without a generator, say. A sample that
    cannot be made is found in its step.

    Raises:
        ValueError: A sample is another one when it is made again, and the job is synchronous.

    """
    found = {}
    for name, data in of.items():
        if data is None:
            continue
        words = [str(len(data))]
        for index in sorted({0, len(data) // 2, len(data) - 1}) if len(data) else []:
            made = []
            for _ in range(2):
                seed(index)
                with contextlib.suppress(Exception):
                    made.append(words_of(samples_of(data, [index])[0]))
            if is_sync and len(made) == 2 and made[0] != made[1]:
                raise ValueError(f"{name}[{index}] {CHANGES}")
            words += made[:1]
        found[name] = short_hash("\n".join(words))
    return found


def words_of(sample: Any, depth: int = 0) -> str:
    """What it consists of, as far as that is the same in every process; of much of it the first part."""
    if depth > _DEPTH:
        return type(sample).__qualname__
    words = functools.partial(words_of, depth=depth + 1)
    match sample:
        case enum.Enum():
            return f"{type(sample).__qualname__}.{sample.name}"
        case type():
            return sample.__qualname__
        case str() | bytes() | bool() | int() | float() | complex() | None:
            return repr(sample)
        case Mapping():
            pairs = itertools.islice(sample.items(), _ITEMS)
            return f"{len(sample)} {{{', '.join(f'{words(key)}: {words(value)}' for key, value in pairs)}}}"
        case list() | tuple():
            return f"{len(sample)} [{', '.join(map(words, sample[:_ITEMS]))}]"
        case set() | frozenset():
            # In an order that strings do not choose.
            return f"{{{', '.join(sorted(map(words, sample)))}}}"
    if hasattr(sample, "__array__"):
        return _words_of_array(sample, words)
    kind = type(sample).__qualname__
    return f"{kind} {words(vars(sample))}" if hasattr(sample, "__dict__") else kind


#: How deep objects are looked into, and how many items of each.
_DEPTH, _ITEMS = 8, 4096


def _words_of_array(sample: Any, words: Callable[[Any], str]) -> str:
    import numpy as np

    if hasattr(sample, "detach"):
        sample = sample.detach()
    try:
        array = np.asarray(sample)
    except (TypeError, RuntimeError):
        # Sparse tensors, and numbers that NumPy does not know.
        if not hasattr(sample, "float") or "bfloat16" not in str(sample.dtype):
            return f"{type(sample).__qualname__} {tuple(sample.shape)}"
        array = np.asarray(sample.float())
    return f"{array.dtype} {array.shape} {words(array.ravel()[:_ITEMS].tolist())}"


def short_hash(text: str) -> str:
    """The first 16 hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
