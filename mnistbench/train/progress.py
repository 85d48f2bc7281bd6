"""Progress of ``mnistbench train``: a bar or lines for each epoch, and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from mnistbench.core import units
from mnistbench.train.result import EpochResult, Listener, Point, Settings

if TYPE_CHECKING:
    from tqdm import tqdm


@contextmanager
def interruptible(*, again: bool) -> Iterator[list[int]]:
    """Yield a list that the first Ctrl-C fills, so that training ends after its step.

    With ``again``, the second one raises. Ranks of torchrun get Ctrl-C from the terminal and from torchrun, which ends them
    30 seconds later.
    """
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        received.append(number)
        if again:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)


class NoProgress(Listener):
    """A rank that shows nothing; Ctrl-C stops it."""

    def __init__(self, interrupted: list[int]) -> None:
        self._interrupted = interrupted

    def stop(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return bool(self._interrupted)


class Progress(Listener):
    """Progress of training: on a terminal a bar and a line per epoch; elsewhere also a line per log interval."""

    def __init__(self, settings: Settings, out: Any, terminal: Any, interrupted: list[int], done: int = 0) -> None:
        """Show the epochs after the first ``done`` ones."""
        self._settings, self._done = settings, done
        self._out, self._terminal, self._interrupted = out, terminal, interrupted
        self._epochs = 1 if settings.dry_run else settings.epochs
        self._bar: tqdm[Any] | None = None
        self._epoch, self._seen, self._train_samples = 1 + done, 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, train_samples: int, test_samples: int) -> None:  # noqa: ARG002  # Listener's
        """Show the bar on a terminal."""
        self._train_samples = train_samples
        if not self._terminal.isatty():
            return
        from tqdm import tqdm

        self._bar = tqdm(
            total=train_samples * self._epochs,
            initial=train_samples * self._done,
            desc=f"epoch {self._epoch}/{self._epochs}",
            unit=" samples",
            unit_scale=True,
            bar_format="{desc} {percentage:3.0f} %|{bar}| {rate_noinv_fmt}{postfix}, {remaining} left",
            file=self._terminal,
            dynamic_ncols=True,
            leave=False,
        )

    def batch(self, samples: int) -> None:
        """Advance the bar."""
        if self._bar is not None:
            self._bar.update(samples)

    def point(self, point: Point) -> None:
        """Show loss, accuracy and speed of a log interval."""
        self._seen = self._seen + point.samples if point.epoch == self._epoch else point.samples
        self._epoch = point.epoch
        if self._bar is not None:
            self._bar.set_description_str(f"epoch {point.epoch}/{self._epochs}", refresh=False)
            self._bar.set_postfix_str(f"loss {_loss(point.loss)}, accuracy {_percent(point.accuracy)}", refresh=False)
            return
        share = f"{100 * self._seen / self._train_samples:.0f} %"
        self._print(
            f"train epoch {point.epoch} [{self._seen}/{self._train_samples} ({share})] loss {_loss(point.loss)}, "
            f"accuracy {_percent(point.accuracy)}, {_rate(point.samples_per_second)}"
        )

    def epoch(self, epoch: EpochResult) -> None:
        """Print the line of an epoch."""
        trained = f"train loss {_loss(epoch.train_loss)}, accuracy {_percent(epoch.train_accuracy)}"
        tested = f"test loss {_loss(epoch.test_loss)}, accuracy {_percent(epoch.test_accuracy)}"
        times = f"{units.duration(epoch.train_ns + epoch.test_ns)}, {_rate(epoch.samples_per_second)}"
        if epoch.test_samples:
            self._print(f"epoch {epoch.number}/{self._epochs}: {trained}; {tested}; {times}")
        else:
            self._print(
                f"epoch {epoch.number}/{self._epochs}, stopped after {epoch.train_samples:,} samples: {trained}; {times}"
            )

    def stop(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return bool(self._interrupted)

    def _print(self, text: str) -> None:
        if self._bar is None:
            print(text, file=self._out, flush=True)
        else:
            self._bar.write(text, file=self._out)


def _loss(loss: float | None) -> str:
    return "not a number" if loss is None else f"{loss:.4f}"


def _percent(accuracy: float | None) -> str:
    """Return an accuracy with two decimals: one image of MNIST's test set is 0.01 %."""
    return units.MISSING if accuracy is None else f"{accuracy:.2f} %"


def _rate(samples_per_second: float) -> str:
    return f"{units.count(round(samples_per_second))} samples/s"
