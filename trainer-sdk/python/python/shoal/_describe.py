"""What a program says of a job before that begins: the files that `SHOAL_DESCRIBE` asks for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import _safetensors

if TYPE_CHECKING:
    from ._program import Program

#: The variable that asks for them, and names the folder.
VARIABLE = "SHOAL_DESCRIBE"


def sizes(program: Program) -> dict[str, int]:
    """How many records the program brings along, to be trained on and to be evaluated."""
    found = {"records": program.data, "eval_records": program.eval_data}
    return {name: len(data) for name, data in found.items() if data is not None}


def describe(program: Program, folder: Path) -> None:
    """Writes initial values and sizes of data into a folder; nothing where there is nothing to say."""
    initial = program.initial(int(os.environ.get("SHOAL_SEED", "0")))
    said = sizes(program)
    if not initial and not said:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if initial:
        _safetensors.save(folder / "initial.safetensors", initial)
    # Last: what is there without it counts for nothing.
    (folder / "program.json").write_text(json.dumps({"version": 1, **said}) + "\n", encoding="utf-8")
