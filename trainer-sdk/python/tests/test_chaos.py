"""Programs under `shoal chaos`: the undisturbed job's bits, and every record counted once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal import _safetensors
from shoal._command import flag, shoal

from . import local_run as runs

pytestmark = pytest.mark.job

#: All that needs no privileges; processes without memory are among them.
KINDS = "kill,freeze,leave,scale,migrate,memory"
#: On an average, where jobs are long enough.
FAULTS_A_JOB = 50
#: A wrapper that stays between the supervisor and the trainer.
FORKING = ["-c", "import subprocess, sys; sys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)"]


def chaos(tmp_path: Path, program: list[str], **options: Any) -> dict[str, Any]:
    """What `shoal chaos` says of a program whose jobs have all held."""
    shape: dict[str, Any] = {**runs.SHAPE, "trainers": "1:3", "replicas": 1, "chaos_kinds": KINDS, "folder": tmp_path / "chaos"}
    flags = [part for name, value in {**shape, **options}.items() for part in flag(name, value)]
    command = [shoal(), "chaos", "-o", "json", *flags, "--", sys.executable, *program]
    ended = subprocess.run(command, env=runs.environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return said


def perceptron(*wrapper: str) -> list[str]:
    return [*wrapper, str(runs.PROGRAMS / "perceptron.py")]


def test_a_short_job_keeps_its_bits_and_counts_under_a_few_faults(tmp_path: Path) -> None:
    chaos(tmp_path, perceptron(), data="records:600", epochs=1, seeds="1..2")


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wrapper", [[], FORKING], ids=["plain", "wrapped"])
def test_numpy_keeps_bits_and_counts(tmp_path: Path, mode: str, wrapper: list[str]) -> None:
    shape = {"data": "records:600", "epochs": 9, "pace_millis": 60}
    said = chaos(tmp_path, perceptron(*wrapper), mode=mode, seeds="1..6", **shape)
    assert said["faults"] >= FAULTS_A_JOB * said["jobs"]


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.parametrize("network", ["lenet", "residual"])
def test_torch_keeps_bits_and_counts(tmp_path: Path, network: str) -> None:
    from .programs import images

    start = tmp_path / "initial.safetensors"
    _safetensors.save(start, images.program(network).initial(7))
    shape = {"data": "records:640", "eval_data": "records:128", "epochs": 6, "pace_millis": 80}
    said = chaos(tmp_path, [str(runs.PROGRAMS / "images.py"), network], warm_start=start, seeds="1..6", **shape)
    assert said["faults"] >= FAULTS_A_JOB * said["jobs"]
