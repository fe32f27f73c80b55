"""What an exception of a program says."""

from __future__ import annotations

import errno

import pytest

from shoal import Unfit, _faults


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OutOfMemoryError("of a device"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
        RuntimeError("could not create a primitive"),
        RuntimeError("unable to mmap 4096 bytes from file <model.pt>: Cannot allocate memory (12)"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"),
        Unfit("the cache is gone"),
    ],
)
def test_want_of_memory_disk_or_device_is_the_trainers(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert _faults.told(raised(error))[0] == "unfit"
    wrapped = ValueError("while decoding")
    wrapped.__cause__ = error
    assert _faults.told(raised(wrapped))[0] == "unfit", "also as a cause"


@pytest.mark.parametrize(
    "error", [ValueError("label"), OSError(errno.ENOENT, "No such file"), RuntimeError("shape mismatch"), AssertionError()]
)
def test_everything_else_is_the_records(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert _faults.told(raised(error))[0] == "records"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_who_asks_to_stop_complains_of_nothing(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert _faults.told(raised(error))[0] == "leave"
    assert capsys.readouterr().err == ""


def test_the_words_are_the_exception_and_where_it_was_raised() -> None:
    def decode() -> None:
        raise ValueError("label\nof record 7 is torn")

    try:
        decode()
    except ValueError as error:
        words = _faults.told(error)[1]
    assert words.startswith("ValueError: label of record 7 is torn (")
    assert "test_faults.py:" in words
    assert "in decode" in words


def test_a_traceback_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        try:
            raise LookupError(f"record {number}")
        except LookupError as error:
            _faults.told(error)
    printed = capsys.readouterr().err
    assert printed.count("Traceback") == 1
    assert "LookupError: record 0" in printed
