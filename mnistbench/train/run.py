"""Run one training: a model, a dataset, a device, a batch size.

Reports to a listener and prints nothing.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnistbench.core.files import replace_file
from mnistbench.core.params import REFERENCE, Params
from mnistbench.core.record import CaseRecord, finite
from mnistbench.measuring import tensorboard
from mnistbench.measuring.case import (
    autocaster,
    build,
    fork_random,
    in_step,
    memory_suffices,
    optimizer_maker,
    seed,
    seeded_model,
    thread_count,
)
from mnistbench.measuring.environment import read
from mnistbench.measuring.profiling import has_device_view, profile_warm
from mnistbench.showing.table import csv_text
from mnistbench.train import result as trained
from mnistbench.train.captured import CapturedSteps, captures
from mnistbench.train.checkpoint import Checkpoint, random_state, set_random_state
from mnistbench.train.recipe import RECIPES
from mnistbench.train.result import (
    DONE,
    INTERRUPTED,
    EpochResult,
    Listener,
    Point,
    Result,
    Settings,
)
from mnistbench.workloads.fast import Optimizer
from mnistbench.workloads.ranks import Alone, seed_of_masks
from mnistbench.workloads.step import Inference, Step, Window, evaluate, fit, windows
from mnistbench.workloads.workload import Workload, predicted, workload_of_ranks

#: Training steps in the trace, after the warm-up: enough for a median, and few enough for a trace
#: viewer.
PROFILED_STEPS = 5

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


def run(
    settings: Settings,
    output: Path | None = None,
    listener: Listener | None = None,
    workload: Workload | None = None,
    *,
    ranks: Alone | None = None,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Train and return the results.

    The same settings give the same losses on a CPU with one thread, with and without a directory.
    The states of the random generators and the number of threads are restored.

    Args:
        settings: of the run; the device is available, as ``resolve_devices`` returns it.
        output: existing directory for TensorBoard's file, ``result.json``, ``metrics.csv``, the
            checkpoint except in a dry run and, if the settings ask for them, weights and trace;
            None: nothing is written.
        listener: callbacks.
        workload: the result of ``workload_of_ranks``, if its dataset has already been loaded.
        ranks: of which this process is one. Only rank 0 has an output directory.
        checkpoint: of a run with these settings, to continue it.

    Raises:
        MnistbenchError: the dataset is missing or damaged, or the device runs out of memory.
        OSError: a file cannot be written.
    """
    listener = listener or Listener()
    ranks = ranks or Alone()
    device = torch.device(settings.device)
    if workload is None:
        workload = workload_of_ranks(
            settings.model, settings.dataset, settings.data_dir, ranks.world_size
        )
    otherwise = (
        f"memory of {settings.device} does not suffice for batches of {settings.batch_size}, in "
        f"tests of {settings.test_batch_size}: choose a smaller batch size"
    )
    with (
        memory_suffices(otherwise),
        thread_count(settings.threads or torch.get_num_threads()),
        fork_random(device),
    ):
        return _Run(settings, output, listener, workload, device, ranks, checkpoint).result()


class _Run:
    """The state of one run."""

    def __init__(
        self,
        settings: Settings,
        output: Path | None,
        listener: Listener,
        workload: Workload,
        device: torch.device,
        ranks: Alone,
        checkpoint: Checkpoint | None,
    ) -> None:
        assert workload.load is not None, "a workload without a whole set has no epochs"
        self._device = device
        self._ranks = ranks
        self._checkpoint = checkpoint
        self._settings = settings
        self._output = output
        self._listener = listener
        self._workload = workload
        self._whole = workload.load(device)
        self._params = Params(
            workload=workload.name,
            phase="step",
            batch_size=settings.batch_size,
            device=settings.device,
            dtype=settings.dtype,
            threads=torch.get_num_threads(),
            compile=False,
            seed=settings.seed,
            dataset=workload.dataset,
            step=settings.step if device.type == "cpu" else REFERENCE,
        )
        self._plain_model = seeded_model(self._params, workload)
        self._model = in_step(self._params, workload, self._plain_model)  # has the same parameters
        if ranks.rank:
            seed(device, seed_of_masks(settings.seed, ranks.rank))
        self._autocast = autocaster(device, settings.dtype)
        self._curves: dict[str, list[tuple[int, float | None]]] = {}
        self._points: list[Point] = []
        self._epochs: list[EpochResult] = []
        self._notes: list[str] = []
        # Predicted and true classes of the last test, by batch.
        self._tested: list[tuple[Tensor, Tensor]] = []
        # Rank 0 may write what this rank has tested.
        self._keeps_tested = output is not None or ranks.world_size > 1
        self._writer: Any = None
        self._n_epochs = 1 if settings.dry_run else settings.epochs
        self._epoch = 0
        self._learning_rate = 0.0
        self._since = 0
        self._before_ns = checkpoint.wall_ns if checkpoint else 0
        self._began_ns = 0

    # ---- The run ----

    def result(self) -> Result:
        settings = self._settings
        output = self._output
        begun = self._checkpoint
        if begun:  # take over the results of its epochs
            self._epochs = list(begun.epochs)
            self._points = list(begun.points)
            for point in begun.points:
                self._add(_of_point(point), point.step)
            for epoch in begun.epochs:
                self._add(_of_test(epoch), epoch.number)
        with tensorboard.open_writer(output, begun.steps + 1 if begun else None) as self._writer:
            if self._writer and not begun:
                # Writing images must not change training's random numbers.
                with fork_random(self._device):
                    generator = torch.Generator().manual_seed(settings.seed)
                    images, _ = self._workload.make_batch(
                        tensorboard.GRID_IMAGES, self._device, generator
                    )
                    tensorboard.write_images(self._writer, self._workload.dataset, images)
                    self._notes.extend(
                        tensorboard.write_graph(
                            self._writer, self._plain_model, images[: settings.batch_size]
                        )
                    )
            self._began_ns = time.perf_counter_ns()
            self._train()
            wall_ns = self._wall_ns()
            if output and settings.save_model:
                stream = io.BytesIO()
                torch.save(
                    {
                        name: weights.cpu()
                        for name, weights in self._plain_model.state_dict().items()
                    },
                    stream,
                )
                replace_file(output / trained.WEIGHTS, stream.getvalue())
            finished = bool(self._epochs[-1].test_samples)
            if finished and self._keeps_tested:
                tested = self._ranks.gather(self._tested)
                if self._writer:
                    self._write_misclassified(tested)
        profiled = (
            self._profile() if settings.profile and finished and self._ranks.rank == 0 else None
        )
        result = Result(
            settings=settings,
            environment=read(torch.get_num_threads()),
            outcome=DONE if finished and len(self._epochs) == self._n_epochs else INTERRUPTED,
            parameter_count=sum(
                each.numel() for each in self._model.parameters() if each.requires_grad
            ),
            epochs=tuple(self._epochs),
            scalars=tensorboard.scalars_of(self._workload.dataset, self._curves, output),
            wall_ns=wall_ns,
            world_size=self._ranks.world_size,
            profiled=profiled,
            notes=tuple(self._notes),
        )
        if output:
            replace_file(
                output / trained.METRICS, _metrics_csv(self._points, self._epochs).encode()
            )
            replace_file(
                output / trained.RESULT,
                (json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n").encode(),
            )
        return result

    def _train(self) -> None:
        settings = self._settings
        samples = len(self._whole.train)
        self._listener.begin(min(samples, settings.batch_size) if settings.dry_run else samples)
        optimizer = optimizer_maker(self._params, self._workload)(self._model.parameters())
        for group in optimizer.param_groups:
            group["lr"] = settings.lr
        order = torch.Generator().manual_seed(settings.seed)
        steps = 0
        if begun := self._checkpoint:
            order = begun.restore(self._plain_model, optimizer)
            steps = begun.steps
            if len(begun.random) == self._ranks.world_size:
                set_random_state(begun.random[self._ranks.rank], self._device)
            else:  # other ranks than before draw other dropout masks
                drawn = self._ranks.rank + len(begun.epochs) * self._ranks.world_size
                seed(self._device, seed_of_masks(settings.seed, drawn))
        step = Step(self._ranks.model(self._model), self._workload.loss, optimizer, self._autocast)
        is_captured = captures(settings.step, self._device)
        captured = CapturedSteps(self._whole, step, self._workload.metric) if is_captured else None
        for number in range(len(self._epochs) + 1, self._n_epochs + 1):
            self._epoch = number
            self._learning_rate = float(optimizer.param_groups[0]["lr"])
            self._since = time.perf_counter_ns()
            self._model.train()
            for window in self._fitted(step, captured, order, steps):
                self._add_point(window)
            steps = self._points[-1].step
            test = None if self._stops() else self._test(steps)
            for group in optimizer.param_groups:
                group["lr"] *= settings.gamma
            stopped = self._stops()
            self._end_epoch(None if stopped else test)  # an incomplete test does not count
            if stopped:
                return
            if test and not settings.dry_run:
                self._save(optimizer, order, steps)

    def _fitted(
        self,
        step: Step,
        captured: CapturedSteps | None,
        generator: torch.Generator,
        first_step: int,
    ) -> Iterator[Window]:
        """Train an epoch, and yield its windows."""
        whole = self._whole
        ranks = self._ranks
        interval = self._settings.log_interval
        batched = whole.order(whole.train, self._settings.batch_size, generator)
        order = self._until_stopped(
            self._with_rates(batched, step.optimizer, first_step), self._listener.batch
        )
        if captured:
            return windows(
                order, captured.train, captured.window, window=interval, first_step=first_step
            )
        batches = (whole.batch(whole.train, ranks.part(indices)) for indices in order)
        return fit(
            step,
            batches,
            metric=self._workload.metric,
            window=interval,
            first_step=first_step,
            ranks=ranks,
        )

    def _with_rates(
        self, order: Sequence[Tensor], optimizer: Optimizer, first_step: int
    ) -> Iterator[Tensor]:
        """Yield the indices of batches.

        Set the learning rate of each step, if the recipe does so.
        """
        recipe = RECIPES[self._settings.recipe]
        steps = self._n_epochs * len(order)
        for number, indices in enumerate(order, first_step + 1):
            if recipe.warm_up:
                before = self._learning_rate
                self._learning_rate = self._settings.lr * recipe.rate(number / (steps + 1))
                for group in optimizer.param_groups:
                    # In place, as a captured step needs it.
                    group["lr"] *= self._learning_rate / before
            yield indices

    def _test(self, steps: int) -> Window:
        whole = self._whole
        workload = self._workload
        self._tested = []

        def keep(output: Tensor, targets: Tensor) -> None:
            if self._keeps_tested:
                self._tested.append((predicted(output), targets))

        order = self._until_stopped(whole.order(whole.test, self._settings.test_batch_size))
        return evaluate(
            Inference(self._model, self._autocast),
            (whole.batch(whole.test, self._ranks.part(indices)) for indices in order),
            loss=workload.loss,
            metric=workload.metric,
            step=steps,
            each=keep,
            ranks=self._ranks,
        )

    def _stops(self) -> bool:
        return self._ranks.agree_to_stop(self._listener.stop)

    def _until_stopped(
        self, order: Iterable[Tensor], done: Callable[[int], None] = lambda _: None
    ) -> Iterator[Tensor]:
        """Yield the indices of batches, in a dry run of one.

        Call ``done`` with the samples of each before the next one.
        """
        for indices in islice(order, 1 if self._settings.dry_run else None):
            yield indices
            done(len(indices))
            if self._stops():
                return

    # ---- Continuing ----

    def _wall_ns(self) -> int:
        return self._before_ns + time.perf_counter_ns() - self._began_ns

    def _save(self, optimizer: Optimizer, order: torch.Generator, steps: int) -> None:
        random = self._ranks.gather(random_state(self._device))
        if self._output:
            Checkpoint(
                settings=self._settings,
                model=self._plain_model.state_dict(),
                optimizer=optimizer.state_dict(),
                order=order.get_state(),
                random=tuple(random),
                steps=steps,
                epochs=tuple(self._epochs),
                points=tuple(self._points),
                wall_ns=self._wall_ns(),
            ).save(self._output)

    def _end_epoch(self, test: Window | None) -> None:
        """Keep the result of the epoch.

        ``test`` is None if it was stopped before the end of its test.
        """
        # The device has finished: the test has read its sums.
        test_ns = time.perf_counter_ns() - self._since
        points = [point for point in self._points if point.epoch == self._epoch]
        samples = sum(point.samples for point in points)
        losses = [point.loss * point.samples for point in points if point.loss is not None]
        correct = [point.accuracy * point.samples for point in points if point.accuracy is not None]
        reached = EpochResult(
            number=self._epoch,
            step=points[-1].step,
            learning_rate=self._learning_rate,
            train_samples=samples,
            train_loss=finite(sum(losses) / samples) if len(losses) == len(points) else None,
            train_accuracy=sum(correct) / samples if correct else None,
            train_ns=sum(point.train_ns for point in points),
        )
        if test:
            reached = reached.tested(test.samples, finite(test.loss), test.accuracy, test_ns)
            self._add(_of_test(reached), self._epoch)
        if self._writer:
            self._writer.flush()
        self._epochs.append(reached)
        self._listener.epoch(reached)

    def _add_point(self, window: Window) -> None:
        """Keep the result of a log interval, which the device has finished."""
        train_ns = time.perf_counter_ns() - self._since
        point = Point(
            self._epoch,
            window.step,
            window.samples,
            finite(window.loss),
            window.accuracy,
            self._learning_rate,
            train_ns,
        )
        self._points.append(point)
        self._add(_of_point(point), point.step)
        self._listener.point(point)
        # The time of writing curves does not count as training.
        self._since = time.perf_counter_ns()

    # ---- Files ----

    def _add(self, values: Mapping[str, float | None], step: int) -> None:
        curves = {tag: [(step, value)] for tag, value in values.items()}
        for tag, points in curves.items():
            self._curves.setdefault(tag, []).extend(points)
        if self._writer:
            tensorboard.write_scalars(self._writer, curves)

    def _write_misclassified(self, tested: Sequence[list[tuple[Tensor, Tensor]]]) -> None:
        """Write the test images that the model of the last epoch misclassifies.

        ``tested`` has a list for each rank.
        """
        # The order of the file.
        in_order = [part for batch in zip(*tested, strict=True) for part in batch]
        outputs, targets = (torch.cat(part).cpu() for part in zip(*in_order, strict=True))
        wrong = (outputs != targets).nonzero().flatten()  # positions of the images
        split = self._whole.test
        first = wrong[: tensorboard.GRID_IMAGES].to(self._whole.test.images.device)
        tensorboard.write_misclassified(
            self._writer,
            self._workload.dataset,
            split.images[first].cpu(),
            split.labels[first].tolist(),
            outputs[wrong][: tensorboard.GRID_IMAGES].tolist(),
            of=(
                f"{len(wrong):,} of {self._epochs[-1].test_samples:,} test images were "
                "misclassified"
            ),
            step=self._epochs[-1].number,
        )

    def _profile(self) -> CaseRecord:
        """Profile training steps from the initial weights.

        In a case of their own after training.
        """
        case = build(self._params, self._workload, self._settings.data_dir)
        view = "device" if has_device_view(self._settings.device) else "host"
        profiled = profile_warm(case, iterations=PROFILED_STEPS, view=view)
        if self._output:
            profiled.profiler.export_chrome_trace(os.fspath(self._output / trained.TRACE))
        return CaseRecord(
            test="mnistbench train",
            node_id=self._params.label,
            params=self._params,
            parameter_count=case.parameter_count,
            samples=case.samples,
            tables=(profiled.table(),),
        )


def _of_point(point: Point) -> dict[str, float | None]:
    """Return the values of a log interval by the names of their curves."""
    return {
        "train/loss": point.loss,
        "train/accuracy": point.accuracy,
        "train/learning_rate": point.learning_rate,
        "train/samples_per_second": point.samples_per_second,
    }


def _of_test(epoch: EpochResult) -> dict[str, float | None]:
    """Return the values of a test by the names of their curves."""
    return {"test/loss": epoch.test_loss, "test/accuracy": epoch.test_accuracy}


def _metrics_csv(points: list[Point], epochs: list[EpochResult]) -> str:
    """Return a row per log interval and per test, in chronological order."""
    rows: list[tuple[Any, ...]] = []
    for epoch in epochs:
        for point in points:
            if point.epoch == epoch.number:
                rate = round(point.samples_per_second, 1)
                row = (point.loss, point.accuracy, point.learning_rate, point.train_ns, rate)
                rows.append(("train", point.epoch, point.step, point.samples, *row))
        if epoch.test_samples:
            rate = round(epoch.test_samples * 1e9 / epoch.test_ns, 1)
            tested = (
                epoch.test_loss,
                epoch.test_accuracy,
                epoch.learning_rate,
                epoch.test_ns,
                rate,
            )
            rows.append(("test", epoch.number, epoch.step, epoch.test_samples, *tested))
    return csv_text(COLUMNS, rows)
