"""The life of a trainer's process under `shoal run`: signals, exits, want of memory, crashes, forks, wrappers."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing.process
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import shoal

from . import local_run as runs
from .local_run import PROGRAMS, SHAPE, LocalRun, local_run, until
from .programs.perceptron import RECORDS, Counted

pytestmark = pytest.mark.job

LIVES = PROGRAMS / "lives.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the job comes to where nothing happens."""
    return shoal.run(Counted(), folder=tmp_path_factory.mktemp("undisturbed"), epochs=2, **SHAPE).sha256


@contextlib.contextmanager
def life(tmp_path: Path, *deeds: str, where: str = "step", at: int = 3, once: bool = True, **options: Any) -> Iterator[LocalRun]:
    """A run whose program does these deeds, each once."""
    program = [str(LIVES), *deeds, "--in", where, "--at", str(at)]
    if once:
        program += ["--once", str(tmp_path / "once")]
    with local_run(tmp_path / "run", program, **options) as run:
        yield run


def is_right(report: dict[str, Any], undisturbed: str) -> bool:
    """The undisturbed job's bits, and every record counted once in each epoch."""
    counts = report["records_counted"], report["records_wrong"], report["records_lost"]
    return report["parameters_sha256"] == undisturbed and counts == (2 * RECORDS, 0, 0)


def test_who_holds_the_gil_for_longer_than_a_lease_loses_nothing_and_computes_nothing_twice(
    tmp_path: Path, undisturbed: str
) -> None:
    with life(tmp_path, "hold_the_gil", trainers=1, lease_ttl_millis=1000) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    # A lease that has seen no progress may run out: the trainer is given it again, and has computed it.
    assert report["records_computed"] == 2 * RECORDS
    assert run.logs().count("joined incarnation") == 1


def test_the_trainers_log_goes_to_pythons_where_it_is_asked_to(tmp_path: Path, undisturbed: str) -> None:
    # Nobody takes lines while the GIL is held, and nobody waits for them to be taken.
    program = [str(LIVES), "hold_the_gil", "--in", "step", "--at", "3", "--once", str(tmp_path / "once"), "--logging"]
    with local_run(tmp_path / "run", program, trainers=1, lease_ttl_millis=1000) as run:
        assert is_right(run.report(), undisturbed)
    logged = [line for line in run.logs().splitlines() if "joined" in line]
    assert len(logged) == 1, run.logs()
    assert logged[0].startswith("python's shoal INFO joined incarnation=")


def test_sigterm_in_a_long_step_gives_the_tasks_to_another_at_once(tmp_path: Path, undisturbed: str) -> None:
    with life(tmp_path, "sleep_in_python", trainers=2, lease_ttl_millis=60_000) as run:
        pid = int(run.said(r"sleep_in_python (\d+)")[1])
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        status = run.until(lambda: is_handed_on(run.status()), "tasks handed on")
        assert time.monotonic() - began < 0.5
        assert status["tasks_expired"] == 0
        assert runs.is_alive(pid), "its step goes on"
        report = run.report()
    assert is_right(report, undisturbed)
    assert {"process": pid, "end": "ended"}.items() <= run.journal("ended")[-1].items(), "with exit code 0"
    assert "Traceback" not in run.logs()


def is_handed_on(status: dict[str, Any]) -> dict[str, Any] | None:
    is_so = any(trainer["state"] == "left" for trainer in status["trainers"]) and status["tasks_leased_again"] > 0
    return status if is_so else None


@pytest.mark.parametrize("times", [1, 2])
def test_sigint_is_heard_in_python_and_a_second_one_ends_what_computes_in_c(tmp_path: Path, undisturbed: str, times: int) -> None:
    with life(tmp_path, "compute_in_c" if times == 2 else "sleep_in_python", trainers=2) as run:
        pid = int(run.said(r"_in_\w+ (\d+)")[1])
        began = time.monotonic()
        os.kill(pid, signal.SIGINT)
        if times == 2:
            run.until(lambda: any(trainer["state"] == "left" for trainer in run.status()["trainers"]), "it leaves")
            assert runs.is_alive(pid), "nothing ends a function in C the first time"
            os.kill(pid, signal.SIGINT)
        until(lambda: not runs.is_alive(pid), "its end")
        assert time.monotonic() - began < 2.0
        report = run.report()
    assert is_right(report, undisturbed)
    assert ("KeyboardInterrupt" in run.logs()) == (times == 1)
    assert run.logs().count("Traceback") == int(times == 1)


def test_an_interrupted_trainer_ends_by_sigint_as_shells_know_it(tmp_path: Path) -> None:
    with life(tmp_path, "nothing", trainers=1, epochs=1000) as run:
        run.said("nothing")
        program = [sys.executable, str(LIVES), "sleep_in_python"]
        master = (run.folder / "master.address").read_text().strip()
        variables = {"SHOAL_MASTER": master, "SHOAL_TRAINER_NAME": "another", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        env = runs.environment(**variables)
        with subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline().startswith("sleep_in_python")
            trainer.send_signal(signal.SIGINT)
            _, err = trainer.communicate(timeout=runs.PATIENCE)
    assert trainer.returncode == -signal.SIGINT, "130, as shells say"
    assert err.count("Traceback") == 1
    assert err.endswith("KeyboardInterrupt\n")


def test_a_program_that_exits_in_a_function_says_so_and_another_goes_on(tmp_path: Path, undisturbed: str) -> None:
    with life(tmp_path, "exit", "exit_well", trainers=2, pace_millis=20) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    for code in (3, 0):
        assert f"error: the program ends itself before the job is done: SystemExit: {code} (" in run.logs()
    for fault in run.journal("fault"):
        assert re.match(rf"{fault['name']} ended with exit code [13]\b", fault["what"]), fault


def test_a_program_that_exits_well_in_every_trainer_fails_its_job(tmp_path: Path) -> None:
    with life(tmp_path, "exit_well", once=False, trainers=1) as run:
        assert run.ended() == 1
    assert "SystemExit: 0 (" in run.stderr.splitlines()[-1]
    assert "lives.py" in run.stderr.splitlines()[-1]


def test_a_handler_of_the_authors_that_exits_upon_sigterm_is_no_fault(tmp_path: Path) -> None:
    with life(tmp_path, "exit_upon_sigterm", trainers=1) as run:
        os.kill(int(run.said(r"exit_upon_sigterm (\d+)")[1]), signal.SIGTERM)
        run.report()
    assert run.journal("ended")[0]["end"] == "ended", "with exit code 0"
    assert "ends itself" not in run.logs()


# Five of one record would name it.
@pytest.mark.parametrize(
    "wants", [("want_memory", "want_memory_in_python"), ("want_files", "want_disk", "write_too_much")], ids=["memory", "files"]
)
def test_want_of_memory_files_or_disk_ends_a_trainer_and_blames_no_record(
    tmp_path: Path, undisturbed: str, wants: tuple[str, ...]
) -> None:
    with life(tmp_path, *wants, trainers=3, pace_millis=20) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    logs = run.logs()
    assert logs.count(": this trainer ends, and others compute the microbatch") == len(wants)
    assert logs.count("this cannot be done here") == 0
    assert {entry["what"].split(" ", 1)[1] for entry in run.journal("fault")} == {"ended with exit code 1"}


@pytest.mark.torch
def test_want_of_memory_in_torch_is_no_record_s_fault(tmp_path: Path, undisturbed: str) -> None:
    with life(tmp_path, "want_memory_in_torch", trainers=2, lease_ttl_millis=60_000) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    assert "can't allocate memory" in run.logs()
    assert run.logs().count(": this trainer ends, and others compute the microbatch") == 1


def test_crashes_and_aborts_are_told_by_their_signals_and_cost_a_trainer(tmp_path: Path, undisturbed: str) -> None:
    with life(tmp_path, "abort", "crash", trainers=2, pace_millis=20) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    faults = " ".join(entry["what"] for entry in run.journal("fault"))
    assert "signal 6 (SIGABRT): it aborted" in faults
    assert "signal 11 (SIGSEGV): it crashed" in faults


def test_what_a_step_forks_off_ends_as_a_process_of_its_own(tmp_path: Path, undisturbed: str) -> None:
    deeds = ["fork_and_return", "fork_and_exit", "fork_and_raise", "await_children", "end_a_worker"]
    with life(tmp_path, *deeds, trainers=1) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    logs = run.logs()
    assert logs.count("ValueError: of a child") == 1
    assert "Warning" not in logs
    assert "this cannot be done here" not in logs
    assert len(run.journal("ended")) == 1


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.parametrize("deed", ["multiprocess", "load_fork", "load_forkserver", "load_spawn"])
def test_workers_by_any_method_start_and_end_within_a_step(tmp_path: Path, undisturbed: str, deed: str) -> None:
    with life(tmp_path, deed, trainers=1, lease_ttl_millis=60_000) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    assert "Traceback" not in run.logs()
    assert "Warning" not in run.logs()
    assert [entry["end"] for entry in run.journal("ended")] == ["ended"]


def test_exceptions_that_are_no_exception_are_complaints_too(tmp_path: Path, undisturbed: str) -> None:
    with life(tmp_path, "raise_base_exception", trainers=2) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    assert run.logs().count("Panic: of another library") >= 1
    assert run.logs().count("Traceback") == 1


def test_nothing_is_left_of_a_run_that_is_killed(tmp_path: Path) -> None:
    with life(tmp_path, "sleep_in_python", trainers=2, once=False) as run:
        run.until(lambda: run.logs().count("sleep_in_python") >= 2, "both compute")
        processes = run.processes()
        assert len(processes) == 4
        began = time.monotonic()
        run.process.kill()
        until(lambda: not any(map(runs.is_alive, processes)), "their end")
        assert time.monotonic() - began < 2.5


FORKING = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)"


@pytest.mark.parametrize(
    "wrapper",
    [["bash", "-c", '"$0" "$@"; exit $?', sys.executable], [sys.executable, "-c", FORKING]],
    ids=["bash", "python"],
)
def test_a_trainer_behind_a_wrapper_is_one_as_others(tmp_path: Path, undisturbed: str, wrapper: list[str]) -> None:
    with local_run(tmp_path / "run", [*wrapper, str(LIVES), "nothing"], trainers=2) as run:
        report = run.report()
    assert is_right(report, undisturbed)
    assert len(run.journal("ended")) == 2
    assert run.journal("fault") == []


SCRIPT = """
    import logging, os, sys
    import shoal
    from tests.programs.perceptron import Perceptron

    class Telling(Perceptron):
        def step(self, batch, parameters, gradient):
            print("printed in", os.getcwd(), "by", __name__, sys.argv[1:], repr(sys.stdin.read()), "here", end="")
            logging.info("logged")
            super().step(batch, parameters, gradient)
            os.kill(os.getpid(), 9)

    if __name__ == "__main__":
        logging.basicConfig(level=logging.INFO)
        shoal.main(Telling(), data="records:600", folder=os.environ["FOLDER"])
"""


@pytest.mark.parametrize("words", [["train it.py"], ["-m", "package.train"], ["-X", "dev", "-u", "train it.py"]])
def test_a_script_runs_where_and_as_it_was_started_and_its_prints_are_not_lost(tmp_path: Path, words: list[str]) -> None:
    place = tmp_path / "a place with spaces"
    (place / "package").mkdir(parents=True)
    for file in (place / "train it.py", place / "package" / "train.py"):
        file.write_text(textwrap.dedent(SCRIPT))
    env = runs.environment(FOLDER=str(tmp_path / "run"))
    env.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, *words, "--rate", "a b"]
    with subprocess.Popen(command, cwd=place, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        log = tmp_path / "run" / "logs" / "trainer-0.log"
        until(lambda: log.exists() and "printed" in log.read_text(), "a print of a process that was killed")
        run.send_signal(signal.SIGTERM)
    assert f"printed in {place} by __main__ ['--rate', 'a b'] '' here" in log.read_text()
    assert "INFO:root:logged" in log.read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [(["-"], "comes through standard input"), (["-i", "-c", "pass"], "take shoal.run")],
    ids=["pipe", "console"],
)
def test_what_no_trainer_can_start_again_is_refused(words: list[str], told: str) -> None:
    script = "import shoal\nshoal.main(shoal.Program())\n"
    command = [sys.executable, *words]
    ended = subprocess.run(command, input=script, capture_output=True, text=True, timeout=runs.PATIENCE, check=False)
    assert told in ended.stderr


class Forks(Counted):
    """Has a child by a fork, which outlives the job, before it joins."""

    def declare(self, job: shoal.Job) -> Any:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        return super().declare(job)


def test_a_child_that_is_forked_holds_no_trainer_up(tmp_path: Path) -> None:
    began = time.monotonic()
    result = shoal.run(Forks(), trainers=2, folder=tmp_path, epochs=20, **SHAPE)
    assert time.monotonic() - began < 15
    assert all(trainer["records"] > 0 for trainer in result.status["trainers"])
    assert len(result.status["trainers"]) == 2


def test_a_script_that_torchrun_starts_is_refused_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import shoal\nshoal.main(shoal.Program())\n")
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "1"}
    ended = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=runs.PATIENCE, check=False
    )
    assert "start it once, by `python` or `shoal run`" in ended.stderr


def test_one_after_another_in_a_thread_and_in_a_loop_of_events(tmp_path: Path, undisturbed: str) -> None:
    def run(name: str) -> str:
        return shoal.run(Counted(), folder=tmp_path / name, epochs=2, **SHAPE).sha256

    async def loop() -> list[str]:
        return [await asyncio.to_thread(run, "beside a loop"), run("in a loop")]

    hashes = asyncio.run(loop())
    threads = [threading.Thread(target=lambda name=name: hashes.append(run(name))) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hashes == [undisturbed] * 4
    assert "SHOAL_MASTER" not in os.environ


def test_a_folder_of_another_job_is_refused(tmp_path: Path) -> None:
    shoal.run(Counted(), folder=tmp_path, **SHAPE)
    with pytest.raises(FileExistsError, match="holds the state of another job"):
        shoal.run(Counted(), folder=tmp_path, **SHAPE)


INTERRUPTED = """
    import sys, time
    import shoal
    from tests.programs.perceptron import Perceptron

    class Slow(Perceptron):
        def step(self, batch, parameters, gradient):
            print("computes", flush=True)
            time.sleep(0.01)
            super().step(batch, parameters, gradient)

    shoal.run(Slow(), epochs=1000, folder=sys.argv[1])
"""


def test_ctrl_c_while_other_trainers_begin_is_heard_at_once(tmp_path: Path) -> None:
    script = INTERRUPTED.replace("epochs=1000,", "epochs=1000, trainers=2,")
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "run")]
    with subprocess.Popen(command, env=runs.environment(), stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        runs.until((tmp_path / "run" / "trainer-1.log").exists, "the other trainer")
        began = time.monotonic()
        os.killpg(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=runs.PATIENCE)
    assert time.monotonic() - began < 10
    assert err.endswith("KeyboardInterrupt\n")


def test_ctrl_c_in_the_terminal_reaches_the_one_who_runs_and_ends_all(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(tmp_path / "run")]
    out = subprocess.PIPE
    with subprocess.Popen(command, env=runs.environment(), stdout=out, stderr=out, text=True, start_new_session=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "computes\n"
        began = time.monotonic()
        os.killpg(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=runs.PATIENCE)
    assert time.monotonic() - began < 2.5
    assert err.endswith("KeyboardInterrupt\n")
    assert "goodbye" not in err, "the master was there to hear it"


def test_a_script_without_a_guard_that_is_imported_by_a_child_joins_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.process.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match=r'write it below `if __name__ == "__main__":`'):
        shoal.main(Counted())


def test_a_program_of_the_script_needs_cloudpickle_to_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.setattr(Counted, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Counted", Counted, raising=False)
    with pytest.raises(TypeError, match="pip install cloudpickle"):
        shoal.run(Counted(), trainers=2, folder=tmp_path, **SHAPE)


@pytest.mark.nightly
def test_what_is_kept_has_its_values_where_memory_that_is_freed_is_overwritten() -> None:
    env = runs.environment(MALLOC_PERTURB_="165", PYTHONMALLOC="malloc")
    tests = ["tests/test_jobs.py", "-k", "kept_has_its_values or writes_to_a_gradient", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *tests]
    ended = subprocess.run(command, cwd=runs.PACKAGE, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


@pytest.mark.torch
@pytest.mark.parametrize(
    "where",
    [
        "loss",
        "getitem",
        *(pytest.param(where, marks=pytest.mark.nightly) for where in ("build", "evaluate", "predict", "decode", "collate")),
    ],
)
def test_an_exception_in_any_function_of_a_torch_program_is_told_with_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    import torch
    from torch import nn

    import shoal.torch

    def fail(*_: Any) -> Any:
        raise ValueError(f"in {where}")

    def build() -> Any:
        net = nn.Linear(1, 1)
        return net, torch.optim.SGD(net.parameters(), lr=0.1)

    functions: dict[str, Any] = {
        "build": build,
        "loss": lambda net, x: net(x).square().mean(),
        "evaluate": lambda net, x: {"mean": net(x)[:, 0]},
        "predict": lambda net, x: net(x),
        "collate": torch.stack,
        "decode": None,
    }
    data: Any = [torch.tensor([float(number)]) for number in range(64)]
    if where == "getitem":
        data = Failing(fail)
    else:
        functions[where] = fail
    options: dict[str, Any] = {"data": "records:64"} if where == "decode" else {}
    if where == "predict":
        options = {"epochs": 0, "predict": tmp_path / "outputs"}
    program = shoal.torch.Program(
        data=None if where == "decode" else data, eval_data=data if where == "evaluate" else None, **functions
    )
    with pytest.raises((shoal.TrainError, ValueError), match=f"in {where}") as raised:
        shoal.run(program, folder=tmp_path / "job", **{**SHAPE, **options})
    if where == "build":
        assert raised.type is ValueError, "in the one who runs"
    else:
        assert re.search(r"test_processes\.py:\d+ in fail", str(raised.value))
        assert capfd.readouterr().err.count("Traceback") == 1


class Failing(Sequence[Any]):
    """Samples that cannot be had."""

    def __init__(self, fail: Callable[[], Any]) -> None:
        self.fail = fail

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: Any) -> Any:
        return self.fail()
