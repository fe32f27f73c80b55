"""A module of PyTorch as Shoal has it.

Which tensors are parameters of the job, which are running statistics of norms, and which are constants of the program.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _NormBase
from torch.utils.dlpack import from_dlpack
from torch.utils.hooks import RemovableHandle

from .._batch import Gradient, Parameters
from ._optimizers import Refused

if TYPE_CHECKING:
    from .._batch import Array

#: Statistics of a norm that are averaged, by the names of its buffers.
STATISTICS = ("running_mean", "running_var")


class Module:
    """A module and where its tensors belong."""

    def __init__(self, net: nn.Module, counts: bool = True) -> None:
        self.net = net
        #: What the author's functions call: the module, or what was compiled of it.
        self.callable = net
        self._counts = counts
        self._hooks: list[RemovableHandle] = []
        #: Each module with its mode as it came, and with that in which it trains: what the author has put into evaluation mode
        #: while the rest trains stays there.
        self._came = _modes(net)
        frozen = [(module, False) for module, is_training in self._came if net.training and not is_training]
        # By its own methods, which may be the author's.
        net.eval()
        self._judges = _modes(net)
        net.train()
        _set_modes(frozen)
        self._trains = _modes(net)
        #: Trained parameters; a tied one once, under its first name.
        self.trained: dict[str, nn.Parameter] = {}
        #: The other names of tied ones, and their first.
        self.tied: dict[str, str] = {}
        self.frozen: dict[str, nn.Parameter] = {}
        self._sort_parameters()
        #: Norms whose statistics are averaged.
        self.norms: dict[str, _NormBase] = {}
        self._sort_norms()
        #: Buffers that never change.
        self.constants = {name: buffer for name, buffer in net.named_buffers() if not self._is_statistic(name)}
        self._constants_at = [*self._places("buffer", self.constants), *self._places("frozen parameter", self.frozen)]
        #: Of each parameter its shape, its strides and where it begins in the stretch that is lent.
        self._lent: list[tuple[nn.Parameter, torch.Size, list[int], int]] = []
        #: Of each parameter, by where its sums begin.
        self._pushed: list[tuple[str, nn.Parameter, torch.Size, list[int], int]] = []
        self._loaded: int | None = None
        self._statistics_loaded: int | None = None
        self._runs = dict.fromkeys(self.norms, 0)
        #: What norms have counted before they were prepared.
        self._batches_tracked: dict[str, torch.Tensor | None] = {}
        #: Norms that have run in evaluation mode.
        self._judged: set[str] = set()
        self._versions = [parameter._version for parameter in self.trained.values()]
        self._before: list[tuple[torch.Tensor | None, int]] = []
        #: What has written where a step must not.
        self._spoilt: str | None = None
        self._steps = 0
        #: Of steps that are looked at closely what was there before them, by its checksum.
        self._contents: dict[str, int] | None = None

    def _places(self, kind: str, tensors: Mapping[str, torch.Tensor]) -> list[tuple[str, dict[str, Any], str]]:
        """Of each tensor what it is called in messages, and where its module keeps it."""
        places = []
        for name in tensors:
            path, _, own = name.rpartition(".")
            module = self.net.get_submodule(path)
            places.append((f"{kind} {name!r}", module._buffers if kind == "buffer" else module._parameters, own))
        return places

    def _sort_parameters(self) -> None:
        first: dict[int, str] = {}
        for name, parameter in self.net.named_parameters(remove_duplicate=False):
            if (known := first.setdefault(id(parameter), name)) != name:
                self.tied[name] = known
                continue
            if not parameter.requires_grad:
                self.frozen[name] = parameter
                continue
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise Refused(f"parameter {name!r} has no shape yet: run the lazy module once in `build`")
            if parameter.dtype in (torch.float16, torch.bfloat16):
                raise Refused(
                    f"parameter {name!r} is {parameter.dtype}: sums of narrow numbers stop growing; keep it in float32 and give "
                    "the program `autocast=torch.bfloat16`"
                )
            if parameter.dtype != torch.float32:
                raise Refused(f"parameter {name!r} is {parameter.dtype}: Shoal trains float32; make it so by `.float()`")
            self.trained[name] = parameter
        self._check_memory()
        for name, module in self.net.named_modules():
            if getattr(module, "sparse", False) and isinstance(module, nn.Embedding | nn.EmbeddingBag):
                raise Refused(f"module {name!r} has sparse gradients: give it sparse=False")

    def _check_memory(self) -> None:
        """Refuses tensors that share memory, and do not say so by being one: each would be given memory of its own."""
        tensors = {**self.trained, **self.frozen, **dict(self.net.named_buffers())}
        places = sorted(
            (tensor.data_ptr(), tensor.data_ptr() + _extent(tensor) * tensor.element_size(), name)
            for name, tensor in tensors.items()
            if not nn.parameter.is_lazy(tensor) and tensor.numel()
        )
        for at, (_, end, name) in enumerate(places):
            for begin, _, other in itertools.takewhile(lambda place, end=end: place[0] < end, places[at + 1 :]):  # type: ignore[misc]
                is_trained = name in self.trained or other in self.trained
                if is_trained and _share(tensors[name], tensors[other], begin - tensors[name].data_ptr()):
                    raise Refused(
                        f"{name!r} and {other!r} share memory, and would be parted: tie whole parameters, `a.weight = b.weight`"
                    )

    def _sort_norms(self) -> None:
        for name, module in self.net.named_modules():
            if isinstance(module, SyncBatchNorm):
                raise Refused(
                    f"{name!r} is a SyncBatchNorm, which wants a process group: take BatchNorm; Shoal averages statistics"
                )
            if not isinstance(module, _NormBase) or not module.track_running_stats or module.running_mean is None:
                continue
            if not module.training:
                continue
            if module.momentum is None:
                raise Refused(f"norm {name!r} has momentum=None, a plain mean over all batches: give it a momentum, such as 0.1")
            self.norms[name] = module
            if self._counts:
                self._hooks.append(module.register_forward_hook(self._counter(name)))

    def _counter(self, name: str) -> Any:
        def ran(norm: nn.Module, *_: Any) -> None:
            if norm.training:
                self._runs[name] += 1
            else:
                self._judged.add(name)

        return ran

    def _is_statistic(self, buffer: str) -> bool:
        module, _, name = buffer.rpartition(".")
        return module in self.norms and name in (*STATISTICS, "num_batches_tracked")

    def statistics(self) -> Iterator[tuple[str, float, torch.Tensor]]:
        """Each running statistic: its name, what an average keeps of it, and its buffer."""
        for name, norm in self.norms.items():
            for statistic in STATISTICS:
                yield f"{name}.{statistic}".removeprefix("."), 1.0 - self._momentum[name], getattr(norm, statistic)

    @property
    def _momentum(self) -> dict[str, float]:
        # While steps run the norms' own is 1.
        found: dict[str, float] | None = self.__dict__.get("_momenta")
        if found is None:
            found = self.__dict__["_momenta"] = {name: float(norm.momentum) for name, norm in self.norms.items()}  # type: ignore[arg-type]
        return found

    def release(self) -> None:
        """Gives the module back as it came, with values of its own: it may be trained on without Shoal, or again with it."""
        self.stop_counting()
        for name, tracked in self._batches_tracked.items():
            self.norms[name].momentum = self._momentum[name]
            self.norms[name].num_batches_tracked = tracked
        for parameter in self.trained.values():
            parameter.data = parameter.data.clone()
            parameter.grad = None
        self._loaded = None
        self.give_modes_back()

    def give_modes_back(self) -> None:
        """Each module has the mode that it came with."""
        _set_modes(self._came)

    def initial(self) -> dict[str, Array]:
        """The values of parameters and running statistics, copied."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.tensors().items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and running statistics."""
        return {**self.trained, **{name: buffer for name, _, buffer in self.statistics()}}

    def constants_hash(self) -> str:
        """SHA-256 of frozen parameters and constant buffers: names, kinds, shapes and bytes."""
        digest = hashlib.sha256()
        for name, tensor in sorted({**self.frozen, **self.constants}.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    # Around a step.

    def prepare(self) -> None:
        """Once, before the first step: from now on a norm's statistic is that of its last batch."""
        _ = self._momentum
        self._batches_tracked = {name: norm.num_batches_tracked for name, norm in self.norms.items()}
        for norm in self.norms.values():
            norm.momentum = 1.0
            norm.num_batches_tracked = None

    def load(self, parameters: Parameters) -> None:
        """Lends the parameters of this version to the module: Shoal's memory, not copied."""
        if self._loaded == parameters.version:
            return
        everything = from_dlpack(parameters._all)
        if not self._lent:
            self._lent = [
                (parameter, parameter.shape, _strides(parameter.shape), parameters._core.place(name)[0])
                for name, parameter in self.trained.items()
            ]
        for parameter, shape, strides, first in self._lent:
            parameter.data = everything.as_strided(shape, strides, first)
        self._loaded = parameters.version
        self._versions = [parameter._version for parameter in self.trained.values()]

    def load_statistics(self, parameters: Parameters) -> None:
        """Copies the running statistics of this version into the norms."""
        if self._statistics_loaded == parameters.version:
            return
        for name, _, buffer in self.statistics():
            buffer.copy_(from_dlpack(parameters[name]))
        self._statistics_loaded = parameters.version

    def begin_step(self) -> None:
        """What a step must leave as it is, is noted; what was left of gradients goes."""
        if self._spoilt is not None:
            raise Refused(self._spoilt)
        for name in self._runs:
            self._runs[name] = 0
        self._judged.clear()
        self._statistics_loaded = None
        for parameter in self.trained.values():
            if parameter.grad is not None:
                parameter.grad = None
        self._note()
        _set_modes(self._trains)

    def _note(self) -> None:
        """What must be the same when a function of the author's has ended: versions, and now and then all values."""
        self._before = self._constants_now()
        self._steps += 1
        is_looked_at = self._steps & (self._steps - 1) == 0
        self._contents = self._checksums() if is_looked_at else None

    def _checksums(self) -> dict[str, int]:
        """Of each tensor that a step must leave as it is."""
        tensors: dict[str, torch.Tensor | None] = {f"parameter {name!r}": tensor for name, tensor in self.trained.items()}
        tensors |= {name: tensors[own] for name, tensors, own in self._constants_at}
        return {name: _checksum(tensor) for name, tensor in tensors.items() if tensor is not None}

    def begin_alone(self, parameters: Parameters) -> None:
        """A microbatch of one record has no variance: norms take what the job has learnt, and their statistics stay."""
        self.load_statistics(parameters)
        for name, norm in self.norms.items():
            norm.training = False
            if name in self._runs:
                self._runs[name] = 1

    def end_alone(self) -> None:
        """The next microbatch is as others."""
        for norm in self.norms.values():
            norm.training = True
        self._judged.clear()

    def stop_counting(self) -> None:
        """Takes the counters of norms' runs away: code that is compiled would be compiled again for each count."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._runs.clear()

    def begin_judging(self) -> None:
        """The module gives what it has learnt."""
        _set_modes(self._judges)
        for name in self._runs:
            self._runs[name] = 0
        self._note()

    def end_judging(self) -> None:
        """Refuses an evaluation that leaves anything behind: the next one would not be what another trainer makes of it."""
        self._check_unchanged("evaluation")
        for name, runs in self._runs.items():
            if runs > 0:
                raise Refused(f"norm {name!r} ran in training mode in an evaluation, and changed its statistics: leave it be")

    def _constants_now(self) -> list[tuple[torch.Tensor | None, int]]:
        now = (buffers[name] for _, buffers, name in self._constants_at)
        return [(buffer, -1 if buffer is None else buffer._version) for buffer in now]

    def end_step(self) -> None:
        """Refuses what is no function of parameters and batch."""
        self._check_unchanged("step")
        for name in self._judged:
            raise Refused(
                f"norm {name!r} ran in evaluation mode: put it into that mode in `build`, and its statistics are constants"
            )
        for name, runs in self._runs.items():
            if runs != 1:
                raise Refused(
                    f"norm {name!r} ran {runs} times in one step: its statistics are those of one batch; let it run once (not "
                    "below torch.utils.checkpoint), or take `track_running_stats=False`"
                )

    def _check_unchanged(self, function: str) -> None:
        versions = [parameter._version for parameter in self.trained.values()]
        changed = [name for name, was, now in zip(self.trained, self._versions, versions, strict=True) if was != now]
        for (name, *_), (was, version), (now, present) in zip(
            self._constants_at, self._before, self._constants_now(), strict=True
        ):
            if now is not was or present != version:
                raise Refused(
                    f"the {function} changed {name}: what it leaves behind is lost when another trainer computes the next "
                    "one; a running mean can be declared as shoal.Average by a program of your own"
                )
        if self._contents is not None:
            # What is written by `.data` has no version.
            checksums = self._checksums()
            changed += [name for name, was in self._contents.items() if checksums.get(name) != was]
        for name in changed:
            name = name if " " in name else f"parameter {name!r}"
            # What was there is lost, so that no later step of this trainer is right, whether it is looked at or not.
            self._spoilt = (
                f"the {function} changed {name} in place: parameters are the job's, and change by their gradients alone"
            )
            raise Refused(self._spoilt)

    def add_to(self, gradient: Gradient, weight: float) -> None:
        """Puts the parameters' gradients and the norms' statistics where they are pushed from."""
        everything = from_dlpack(gradient._all)
        if not self._pushed:
            self._pushed = [
                (name, parameter, parameter.shape, _strides(parameter.shape), gradient._places[name][0])
                for name, parameter in self.trained.items()
            ]
        targets: list[torch.Tensor] = []
        sums: list[torch.Tensor] = []
        for name, parameter, shape, strides, first in self._pushed:
            if (grad := parameter.grad) is None:
                continue
            if grad.layout is not torch.strided:
                raise Refused(f"the gradient of {name!r} is sparse: give `sparse=False` to its module")
            targets.append(everything.as_strided(shape, strides, first))
            sums.append(grad)
            parameter.grad = None
        if targets:
            torch._foreach_copy_(targets, sums)
        for name, _, buffer in self.statistics():
            first, end = gradient._places[name]
            torch.mul(buffer.reshape(-1), weight, out=everything[first:end])


def _extent(tensor: torch.Tensor) -> int:
    """Elements from its first to its last one in memory."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _share(one: torch.Tensor, other: torch.Tensor, distance: int) -> bool:
    """Whether two tensors have an element in common, of which the other one begins so many bytes behind the first."""
    places = [
        torch.arange(_extent(tensor)).as_strided(tensor.shape, tensor.stride()) * tensor.element_size() for tensor in (one, other)
    ]
    return bool(torch.isin(places[0], places[1] + distance).any())


def _modes(net: nn.Module) -> list[tuple[nn.Module, bool]]:
    return [(module, module.training) for module in net.modules()]


def _set_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, is_training in modes:
        if module.training is not is_training:
            module.training = is_training


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _strides(shape: torch.Size) -> list[int]:
    """Of row-major order."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return strides[::-1]
