"""What an exception of a program says: that it is to stop, that this trainer cannot, or that the records are to blame."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NoReturn

#: What a machine has too little of.
_WANTS = {errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}

#: Exceptions of frameworks by which a trainer says that it has no memory, or that its device has failed. By name, so that nothing
#: is imported for them.
_UNFIT_TYPES = {"OutOfMemoryError", "AcceleratorError"}

#: Words of exceptions that have no type of their own (PyTorch's processor allocator and mapped files, oneDNN's code and scratch
#: memory, Python's threads, CUDA, XLA).
_UNFIT_WORDS = (
    "can't allocate memory",
    "unable to mmap",
    "could not create a primitive",
    "could not execute a primitive",
    "could not create a memory",
    "can't start new thread",
    "CUDA error",
    "CUDA out of memory",
    "CUBLAS_STATUS",
    "CUDNN_STATUS",
    "RESOURCE_EXHAUSTED",
)

#: This package's own frames are left out of what is told.
_OWN = Path(__file__).parent

#: Tracebacks of this trainer that were printed: a record is tried alone, and then again by others, and fails as before.
_printed: set[str] = set()


class Unfit(Exception):
    """Raised by a program: this trainer cannot, whoever else can.

    It ends, no record is blamed, and others compute the microbatch.
    """


def begin() -> None:
    """A trainer begins: what it raises is printed, whatever one before it in this process has raised."""
    _printed.clear()


def told(raised: BaseException) -> tuple[Literal["leave", "unfit", "records"], str]:
    """What an exception says, and the words for the master: its type, its message and where it was raised."""
    if isinstance(raised, KeyboardInterrupt | SystemExit | GeneratorExit):
        return "leave", type(raised).__name__
    _print_once(raised)
    return ("unfit" if any(map(_is_unfit, _chain(raised))) else "records"), words(raised)


def is_of_signal_handler(raised: BaseException) -> bool:
    """Whether it was raised in a handler of signals that Python has: by somebody outside."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(raised.__traceback__))


def _chain(raised: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while raised is not None and id(raised) not in seen:
        seen.add(id(raised))
        yield raised
        raised = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)


def _is_unfit(raised: BaseException) -> bool:
    if isinstance(raised, Unfit | MemoryError):
        return True
    if isinstance(raised, OSError):
        return raised.errno in _WANTS
    names = {base.__name__ for base in type(raised).__mro__}
    if names & _UNFIT_TYPES:
        return True
    return isinstance(raised, RuntimeError) and any(words in str(raised) for words in _UNFIT_WORDS)


def words(raised: BaseException) -> str:
    """An exception in one line: its type, its message and where it was raised."""
    said = "; ".join(traceback.format_exception_only(type(raised), raised)).replace("\n", " ").strip()
    frames = [
        f"{frame.filename}:{frame.lineno} in {frame.name}"
        for frame in reversed(traceback.extract_tb(raised.__traceback__))
        if not Path(frame.filename).is_relative_to(_OWN)
    ]
    return f"{said} ({', '.join(frames[:4])})" if frames else said


def _print_once(raised: BaseException) -> None:
    """The traceback to standard error, once for all exceptions of the same type from the same place."""
    place = "".join(traceback.format_tb(raised.__traceback__)[-1:]) + type(raised).__name__
    if place in _printed:
        return
    _printed.add(place)
    print("".join(traceback.format_exception(raised)), end="", file=sys.stderr, flush=True)


def end_child(raised: BaseException | None) -> NoReturn:
    """Ends a process that a function of the program has forked off, as the interpreter would: it is no trainer."""
    code = 0
    if isinstance(raised, SystemExit):
        code = raised.code if isinstance(raised.code, int) else int(raised.code is not None)
        if isinstance(raised.code, str):
            print(raised.code, file=sys.stderr)
    elif raised is not None:
        code = 1
        traceback.print_exception(raised)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
