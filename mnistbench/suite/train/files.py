"""The files of a run: TensorBoard's, the weights, ``metrics.csv`` and ``result.json``.

All are made of log intervals, epochs and the result, which hold each number once.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mnistbench.core.files import replace_file
from mnistbench.showing.table import csv_text
from mnistbench.suite.measuring import tensorboard
from mnistbench.suite.measuring.case import fork_random
from mnistbench.suite.train.result import (
    METRICS,
    RESULT,
    WEIGHTS,
    EpochResult,
    Point,
    Result,
    Settings,
)
from mnistbench.suite.workloads.data import Split
from mnistbench.suite.workloads.workload import Workload

#: Columns of ``metrics.csv``: a row per log interval (part ``train``) and per test (part ``test``).
#: Accuracy in percent.
COLUMNS = (
    "part",
    "epoch",
    "step",
    "samples",
    "loss",
    "accuracy",
    "learning_rate",
    "ns",
    "samples_per_second",
)

#: Tag -> points of a curve: step or epoch, and value; None is a value that is missing.
Curves = dict[str, list[tuple[int, float | None]]]


def curves(points: Sequence[Point], epochs: Sequence[EpochResult]) -> Curves:
    """Return the curves of log intervals, over steps, and those of tests, over epochs."""
    tested = [epoch for epoch in epochs if epoch.test_samples]
    complete: Curves = {
        "train/loss": [(point.step, point.loss) for point in points],
        "train/accuracy": [(point.step, point.accuracy) for point in points],
        "train/learning_rate": [(point.step, point.learning_rate) for point in points],
        "train/samples_per_second": [(point.step, point.samples_per_second) for point in points],
        "test/loss": [(epoch.number, epoch.test_loss) for epoch in tested],
        "test/accuracy": [(epoch.number, epoch.test_accuracy) for epoch in tested],
    }
    return {tag: curve for tag, curve in complete.items() if curve}


class TensorBoardFile:
    """TensorBoard's file of a run. Its methods do nothing in a run without a directory.

    TensorBoard's step is the number of samples that the model has been trained on: with the number
    of batches, the curve of a large batch size would be a small part of that of a small one.
    """

    def __init__(self, writer: Any, workload: Workload, samples: int) -> None:
        """Write with a ``SummaryWriter``, or not at all if it is None; after so many samples."""
        self._writer = writer
        self._workload = workload
        self._samples = samples

    def write_inputs(self, model: nn.Module, settings: Settings) -> list[str]:
        """Write images and the model graph; return notes on what could not be written.

        The random state stays as it is.
        """
        if not self._writer:
            return []
        device = torch.device(settings.device)
        with fork_random(device):
            generator = torch.Generator().manual_seed(settings.seed)
            images, _ = self._workload.make_batch(tensorboard.GRID_IMAGES, device, generator)
            tensorboard.write_images(self._writer, self._workload.dataset, images)
            return tensorboard.write_graph(self._writer, model, images[: settings.batch_size])

    def write_point(self, point: Point) -> None:
        """Add a log interval to the curves."""
        self._samples += point.samples
        self._write_scalars(curves([point], []))

    def write_epoch(self, epoch: EpochResult) -> None:
        """Add a test to the curves, if there was one, and bring the file up to date."""
        if self._writer:
            self._write_scalars(curves([], [epoch]))
            self._writer.flush()

    def _write_scalars(self, added: Curves) -> None:
        if self._writer:
            here = {
                tag: [(self._samples, value) for _, value in points]
                for tag, points in added.items()
            }
            tensorboard.write_scalars(self._writer, here)

    def write_misclassified(
        self,
        test: Split,
        tested: Sequence[Sequence[tuple[Tensor, Tensor]]],
        epoch: EpochResult,
    ) -> None:
        """Write the test images that the model of an epoch misclassifies.

        ``tested`` has a list for each rank: predicted and true classes, int64 [B], of its parts of
        the batches, which are in the order of the file.
        """
        if not self._writer:
            return
        parts = [part for batch in zip(*tested, strict=True) for part in batch]
        predictions, targets = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
        wrong = (predictions != targets).nonzero().flatten()  # positions of the images
        shown = wrong[: tensorboard.GRID_IMAGES]
        positions = shown.to(test.images.device)
        tensorboard.write_misclassified(
            self._writer,
            self._workload.dataset,
            test.images[positions].cpu(),
            test.labels[positions].tolist(),
            predictions[shown].tolist(),
            of=f"{len(wrong):,} of {epoch.test_samples:,} test images were misclassified",
            step=self._samples,
        )


@contextmanager
def tensorboard_file(
    output: Path | None, workload: Workload, points: Sequence[Point]
) -> Iterator[TensorBoardFile]:
    """Open TensorBoard's file in the directory of a run, if it has one.

    A run that continues has ``points``. TensorBoard hides what earlier files of the directory have
    after them.
    """
    samples = sum(point.samples for point in points)
    with tensorboard.open_writer(output, samples + 1 if points else None) as writer:
        yield TensorBoardFile(writer, workload, samples)


def write_weights(output: Path, model: nn.Module) -> None:
    """Write the weights, on the CPU, as a state_dict."""
    stream = io.BytesIO()
    torch.save({name: weights.cpu() for name, weights in model.state_dict().items()}, stream)
    replace_file(output / WEIGHTS, stream.getvalue())


def write_result(output: Path, result: Result, points: Sequence[Point]) -> None:
    """Write ``metrics.csv`` and ``result.json``."""
    replace_file(output / METRICS, _metrics_csv(points, result.epochs).encode())
    text = json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n"
    replace_file(output / RESULT, text.encode())


def _metrics_csv(points: Sequence[Point], epochs: Sequence[EpochResult]) -> str:
    """Return a row per log interval and per test, in chronological order."""
    rows: list[tuple[Any, ...]] = []
    for epoch in epochs:
        rows.extend(
            (
                "train",
                point.epoch,
                point.step,
                point.samples,
                point.loss,
                point.accuracy,
                point.learning_rate,
                point.train_ns,
                round(point.samples_per_second, 1),
            )
            for point in points
            if point.epoch == epoch.number
        )
        if epoch.test_samples:
            rows.append(
                (
                    "test",
                    epoch.number,
                    epoch.step,
                    epoch.test_samples,
                    epoch.test_loss,
                    epoch.test_accuracy,
                    epoch.learning_rate,
                    epoch.test_ns,
                    round(epoch.test_samples * 1e9 / epoch.test_ns, 1),
                )
            )
    return csv_text(COLUMNS, rows)
