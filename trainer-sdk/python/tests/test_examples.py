"""The examples, as their users start them: on a handful of images, and the perceptron as it is."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from . import scripts

pytestmark = pytest.mark.job

EXAMPLES = Path(__file__).parents[1] / "examples"


def write_idx(file: Path, values: npt.NDArray[np.uint8]) -> None:
    """Writes bytes as the IDX files of MNIST are, zipped where the name says so."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    whole = header + values.tobytes()
    file.write_bytes(gzip.compress(whole) if file.suffix == ".gz" else whole)


def write_images(folder: Path, suffix: str) -> None:
    """Bars, whose place says what they are: 256 images to train on, 64 held out."""
    folder.mkdir()
    for part, count in (("train", 256), ("t10k", 64)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[:, 2 + 2 * label : 5 + 2 * label] = 255
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", labels)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "suffix", "metrics"), [("mnist", "", {"accuracy", "log_loss"}), ("resnet", ".gz", {"accuracy"})]
)
def test_images_train_to_one_hash_for_one_trainer_and_two(tmp_path: Path, name: str, suffix: str, metrics: set[str]) -> None:
    write_images(tmp_path / "images", suffix)
    flags: dict[str, Any] = {"microbatch_records": 32, "microbatches_per_step": 2, "epochs": 1}
    ended = [
        scripts.train(
            EXAMPLES / f"{name}.py",
            "--data",
            "images",
            folder=tmp_path,
            flags={"folder": str(trainers), "trainers": trainers, **flags},
        )
        for trainers in (1, 2)
    ]
    assert ended[0]["parameters_sha256"] == ended[1]["parameters_sha256"]
    assert ended[0]["steps"] == 4
    assert ended[0]["evaluations"][-1]["metrics"].keys() == metrics


def test_the_perceptron_learns(tmp_path: Path) -> None:
    ended = scripts.train(EXAMPLES / "perceptron.py", folder=tmp_path, flags={"trainers": 2, "epochs": 60})
    assert ended["evaluations"][-1]["metrics"]["accuracy"] > 0.85
