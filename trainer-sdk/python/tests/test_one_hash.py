"""One hash for 1, 2, 3 and 5 trainers, for a data set and for RecordIO files of the same records."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import records

from .programs import counting, perceptron

pytestmark = [pytest.mark.job, pytest.mark.nightly]

SHAPE: dict[str, Any] = {"microbatch_records": 16, "microbatches_per_step": 8, "seed": 7, "epochs": 3}


class PerceptronOfFiles(perceptron.Counted):
    """Reads its points from records."""

    data = None
    eval_data = None

    def points(self, batch: shoal.Batch) -> Sequence[Any]:
        return [pickle.loads(record) for record in batch.records]


@pytest.fixture(autouse=True)
def _paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs last until all trainers have joined."""
    monkeypatch.setenv("SHOAL_PACE_MILLIS", "30")


def packed(samples: Sequence[Any], path: Path) -> Path:
    rows = (pickle.dumps(samples[index]) for index in range(len(samples)))
    records.pack(rows, path, **records.NUMBERED_CHUNK)  # type: ignore[arg-type]
    return path


def hashes(tmp_path: Path, name: str, program: Callable[[], shoal.Program], **options: Any) -> set[str]:
    """Of jobs with other numbers of trainers, whose counts are exact. Metrics would be in the hash: nothing is evaluated."""
    found = set()
    for trainers in (1, 2, 3, 5):
        folder = tmp_path / f"{name}-{trainers}"
        result = shoal.run(program(), trainers=trainers, folder=folder, eval_data=None, **options, **SHAPE)
        assert sum(trainer["microbatches"] > 0 for trainer in result.status["trainers"]) == trainers, "each has computed"
        for counter in counting.NAMES:
            assert (result.tensors()[counter] == 1 + 4 + 16).all()
        found.add(result.sha256)
    return found


def test_a_perceptron(tmp_path: Path) -> None:
    files = packed(perceptron.Points(perceptron.RECORDS), tmp_path / "points.recordio")
    of_numbers = hashes(tmp_path, "numbers", perceptron.Counted)
    of_files = hashes(tmp_path, "files", PerceptronOfFiles, data=files)
    assert len(of_numbers | of_files) == 1


@pytest.mark.torch
@pytest.mark.parametrize("name", ["lenet", "residual"])
def test_networks_of_pytorch(tmp_path: Path, name: str) -> None:
    from .programs import images

    def decode(record: bytes) -> Any:
        pixels, label = pickle.loads(record)
        return (images.augmented(pixels) if name == "residual" else pixels), label

    options: dict[str, Any] = {"data": None, "eval_data": None, "evaluate": None, "predict": None, "decode": decode}
    files = packed(images.Images(640), tmp_path / "images.recordio")
    of_numbers = hashes(tmp_path, "numbers", functools.partial(images.program, name))
    of_files = hashes(tmp_path, "files", functools.partial(images.program, name, **options), data=files)
    assert len(of_numbers | of_files) == 1
