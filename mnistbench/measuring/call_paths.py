"""Collects the call paths of a call: which function calls which, how often, and their self times.

A table of functions (:mod:`mnistbench.measuring.functions`) has a row for each function. Here each
path has one of its own, so that its time can be counted for the function that caused the calls.

Two collectors are needed. One of Python follows the paths and counts their calls; it makes short
functions take ten times as long, so it measures no time. cProfile takes 0.1 us for each call, but
knows pairs of callers and callees alone. The time of a path is its number of calls multiplied by
the time of a call in its last pair. Only the calling thread is seen. Does not import torch.
"""

from __future__ import annotations

import cProfile
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

from mnistbench.measuring.functions import name_of_c, without_hash

#: Most paths. Calls on further paths are not counted.
MAX_PATHS = 20_000

#: The path that all others continue: what runs outside of functions.
ROOT = 0


class BuiltIn(NamedTuple):
    """A function or method of C."""

    name: str  # qualified: list.append
    module: str


#: A function: its code object if it is one of Python.
Function = CodeType | BuiltIn

#: What cProfile knows a function by: its code object, or of C its last name.
ProfiledName = CodeType | str

#: A function that is called, by what calls it; None as caller: by any.
Pair = tuple[ProfiledName | None, ProfiledName]


@dataclass
class CallPaths:
    """The call paths of an iteration, in columns; a path follows the one that it continues."""

    parents: list[int] = field(default_factory=lambda: [-1])  # positions of the paths continued
    functions: list[Function | None] = field(default_factory=lambda: [None])  # the last ones
    calls: list[int] = field(default_factory=lambda: [0])
    # By the path continued and the function; of Python the id of its code, because the code of
    # another file may be equal.
    _positions: dict[tuple[int, int | BuiltIn], int] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Callable[[], object]) -> CallPaths:
        """Run an iteration, and return its call paths.

        Raises:
            RuntimeError: another profiler is active in this process.
        """
        _check_unprofiled()
        paths = cls()
        collector = _CallCollector(paths)
        sys.setprofile(collector.on_event)
        try:
            run()
        finally:
            sys.setprofile(None)
        return paths

    def self_ns(self, call_ns: Mapping[Pair, float]) -> list[float]:
        """Return the self time of each path, from that of a call of each pair."""
        names = [function and _profiled_name(function) for function in self.functions]
        return [
            calls * call_ns.get((names[parent], name), call_ns.get((None, name), 0.0))
            if name is not None
            else 0.0
            for parent, name, calls in zip(self.parents, names, self.calls, strict=True)
        ]

    def position(self, path: int, function: Function) -> int | None:
        """Return the position of the path on which a path calls a function.

        None if there are MAX_PATHS.
        """
        key = (path, function if isinstance(function, BuiltIn) else id(function))
        position = self._positions.get(key)
        if position is None and len(self.parents) < MAX_PATHS:
            position = len(self.parents)
            self._positions[key] = position
            self.parents.append(path)
            self.functions.append(function)
            self.calls.append(0)
        return position


class _CallCollector:
    """Follows the calls of an iteration."""

    def __init__(self, paths: CallPaths) -> None:
        self._paths = paths
        self._here = ROOT
        self._beyond = 0  # calls on the stack that have no path, because there are MAX_PATHS

    def on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call or the end of one, as ``sys.setprofile`` describes it."""
        if argument is sys.setprofile:  # the end of the iteration
            return
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
    if module is None:
        module = type(function.__self__).__module__
    return BuiltIn(function.__qualname__, without_hash(module))


# ---- Times ---------------------------------------------------------------------------------------


class CallTimes:
    """The shortest self time of a call, of each pair of a caller and what it calls.

    Other programs only add to a time, and may add more to a call than it takes itself.
    """

    def __init__(self) -> None:
        self._call_ns: dict[Pair, float] = {}
        self._calls: dict[ProfiledName, list[int]] = defaultdict(list)  # of iterations with some
        self._iterations = 0

    def varies(self, function: Function) -> bool:
        """Return whether a function is not called equally often in each iteration."""
        calls = self._calls.get(_profiled_name(function), [])
        return len(set(calls)) > 1 or len(calls) < self._iterations

    @property
    def call_ns(self) -> Mapping[Pair, float]:
        """Nanoseconds by caller and function; those of any caller have None as caller."""
        return self._call_ns

    def collect(self, run: Callable[[], object]) -> None:
        """Run an iteration.

        Raises:
            RuntimeError: another profiler is active in this process.
        """
        _check_unprofiled()
        profiler = cProfile.Profile()
        try:
            profiler.enable()
        except ValueError as error:  # since Python 3.12, of another cProfile
            raise RuntimeError(str(error)) from error
        try:
            run()
        finally:
            profiler.disable()
        totals: dict[Pair, tuple[int, float]] = {}
        for pair, calls, seconds in _pairs(profiler):
            known_calls, known_seconds = totals.get(pair, (0, 0.0))
            totals[pair] = (known_calls + calls, known_seconds + seconds)
        self._iterations += 1
        for pair, (calls, seconds) in totals.items():
            caller, function = pair
            if caller is None:
                self._calls[function].append(calls)
            call_ns = 1e9 * seconds / calls
            self._call_ns[pair] = min(call_ns, self._call_ns.get(pair, call_ns))


def _pairs(profiler: cProfile.Profile) -> Iterator[tuple[Pair, int, float]]:
    """Yield each pair with its calls and their self time in seconds."""
    for entry in profiler.getstats():
        function = _name(entry.code)
        yield (None, function), entry.callcount, entry.inlinetime
        for called in entry.calls or ():
            yield (function, _name(called.code)), called.callcount, called.inlinetime


def _check_unprofiled() -> None:
    if sys.getprofile() is not None:
        raise RuntimeError("another profiler is active")


def _profiled_name(function: Function) -> ProfiledName:
    return function.name.rpartition(".")[2] if isinstance(function, BuiltIn) else function


def _name(code: CodeType | str) -> ProfiledName:
    return code if isinstance(code, CodeType) else name_of_c(code)[0].rpartition(".")[2]
