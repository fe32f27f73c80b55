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

from .. import _declare, _environment, _faults, _safetensors
from .. import _program as base
from .._batch import Batch, DataSet, Gradient, Metrics, Parameters
from .._declare import Declared, Metric, Rule, Schedule
from ._bits import SAMPLES, compilation, mix, seed_all, settings
from ._files import fill
from ._given import (
    Loss,
    built_of,
    check_functions,
    check_kinds,
    judgements_of,
    predictions_of,
    total_of,
    without_ranks,
)
from ._module import Module
from ._optimizers import Refused, check_optimizer, rule_of, schedules_of
from ._trial import RECORDS, digest_of, drawn, spread, trial

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
        check_functions({"build": build, "loss": loss, "collate": collate})
        optional = {"evaluate": evaluate, "predict": predict, "decode": decode, "decode_batch": decode_batch}
        check_functions({name: function for name, function in optional.items() if function is not None})
        check_kinds(schedule, metrics or {}, autocast)
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
        self._compile = compilation(compile)
        self._threads = threads
        self.block_elements = block_elements
        self._module: Module | None = None
        self._counts_by_step = False
        self._counts_loss = False
        self._tried = "none"

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
        seed_all(seed)
        with without_ranks("build"):
            net, optimizer, scheduler = built_of(self._build())
        return Module(net, counts), optimizer, scheduler

    def initial(self, seed: int) -> dict[str, Array]:
        """The module's own values."""
        module = self._make(seed, counts=False)[0]
        initial = module.initial()
        module.give_modes_back()
        return initial

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
        self._tried = self._try_twice(job)
        if self._compile is not None:
            self._warm_up(job)
        return declared

    def _try_twice(self, job: _core.Job) -> str:
        """Computes a microbatch twice, as two trainers would, for nothing but its hash.

        Raises:
            Refused: They differ, or the program gives what cannot be.

        """
        # In asynchronous jobs nobody is promised the same bits.
        if self.data is None or not job.trains or job.mode == "async":
            return "none"
        module = self._built
        indices = spread(len(self.data), min(RECORDS, job.microbatch_records))
        values = [(parameter, parameter.data) for parameter in module.trained.values()]
        try:
            batches = [trial(indices, self.data) for _ in range(2)]
            made = [self._inputs(batch) for batch in batches]
            inputs, others = map(_environment.words_of, made)
            for number, (parameter, _) in enumerate(values):
                parameter.data = drawn(parameter, number)
            gradients, again = (self._tried_once(*each) for each in zip(made, batches, strict=True))
        except Refused:
            raise
        except Exception as error:
            if _OF_ONE in str(error):
                # Its step takes what the norms have learnt, of which there is nothing yet.
                return "none"
            if _faults.told(error)[0] != "records":
                raise
            # It is told of in its step, with the records that are to blame.
            return "none"
        finally:
            for parameter, own in values:
                parameter.data = own
                parameter.grad = None
        if inputs != others:
            raise Refused(f"the data set, or `collate`, {_environment.CHANGES}")
        if gradients != again:
            raise Refused(
                "the same microbatch has another gradient when it is computed again, as other trainers may: `loss` or the module "
                "keeps something from call to call (a counter, a hidden state, a generator of its own), which is lost with its "
                "trainer"
            )
        return gradients

    def _tried_once(self, inputs: Any, batch: Batch) -> str:
        """The hash of what a microbatch gives."""
        module = self._built
        module.begin_step()
        total, _ = self._forward(inputs, batch)
        if any(parameter.grad is not None for parameter in module.trained.values()):
            raise Refused("`loss` has called backward(): give the loss alone, Shoal goes back from there")
        torch.autograd.backward(total)
        module.end_step()
        return digest_of(total, module)

    def _warm_up(self, job: _core.Job) -> None:
        """Compiles before the trainer joins: a task that it had in hand would wait for a minute."""
        module = self._built
        records = 0 if self.data is None else min(job.microbatch_records, len(self.data))
        batch = None if self.data is None else self._inputs(trial(range(records), self.data))
        module.stop_counting()
        module.callable = torch.compile(module.net, **(self._compile or {}))  # type: ignore[assignment]
        if batch is not None:
            with torch.enable_grad(), self._precision():
                total, _ = total_of(self._loss(module.callable, batch), records)
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
            "torch.settings": settings(),
            "constants": self._built.constants_hash(),
            "gradient of some records": self._tried,
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
        inputs = self._inputs(trial([0], self.eval_data))
        module.begin_judging()
        with without_ranks("evaluate"), torch.no_grad(), self._precision():
            given = judgements_of(self._judge(module.net, inputs), 1)
        if lacking := [name for name in self._stated_metrics if name not in given]:
            raise Refused(f"`metrics=` names {lacking[0]!r}, and `evaluate` gives {', '.join(map(repr, given)) or 'nothing'}")
        for name, values in given.items():
            self.metrics.setdefault(name, _declare.Accuracy() if values.dtype == torch.bool else _declare.Mean())

    def _inputs(self, batch: Batch) -> Any:
        """What the program's functions are given of a batch. Its randomness is the microbatch's: the same whoever makes it."""
        seed_all(mix(batch.seed, SAMPLES))
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
        seed_all(batch.seed)
        # Whoever calls `shoal.run` may have switched gradients off.
        with torch.enable_grad(), self._precision():
            with without_ranks("loss"):
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
        return predictions_of(self._judged(batch, parameters, self._say), len(batch))

    def _judged(self, batch: Batch, parameters: Parameters, function: Callable[[nn.Module, Any], Any]) -> Any:
        module = self._built
        inputs = self._inputs(batch)
        module.load(parameters)
        module.load_statistics(parameters)
        module.begin_judging()
        seed_all(batch.seed)
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
            # Whoever calls `shoal.run` may be within it, where nothing can be trained.
            with torch.inference_mode(mode=False):
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
        seed_all(seed)

    def _take(self, model: str | os.PathLike[str]) -> None:
        fill(self._built.tensors(), _safetensors.load(model), model)


#: What PyTorch's norms say of one record.
_OF_ONE = "Expected more than 1 value per channel"
