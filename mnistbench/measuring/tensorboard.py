"""Curves for TensorBoard and for the record.

A short training run, or the rounds of a case that does not train.

Each run has its own directory, so that TensorBoard gives it a colour and does not join two runs by
a line.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import itertools
import os
import socket
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
from mnistbench.measuring.case import (
    autocaster,
    fork_random,
    in_step,
    optimizer_maker,
    seeded_model,
)
from mnistbench.measuring.curves import Curve, CurveStore
from mnistbench.workloads.data import Batch
from mnistbench.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.workloads.workload import Workload

if TYPE_CHECKING:
    import numpy as np

#: A training run for a curve ends after this number of samples or steps, whichever comes first: two
#: passes over the digits at batch size 64, and a few seconds on one core at any batch size.
CURVE_SAMPLES = 2 * 1437
CURVE_STEPS = 128
#: Points of a curve; each is the mean over a window of steps.
CURVE_WINDOWS = 32
#: Steps of a training run that must be the same as those of a stored one: weight decay acts in the
#: first update, momentum in the second, which the third loss shows.
CHECKED_STEPS = 3
#: Samples per batch when the test set is evaluated, as in pytorch/examples ``mnist/main.py``.
TEST_BATCH_SIZE = 1000
#: Points that TensorBoard shows of a curve by default; a case can have thousands of rounds.
SHOWN_POINTS = 1000
#: Images in the grid, at any batch size.
GRID_IMAGES = 64

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
    """Computes each curve once per session, or reads it from disk.

    Writes it below one directory.
    """

    def __init__(
        self, directory: Path | None, progress: Progress, store: CurveStore | None = None
    ) -> None:
        """Write below ``directory``; if it is None, compute without writing.

        Keep training curves in ``store``.
        """
        self.directory = directory
        self._store = store
        self._progress = progress
        self._curves: dict[Params, tuple[Scalars, tuple[str, ...]]] = {}
        self._runs: Counter[str] = Counter()  # two tests may measure the same case

    def training(self, params: Params, workload: Workload) -> tuple[Scalars, tuple[str, ...]]:
        """Return loss and accuracy of a short training run.

        And a note on each part that could not be written.

        All training cases of the same workload, batch size and device share one run.
        """
        shared = replace(params, phase="step")
        if shared not in self._curves:
            self._curves[shared] = self._stored(shared, workload) or self._train(shared, workload)
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

    def _stored(self, params: Params, workload: Workload) -> tuple[Scalars, tuple[str, ...]] | None:
        """Return the curves of an earlier session, with its event file.

        None if they have to be computed.
        """
        found = self._store.load(params) if self._store else None
        if found is None or (self.directory and not found.events):
            return None
        with fork_random(torch.device(params.device)):
            run = _TrainingRun(params, workload)
            for inputs, targets in itertools.islice(run.batches, run.steps_of_check):
                run.step(inputs, targets)
            if run.check() != found.check:
                return None
        directory = self._run_directory(params, "training")
        if directory:
            directory.mkdir(parents=True, exist_ok=True)
            (
                directory / f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}"
            ).write_bytes(found.events)
        return scalars_of(params.dataset, found.curves, directory), found.notes

    def _train(self, params: Params, workload: Workload) -> tuple[Scalars, tuple[str, ...]]:
        curves: dict[str, list[tuple[int, float | None]]] = {}
        notes: list[str] = []
        directory = self._run_directory(params, "training")
        with fork_random(torch.device(params.device)), open_writer(directory) as writer:
            run = _TrainingRun(params, workload)
            what = f"training {params.label.split(' ')[1]} on {params.dataset}"
            with self._progress(run.batches, run.steps, what) as shown:
                for window in fit(
                    run.step,
                    shown,
                    metric=workload.metric,
                    window=max(1, run.steps // CURVE_WINDOWS),
                ):
                    _add(curves, "train", window)
            if workload.load:
                inference = Inference(run.step.model, run.autocast)
                test = evaluate(
                    inference,
                    run.test_batches(),
                    loss=workload.loss,
                    metric=workload.metric,
                    step=run.steps,
                )
                _add(curves, "test", test)
            if writer:
                write_scalars(writer, curves)
                images, _ = workload.make_batch(GRID_IMAGES, run.device, run.generator)
                write_images(writer, params.dataset, images)
                inputs, _ = workload.make_batch(params.batch_size, run.device, run.generator)
                notes.extend(write_graph(writer, run.plain, inputs))
            check = run.check() if self._store else ()
        scalars = scalars_of(params.dataset, curves, directory)
        if self._store:
            # One file.
            events = (
                b"".join(file.read_bytes() for file in directory.iterdir()) if directory else b""
            )
            self._store.save(params, Curve(check, scalars.curves, tuple(notes), events))
        return scalars, tuple(notes)

    def _run_directory(self, params: Params, what: str) -> Path | None:
        if self.directory is None:
            return None
        name = f"{what}-{params.label.split(' ')[1].replace(':', '')}-{params.dataset}"
        self._runs[name] += 1
        return self.directory / (name if self._runs[name] == 1 else f"{name}-{self._runs[name]}")


class _TrainingRun:
    """A training run from the seed: its step and its batches. Seeds torch's global generators."""

    def __init__(self, params: Params, workload: Workload) -> None:
        self.device = torch.device(params.device)
        self.steps = min(CURVE_STEPS, -(-CURVE_SAMPLES // params.batch_size))
        self.steps_of_check = min(CHECKED_STEPS, self.steps)
        self.plain = seeded_model(params, workload)
        model = in_step(params, workload, self.plain)
        self.autocast = autocaster(self.device, params.dtype)
        self.generator = torch.Generator().manual_seed(params.seed)
        self.batches = (
            workload.make_batch(params.batch_size, self.device, self.generator)
            for _ in range(self.steps)
        )
        optimizer = optimizer_maker(params, workload)(model.parameters())
        self.step = Step(model, self._loss, optimizer, self.autocast)
        self._workload = workload
        # Loss and metric, on the device: reading them would wait for it.
        self._first: list[tuple[Tensor, Tensor | None]] = []

    def _loss(self, output: Tensor, targets: Tensor) -> Tensor:
        loss = self._workload.loss(output, targets)
        if len(self._first) < self.steps_of_check:
            metric = self._workload.metric
            self._first.append(
                (loss.detach().clone(), metric(output.detach(), targets) if metric else None)
            )
        return loss

    def test_batches(self) -> Iterable[Batch]:
        """Return the batches of the test set, of a workload that has one."""
        assert self._workload.load
        whole = self._workload.load(self.device)
        return whole.epoch(whole.test, TEST_BATCH_SIZE)

    def check(self) -> tuple[str, ...]:
        """Return loss and metric of the first steps, and a hash of the test set.

        The numbers are not rounded.
        """
        first = [float(loss).hex() for loss, _ in self._first]
        metrics = [float(metric).hex() for _, metric in self._first if metric is not None]
        digest = hashlib.sha256()
        for batch in self.test_batches() if self._workload.load else ():
            for part in batch:
                digest.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return (*first, *metrics, digest.hexdigest())


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
        writer.add_image(
            f"misclassified/{dataset}", _captioned(images, captions), step, dataformats="HWC"
        )
        first = f"'{captions[0]}' is a {targets[0]} that was taken for a {read_as[0]}"
        of = f"{of}. The grid of the same name shows the first {len(captions)}: {first}"
    writer.add_text(f"misclassified/{dataset}", f"{of}.", step)


def _captioned(images: Tensor, captions: Sequence[str]) -> np.ndarray:
    """Return a grid of 8 columns, RGB uint8 [height, width, 3].

    Images enlarged, each above its caption.
    """
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    # pixels: captions must be readable at 40 %, the size at which TensorBoard shows the grid.
    side = 84
    line = 28
    gap = 6
    font = ImageFont.load_default(size=24)  # built into Pillow
    columns = min(8, len(images))
    rows = -(-len(images) // 8)
    grid = Image.new(
        "RGB", (gap + columns * (side + gap), gap + rows * (side + line + gap)), "white"
    )
    draw = ImageDraw.Draw(grid)
    for position, (image, caption) in enumerate(zip(images, captions, strict=True)):
        left = gap + position % 8 * (side + gap)
        top = gap + position // 8 * (side + line + gap)
        tile = Image.fromarray(image[0].numpy()).resize((side, side), Image.Resampling.NEAREST)
        grid.paste(tile, (left, top))
        draw.text((left + side // 2, top + side), caption, fill="black", font=font, anchor="ma")
    return np.asarray(grid)


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
