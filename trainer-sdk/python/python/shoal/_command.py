"""The command `shoal`: where it is, and what it answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from . import _core


class CommandError(Exception):
    """What `shoal` said on standard error, and its exit code: 1 failed, 2 called wrongly, 3 nobody answered; -15 by SIGTERM."""

    def __init__(self, words: str, exit_code: int) -> None:
        super().__init__(words)
        self.exit_code = exit_code


def shoal() -> str:
    """The path of the command: ``SHOAL_BINARY``, this environment's, or on the path. It has to be of this package's version."""
    found = os.environ.get("SHOAL_BINARY") or next(_installed(), None) or shutil.which("shoal")
    if found is None:
        raise CommandError(f"there is no command `shoal`: pip install shoal-cli=={_core.__version__}", 2)
    _check(found)
    return found


def _installed() -> Iterator[str]:
    """The command of `shoal-cli` where pip puts it, whether or not the environment is activated."""
    folders = [
        *([Path(sys.executable).parent] if sys.executable else []),
        Path(sysconfig.get_path("scripts")),
        # Of `pip install --target`, and of `--user`.
        Path(__file__).parents[1] / "bin",
        Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))),
    ]
    return (found for folder in folders if (found := shutil.which("shoal", path=str(folder))))


@cache
def _check(command: str) -> None:
    """Refuses another version than this package's, which speaks another protocol: asked once in a process."""
    ours = _core.__version__
    install = f"pip install shoal-cli=={ours}"
    try:
        told = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout.split()
    except OSError as error:
        raise CommandError(f"{command} cannot be run: {error.strerror}", 2) from error
    if told[:1] != ["shoal"] or len(told) != 2:
        raise CommandError(f"{command} is not the command of Shoal: {install}", 2)
    if told[1] != ours:
        raise CommandError(f"{command} is version {told[1]}, the package `shoal` {ours}: {install}", 2)


def ask(*arguments: str) -> Any:
    """What a command answers in JSON. A program asks what it says: files of settings are for people, and have no part in it."""
    surroundings = {**os.environ, "SHOAL_CONFIG": os.devnull}
    ended = subprocess.run([shoal(), *arguments, "-o", "json"], capture_output=True, text=True, check=False, env=surroundings)
    if ended.returncode != 0:
        raise CommandError(ended.stderr.strip().removeprefix("error: "), ended.returncode)
    return json.loads(ended.stdout)


def flag(name: str, value: Any) -> list[str]:
    """A flag of the command by the name of a Python argument."""
    written = "--" + name.replace("_", "-")
    if value is True:
        return [written]
    if value is False or value is None:
        return []
    if isinstance(value, list | tuple):
        return [part for each in value for part in (written, str(each))]
    # What begins with a dash would pass for another flag.
    return [f"{written}={value}"] if str(value).startswith("-") else [written, str(value)]


class Client:
    """A running job: ``Client()`` is the newest local run of this folder, ``Client(master="HOST:PORT")`` any."""

    def __init__(self, master: str | None = None, run: str | os.PathLike[str] | None = None) -> None:
        self._where: Sequence[str] = ()
        if master is not None:
            self._where = ("--master", master)
        elif run is not None:
            self._where = ("--run", str(run))

    def status(self) -> dict[str, Any]:
        """How the job is: `shoal status -o json`."""
        answer: dict[str, Any] = ask("status", *self._where)
        return answer

    def scale(self, trainers: int | None = None, pservers: int | None = None) -> dict[str, Any]:
        """Changes how many trainers and parameter servers the job wants."""
        flags = [
            part
            for flag, count in (("--trainers", trainers), ("--pservers", pservers))
            if count is not None
            for part in (flag, str(count))
        ]
        answer: dict[str, Any] = ask("scale", *flags, *self._where)
        return answer

    def checkpoint(self) -> dict[str, Any]:
        """Makes a checkpoint, and waits until it is durable."""
        answer: dict[str, Any] = ask("checkpoint", "now", *self._where)
        return answer

    def export(self, file: str | os.PathLike[str]) -> Path:
        """Writes the model as safetensors."""
        ask("export", "--file", str(file), *self._where)
        return Path(file)
