"""A run that continues from its checkpoint is the run that was never interrupted."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.summary.writer import event_file_writer
from torch import nn
from torch_builders import scalars_in, tiny_model, tiny_workload, whole_tiny_set

from mnistbench.core.errors import UsageError
from mnistbench.suite.train.checkpoint import load
from mnistbench.suite.train.result import (
    CHECKPOINT,
    DONE,
    INTERRUPTED,
    METRICS,
    RESULT,
    WEIGHTS,
    Listener,
    Result,
    Settings,
)
from mnistbench.suite.train.run import run
from mnistbench.suite.workloads.adadelta import Adadelta
from mnistbench.suite.workloads.rewrite import fast_model

pytestmark = pytest.mark.usefixtures("known_machine")

SETTINGS = Settings(
    model="tiny",
    dataset="tiny",
    device="cpu",
    step="reference",
    batch_size=6,
    test_batch_size=5,
    epochs=3,
    lr=0.5,
    gamma=0.5,
    log_interval=3,
    threads=1,
    save_model=True,
)


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.5), *tiny_model().children())


WORKLOAD = tiny_workload(
    load=whole_tiny_set,
    dataset="tiny",
    make_model=with_dropout,
    make_optimizer=torch.optim.Adadelta,
    make_fast_model=fast_model,
    make_fast_optimizer=Adadelta,
)


class StopIn(Listener):
    """Stops after some batches."""

    def __init__(self, batches: int) -> None:
        self._left = batches

    def batch(self, samples: int) -> None:  # Listener's
        self._left -= 1

    def stop(self) -> bool:
        return self._left <= 0


def reached(result: Result) -> list[tuple[object, ...]]:
    return [
        (
            epoch.number,
            epoch.step,
            epoch.learning_rate,
            epoch.train_loss,
            epoch.test_loss,
            epoch.test_accuracy,
        )
        for epoch in result.epochs
    ]


@pytest.mark.versions
@pytest.mark.parametrize("step", ["reference", "fast"])
def test_an_interrupted_run_continues_with_the_same_losses(step: str, tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, step=step)
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    expected = run(settings, whole, None, WORKLOAD)
    stopped = run(settings, parts, StopIn(6), WORKLOAD)  # in the second epoch of four batches
    assert (stopped.outcome, len(stopped.epochs)) == (INTERRUPTED, 2)
    checkpoint = load(parts)
    continued = run(checkpoint.settings, parts, None, WORKLOAD, checkpoint=checkpoint)
    assert continued.outcome == DONE
    assert reached(continued) == reached(expected)
    expected_weights, weights = (
        torch.load(folder / WEIGHTS, weights_only=True) for folder in (whole, parts)
    )
    assert all(torch.equal(weights[name], value) for name, value in expected_weights.items())
    expected_rows, rows = (
        [
            (row["part"], row["epoch"], row["step"], row["loss"])
            for row in csv.DictReader((folder / METRICS).read_text().splitlines())
        ]
        for folder in (whole, parts)
    )
    assert rows == expected_rows
    assert continued.wall_ns > load(parts).wall_ns - checkpoint.wall_ns > 0
    assert (
        json.loads((parts / RESULT).read_text())["scalars"]["curves"].keys()
        == expected.scalars.curves.keys()
    )


@pytest.mark.versions
def test_tensorboard_shows_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # TensorBoard reads files of one second in the order of a number of the process without leading
    # zeros: .9 comes after .10.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    run(SETTINGS, tmp_path, StopIn(7), WORKLOAD)
    checkpoint = load(tmp_path)
    run(checkpoint.settings, tmp_path, None, WORKLOAD, checkpoint=checkpoint)
    steps = {tag: [step for step, _ in points] for tag, points in scalars_in(tmp_path).items()}
    assert (steps["train/loss"], steps["test/loss"]) == (
        [18, 20, 38, 40, 58, 60],  # images seen
        [20, 40, 60],
    )


def test_a_finished_run_is_trained_longer(tmp_path: Path) -> None:
    expected = run(SETTINGS, None, None, WORKLOAD)
    run(dataclasses.replace(SETTINGS, epochs=1), tmp_path, None, WORKLOAD)
    assert reached(run(SETTINGS, tmp_path, None, WORKLOAD, checkpoint=load(tmp_path))) == reached(
        expected
    )


def test_a_run_that_was_killed_after_its_last_epoch_gets_its_files(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, save_model=True)
    expected = run(settings, tmp_path, None, WORKLOAD)
    files = {name: (tmp_path / name).read_bytes() for name in (METRICS, WEIGHTS)}
    for name in (*files, RESULT):
        (tmp_path / name).unlink()
    result = run(settings, tmp_path, None, WORKLOAD, checkpoint=load(tmp_path))
    assert (result.outcome, reached(result)) == (DONE, reached(expected))
    assert json.loads((tmp_path / RESULT).read_text())["outcome"] == DONE
    assert (tmp_path / METRICS).read_bytes() == files[METRICS]
    weights = (torch.load(tmp_path / WEIGHTS), torch.load(io.BytesIO(files[WEIGHTS])))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_other_ranks_than_before_draw_other_dropout_masks(tmp_path: Path) -> None:
    run(dataclasses.replace(SETTINGS, epochs=1), tmp_path, None, WORKLOAD)
    checkpoint = load(tmp_path)
    uninterrupted = reached(run(SETTINGS, None, None, WORKLOAD))
    continued = reached(
        run(SETTINGS, None, None, WORKLOAD, checkpoint=dataclasses.replace(checkpoint, random=()))
    )
    assert (continued[0], continued[1][:3]) == (uninterrupted[0], uninterrupted[1][:3])
    assert continued[1] != uninterrupted[1]


def test_a_checkpoint_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(dataclasses.replace(SETTINGS, epochs=1), tmp_path, None, WORKLOAD)
    before = (tmp_path / CHECKPOINT).read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run(SETTINGS, tmp_path, None, WORKLOAD, checkpoint=load(tmp_path))
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    assert not list(tmp_path.glob(f".{CHECKPOINT}*"))


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^--resume: .* has no checkpoint.pt, .*name the directory of a run$"
    ):
        load(tmp_path / "nowhere")


@pytest.mark.versions
@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 half a zip"])
def test_a_damaged_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(content)
    with pytest.raises(
        UsageError,
        match=r"^--resume: .*checkpoint.pt is damaged or no checkpoint \(.*\); train anew$",
    ):
        load(tmp_path)


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CHECKPOINT)
    with pytest.raises(UsageError, match="is not a file; "):
        load(tmp_path)


def test_a_small_checkpoint_that_would_become_a_large_one_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / CHECKPOINT, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10_000))
    with pytest.raises(UsageError, match="it has compressed parts, which torch does not write"):
        load(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with a checkpoint."""
    directory = tmp_path_factory.mktemp("saved")
    run(dataclasses.replace(SETTINGS, epochs=1), directory, None, WORKLOAD)
    return directory


@given(st.data())
def test_a_checkpoint_with_another_bit_or_a_lost_block_is_refused_or_the_same(
    saved: Path, data: st.DataObject
) -> None:
    expected = load(saved)
    content = bytearray((saved / CHECKPOINT).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        content[at : at + 512] = bytes(len(content[at : at + 512]))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, CHECKPOINT).write_bytes(content)
        try:
            read = load(Path(folder))
        except UsageError as error:
            assert "is damaged or no checkpoint" in str(error)  # noqa: PT017
            return
    assert read.model.keys() == expected.model.keys()
    assert all(torch.equal(read.model[name], expected.model[name]) for name in expected.model)
    assert torch.equal(read.order, expected.order)
    assert (read.steps, read.points, read.epochs) == (
        expected.steps,
        expected.points,
        expected.epochs,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", "x"), ("wall_ns", -1), ("order", torch.zeros(3)), ("order", "x")],
)
def test_a_checkpoint_with_wrong_values_is_refused(
    saved: Path, tmp_path: Path, name: str, value: object
) -> None:
    values = torch.load(saved / CHECKPOINT, weights_only=True)
    torch.save({**values, name: value}, tmp_path / CHECKPOINT)
    with pytest.raises(UsageError, match="is damaged or no checkpoint"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["model", "optimizer"])
def test_a_checkpoint_with_the_state_of_others_is_refused(
    saved: Path, tmp_path: Path, name: str
) -> None:
    checkpoint = dataclasses.replace(load(saved), **{name: {}})
    with pytest.raises(UsageError, match="has the state of another model or optimizer"):
        run(SETTINGS, tmp_path, None, WORKLOAD, checkpoint=checkpoint)


@pytest.mark.versions
def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    run(dataclasses.replace(SETTINGS, epochs=1), tmp_path, None, WORKLOAD)
    values = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    torch.save({**values, "schema": 99}, tmp_path / CHECKPOINT)
    with pytest.raises(UsageError, match="has version 99, and this mnistbench reads 1; train anew"):
        load(tmp_path)
