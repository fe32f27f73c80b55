"""The perceptron, to which things happen: `python lives.py DEED... --in step`, each once in a job with `--once FOLDER`."""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import logging
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shoal

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.programs.perceptron import Counted, Points, point


def say(words: str) -> None:
    """To standard output, as one line."""
    os.write(1, f"{words} {os.getpid()} {time.time()}\n".encode())


def hold_the_gil() -> None:
    ctypes.PyDLL(None).sleep(5)


def sleep_in_python() -> None:
    time.sleep(6)


def compute_in_c() -> None:
    """For some seconds, in one call that no signal ends: the GIL is free meanwhile."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 8_000_000)


def want_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_bytes_in_use() + (64 << 20),) * 2)
    np.zeros(1 << 30, np.uint8)


def want_memory_in_torch() -> None:
    import torch

    resource.setrlimit(resource.RLIMIT_AS, (_bytes_in_use() + (64 << 20),) * 2)
    torch.zeros(1 << 30, dtype=torch.uint8)


def want_memory_in_python() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_bytes_in_use() + (64 << 20),) * 2)
    b"x" * (1 << 30)


def _bytes_in_use() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def want_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = []
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))


def want_disk() -> None:
    """A full disk, which every machine has."""
    with Path("/dev/full").open("w") as file:
        file.write("x")


def write_too_much() -> None:
    """A file that is larger than it may be."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, before[1]))
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x" * (1 << 12))
    finally:
        # Its log is a file, too.
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fork_and_return() -> None:
    """Both go on from here, as if nothing had been. So they do below: who waits for a child does it in a step after."""
    fork()


def fork_and_exit() -> None:
    if fork() == 0:
        sys.exit(3)


def fork_and_raise() -> None:
    if fork() == 0:
        raise ValueError("of a child")


#: Children that were forked off.
children: list[int] = []


def fork() -> int:
    child = os.fork()
    if child:
        children.append(child)
    return child


def await_children() -> None:
    """Waits for the ends of all children."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 3, 1], codes


def multiprocess() -> None:
    import multiprocessing

    for method in ("fork", "forkserver", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(abs, range(-4, 0)) == [4, 3, 2, 1]


def load(method: str) -> None:
    """Samples by workers of PyTorch's, one of which is asked to end afterwards."""
    from torch.utils.data import DataLoader

    data: Any = Points(8)
    loader: Any = DataLoader(data, num_workers=2, multiprocessing_context=method, persistent_workers=True)
    assert len(list(loader)) == 8
    worker = loader._iterator._workers[0]
    worker.terminate()
    worker.join(10)
    # PyTorch's own handler ends it well where its parent asks for it.
    assert worker.exitcode in (0, -signal.SIGTERM), worker.exitcode


def end_a_worker() -> None:
    """A child that computes and gets SIGTERM ends by it."""
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(1)
    time.sleep(0.2)
    os.kill(child, signal.SIGTERM)
    began = time.monotonic()
    while time.monotonic() < began + 5:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM, status
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("SIGTERM did not end the child")


def exit_upon_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(6)


def raise_base_exception() -> None:
    class Panic(BaseException):
        """As libraries in Rust raise."""

    raise Panic("of another library")


DEEDS: dict[str, Callable[[], Any]] = {
    deed.__name__: deed
    for deed in (
        hold_the_gil,
        sleep_in_python,
        compute_in_c,
        want_memory,
        want_memory_in_torch,
        want_memory_in_python,
        want_files,
        want_disk,
        write_too_much,
        fork_and_return,
        fork_and_exit,
        fork_and_raise,
        await_children,
        multiprocess,
        end_a_worker,
        exit_upon_sigterm,
        raise_base_exception,
    )
} | {
    "nothing": lambda: None,
    "load_fork": lambda: load("fork"),
    "load_forkserver": lambda: load("forkserver"),
    "load_spawn": lambda: load("spawn"),
    "exit": lambda: sys.exit(3),
    "exit_well": lambda: sys.exit(0),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "abort": os.abort,
    "crash": lambda: ctypes.string_at(0),
    "mistake": lambda: lables,  # type: ignore[name-defined]  # noqa: F821
    "print": lambda: print("here", end=" "),
}


class Living(Counted):
    """Does its deeds in one of its functions, from one step on."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.data = Watched(self, arguments.records)

    def happen(self, where: str, step: int = 1 << 30) -> None:
        if where == self.arguments.where and step >= self.arguments.at:
            # Not all at one step: records that five trainers were lost with are taken for the cause.
            begun = [deed for at, deed in enumerate(self.arguments.deeds) if step >= self.arguments.at + 2 * at]
            deed = next(filter(self.is_due, begun), "nothing")
            say(deed)
            DEEDS[deed]()

    def is_due(self, deed: str) -> bool:
        if self.arguments.once is None:
            return True
        self.arguments.once.mkdir(exist_ok=True)
        try:
            (self.arguments.once / deed).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def declare(self, job: shoal.Job) -> Sequence[Any]:
        self.happen("declare")
        return super().declare(job)

    def initial(self, seed: int) -> dict[str, Any]:
        self.happen("initial")
        return super().initial(seed)

    def step(self, batch: shoal.Batch, parameters: shoal.Parameters, gradient: shoal.Gradient) -> None:
        self.happen("step", batch.step)
        super().step(batch, parameters, gradient)

    def evaluate(self, batch: shoal.Batch, parameters: shoal.Parameters, metrics: shoal.Metrics) -> None:
        self.happen("evaluate")
        super().evaluate(batch, parameters, metrics)

    def predict(self, batch: shoal.Batch, parameters: shoal.Parameters) -> Sequence[str]:
        self.happen("predict")
        return super().predict(batch, parameters)


class Watched(Points):
    """Points; at the number `--at` something happens."""

    def __init__(self, program: Living, records: int) -> None:
        super().__init__(records)
        self.program = program

    def __getitem__(self, index: Any) -> Any:
        if index == self.program.arguments.at:
            self.program.happen("getitem")
        return point(index)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("deeds", nargs="+", choices=DEEDS)
    parser.add_argument("--in", dest="where", default="step")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--once", type=Path)
    parser.add_argument("--records", type=int, default=600)
    parser.add_argument("--logging", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(format="python's %(name)s %(levelname)s %(message)s", level=logging.INFO)
    shoal.main(Living(arguments), logging=arguments.logging)
