"""TensorBoard reads what `shoal run --tensorboard` writes, and has the values of `result.json`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .local_run import PROGRAMS, local_run

pytestmark = pytest.mark.job

PERCEPTRON = PROGRAMS / "perceptron.py"


@pytest.fixture
def tensorboard() -> Any:
    """TensorBoard's reader of event files; without it tests are left out, and with SHOAL_REQUIRE_ALL=1 that is an error."""
    try:
        from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]
    except ImportError:
        why = "TensorBoard is not installed: pip install tensorboard"
        if os.environ.get("SHOAL_REQUIRE_ALL") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return event_accumulator


def read(tensorboard: Any, events: Path) -> Any:
    """What TensorBoard finds of the only run below a folder, all of it."""
    (run,) = events.iterdir()
    found = tensorboard.EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def assert_evaluations(found: Any, result: dict[str, Any]) -> None:
    """Each value of an evaluation is there once, and none beside them."""
    assert len(result["evaluations"]) > 1, result
    for name in result["evaluations"][0]["metrics"]:
        told = [(scalar.step, scalar.value) for scalar in found.Scalars(f"metrics/{name}")]
        expected = [(each["step"], float(np.float32(each["metrics"][name]))) for each in result["evaluations"]]
        assert told == expected, name


def test_tensorboard_has_the_values_of_the_result(tensorboard: Any, tmp_path: Path) -> None:
    events = tmp_path / "events"
    with local_run(tmp_path / "run", [PERCEPTRON, "--rate=0.5"], trainers=2, epochs=4, tensorboard=events) as run:
        run.report()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    found = read(tensorboard, events)
    assert_evaluations(found, result)
    last = {tag: found.Scalars(tag)[-1] for tag in found.Tags()["scalars"]}
    assert last["waste/records_computed"].value == result["records_computed"]
    assert last["waste/records_wasted"].value == result["records_wasted"]
    assert last["progress/rewinds"].value == result["rewinds"]
    assert last["progress/records_trained"].step == result["steps"]
    assert last["members/pservers"].value == len(result["pservers"])
    assert max(scalar.value for scalar in found.Scalars("members/trainers")) == 2

    from tensorboard.plugins.hparams import metadata  # type: ignore[import-untyped]

    plugin = found.PluginTagToContent("hparams")
    begun = metadata.parse_session_start_info_plugin_data(plugin[metadata.SESSION_START_INFO_TAG])
    assert begun.hparams["program/rate"].number_value == 0.5
    assert begun.hparams["seed"].number_value == 7
    assert begun.hparams["mode"].string_value == "sync"
    assert begun.group_name == result["job"]
    ended = metadata.parse_session_end_info_plugin_data(plugin[metadata.SESSION_END_INFO_TAG])
    assert ended.status == 1
    assert ended.end_time_secs >= begun.start_time_secs


def test_a_run_that_was_killed_and_goes_on_is_one_run_to_tensorboard(tensorboard: Any, tmp_path: Path) -> None:
    events = tmp_path / "events"
    options: dict[str, Any] = {"epochs": 6, "tensorboard": events, "checkpoint_steps": 5}
    with local_run(tmp_path / "run", [PERCEPTRON], pace_millis=20, **options) as run:

        def is_evaluated() -> bool:
            return events.exists() and any(events.iterdir()) and "metrics/auc" in read(tensorboard, events).Tags()["scalars"]

        run.until(is_evaluated, "an evaluation in the event file")
        run.process.send_signal(signal.SIGINT)
        run.ended()
    with local_run(tmp_path / "run", [PERCEPTRON], resume=True, **options) as run:
        result = run.report()
    (folder,) = events.iterdir()
    assert len(list(folder.iterdir())) == 2
    assert_evaluations(read(tensorboard, events), result)
