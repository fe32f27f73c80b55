"""A whole job from a notebook or a test: the first trainer is this thread."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _describe, _safetensors
from ._command import Client, CommandError, ask, flag, shoal
from ._main import TrainError, begin_logging, train
from ._together import First

if TYPE_CHECKING:
    from ._program import Program

#: How long a process may take to start, or to end when it is asked to.
_PATIENCE = 60.0
#: How long a trainer of a job that is done may take before it is asked to end.
_LEAVING = 10.0


@dataclass(frozen=True)
class Result:
    """What became of a job."""

    folder: Path
    """Where the job's files are: its model, checkpoints and logs."""
    status: dict[str, Any]
    """How the job was at its end: `shoal status -o json`."""
    sha256: str
    """Of all parameters: the same for any number of trainers."""
    learnt: frozenset[str]
    """The names of its parameters and averages; others are of counters and metrics."""

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return int(self.status["step"])

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Each evaluation: its ``step`` and its ``metrics`` by name."""
        return list(self.status["evaluations"])

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the last evaluation."""
        return dict(self.evaluations[-1]["metrics"]) if self.evaluations else {}

    @property
    def model(self) -> Path:
        """The model, as safetensors."""
        return self.folder / "model.safetensors"

    def tensors(self) -> _safetensors.Tensors:
        """Every parameter, average, counter and metric by name."""
        return _safetensors.load(self.model)

    def state_dict(self) -> dict[str, Any]:
        """Parameters and averages as tensors of PyTorch: counters and metrics are no part of a module's state."""
        import torch

        return {name: torch.from_numpy(tensor.copy()) for name, tensor in self.tensors().items() if name in self.learnt}


def run(
    program: Program,
    *,
    trainers: int = 1,
    pservers: int = 1,
    epochs: int = 1,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    logging: bool = False,
    **options: Any,
) -> Result:
    """Trains ``program`` on this machine and returns what came of it.

    The first trainer is this thread, so that prints, breakpoints and ``pdb`` work; others are started as processes, and get the
    program by cloudpickle. ``options`` are the flags of `shoal master`: ``data="train.recordio"``, ``microbatch_records=32``,
    ``mode="async"``. Data and initial values are the program's own, unless they are given so. ``logging`` is as in
    :func:`main`: of the first call in a process it holds for all.
    """
    for name, number in (("trainers", trainers), ("pservers", pservers)):
        if not hasattr(number, "__index__") or number < 1:
            raise ValueError(f"{name}={number!r}: give a whole number, 1 at least")
    folder = Path(tempfile.mkdtemp(prefix="shoal-") if folder is None else folder)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "state").exists():
        raise FileExistsError(f"{folder} holds the state of another job: name another folder, or remove it")
    if progress is None:
        progress = sys.stderr.isatty()
    begin_logging(logging)
    with contextlib.ExitStack() as stack:
        stack.enter_context(program._lasting())
        flags: dict[str, Any] = {"epochs": epochs, "seed": seed, **_own(program, folder, seed, options), **options}
        master = _master(stack, folder, flags, trainers, pservers)
        for number in range(pservers):
            # Where the job is given up nobody is left to whom blocks could go.
            leaves_at_once = ["--grace-seconds", "0"]
            command = ["pserver", "--listen", "127.0.0.1:0", "--master", master, *leaves_at_once]
            _start(stack, folder, f"pserver-{number}", command)
        others = _spawn(stack, folder, program, master, range(1, trainers)) if trainers > 1 else {}
        if progress:
            stack.enter_context(_progress(master))
        if train(program, at=(master, "trainer-0")) != "done":
            raise TrainError("this trainer was asked to leave before the job was done", 1)
        _tell_of_failed(others, folder)
        exported = ask("export", "--file", str(folder / "model.safetensors"), "--master", master)
        status = Client(master).status()
    result = Result(folder, status, str(exported["parameters_sha256"]), program._learnt)
    program._take(result.model)
    return result


def _own(program: Program, folder: Path, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Data and initial values that the program brings along."""
    sizes = _describe.sizes(program)
    flags = {"data": sizes.get("records"), "eval_data": sizes.get("eval_records")}
    if options.get("predict"):
        del flags["eval_data"]
    own: dict[str, Any] = {name: f"records:{size}" for name, size in flags.items() if size is not None and name not in options}
    initial = {} if "warm_start" in options else program.initial(seed)
    if initial:
        _safetensors.save(folder / "initial.safetensors", initial)
        own["warm_start"] = folder / "initial.safetensors"
    return own


def _master(stack: contextlib.ExitStack, folder: Path, flags: dict[str, Any], trainers: int, pservers: int) -> str:
    """Starts the master; its address."""
    written = folder / "master.address"
    written.unlink(missing_ok=True)
    arguments = ["master", "--listen", "127.0.0.1:0", "--address-file", str(written), "--store", str(folder / "state")]
    arguments += ["--trainers", str(trainers), "--pservers", str(pservers), "--linger-seconds", "86400"]
    arguments += [part for name, value in flags.items() for part in flag(name, value)]
    process = _start(stack, folder, "master", arguments)
    began = time.monotonic()
    while not (written.exists() and (address := written.read_text().strip())):
        if process.poll() is not None or time.monotonic() - began > _PATIENCE:
            log = (folder / "master.log").read_text()
            raise CommandError(log.strip().removeprefix("error: ") or "the master did not start", process.returncode or 1)
        time.sleep(0.005)
    return address


def _start(
    stack: contextlib.ExitStack,
    folder: Path,
    name: str,
    arguments: Sequence[str],
    pass_fds: Sequence[int] = (),
    **environment: str,
) -> subprocess.Popen[bytes]:
    """Starts a role, which ends with this process or when the job is over."""
    command = [shoal(), *arguments] if arguments[0] in ("master", "pserver") else list(arguments)
    surroundings = {**os.environ, "SHOAL_SUPERVISOR": _this_process(), **environment}
    with (folder / f"{name}.log").open("wb") as log:
        # A Ctrl-C in the terminal reaches this process alone, which then stops the rest in order.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=surroundings,
            process_group=0,
            pass_fds=pass_fds,
        )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _this_process() -> str:
    """The name of this process for its children: its number, and when it began, for numbers are given again."""
    stat = Path("/proc/self/stat")
    pid = os.getpid()
    if not stat.exists():
        return str(pid)
    began = stat.read_text().rpartition(")")[2].split()[19]
    return f"{pid}:{began}"


def _spawn(
    stack: contextlib.ExitStack, folder: Path, program: Program, master: str, numbers: Sequence[int]
) -> dict[str, subprocess.Popen[bytes]]:
    """Starts further trainers of the same program, by name. They find the same modules as this process.

    The first one waits for them (:mod:`shoal._together`).
    """
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        pickler: Any = pickle
        way_out = "pip install cloudpickle"
    else:
        pickler = cloudpickle
        way_out = "open files, connections and locks where they are first used"
    file = folder / "program.pickle"
    try:
        pickled = pickler.dumps(program)
        if pickler is pickle and b"__main__" in pickled:
            raise pickle.PicklingError("some of it is the script's own, which other processes do not run")
        file.write_bytes(pickled)
    except Exception as error:
        raise TypeError(
            f"the program cannot be sent to other processes ({error}): {way_out}, or run it with trainers=1"
        ) from error
    path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
    started: dict[str, subprocess.Popen[bytes]] = {}
    first = program._together = First()
    stack.callback(program.__dict__.pop, "_together", None)
    for number in numbers:
        name = f"trainer-{number}"
        command = [sys.executable, "-m", "shoal._spawned", str(file), str(first.ready), str(first.go)]
        variables = {"SHOAL_MASTER": master, "SHOAL_TRAINER_NAME": name, "PYTHONPATH": path}
        started[name] = _start(stack, folder, name, command, (first.ready, first.go), **variables)
        # Before it is asked to end: while it waits for this process it does not hear that.
        stack.callback(first.close)
    return started


def _tell_of_failed(others: dict[str, subprocess.Popen[bytes]], folder: Path) -> None:
    """Warns of trainers that have failed: the job was done without them."""
    for name, process in others.items():
        # All end by themselves now; one that has failed may still be on its way out.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVING)
        if code := process.poll():
            log = folder / f"{name}.log"
            words = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            warnings.warn(f"{name} ended with exit code {code}, and others did its work ({log}): {words[0]}", stacklevel=3)


def _how_far(status: dict[str, Any]) -> str:
    last = status["evaluations"][-1]["metrics"] if status["evaluations"] else {}
    # What is no number is None in JSON.
    words = "  ".join(f"{name} {math.nan if value is None else value:.4f}" for name, value in last.items())
    return f"epoch {status['epoch']}/{status['epochs']}  step {status['step']}/{status['steps']}  {words}"


@contextlib.contextmanager
def _progress(master: str) -> Iterator[None]:
    """A line on standard error that says how far the job is."""
    over = threading.Event()

    def show() -> None:
        while not over.wait(1.0):
            with contextlib.suppress(CommandError):
                print(f"\r\x1b[K  {_how_far(Client(master).status())}", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
