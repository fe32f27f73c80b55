"""What tests have: the command, records, and PyTorch where it is installed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shoal import CommandError, _command, _safetensors


def pytest_configure(config: pytest.Config) -> None:
    """Finds the command: as programs do, or as cargo has built it."""
    try:
        _command.shoal()
    except CommandError as error:
        target = Path(os.environ.get("CARGO_TARGET_DIR") or Path(__file__).resolve().parents[3] / "target")
        built = [binary for profile in ("release", "debug") if (binary := target / profile / "shoal").exists()]
        if "SHOAL_BINARY" in os.environ or not built:
            raise pytest.UsageError(f"{error}, or build it by `cargo build -p shoal-cli`") from error
        os.environ["SHOAL_BINARY"] = str(built[0])


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
