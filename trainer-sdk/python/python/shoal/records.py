"""RecordIO files: records are bytes, in chunks with checksums.

>>> import tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp()) / "train.recordio"
>>> pack((f"line {number}".encode() for number in range(3)), path)
3
>>> Reader(path)[1], len(Reader(path))
(b'line 1', 3)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, overload

from . import _core

#: Records that close a chunk of data without files (`records:N`), and the bytes that then must not.
NUMBERED_CHUNK = {"chunk_records": 16384, "chunk_bytes": 256 << 20}


class Writer:
    """Writes a file, which is there whole or not at all.

    A chunk is what trainers read at a time, and what is shuffled as one: ``chunk_bytes`` before compression, or
    ``chunk_records``, whichever comes first. ``**NUMBERED_CHUNK`` cuts as data without files are: both give the same bits.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        compression: Literal["none", "snappy", "gzip"] = "none",
        chunk_bytes: int = 1 << 20,
        chunk_records: int = 0xFFFF_FFFF,
    ) -> None:
        self._path = Path(path)
        self._part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        self._writer = _core.RecordWriter(compression, chunk_bytes, chunk_records)
        self._file = self._part.open("xb")
        #: Records so far.
        self.records = 0

    def write(self, record: bytes) -> None:
        """Adds a record, which may be empty."""
        self._file.write(self._writer.write(record))
        self.records += 1

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._file.write(self._writer.finish())
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                self._part.replace(self._path)
        finally:
            self._file.close()
            self._part.unlink(missing_ok=True)


def pack(
    records: Iterable[bytes],
    path: str | os.PathLike[str],
    *,
    compression: Literal["none", "snappy", "gzip"] = "none",
    chunk_bytes: int = 1 << 20,
    chunk_records: int = 0xFFFF_FFFF,
) -> int:
    """Writes all records to a file, and says how many there were; see :class:`Writer`."""
    with Writer(path, compression=compression, chunk_bytes=chunk_bytes, chunk_records=chunk_records) as writer:
        for record in records:
            writer.write(record)
    return writer.records


class Reader(Sequence[bytes]):
    """The records of a file, by their number; a chunk is read and checked at a time, and the last one kept."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._reader = _core.RecordReader(path)
        self._number = -1
        self._chunk: list[bytes] = []

    def __len__(self) -> int:
        return len(self._reader)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        chunk, place = self._reader.locate(number)
        return self._read(chunk)[place]

    def __iter__(self) -> Iterator[bytes]:
        for chunk in range(self._reader.chunks):
            yield from self._read(chunk)

    def _read(self, chunk: int) -> list[bytes]:
        if chunk != self._number:
            self._number, self._chunk = chunk, self._reader.chunk(chunk)
        return self._chunk
