"""Show the progress of a lab: a bar on a terminal, elsewhere a line per step, both with the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

#: Called with the completed fraction of a step, from 0 to 1.
Advance = Callable[[float], None]


class Progress(Protocol):
    """Callbacks of a lab."""

    def begin(self, seconds: float, steps: int) -> None:
        """Handle the start: the estimated time of all steps, in seconds, and their number."""

    def step(self, what: str, seconds: float) -> Advance:
        """Handle the start of a step and its estimated time; return a callback for its completed fraction."""
        ...

    def done(self, *, kept: bool) -> None:
        """Handle the end of a step; ``kept`` if an earlier start measured it."""

    def note(self, text: str) -> None:
        """Handle a note for the user."""


class Bar:
    """Progress on a terminal: a bar with the current step and the remaining time."""

    def __init__(self, stream: Any) -> None:
        """Draw on a stream."""
        self._stream = stream
        self._left = _TimeLeft()
        self._bar: Any = None

    def begin(self, seconds: float, steps: int) -> None:  # noqa: ARG002  # Progress's
        """Draw the bar."""
        from tqdm import tqdm

        self._left.begin(seconds)
        self._bar = tqdm(
            total=100.0,
            bar_format="{percentage:3.0f} %|{bar:24}| {desc}",
            file=self._stream,
            leave=False,
            dynamic_ncols=True,
        )

    def step(self, what: str, seconds: float) -> Advance:
        """Name the step."""
        self._left.step(seconds)

        def advance(part: float) -> None:
            self._left.part(part)
            self._bar.n = 100 * self._left.share
            self._bar.set_description_str(f"{self._left}: {what}", refresh=False)
            self._bar.update(0)

        advance(0.0)
        self._bar.refresh()
        return advance

    def done(self, *, kept: bool) -> None:
        """Count the step."""
        self._left.done(kept=kept)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        print(f"mnistbench: {text}", file=self._stream)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


class Lines:
    """Progress without a terminal: a line per step."""

    def __init__(self, stream: Any) -> None:
        """Print to a stream."""
        self._stream = stream
        self._left = _TimeLeft()
        self._steps, self._number, self._what, self._began = 0, 0, "", 0.0

    def begin(self, seconds: float, steps: int) -> None:
        """Keep the number of steps."""
        self._steps = steps
        self._left.begin(seconds)

    def step(self, what: str, seconds: float) -> Advance:
        """Keep the step's description."""
        self._number, self._what, self._began = self._number + 1, what, time.monotonic()
        self._left.step(seconds)
        return lambda _: None

    def done(self, *, kept: bool) -> None:
        """Print the step."""
        self._left.done(kept=kept)
        took = "already done" if kept else f"{time.monotonic() - self._began:.1f} s"
        print(f"[{self._number:2}/{self._steps}] {self._what}: {took}; {self._left}", file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Print a line."""
        print(f"mnistbench: {text}", file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing: no resource is open."""


class _TimeLeft:
    """The remaining time, scaled by the ratio of measured to estimated time of the completed steps."""

    def __init__(self) -> None:
        self._all = self._done = self._step = self._part = 0.0
        self._took, self._began = 0.0, time.monotonic()

    def begin(self, seconds: float) -> None:
        self._all = seconds

    def step(self, seconds: float) -> None:
        self._step, self._part, self._began = seconds, 0.0, time.monotonic()

    def part(self, part: float) -> None:
        self._part = part

    def done(self, *, kept: bool) -> None:
        if not kept:
            self._done += self._step
            self._took += time.monotonic() - self._began
        self._step = self._part = 0.0

    @property
    def _reached(self) -> float:
        return min(self._all, self._done + self._part * self._step)

    @property
    def share(self) -> float:
        return self._reached / self._all if self._all else 1.0

    def __str__(self) -> str:
        slowness = self._took / self._done if self._done else 1.0
        left = (self._all - self._reached) * slowness
        if not left:
            return "done"
        return f"about {left / 60:.0f} min left" if left >= 90 else f"about {10 * max(1, round(left / 10))} s left"
