"""Observes torch.compile: what becomes of a function, and how long that takes.

The source is the structured trace of torch.compile, which is written to files if ``TORCH_TRACE``
names a folder. It has the reason and the place of each graph break, the guards that fail, and the
numbers and times of each compilation. What it does not have is private in PyTorch, and may be
missing in another version; then the record has a line about it:

- which nodes of the graph a kernel computes: ``torch._inductor.debug`` keeps it while a graph is
  compiled, for ``trace.provenance_tracking_level``;
- the kernels of a graph: they are functions of the modules in ``PyCodeCache.modules``;
- why no CUDA graph is used: it is in the log of Inductor.

A case is timed as the program compiles it. What is observed is compiled a second time, to the same
kernels, whose calls then have events in a profile.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import linecache
import logging
import operator
import os
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

from mnistbench.core.compiled.compilation import (
    BACKWARD_PART,
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
from mnistbench.core.files import replace_file
from mnistbench.core.operation import FUSED
from mnistbench.events.linking.compiled import CallsOfGraphs, KernelCall
from mnistbench.measuring.functions import shown_path

#: The logger of the structured trace.
_TRACE = "torch.__trace"
#: The logger that says why no CUDA graph is used.
_CUDA_GRAPHS = "torch._inductor.cudagraph_utils.__cudagraphs"

#: Operations that the name of a kernel lists; the number of the others follows.
_LISTED_OPERATIONS = 6
#: Modules that a row lists; the number of the others follows.
_LISTED_MODULES = 3

#: Calls in which graphs, graph breaks and recompilations are counted: a changing value compiles a
#: function again in the second one, and once more with the value as a variable.
OBSERVED_CALLS = 4

#: Note if functions were compiled, but not by Inductor.
_OTHER_BACKEND = "compiled by another backend than Inductor: no graph of it is described"

#: Begins the names of generated kernels for a CPU.
_CPU_KERNEL = "cpp_"

#: Prefixes of what provenance calls functions of libraries.
_LIBRARY = "extern_kernels."
_ATEN = "torch.ops."


def has_compiled() -> bool:
    """Return whether this process has compiled a function with torch.compile."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters["frames"]["total"])


_runs_eagerly = False


@contextlib.contextmanager
def run_eagerly() -> Iterator[None]:
    """Run compiled functions as they are written in the body."""
    global _runs_eagerly  # noqa: PLW0603  # as the stance of torch.compile is
    with torch.compiler.set_stance("force_eager"):
        _runs_eagerly = True
        try:
            yield
        finally:
            _runs_eagerly = False


def runs_eagerly() -> bool:
    """Return whether :func:`run_eagerly` is in effect."""
    return _runs_eagerly


# ---- What the trace tells ------------------------------------------------------------------------


@dataclass
class _Graph:
    """A graph that a backend has compiled."""

    compilation: str  # "0/0"
    part: str
    nodes: Mapping[str, _Node]  # by name
    asks_for_cuda_graphs: bool
    uses_accelerator: bool
    # Name of a kernel, as provenance has it, and the nodes that it computes, in the order of calls.
    calls: list[tuple[str, Sequence[str]]] = field(default_factory=list)


@dataclass(frozen=True)
class _Node:
    """A call in a graph."""

    operation: str  # of ATen, that the program called: native_layer_norm
    module: str | None  # None: the call is in no module of the model
    makes_seeds: bool  # of random numbers of generated kernels, which no program asks for


class CompilationLog(logging.Handler):
    """Collects what torch.compile does, while it is attached."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._breaks: dict[tuple[str, CodePlace], GraphBreak] = {}
        self._failed_guards: list[tuple[str, str]] = []  # compilation, text
        self._metrics: list[dict[str, Any]] = []
        self._graphs: list[_Graph] = []
        self._begun: _Graph | None = None  # that is being compiled
        self._earlier_calls: frozenset[str] = frozenset()  # of graphs before
        self._modules: dict[str, str] = {}  # compilation -> hash of the modules of its nodes
        self._calls: dict[str, tuple[GraphOperation, ...]] = {}  # compilation -> what it was given
        self._cache: Counter[str] = Counter()  # hit, miss, bypass
        self._cuda_graphs_skipped: dict[str, None] = {}  # reasons, as an ordered set
        self._notes: list[str] = []

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
            self._note(f"torch {torch.__version__}: {name} was not read ({type(error).__name__})")

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _read_break(self, _: Mapping[str, Any], payload: str) -> None:
        place = _last_place(payload) or CodePlace("", 0, "")
        paragraphs = [part.strip() for part in payload.split("\n\n")]
        first = next((part for part in paragraphs[1:] if part), paragraphs[0])
        title, *details = (line.strip() for line in first.splitlines())
        explanation = next((line for line in details if line.startswith("Explanation: ")), "")
        text = ": ".join(filter(None, (title, explanation.removeprefix("Explanation: "))))
        reason = _ADDRESS.sub("", " ".join(text.split()))
        self._breaks.setdefault((title, place), GraphBreak(reason, place))

    def _read_recompilation(self, metadata: Mapping[str, Any], payload: str) -> None:
        # A text or a JSON list of texts, the guards of the newest compilation first.
        reasons = json.loads(payload) if payload.startswith("[") else [payload]
        self._failed_guards.append((_compilation_of(metadata), str(reasons[0])))

    def _read_metrics(self, metadata: Mapping[str, Any], _: str) -> None:
        self._metrics.append(dict(metadata[next(iter(metadata))]))

    def _read_kernels(self, *_: object) -> None:
        if self._begun is None:  # the cache had the graph
            return
        from torch._inductor import debug

        calls = debug._inductor_triton_kernel_to_post_grad_node_info  # noqa: SLF001
        self._begun.calls = [
            (name, tuple(nodes)) for name, nodes in calls.items() if name not in self._earlier_calls
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
            self._graphs.append(_kept_graph(key, _compilation_of(metadata)))
        elif result == "miss" and key and self._graphs:
            _keep_graph(key, self._graphs[-1])

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
        modules = repr([_module_of(node) for node in graph.nodes])
        self._modules[_current_compilation()] = hashlib.sha256(modules.encode()).hexdigest()
        nodes = [
            node
            for node in graph.nodes
            if node.op == "call_function" and node.meta.get("partitioner_tag") != "is_backward"
        ]
        self._calls[_current_compilation()] = _calls_of(nodes)

    @property
    def key_of_modules(self) -> str | None:
        """What the cache has to know beside a graph; None if that is not known."""
        return self._modules.get(_current_compilation())

    def note_graph(self, graph: torch.fx.Graph) -> None:
        """Keep the nodes of a graph that Inductor is about to compile."""
        import torch._inductor.config as inductor_config
        from torch._inductor import debug

        nodes, part = _nodes_of(graph)
        self._begun = _Graph(
            _current_compilation(),
            part,
            nodes,
            asks_for_cuda_graphs=bool(inductor_config.triton.cudagraphs),
            uses_accelerator=_uses_accelerator(graph),
        )
        # Those of backward parts are kept together.
        self._earlier_calls = frozenset(debug._inductor_triton_kernel_to_post_grad_node_info)  # noqa: SLF001

    # ---- Results ---------------------------------------------------------------------------------

    @property
    def has_compiled(self) -> bool:
        """Whether anything was compiled."""
        return bool(self._metrics)

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
    def cache(self) -> tuple[int, int]:
        """Graphs that the FX graph cache had, and those that it had not."""
        return self._cache["hit"], self._cache["miss"] + self._cache["bypass"]

    def time(self, total_ns: int) -> CompileTime:
        """Return the parts of a call in which everything so far was compiled."""
        whole_s = sum(metrics.get("entire_frame_compile_time_s") or 0 for metrics in self._metrics)
        backend_s = sum(metrics.get("backend_compile_time_s") or 0 for metrics in self._metrics)
        # That of the backward part, which is compiled when it first runs, is in no frame.
        later_s = sum(
            metrics.get("inductor_compile_time_s") or 0
            for metrics in self._metrics
            if not metrics.get("entire_frame_compile_time_s")
        )
        build_s = sum(metrics.get("code_gen_time_s") or 0 for metrics in self._metrics)
        tracing_ns = round(1e9 * max(0.0, whole_s - backend_s))
        build_ns = round(1e9 * build_s)
        backend_ns = round(1e9 * max(0.0, backend_s + later_s - build_s))
        run_ns = max(0, total_ns - tracing_ns - backend_ns - build_ns)
        return CompileTime(tracing_ns, backend_ns, build_ns, run_ns)

    def compilation(self) -> Compilation:
        """Return what was compiled so far."""
        places = self._places()
        # Of a function that was compiled again, the newest graphs are those in use.
        newest = {
            (graph.compilation.partition("/")[0], graph.part): graph
            for graph in sorted(self._graphs, key=lambda graph: _numbers(graph.compilation))
        }
        return Compilation(
            graphs=tuple(self._compiled(graph, places) for graph in newest.values()),
            breaks=tuple(self._breaks.values()),
            recompilations=self._recompilations(places),
            cuda_graphs=self.cuda_graphs,
            notes=(*self._notes, *([] if self._graphs or not places else [_OTHER_BACKEND])),
        )

    def _places(self) -> dict[str, CodePlace]:
        """Return the function of each compilation."""
        return {
            str(metrics["compile_id"]): CodePlace(
                _path(metrics.get("co_filename") or ""),
                int(metrics.get("co_firstlineno") or 0),
                _function_of(metrics["co_name"]),
            )
            for metrics in self._metrics
            if metrics.get("co_name")
        }

    def _compiled(self, graph: _Graph, places: Mapping[str, CodePlace]) -> CompiledGraph:
        names = [name for name, _ in graph.calls]
        library = [name for name in names if not _is_generated(name)]
        return CompiledGraph(
            places.get(graph.compilation, CodePlace("", 0, "")),
            graph.part,
            operations=len(graph.nodes),
            kernels=len(names) - len(library),
            external_calls=len(library),
            calls=self._calls.get(graph.compilation, ()) if graph.part == FORWARD_PART else (),
            fallbacks=tuple(
                _event_of(name)
                for name, nodes in graph.calls
                if name.startswith((_ATEN, "aten."))
                and not any(node in graph.nodes and graph.nodes[node].makes_seeds for node in nodes)
            ),
        )

    def _recompilations(self, places: Mapping[str, CodePlace]) -> tuple[Recompilation, ...]:
        unknown = CodePlace("", 0, "")
        found: dict[tuple[str, str], Recompilation] = {}
        for compilation, text in self._failed_guards:
            guard, user_code = _guard_of(text)
            function = places.get(compilation, unknown)
            place = _place_in(user_code, function) or function
            key = (without_values(guard), place.without_line)
            first = found.get(key)
            times = first.times + 1 if first else 1
            found[key] = Recompilation(first.guard if first else guard, place, times)
        return tuple(found.values())

    def calls_of_graphs(self, outside: str) -> CallsOfGraphs:
        """Return the kernels and library calls of each graph, with the names of their rows.

        Args:
            outside: module of calls in no module of the model.
        """
        calls: dict[tuple[str, str], tuple[KernelCall, ...]] = {}
        before: Counter[tuple[str, str, str]] = Counter()  # rows of functions compiled before
        of_function: dict[str, Counter[tuple[str, str, str]]] = defaultdict(Counter)
        last_function = ""
        for graph in sorted(self._graphs, key=lambda graph: _numbers(graph.compilation)):
            function = graph.compilation.partition("/")[0]
            if function != last_function:
                before += of_function[last_function]
                last_function = function
            # The variants of one function, which a failed guard makes, have rows in common.
            seen: Counter[tuple[str, str, str]] = Counter()
            named = []
            for name, nodes in graph.calls:
                row = (_row_of(name, nodes, graph), graph.part, _modules(nodes, graph, outside))
                if not _is_generated(name):
                    named.append(KernelCall(_event_of(name), row[0], row[2]))
                    continue
                seen[row] += 1
                number = before[row] + seen[row]
                shown = f"{row[0]} ({number})" if number > 1 else row[0]
                named.append(KernelCall(_event_of(name), shown, row[2]))
            of_function[function] |= seen
            calls.setdefault((graph.compilation, graph.part), tuple(named))
        return calls


def _calls_of(nodes: Iterable[torch.fx.Node]) -> tuple[GraphOperation, ...]:
    """Return the operations of nodes, by line, in their order."""
    counts = Counter(
        (_operation_of(node), _result_of(node), _frame_of(node))
        for node in nodes
        if node.target is not operator.getitem
    )
    return tuple(
        GraphOperation(
            operation,
            result,
            CodePlace(_path(path), line, function),
            linecache.getline(path, line).strip(),
            number,
        )
        for (operation, result, (path, line, function)), number in counts.items()
    )


def _current_compilation() -> str:
    from torch._guards import CompileContext

    number = CompileContext.current_compile_id()
    return f"{number.frame_id}/{number.frame_compile_id}" if number else ""


# Inductor's cache has no nodes of a graph: they are kept beside it, by the same key.


def _keep_graph(key: str, graph: _Graph) -> None:
    file = _file_of_graph(key)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(asdict(graph)).encode())


def _kept_graph(key: str, compilation: str) -> _Graph:
    stored = json.loads(_file_of_graph(key).read_bytes())
    nodes = {name: _Node(**node) for name, node in stored.pop("nodes").items()}
    return _Graph(**{**stored, "compilation": compilation, "nodes": nodes})


def _file_of_graph(key: str) -> Path:
    return Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "mnistbench", f"{key}.json")


def _numbers(compilation: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", compilation))


def _compilation_of(metadata: Mapping[str, Any]) -> str:
    """Return the compilation of an event, as the profiler shows it: ``0/0``."""
    return f"{metadata.get('frame_id', '')}/{metadata.get('frame_compile_id', '')}"


_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.*)_at_\d+")


def _function_of(name: str) -> str:
    """Return the user's function; Dynamo names the rest of one after a graph break by its line."""
    resumed = _RESUMED.fullmatch(name)
    return resumed["function"] if resumed else name


#: Where an object is in memory, in its text.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_FRAME = re.compile(
    r'^  File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE
)


def _last_place(payload: str) -> CodePlace | None:
    """Return the innermost line of the user's code in the reason of a graph break."""
    _, _, traceback = payload.partition("User code traceback:")
    frames = [*_FRAME.finditer(traceback.partition("\n\nTraceback")[0])]
    if not frames:
        return None
    # PyTorch's own functions, such as those of nn.Module, are around or in the user's.
    own = [frame for frame in frames if not _is_of_torch(frame["path"])]
    frame = (own or frames)[-1]
    return CodePlace(_path(frame["path"]), int(frame["line"]), _function_of(frame["function"]))


def _path(file: str) -> str:
    return shown_path(file, Path.cwd()) if file else ""


_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep  # noqa: PTH100, PTH120


def _is_of_torch(path: str) -> bool:
    return path.startswith(_TORCH)


#: A guard, and the line of the user's code that it is for: ``1/0: s.k == 0  # s.k+=1  # a/m.py:22
#: in forward``.
_GUARD = re.compile(r"^(?:\d+/\d+: )?(?P<guard>.*?)(?:\s+#\s(?P<user_code>.*))?$", re.DOTALL)
_USER_CODE = re.compile(r"# (?P<path>\S+):(?P<line>\d+) in (?P<function>\S+)")


def _guard_of(text: str) -> tuple[str, str]:
    """Return a failed guard in one line, and the user's code that it is for."""
    match = _GUARD.fullmatch(text.strip())
    assert match is not None, "any text"
    return " ".join(match["guard"].split()), match["user_code"] or ""


def _place_in(user_code: str, function: CodePlace) -> CodePlace | None:
    """Return the line of the user's code; Dynamo shows two parts of the path."""
    match = _USER_CODE.search(f"# {user_code}")
    if match is None or match["path"].startswith(("torch/", "_dynamo/")):
        return None
    name = os.path.basename(match["path"])  # noqa: PTH119
    path = function.path if function.path.endswith(name) else match["path"]
    return CodePlace(path, int(match["line"]), _function_of(match["function"]))


# ---- Graphs --------------------------------------------------------------------------------------


def _nodes_of(graph: torch.fx.Graph) -> tuple[dict[str, _Node], str]:
    """Return the calls of a graph that Inductor compiles, and its part."""
    is_backward = any(
        node.op == "placeholder" and node.name.startswith("tangents_") for node in graph.nodes
    )
    nodes: dict[str, _Node] = {}
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        module = _module_of(node)
        if module is None and is_backward:
            # A node that a pass of Inductor made has the module of its last argument: the weight.
            arguments = [
                argument.name for argument in node.all_input_nodes if argument.name in nodes
            ]
            known = [nodes[name].module for name in arguments if nodes[name].module is not None]
            module = known[-1] if known else None
        nodes[node.name] = _Node(
            _operation_of(node),
            module,
            makes_seeds="inductor_seed" in str(node.target),
        )
    return nodes, BACKWARD_PART if is_backward else FORWARD_PART


def _uses_accelerator(graph: torch.fx.Graph) -> bool:
    values = (node.meta.get("val") for node in graph.nodes)
    return any(isinstance(value, torch.Tensor) and value.device.type != "cpu" for value in values)


#: In a reason: the name of a node, and where it is used.
_NODE = re.compile(r" \(\w+\)|\. Found from\b.*", re.DOTALL)


def _reason_of_skip(message: str) -> str:
    """Return the reason of a message of Inductor's: ``skipping cudagraphs due to ...``."""
    reason = message.removeprefix("skipping cudagraphs due to ")
    return " ".join(_NODE.sub("", reason).split())


def _module_of(node: torch.fx.Node) -> str | None:
    """Return the qualified name of the innermost module of a node; None if it is in none.

    A node of the backward part has the module of its forward node.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path, _ = [*stack.values()][-1]
    return _qualified(str(path))


_SOURCE = re.compile(r"^[LG]\['[^']*'\]")
#: Attributes that lead to a module, and are none.
_NO_MODULES = frozenset(("__dict__", "__self__", "_modules", "_orig_mod"))
_MEMBER = re.compile(r"\._modules\['(?P<member>[^']*)'\]|\['?(?P<index>[^'\]]*)'?\]")


def _qualified(source: str) -> str:
    """Return ``layers.0.fc1`` of ``L['self'].layers.0.fc1`` or ``L['self']._modules['layers']``."""
    members = _SOURCE.sub("", source)
    dotted = _MEMBER.sub(lambda match: f".{match['member'] or match['index']}", members)
    return ".".join(part for part in dotted.split(".") if part and part not in _NO_MODULES)


def _result_of(node: torch.fx.Node) -> str:
    """Return the type and the shape of what a node computes: ``float32[16, 128]``."""
    values = node.meta.get("val")
    tensors = values if isinstance(values, tuple | list) else (values,)
    return ", ".join(
        f"{str(tensor.dtype).removeprefix('torch.')}{[*tensor.shape]}"
        for tensor in tensors
        if isinstance(tensor, torch.Tensor)
    )


def _frame_of(node: torch.fx.Node) -> tuple[str, int, str]:
    """Return the innermost line of the program that calls a node; empty if it is not known."""
    frames = [*_FRAME.finditer(node.stack_trace or "")]
    own = [frame for frame in frames if not _is_of_torch(frame["path"])]
    if not own:
        return "", 0, ""
    return own[-1]["path"], int(own[-1]["line"]), _function_of(own[-1]["function"])


def _operation_of(node: torch.fx.Node) -> str:
    """Return the operation of ATen that the program called for a node."""
    operation = node.meta.get("original_aten") or node.target
    packet = getattr(operation, "overloadpacket", operation)
    return str(getattr(packet, "__name__", packet)).rpartition(".")[2]


def _is_generated(kernel: str) -> bool:
    return not kernel.startswith((_LIBRARY, _ATEN, "aten.", "aoti_torch_"))


def _event_of(kernel: str) -> str:
    """Return the name of the event of a kernel or of a library call.

    Provenance has ``cpp_fused_add_mul_0:3``, ``extern_kernels.addmm:1`` and
    ``torch.ops.aten.convolution_backward.default:7``.
    """
    name = kernel.rpartition(":")[0] or kernel
    if name.startswith(_LIBRARY):
        function = name.removeprefix(_LIBRARY)
        return f"aten::{_ATEN_OF_LIBRARY.get(function, function)}"
    if _is_generated(name) or _CALL_FROM_CPP.fullmatch(name):
        return name
    library, _, rest = name.removeprefix(_ATEN).partition(".")
    return f"{library}::{rest.partition('.')[0]}"


#: A library call of generated C++ (``cpp_wrapper``): ``aoti_torch_cpu_addmm_out``.
_CALL_FROM_CPP = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|mps)_(?P<operation>.+?)(?:_out)?")

#: Functions of Inductor that call another operation of ATen.
_ATEN_OF_LIBRARY = {"bias_addmm": "addmm", "_mm_plus_mm": "mm"}


def _row_of(kernel: str, nodes: Iterable[str], graph: _Graph) -> str:
    """Return the name of the row of a kernel: that of a library call, or the fused operations."""
    if not _is_generated(kernel):
        name = _event_of(kernel)
        from_cpp = _CALL_FROM_CPP.fullmatch(name)
        return f"aten::{from_cpp['operation']}" if from_cpp else name
    operations = sorted({graph.nodes[name].operation for name in nodes if name in graph.nodes})
    return FUSED + _listed(operations or ["kernel"], _LISTED_OPERATIONS, ", ")


def _modules(nodes: Iterable[str], graph: _Graph, outside: str) -> str:
    """Return the modules of the nodes that a kernel computes, in the order of the graph."""
    computed = {*nodes}
    modules = [node.module or outside for name, node in graph.nodes.items() if name in computed]
    return _listed([*dict.fromkeys(filter(None, modules))], _LISTED_MODULES, " + ")


def _listed(names: Sequence[str], most: int, separator: str) -> str:
    """Return the names, or the first ones and how many others there are."""
    if len(names) <= most:
        return separator.join(names)
    return separator.join([*names[: most - 1], f"{len(names) - most + 1} others"])


# ---- Observed calls ------------------------------------------------------------------------------


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


@contextlib.contextmanager
def observed() -> Iterator[CompilationLog]:
    """Compile everything anew in the body, with names of kernels in profiles.

    It is a compilation of its own, which Inductor's cache keeps beside that of the program; both
    have the same kernels. After the body everything is compiled anew as the program asks for.
    """
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    with logged() as log:

        class GraphWatch(CustomGraphPass):
            """Shows the log each graph that is compiled."""

            def __call__(self, graph: torch.fx.Graph) -> None:
                log.note_graph(graph)

            def uuid(self) -> str | None:
                """Return what a graph in the cache depends on beside itself."""
                return log.key_of_modules

        class WholeGraphWatch(CustomGraphPass):
            """Shows the log each graph before it is changed and divided into its parts."""

            def __call__(self, graph: torch.fx.Graph) -> None:
                log.note_whole_graph(graph)

            def uuid(self) -> str:
                """Return a constant: it changes no graph."""
                return "mnistbench"

        settings: dict[str, Any] = {
            "trace.provenance_tracking_level": 1,
            "joint_custom_pre_pass": WholeGraphWatch(),
            "post_grad_custom_post_pass": GraphWatch(),
        }
        torch.compiler.reset()
        try:
            with (
                inductor_config.patch(settings),
                functorch_config.patch({"enable_autograd_cache": False}),
            ):
                yield log
        finally:
            torch.compiler.reset()


@dataclass
class Observed:
    """The compiled code of a case, complete when :func:`observed_if` has ended."""

    graphs: CallsOfGraphs
    compilation: Compilation


@contextlib.contextmanager
def observed_if(
    is_compiled: bool, run: Callable[[], object], outside: str
) -> Iterator[Observed | None]:
    """Compile a case anew, observed, and keep that in the body; do nothing for an eager case.

    What is counted is that of the first OBSERVED_CALLS calls, so that it does not depend on how
    often the body calls.

    Args:
        is_compiled: whether the case has compiled code.
        run: calls it.
        outside: module of operations in no module.
    """
    if not is_compiled:
        yield None
        return
    with observed() as log:
        for _ in range(OBSERVED_CALLS):
            run()
        compiled = Observed({}, log.compilation())
        with named_kernels():
            yield compiled
        compiled.graphs = log.calls_of_graphs(outside)


@contextlib.contextmanager
def named_kernels() -> Iterator[None]:
    """Give generated kernels of the CPU events in the profiles of the body.

    Inductor's option for it, ``cpp.enable_kernel_profile``, becomes a part of the kernels, so all
    would be built again, which takes as long as the first time. Kernels of Triton have events.
    """
    from torch._inductor.codecache import PyCodeCache

    # A module is in the list each time that it was loaded.
    modules = {id(module): vars(module) for module in getattr(PyCodeCache, "modules", ())}
    kernels = [
        (names, name, value)
        for names in modules.values()
        for name, value in names.items()
        if name.startswith(_CPU_KERNEL) and callable(value)
    ]
    for names, name, kernel in kernels:
        names[name] = with_event(name, kernel)
    try:
        yield
    finally:
        for names, name, kernel in kernels:
            names[name] = kernel


def with_event(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a kernel, and has an event in a profile."""

    def call(*arguments: Any) -> Any:
        with _RecordFunctionFast(name):
            return kernel(*arguments)

    return call


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Let torch.compile have an empty cache in the body: its own folder, removed afterwards."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="mnistbench-compiled-") as folder:
        for name in names:
            os.environ[name] = str(Path(folder, name))
        forget_compiled()
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            forget_compiled()


def forget_compiled() -> None:
    """Forget everything that was compiled; caches on disk remain."""
    torch.compiler.reset()
    if utils := sys.modules.get("torch._inductor.utils"):
        utils.clear_caches()


def compile_times(run: Callable[[], object]) -> tuple[CompileTime, CompileTime, tuple[int, int]]:
    """Call a compiled function with an empty cache, and again with the cache that this filled.

    Return the times of both calls, and the graphs that the cache had and had not in the second one.
    """
    with empty_cache():
        cold, _ = timed_call(run)
        forget_compiled()
        warm, log = timed_call(run)
    return cold, warm, log.cache


def with_times(compilation: Compilation, run: Callable[[], object]) -> Compilation:
    """Return the compilation with the times of first calls, and what the cache had."""
    cold, warm, (hits, misses) = compile_times(run)
    return replace(compilation, cold=cold, warm=warm, cache_hits=hits, cache_misses=misses)


def timed_call(run: Callable[[], object]) -> tuple[CompileTime, CompilationLog]:
    """Call a function that compiles; return the parts of its time, and what was compiled."""
    with logged() as log:
        began_ns = time.perf_counter_ns()
        run()
        total_ns = time.perf_counter_ns() - began_ns
    return log.time(total_ns), log
