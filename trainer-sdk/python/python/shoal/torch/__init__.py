"""Training programs of PyTorch."""

from ._files import load, save
from ._optimizers import Refused, rule_of, schedules_of
from ._program import Program

__all__ = ["Program", "Refused", "load", "rule_of", "save", "schedules_of"]
