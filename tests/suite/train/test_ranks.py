"""Several ranks train what one process trains, and end together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import forks
import pytest
import torch
from rank_builders import TORCHRUN, imported_without_a_launcher, plain_environ, start, wait

from mnistbench.suite.train.result import CHECKPOINT, METRICS, RESULT, WEIGHTS

#: LeNet-5 has no dropout, whose masks would differ from rank to rank.
SMALL = (
    "train",
    "--dataset",
    "digits",
    "--model",
    "lenet5",
    "--no-accel",
    "--threads",
    "1",
    "--log-interval",
    "2",
)

#: Within which all ranks have ended after one has failed.
TOGETHER_S = 30


def written(directory: Path) -> list[str]:
    """Return the files of a run beside the one of TensorBoard."""
    return sorted(
        path.name for path in directory.iterdir() if not path.name.startswith("events.out.")
    )


def result_in(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / RESULT).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("world_size", "batch_size", "step"),
    # 1,437 samples: of the last batch of 1 sample, two of three ranks have none.
    [
        (2, 256, "reference"),
        pytest.param(3, 359, "fast", marks=pytest.mark.thorough),
    ],
)
def test_ranks_have_the_losses_of_one_process(
    world_size: int, batch_size: int, step: str, tmp_path: Path
) -> None:
    arguments = (
        *SMALL,
        "--batch-size",
        str(batch_size),
        "--step",
        step,
        "--epochs",
        "2",
        "--test-batch-size",
        "100",
    )
    arguments = (*arguments, "--save-model")
    [alone] = wait(start(1, *arguments, "--output", "alone", cwd=tmp_path))
    together = wait(start(world_size, *arguments, "--output", "together", cwd=tmp_path))
    assert [(rank.returncode, rank.stderr) for rank in (alone, *together)] == [(0, "")] * (
        1 + world_size
    )
    assert f"{world_size} ranks, each on cpu, 1 thread" in together[0].stdout
    assert [rank.stdout for rank in together[1:]] == [""] * (world_size - 1)
    expected = result_in(tmp_path / "alone")
    summed = result_in(tmp_path / "together")
    assert (expected["world_size"], summed["world_size"]) == (1, world_size)
    assert written(tmp_path / "together") == sorted([RESULT, METRICS, WEIGHTS, CHECKPOINT])
    for mine, theirs in zip(summed["epochs"], expected["epochs"], strict=True):
        assert (mine["train_samples"], mine["test_samples"], mine["step"]) == (
            1437,
            360,
            theirs["step"],
        )
        # float32 sums in another order; ten steps at this learning rate amplify the difference.
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        assert mine["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-3)
        # One image.
        assert mine["test_accuracy"] == pytest.approx(theirs["test_accuracy"], abs=100 / 360)
    weights, summed_weights = (
        torch.load(tmp_path / name / WEIGHTS, weights_only=True) for name in ("alone", "together")
    )
    for name, value in weights.items():
        torch.testing.assert_close(summed_weights[name], value, rtol=1e-2, atol=1e-3)


@pytest.mark.thorough  # six processes import torch
def test_a_restart_by_the_launcher_continues_the_run_with_the_same_losses(tmp_path: Path) -> None:
    # convnet has dropout.
    arguments = (*SMALL, "--model", "convnet", "--batch-size-per-rank", "250", "--epochs")
    for output, epochs in (("whole", "2"), ("parts", "1")):
        assert [
            rank.returncode
            for rank in wait(start(2, *arguments, epochs, "--output", output, cwd=tmp_path))
        ] == [0, 0]
    restarted = {"TORCHELASTIC_RESTART_COUNT": "1"}
    again = wait(start(2, *arguments, "2", "--output", "parts", cwd=tmp_path, **restarted))
    assert [(rank.returncode, rank.stderr) for rank in again] == [(0, "")] * 2
    assert "continuing after epoch 1" in again[0].stdout
    whole, parts = (result_in(tmp_path / name) for name in ("whole", "parts"))
    assert parts["settings"]["batch_size"] == whole["settings"]["batch_size"] == 500
    assert [epoch["train_loss"] for epoch in parts["epochs"]] == [
        epoch["train_loss"] for epoch in whole["epochs"]
    ]


# ---- Failure -------------------------------------------------------------------------------------

#: mnistbench with a ``fault`` in the third step.
FAILING = """
import os, signal, sys
from mnistbench.cli import main
from mnistbench.suite.workloads import step

update, left = step.Step.update, 3

def failing(self):
    global left
    left -= 1
    if not left:
        {fault}
    update(self)

step.Step.update = failing
sys.exit(main())
"""


def end_after(fault: str, tmp_path: Path) -> list[subprocess.CompletedProcess[str]]:
    """Return two ranks when both have ended, after a fault of the second one."""
    (tmp_path / "failing.py").write_text(FAILING.format(fault=fault))
    ranks = start(
        2,
        *SMALL,
        "--save-model",
        "--output",
        "run",
        cwd=tmp_path,
        modules=("mnistbench", "failing"),
    )
    return wait(ranks)


@pytest.mark.parametrize(
    ("error", "shown", "recorded"),
    [
        (
            (
                "RuntimeError(\"DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                '1 bytes")'
            ),
            "mnistbench: rank 1 of 2: memory of cpu does not suffice for batches of 64",
            "UsageError: memory of cpu does not suffice for batches of 64",
        ),
        pytest.param(
            'ValueError("odd")', "ValueError: odd", "ValueError: odd", marks=pytest.mark.versions
        ),
    ],
)
def test_a_rank_that_raises_ends_all_and_records_its_error_for_torchrun(
    error: str, shown: str, recorded: str, tmp_path: Path
) -> None:
    ranks = end_after(f"raise {error}", tmp_path)
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert shown in ranks[1].stderr
    errors = json.loads((tmp_path / "error1.json").read_text(encoding="utf-8"))
    assert errors["message"]["message"].startswith(recorded)
    assert written(tmp_path / "run") == []


def test_the_recorded_error_is_whole_if_torchrun_ends_the_rank_meanwhile(tmp_path: Path) -> None:
    """torchrun fails, and reports no rank, if it reads a part of the file."""
    fault = (
        "import json; dump = json.dump; "
        "json.dump = lambda *a: (os.kill(os.getpid(), signal.SIGTERM), dump(*a)); "
        'raise ValueError("odd")'
    )
    ranks = end_after(fault, tmp_path)
    assert [rank.returncode for rank in ranks] == [2, 2]
    errors = json.loads((tmp_path / "error1.json").read_text(encoding="utf-8"))
    assert errors["message"]["message"] == "ValueError: odd"


@pytest.mark.versions
def test_a_rank_ends_when_another_one_is_killed(tmp_path: Path) -> None:
    ranks = end_after("os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert [rank.returncode for rank in ranks] == [2, -signal.SIGKILL]


def wait_for(path: Path) -> None:
    """Wait for a file that a running command writes."""
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)


@pytest.mark.versions
def test_torchrun_reports_a_rank_that_is_killed(tmp_path: Path) -> None:
    arguments = (*SMALL, "--epochs", "1000", "--save-model", "--output", "run")
    launcher = forks.Fork(*TORCHRUN, "mnistbench", *arguments, cwd=tmp_path, env=plain_environ())
    try:
        wait_for(tmp_path / "run" / CHECKPOINT)
        os.kill(_process_of_rank(1, launcher.pid), signal.SIGKILL)
        done = launcher.wait(TOGETHER_S)
    finally:
        launcher.kill()
    assert done.returncode != 0
    # Its times are whole seconds, so the rank that lost the connection may come before.
    report = done.stderr.partition("Failures:")[2]
    assert "rank      : 1 (local_rank: 1)" in report, done.stderr
    assert "Signal 9 (SIGKILL) received" in report
    assert not (tmp_path / "run" / WEIGHTS).exists()
    assert torch.load(tmp_path / "run" / CHECKPOINT, weights_only=True)["epochs"]


def _process_of_rank(rank: int, launcher: int) -> int:
    for line in subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        pid, parent = map(int, line.split())
        if parent == launcher:
            with open(f"/proc/{pid}/environ", encoding="utf-8") as file:  # noqa: PTH123
                if f"LOCAL_RANK={rank}" in file.read().split("\0"):
                    return pid
    raise AssertionError("no such rank")


def test_an_error_of_all_ranks_is_printed_once(tmp_path: Path) -> None:
    [rank] = wait(start(2, *SMALL, "--lr", "no", cwd=tmp_path, modules=("mnistbench",)))
    assert rank.returncode == 2
    assert rank.stderr == "mnistbench: --lr: 'no' cannot be used; give a number above 0\n"


def test_without_a_launcher_nothing_of_torch_distributed_or_pytest_is_imported(
    tmp_path: Path,
) -> None:
    arguments = (*SMALL, "--dry-run", "--output", "run")
    assert imported_without_a_launcher(*arguments, cwd=tmp_path, fork=False) == []


def test_an_interrupt_of_all_ranks_keeps_what_was_trained(tmp_path: Path) -> None:
    ranks = start(2, *SMALL, "--epochs", "1000", "--output", "run", cwd=tmp_path)
    wait_for(tmp_path / "run" / CHECKPOINT)
    for rank in (1, 0, 1):
        ranks[rank].send_signal(signal.SIGINT)
    ended = wait(ranks, TOGETHER_S)
    assert [(rank.returncode, rank.stderr) for rank in ended] == [(130, "")] * 2
    assert "mnistbench train --resume run continues after the last whole epoch" in ended[0].stdout
    assert result_in(tmp_path / "run")["outcome"] == "interrupted"
