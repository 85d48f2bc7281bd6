"""Progress of a command: a line that is updated on a terminal, a line for each step in a log.

::

    with Progress(sys.stderr, total=len(cases)) as progress:
        progress.say("loading both sides")
        for case in cases:
            # On a terminal: " 38 % |#########               | convnet-b64, about 20 s left".
            progress.step(case.label)
            measure(case)
            progress.advance()

A command that knows the remaining time better gives it: ``step("trial 3 of 10", left_s=90)``.
``Progress(None)`` shows nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Self, TextIO, TypeVar

from mnistbench.core import units

_T = TypeVar("_T")

#: Time between two updates of the line, in seconds, so that short steps do not wait for the
#: terminal.
_BETWEEN_S = 0.1

#: Signs of a bar.
_BAR = 24

#: Signs of a step that are left at least where a terminal is narrow.
_MIN_TEXT = 10


class Progress:
    """Progress on a stream. As a context manager, it removes its line at the end of the body.

    Args:
        stream: a terminal or a log; None to show nothing.
        total: sum of all amounts that :meth:`advance` gets; None if it is unknown, so no bar is
            shown.
        done: amount that was reached before.
        unit: of the amounts, in the plural; shown with the rate.
        quiet: whether a log gets no lines of steps; what :meth:`say` gets is always printed.
        lines: stream for the lines of steps and of :meth:`say`; ``stream`` by default.
        after_s: time before the first update of a terminal, in seconds.
        below: whether the first update begins a new line, below what somebody else has printed.
        clock: returns seconds.
    """

    def __init__(
        self,
        stream: TextIO | None,
        *,
        total: float | None = None,
        done: float = 0.0,
        unit: str = "",
        quiet: bool = False,
        lines: TextIO | None = None,
        after_s: float = 0.0,
        below: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._lines = lines or stream
        self._is_terminal = stream is not None and stream.isatty()
        self._total = total
        self._first = done
        self._done = done
        self._unit = unit
        self._quiet = quiet
        self._before = "\n" if below else ""
        self._clock = clock
        self._began = clock()
        self._first_s = self._shown_s = self._began + after_s
        self._text = ""
        self._is_open = False
        self._left_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def left_s(self) -> float | None:
        """The remaining time in seconds, at the rate so far; None if it is unknown."""
        if self._left_s is not None or self._total is None or self._done <= self._first:
            return self._left_s
        return (
            (self._clock() - self._began)
            * max(0.0, self._total - self._done)
            / (self._done - self._first)
        )

    def say(self, text: str) -> None:
        """Print a line."""
        if self._lines is not None:
            self.close()
            self._lines.write(f"{units.printable(text)}\n")
            self._lines.flush()

    def step(self, text: str, *, log: str | None = None, left_s: float | None = None) -> None:
        """Show what is done now, in a log ``log`` instead.

        ``left_s`` replaces the estimate until the next advance.
        """
        self._text = text
        self._left_s = left_s
        if self._is_terminal:
            self._show(self._first_s)
        elif not self._quiet and log != "":
            self.say(log or text + self._rest())

    def advance(self, amount: float = 1.0) -> None:
        """Add an amount to what is done."""
        self._done += amount
        self._left_s = None
        self._show(self._shown_s + _BETWEEN_S)

    def over(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items; each counts 1 when the next one is asked for."""
        for item in items:
            yield item
            self.advance()

    def close(self) -> None:
        """Remove the line from the terminal; the next step shows it again."""
        if self._is_open:
            self._write("")
            self._is_open = False

    def _show(self, earliest_s: float) -> None:
        """Update the line of a terminal if it is time."""
        now = self._clock()
        if self._is_terminal and now >= earliest_s:
            self._shown_s = now
            share = min(1.0, self._done / self._total) if self._total else 1.0
            percent = "" if self._total is None else f"{100 * share:3.0f} % "
            bar = percent and f"{percent}|{'#' * round(_BAR * share):{_BAR}}| "
            text = units.printable(self._text)
            rest = self._rest()
            width = self._width()
            if len(bar + text + rest) > width:  # the bar is what can be missed first
                bar = percent
                text = units.cut(text, max(_MIN_TEXT, width - len(bar + rest)))
            self._write(f"{bar}{text}{rest}")
            self._is_open = True

    def _rest(self) -> str:
        """Return the rate and the remaining time, as far as they are known."""
        seconds = self._clock() - self._began
        amount = self._done - self._first
        rate = (
            f", {units.count(round(amount / seconds))} {self._unit}/s"
            if self._unit and amount and seconds
            else ""
        )
        return rate + (f", {about(self.left_s)} left" if self.left_s else "")

    def _width(self) -> int:
        """Return the columns of the terminal that a line may have."""
        assert self._stream is not None, "a terminal"
        try:
            return os.get_terminal_size(self._stream.fileno()).columns - 1
        except (OSError, ValueError):  # a stream of a test
            return 79

    def _write(self, text: str) -> None:
        assert self._stream is not None, "a terminal"
        width = self._width()
        self._stream.write(f"{self._before}\r{text[:width]:{width}}" + ("" if text else "\r"))
        self._stream.flush()
        self._before = ""


def about(seconds: float) -> str:
    """Return a time that is estimated: ``about 20 s``, ``about 3 min``."""
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"
