"""Curves for TensorBoard and for the record.

A short training run, or the rounds of a case that does not train.

Each run has its own directory, so that TensorBoard gives it a colour and does not join two runs by
a line.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mnistbench.core.errors import first_line
from mnistbench.core.params import Params
from mnistbench.core.record import Scalars, finite, thin
from mnistbench.suite.measuring.case import (
    autocaster,
    fork_random,
    in_step,
    optimizer_maker,
    seeded_model,
)
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.suite.workloads.workload import Workload

if TYPE_CHECKING:
    from mnistbench.showing.drawing import Figure

#: A training run for a curve ends after this number of steps, a few seconds on one core at any
#: batch size. Loss and accuracy of each step are a point.
CURVE_STEPS = 32
#: A training run also ends after this number of samples, two passes over the digits, which bounds
#: its time at large batch sizes.
CURVE_SAMPLES = 2 * 1437
#: Samples per batch when the test set is evaluated, as in pytorch/examples ``mnist/main.py``.
TEST_BATCH_SIZE = 1000
#: Points that TensorBoard shows of a curve by default; a case can have thousands of rounds.
SHOWN_POINTS = 1000
#: Images in the grid of inputs, at any batch size.
GRID_IMAGES = 64
#: Images in a row of the grid of misclassified ones.
GRID_COLUMNS = 8

#: Wraps the steps of a training run with a progress bar: (batches, total, description) -> the same
#: batches.
Progress = Callable[[Iterable[Batch], int, str], AbstractContextManager[Iterable[Batch]]]


def new_directory(root: Path, label: str = "") -> Path:
    """Create a new directory below ``root``, named by time and label, and return it."""
    stamp = time.strftime("%Y%m%d-%H%M%S") + (f"-{label}" if label else "")
    for attempt in range(1_000):
        directory = root / (stamp if attempt == 0 else f"{stamp}-{attempt}")
        with contextlib.suppress(FileExistsError):
            directory.mkdir(parents=True)
            return directory
    raise FileExistsError(f"{root / stamp}: a thousand runs began in this second")


class Tracker:
    """Computes each curve once per session, and writes it below one directory."""

    def __init__(self, directory: Path | None, progress: Progress) -> None:
        """Write below ``directory``; if it is None, compute without writing."""
        self.directory = directory
        self._progress = progress
        self._curves: dict[Params, tuple[Scalars, tuple[str, ...]]] = {}
        self._runs: Counter[str] = Counter()  # two tests may measure the same case

    def training(self, params: Params, workload: Workload) -> tuple[Scalars, tuple[str, ...]]:
        """Return loss and accuracy of a short training run.

        A note names each part that could not be written.

        All training cases of the same workload, batch size and device share one run.
        """
        shared = replace(params, phase="step")
        if shared not in self._curves:
            self._curves[shared] = self._train(shared, workload)
        return self._curves[shared]

    def rounds(self, params: Params, rounds_ns: tuple[float, ...], samples: int) -> Scalars:
        """Return time per iteration and samples per second over the rounds of a timed case."""
        curves = {
            "timing/ms_per_iteration": [
                (number, nanoseconds / 1e6) for number, nanoseconds in enumerate(rounds_ns, 1)
            ],
            "timing/samples_per_second": [
                (number, samples * 1e9 / nanoseconds)
                for number, nanoseconds in enumerate(rounds_ns, 1)
            ],
        }
        directory = self._run_directory(params, params.phase)
        with open_writer(directory) as writer:
            if writer:
                write_scalars(
                    writer, {tag: thin(points, SHOWN_POINTS) for tag, points in curves.items()}
                )
        return scalars_of(params.dataset, curves, directory)

    def _train(self, params: Params, workload: Workload) -> tuple[Scalars, tuple[str, ...]]:
        curves: dict[str, list[tuple[int, float | None]]] = {}
        notes: list[str] = []
        directory = self._run_directory(params, "training")
        device = torch.device(params.device)
        steps = min(CURVE_STEPS, math.ceil(CURVE_SAMPLES / params.batch_size))
        with fork_random(device), open_writer(directory) as writer:
            plain_model = seeded_model(params, workload)
            model = in_step(params, workload, plain_model)
            optimizer = optimizer_maker(params, workload)(model.parameters())
            autocast = autocaster(device, params.dtype)
            step = Step(model, workload.loss, optimizer, autocast)
            generator = torch.Generator().manual_seed(params.seed)
            batches = (
                workload.make_batch(params.batch_size, device, generator) for _ in range(steps)
            )
            what = f"training {params.label.split(' ')[1]} on {params.dataset}"
            with self._progress(batches, steps, what) as shown_batches:
                for window in fit(step, shown_batches, metric=workload.metric, window=1):
                    _add(curves, "train", window)
            if workload.load:
                whole = workload.load(device)
                test = evaluate(
                    Inference(model, autocast),
                    whole.epoch(whole.test, TEST_BATCH_SIZE),
                    loss=workload.loss,
                    metric=workload.metric,
                    step=steps,
                )
                _add(curves, "test", test)
            if writer:
                write_scalars(writer, curves)
                images, _ = workload.make_batch(GRID_IMAGES, device, generator)
                write_images(writer, params.dataset, images)
                inputs, _ = workload.make_batch(params.batch_size, device, generator)
                notes.extend(write_graph(writer, plain_model, inputs))
        return scalars_of(params.dataset, curves, directory), tuple(notes)

    def _run_directory(self, params: Params, what: str) -> Path | None:
        if self.directory is None:
            return None
        dataset = re.sub(r"[^\w.+-]", "_", params.dataset)  # a workload may have any name for it
        name = f"{what}-{params.label.split(' ')[1].replace(':', '')}-{dataset}"
        self._runs[name] += 1
        return self.directory / (name if self._runs[name] == 1 else f"{name}-{self._runs[name]}")


def _add(curves: dict[str, list[tuple[int, float | None]]], part: str, window: Window) -> None:
    curves.setdefault(f"{part}/loss", []).append((window.step, finite(window.loss)))
    if window.accuracy is not None:
        curves.setdefault(f"{part}/accuracy", []).append((window.step, finite(window.accuracy)))


def scalars_of(
    dataset: str, curves: Mapping[str, Sequence[tuple[int, Any]]], directory: Path | None
) -> Scalars:
    """Return the curves for a record: thinned, and their final values."""
    return Scalars(
        dataset=dataset,
        curves={tag: thin(points) for tag, points in curves.items()},
        final={tag: points[-1][1] for tag, points in curves.items() if points},
        directory=os.fspath(directory) if directory else "",
    )


@contextlib.contextmanager
def open_writer(directory: Path | None, first_step: int | None = None) -> Iterator[Any]:
    """Open a SummaryWriter; yield None if TensorBoard is off.

    TensorBoard hides what earlier files of the directory have from ``first_step`` on.
    """
    if directory is None:
        yield None
        return
    from torch.utils.tensorboard import SummaryWriter  # a second to import

    with SummaryWriter(os.fspath(directory), purge_step=first_step) as writer:
        yield writer


def write_scalars(writer: Any, curves: Mapping[str, Sequence[tuple[int, Any]]]) -> None:
    """Write points of curves; a value that is None is left out."""
    for tag, points in curves.items():
        for step, value in points:
            if value is not None:
                writer.add_scalar(tag, value, step)


def write_images(writer: Any, dataset: str, inputs: Tensor) -> None:
    """Write a batch as a grid if it has images: [B, 1 or 3, H, W]."""
    if inputs.dim() != 4 or inputs.shape[1] not in (1, 3):
        return
    images = inputs.float().cpu()
    low = images.min()
    high = images.max()
    writer.add_images(f"inputs/{dataset}", (images - low) / (high - low).clamp(min=1e-12))


def write_misclassified(
    writer: Any,
    dataset: str,
    images: Tensor,
    targets: Sequence[int],
    read_as: Sequence[int],
    *,
    of: str,
    step: int,
) -> None:
    """Write misclassified images as a grid, and a text with their number.

    Each has its label and the predicted class.

    Images are uint8 [N, 1, H, W] on the CPU; ``of`` is a text with the number of misclassified
    images among all.
    """
    captions = [f"{target} as {taken}" for target, taken in zip(targets, read_as, strict=True)]
    if captions:
        from mnistbench.showing.drawing import default_settings  # loads matplotlib

        with default_settings():
            writer.add_figure(f"misclassified/{dataset}", _captioned(images, captions), step)
        first = f"'{captions[0]}' is a {targets[0]} that was taken for a {read_as[0]}"
        of = f"{of}. The grid of the same name shows the first {len(captions)}: {first}"
    writer.add_text(f"misclassified/{dataset}", f"{of}.", step)


def _captioned(images: Tensor, captions: Sequence[str]) -> Figure:
    """Return a grid with a title above each image; ``images`` is uint8 [N, 1, H, W]."""
    from mnistbench.showing.drawing import Figure

    columns = min(GRID_COLUMNS, len(images))
    rows = math.ceil(len(images) / GRID_COLUMNS)
    # Titles must be readable at 40 %, the size at which TensorBoard shows the grid.
    figure = Figure(figsize=(0.9 * columns, 1.25 * rows), dpi=100, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, image, caption in zip(grid.flat, images, captions, strict=False):
        axes.imshow(image[0].numpy(), cmap="gray", vmin=0, vmax=255)
        axes.set_title(caption, fontsize=16)
    return figure


def write_graph(writer: Any, model: torch.nn.Module, inputs: Tensor) -> list[str]:
    """Write the model graph; return a note with the reason if it cannot be written.

    ``add_graph`` traces with torch.jit, which is deprecated, warns, and raises and prints on
    control flow; none of that may end a run. The traced model is a copy on the CPU, so that a model
    on an accelerator has a graph too. It is traced here because ``add_graph`` would trace it again
    to check the first trace, which takes a second the first time.
    """
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            inputs = inputs.cpu()
            traced = torch.jit.trace(  # type: ignore[no-untyped-call]
                copy.deepcopy(model).cpu().eval(), inputs, check_trace=False
            )
            writer.add_graph(traced, inputs)
    # A deprecated tracer can raise anything on a user's model.
    except Exception as error:  # noqa: BLE001
        return [f"no model graph: {type(error).__name__}: {first_line(error)}"]
    return []
