"""What docs/python.md shows is what happens: its blocks are run, and so are both sides of the port in docs/coming-from.md."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import _command

from . import scripts

pytestmark = [pytest.mark.torch, pytest.mark.job]

ROOT = Path(__file__).resolve().parents[3]
GUIDE, PORT = ((ROOT / "docs" / name).read_text() for name in ("python.md", "coming-from.md"))
TEMPLATE = ROOT / "cli" / "src" / "commands" / "new" / "template" / "python"


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """A page's blocks of a language, each with the number of the line before it."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [(page.count("\n", 0, block.start(1)), block[1]) for block in found]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What all blocks of the guide define, one after another."""
    defined: dict[str, Any] = {"__name__": "guide"}
    for line, block in blocks(GUIDE, "python"):
        exec(compile("\n" * line + block, "docs/python.md", "exec"), defined)
    return defined


def test_its_blocks_run_one_after_another(names: dict[str, Any]) -> None:
    assert names["one"].sha256 == names["two"].sha256
    assert (names["result"].folder / "begin.safetensors").exists()


@pytest.mark.parametrize("name", ["in_groups", "jittered", "early"])
def test_its_programs_train(names: dict[str, Any], tmp_path: Path, name: str) -> None:
    result = shoal.run(names[name], epochs=2, folder=tmp_path, microbatch_records=32, microbatches_per_step=4)
    assert result.metrics["accuracy"] > 0.5


def test_its_program_for_numpy_finds_the_line(names: dict[str, Any], tmp_path: Path) -> None:
    result = shoal.run(names["Line"](), epochs=20, folder=tmp_path, microbatch_records=32, microbatches_per_step=2)
    assert result.metrics["squared_error"] < 1e-3
    assert result.tensors()["a"] == pytest.approx(3, abs=0.1)


def test_its_two_ways_to_decode_files_are_the_same(names: dict[str, Any], tmp_path: Path) -> None:
    import torch

    lines = tmp_path / "points.txt"
    with lines.open("wb") as file:
        for x, y in names["points"](64, seed=3):
            # A line is a record: hexadecimal digits stand for what might end one.
            file.write(x.numpy().tobytes().hex().encode() + bytes([48 + int(y)]) + b"\n")
    records = tmp_path / "points.recordio"
    command = [_command.shoal(), "recordio", "pack", "lines", str(lines), "--output", str(records)]
    subprocess.run(command, check=True, capture_output=True)
    flags: dict[str, Any] = {"data": str(records), "eval_data": str(records), "microbatch_records": 16}

    def plain(record: bytes) -> bytes:
        return bytes.fromhex(record[:16].decode()) + bytes([record[16] - 48])

    def rows(batch: Any) -> Any:
        samples = [names["decode"](plain(bytes(record))) for record in batch.records]
        return torch.utils.data.default_collate(samples)

    one, other = names["from_files"], names["from_rows"]
    one._decode = lambda record: names["decode"](plain(record))
    other._decode_batch = rows
    hashes = {shoal.run(program, folder=tmp_path / str(number), **flags).sha256 for number, program in enumerate((one, other))}
    assert len(hashes) == 1


def test_its_first_program_is_what_shoal_new_makes() -> None:
    script = (TEMPLATE / "train.py").read_text()
    assert script.partition("\n\n")[2] == blocks(GUIDE, "python")[0][1]


def test_what_shoal_new_makes_passes_its_own_test(tmp_path: Path) -> None:
    for name in ("train.py", "test_train.py"):
        (tmp_path / name).write_bytes((TEMPLATE / name).read_bytes())
    # From another folder, as people do.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "warning" not in ended.stdout


DATA = '''
"""Vectors, and the largest of their elements."""
import torch

class Digits(torch.utils.data.Dataset):
    def __init__(self, train):
        random = torch.Generator().manual_seed(int(train))
        self.x = torch.randn(512 if train else 128, 10, generator=random)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        return self.x[index], self.x[index].argmax()
'''
MODEL = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 10))
"""


def sides() -> tuple[str, str]:
    """The script of the port before and after."""
    ((_, diff),) = blocks(PORT, "diff")
    before, after = (
        "\n".join(line[1:] for line in diff.splitlines() if not line.startswith(other)) + "\n" for other in ("+", "-")
    )
    return before, after


def test_the_port_trains_before_and_after(tmp_path: Path) -> None:
    for name, text in (("data", DATA), ("model", MODEL), ("before", sides()[0]), ("after", sides()[1])):
        (tmp_path / f"{name}.py").write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    said = scripts.start(tmp_path / "before.py", "--epochs", "2", folder=tmp_path, **one)
    found = re.findall(r"epoch 1: accuracy ([0-9.]+)", said)
    flags = {"trainers": 2, "epochs": 2, "microbatch_records": 32, "microbatches_per_step": 1}
    ended = scripts.train(tmp_path / "after.py", folder=tmp_path, flags=flags)
    assert ended["evaluations"][-1]["metrics"]["accuracy"] == pytest.approx(float(found[0]), abs=0.15)
