"""What a prediction has written: parts of RecordIO, one output for each record."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Of a chunk: magic number, CRC-32 of the payload, compressor, bytes of the payload, records; all little-endian.
_HEADER = struct.Struct("<5I")
_MAGIC = 0x01020304
_ARRAY = b"\x93NUMPY"


def predictions(folder: str | os.PathLike[str]) -> Iterator[Any]:
    """What ``predict`` said of each record, in their order: arrays where it gave arrays or tensors, otherwise bytes.

    ``folder`` is what ``--predict`` named. A record that was left out has the output ``b""``.
    """
    parts = sorted(Path(folder).glob("part-*.recordio"))
    if not parts:
        raise FileNotFoundError(f"{folder}: no prediction has written here")
    for part in parts:
        for output in _records(part):
            yield _array(output) if output.startswith(_ARRAY) else output


def _records(part: Path) -> Iterator[bytes]:
    rest = part.read_bytes()
    while rest:
        magic, checksum, compressor, size, records = _HEADER.unpack_from(rest.ljust(_HEADER.size, b"\0"))
        payload, rest = rest[_HEADER.size : _HEADER.size + size], rest[_HEADER.size + size :]
        if magic != _MAGIC or compressor != 0 or zlib.crc32(payload) != checksum:
            raise ValueError(f"{part}: no part of a prediction, or a damaged one: `shoal recordio verify` says more")
        place = 0
        for _ in range(records):
            end = place + 4 + int.from_bytes(payload[place : place + 4], "little")
            yield payload[place + 4 : end]
            place = end


def _array(output: bytes) -> Any:
    import io

    import numpy as np

    return np.load(io.BytesIO(output), allow_pickle=False)
