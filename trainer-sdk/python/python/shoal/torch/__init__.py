"""Training programs of PyTorch."""

from ._module import load_into
from ._optimizers import Refused, rule_of, schedules_of
from ._program import Program

__all__ = ["Program", "Refused", "load_into", "rule_of", "schedules_of"]
