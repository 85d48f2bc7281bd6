"""Collects the call paths of a call: which function calls which, how often, and the self times.

A table of functions (:mod:`mnistbench.measuring.functions`) is made by cProfile, which is faster
and knows the pairs of callers and callees alone. Here each path has a row of its own, so that the
time of a function can be counted for the function that caused the calls.

The clock is read at the beginning and at the end of each event, so the work of the collector
belongs to no function. What is left of its cost, about 0.2 us for each call, belongs to the caller
and the callee. Only the calling thread is seen. Does not import torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple

#: Most paths. Calls on further paths count for the path that they continue.
MOST_PATHS = 50_000

#: The path that all others continue: what runs outside of functions.
ROOT = 0


class BuiltIn(NamedTuple):
    """A function or method of C."""

    name: str  # qualified: list.append
    module: str


#: A function: its code object if it is one of Python.
Function = CodeType | BuiltIn


@dataclass
class CallPaths:
    """The call paths of some iterations, in columns; a path follows the one that it continues."""

    parents: list[int] = field(default_factory=lambda: [-1])  # positions of the paths continued
    functions: list[Function | None] = field(default_factory=lambda: [None])  # the last ones
    calls: list[int] = field(default_factory=lambda: [0])  # of the last iteration
    # Of each iteration: nanoseconds without those of the functions called, by path. Paths of later
    # iterations are missing.
    self_ns: list[list[int]] = field(default_factory=list)
    _positions: dict[tuple[int, object], int] = field(default_factory=dict)

    def collect(self, run: Callable[[], object]) -> None:
        """Run an iteration.

        Raises:
            RuntimeError: another profiler is active in this process.
        """
        if sys.getprofile() is not None:
            raise RuntimeError("another profiler is active")
        self.calls = [0] * len(self.parents)
        self.self_ns.append([0] * len(self.parents))
        collector = _CallCollector(self)
        sys.setprofile(collector.on_event)
        try:
            run()
        finally:
            sys.setprofile(None)

    def position(self, path: int, function: Function) -> int | None:
        """Return the position of the path on which a path calls a function.

        None if there are MOST_PATHS.
        """
        position = self._positions.get((path, function))
        if position is None and len(self.parents) < MOST_PATHS:
            position = len(self.parents)
            self._positions[path, function] = position
            self.parents.append(path)
            self.functions.append(function)
            self.calls.append(0)
            self.self_ns[-1].append(0)
        return position

    def shortest_ns(self) -> list[int]:
        """Return the shortest self time of each path in the iterations that have it.

        Other programs only add to it, and may add more to a path than it takes itself.
        """
        return [
            min(
                (times[path] for times in self.self_ns if path < len(times) and times[path]),
                default=0,
            )
            for path in range(len(self.parents))
        ]


class _CallCollector:
    """Follows the calls of an iteration."""

    def __init__(self, paths: CallPaths) -> None:
        self._paths = paths
        self._self_ns = paths.self_ns[-1]
        self._here = ROOT
        self._beyond = 0  # calls on the stack that have no path, because there are MOST_PATHS
        self._last_ns = perf_counter_ns()

    def on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call or the end of one, as ``sys.setprofile`` describes it."""
        if argument is sys.setprofile:  # the end of the iteration
            return
        self._self_ns[self._here] += perf_counter_ns() - self._last_ns
        begins = event in ("call", "c_call")
        if self._beyond:
            self._beyond += 1 if begins else -1
        elif not begins:
            self._here = self._caller(frame.f_code if event == "return" else None)
        else:
            function = frame.f_code if event == "call" else _built_in(argument)
            position = self._paths.position(self._here, function)
            if position is None:
                self._beyond = 1
            else:
                self._here = position
                self._paths.calls[position] += 1
        self._last_ns = perf_counter_ns()

    def _caller(self, code: CodeType | None) -> int:
        """Return the path that called the function that ends: one of C if the code is None.

        A generator into which an exception is thrown ends without having begun (Python 3.11).
        """
        path = self._here
        while path != ROOT:
            function = self._paths.functions[path]
            if isinstance(function, BuiltIn) if code is None else function is code:
                return self._paths.parents[path]
            path = self._paths.parents[path]
        return self._here


def _built_in(function: Any) -> BuiltIn:
    """Return the names of a function or a method of C."""
    module = function.__module__
    return BuiltIn(
        function.__qualname__, type(function.__self__).__module__ if module is None else module
    )
