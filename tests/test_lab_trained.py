"""What a training run saved is read back as it was; what is not whole is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import case_record, environment, scalars

from mnistbench.errors import RecordError
from mnistbench.lab.trained import INTERRUPTED, EpochResult, Result, Settings, read_result

EPOCH = EpochResult(
    number=1, step=4, learning_rate=0.5, train_samples=20, train_loss=1.25, train_accuracy=60.0, train_ns=4_000_000_000
)  # fmt: skip


def result(**changes: Any) -> Result:
    values = {
        "settings": Settings(model="lenet5", threads=2, data_dir="data", lr=0.25),
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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"profiled": None, "epochs": (), "notes": ()},
        {"settings": Settings()},
        {"epochs": (EpochResult(1, 1, 1.0, 4, None, None, 1).tested(4, None, None, 1),)},
    ],
)
def test_json_and_back(changes: dict[str, Any]) -> None:
    written = result(**changes)
    assert read_result(json.dumps(written.to_json(), allow_nan=False), "result.json") == written


def test_speed_is_of_training_alone() -> None:
    assert EPOCH.tested(10, 0.75, 80.0, 500_000_000).samples_per_second == 5.0
    assert result().to_json()["epochs"][0]["samples_per_second"] == 5.0


def damaged(*path: str | int, value: Any) -> str:
    data: Any = result().to_json()
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "schema: None is not a version"),
        (damaged("schema", value=2), "schema: 2 is newer than the 1"),
        (damaged("settings", "lr", value="fast"), "settings.lr: needs a finite number, found 'fast'"),
        (damaged("settings", "batch_size", value=1.5), "settings.batch_size: needs a whole number"),
        (damaged("settings", "threads", value="all"), "settings.threads: needs a whole number"),
        (damaged("settings", "dry_run", value=0), "settings.dry_run: needs true or false"),
        (damaged("outcome", value="lost"), "outcome: needs done or interrupted"),
        (damaged("epochs", 1, "train_ns", value=-1), "epochs[1].train_ns: needs a time of at least 0 ns"),
        (damaged("profiled", "schema", value=99), "profiled.schema: 99 is newer"),
        (damaged("settings", value={}), "settings.model: is missing"),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(RecordError) as caught:
        read_result(text, "runs/a/result.json")
    assert str(caught.value).startswith("runs/a/result.json: ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        (Settings(), "convnet-b64-cpu-mnist"),
        (Settings(model="lenet5", device="cuda:1", dtype="bfloat16", dataset="digits"), "lenet5-b64-cuda1-bfloat16-digits"),
    ],
)
def test_a_label_tells_runs_apart(settings: Settings, label: str) -> None:
    assert settings.label == label
