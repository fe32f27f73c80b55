"""What tests have: the command, records, and PyTorch where it is installed."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from shoal import _safetensors


def pytest_configure(config: pytest.Config) -> None:
    """Finds the command: SHOAL_BINARY, on the path, or as cargo has built it."""
    if "SHOAL_BINARY" in os.environ or shutil.which("shoal"):
        return
    root = Path(__file__).resolve().parents[3]
    for profile in ("release", "debug"):
        binary = root / "target" / profile / "shoal"
        if binary.exists():
            os.environ["SHOAL_BINARY"] = str(binary)
            return
    raise pytest.UsageError("no `shoal`: set SHOAL_BINARY, or build it by `cargo build -p shoal-cli`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what needs PyTorch where it is not installed, loudly; with SHOAL_REQUIRE_ALL=1 that is an error."""
    try:
        import torch  # noqa: F401
    except ImportError:
        if os.environ.get("SHOAL_REQUIRE_ALL") == "1":
            raise pytest.UsageError("PyTorch is not installed: pip install torch") from None
        skip = pytest.mark.skip(reason="PyTorch is not installed: pip install torch")
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(skip)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a job."""
    return tmp_path / "job"


def tensors_equal(left: _safetensors.Tensors, right: _safetensors.Tensors) -> bool:
    """Whether two files have the same names and bits."""
    return left.keys() == right.keys() and all(
        np.array_equal(left[name].view(np.uint32), right[name].view(np.uint32)) for name in left
    )
