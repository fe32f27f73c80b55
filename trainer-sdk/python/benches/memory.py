"""Peak memory of a trainer whose model has 100 MB: python benches/memory.py

The model is ten tensors over NumPy; a step reads all of it and fills all of its gradient. What counts is the highest resident
memory of this process, a trainer of a whole job, beyond what it has before it joins, as a multiple of the model.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shoal

TENSORS = 10


class Large(shoal.Program):
    """So many elements in ten tensors, without mathematics."""

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self.before = 0
        self.addresses: set[int] = set()

    def declare(self, job: shoal.Job) -> Sequence[Any]:
        self.before = status("VmRSS")
        shape = (self.elements // TENSORS,)
        return [shoal.Parameter(f"w{number}", shape, shoal.SGD(0.1), shoal.normal(0.1)) for number in range(TENSORS)]

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        for name in parameters:
            gradient[name] += parameters[name]
            self.addresses.add(parameters[name].ctypes.data)


def status(name: str) -> int:
    """Bytes of one line of /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Trains and prints the multiple."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--microbatches", type=int, default=8, help="microbatches a step")
    arguments = parser.parse_args()
    program = Large(arguments.elements)
    shape: dict[str, Any] = {"microbatch_records": 8, "microbatches_per_step": arguments.microbatches}
    with tempfile.TemporaryDirectory() as folder:
        shoal.run(program, folder=folder, data=f"records:{8 * 8 * arguments.microbatches}", progress=False, **shape)
    model = 4 * arguments.elements
    peak = status("VmHWM") - program.before
    print(
        f"model {model / 1e6:.0f} MB, {arguments.microbatches} microbatches a step: peak {peak / 1e6:.0f} MB, "
        f"{peak / model:.2f} times the model; addresses of the first tensor: {len(program.addresses) // TENSORS}"
    )


if __name__ == "__main__":
    main()
