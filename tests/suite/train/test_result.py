"""What a training run reached, as its file has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import case_record, environment, scalars

from mnistbench.core.record import CaseRecord
from mnistbench.suite.train.result import INTERRUPTED, EpochResult, Result, Settings

EPOCH = EpochResult(
    number=1,
    step=4,
    learning_rate=0.5,
    train_samples=20,
    train_loss=1.25,
    train_accuracy=60.0,
    train_ns=4_000_000_000,
)


def result(**changes: Any) -> Result:
    values = {
        "settings": Settings(model="lenet5", threads=2, data_dir=Path("data"), lr=0.25),
        "environment": environment(),
        "outcome": INTERRUPTED,
        "parameter_count": 61_706,
        "epochs": (EPOCH.tested(10, 0.75, 80.0, 500_000_000), EPOCH),
        "scalars": scalars(),
        "wall_ns": 8_000_000_000,
        "profiled": case_record(timing=None),
        "notes": ("no model graph",),
        **changes,
    }
    return Result(**values)


def written(of: Result) -> Any:
    return json.loads(json.dumps(of.to_json(), allow_nan=False))


def test_the_file_has_settings_and_results() -> None:
    content = written(result())
    assert (
        content["settings"]
        | {"model": "lenet5", "threads": 2, "data_dir": "data", "lr": 0.25, "batch_size": 64}
        == content["settings"]
    )
    assert content["outcome"] == "interrupted"
    assert [epoch["test_accuracy"] for epoch in content["epochs"]] == [80.0, None]
    assert content["scalars"]["final"] == dict(scalars().final)
    assert content["scalars"]["curves"]["train/loss"] == [
        list(point) for point in scalars().curves["train/loss"]
    ]
    assert CaseRecord.from_json(content["profiled"]) == case_record(timing=None)
    assert content["notes"] == ["no model graph"]


def test_a_missing_value_is_null_in_the_file() -> None:
    content = written(
        result(
            profiled=None,
            epochs=(EpochResult(1, 1, 1.0, 4, None, None, 1).tested(4, None, None, 1),),
        )
    )
    assert content["profiled"] is None
    [epoch] = content["epochs"]
    assert [
        epoch[name] for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
    ] == [None] * 4


def test_speed_is_of_training_alone() -> None:
    assert EPOCH.tested(10, 0.75, 80.0, 500_000_000).samples_per_second == 5.0
    assert written(result())["epochs"][0]["samples_per_second"] == 5.0


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        (Settings(device="cpu", step="reference"), "convnet-b64-cpu-mnist"),
        (
            Settings(
                model="lenet5",
                device="cuda:1",
                step="reference",
                dtype="bfloat16",
                dataset="digits",
            ),
            "lenet5-b64-cuda1-bfloat16-digits",
        ),
        (Settings(device="cpu", step="fast"), "convnet-b64-cpu-fast-mnist"),
    ],
)
def test_a_label_tells_runs_apart(settings: Settings, label: str) -> None:
    assert settings.label == label
