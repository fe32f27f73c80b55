"""A training program made of a module, a loss and an optimizer."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn, optim
from torch.optim import lr_scheduler
from torch.utils.data import default_collate

from .. import _declare
from .. import _program as base
from .._batch import Batch, DataSet, Gradient, Metrics, Parameters
from .._declare import Declared, Metric, Rule, Schedule
from ._given import Loss, judgements_of, refuse_ranks, total_of, without_ranks
from ._module import Module, load
from ._optimizers import Refused, check_optimizer, rule_of, schedules_of

if TYPE_CHECKING:
    from .. import _core
    from .._batch import Array

#: Held by the thread that trains.
_training = threading.Lock()
#: What `build` gives: the module, its optimizer, and a scheduler if there is one.
Built = tuple[nn.Module, optim.Optimizer] | tuple[nn.Module, optim.Optimizer, lr_scheduler.LRScheduler]


class Program(base.Program):
    """A training program of PyTorch: the module, the loss and the optimizer as they are.

    ``build()`` makes the module and its optimizer, in every trainer the same, with PyTorch's generator seeded by the job's seed.
    The optimizer is read and never stepped: Shoal's parameter servers do what it says.

    ``loss(net, batch)`` gives the loss of one microbatch: a scalar, which is taken for the **mean** over its records; one value
    for each record; or ``(sum, weight)``. ``evaluate(net, batch)`` gives one value for each record, by the metric's name:
    booleans make an accuracy, numbers a mean. ``predict(net, batch)`` gives one output for each record.

    ``batch`` is what ``collate`` makes of the samples: of ``data[i]`` for a map-style data set, of ``decode(bytes)`` for RecordIO
    files; or what ``decode_batch`` makes of a whole :class:`shoal.Batch`.
    """

    def __init__(
        self,
        build: Callable[[], Built],
        loss: Callable[[nn.Module, Any], Loss],
        evaluate: Callable[[nn.Module, Any], Mapping[str, torch.Tensor]] | None = None,
        *,
        predict: Callable[[nn.Module, Any], Sequence[Any]] | None = None,
        data: DataSet | None = None,
        eval_data: DataSet | None = None,
        decode: Callable[[bytes], Any] | None = None,
        decode_batch: Callable[[Batch], Any] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        schedule: Schedule | None = None,
        scheduler_unit: Literal["step", "epoch"] = "step",
        metrics: dict[str, Metric] | None = None,
        clip_norm: float | None = None,
        skip_non_finite: int | None = None,
        loss_scale: float | None = None,
        autocast: torch.dtype | None = None,
        compile: bool | dict[str, Any] = False,
        threads: int = 1,
        block_elements: int = 0,
    ) -> None:
        self._build = build
        self._loss = loss
        self._judge = evaluate
        self._say = predict
        self.data = data
        self.eval_data = eval_data
        self._decode = decode
        self._decode_batch = decode_batch
        self._collate = collate
        self._schedule = schedule
        if scheduler_unit not in ("step", "epoch"):
            raise Refused(f'scheduler_unit={scheduler_unit!r}: give "step" or "epoch"')
        self._scheduler_unit = scheduler_unit
        self._stated_metrics = dict(metrics or {})
        self.metrics = dict(self._stated_metrics)
        self.decisions = None
        if clip_norm is not None or skip_non_finite is not None or loss_scale is not None:
            self.decisions = _declare.Decisions(clip_norm, skip_non_finite, loss_scale)
        if autocast is torch.float16 and loss_scale is None:
            raise Refused("autocast=torch.float16 loses small gradients: give `loss_scale=65536.0` as well")
        self._autocast = autocast
        self._compile = _compilation(compile)
        self._threads = threads
        self.block_elements = block_elements
        self._module: Module | None = None
        self._counts_by_step = False
        self._counts_loss = False

    def __getstate__(self) -> dict[str, Any]:
        """Without the module, which each trainer builds."""
        return {**self.__dict__, "_module": None}

    @property
    def net(self) -> nn.Module:
        """The module, once it was built; after :func:`shoal.run` with the values that the job has ended with."""
        return self._built.net

    @property
    def _built(self) -> Module:
        if self._module is None:
            raise RuntimeError("the module is built when the program joins its job")
        return self._module

    def _make(self, seed: int, counts: bool = True) -> tuple[Module, optim.Optimizer, lr_scheduler.LRScheduler | None]:
        """Builds the module as every trainer does."""
        torch.set_num_threads(self._threads)
        torch.use_deterministic_algorithms(True)
        _seed_all(seed)
        with without_ranks("build"):
            net, optimizer, *rest = self._build()
        return Module(net, counts), optimizer, (rest[0] if rest else None)

    def initial(self, seed: int) -> dict[str, Array]:
        """The module's own values."""
        return self._make(seed, counts=False)[0].initial()

    def declare(self, job: _core.Job) -> Sequence[Declared]:
        """Reads module and optimizer."""
        module, optimizer, scheduler = self._make(job.seed)
        if not module.trained:
            raise Refused("the module has no parameter that is trained: `requires_grad` is False for all of them")
        if not job.is_warm_started:
            raise Refused(
                "the job has no initial values, and a module makes its own: start it by `shoal run -- python ...`, which asks "
                "the program for them, or give it their file by --warm-start"
            )
        self._module = module
        rules = self._rules(optimizer, scheduler, job)
        self._find_metrics(job)
        declared: list[Declared] = [
            _declare.Parameter(name, tuple(parameter.shape), rules[id(parameter)]) for name, parameter in module.trained.items()
        ]
        steps = job.epochs * job.steps_per_epoch
        self._counts_by_step = steps <= 1024
        self._counts_loss = "loss" not in module.trained and "loss" not in self.metrics
        if self._counts_loss:
            declared.append(_declare.Counter("loss", (max(1, steps if self._counts_by_step else job.epochs),)))
        declared += [_declare.Average(name, tuple(of.shape), decay) for name, decay, of in module.statistics()]
        module.prepare()
        if self._compile is not None:
            self._warm_up(job)
        return declared

    def _warm_up(self, job: _core.Job) -> None:
        """Compiles before the trainer joins: a task that it had in hand would wait for a minute."""
        module = self._built
        records = 0 if self.data is None else min(job.microbatch_records, len(self.data))
        batch = None if self.data is None else self._inputs(_trial(records, self.data))
        if batch is not None:
            # Not compiled, so that it is seen what it changes.
            module.begin_step()
            self._try(batch, records)
            module.end_step()
        module.stop_counting()
        module.callable = torch.compile(module.net, **(self._compile or {}))  # type: ignore[assignment]
        if batch is not None:
            self._try(batch, records)

    def _try(self, inputs: Any, records: int) -> None:
        """Forward and backward, for nothing."""
        module = self._built
        with torch.enable_grad(), self._precision():
            total, _ = total_of(self._loss(module.callable, inputs), records)
        torch.autograd.backward(total)
        for parameter in module.trained.values():
            parameter.grad = None

    def environment(self) -> dict[str, str]:
        """What PyTorch's bits depend on, and the hash of what is frozen."""
        return {
            "torch": str(torch.__version__),
            "torch.instructions": torch.backends.cpu.get_cpu_capability(),
            "torch.threads": str(torch.get_num_threads()),
            "torch.deterministic": str(torch.are_deterministic_algorithms_enabled()),
            "torch.autocast": str(self._autocast),
            "torch.compile": str(self._compile),
            "constants": self._built.constants_hash(),
        }

    def _rules(self, optimizer: optim.Optimizer, scheduler: lr_scheduler.LRScheduler | None, job: _core.Job) -> dict[int, Rule]:
        """The rule of each trained parameter."""
        check_optimizer(optimizer)
        groups = optimizer.param_groups
        schedules = [self._schedule or Schedule()] * len(groups)
        if scheduler is not None:
            if self._schedule is not None:
                raise Refused("`build` gives a scheduler, and the program has `schedule=`: give one of them")
            steps = job.epochs * job.steps_per_epoch
            schedules = schedules_of(scheduler, steps, job.steps_per_epoch, self._scheduler_unit)
        rules: dict[int, Rule] = {}
        for group, schedule in zip(groups, schedules, strict=True):
            rule = rule_of(optimizer, {**group, "lr": group.get("initial_lr", group["lr"])})
            object.__setattr__(rule, "schedule", schedule)
            rules.update((id(parameter), rule) for parameter in group["params"])
        for name, parameter in self._built.trained.items():
            if id(parameter) not in rules:
                raise Refused(f"parameter {name!r} is not the optimizer's: give it to it, or set requires_grad=False")
        own = {id(parameter) for parameter in self._built.net.parameters()}
        for group in groups:
            for parameter in group["params"]:
                if id(parameter) not in own and parameter.requires_grad:
                    raise Refused(
                        f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not the module's, and would "
                        "never be trained: make it an nn.Parameter of the module, of one around both where it is a loss's"
                    )
        return rules

    def _find_metrics(self, job: _core.Job) -> None:
        """The metrics that `evaluate` gives, found out by one sample where they were not stated."""
        self.metrics = dict(self._stated_metrics)
        if job.evaluations == 0:
            self.metrics = {}
            return
        if self._judge is None:
            raise Refused("the job evaluates, and the program has no `evaluate`: write it, or run without --eval-data")
        if self.eval_data is None:
            if not self.metrics:
                raise Refused("of RecordIO files `metrics={NAME: shoal.Accuracy()}` must say what `evaluate` gives")
            return
        module = self._built
        inputs = self._inputs(_trial(1, self.eval_data))
        module.begin_judging()
        with without_ranks("evaluate"), torch.no_grad(), self._precision():
            given = judgements_of(self._judge(module.net, inputs), 1)
        for name, values in given.items():
            self.metrics.setdefault(name, _declare.Accuracy() if values.dtype == torch.bool else _declare.Mean())

    def _inputs(self, batch: Batch) -> Any:
        """What the program's functions are given of a batch. Its randomness is the microbatch's: the same whoever makes it."""
        _seed_all(mix(batch.seed, _SAMPLES))
        if self._decode_batch is not None:
            return self._decode_batch(batch)
        if batch._data is not None:
            return self._collate(batch.samples)
        if self._decode is None:
            raise Refused("records are bytes: give the program `decode=` or `decode_batch=`, or a data set by `data=`")
        return self._collate([self._decode(bytes(record)) for record in batch._core.records])

    def step(self, batch: Batch, parameters: Parameters, gradient: Gradient) -> None:
        """One microbatch forward and backward."""
        module = self._built
        inputs = self._inputs(batch)
        module.load(parameters)
        module.begin_step()
        try:
            total, weight = self._forward(inputs, batch)
        except ValueError as error:
            refuse_ranks("loss", error)
            if len(batch) > 1 or not module.norms or _OF_ONE not in str(error):
                raise
            module.begin_alone(parameters)
            try:
                total, weight = self._forward(inputs, batch)
            finally:
                module.end_alone()
        scaled = total if parameters.loss_scale == 1.0 else total * parameters.loss_scale
        torch.autograd.backward(scaled)
        module.end_step()
        module.add_to(gradient, float(weight))
        gradient.weight = weight
        if self._counts_loss:
            counts = gradient["loss"]
            counts[min(batch.step if self._counts_by_step else batch.epoch, len(counts) - 1)] += total.detach().item()

    def _forward(self, inputs: Any, batch: Batch) -> tuple[torch.Tensor, int]:
        _seed_all(batch.seed)
        # Whoever calls `shoal.run` may have switched gradients off.
        with torch.enable_grad(), self._precision():
            loss = self._loss(self._built.callable, inputs)
            return total_of(loss, len(batch))

    def _precision(self) -> contextlib.AbstractContextManager[None]:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast("cpu", self._autocast)

    def evaluate(self, batch: Batch, parameters: Parameters, metrics: Metrics) -> None:
        """One microbatch of an evaluation."""
        if self._judge is None:
            super().evaluate(batch, parameters, metrics)
            return
        given = self._judged(batch, parameters, self._judge)
        for name, values in judgements_of(given, len(batch)).items():
            metrics.add(name, float(values.double().sum()), len(batch))

    def predict(self, batch: Batch, parameters: Parameters) -> Sequence[Any]:
        """One microbatch of a prediction."""
        if self._say is None:
            return super().predict(batch, parameters)
        said = self._judged(batch, parameters, self._say)
        return [one.cpu().numpy() if isinstance(one, torch.Tensor) else one for one in said]

    def _judged(self, batch: Batch, parameters: Parameters, function: Callable[[nn.Module, Any], Any]) -> Any:
        module = self._built
        inputs = self._inputs(batch)
        module.load(parameters)
        module.load_statistics(parameters)
        module.begin_judging()
        _seed_all(batch.seed)
        with without_ranks("predict" if function is self._say else "evaluate"), torch.no_grad(), self._precision():
            given = function(module.callable, inputs)
        module.end_judging()
        return given

    @contextlib.contextmanager
    def _lasting(self) -> Iterator[None]:
        if not _training.acquire(blocking=False):
            raise RuntimeError(
                "this process trains already, in another thread: generators of chance and settings of PyTorch are the "
                "process's; train in processes of their own, or one after the other"
            )
        threads, is_deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
        generators = torch.default_generator.get_state(), random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(is_deterministic, warn_only=warns_only)
            torch.default_generator.set_state(generators[0])
            random.setstate(generators[1])
            np.random.set_state(generators[2])
            if self._module is not None:
                self._module.release()
            _training.release()

    def _seed_samples(self, seed: int) -> None:
        _seed_all(seed)

    def _take(self, model: str | os.PathLike[str]) -> None:
        load(self.net, model)


class _Trial:
    """The first records of a data set, for a trial before the job begins: what of the compiled module's batch a program reads."""

    epoch = step = seed = 0

    def __init__(self, records: int) -> None:
        self.indices = list(range(records))

    def __len__(self) -> int:
        return len(self.indices)


def _trial(records: int, data: DataSet | None) -> Batch:
    core: Any = _Trial(records)
    return Batch(core, data)


def _compilation(asked: bool | dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of `torch.compile`; one program for each shape, so that bits do not depend on which shapes came before."""
    if asked is False:
        return None
    arguments = {"dynamic": False, **({} if asked is True else asked)}
    if "max-autotune" in str(arguments.get("mode")):
        raise Refused('compile: mode "max-autotune" chooses code by the clock, in each trainer other code: leave the mode out')
    if arguments["dynamic"] is not False:
        raise Refused("compile: with dynamic shapes bits depend on which shapes came before: leave `dynamic` out")
    return arguments


#: What PyTorch's norms say of one record.
_OF_ONE = "Expected more than 1 value per channel"

#: Of the microbatch's randomness the part that samples are made with; the rest is the module's.
_SAMPLES = 1


def mix(*numbers: int) -> int:
    """A seed of several numbers, each of which changes all of it (splitmix64, Steele, Lea and Flood 2014)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E37_79B9_7F4A_7C15) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & 0xFFFF_FFFF_FFFF_FFFF
        mixed ^= mixed >> 31
    return mixed


def _seed_all(seed: int) -> None:
    """Seeds the generators that a program may draw from.

    Not by `torch.manual_seed`, which takes a hundred times as long: it formats a stack trace for a device that may come.
    """
    torch.default_generator.manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)
