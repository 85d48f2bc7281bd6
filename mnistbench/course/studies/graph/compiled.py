"""What PyTorch makes of a program.

The graphs that it captures, the code that it generates, and the kernels of this code.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.study import (
    BACKWARD_PART,
    FORWARD,
    FORWARD_PART,
    JOINT,
    CalledKernel,
    Graph,
)
from mnistbench.suite.measuring.compiled_graphs import InductorGraph, KernelRow
from mnistbench.suite.measuring.observing import graphs_logged

# ---- Graphs --------------------------------------------------------------------------------------

# A custom backend captures them, as PyTorch's page "Custom Backends" describes. Dynamo hands the
# forward graph to the backend. Inside the backend, AOTAutograd traces the backward pass too, and
# hands over the joint graph when it is to be partitioned, and then both parts. Nothing is compiled:
# the parts run as they are.


def graphs(program: Program) -> tuple[list[Graph], list[str]]:
    """Return the graphs of a program, and a sentence for what this version of PyTorch cannot show.

    A program that Dynamo cannot trace as a whole has several graphs of each kind.
    """
    captured: list[Graph] = []
    left_out: list[str] = []
    traces_backward = True
    try:
        from functorch.compile import (  # type: ignore[import-untyped]
            make_boxed_func,
            min_cut_rematerialization_partition,
        )
        from torch._dynamo.backends.common import aot_autograd
    except ImportError as error:
        left_out.append(f"the joint graph: torch {torch.__version__} lacks an interface ({error})")
        traces_backward = False

    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        captured.append(graph(joint, JOINT))
        return min_cut_rematerialization_partition(joint, inputs, **options)

    def keep(kind: str) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
        def compiler(part: fx.GraphModule, _: Sequence[Any]) -> Any:
            captured.append(graph(part, kind))
            return make_boxed_func(part.forward)

        return compiler

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        captured.append(graph(module, FORWARD))
        if not traces_backward:
            return module.forward
        compile_both = aot_autograd(
            fw_compiler=keep(FORWARD_PART), bw_compiler=keep(BACKWARD_PART), partition_fn=partition
        )
        traced: Callable[..., Any] = compile_both(module, inputs)
        return traced

    program.step(torch.compile(program.compute, backend=backend, dynamic=False))
    if not captured:
        left_out.append(
            "the graphs: torch.compile gave none (is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE "
            "set?)"
        )
    order = {
        kind: number for number, kind in enumerate((FORWARD, JOINT, FORWARD_PART, BACKWARD_PART))
    }
    return sorted(captured, key=lambda graph: order[graph.kind]), left_out


def graph(module: fx.GraphModule, kind: str) -> Graph:
    """Return what is shown of a graph."""
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    [output] = [node for node in nodes if node.op == "output"]
    returned: list[fx.Node] = []  # a node that is returned twice counts twice
    fx.map_arg(output.args, returned.append)
    moved = [node.meta.get("val") for node in {*inputs, *output.all_input_nodes}]
    sizes = (value.numel() * value.element_size() for value in moved if isinstance(value, Tensor))
    return Graph(
        kind=kind,
        inputs=len(inputs),
        operations=tuple(_name(node.target) for node in nodes if node.op.startswith("call_")),
        outputs=len(returned),
        moved_bytes=None if any(value is None for value in moved) else sum(sizes),
        text=module.print_readable(print_output=False).strip() + "\n",
    )


def _name(target: Any) -> str:
    """Return ``mul`` for each form of a multiplication.

    ``operator.mul``, ``torch.ops.aten.mul.Tensor``, and the method ``mul``.
    """
    if isinstance(target, str):
        return target
    text = str(getattr(target, "overloadpacket", "") or getattr(target, "__name__", target))
    return text.removeprefix("aten.")


# ---- Generated code ------------------------------------------------------------------------------

#: Option of ``torch.compile``: write the files of each graph.
_TRACE = "trace.enabled"
#: Option of ``torch.compile``: the directory of these files.
_DIRECTORY = "trace.debug_dir"

_WIDTH = 200  # characters of an error


class CompileError(Exception):
    """A program cannot be compiled; the message says why, in one line."""


def missing_compiler(device: str) -> str:
    """Return the C++ compiler that torch would call for code of the CPU, if it is missing."""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    return name if device == "cpu" and shutil.which(name) is None else ""


def compiled(
    program: Program, folder: Path, device: str
) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """Compile a program by its first step.

    Return the compiled function, and the fields of the study that it fills.

    ``folder`` is an empty directory, which gets the files of Inductor.

    Raises:
        CompileError: there is no C++ compiler, this version of torch cannot show its code, or the
            compiler failed.
    """
    if name := missing_compiler(device):
        raise CompileError(
            f"no C++ compiler: {name!r} is not found, so the generated code and compiled times "
            "are left out; install g++, or set CXX"
        )
    import torch._inductor.config as inductor_config
    from torch._inductor import list_options  # the documentation of torch.compile names it

    present = list_options()
    for name in (_TRACE, _DIRECTORY):
        if name not in present:
            raise CompileError(
                f"the generated code: torch {torch.__version__} has no option {name!r} of "
                "torch.compile"
            )
    options: dict[str, Any] = {_TRACE: True, _DIRECTORY: str(folder)}
    compute = torch.compile(program.compute, dynamic=False, options=options)
    try:
        start_ns = _start(device)
        # Of a graph from the cache, even of this process, no files are written.
        with inductor_config.patch(fx_graph_cache=False), graphs_logged() as log:
            first = program.timed_step(compute)
    # A compiler fails in many ways, and what is eager can still be shown.
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_WIDTH]
        raise CompileError(
            f"the generated code and compiled times: the compiler failed ({text})"
        ) from error
    modules = sorted(folder.rglob("output_code.py"), key=_number)
    if not modules:
        raise CompileError("the generated code and compiled times: torch.compile generated nothing")
    if len(modules) != len(log.graphs):
        raise CompileError(
            f"the generated code: torch {torch.__version__} does not tell which graph it is of "
            f"({len(log.graphs)} graphs, {len(modules)} modules)"
        )
    texts = [path.read_text(encoding="utf-8") for path in modules]
    code = tuple((graph.part, text) for graph, text in zip(log.graphs, texts, strict=True))
    called_kernels = tuple(
        kernel
        for graph, text in zip(log.graphs, texts, strict=True)
        for kernel in kernels(graph, text)
    )
    return compute, {
        "start_ns": start_ns,
        "first_compiled": first,
        "code": code,
        "kernels": called_kernels,
    }


def _start(device: str) -> int:
    """Compile a tiny program: it imports the compiler, and tests which instructions it may use.

    Return the nanoseconds.
    """
    begin = time.perf_counter_ns()
    torch.compile(torch.neg)(torch.ones(16, device=device))
    return time.perf_counter_ns() - begin


def _number(module: Path) -> int:
    number = module.parent.name.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0


# ---- Kernels of the generated code ---------------------------------------------------------------


def kernels(graph: InductorGraph, code: str) -> list[CalledKernel]:
    """Return the kernels that the generated code of a graph calls, in the order of first calls."""
    calls: dict[str, list[KernelRow]] = {}
    for call in graph.rows(""):
        calls.setdefault(call.event, []).append(call)
    return [
        CalledKernel(
            graph.part,
            name.removeprefix("aten::"),
            len(calls_of_kernel),
            tuple(sorted({operation for call in calls_of_kernel for operation in call.operations})),
            generated=calls_of_kernel[0].is_generated,
            code=source(code, name),
        )
        for name, calls_of_kernel in calls.items()
    ]


def source(code: str, kernel: str) -> str:
    """Return the source of a kernel; empty if the generated code, a module, does not have it."""
    match = re.search(
        rf"^{re.escape(kernel)} = async_compile\.\w+\(.*?'''\n?(.*?)'''",
        code,
        re.MULTILINE | re.DOTALL,
    )
    return match[1] if match else ""
