"""What a program's functions are given: records, parameters, gradients, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    # NumPy is imported where it is used: most of the time that importing this package would take is its.
    import numpy as np
    import numpy.typing as npt

    from . import _core

    Array = npt.NDArray[np.float32]


class DataSet(Protocol):
    """A map-style data set: a list, an array, a `torch.utils.data.Dataset` that has a length."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def check_data(name: str, data: Any) -> None:
    """Refuses what cannot be asked for a sample by its number.

    Raises:
        TypeError: What to give in its place.

    """
    if data is None or (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return
    kind = f"{name}= is a {type(data).__name__}, which cannot be asked for one sample by its number"
    if hasattr(data, "dataset"):
        raise TypeError(f"{kind}: give the data set itself, `{name}=loader.dataset`; Shoal shuffles it and makes microbatches")
    raise TypeError(f"{kind} (`len(data)`, `data[number]`): pack what it yields into RecordIO files, and say `decode=`")


def samples_of(data: DataSet, indices: list[int]) -> list[Any]:
    """A data set's samples at these indexes: where it has ``__getitems__`` by one call, as PyTorch's loader asks for them."""
    by_one_call = getattr(data, "__getitems__", None)
    if by_one_call is None:
        return [data[index] for index in indices]
    samples = list(by_one_call(indices))
    if len(samples) != len(indices):
        raise ValueError(f"{type(data).__name__}.__getitems__ gives {len(samples)} samples for {len(indices)} indexes")
    return samples


#: Of each parameter by name its shape.
Shapes = Mapping[str, tuple[int, ...]]


def _array(memory: _core.Memory) -> Any:
    """An array over memory that it owns a share of."""
    import numpy as np

    return np.asarray(memory)


class Batch:
    """The records of one microbatch.

    All of it may be kept: what it refers to is there as long as it is.
    """

    def __init__(self, core: _core.Batch, data: DataSet | None = None) -> None:
        self._core = core
        self._data = data

    @property
    def epoch(self) -> int:
        """The pass over the data, from 0; in an evaluation how many were begun before it."""
        return self._core.epoch

    @property
    def step(self) -> int:
        """The step, from 0; in an evaluation how many steps were trained before it."""
        return self._core.step

    @property
    def seed(self) -> int:
        """For randomness: the same whoever computes the microbatch, and when it is computed again."""
        return self._core.seed

    @cached_property
    def indices(self) -> list[int]:
        """The records' indexes in the data set."""
        return self._core.indices

    @cached_property
    def records(self) -> list[memoryview]:
        """The bytes of each record, shared and not copied."""
        return [memoryview(_array(record.memory())) for record in self._core.records]

    @cached_property
    def samples(self) -> list[Any]:
        """What the data set has at the records' indexes; of programs with ``data``."""
        if self._data is None:
            raise AttributeError("the program has no `data`: take `batch.records`")
        return samples_of(self._data, self.indices)

    def array(self, dtype: npt.DTypeLike = "uint8") -> npt.NDArray[Any]:
        """The records as one array, a row for each: of the same length all of them, which is a multiple of an element's."""
        import numpy as np

        memory, length = self._core.stacked()
        kind = np.dtype(dtype)
        if length % kind.itemsize:
            raise ValueError(f"records of {length} bytes are no whole number of {kind}: an element has {kind.itemsize}")
        rows: npt.NDArray[Any] = _array(memory).view(kind).reshape(len(self), length // kind.itemsize)
        return rows

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return repr(self._core)


class Parameters(Mapping[str, "Array"]):
    """The dense parameters at the version that a step reads, by name: arrays that cannot be written to, over Shoal's memory.

    They may be kept: the memory is there, unchanged, as long as an array over it is.
    """

    def __init__(self, core: _core.Parameters, shapes: Shapes) -> None:
        self._core = core
        self._shapes = shapes
        self._arrays: dict[str, Array] = {}

    @property
    def version(self) -> int:
        """Two of one trainer with the same number have the same values."""
        return self._core.version

    @property
    def loss_scale(self) -> float:
        """What the program multiplies its loss with; 1 unless :class:`Decisions` have a loss scale."""
        return self._core.loss_scale

    @cached_property
    def _all(self) -> Array:
        array: Array = _array(self._core.memory())
        return array

    def __getitem__(self, name: str) -> Array:
        if (array := self._arrays.get(name)) is None:
            first, end = self._core.place(name)
            array = self._arrays[name] = self._all[first:end].reshape(self._shapes[name])
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __contains__(self, name: object) -> bool:
        return name in self._shapes


class Gradient(Mapping[str, "Array"]):
    """The gradient **sums** of one microbatch by parameter, zero at first: arrays to be added to, ``gradient["w"] += ...``."""

    def __init__(self, memory: _core.Memory, places: Mapping[str, tuple[int, int]], shapes: Shapes) -> None:
        self._all: Array = _array(memory)
        self._places = places
        self._shapes = shapes
        #: What the step's mean divides by; ``None``: the number of the batch's records.
        self.weight: int | None = None

    def __getitem__(self, name: str) -> Array:
        first, end = self._places[name]
        return self._all[first:end].reshape(self._shapes[name])

    def __setitem__(self, name: str, sums: npt.ArrayLike) -> None:
        import numpy as np

        array = self[name]
        if sums is not array:
            np.copyto(array, sums, casting="same_kind")

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Metrics:
    """The metric sums of one microbatch of an evaluation."""

    def __init__(self) -> None:
        self._means: list[tuple[str, float, float]] = []
        self._scores: list[tuple[str, list[tuple[float, bool]]]] = []

    def add(self, name: str, sum: float, weight: float) -> None:
        """Adds to a mean: a **sum** of values, and what they weigh together."""
        self._means.append((name, float(sum), float(weight)))

    def score(self, name: str, scores: npt.ArrayLike, positive: npt.ArrayLike) -> None:
        """Counts records for an area under the curve: how probable each was said to be, from 0 to 1, and what it was."""
        import numpy as np

        pairs = zip(np.ravel(scores).tolist(), np.ravel(positive).astype(bool).tolist(), strict=True)
        self._scores.append((name, list(pairs)))
