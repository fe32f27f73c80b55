"""Elastic training: trainers join, leave and crash, and the model is the one that an undisturbed run would have given."""

from typing import TYPE_CHECKING, Any

from ._batch import Batch, Gradient, Metrics, Parameters
from ._command import Client, CommandError
from ._core import Job, __version__
from ._declare import (
    FTRL,
    SGD,
    Accuracy,
    Adagrad,
    Adam,
    AdamW,
    AMSGrad,
    Auc,
    Average,
    Counter,
    Decisions,
    Initial,
    LogLoss,
    Mean,
    Metric,
    Momentum,
    Parameter,
    Rule,
    Schedule,
    Target,
    constant,
    cosine,
    exponential,
    full,
    inverse_root,
    linear,
    normal,
    piecewise,
    polynomial,
    step_decay,
    truncated_normal,
    uniform,
    zeros,
)
from ._faults import Unfit
from ._main import TrainError, main, train
from ._predictions import predictions
from ._program import Program
from ._run import Result, run

if TYPE_CHECKING:
    from . import records as records

__all__ = [
    "FTRL",
    "SGD",
    "AMSGrad",
    "Accuracy",
    "Adagrad",
    "Adam",
    "AdamW",
    "Auc",
    "Average",
    "Batch",
    "Client",
    "CommandError",
    "Counter",
    "Decisions",
    "Gradient",
    "Initial",
    "Job",
    "LogLoss",
    "Mean",
    "Metric",
    "Metrics",
    "Momentum",
    "Parameter",
    "Parameters",
    "Program",
    "Result",
    "Rule",
    "Schedule",
    "Target",
    "TrainError",
    "Unfit",
    "__version__",
    "constant",
    "cosine",
    "exponential",
    "full",
    "inverse_root",
    "linear",
    "main",
    "normal",
    "piecewise",
    "polynomial",
    "predictions",
    "records",
    "run",
    "step_decay",
    "train",
    "truncated_normal",
    "uniform",
    "zeros",
]


def __getattr__(name: str) -> Any:
    """``shoal.records``, which few programs need, is imported when it is named."""
    if name != "records":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return importlib.import_module(".records", __name__)
