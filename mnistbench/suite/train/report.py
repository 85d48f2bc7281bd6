"""What ``mnistbench train`` prints: a title, progress while it trains, and the files at the end."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from mnistbench.core import units
from mnistbench.saved_runs.case_tables import case_tables
from mnistbench.showing.progress import Progress
from mnistbench.showing.terminal import draw, line_width
from mnistbench.suite.train.result import (
    CHECKPOINT,
    INTERRUPTED,
    METRICS,
    RESULT,
    TRACE,
    WEIGHTS,
    EpochResult,
    Listener,
    Point,
    Result,
    Settings,
)

#: Operations in the table of --profile.
_TOP = 10


def title(settings: Settings, threads: int, world_size: int) -> str:
    """Return the first line: what is trained, and on what."""
    device = f"{settings.device}, {units.threads(threads)}"
    if world_size > 1:
        device = f"{world_size} ranks, each on {device}"
    epochs = "dry run: one batch" if settings.dry_run else units.counted(settings.epochs, "epoch")
    work = f"{settings.dtype}, {settings.step} step, batch {settings.batch_size}, {epochs}"
    return f"{settings.model} on {settings.dataset}, {device}, {work}"


class TrainingProgress(Listener):
    """Progress of training: on a terminal a bar and a line per epoch.

    Elsewhere also a line per log interval.
    """

    def __init__(
        self,
        settings: Settings,
        interrupted: list[int],
        out: TextIO | None,
        terminal: TextIO | None,
        done: int = 0,
    ) -> None:
        """Show the epochs after the first ``done`` ones.

        Args:
            settings: of the run.
            interrupted: training stops when it is filled.
            out: gets the lines; None for a rank that shows nothing.
            terminal: gets the bar, if it is one.
            done: number of epochs of the run that is continued.
        """
        self._out = out
        self._terminal = terminal
        self._interrupted = interrupted
        self._done = done
        self._epochs = settings.epochs_to_train
        self._progress = Progress(None)
        self._epoch = 1 + done
        self._seen = 0
        self._train_samples = 0

    def begin(self, train_samples: int) -> None:
        """Show the bar on a terminal."""
        self._train_samples = train_samples
        self._progress = Progress(
            self._terminal,
            total=train_samples * self._epochs,
            done=train_samples * self._done,
            unit="samples",
            lines=self._out,
        )
        self._progress.step(f"epoch {self._epoch}/{self._epochs}", log="")

    def batch(self, samples: int) -> None:
        """Advance the bar."""
        self._progress.advance(samples)

    def point(self, point: Point) -> None:
        """Show loss, accuracy and speed of a log interval."""
        self._seen = self._seen + point.samples if point.epoch == self._epoch else point.samples
        self._epoch = point.epoch
        reached = f"loss {_loss(point.loss)}, accuracy {_percent(point.accuracy)}"
        of = (
            f"[{self._seen}/{self._train_samples} ({100 * self._seen / self._train_samples:.0f} %)]"
        )
        self._progress.step(
            f"epoch {point.epoch}/{self._epochs}, {reached}",
            log=f"train epoch {point.epoch} {of} {reached}, {_rate(point.samples_per_second)}",
        )

    def epoch(self, epoch: EpochResult) -> None:
        """Print the line of an epoch."""
        stopped = "" if epoch.test_samples else f", stopped after {epoch.train_samples:,} samples"
        trained = f"train loss {_loss(epoch.train_loss)}, accuracy {_percent(epoch.train_accuracy)}"
        tested = (
            f"; test loss {_loss(epoch.test_loss)}, accuracy {_percent(epoch.test_accuracy)}"
            if epoch.test_samples
            else ""
        )
        times = (
            f"{units.duration(epoch.train_ns + epoch.test_ns)}, {_rate(epoch.samples_per_second)}"
        )
        self._progress.say(
            f"epoch {epoch.number}/{self._epochs}{stopped}: {trained}{tested}; {times}"
        )

    def stop(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return bool(self._interrupted)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.close()


def _loss(loss: float | None) -> str:
    return "not a number" if loss is None else f"{loss:.4f}"


def _percent(accuracy: float | None) -> str:
    """Return an accuracy with two decimals: one image of MNIST's test set is 0.01 %."""
    return units.MISSING if accuracy is None else f"{accuracy:.2f} %"


def _rate(samples_per_second: float) -> str:
    return f"{units.count(round(samples_per_second))} samples/s"


def ending(result: Result, output: Path, *, logdir: Path) -> Iterator[str]:
    """Yield the lines that are printed when the run is over.

    ``logdir`` is the directory that TensorBoard is to show.
    """

    def quoted(path: Path) -> str:
        return units.printable(shlex.quote(os.fspath(path)))

    settings = result.settings
    if result.profiled:
        for table in case_tables([result.profiled], _TOP):
            yield f"\n{draw(table, width=line_width(sys.stdout))}\n"
    if result.outcome == INTERRUPTED:
        yield "interrupted; the files have the steps before the interruption"
        if not settings.dry_run and any(epoch.test_samples for epoch in result.epochs):
            yield f"mnistbench train --resume {quoted(output)} continues after the last whole epoch"
    yield from map(units.printable, result.notes)
    if any(epoch.train_loss is None for epoch in result.epochs):
        yield (
            f"the loss is not a number: training diverged; a smaller --lr than {settings.lr:g} "
            "may not"
        )
    files = {
        RESULT: True,
        METRICS: True,
        CHECKPOINT: not settings.dry_run,
        WEIGHTS: settings.save_model,
        TRACE: result.profiled is not None,
    }
    yield (
        f"written to {quoted(output)}: "
        f"{', '.join(name for name, is_written in files.items() if is_written)}"
    )
    if result.profiled:
        yield f"{TRACE} opens in https://ui.perfetto.dev or chrome://tracing"
    yield f"TensorBoard: tensorboard --logdir {quoted(logdir)}"
    yield (
        "  on a remote server: ssh -L 6006:localhost:6006 SERVER forwards its page to your "
        "machine only;"
    )
    yield "  --host 0.0.0.0 (or --bind_all) shows it to everybody who can reach that server"
