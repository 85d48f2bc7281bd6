"""Runs cProfile over a call and returns the table of the functions that it runs.

Functions of Python and built-in ones are rows as operations are: a qualified name, the module of
Python in place of a module of a model, and the number of calls, which is exact. cProfile slows
Python down by some 0.2 us for each call, which it adds to the caller, so a function of many short
calls looks larger than it is. The times are saved as cProfile has them.

cProfile sees functions and methods of C, but no call of a type (``int("3")``) and no operator
(``a + b``). An operator of tensors runs an operation, so the provider of a framework makes these
operators visible while a call is profiled.
"""

from __future__ import annotations

import cProfile
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter_ns
from types import (
    CodeType,
    ModuleType,
)

from mnistbench.core import units
from mnistbench.core.operation import IN_TORCH, NO_MODULE, OpKey
from mnistbench.core.record import OpTable
from mnistbench.events.table import RowSums
from mnistbench.measuring import calls
from mnistbench.measuring.calls import Call
from mnistbench.measuring.provider import Provider, imported_provider

#: A method of C, as cProfile names it: ``<method 'sub' of 're.Pattern' objects>``.
_METHOD = re.compile(r"<method '(?P<name>.+)' of '(?:(?P<module>[\w.]+)\.)?(?P<type>\w+)' objects>")

#: A function of C: ``<built-in method builtins.len>``. A method of a type has no module:
#: ``<built-in method fromkeys>``.
_FUNCTION = re.compile(r"<built-in (?:method|function) (?:(?P<module>[\w.]+)\.)?(?P<name>\w+)>")

#: A method that is bound to a type: ``<built-in method __new__ of type object at 0x7f0c>``.
_BOUND = re.compile(r"<built-in method (?P<name>\w+) of (?P<type>\w+) object at 0x[0-9A-Fa-f]+>")

#: A method of C that a function of Python overrides: ``<function Numbers.append at 0x7f0c>``.
_OVERRIDDEN = re.compile(r"<function (?P<name>[\w.<>]+) at 0x[0-9A-Fa-f]+>")

#: The module of functions whose module cProfile does not know.
_BUILTINS = "builtins"

#: What ends the profile, which is no function of the call.
_END = "<method 'disable' of '_lsprof.Profiler' objects>"


def profile_functions(
    call: Call, *, iterations: int, duration_ns: float, project: Path
) -> OpTable | None:
    """Return the functions of a warm call, one sample per iteration; None if there are none.

    A sample repeats a call whose ``duration_ns`` is short.

    Args:
        call: what a test measures.
        iterations: number of samples.
        duration_ns: time of the call without a profiler.
        project: the folder that the paths of the functions' files are relative to.

    Raises:
        RuntimeError: another profiler is active in this process.
    """
    if sys.getprofile() is not None:
        raise RuntimeError("another profiler is active")
    loops = call.repetitions(duration_ns)
    iteration_ns = []
    rows: dict[OpKey, RowSums] = defaultdict(lambda: RowSums(iterations))
    provider = imported_provider()
    names = _Names(project, provider)
    profiler = cProfile.Profile()
    for slot in range(iterations):
        with call.prepared() as run, provider.visible_operators():
            start_ns = perf_counter_ns()
            profiler.enable()
            try:
                for _ in range(loops):
                    run()
            finally:
                profiler.disable()
            iteration_ns.append(perf_counter_ns() - start_ns)
        for entry in profiler.getstats():
            if (key := names.key(entry.code)) is None:
                continue
            row = rows[key]
            if key[0] != IN_TORCH:  # an operator is seen twice, once as the function around it
                row.calls[slot] += entry.callcount
            row.self_cpu[slot] += round(entry.inlinetime * 1e9)
            row.total_cpu[slot] += round(entry.totaltime * 1e9)
            row.sources.update(names.sources(entry.code))
        profiler.clear()
    if not rows:
        return None
    table = OpTable(
        temperature="warm",
        view="functions",
        iteration_ns=tuple(iteration_ns),
        rows=tuple(row.op_row(key, "functions") for key, row in rows.items()),
    )
    return table.of_one_call(loops)


class _Names:
    """Names of functions, from what cProfile has of them."""

    def __init__(self, project: Path, provider: Provider) -> None:
        self._project = project
        self._provider = provider
        self._modules = modules_of_files()

    def key(self, code: CodeType | str) -> OpKey | None:
        """Return name, phase and module of a function; None if it is not part of the call."""
        if code == _END:
            return None
        if self._provider.is_operator(code):
            return (IN_TORCH, "", NO_MODULE)
        if isinstance(code, str):
            name, module = name_of_c(code)
            is_of_framework = module.partition(".")[0] == self._provider.framework
            return (IN_TORCH, "", NO_MODULE) if is_of_framework else (name, "", module)
        if code.co_filename == calls.__file__:
            return None
        return (code.co_qualname, "", self._module(code.co_filename))

    def sources(self, code: CodeType | str) -> Iterator[str]:
        """Yield file and line of a function of Python."""
        if isinstance(code, CodeType) and not self._provider.is_operator(code):
            yield f"{shown_path(code.co_filename, self._project)}:{code.co_firstlineno}"

    def _module(self, file: str) -> str:
        return module_of_file(file, self._modules) or shown_path(file, self._project)


def shown_path(file: str, project: Path) -> str:
    """Return the path of a file relative to the project.

    If it is not the project's, relative to the folder that it is imported from: the same on other
    machines.
    """
    path = Path(file)
    if path.is_relative_to(project):
        relative = path.relative_to(project)
        if "site-packages" not in relative.parts:
            return relative.as_posix()
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return file


def module_of_file(file: str, modules: Mapping[str, str]) -> str:
    """Return the module of a file, as code objects name it; empty if it is no module.

    ``modules`` are those of all files.
    """
    frozen = re.fullmatch(r"<frozen (.+)>", file)
    return frozen[1] if frozen else without_hash(modules.get(file, ""))


#: The hash of code that torch.compile has generated, which is the name of its module.
_HASH = re.compile(r"\bc[a-z2-7]{51}\b")


def without_hash(name: str) -> str:
    """Return the name of a module, the same for generated code that differs."""
    return _HASH.sub("generated", name)


def modules_of_files() -> Mapping[str, str]:
    """Return the module of each imported file."""
    modules: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        # An object in place of a module may compute its attributes.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str):
            modules.setdefault(file, name)
    return modules


def name_of_c(text: str) -> tuple[str, str]:
    """Return qualified name and module of a function of C, from what cProfile calls it."""
    if match := _METHOD.fullmatch(text):
        return f"{match['type']}.{match['name']}", without_hash(match["module"] or _BUILTINS)
    if match := _FUNCTION.fullmatch(text):
        return match["name"], without_hash(match["module"] or _BUILTINS)
    if match := _BOUND.fullmatch(text):
        return f"{match['type']}.{match['name']}", _BUILTINS
    if match := _OVERRIDDEN.fullmatch(text):
        return match["name"], _BUILTINS
    return units.without_addresses(text), _BUILTINS
