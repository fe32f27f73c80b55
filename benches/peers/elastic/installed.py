"""What a comparison needs, in a folder of its own: a virtual environment of pinned versions, Shoal built from here, MNIST."""

import json
import os
import subprocess
import sys
from pathlib import Path

from drive import Tools

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
PYTORCH = REPOSITORY / "trainer-sdk" / "python" / "tests" / "requirements.txt"
# A release build with one processor takes some ten minutes, PyTorch's 5 GB as long over a slow line.
INSTALL_SECONDS = 3600


class CannotInstall(Exception):
    """What a system needs is not to be had; the words say what and why."""


def prepare(folder):
    """The environment with PyTorch, and the images."""
    environment = folder / "venv"
    python = environment / "bin" / "python"
    if not python.exists():
        _run("a virtual environment", [sys.executable, "-m", "venv", str(environment)])
    _pip(python, "PyTorch", "--no-deps", "--requirement", str(PYTORCH))
    images = folder / "mnist"
    _run("MNIST", [sys.executable, str(REPOSITORY / "trainer-sdk" / "examples" / "fetch.py"), "mnist", str(images)])
    return Tools(environment / "bin", python, images)


def install(tools, needs):
    """What one system needs beside PyTorch: nothing, a file of requirements, or Shoal as it lies here."""
    if needs == "shoal":
        # maturin is among what PyTorch came with; cargo builds only what has changed.
        sources = [str(REPOSITORY / "trainer-sdk" / "python"), str(REPOSITORY / "cli")]
        _pip(tools.python, "Shoal", "--no-deps", "--no-build-isolation", "--force-reinstall", *sources)
    elif needs is not None:
        _pip(tools.python, needs, "--no-deps", "--requirement", str(HERE / f"requirements-{needs}.txt"))


def versions(tools):
    """Of what is installed the versions, by name."""
    wanted = ("torch", "torchft-nightly", "torchdata", "dlrover", "shoal")
    program = f"""
import importlib.metadata as metadata, json
found = {{}}
for name in {wanted!r}:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
    return json.loads(subprocess.run([str(tools.python), "-c", program], capture_output=True, text=True, check=True).stdout)


def _pip(python, what, *arguments):
    flags = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run(what, [str(python), "-m", "pip", "install", *flags, *arguments])


def _run(what, command):
    """Runs a command of the set-up.

    Raises:
        CannotInstall: With its last words.

    """
    print(f"setting up: {what}", file=sys.stderr, flush=True)
    # maturin is a program of the environment. Stripped programs would be compiled anew beside those that cargo has built.
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = {**os.environ, "PATH": path, "MATURIN_STRIP": "false"}
    try:
        done = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"{what}: {error}") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise CannotInstall(f"{what}: {' '.join(command)} ended with {done.returncode}: {' '.join(words[-3:])}")
