"""Whole jobs from this thread: one hash for any number of trainers, and what programs are given is theirs to keep."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import _command, _run, _safetensors

from . import scripts
from .programs import counting
from .programs.perceptron import RECORDS, Counted, Points, point

pytestmark = pytest.mark.job

SHAPE: dict[str, Any] = {"microbatch_records": 16, "microbatches_per_step": 4, "seed": 7}


def counts_are_exact(result: shoal.Result, epochs: int) -> bool:
    expected = sum(4**epoch for epoch in range(epochs))
    return all((result.tensors()[name] == expected).all() for name in counting.NAMES)


def test_trainers_1_and_3_give_one_hash_and_every_record_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_PACE_MILLIS", "5")
    results = [shoal.run(Counted(), trainers=trainers, epochs=3, folder=tmp_path / str(trainers), **SHAPE) for trainers in (1, 3)]
    assert results[0].sha256 == results[1].sha256
    for trainers, result in zip((1, 3), results, strict=True):
        assert counts_are_exact(result, 3)
        assert result.steps == 3 * -(-RECORDS // 64)
        assert len(result.evaluations) == 3
        assert result.metrics["accuracy"] > 0.7
        assert result.metrics["auc"] > 0.7
        assert sum(trainer["microbatches"] > 0 for trainer in result.status["trainers"]) == trainers
        assert result.metrics == result.evaluations[-1]["metrics"]


def test_an_asynchronous_job_counts_every_record_once(tmp_path: Path) -> None:
    result = shoal.run(Counted(), trainers=2, epochs=2, folder=tmp_path, mode="async", **SHAPE)
    assert counts_are_exact(result, 2)


class AtOnce(Points):
    """Gives its points by one call for each microbatch."""

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("asked for one")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [point(index) for index in indices[: self.gives]]

    gives: int | None = None


def test_a_data_set_that_gives_many_samples_by_one_call_is_asked_for_many(tmp_path: Path) -> None:
    program, data = Counted(), AtOnce(RECORDS)
    program.data, program.eval_data = data, AtOnce(200)
    one_by_one = shoal.run(Counted(), folder=tmp_path / "one", **SHAPE)
    many = shoal.run(program, folder=tmp_path / "many", **SHAPE)
    assert many.sha256 == one_by_one.sha256
    assert many.evaluations
    assert (many.status["records_computed"], many.status["records_wasted"]) == (RECORDS, 0), "what is evaluated is not in vain"
    data.gives = 3
    with pytest.raises(shoal.TrainError, match=r"AtOnce.__getitems__ gives 3 samples for 16 indexes"):
        shoal.run(program, folder=tmp_path / "few", **SHAPE)


def test_how_far_a_job_is_can_be_told_with_a_metric_that_is_no_number() -> None:
    evaluations = [{"metrics": {"loss": None, "accuracy": 0.5}}]
    status = {"epoch": 1, "epochs": 2, "step": 3, "steps": 4, "evaluations": evaluations}
    assert _run._how_far(status) == "epoch 1/2  step 3/4  loss nan  accuracy 0.5000"


def test_numbers_of_processes_are_whole_and_one_at_least(tmp_path: Path) -> None:
    for number in (0, -1, "2"):
        with pytest.raises(ValueError, match=f"trainers={number!r}: give a whole number, 1 at least"):
            shoal.run(Counted(), trainers=number, folder=tmp_path, **SHAPE)  # type: ignore[arg-type]
    with pytest.raises(shoal.CommandError, match="invalid value '-1' for '--seed"):
        shoal.run(Counted(), folder=tmp_path, **{**SHAPE, "seed": -1})


class Drawn(Points):
    """Draws its samples."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x + np.float32(np.random.normal()), y


def test_a_data_set_that_gives_another_sample_each_time_is_refused_before_the_job_begins(tmp_path: Path) -> None:
    program = Counted()
    program.data = Drawn(RECORDS)
    with pytest.raises(shoal.TrainError, match=r"data\[0\] gives another sample when it is asked again"):
        shoal.run(program, folder=tmp_path, **SHAPE)


class Keeping(Counted):
    """Keeps all that it is given, and copies of it."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, Any]] = []
        self.versions: list[int] = []

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        super().step(batch, parameters, gradient)
        self.versions.append(parameters.version)
        lent = [parameters["hidden"], gradient["hidden"], *batch.records[:2]]
        self.kept += [(each, np.array(each)) for each in lent]


def test_what_is_kept_has_its_values_for_ever_and_changes_no_bit(tmp_path: Path) -> None:
    program = Keeping()
    kept = shoal.run(program, epochs=12, folder=tmp_path / "kept", **SHAPE)
    plain = shoal.run(Counted(), epochs=12, folder=tmp_path / "plain", **SHAPE)
    assert kept.sha256 == plain.sha256
    assert len(set(program.versions)) >= 100
    for lent, copied in program.kept:
        assert np.array_equal(np.asarray(lent), copied)


class Writing(Counted):
    """Keeps the array of a gradient and writes to it after its step."""

    gradient: Any = None

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        if self.gradient is not None:
            self.gradient[:] = np.nan
        super().step(batch, parameters, gradient)
        self.gradient = gradient["hidden"]


def test_who_writes_to_a_gradient_after_its_step_changes_nothing(tmp_path: Path) -> None:
    written = shoal.run(Writing(), epochs=2, folder=tmp_path / "written", **SHAPE)
    assert written.sha256 == shoal.run(Counted(), epochs=2, folder=tmp_path / "plain", **SHAPE).sha256


class Changing(Counted):
    """Writes to a parameter."""

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        parameters["hidden"][0, 0] = 1.0


def test_parameters_cannot_be_written_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(shoal.TrainError, match="read-only"):
        shoal.run(Changing(), folder=tmp_path, **SHAPE)


def test_alignment_is_64_bytes(tmp_path: Path) -> None:
    program = Keeping()
    shoal.run(program, folder=tmp_path, **SHAPE)
    lent = [each for each, _ in program.kept if isinstance(each, np.ndarray)]
    assert lent
    assert all(each.ctypes.data % 64 == 0 for each in lent)


class Bytes(shoal.Program):
    """Reads records of RecordIO files: their bytes."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes, int]] = []

    def declare(self, job: shoal.Job) -> Sequence[Any]:
        return [shoal.Parameter("sum", (), shoal.SGD(0.0)), shoal.Counter("bytes")]

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        rows = batch.array("<u8")
        assert rows.shape == (len(batch), 1)
        gradient["bytes"] += rows.nbytes
        self.seen += zip(batch.indices, map(bytes, batch.records), rows[:, 0].tolist(), strict=True)


def test_records_are_views_of_their_bytes_and_stack_to_rows(tmp_path: Path) -> None:
    program = Bytes()
    result = shoal.run(program, data="records:100", folder=tmp_path, **SHAPE)
    assert sorted(program.seen) == [(index, index.to_bytes(8, "little"), index) for index in range(100)]
    assert result.tensors()["bytes"] == 800


def test_settings_reach_the_program(tmp_path: Path) -> None:
    jobs: list[shoal.Job] = []

    class Asking(Counted):
        def declare(self, job: shoal.Job) -> Sequence[Any]:
            jobs.append(job)
            return super().declare(job)

    shoal.run(Asking(), epochs=2, folder=tmp_path, gradients="bf16", delay=1, **SHAPE)
    job = jobs[0]
    assert (job.records, job.epochs, job.seed, job.mode, job.delay, job.gradients) == (RECORDS, 2, 7, "sync", 1, "bf16")
    assert (job.microbatch_records, job.microbatches_per_step, job.global_batch) == (16, 4, 64)
    assert (job.evaluations, job.is_warm_started) == (2, False)


class Warm(Counted):
    """With initial values of its own."""

    def initial(self, seed: int) -> dict[str, Any]:
        return {"hidden": np.full((3, 16), seed, np.float32)}

    def declare(self, job: shoal.Job) -> Sequence[Any]:
        assert job.is_warm_started
        return [shoal.Parameter("hidden", (3, 16), shoal.SGD(0.0)), *super().declare(job)[1:]]


def test_initial_values_are_the_programs_own(tmp_path: Path) -> None:
    result = shoal.run(Warm(), folder=tmp_path, **SHAPE)
    assert (result.tensors()["hidden"] == 7).all()


@pytest.mark.parametrize(
    ("raised", "told"),
    [(ValueError("label of record 3 is torn"), "label of record 3 is torn"), (NameError("lables"), "lables")],
)
def test_an_exception_names_its_place_and_fails_the_job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], raised: Exception, told: str
) -> None:
    class Failing(Counted):
        calls = 0

        def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
            Failing.calls += 1
            raise type(raised)(*raised.args)

    with pytest.raises(shoal.TrainError, match=f"{told}.*test_jobs.py:[0-9]+ in step") as caught:
        shoal.run(Failing(), folder=tmp_path, **SHAPE)
    attempts = re.search(r"\(([0-9]+) attempts", str(caught.value))
    assert attempts
    # What fails on all records in the same words is not tried on each.
    assert 3 * int(attempts[1]) <= Failing.calls <= 9 * int(attempts[1])
    assert capfd.readouterr().err.count("Traceback") == 1


def test_a_record_that_fails_is_named_and_left_out_where_that_is_allowed(tmp_path: Path) -> None:
    class Picky(Counted):
        def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
            if 77 in batch.indices:
                raise ValueError("record 77 is torn")
            super().step(batch, parameters, gradient)

    with pytest.raises(shoal.TrainError, match="record 77 is torn"):
        shoal.run(Picky(), folder=tmp_path / "all", **SHAPE)
    result = shoal.run(Picky(), trainers=3, folder=tmp_path / "one", exclude_max=1, **SHAPE)
    assert result.status["records_excluded"] == 1


@pytest.mark.parametrize("function", ["declare", "step", "evaluate"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_who_asks_to_stop_is_heard_wherever_it_is_raised(tmp_path: Path, function: str, raised: Any) -> None:
    class Stopping(Counted):
        pass

    def stop(*_: Any) -> None:
        raise raised

    setattr(Stopping, function, stop)
    with pytest.raises(raised):
        shoal.run(Stopping(), folder=tmp_path, **SHAPE)


def test_what_cannot_be_declared_ends_at_once_with_its_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Undeclared(Counted):
        def declare(self, job: shoal.Job) -> Sequence[Any]:
            return [shoal.Parameter("w", (2,), shoal.Adam(float("nan")))]

    with pytest.raises(shoal.TrainError, match="parameter 'w': nan is declared") as caught:
        shoal.run(Undeclared(), folder=tmp_path / "a", **SHAPE)
    assert caught.value.exit_code == 2
    Undeclared.declare = lambda self, job: ["w"]  # type: ignore[method-assign]
    with pytest.raises(shoal.TrainError, match=r"declare gave 'w': give shoal\.Parameter"):
        shoal.run(Undeclared(), folder=tmp_path / "b", **SHAPE)


def test_what_the_master_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(shoal.CommandError, match="records:0"):
        shoal.run(Counted(), data="records:0", folder=tmp_path, **SHAPE)


def test_predictions_are_one_output_for_each_record(tmp_path: Path) -> None:
    trained = shoal.run(Counted(), folder=tmp_path / "trained", **SHAPE)
    program = Counted()
    program.data = Points(50)
    program.eval_data = Points(50)
    result = shoal.run(
        program,
        folder=tmp_path / "predicted",
        predict=tmp_path / "outputs",
        warm_start=trained.model,
        epochs=0,
        eval_data=None,
        seed=7,
        microbatch_records=16,
    )
    assert result.status["phase"] == "done"
    assert result.status["records_wasted"] == 0
    assert list((tmp_path / "outputs").iterdir())


def test_what_is_predicted_are_the_programs_data(tmp_path: Path) -> None:
    trained = shoal.run(Counted(), folder=tmp_path / "trained", **SHAPE)

    class Numbers(Counted):
        data = Points(50)
        eval_data = Points(20)

        def predict(self, batch: shoal.Batch, parameters: shoal.Parameters) -> Sequence[str]:
            return [f"{x[0]:.6f}" for x, _ in batch.samples]

    options: dict[str, Any] = {"warm_start": trained.model, "epochs": 0, "eval_data": None, "seed": 7, "microbatch_records": 16}
    shoal.run(Numbers(), folder=tmp_path / "job", predict=tmp_path / "told", **options)
    assert list(shoal.predictions(tmp_path / "told")) == [f"{point(index)[0][0]:.6f}".encode() for index in range(50)]
    with pytest.raises(FileNotFoundError, match="no prediction"):
        list(shoal.predictions(tmp_path))
    part = next((tmp_path / "told").glob("part-*"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{part.name}: no part of a prediction, or a damaged one"):
        list(shoal.predictions(tmp_path / "told"))


def test_files_beside_a_data_set_of_the_program_are_refused(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a line\n" * 100)
    records = str(tmp_path / "lines.recordio")
    subprocess.run(
        [_command.shoal(), "recordio", "pack", "lines", str(lines), "--output", records], capture_output=True, check=True
    )
    with pytest.raises(shoal.TrainError, match="which counts"):
        shoal.run(Counted(), data=records, folder=tmp_path / "job", **SHAPE)


class Vanishing(Counted):
    """Cannot be read where it is sent."""

    def __reduce__(self) -> Any:
        return exit, (3,)


def test_a_further_trainer_that_fails_is_told_of(tmp_path: Path) -> None:
    class Patient(Vanishing):
        def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
            time.sleep(0.1)
            super().step(batch, parameters, gradient)

    with pytest.warns(UserWarning, match="trainer-1 ended with exit code 3"):
        shoal.run(Patient(), trainers=2, folder=tmp_path, **SHAPE)


def test_a_script_that_is_asked_says_what_its_job_begins_with(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, shoal\n"
        "class Given(shoal.Program):\n"
        "    data = range(7)\n"
        "    eval_data = range(3)\n"
        "    def initial(self, seed):\n"
        "        return {'w': np.full(2, seed, np.float32)}\n"
        "shoal.main(Given(), trainers=2, epochs=3, progress=True)\n"
    )
    scripts.start(script, folder=tmp_path, SHOAL_DESCRIBE=str(tmp_path / "said"), SHOAL_SEED="5")
    assert json.loads((tmp_path / "said" / "program.json").read_text()) == {
        "version": 1,
        "records": 7,
        "eval_records": 3,
        "asks": {"trainers": "2", "epochs": "3", "progress": True},
    }
    assert _safetensors.load(tmp_path / "said" / "initial.safetensors")["w"].tolist() == [5, 5]
