"""RecordIO files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import _command, records

RECORDS = [b"", b"a", b"\0" * 1000, *(str(number).encode() for number in range(500))]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip"])
def test_what_is_packed_is_read_by_number_and_in_order(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.recordio"
    assert records.pack(RECORDS, path, compression=compression, chunk_bytes=2000) == len(RECORDS)  # type: ignore[arg-type]
    reader = records.Reader(path)
    assert reader._reader.chunks > 1
    assert list(reader) == RECORDS
    assert (len(reader), reader[-1], reader[3:5]) == (len(RECORDS), b"499", [b"0", b"1"])
    with pytest.raises(IndexError, match="record 503 of 503"):
        reader[503]


def test_the_command_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    records.pack(RECORDS, path)
    verified = subprocess.run([_command.shoal(), "recordio", "verify", str(path)], capture_output=True, text=True, check=True)
    assert "0 fault" in verified.stderr


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    records.pack([b"before"], path)

    def torn() -> Iterator[bytes]:
        yield b"after"
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError, match="torn"):
        records.pack(torn(), path)
    assert list(records.Reader(path)) == [b"before"]
    assert [each.name for each in tmp_path.iterdir()] == ["a.recordio"]


def test_damage_and_other_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    records.pack(RECORDS, path)
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"a\.recordio.*checksum"):
        list(records.Reader(path))
    path.write_bytes(b"no records at all, but more bytes than a header")
    with pytest.raises(ValueError, match=r"a\.recordio"):
        records.Reader(path)
    with pytest.raises(OSError, match=r"absent\.recordio"):
        records.Reader(tmp_path / "absent.recordio")
    with pytest.raises(ValueError, match="give none, snappy or gzip"):
        records.Writer(tmp_path / "x", compression="zip")  # type: ignore[arg-type]
