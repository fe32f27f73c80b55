"""What a program may write into its declaration, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import _declare


def declared(*parameters: Any, metrics: Any = None, decisions: Any = None) -> Any:
    return json.loads(_declare.declaration(parameters, metrics or {}, decisions, 0, 10))


def test_numbers_of_numpy_are_those_of_python() -> None:
    def parameter(real: Any, whole: Any) -> Any:
        schedule = shoal.cosine(to=real(0.5), warmup=whole(2), steps=whole(8))
        rule = shoal.Adam(real(0.25), betas=(real(0.5), real(0.75)), weight_decay=real(0.125), schedule=schedule)
        aim = shoal.Target(stop_after=whole(3), plateau=(whole(2), real(0.5)))
        decisions = shoal.Decisions(clip_norm=real(2), skip_non_finite=whole(3))
        made = shoal.Parameter("w", (whole(3), whole(4)), rule, shoal.normal(real(0.5)))
        return declared(made, metrics={"a": shoal.Accuracy(aim=aim)}, decisions=decisions)

    assert parameter(np.float32, np.int64) == parameter(float, int)


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (shoal.Parameter("w", 10, shoal.SGD(0.1)), r"'w' has shape 10: give a tuple, \(10,\)"),  # type: ignore[arg-type]
        (shoal.Parameter("w", (1,), shoal.SGD(0.1, weight_decay=object())), "a object is declared, where a number"),  # type: ignore[arg-type]
        (shoal.Parameter("w", (1,), shoal.SGD(0.1, weight_decay=np.float32("nan"))), "parameter 'w': nan is declared"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_number_and_no_shape_is_named(parameter: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        declared(parameter)
