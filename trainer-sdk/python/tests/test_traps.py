"""What is easily written and would break a promise: it is refused by name, or breaks nothing."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shoal  # noqa: E402
import shoal.torch  # noqa: E402
from shoal import _environment  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.job]

SHAPE: dict[str, Any] = {"microbatch_records": 16, "microbatches_per_step": 4, "seed": 7}
DATA = [torch.full((4,), 1.0 + index / 10) for index in range(128)]


def square(net: nn.Module, batch: Any) -> Any:
    return net(batch).square().mean()


def build(net: Callable[[], nn.Module] = lambda: nn.Linear(4, 1), rate: float = 0.01) -> Any:
    def made() -> Any:
        module = net()
        return module, torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=rate)

    return made


def program(made: Any = None, loss: Any = square, *arguments: Any, **options: Any) -> shoal.torch.Program:
    return shoal.torch.Program(made or build(), loss, *arguments, **{"data": DATA, **options})


def trained(tmp_path: Path, name: str, of: shoal.torch.Program, **options: Any) -> shoal.Result:
    return shoal.run(of, folder=tmp_path / name, **{**SHAPE, **options})


# What is left of gradients.


def test_a_gradient_that_build_or_an_evaluation_leaves_behind_is_in_no_step(tmp_path: Path) -> None:
    def with_gradients() -> Any:
        net, optimizer = build()()
        net(torch.ones(2, 4)).sum().backward()
        return net, optimizer

    def evaluate(net: nn.Module, batch: Any) -> Any:
        with torch.enable_grad():
            net(batch).sum().backward()
        return {"one": torch.ones(len(batch))}

    plain = trained(tmp_path, "plain", program(), epochs=3).sha256
    assert trained(tmp_path, "built", program(with_gradients), epochs=3).sha256 == plain
    judging = program(None, square, evaluate, eval_data=DATA[:32])
    weights = trained(tmp_path, "judged", judging, epochs=3).state_dict()["weight"]
    assert torch.equal(weights, trained(tmp_path, "again", program(), epochs=3).state_dict()["weight"])


class FailsBackward(torch.autograd.Function):  # type: ignore[name-defined, misc]
    """Lets no gradient of a bad record through."""

    @staticmethod
    def forward(context: Any, x: Any, is_bad: bool) -> Any:
        context.is_bad = is_bad
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        if context.is_bad:
            raise ValueError("a bad record")
        return gradient, None


def test_a_record_that_fails_on_its_way_back_leaves_no_gradient(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            return self.second(FailsBackward.apply(self.first(x), bool((x == DATA[37]).all(1).any())))

    class Lacking(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            if index == 37:
                raise ValueError("a bad record")
            return super().__getitem__(index)

    # Alone in its microbatch: nothing is tried between it and the next one, which counts.
    options = {"microbatch_records": 1, "exclude_max": 1}
    backward = trained(tmp_path, "backward", program(build(Two)), **options)
    absent = trained(tmp_path, "absent", program(build(nn_two), data=Lacking(DATA)), **options)
    assert backward.status["records_excluded"] == absent.status["records_excluded"] == 1
    for name, value in absent.state_dict().items():
        assert torch.equal(value, backward.state_dict()[name]), name


def nn_two() -> nn.Module:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x).clone())

    return Two()


# What a step, or an evaluation, must leave as it is.


class Teacher(nn.Module):
    """Has a frozen copy that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 1), nn.Linear(4, 1)
        self.teacher.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.student(x)


def follow(net: Any, batch: Any) -> Any:
    with torch.no_grad():
        for mine, others in zip(net.teacher.parameters(), net.student.parameters(), strict=True):
            mine.mul_(0.9).add_(others, alpha=0.1)
    return square(net, batch)


def clamp(net: Any, batch: Any) -> Any:
    net.student.weight.data.clamp_(-0.05, 0.05)
    return square(net, batch)


def clamp_frozen(net: Any, batch: Any) -> Any:
    net.teacher.weight.data.clamp_(-0.05, 0.05)
    return square(net, batch)


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (follow, r"the step changed frozen parameter 'teacher\.weight'"),
        (clamp, r"the step changed parameter 'student\.weight' in place"),
        (clamp_frozen, r"the step changed frozen parameter 'teacher\.weight' in place"),
    ],
)
def test_parameters_that_a_step_writes_to_are_refused_by_name(tmp_path: Path, loss: Any, told: str) -> None:
    with pytest.raises(shoal.TrainError, match=told):
        trained(tmp_path, "job", program(build(Teacher), loss))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))


def test_an_evaluation_that_trains_a_norm_is_refused(tmp_path: Path) -> None:
    def evaluate(net: nn.Module, batch: Any) -> Any:
        return {"one": (net.train() if len(batch) > 1 else net)(batch)[:, 0]}

    judging = program(build(normed), square, evaluate, eval_data=DATA[:32])
    with pytest.raises(shoal.TrainError, match="norm '1' ran in training mode in an evaluation"):
        trained(tmp_path, "job", judging)


# Norms.


def test_a_norm_that_build_puts_into_evaluation_mode_stays_there_and_is_a_constant(tmp_path: Path) -> None:
    def frozen() -> nn.Module:
        net = normed()
        net[1].eval()  # type: ignore[index]
        net[1].running_mean.fill_(0.25)  # type: ignore[index]
        return net

    result = trained(tmp_path, "job", program(build(frozen)), epochs=3)
    assert "1.running_mean" not in result.tensors()
    with pytest.raises(shoal.TrainError, match="norm '1' ran in evaluation mode: put it into that mode in `build`"):
        trained(tmp_path, "late", program(build(normed), lambda net, batch: square(net[1].eval() and net, batch)))


def test_a_module_that_is_built_once_and_trained_twice_is_as_it_was_between(tmp_path: Path) -> None:
    net = normed()
    first = program(lambda: (net, torch.optim.SGD(net.parameters(), lr=0.01)))
    result = trained(tmp_path, "first", first)
    norm: Any = net[1]  # type: ignore[index]
    assert norm.momentum == 0.1
    assert norm.num_batches_tracked is not None
    for name, value in result.state_dict().items():
        assert torch.equal(value, net.state_dict()[name]), "the module has what the job has ended with"
    net.train()(torch.randn(8, 4)).sum().backward()
    second = program(lambda: (net, torch.optim.SGD(net.parameters(), lr=0.0)))
    before = norm.running_mean.clone()
    moved = trained(tmp_path, "second", second, epochs=1).state_dict()["1.running_mean"]
    at_once = trained(tmp_path, "third", program(lambda: (hasty(net), torch.optim.SGD(net.parameters(), lr=0.0))))
    last = at_once.state_dict()["1.running_mean"]
    # Two steps of a momentum of 0.1, and of 1.
    assert torch.allclose(moved, before + (1 - 0.9**2) * (last - before), rtol=0.05)


def hasty(net: Any) -> Any:
    net[1].momentum = 1.0
    return net


def test_a_microbatch_of_one_record_takes_what_norms_have_learnt(tmp_path: Path) -> None:
    results = [
        trained(tmp_path, str(trainers), program(build(normed), data=DATA[:65]), epochs=2, trainers=trainers)
        for trainers in (1, 2)
    ]
    assert results[0].sha256 == results[1].sha256

    class Lacking(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            if index == 37:
                raise ValueError("a bad record")
            return super().__getitem__(index)

    result = trained(tmp_path, "lacking", program(build(normed), data=Lacking(DATA)), exclude_max=1)
    assert result.status["records_excluded"] == 1


# What is trained, weighed and measured.


def test_a_parameter_of_the_optimizer_that_is_not_the_modules_is_refused(tmp_path: Path) -> None:
    def made() -> Any:
        net, temperature = nn.Linear(4, 1), nn.Parameter(torch.ones(3))
        return net, torch.optim.SGD([*net.parameters(), temperature], lr=0.1)

    with pytest.raises(shoal.TrainError, match=r"the optimizer has a parameter of shape \(3,\) that is not the module's"):
        trained(tmp_path, "job", program(made))


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (lambda net, batch: (square(net, batch), 12.7), r"12\.7 as its weight, which is no whole number"),
        (lambda net, batch: (square(net, batch), torch.ones(2)), r"a weight of shape \(2,\)"),
        (lambda net, batch: (square(net, batch), net(batch), 1), r"no \(sum, weight\)"),
        (lambda net, batch: square(net, batch).item(), "`loss` gave a float"),
        (lambda net, batch: {"loss": square(net, batch)}, "`loss` gave a dict"),
        (lambda net, batch: (net(batch).sum(), -3), "gave -3 as its weight: give a whole number from 0"),
        (lambda net, batch: (net(batch).sum(), 2.0**70), "as its weight: give a whole number from 0 to 2"),
        (lambda net, batch: (net(batch).sum(), float("nan")), "gave nan as its weight"),
        (lambda net, batch: nn.functional.mse_loss(net(batch), batch[:, :1], reduction="sum"), "`loss` gave a sum"),
        (lambda net, batch: torch.distributed.all_reduce(batch), "`loss` calls torch.distributed, and there are no ranks"),
    ],
)
def test_losses_that_cannot_be_weighed_are_refused(tmp_path: Path, loss: Any, told: str) -> None:
    with pytest.raises(shoal.TrainError, match=told):
        trained(tmp_path, "job", program(None, loss))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda z: {"mean": z.mean()}, r"metric 'mean' has shape \(\) for 1 records"),
        (lambda z: {"mean": z}, r"metric 'mean' has shape \(1, 1\) for 1 records"),
        (lambda z: {"mean": None}, "metric 'mean' is a NoneType"),
        (lambda z: z, "`evaluate` gave a Tensor: give a dictionary"),
        (torch.distributed.all_reduce, "`evaluate` calls torch.distributed, and there are no ranks"),
    ],
)
def test_evaluations_of_a_wrong_kind_are_refused_before_the_first_step(tmp_path: Path, given: Any, told: str) -> None:
    judging = program(None, square, lambda net, batch: given(net(batch)), eval_data=DATA[:32])
    with pytest.raises(shoal.TrainError, match=f"cannot begin.*{told}"):
        trained(tmp_path, "job", judging)


def test_metrics_may_be_lists_and_may_be_called_loss(tmp_path: Path) -> None:
    def evaluate(net: nn.Module, batch: Any) -> Any:
        return {"loss": net(batch).square()[:, 0], "positive": (net(batch)[:, 0] > 0).tolist()}

    judging = program(None, square, evaluate, eval_data=DATA[:32], metrics={"loss": shoal.Mean(aim=shoal.Target(keep_best=True))})
    result = trained(tmp_path, "job", judging)
    assert result.metrics["loss"] > 0
    assert 0 <= result.metrics["positive"] <= 1
    nn.Linear(4, 1).load_state_dict(result.state_dict())
    judging.eval_data = None
    trained(tmp_path, "unjudged", judging)
    judging.eval_data = DATA[:32]
    assert judging._stated_metrics["loss"].aim is not None, "what was stated is stated still"
    trained(tmp_path, "judged", judging)
    assert judging.metrics["loss"].aim is not None


def test_decode_batch_makes_what_every_function_gets(tmp_path: Path) -> None:
    def decode(batch: shoal.Batch) -> Any:
        return {"x": torch.stack(batch.samples)}

    def evaluate(net: nn.Module, batch: Any) -> Any:
        return {"value": net(batch["x"])[:, 0]}

    whole = program(None, lambda net, batch: square(net, batch["x"]), evaluate, eval_data=DATA[:32], decode_batch=decode)
    assert trained(tmp_path, "job", whole).metrics["value"] != 0


# Data that each trainer draws otherwise.


def test_data_that_differ_are_another_environment() -> None:
    def told(data: Any) -> dict[str, str]:
        return _environment.digests({"data": data}, lambda seed: None)

    first, second = torch.utils.data.random_split(DATA, [96, 32])
    assert told(DATA) == told(list(DATA))
    assert told(first) != told(second)
    assert told(torch.utils.data.Subset(DATA, first.indices)) == told(first)
    assert told(DATA[:-1]) != told(DATA)
    kinds = [(1, 2.5, "a", b"b", None, {"x": np.ones(3), "y": [True]}, object())]
    assert told(kinds) == told(list(kinds))
    assert told([1, 2, 3]) != told([1, 2, 4])


class Drawn(shoal.torch.Program):
    """Has drawn other data in one of its trainers."""

    def declare(self, job: shoal.Job) -> Any:
        if os.environ.get("SHOAL_TRAINER_NAME") == "trainer-1":
            self.data = DATA[::-1]
        return super().declare(job)


def test_a_trainer_with_other_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Until the other one has joined.
    monkeypatch.setenv("SHOAL_PACE_MILLIS", "20")
    program = Drawn(build(), square, data=DATA)
    with pytest.warns(UserWarning, match="trainer-1 ended with exit code 5"):
        trained(tmp_path, "job", program, trainers=2, epochs=4)
    assert 'data is "' in (tmp_path / "job" / "trainer-1.log").read_text()


class Stream:
    """As an iterable data set of PyTorch: it has no length."""

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError


def test_data_that_have_no_numbers_are_refused_before_a_job_begins(tmp_path: Path) -> None:
    loader = torch.utils.data.DataLoader(DATA, 16)
    for name in ("data", "eval_data"):
        with pytest.raises(TypeError, match=f"{name}= is a DataLoader.*give the data set itself, `{name}=loader.dataset`"):
            trained(tmp_path, "job", program(**{name: loader}))
    with pytest.raises(TypeError, match=r"data= is a Stream.*pack what it yields into RecordIO"):
        trained(tmp_path, "job", program(data=Stream()))


def test_ranks_that_are_left_in_build_are_refused(tmp_path: Path) -> None:
    def parallel() -> Any:
        net, optimizer = build()()
        return nn.parallel.DistributedDataParallel(net), optimizer

    with pytest.raises(shoal.torch.Refused, match=r"`build` calls torch\.distributed, and there are no ranks"):
        trained(tmp_path, "job", program(parallel))


def test_a_module_of_which_nothing_is_trained_is_refused(tmp_path: Path) -> None:
    def frozen() -> Any:
        net, optimizer = build()()
        return net.requires_grad_(False), optimizer

    with pytest.raises(shoal.TrainError, match="no parameter that is trained"):
        trained(tmp_path, "job", program(frozen))


def two(_: Any = None) -> Any:
    return build()()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: two()[0], "`build` gave Linear: give"),
        (lambda: two()[::-1], r"`build` gave \(SGD, Linear\): give"),
        (lambda: (two()[0], (two()[1], two()[1])), r"`build` gave \(Linear, tuple\)"),
        (lambda: (*two(), None, None), r"`build` gave \(Linear, SGD, NoneType, NoneType\)"),
        (lambda: (*two(), torch.optim.lr_scheduler.StepLR(two()[1], 1)), "a scheduler of another optimizer"),
    ],
)
def test_what_build_gives_is_told_by_its_kinds(tmp_path: Path, given: Any, told: str) -> None:
    with pytest.raises(shoal.torch.Refused, match=told):
        trained(tmp_path, "job", program(given))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"loss": None}, "loss=None: give a function"),
        ({"predict": "rows"}, "predict='rows': give a function"),
        ({"schedule": "cosine"}, r"schedule='cosine': give one of Shoal's, such as shoal.cosine\(\)"),
        ({"schedule": shoal.cosine}, "give one of Shoal's"),
        ({"metrics": ["one"]}, "give a dictionary"),
        ({"metrics": {"one": shoal.Accuracy}}, r"metrics: 'one' is <.*>: give shoal.Accuracy\(\)"),
        ({"autocast": "bfloat16"}, "autocast='bfloat16': give torch.bfloat16"),
        ({"compile": "reduce-overhead"}, "compile='reduce-overhead': give True, or"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused_where_they_are_given(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(shoal.torch.Refused, match=told):
        shoal.torch.Program(**{"build": build(), "loss": square, "data": DATA, **arguments})


def test_a_metric_that_evaluate_does_not_give_is_refused(tmp_path: Path) -> None:
    aim = shoal.Target(keep_best=True)
    judging = program(
        None, square, lambda net, batch: {"one": net(batch)[:, 0]}, eval_data=DATA, metrics={"oen": shoal.Mean(aim=aim)}
    )
    with pytest.raises(shoal.TrainError, match="`metrics=` names 'oen', and `evaluate` gives 'one'"):
        trained(tmp_path, "job", judging)


def test_hooks_of_steps_that_are_never_made_are_refused(tmp_path: Path) -> None:
    def hooked() -> Any:
        net, optimizer = two()
        optimizer.register_step_post_hook(lambda *_: None)
        return net, optimizer

    with pytest.raises(shoal.TrainError, match="the optimizer has hooks for its steps"):
        trained(tmp_path, "job", program(hooked))


def test_what_is_tied_by_its_memory_alone_is_refused_and_parts_of_one_memory_are_not(tmp_path: Path) -> None:
    def tied() -> Any:
        one, other = nn.Linear(4, 4), nn.Linear(4, 4)
        other.weight.data = one.weight.data.t()
        net = nn.Sequential(one, other)
        return net, torch.optim.SGD(net.parameters(), lr=0.01)

    with pytest.raises(shoal.torch.Refused, match=r"'0\.weight' and '1\.weight' share memory"):
        trained(tmp_path, "tied", program(tied))

    def flat() -> Any:
        net, optimizer = two()
        torch.nn.utils.vector_to_parameters(torch.nn.utils.parameters_to_vector(net.parameters()).detach(), net.parameters())
        return net, optimizer

    assert trained(tmp_path, "flat", program(flat)).sha256 == trained(tmp_path, "apart", program()).sha256


def test_predictions_are_one_for_each_record_and_of_numbers_that_numpy_knows(tmp_path: Path) -> None:
    def predicted(name: str, **options: Any) -> Any:
        told = tmp_path / f"{name}-told"
        trained(tmp_path, name, program(**options), epochs=0, warm_start=model, predict=told)
        return list(shoal.predictions(told))

    model = trained(tmp_path, "trained", program()).model
    narrow = predicted("narrow", autocast=torch.bfloat16, predict=lambda net, batch: net(batch))
    assert len(narrow) == len(DATA)
    assert narrow[0].dtype == np.float32
    with pytest.raises(shoal.TrainError, match="`predict` gave a tuple"):
        predicted("tuple", predict=lambda net, batch: (net(batch), batch))


# The module.


class Normed(nn.Module):
    """With a norm that stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = normed().eval(), nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).expand(-1, 4))


def ones(net: nn.Module, batch: Any) -> Any:
    return {"one": net(batch)[:, 0]}


def test_a_norm_that_is_frozen_stays_so_through_evaluations_and_in_the_model(tmp_path: Path) -> None:
    def unruly(net: nn.Module, batch: Any) -> Any:
        given = ones(net, batch)
        net.train()
        return given

    judged = trained(tmp_path, "judged", program(build(Normed), square, ones, eval_data=DATA[:32]), epochs=3)
    trained_anew = trained(tmp_path, "unruly", program(build(Normed), square, unruly, eval_data=DATA[:32]), epochs=3)
    assert judged.sha256 == trained_anew.sha256
    assert not any("running" in name for name in judged.state_dict())
    net = Normed().eval()
    shoal.torch.load(net, judged.model)
    assert torch.equal(net.head.weight, judged.state_dict()["head.weight"])


def test_the_mode_of_a_module_is_as_it_was_after_loading_saving_and_training(tmp_path: Path) -> None:
    net = Normed()
    before = [module.training for module in net.modules()]
    result = trained(tmp_path, "job", program(lambda: (net, torch.optim.SGD(net.parameters(), lr=0.01))))
    assert [module.training for module in net.modules()] == before
    net.eval()
    shoal.torch.load(net, result.model)
    shoal.torch.save(net, tmp_path / "saved.safetensors")
    assert not any(module.training for module in net.modules())


# The process.


def test_a_run_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(11)
    np.random.seed(11)
    random.seed(11)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        drawn = torch.default_generator.get_state().clone(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
        with torch.inference_mode():
            trained(tmp_path, "job", program())
        now = torch.default_generator.get_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
        assert torch.equal(now[0], drawn[0])
        assert now[1:] == drawn[1:]
        assert torch.get_num_threads() == 2
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_num_threads(before)


def test_a_second_training_in_another_thread_is_refused_while_the_first_lasts(tmp_path: Path) -> None:
    said: list[BaseException] = []

    def second() -> None:
        try:
            trained(tmp_path, "second", program())
        except RuntimeError as error:
            said.append(error)

    def loss(net: nn.Module, batch: Any) -> Any:
        if not said:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
        return square(net, batch)

    alone = trained(tmp_path, "alone", program()).sha256
    assert trained(tmp_path, "first", program(None, loss)).sha256 == alone
    assert "this process trains already, in another thread" in str(said[0])
