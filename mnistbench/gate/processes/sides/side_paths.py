"""Collect the call paths of a case on one side, in lockstep with the process of the other side.

The process of a side loads this module.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import Callers, OpKey
from mnistbench.gate.processes.sides.case import SideCase
from mnistbench.gate.processes.sides.steps import Lockstep, SideRun
from mnistbench.gate.processes.sides.turns import Turns, in_pairs
from mnistbench.gate.samples.case_profile import CalledOperation, SideFunction, SidePaths
from mnistbench.measuring.call_paths import ROOT, CallPaths, CallTimes, Function
from mnistbench.measuring.functions import module_of_file, modules_of_files, without_hash
from mnistbench.measuring.provider import imported_provider

#: Fewest and most pairs of iterations whose calls are timed.
MIN_PAIRS = 3
MAX_PAIRS = 25
#: Those beyond the fewest are not made if they take longer without a profiler, in nanoseconds.
CALLS_NS = 500_000_000
#: Effort of their samples: a profiler makes a short function take several times as long.
SHORT_SAMPLES = 0.1

#: The function of the first path, which is the case itself.
CASE = "the case"

_T = TypeVar("_T")


def measure_paths(
    side_run: SideRun, turns: Turns, order: Sequence[str], coin: random.Random, home: Path
) -> dict[str, Any]:
    """Build a case, and collect its call paths in lockstep with the other side.

    Args and errors are those of ``steps.measure``; ``home`` is the folder of the gate's own copy.

    Returns:
        A ``SidePaths`` as JSON columns.
    """
    steps = Lockstep(side_run, turns, order, coin)
    steps.build()
    iteration_ns = steps.calibrate(steps.warm_up(), SHORT_SAMPLES)
    paths = CallPaths()
    for _ in turns.of(order):
        paths = _collected(side_run, CallPaths.of)
    times = CallTimes()
    pairs = max(MIN_PAIRS, min(MAX_PAIRS, CALLS_NS // iteration_ns))
    for _ in turns.of(in_pairs(order, coin, pairs)):
        _collected(side_run, times.collect)
    callers: Mapping[tuple[OpKey, Callers], int] = {}
    for _ in turns.of(order):
        if side_run.has_operations():
            callers = _callers_of_operations(side_run)
    return asdict(side_paths(paths, times, side_run.side.tree, home, side_run.case.loops, callers))


def _collected(side_run: SideRun, collect: Callable[[SideCase], _T]) -> _T:
    """Return what is collected of an iteration.

    Raises:
        SideError: the code of the side raises, or has a profiler of its own.
    """
    case = side_run.case
    with side_run.side.errors_named():
        case.prepare()
        try:
            with gc_paused():
                return collect(case)
        finally:
            case.finish()


def _callers_of_operations(side_run: SideRun) -> Mapping[tuple[OpKey, Callers], int]:
    """Return what calls each operation in an iteration.

    Raises:
        SideError: the code of the side raises.
    """
    with side_run.side.errors_named(), side_run.case.marked() as run:
        return imported_provider().callers_of_operations(run)


def side_paths(
    paths: CallPaths,
    times: CallTimes,
    tree: Path,
    home: Path,
    loops: int,
    callers: Mapping[tuple[OpKey, Callers], int],
) -> SidePaths:
    """Return call paths with the names of their functions.

    Args:
        paths: of an iteration.
        times: of calls.
        tree: of the side.
        home: folder of the gate's own copy, whose functions are left out.
        loops: number of times that an iteration has repeated the call.
        callers: what calls each operation, with its time; empty of a case without operations.
    """
    names = _FunctionNames(tree)
    functions = {SideFunction("", CASE, 0): 0}
    kept = {ROOT: ROOT}
    parents = [-1]
    last_functions = [0]
    calls = [1.0]
    varying: set[int] = set()
    own_ns = paths.self_ns(times.call_ns)
    self_ns = [0.0]  # of the gate's own functions
    for path, function in enumerate(paths.functions):
        if path == ROOT or function is None:
            continue
        parent = kept[paths.parents[path]]
        if isinstance(function, CodeType) and Path(function.co_filename).is_relative_to(home):
            kept[path] = parent
            continue
        kept[path] = len(parents)
        parents.append(parent)
        named = names.named(function)
        position = functions.setdefault(named, len(functions))
        last_functions.append(position)
        if paths.calls[path] % loops or times.varies(function):
            varying.add(position)
        calls.append(paths.calls[path] / loops)
        self_ns.append(own_ns[path] / loops)
    return SidePaths(
        list(functions),
        parents,
        last_functions,
        calls,
        self_ns,
        _called(callers, functions),
        sorted(varying),
    )


def _called(
    callers: Mapping[tuple[OpKey, Callers], int], functions: Mapping[SideFunction, int]
) -> list[CalledOperation]:
    """Return what calls each operation, of the functions of the tree."""
    functions_of_line = defaultdict(list)
    for function in functions:
        if function.path:
            functions_of_line[function.line].append(function)
    return [
        CalledOperation(
            operation,
            [
                functions[function]
                for caller in called_by
                for function in functions_of_line[caller.line]
                # Folders before the one that it is imported from are missing.
                if f"/{function.path}".endswith(f"/{caller.path}")
                and function.name.rpartition(".")[2] == caller.name
            ],
            self_ns,
        )
        for (operation, called_by), self_ns in callers.items()
    ]


class _FunctionNames:
    """Names of functions."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._modules = modules_of_files()
        self._known: dict[int, SideFunction] = {}  # by id: equal code may be of another file

    def named(self, function: Function) -> SideFunction:
        if id(function) not in self._known:
            self._known[id(function)] = self._named(function)
        return self._known[id(function)]

    def _named(self, function: Function) -> SideFunction:
        if not isinstance(function, CodeType):
            is_builtin = function.module == "builtins"
            return SideFunction(
                "", function.name if is_builtin else f"{function.module}.{function.name}", 0
            )
        file = Path(function.co_filename)
        if file.is_relative_to(self._tree):
            path = file.relative_to(self._tree).as_posix()
            return SideFunction(path, function.co_qualname, function.co_firstlineno)
        module = module_of_file(function.co_filename, self._modules) or without_hash(file.name)
        return SideFunction("", f"{module}.{function.co_qualname}", 0)
