"""A training program over NumPy arrays: what an author writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from . import _declare, _environment
from ._batch import Batch, DataSet, Gradient, Metrics, Parameters, Shapes
from ._declare import Decisions, Declared, Metric

if TYPE_CHECKING:
    from . import _core
    from ._batch import Array
    from ._together import First, Other


class Program:
    """A training program: what its parameters are, and what a step adds to their gradients.

    All functions are called on one thread, and each must be a function of its arguments alone: the same batch and parameters give
    the same bits in every trainer, and when they are computed again. Randomness comes from :attr:`Batch.seed`.

    >>> import numpy as np, shoal
    >>> class Mean(shoal.Program):
    ...     def declare(self, job):
    ...         return [shoal.Parameter("mean", (1,), shoal.SGD(0.1))]
    ...     def step(self, batch, parameters, gradient):
    ...         x = batch.array(np.uint8)
    ...         gradient["mean"] += (parameters["mean"] - x[:, 0]).sum()
    """

    #: A map-style data set, which is trained on or predicted: ``data[i]`` is the record of number ``i``; with it
    #: :attr:`Batch.samples` are its elements.
    data: DataSet | None = None
    #: The same of the data that are evaluated.
    eval_data: DataSet | None = None
    #: Metrics of evaluations, by name.
    metrics: dict[str, Metric] = {}
    #: What is decided over all parameters before a step is applied.
    decisions: Decisions | None = None
    #: Elements of one block, the unit of placement and movement; 0: Shoal chooses.
    block_elements: int = 0

    #: The names of the parameters and averages that it has declared.
    _learnt: frozenset[str] = frozenset()
    #: Those with whom it begins, where `shoal.run` has started them.
    _together: First | Other | None = None
    _is_sync = True
    #: Whether records were seen that are numbers.
    _has_numbers = False

    def declare(self, job: _core.Job) -> Sequence[Declared]:
        """The parameters, as a function of the job alone: every trainer must declare the same."""
        raise NotImplementedError("write `declare`: it returns a list of shoal.Parameter")

    def step(self, batch: Batch, parameters: Parameters, gradient: Gradient) -> None:
        """Adds the **sum** (not the mean) of the gradients over the batch's records to ``gradient``."""
        raise NotImplementedError("write `step`: it adds to the arrays of `gradient`")

    def evaluate(self, batch: Batch, parameters: Parameters, metrics: Metrics) -> None:
        """Adds what the batch's records come to with these parameters to the metrics; in jobs with data to evaluate."""
        raise NotImplementedError("the program evaluates nothing: write `evaluate`, or run it without --eval-data")

    def predict(self, batch: Batch, parameters: Parameters) -> Sequence[bytes | str | Array]:
        """What the model says of each record of ``data``, one output for each, in their order; in jobs with ``--predict``."""
        raise NotImplementedError("the program predicts nothing: write `predict`, or run it without --predict")

    def initial(self, seed: int) -> dict[str, Array]:
        """Values before the first step that are not made by :class:`Initial`, by the parameter's name.

        A module's own, say, or pretrained ones. Asked once for a job, before it starts; ``seed`` is the job's.
        """
        return {}

    def environment(self) -> dict[str, str]:
        """What the bits of this program's gradients depend on beside their arguments, by name; asked after :meth:`declare`.

        Versions of Python, NumPy and this package, and the instructions that NumPy uses, are added. In synchronous jobs a
        trainer with another environment than the job's first one is refused (`--environment same`).
        """
        return {}

    # What :func:`shoal.run` calls.

    def _lasting(self) -> contextlib.AbstractContextManager[None]:
        """Puts back, when the job has ended, what it has changed in this process."""
        return contextlib.nullcontext()

    def _seed_samples(self, seed: int) -> None:
        """Seeds what samples are made with by chance."""

    def _take(self, model: str | os.PathLike[str]) -> None:
        """Takes the values that the job has ended with."""

    # What the compiled module calls.

    @final
    def _declare(self, job: _core.Job) -> str:
        self._has_numbers = False
        self._is_sync = job.mode == "sync"
        declared = list(self.declare(job))
        for each in declared:
            if not isinstance(each, Declared):
                raise TypeError(f"declare gave {each!r}: give shoal.Parameter, shoal.Counter or shoal.Average")
        self._shapes: Shapes = {each.name: tuple(each.shape) for each in declared}
        self._learnt = frozenset(each.name for each in declared if not isinstance(each, _declare.Counter))
        steps = job.epochs * job.steps_per_epoch
        return _declare.declaration(declared, self.metrics, self.decisions, self.block_elements, steps)

    @final
    def _environment(self) -> dict[str, str]:
        data = {"data": self.data, "eval_data": self.eval_data}
        found = {**_environment.usual(), **_environment.digests(data, self._seed_samples, self._is_sync), **self.environment()}
        if self._together is not None:
            self._together.joins()
        return found

    @final
    def _step(
        self, batch: _core.Batch, parameters: _core.Parameters, memory: _core.Memory, places: dict[str, tuple[int, int]]
    ) -> int | None:
        gradient = Gradient(memory, places, self._shapes)
        self.step(self._batch(batch, self.data), Parameters(parameters, self._shapes), gradient)
        return gradient.weight

    @final
    def _evaluate(self, batch: _core.Batch, parameters: _core.Parameters) -> tuple[list[Any], list[Any]]:
        metrics = Metrics()
        self.evaluate(self._batch(batch, self.eval_data), Parameters(parameters, self._shapes), metrics)
        return metrics._means, metrics._scores

    @final
    def _predict(self, batch: _core.Batch, parameters: _core.Parameters) -> list[bytes]:
        outputs = self.predict(self._batch(batch, self.data), Parameters(parameters, self._shapes))
        return [_output(output) for output in outputs]

    def _batch(self, batch: _core.Batch, data: DataSet | None) -> Batch:
        """The batch, whose records are numbers where the program has a data set of its own."""
        if self._together is not None:
            self._together.begins()
        if data is not None and not self._has_numbers:
            if bytes(batch.records[0]) != batch.indices[0].to_bytes(8, "little"):
                raise ValueError(
                    "the job has files of records, and the program a data set of its own: which counts? Leave `--data` and "
                    "`--eval-data` out, or the program's `data` and `eval_data`"
                )
            self._has_numbers = True
        return Batch(batch, data)


def _output(output: bytes | str | Array) -> bytes:
    match output:
        case bytes():
            return output
        case str():
            return output.encode()
        case _:
            import io

            import numpy as np

            file = io.BytesIO()
            np.save(file, np.asarray(output), allow_pickle=False)
            return file.getvalue()
