"""The call paths of a case on one side, as its process sends them.

The process of a side loads this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from mnistbench.core.operation import OpKey
from mnistbench.gate.messages import CalledOperation, SideFunction, SidePaths
from mnistbench.measuring.call_paths import ROOT, CallPaths, CallTimes, Function
from mnistbench.measuring.functions import module_of_file, modules_of_files

if TYPE_CHECKING:  # it needs torch
    from mnistbench.measuring.operation_callers import Callers

#: The function of the first path, which is the case itself.
CASE = "the case"


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
        last_functions.append(functions.setdefault(named, len(functions)))
        calls.append(paths.calls[path] / loops)
        self_ns.append(own_ns[path] / loops)
    return SidePaths(
        list(functions), parents, last_functions, calls, self_ns, _called(callers, functions)
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
        module = module_of_file(function.co_filename, self._modules) or file.name
        return SideFunction("", f"{module}.{function.co_qualname}", 0)
