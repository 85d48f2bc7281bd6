"""What torch.compile does, read from its structured trace.

``TORCH_TRACE`` writes the trace to files. It has the reason and the place of each graph break, the
guards that fail, and the numbers and times of each compilation. What it does not have is private in
PyTorch, and may be missing in another version; then the record has a line about it:

- which nodes of the graph a kernel computes: ``torch._inductor.debug`` keeps it while a graph is
  compiled, for ``trace.provenance_tracking_level``;
- why no CUDA graph is used: it is in the log of Inductor.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from mnistbench.core import units
from mnistbench.core.compiled.compilation import (
    FORWARD_PART,
    CodePlace,
    Compilation,
    CompiledGraph,
    CompileTime,
    GraphBreak,
    GraphOperation,
    Recompilation,
    without_values,
)
from mnistbench.events.linking.compiled import CallsOfGraphs, KernelCall
from mnistbench.measuring.functions import modules_of_files
from mnistbench.suite.measuring.compiled_graphs import (
    InductorGraph,
    function_named,
    innermost_frame,
    module_of,
    operations_of_lines,
    shown,
)

#: The logger of the structured trace.
_TRACE = "torch.__trace"
#: The logger that says why no CUDA graph is used.
_CUDA_GRAPHS = "torch._inductor.cudagraph_utils.__cudagraphs"

#: Note if functions were compiled, but not by Inductor.
_OTHER_BACKEND = "compiled by another backend than Inductor: no graph of it is described"

#: Between the reasons for which a function is not compiled.
_NEXT_REASON = "another graph break occurred: ***"

_UNKNOWN = CodePlace("", 0, "")

#: Name, part and module of a row of a kernel.
_Row = tuple[str, str, str]


class CompilationLog(logging.Handler):
    """Collects what torch.compile does, while it is attached."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._breaks: dict[tuple[str, CodePlace], GraphBreak] = {}
        self._failed_guards: list[tuple[str, str]] = []  # compilation, text
        self._metrics: list[dict[str, Any]] = []
        self._graphs: list[InductorGraph] = []
        self._begun: InductorGraph | None = None  # that is being compiled
        self._earlier_calls: frozenset[str] = frozenset()  # of graphs before
        self._modules: dict[str, str] = {}  # compilation -> hash of the modules of its nodes
        # Compilation -> what the backend was given.
        self._operations: dict[str, tuple[GraphOperation, ...]] = {}
        self._cache: Counter[str] = Counter()  # hit, miss, bypass
        self._cuda_graphs_skipped: dict[str, None] = {}  # reasons, as an ordered set
        self._notes: dict[str, None] = {}  # as an ordered set

    # ---- Events ----------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        """Read an event; one that is not as expected becomes a note, not an error."""
        if record.name == _CUDA_GRAPHS:
            if record.levelno >= logging.WARNING:
                self._cuda_graphs_skipped[_reason_of_skip(record.getMessage())] = None
            return
        metadata = getattr(record, "metadata", None)
        if not isinstance(metadata, dict) or not metadata:
            return
        kind = next(iter(metadata))
        name = metadata[kind].get("name") if kind == "artifact" else kind
        read = self._READERS.get(name)
        if read is None:
            return
        try:
            read(self, metadata, getattr(record, "payload", None) or "")
        except Exception as error:  # noqa: BLE001  # the trace of another version of PyTorch
            note = f"torch {torch.__version__}: {name} was not read ({type(error).__name__})"
            self._notes[note] = None

    def _read_break(self, _: Mapping[str, Any], payload: str) -> None:
        traceback = payload.partition("User code traceback:")[2].partition("\n\nTraceback")[0]
        frame = innermost_frame(traceback, or_of_torch=True)
        place = frame.place if frame else _UNKNOWN
        paragraphs = [part.strip() for part in payload.split("\n\n")]
        reason = next((part for part in paragraphs[1:] if part), paragraphs[0])
        title, *details = (line.strip() for line in reason.splitlines())
        explanation = next((line for line in details if line.startswith("Explanation: ")), "")
        text = ": ".join(filter(None, (title, explanation.removeprefix("Explanation: "))))
        in_one_line = units.without_addresses(" ".join(text.split()))
        self._breaks.setdefault((title, place), GraphBreak(in_one_line, place))

    def _read_recompilation(self, metadata: Mapping[str, Any], payload: str) -> None:
        # A text or a JSON list of texts, the guards of the newest compilation first.
        reasons = json.loads(payload) if payload.startswith("[") else [payload]
        self._failed_guards.append((_compilation_of(metadata), str(reasons[0])))

    def _read_metrics(self, metadata: Mapping[str, Any], _: str) -> None:
        self._metrics.append(dict(metadata[next(iter(metadata))]))

    def _read_kernels(self, *_: object) -> None:
        if self._begun is None:  # the cache had the graph
            return
        self._begun.calls = [
            (name, tuple(nodes))
            for name, nodes in _nodes_of_kernels().items()
            if name not in self._earlier_calls
        ]
        self._graphs.append(self._begun)
        self._begun = None

    def _read_cache(self, metadata: Mapping[str, Any], payload: str) -> None:
        result = metadata["artifact"]["name"].removeprefix("fx_graph_cache_")
        self._cache[result] += 1
        if not self._modules:  # nothing is observed
            return
        key = json.loads(payload).get("key")
        if result == "hit":
            self._graphs.append(InductorGraph.kept(key, _compilation_of(metadata)))
        elif result == "miss" and key and self._graphs:
            self._graphs[-1].keep(key)

    _READERS: Mapping[str, Callable[[CompilationLog, Mapping[str, Any], str], None]] = {
        "dynamo_graph_break_reason": _read_break,
        "recompile_reasons": _read_recompilation,
        "compilation_metrics": _read_metrics,
        "bwd_compilation_metrics": _read_metrics,
        "inductor_provenance_tracking_kernel_stack_traces": _read_kernels,
        "fx_graph_cache_hit": _read_cache,
        "fx_graph_cache_miss": _read_cache,
        "fx_graph_cache_bypass": _read_cache,
    }

    def note_whole_graph(self, graph: torch.fx.Graph) -> None:
        """Keep what a graph has before Inductor's passes, and before the cache is asked for it."""
        compilation = _current_compilation()
        modules = repr([module_of(node) for node in graph.nodes])
        self._modules[compilation] = hashlib.sha256(modules.encode()).hexdigest()
        self._operations[compilation] = operations_of_lines(graph)

    @property
    def key_of_modules(self) -> str | None:
        """What the cache has to know beside a graph; None if that is not known."""
        return self._modules.get(_current_compilation())

    def note_graph(self, graph: torch.fx.Graph) -> None:
        """Keep the nodes of a graph that Inductor is about to compile."""
        self._begun = InductorGraph.of(graph, _current_compilation())
        # Those of backward parts are kept together.
        self._earlier_calls = frozenset(_nodes_of_kernels())

    # ---- Results ---------------------------------------------------------------------------------

    @property
    def graphs(self) -> Sequence[InductorGraph]:
        """The graphs, in the order in which they were compiled."""
        return self._graphs

    @property
    def cuda_graphs(self) -> str:
        """``used``, or ``skipped`` and why; empty if nothing asked for CUDA graphs."""
        asking = [graph for graph in self._graphs if graph.asks_for_cuda_graphs]
        if not asking:
            return ""
        skipped = dict(self._cuda_graphs_skipped)
        if not all(graph.uses_accelerator for graph in asking):
            skipped["a graph runs on the CPU"] = None  # for which Inductor gives no reason
        reasons = "; ".join(skipped)
        return f"skipped: {reasons}" if reasons else "used"

    @property
    def cache_hits(self) -> int:
        """Graphs that the FX graph cache had."""
        return self._cache["hit"]

    @property
    def cache_misses(self) -> int:
        """Graphs that the FX graph cache had not."""
        return self._cache["miss"] + self._cache["bypass"]

    @property
    def not_compiled(self) -> list[str]:
        """A line for each function that Dynamo has given up, with the reason."""
        places = self._places()
        lines: dict[str, None] = {}  # as an ordered set
        for metrics in self._metrics:
            if reason := metrics.get("fail_reason"):
                place = places.get(str(metrics["compile_id"]), _UNKNOWN)
                # The last one of several reasons is that for which nothing is compiled.
                last = str(reason).rpartition(_NEXT_REASON)[2].strip().partition("\n")[0]
                lines[f"{place.function} at {place} is not compiled: {last}"] = None
        return [*lines]

    def time(self, total_ns: int) -> CompileTime:
        """Return the parts of a call in which everything so far was compiled."""
        whole_s = self._sum_s("entire_frame_compile_time_s")
        backend_s = self._sum_s("backend_compile_time_s")
        build_s = self._sum_s("code_gen_time_s")
        # That of the backward part, which is compiled when it first runs, is in no frame.
        later_s = sum(
            metrics.get("inductor_compile_time_s") or 0.0
            for metrics in self._metrics
            if not metrics.get("entire_frame_compile_time_s")
        )
        tracing_ns = round(1e9 * max(0.0, whole_s - backend_s))
        build_ns = round(1e9 * build_s)
        backend_ns = round(1e9 * max(0.0, backend_s + later_s - build_s))
        run_ns = max(0, total_ns - tracing_ns - backend_ns - build_ns)
        return CompileTime(tracing_ns, backend_ns, build_ns, run_ns)

    def _sum_s(self, name: str) -> float:
        return sum(metrics.get(name) or 0.0 for metrics in self._metrics)

    @property
    def _ordered_graphs(self) -> list[InductorGraph]:
        return sorted(self._graphs, key=lambda graph: graph.order)

    def compilation(self) -> Compilation:
        """Return what was compiled so far."""
        places = self._places()
        # Of a function that was compiled again, the newest graphs are those in use.
        newest = {(graph.function, graph.part): graph for graph in self._ordered_graphs}
        notes = [*self._notes, *self.not_compiled]
        if not self._graphs and any(metrics.get("graph_op_count") for metrics in self._metrics):
            notes.append(_OTHER_BACKEND)
        return Compilation(
            graphs=tuple(self._compiled(graph, places) for graph in newest.values()),
            breaks=tuple(self._breaks.values()),
            recompilations=self._recompilations(places),
            cuda_graphs=self.cuda_graphs,
            notes=tuple(notes),
        )

    def _places(self) -> dict[str, CodePlace]:
        """Return the function of each compilation."""
        return {
            str(metrics["compile_id"]): CodePlace(
                shown(metrics.get("co_filename") or ""),
                int(metrics.get("co_firstlineno") or 0),
                function_named(metrics["co_name"]),
            )
            for metrics in self._metrics
            if metrics.get("co_name")
        }

    def _compiled(self, graph: InductorGraph, places: Mapping[str, CodePlace]) -> CompiledGraph:
        are_generated = [row.is_generated for row in graph.rows("")]
        is_forward = graph.part == FORWARD_PART
        return CompiledGraph(
            places.get(graph.compilation, _UNKNOWN),
            graph.part,
            operations=len(graph.nodes),
            kernels=are_generated.count(True),
            external_calls=are_generated.count(False),
            fallbacks=graph.fallbacks,
            calls=self._operations.get(graph.compilation, ()) if is_forward else (),
        )

    def _recompilations(self, places: Mapping[str, CodePlace]) -> tuple[Recompilation, ...]:
        recompilations: dict[tuple[str, str], Recompilation] = {}
        modules = modules_of_files()
        for compilation, text in self._failed_guards:
            guard, user_code = _guard_of(text)
            function = places.get(compilation, _UNKNOWN)
            place = _place_in(user_code, function, modules) or function
            key = (without_values(guard), place.without_line)
            earlier = recompilations.get(key)
            recompilations[key] = Recompilation(
                earlier.guard if earlier else guard, place, earlier.times + 1 if earlier else 1
            )
        return tuple(recompilations.values())

    def calls_of_graphs(self, outside: str) -> CallsOfGraphs:
        """Return the kernels and library calls of each graph, with the names of their rows.

        Kernels with equal names, parts and modules are numbered in their order. The variants of one
        function, which a failed guard makes, have rows in common.

        Args:
            outside: module of calls in no module of the model.
        """
        calls: dict[tuple[str, str], tuple[KernelCall, ...]] = {}
        of_function: dict[str, Counter[_Row]] = {}
        for graph in self._ordered_graphs:
            of_function.setdefault(graph.function, Counter())
            before = sum(
                (rows for function, rows in of_function.items() if function != graph.function),
                Counter[_Row](),
            )
            seen: Counter[_Row] = Counter()
            named = []
            for kernel in graph.rows(outside):
                row = (kernel.name, graph.part, kernel.module)
                seen[row] += kernel.is_generated
                number = before[row] + seen[row]
                is_numbered = kernel.is_generated and number > 1
                name = f"{kernel.name} ({number})" if is_numbered else kernel.name
                named.append(KernelCall(kernel.event, name, kernel.module))
            of_function[graph.function] |= seen
            calls.setdefault((graph.compilation, graph.part), tuple(named))
        return calls


@contextlib.contextmanager
def logged() -> Iterator[CompilationLog]:
    """Collect what torch.compile does in the body."""
    log = CompilationLog()
    trace = logging.getLogger(_TRACE)
    level = trace.level
    loggers = (trace, logging.getLogger(_CUDA_GRAPHS))
    for logger in loggers:
        logger.addHandler(log)
    trace.setLevel(logging.DEBUG)
    try:
        yield log
    finally:
        trace.setLevel(level)
        for logger in loggers:
            logger.removeHandler(log)


def _nodes_of_kernels() -> Mapping[str, list[str]]:
    """Return the kernels of the graph that is being compiled, and the nodes that they compute."""
    from torch._inductor import debug

    kernels: Mapping[str, list[str]] = debug._inductor_triton_kernel_to_post_grad_node_info  # noqa: SLF001
    return kernels


def _current_compilation() -> str:
    from torch._guards import CompileContext

    number = CompileContext.current_compile_id()
    return f"{number.frame_id}/{number.frame_compile_id}" if number else ""


def _compilation_of(metadata: Mapping[str, Any]) -> str:
    """Return the compilation of an event, as the profiler shows it: ``0/0``."""
    return f"{metadata.get('frame_id', '')}/{metadata.get('frame_compile_id', '')}"


# ---- Texts of PyTorch ----------------------------------------------------------------------------

#: A guard, and the line of the user's code that it is for: ``1/0: s.k == 0  # s.k+=1  # a/m.py:22
#: in forward``.
_GUARD = re.compile(r"^(?:\d+/\d+: )?(?P<guard>.*?)(?:\s+#\s(?P<user_code>.*))?$", re.DOTALL)
_USER_CODE = re.compile(r"# (?P<path>\S+):(?P<line>\d+) in (?P<function>\S+)")


def _guard_of(text: str) -> tuple[str, str]:
    """Return a failed guard in one line, and the user's code that it is for."""
    match = _GUARD.fullmatch(text.strip())
    assert match is not None, "any text"
    return " ".join(match["guard"].split()), match["user_code"] or ""


def _place_in(user_code: str, function: CodePlace, modules: Mapping[str, str]) -> CodePlace | None:
    """Return the line of the user's code; None if it is PyTorch's.

    Dynamo shows the path without the folders that it has in common with PyTorch's. If these are
    none, it leaves out the first character, too.

    Args:
        user_code: what Dynamo says of a guard: ``# x * k  # mp/project/model.py:13 in forward``.
        function: that was compiled.
        modules: file -> module, of all that are imported.
    """
    match = _USER_CODE.search(f"# {user_code}")
    if match is None or match["path"].startswith(("torch/", "_dynamo/")):
        return None
    end = match["path"]
    file = next((file for file in modules if file.endswith(f"/{end}") or file[2:] == end), "")
    if file:
        path = shown(file)
    elif function.path.endswith(os.path.basename(end)):  # noqa: PTH119
        path = function.path
    else:
        path = end
    return CodePlace(path, int(match["line"]), function_named(match["function"]))


#: In a reason: the name of a node, and where it is used.
_NODE = re.compile(r" \(\w+\)|\. Found from\b.*", re.DOTALL)


def _reason_of_skip(message: str) -> str:
    """Return the reason of a message of Inductor's: ``skipping cudagraphs due to ...``."""
    reason = message.removeprefix("skipping cudagraphs due to ")
    return " ".join(_NODE.sub("", reason).split())
