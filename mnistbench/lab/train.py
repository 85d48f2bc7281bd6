"""One training run: a model, a dataset, a device, a batch size. Says what happens to a listener; prints nothing."""

from __future__ import annotations

from pathlib import Path

from mnistbench.lab.trained import EpochResult, Point, Result, Settings

__all__ = ["EpochResult", "Listener", "Point", "Result", "Settings", "run"]


class Listener:
    """Is told how a run goes, and may stop it. This one does neither."""

    def begin(self, settings: Settings, train_samples: int, test_samples: int) -> None:
        """A run begins: the number of samples of an epoch and of a test."""

    def batch(self, samples: int) -> None:
        """A batch was given to the device to train on; it may not have finished."""

    def point(self, point: Point) -> None:
        """A log interval is over."""

    def epoch(self, epoch: EpochResult) -> None:
        """An epoch is over, and tested unless the run was stopped."""

    def stop(self) -> bool:
        """Whether to stop, asked after each batch."""
        return False


def run(settings: Settings, output: Path | None = None, listener: Listener | None = None) -> Result:
    """Train as settings say and return what was reached.

    Args:
        settings: what to do; the device is one that is here.
        output: an existing directory that gets TensorBoard's file, ``result.json``, ``metrics.csv`` and, where asked
            for, weights and trace; None writes nothing.
        listener: is told how it goes.

    Raises:
        MnistbenchError: a dataset is missing or damaged, memory does not suffice.
        OSError: a file cannot be written.
    """
    raise NotImplementedError
