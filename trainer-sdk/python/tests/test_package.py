"""The package as a whole: what importing it costs, and what an installed one says of itself."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

import shoal


def imports(*names: str) -> set[str]:
    """The modules that are there in a new process that has imported these."""
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_imports_no_framework() -> None:
    assert not imports("shoal", "shoal.records") & {"numpy", "torch", "asyncio", "importlib.metadata"}


def test_an_installed_package_says_its_version_and_licence() -> None:
    try:
        found = metadata.metadata("shoal")
    except metadata.PackageNotFoundError:
        pytest.skip("the package is not installed, but lies beside its sources")
    assert found["Version"] == shoal.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert found.get_all("License-File") == ["LICENSE"]
