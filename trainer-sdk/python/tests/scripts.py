"""Scripts as their users start them: alone to be asked, then by `shoal run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from shoal import _command


def start(script: Path, *arguments: str, folder: Path, **environment: str) -> str:
    """Runs a script in a folder; what it has printed."""
    command = [sys.executable, str(script), *arguments]
    return _ran(command, folder, {"SHOAL_SEED": "0", **environment})


def train(script: Path, *arguments: str, folder: Path, flags: dict[str, Any]) -> dict[str, Any]:
    """Trains a script in a folder, as many trainers as the flags say; how `shoal run -o json` says that it ended."""
    described = folder / "described"
    described.mkdir(exist_ok=True)
    start(script, *arguments, folder=folder, SHOAL_DESCRIBE=str(described))
    said = json.loads((described / "program.json").read_text())
    given: dict[str, Any] = {"data": f"records:{said['records']}"}
    if "eval_records" in said:
        given["eval_data"] = f"records:{said['eval_records']}"
    if (initial := described / "initial.safetensors").exists():
        given["warm_start"] = initial
    words = [word for name, value in {**given, **flags}.items() for word in _command.flag(name, value)]
    command = [_command.shoal(), "run", "-o", "json", *words, "--", sys.executable, str(script), *arguments]
    ended: dict[str, Any] = json.loads(_ran(command, folder, {}).splitlines()[-1])
    return ended


def _ran(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    surroundings = {**os.environ, **environment}
    ended = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
