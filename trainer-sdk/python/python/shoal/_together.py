"""How the trainers of `shoal.run` begin together, each with its program built.

The first one, which is the calling thread, joins the job when all others are about to; they join when it computes. So its
environment is the job's, and a short job is not over before others have imported what they need.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections.abc import Callable

#: How long the first one waits, in seconds.
_PATIENCE = 60.0


def _closed_in_children(close: Callable[[], None]) -> None:
    """A child that a program forks is no trainer: while it holds an end of a pipe, that is not closed."""
    held = weakref.WeakMethod(close)

    def after_in_child() -> None:
        if close := held():
            close()

    os.register_at_fork(after_in_child=after_in_child)


class First:
    """In the calling process. Others inherit :attr:`ready` and :attr:`go`, the ends of two pipes."""

    def __init__(self) -> None:
        # Each closes the one when it is about to join, or ends; this process closes the other when they may.
        (self._is_ready, self.ready), (self.go, self._may_go) = os.pipe(), os.pipe()
        self._open = {self._is_ready, self.ready, self.go, self._may_go}
        _closed_in_children(self.close)

    def close(self, *ends: int) -> None:
        """Closes these, or all: nobody is to wait any more."""
        for end in self._open.intersection(ends or set(self._open)):
            self._open.discard(end)
            os.close(end)

    def joins(self) -> None:
        """Waits for the others."""
        self.close(self.ready, self.go)
        if self._is_ready in self._open:
            waiting = select.poll()
            waiting.register(self._is_ready)
            waiting.poll(1000 * _PATIENCE)

    def begins(self) -> None:
        """Lets the others begin."""
        if self._open:
            self.close()


class Other:
    """In a further trainer, with the ends that it has inherited."""

    def __init__(self, ready: int, go: int) -> None:
        self._ends = [ready, go]
        _closed_in_children(self.close)

    def close(self) -> None:
        """Closes both."""
        for end in self._ends:
            os.close(end)
        self._ends = []

    def joins(self) -> None:
        """Waits until the first one computes."""
        if not self._ends:
            return
        os.close(self._ends.pop(0))
        with contextlib.suppress(OSError):
            os.read(self._ends[0], 1)
        self.close()

    def begins(self) -> None:
        """Nobody waits for it."""
