"""The count oracle: counters that show, record by record and epoch by epoch, how often each record took effect.

Record i adds 4^epoch to element i of each of three, so that a skipped and a doubled record cannot cancel. `shoal run` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import shoal

NAMES = ("count.first", "count.second", "count.third")


class Counting(shoal.Program):
    """Before another program in a class's bases: counts beside it."""

    def declare(self, job: shoal.Job) -> Sequence[Any]:
        return [*super().declare(job), *(shoal.Counter(name, (job.records,)) for name in NAMES)]

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        super().step(batch, parameters, gradient)
        for name in NAMES:
            np.add.at(gradient[name], batch.indices, np.float32(4.0**batch.epoch))
