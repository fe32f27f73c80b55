"""The last line of a script: a trainer where a job starts it, and alone a whole job on this machine."""

from __future__ import annotations

import builtins
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from . import _core, _describe, _faults
from ._command import CommandError, flag, shoal


class TrainError(Exception):
    """Why a trainer has given up; ``exit_code`` is 3 where no master was reached, 2 for settings, 1 otherwise."""

    def __init__(self, words: str, exit_code: int) -> None:
        super().__init__(words)
        self.exit_code = exit_code


def train(program: Any, at: tuple[str, str] | None = None) -> str:
    """Trains in this thread as a trainer of the job that ``SHOAL_MASTER`` names: ``"done"``, or ``"left"`` if it was asked to.

    ``at`` is the master's address and the trainer's name, if they are not the environment's.
    """
    _faults.begin()
    try:
        return _core.train(program, at)
    except RuntimeError as error:
        if len(error.args) == 2:
            raise TrainError(*error.args) from None
        raise


def main(program: Any, *, logging: bool = False, **options: Any) -> NoReturn:
    """Trains ``program`` and ends the process.

    Under ``shoal run`` and in a pod this is a trainer. Alone, as in ``python train.py``, it is a whole job on this machine: the
    script is started by ``shoal run`` with the same command line, and ``options`` are that command's flags
    (``trainers=2, epochs=8`` is ``--trainers 2 --epochs 8``).

    A trainer logs to standard error; with ``logging=True`` to the logger ``"shoal"`` of Python's :mod:`logging`, whenever a
    function of the program is called, and at the end.
    """
    _check_not_importing()
    if folder := os.environ.get(_describe.VARIABLE):
        _describe.describe(program, Path(folder), options)
        sys.exit(0)
    if "SHOAL_MASTER" not in os.environ:
        _check_script()
        _run(options)
    begin_logging(logging)
    try:
        train(program)
    except TrainError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except SystemExit as exited:
        if not _faults.is_of_signal_handler(exited):
            print(f"error: the program ends itself before the job is done: {_faults.words(exited)}", file=sys.stderr)
            # Or it would pass for a trainer that somebody has asked to leave, and another one be started in its place for ever.
            sys.exit(exited.code or 1)
        raise
    sys.exit(0)


def begin_logging(is_pythons: bool) -> None:
    """From now on the trainer logs; to what the first call in a process says."""
    if is_pythons:
        _core.log_to_logging()
    else:
        _core.log_to_stderr()


def _check_not_importing() -> None:
    """Refuses to train in a child of :mod:`multiprocessing` that imports the script in order to find a function in it."""
    if "multiprocessing" in sys.modules and getattr(sys.modules["multiprocessing"].current_process(), "_inheriting", False):
        raise RuntimeError(
            "a child process imports this script and comes to shoal.main, as multiprocessing's do by `spawn` and `forkserver`: "
            'write it below `if __name__ == "__main__":`'
        )


def _check_script() -> None:
    """Refuses to start a script again that nobody can (what is typed, or comes through a pipe), or that others start."""
    if hasattr(sys, "ps1") or hasattr(builtins, "get_ipython"):
        raise RuntimeError("shoal.main ends the process that calls it: in a notebook or a console take shoal.run")
    if os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        raise RuntimeError(
            f"a launcher of ranks has started this script (WORLD_SIZE={os.environ['WORLD_SIZE']}), and each of its processes "
            "would be a whole job: there are no ranks; start it once, by `python` or `shoal run`, without that variable"
        )
    if sys.argv[:1] in ([""], ["-"]):
        raise RuntimeError("this script comes through standard input, and each trainer would read it anew: save it in a file")


def _run(options: dict[str, Any]) -> NoReturn:
    """Becomes `shoal run` with the script's own command line."""
    try:
        command = shoal()
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    flags = [part for name, value in options.items() for part in flag(name, value)]
    arguments = [command, "run", *flags, "--", sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    os.execv(command, arguments)
