"""The command `shoal`: where it is, and what it answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class CommandError(Exception):
    """What `shoal` said on standard error, and its exit code: 1 failed, 2 called wrongly, 3 nobody was reached."""

    def __init__(self, words: str, exit_code: int) -> None:
        super().__init__(words)
        self.exit_code = exit_code


def shoal() -> str:
    """The path of the command: ``SHOAL_BINARY``, or on the path."""
    found = os.environ.get("SHOAL_BINARY") or shutil.which("shoal")
    if found is None:
        raise CommandError("`shoal` is not on the path: pip install shoal-cli", 2)
    return found


def ask(*arguments: str) -> Any:
    """What a command answers in JSON."""
    ended = subprocess.run([shoal(), *arguments, "-o", "json"], capture_output=True, text=True, check=False)
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
    return [written, str(value)]


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
