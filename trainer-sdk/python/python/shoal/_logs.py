"""The trainer's log as records of Python's `logging`."""

from __future__ import annotations

import json
import logging

#: What Rust's levels are here.
_LEVELS = {"ERROR": logging.ERROR, "WARN": logging.WARNING, "INFO": logging.INFO, "DEBUG": logging.DEBUG, "TRACE": 5}

_logger = logging.getLogger("shoal")


def log(lines: list[str], lost: int) -> None:
    """Logs lines of JSON: the message, and ``name=value`` of each field; and how many before them were not kept."""
    if lost:
        _logger.warning("%d lines before this one were not kept: none was taken for too long", lost)
    for line in lines:
        said = json.loads(line)
        level = _LEVELS[said["level"]]
        if _logger.isEnabledFor(level):
            fields = "".join(f" {name}={value}" for name, value in said["fields"].items())
            _logger.log(level, "%s%s", said["message"], fields)
