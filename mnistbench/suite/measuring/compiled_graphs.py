"""Graphs that Inductor compiles: their nodes, and the names of the rows of their kernels.

While a graph is compiled, its nodes have the modules and the lines of the program. Inductor's cache
does not keep them, so they are kept beside it.
"""

from __future__ import annotations

import json
import linecache
import operator
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from mnistbench.core import units
from mnistbench.core.compiled.compilation import (
    BACKWARD_PART,
    FORWARD_PART,
    CodePlace,
    GraphOperation,
)
from mnistbench.core.compiled.names import FUSED
from mnistbench.core.files import replace_file
from mnistbench.measuring.functions import shown_path

#: Most operations in the name of a kernel, with the number of the others.
_MAX_OPERATIONS = 6
#: Most modules of a row, with the number of the others.
_MAX_MODULES = 3

#: Begins the names of functions of libraries, as Inductor's provenance has them.
_EXTERNAL = "extern_kernels."
#: Begins the names of operations of ATen there.
_ATEN = "torch.ops."

#: A library call of generated C++ (``cpp_wrapper``): ``aoti_torch_cpu_addmm_out``.
_CALL_FROM_CPP = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|mps)_(?P<operation>.+?)(?:_out)?")

#: Functions of Inductor that call another operation of ATen.
_ATEN_OF_EXTERNAL = {"bias_addmm": "addmm", "_mm_plus_mm": "mm"}


@dataclass(frozen=True)
class Node:
    """A call in a graph."""

    operation: str  # of ATen, that the program called: native_layer_norm
    module: str | None  # None: the call is in no module of the model
    makes_seeds: bool  # of random numbers of generated kernels, which no program asks for


class KernelRow(NamedTuple):
    """The row of a kernel, or of a library call."""

    event: str  # the name of its event
    name: str
    module: str
    is_generated: bool
    operations: tuple[str, ...]  # that the program calls and it computes, in alphabetical order


@dataclass
class InductorGraph:
    """A graph that Inductor compiles."""

    compilation: str  # "0/0"
    part: str  # FORWARD_PART or BACKWARD_PART
    nodes: Mapping[str, Node]  # by name
    asks_for_cuda_graphs: bool
    uses_accelerator: bool
    # Name of a kernel, as provenance has it, and the nodes that it computes, in the order of calls.
    calls: list[tuple[str, Sequence[str]]] = field(default_factory=list)

    @classmethod
    def of(cls, graph: torch.fx.Graph, compilation: str) -> InductorGraph:
        """Return a graph whose kernels are not known yet."""
        import torch._inductor.config as inductor_config

        is_backward = any(
            node.op == "placeholder" and node.name.startswith("tangents_") for node in graph.nodes
        )
        return cls(
            compilation,
            BACKWARD_PART if is_backward else FORWARD_PART,
            _nodes_of(graph, is_backward=is_backward),
            asks_for_cuda_graphs=bool(inductor_config.triton.cudagraphs),
            uses_accelerator=_uses_accelerator(graph),
        )

    @property
    def function(self) -> str:
        """Number of the function that was compiled, perhaps more than once."""
        return self.compilation.partition("/")[0]

    @property
    def order(self) -> tuple[int, ...]:
        """Place among the compilations of the process."""
        return tuple(map(int, re.findall(r"\d+", self.compilation)))

    def rows(self, outside: str) -> Iterator[KernelRow]:
        """Yield the row of each kernel and library call, in the order of the calls.

        Args:
            outside: module of calls in no module of the model.
        """
        for kernel, names in self.calls:
            computed = {name: node for name, node in self.nodes.items() if name in names}
            modules = [node.module or outside for node in computed.values()]
            unique = [*dict.fromkeys(filter(None, modules))]
            operations = tuple(sorted({node.operation for node in computed.values()}))
            yield KernelRow(
                _event_of(kernel),
                _row_of(kernel, operations),
                " + ".join(units.and_others(unique, _MAX_MODULES)),
                _is_generated(kernel),
                operations,
            )

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The operations for which ATen is called, in order."""
        return tuple(
            _event_of(kernel)
            for kernel, names in self.calls
            if kernel.startswith((_ATEN, "aten."))
            and not any(name in self.nodes and self.nodes[name].makes_seeds for name in names)
        )

    def keep(self, key: str) -> None:
        """Write the graph beside the entry of Inductor's cache with a key."""
        file = _file_of(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(asdict(self)).encode())

    @classmethod
    def kept(cls, key: str, compilation: str) -> InductorGraph:
        """Return the graph of an entry of Inductor's cache."""
        stored = json.loads(_file_of(key).read_bytes())
        stored["nodes"] = {name: Node(**node) for name, node in stored["nodes"].items()}
        return cls(**{**stored, "compilation": compilation})


def _file_of(key: str) -> Path:
    # Inductor sets the variable when it first asks for the folder.
    return Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "mnistbench", f"{key}.json")


# ---- Lines of the program ------------------------------------------------------------------------

_FRAME = re.compile(
    r'^  File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE
)

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.*)_at_\d+")

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep  # noqa: PTH100, PTH120


class Frame(NamedTuple):
    """A line of the program in a traceback."""

    path: str  # as Python has it
    line: int
    function: str

    @property
    def place(self) -> CodePlace:
        """The line as people read it."""
        return CodePlace(shown(self.path), self.line, self.function)


def innermost_frame(traceback: str, *, or_of_torch: bool = False) -> Frame | None:
    """Return the innermost line of the program in a traceback; None if it has none.

    PyTorch's own functions, such as those of nn.Module, are around the program's or in them.

    Args:
        traceback: as Python writes it.
        or_of_torch: without a line of the program, return the innermost one of PyTorch.
    """
    frames = [
        Frame(match["path"], int(match["line"]), function_named(match["function"]))
        for match in _FRAME.finditer(traceback)
    ]
    of_program = [frame for frame in frames if not frame.path.startswith(_TORCH)]
    if not of_program and or_of_torch:
        return frames[-1] if frames else None
    return of_program[-1] if of_program else None


def function_named(name: str) -> str:
    """Return the user's function; Dynamo names the rest of one after a graph break by its line."""
    resumed = _RESUMED.fullmatch(name)
    return resumed["function"] if resumed else name


def shown(file: str) -> str:
    """Return the path of a file relative to the current folder; empty for an unknown one."""
    return shown_path(file, Path.cwd()) if file else ""


def operations_of_lines(graph: torch.fx.Graph) -> tuple[GraphOperation, ...]:
    """Return the forward operations of a graph, by line, in their order."""
    counts: Counter[tuple[str, str, Frame]] = Counter()
    for node in graph.nodes:
        is_forward = node.meta.get("partitioner_tag") != "is_backward"
        if _is_call(node) and is_forward:
            frame = innermost_frame(node.stack_trace or "") or Frame("", 0, "")
            counts[_operation_of(node), _result_of(node), frame] += 1
    return tuple(
        GraphOperation(
            operation,
            result,
            frame.place,
            linecache.getline(frame.path, frame.line).strip(),
            number,
        )
        for (operation, result, frame), number in counts.items()
    )


# ---- Nodes ---------------------------------------------------------------------------------------


def _is_call(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem


def _nodes_of(graph: torch.fx.Graph, *, is_backward: bool) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for node in filter(_is_call, graph.nodes):
        module = module_of(node)
        if module is None and is_backward:
            # A node that a pass of Inductor made has the module of its last argument: the weight.
            arguments = [
                nodes[argument.name] for argument in node.all_input_nodes if argument.name in nodes
            ]
            modules = [argument.module for argument in arguments if argument.module is not None]
            module = modules[-1] if modules else None
        nodes[node.name] = Node(
            _operation_of(node), module, makes_seeds="inductor_seed" in str(node.target)
        )
    return nodes


def _uses_accelerator(graph: torch.fx.Graph) -> bool:
    values = (node.meta.get("val") for node in graph.nodes)
    return any(isinstance(value, torch.Tensor) and value.device.type != "cpu" for value in values)


def _operation_of(node: torch.fx.Node) -> str:
    """Return the operation of ATen that the program called for a node."""
    operation = node.meta.get("original_aten") or node.target
    packet = getattr(operation, "overloadpacket", operation)
    return str(getattr(packet, "__name__", packet)).rpartition(".")[2]


def _result_of(node: torch.fx.Node) -> str:
    """Return the type and the shape of what a node computes: ``float32[16, 128]``."""
    values = node.meta.get("val")
    tensors = values if isinstance(values, tuple | list) else (values,)
    return ", ".join(
        f"{str(tensor.dtype).removeprefix('torch.')}{[*tensor.shape]}"
        for tensor in tensors
        if isinstance(tensor, torch.Tensor)
    )


def module_of(node: torch.fx.Node) -> str | None:
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


# ---- Kernels -------------------------------------------------------------------------------------


def _is_generated(kernel: str) -> bool:
    return not kernel.startswith((_EXTERNAL, _ATEN, "aten.", "aoti_torch_"))


def _event_of(kernel: str) -> str:
    """Return the name of the event of a kernel or of a library call.

    Provenance has ``cpp_fused_add_mul_0:3``, ``extern_kernels.addmm:1`` and
    ``torch.ops.aten.convolution_backward.default:7``.
    """
    name = kernel.rpartition(":")[0] or kernel
    if name.startswith(_EXTERNAL):
        function = name.removeprefix(_EXTERNAL)
        return f"aten::{_ATEN_OF_EXTERNAL.get(function, function)}"
    if _is_generated(name) or _CALL_FROM_CPP.fullmatch(name):
        return name
    namespace, _, rest = name.removeprefix(_ATEN).partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"


def _row_of(kernel: str, operations: Sequence[str]) -> str:
    """Return the name of the row of a kernel: that of a library call, or the fused operations."""
    if not _is_generated(kernel):
        name = _event_of(kernel)
        from_cpp = _CALL_FROM_CPP.fullmatch(name)
        return f"aten::{from_cpp['operation']}" if from_cpp else name
    return FUSED + ", ".join(units.and_others(operations or ("kernel",), _MAX_OPERATIONS))
