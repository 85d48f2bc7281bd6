"""What torch.compile made of a case: graphs, graph breaks and recompilations, which are counted.

Times of compilation are here, too; they are timed, not counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mnistbench.core import units

#: Parts of a function that are compiled one after the other.
FORWARD_PART = "forward"
BACKWARD_PART = "backward"

#: The longest text of a reason in a line, in characters.
LONGEST_REASON = 120

#: Most operations that a line names.
_MAX_NAMED = 3

#: A value that a guard compares with: a number, a constant of Python, or a text.
_VALUE = re.compile(r"\d+(?:\.\d+)?|\b(?:True|False|None)\b|(?<=== )(?:'[^']*'|\"[^\"]*\")")


@dataclass(frozen=True)
class CodePlace:
    """A line of the user's code."""

    path: str  # of its file, relative to the folder that it is imported from
    line: int
    function: str  # its name

    def __str__(self) -> str:
        """Return ``model.py:13``."""
        return f"{self.path}:{self.line}"

    @property
    def without_line(self) -> str:
        """The place as two commits have it in common: ``forward of model.py``."""
        return f"{self.function} of {self.path}"


@dataclass(frozen=True)
class GraphBreak:
    """A place at which tracing ends, so that a function becomes several graphs."""

    reason: str  # one line, as PyTorch gives it
    place: CodePlace


@dataclass(frozen=True)
class Recompilation:
    """A guard that failed, so that a function was compiled again."""

    guard: str  # that failed first, as PyTorch gives it: ``self.k == 0``
    place: CodePlace  # where the value is used, or the compiled function
    times: int = 1  # how often the guard failed, with any values


@dataclass(frozen=True)
class GraphOperation:
    """An operation of a line, in a graph."""

    name: str  # of ATen, as the program calls it: native_layer_norm
    result: str  # type and shape of what it computes: "float32[16, 128]"
    place: CodePlace  # the line that calls it
    text: str  # of this line
    calls: int  # in the graph


@dataclass(frozen=True)
class CompiledGraph:
    """A graph and what was generated for it."""

    place: CodePlace  # of the function that was traced
    part: str  # FORWARD_PART or BACKWARD_PART
    operations: int  # calls in the graph that is compiled
    kernels: int  # generated ones that it calls
    external_calls: int
    fallbacks: tuple[str, ...] = ()  # operations for which ATen is called, in order
    # Of the forward part: what the backend was given, before its passes.
    calls: tuple[GraphOperation, ...] = ()


@dataclass(frozen=True)
class CompileTime:
    """The time of a first call, in its parts, in nanoseconds."""

    tracing_ns: int  # Dynamo: bytecode to graph, and guards
    backend_ns: int  # AOTAutograd and the passes of the backend
    build_ns: int  # kernels: generated and built; 0 if the cache had all graphs
    run_ns: int  # the call itself

    @property
    def parts(self) -> dict[str, int]:
        """The parts as people read them, in their order."""
        return {
            "tracing": self.tracing_ns,
            "backend": self.backend_ns,
            "generation and build": self.build_ns,
            "run": self.run_ns,
        }

    @property
    def compile_ns(self) -> int:
        """The time of compilation."""
        return self.tracing_ns + self.backend_ns + self.build_ns

    @property
    def total_ns(self) -> int:
        """The time of the call."""
        return self.compile_ns + self.run_ns


@dataclass(frozen=True)
class Compilation:
    """What torch.compile made of a case, in a fixed number of calls."""

    graphs: tuple[CompiledGraph, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    recompilations: tuple[Recompilation, ...] = ()
    cuda_graphs: str = ""  # "used", or why they were skipped; empty if nothing asked for them
    cache_hits: int = 0  # graphs that the FX graph cache had in a first call after another one
    cache_misses: int = 0
    cold: CompileTime | None = None  # first call with an empty cache; None: not measured
    warm: CompileTime | None = None  # first call with the cache that this one filled
    notes: tuple[str, ...] = ()  # what this version of PyTorch does not tell

    @property
    def summary(self) -> str:
        """The counts in one line."""
        counts = [
            units.counted(self.n_graphs, "graph"),
            (
                f"{units.counted(self.n_operations, 'operation')} in "
                f"{units.counted(self.n_kernels, 'generated kernel')} and "
                f"{units.counted(self.n_external_calls, 'library call')}"
            ),
            units.counted(len(self.breaks), "graph break"),
            units.counted(self.n_recompilations, "recompilation"),
        ]
        if self.cuda_graphs:
            counts.append(f"CUDA graphs {self.cuda_graphs}")
        return ", ".join(counts)

    @property
    def first_calls(self) -> dict[str, CompileTime]:
        """The times of first calls that were measured, by what they are called."""
        times = {
            "first call with empty cache": self.cold,
            "first call with filled cache": self.warm,
        }
        return {name: time for name, time in times.items() if time is not None}

    @property
    def n_graphs(self) -> int:
        """Graphs of functions; the backward part of one is not counted again."""
        return sum(graph.part == FORWARD_PART for graph in self.graphs)

    @property
    def n_operations(self) -> int:
        """Calls in all graphs."""
        return sum(graph.operations for graph in self.graphs)

    @property
    def n_kernels(self) -> int:
        """Generated kernels that all graphs call."""
        return sum(graph.kernels for graph in self.graphs)

    @property
    def n_external_calls(self) -> int:
        """Calls of libraries and of ATen in all graphs."""
        return sum(graph.external_calls for graph in self.graphs)

    @property
    def n_recompilations(self) -> int:
        """How often a function was compiled again."""
        return sum(recompilation.times for recompilation in self.recompilations)


def lines_of(compilation: Compilation) -> Iterator[str]:
    """Yield what is shown below the table of a case, a line each."""
    yield f"compiled: {compilation.summary}"
    if compilation.graphs:
        yield (
            "kernels are named in a separate compilation; the time without the profiler is that of "
            "the program's own"
        )
    for graph_break in compilation.breaks:
        reason = units.cut(graph_break.reason, LONGEST_REASON)
        yield f"graph break at {graph_break.place}: {reason}"
    for recompilation in compilation.recompilations:
        place = recompilation.place
        guard = units.cut(recompilation.guard, LONGEST_REASON)
        times = f" ({recompilation.times} times)" if recompilation.times > 1 else ""
        yield f"recompiled {place.function} at {place}: {guard} failed{times}"
    if fallbacks := _fallbacks(compilation):
        yield f"no kernel is generated for {', '.join(sorted(fallbacks))}: ATen computes it"
    for name, time in compilation.first_calls.items():
        yield f"{name}: {time_text(time)}"
    hits = compilation.cache_hits
    if requests := hits + compilation.cache_misses:
        yield f"FX graph cache: {hits} of {requests} graphs found"
    yield from compilation.notes


def time_text(time: CompileTime) -> str:
    """Return ``15.8 s (tracing 0.5 s, backend 1.2 s, generation and build 13.9 s, run 0.2 s)``."""
    shown = ", ".join(f"{name} {units.duration(ns)}" for name, ns in time.parts.items())
    return f"{units.duration(time.total_ns)} ({shown})"


def _fallbacks(compilation: Compilation) -> Counter[str]:
    return Counter(name for graph in compilation.graphs for name in graph.fallbacks)


# ---- Differences ---------------------------------------------------------------------------------


#: What breaks a graph, or has a function compiled again.
_Cause = TypeVar("_Cause", GraphBreak, Recompilation)


@dataclass(frozen=True)
class CompilationDifference:
    """What differs between the compilations of two sides, and the line that is its cause."""

    text: str
    place: CodePlace | None = None  # of the cause
    is_of_base: bool = False  # the place is one of the base: the cause has vanished
    only_sizes: bool = False  # of the operations at the place differ, or their types or numbers


def differences(base: Compilation, head: Compilation) -> Iterator[CompilationDifference]:
    """Yield what differs exactly, the causes first: breaks, recompilations, fallbacks, counts.

    Lines are not compared: a comment above a function moves them.
    """
    yield from _causes(base.breaks, head.breaks, _identity_of_break, _break_text)
    yield from _causes(
        base.recompilations, head.recompilations, _identity_of_recompilation, _recompilation_text
    )
    yield from _changed_lines(base, head)
    before = _fallbacks(base)
    after = _fallbacks(head)
    for name in sorted({*before, *after}):
        if before[name] != after[name]:
            yield CompilationDifference(
                f"calls of ATen for {name}: {before[name]} -> {after[name]}"
            )
    for name, base_count, head_count in (
        ("graphs", base.n_graphs, head.n_graphs),
        ("graph breaks", len(base.breaks), len(head.breaks)),
        ("recompilations", base.n_recompilations, head.n_recompilations),
        ("operations of the graphs", base.n_operations, head.n_operations),
        ("generated kernels", base.n_kernels, head.n_kernels),
        ("library calls", base.n_external_calls, head.n_external_calls),
        ("CUDA graphs", base.cuda_graphs or "not used", head.cuda_graphs or "not used"),
    ):
        if base_count != head_count:
            yield CompilationDifference(f"{name}: {base_count} -> {head_count}")


def _changed_lines(base: Compilation, head: Compilation) -> Iterator[CompilationDifference]:
    """Yield the lines of the head that are new in the graphs, then those with other operations.

    A line has other operations if its function gets tensors of another size or type.
    """
    before = _lines_of_graphs(base)
    if not before:  # compiled by another backend, whose graphs are not described
        return
    of_other_operations = []
    for identity, line in _lines_of_graphs(head).items():
        base_line = before.get(identity)
        more = line.operations - base_line.operations if base_line else line.operations
        what = units.and_more(sorted({name for name, _ in more}), _MAX_NAMED)
        text = f"{line.place} ({line.place.function}): {what}"
        if base_line is None:
            yield CompilationDifference(f"{text} new in the graph", line.place)
        elif more:
            of_other_operations.append(
                CompilationDifference(
                    f"{text} of another size, type or number", line.place, only_sizes=True
                )
            )
    yield from of_other_operations


@dataclass(frozen=True)
class _GraphLine:
    """A line of the program, in the forward graphs."""

    place: CodePlace
    operations: Counter[tuple[str, str]]  # name and result -> calls


def _lines_of_graphs(compilation: Compilation) -> dict[tuple[str, str], _GraphLine]:
    """Return the lines by what two commits have in common: the function, and the text."""
    lines: dict[tuple[str, str], _GraphLine] = {}
    for graph in compilation.graphs:
        for call in graph.calls:
            identity = (call.place.without_line, call.text)
            line = lines.setdefault(identity, _GraphLine(call.place, Counter()))
            line.operations[call.name, call.result] += call.calls
    return lines


def time_differences(base: Compilation | None, head: Compilation | None) -> Iterator[str]:
    """Yield the times of first calls on both sides, and the part that changed most.

    They are timed, so they differ between runs of the same code. A side that is not compiled has
    none: ``first call with empty cache, head: 4.58 s (tracing 0.2 s, ...)``.
    """
    before = base.first_calls if base else {}
    after = head.first_calls if head else {}
    for name in {**before, **after}:
        if name in before and name in after:
            yield f"{name}: {_change_text(before[name], after[name])}"
        elif name in before:
            yield f"{name}, base: {time_text(before[name])}"
        else:
            yield f"{name}, head: {time_text(after[name])}"


def _change_text(before: CompileTime, after: CompileTime) -> str:
    """Return ``4.58 s -> 6.10 s (generation and build 3.98 s -> 5.40 s)``."""
    part = max(after.parts, key=lambda name: abs(after.parts[name] - before.parts[name]))
    part_before = units.duration(before.parts[part])
    part_after = units.duration(after.parts[part])
    return (
        f"{units.duration(before.total_ns)} -> {units.duration(after.total_ns)} "
        f"({part} {part_before} -> {part_after})"
    )


def without_values(guard: str) -> str:
    """Return a guard without values: ``self.k == 0`` and ``self.k == 1`` fail for one reason."""
    return _VALUE.sub("VALUE", guard)


def _causes(
    base: Sequence[_Cause],
    head: Sequence[_Cause],
    identity: Callable[[_Cause], tuple[str, str]],
    text: Callable[[_Cause], str],
) -> Iterator[CompilationDifference]:
    """Yield the causes that one side alone has, those of the head first.

    Args:
        base: causes of the base.
        head: causes of the head.
        identity: returns what two commits have in common of a cause.
        text: returns a cause in words.
    """
    of_base = {identity(cause): cause for cause in base}
    of_head = {identity(cause): cause for cause in head}
    for key, cause in of_head.items():
        if key not in of_base:
            yield CompilationDifference(f"new {text(cause)}", cause.place)
    for key, cause in of_base.items():
        if key not in of_head:
            yield CompilationDifference(f"vanished {text(cause)}", cause.place, is_of_base=True)


def _identity_of_break(graph_break: GraphBreak) -> tuple[str, str]:
    return graph_break.reason, graph_break.place.without_line


def _break_text(graph_break: GraphBreak) -> str:
    return f"graph break at {graph_break.place} ({units.cut(graph_break.reason, LONGEST_REASON)})"


def _identity_of_recompilation(recompilation: Recompilation) -> tuple[str, str]:
    return without_values(recompilation.guard), recompilation.place.without_line


def _recompilation_text(recompilation: Recompilation) -> str:
    place = recompilation.place
    guard = units.cut(recompilation.guard, LONGEST_REASON)
    return f"recompilation of {place.function} at {place} ({guard} fails)"
