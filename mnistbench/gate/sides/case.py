"""A case, as the gate measures it on one side. Does not import torch."""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from mnistbench.measuring.timing import Sample, clocked

#: Warm-up iterations of a side: memory is allocated, algorithms are chosen, the optimizer creates its state.
WARMUP_CALLS = 2

#: Shortest sample of a short function, in nanoseconds: its calls are repeated. Passing the turn to the other process takes some
#: microseconds, after which the first calls are slower.
SAMPLE_NS = 5_000_000

#: Hash and number of what a case computes; the number is None if it is not finite.
Outcome = tuple[str, float | None]


class Case(ABC):
    """A case of one side. An iteration runs its work ``loops`` times."""

    device = "cpu"  # torch's name
    threads = 1  # of the work
    loops = 1
    parameters = 0  # trainable, of its model
    by_share = True  # the share of an operation in a profiled iteration is that in any other
    may_be_repeated = False  # within one iteration: nothing has to happen between two calls

    @property
    def has_operations(self) -> bool:
        """Whether it can be profiled."""
        return False

    def build(self) -> None:  # noqa: B027  # many cases do nothing here
        """Make the case anew, in its initial state."""

    def reset(self) -> None:  # noqa: B027  # many cases do nothing here
        """Restore the initial state."""

    def prepare(self) -> None:  # noqa: B027  # many cases do nothing here
        """Do what has to happen before each iteration, outside its time."""

    @abstractmethod
    def __call__(self) -> None:
        """Run the work ``loops`` times, and wait for the device."""

    def finish(self) -> None:  # noqa: B027  # many cases do nothing here
        """Do what has to happen after each iteration, outside its time."""

    def clocked(self) -> Sample:
        """Run an iteration and return its times."""
        return clocked(self)

    @abstractmethod
    def outcome(self) -> Outcome:
        """Return what the case computes."""

    def is_finite(self) -> bool:
        """Whether the iterations so far have led to no NaN and no infinity."""
        return True

    def operations(self, one_turn: Callable[[], Iterable[None]], turns: Iterable[None]) -> dict[str, Any]:
        """Profile iterations; return the operations as JSON columns.

        Args:
            one_turn: returns a turn of this side.
            turns: one for each profiled iteration.
        """
        raise NotImplementedError

    def marked(self) -> AbstractContextManager[Callable[[], None]]:
        """Put the marks of profiled iterations on the case while the body runs; give what runs one iteration."""
        raise NotImplementedError

    def peak_memory(self) -> int | None:
        """Build and warm up the case; return the peak memory of tensors in the next iteration, in bytes, None if unknown."""
        return None


def seed_all(seed: int) -> None:
    """Seed all generators that the code of a side may use, of the packages that it has imported."""
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
