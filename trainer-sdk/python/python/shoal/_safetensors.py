"""Files of tensors in the format of safetensors: what `shoal export` writes and `--warm-start` reads.

An 8-byte little-endian length, a JSON header of as many bytes, then the values. https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # NumPy is imported where it is used: most of the time that importing this package would take is its.
    import numpy.typing as npt

    Tensors = dict[str, npt.NDArray[Any]]

#: Names of the format and NumPy's, of what Shoal reads and writes.
_KINDS = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
_HEADER_MAX = 100 << 20


def save(path: str | os.PathLike[str], tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Writes tensors by name; the file is there whole or not at all."""
    import numpy as np

    names = {np.dtype(kind): name for name, kind in _KINDS.items()}
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in names:
            raise ValueError(f"tensor {name!r} is of {tensor.dtype}, which is none of {', '.join(map(str, names))}")
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("xb") as file:
            file.write(len(words).to_bytes(8, "little"))
            file.write(words)
            for tensor in tensors.values():
                file.write(np.ascontiguousarray(tensor).data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Tensors:
    """Reads all tensors of a file by name: arrays over the file, which cannot be written to."""
    import numpy as np

    path = Path(path)
    # Of no bytes nothing can be mapped.
    file = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)
    length = int.from_bytes(file[:8].tobytes(), "little") if len(file) >= 8 else _HEADER_MAX + 1
    if length > min(_HEADER_MAX, len(file) - 8):
        raise ValueError(f"{path}: no file of tensors: its header is cut short")
    try:
        header = json.loads(file[8 : 8 + length].tobytes())
        tensors: Tensors = {}
        for name, of in header.items():
            if name == "__metadata__":
                continue
            begin, end = of["data_offsets"]
            values = file[8 + length + begin : 8 + length + end]
            tensors[name] = values.view(_KINDS[of["dtype"]]).reshape(of["shape"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: no file of tensors that can be read: {error!r}") from None
    return tensors
