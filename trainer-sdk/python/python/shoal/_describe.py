"""What a program says of a job before that begins: the files that `SHOAL_DESCRIBE` asks for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _safetensors
from ._batch import check_data

if TYPE_CHECKING:
    from ._program import Program

#: The variable that asks for them, and names the folder.
VARIABLE = "SHOAL_DESCRIBE"


def sizes(program: Program) -> dict[str, int]:
    """How many records the program brings along, to be trained on and to be evaluated."""
    check_data("data", program.data)
    check_data("eval_data", program.eval_data)
    found = {"records": program.data, "eval_records": program.eval_data}
    return {name: len(data) for name, data in found.items() if data is not None}


def _asked(value: Any) -> Any:
    """A setting as the description has it: a text, a list of texts, or true for a switch."""
    if value is True:
        return True
    return [str(each) for each in value] if isinstance(value, list | tuple) else str(value)


def describe(program: Program, folder: Path, options: dict[str, Any]) -> None:
    """Writes initial values and sizes of data into a folder; nothing where there is nothing to say.

    ``options`` are what the script asks for where it is started alone.
    """
    initial = program.initial(int(os.environ.get("SHOAL_SEED") or options.get("seed") or 0))
    said = sizes(program)
    asks = {name.replace("_", "-"): _asked(value) for name, value in options.items() if value is not None and value is not False}
    if not initial and not said and not asks:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if initial:
        _safetensors.save(folder / "initial.safetensors", initial)
    # Last: what is there without it counts for nothing.
    description = {"version": 1, **said, **({"asks": asks} if asks else {})}
    (folder / "program.json").write_text(json.dumps(description) + "\n", encoding="utf-8")
