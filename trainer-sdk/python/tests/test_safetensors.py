"""Files of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal import _safetensors


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    tensors: _safetensors.Tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.full((), 2.5, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "bytes": np.arange(5, dtype=np.uint8),
        "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    }
    _safetensors.save(tmp_path / "x.safetensors", tensors)
    loaded = _safetensors.load(tmp_path / "x.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert np.array_equal(loaded[name], tensor), name
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_another_implementation_reads_it(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.numpy")
    _safetensors.save(tmp_path / "x", {"w": np.ones((3, 2), np.float32)})
    assert np.array_equal(theirs.load_file(tmp_path / "x")["w"], np.ones((3, 2), np.float32))
    theirs.save_file({"v": np.full(4, 7, np.float32)}, tmp_path / "y")
    assert np.array_equal(_safetensors.load(tmp_path / "y")["v"], np.full(4, 7, np.float32))


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 7, b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}"[:9], b"\x05\0\0\0\0\0\0\0hello", b"\x02\0\0\0\0\0\0\0[]"]
)
def test_what_is_no_such_file_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "torn").write_bytes(content)
    with pytest.raises(ValueError, match="torn: no file of tensors"):
        _safetensors.load(tmp_path / "torn")


def test_a_kind_of_number_that_nobody_reads_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tensor 'c' is of complex64"):
        _safetensors.save(tmp_path / "x", {"c": np.zeros(1, np.complex64)})
    assert list(tmp_path.iterdir()) == []
