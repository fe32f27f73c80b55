"""A job of real processes, by the command `shoal run`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal import Client
from shoal._command import flag, shoal

PACKAGE = Path(__file__).parents[1]
PROGRAMS = Path(__file__).parent / "programs"
#: How long anything may take that is waited for.
PATIENCE = 180.0
SHAPE: dict[str, Any] = {"microbatch_records": 16, "microbatches_per_step": 4, "seed": 7}


class LocalRun:
    """`shoal run` and what it has started."""

    def __init__(self, folder: Path, program: Sequence[str | Path], options: dict[str, Any]) -> None:
        self.folder = folder
        flags = [part for name, value in options.items() for part in flag(name, value)]
        command = [shoal(), "run", "--folder", str(folder), "-o", "json", *flags, "--", *map(str, program)]
        self._out, self._err = folder.with_suffix(".out"), folder.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment(), cwd=folder.parent
            )

    @property
    def stderr(self) -> str:
        """What the command has said."""
        return self._err.read_text()

    def ended(self) -> int:
        """Waits for the end; its exit code."""
        return self.process.wait(PATIENCE)

    def report(self) -> dict[str, Any]:
        """What a run says that has done its job."""
        code = self.ended()
        assert code == 0, self.stderr + self.logs()
        report: dict[str, Any] = json.loads(self._out.read_text().splitlines()[-1])
        return report

    def logs(self, name: str = "trainer-*") -> str:
        """All that processes of such names have written."""
        return "".join(log.read_text() for log in sorted((self.folder / "logs").glob(f"{name}.log")))

    def said(self, words: str) -> re.Match[str]:
        """Waits until some trainer has written such words."""
        found: re.Match[str] = self.until(lambda: re.search(words, self.logs()), repr(words))
        return found

    def until(self, find: Any, what: str) -> Any:
        """What is found, once it is, while the run goes on."""

        def find_or_end() -> Any:
            code = self.process.poll()
            found = find()
            assert found or code is None, f"the run ended with {code}, {what} was not found:\n{self.stderr}{self.logs()}"
            return found

        return until(find_or_end, what)

    def status(self) -> dict[str, Any]:
        """How the job is."""
        return Client(run=self.folder).status()

    def journal(self, entry: str) -> list[dict[str, Any]]:
        """What has happened of a kind."""
        lines = [json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()]
        return [line for line in lines if line["entry"] == entry]

    def processes(self) -> list[int]:
        """All of this machine whose supervisor the command is."""
        return [pid for pid in _pids() if f"SHOAL_SUPERVISOR={self.process.pid}:".encode() in _environ(pid)]


def environment(**variables: str) -> dict[str, str]:
    """This process's, in which programs find these tests; the package that is tested is found as it was here."""
    paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Whoever runs the tests may have settings.
    own = {"PYTHONPATH": os.pathsep.join(paths), "SHOAL_CONFIG": os.devnull}
    return {**os.environ, **own, **variables}


@contextlib.contextmanager
def local_run(folder: Path, program: Sequence[str | Path], **options: Any) -> Iterator[LocalRun]:
    """A run of 600 records that ends with this block; `program` is what follows `python`, or a whole command."""
    data = {"data": "records:600", "epochs": 2}
    program = [sys.executable, *program] if str(program[0]).endswith(".py") or program[0] == "-m" else program
    run = LocalRun(folder, program, {**SHAPE, **data, **options})
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGTERM)
            try:
                run.process.wait(PATIENCE)
            finally:
                run.process.kill()


def until(find: Any, what: str) -> Any:
    """What is found, once it is."""
    began = time.monotonic()
    while not (found := find()):
        assert time.monotonic() - began < PATIENCE, f"not found in {PATIENCE} s: {what}"
        time.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    """Whether it is there, and more than an entry that its parent has not asked after."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
