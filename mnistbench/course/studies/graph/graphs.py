"""Capture the graphs of a program with a custom backend, as PyTorch's page "Custom Backends" describes.

Dynamo hands the forward graph to the backend. Inside the backend, AOTAutograd traces the backward pass too, and hands over the
joint graph when it is to be partitioned, and then both parts. Nothing is compiled: the parts run as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.result import BACKWARD_PART, FORWARD, FORWARD_PART, JOINT, Graph


def graphs(program: Program) -> tuple[list[Graph], list[str]]:
    """Return the graphs of a program, and a sentence for what this version of PyTorch cannot show.

    A program that Dynamo cannot trace as a whole has several graphs of each kind.
    """
    found: list[Graph] = []
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
        found.append(graph(joint, JOINT))
        return min_cut_rematerialization_partition(joint, inputs, **options)

    def keep(kind: str) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
        def compiler(part: fx.GraphModule, _: Sequence[Any]) -> Any:
            found.append(graph(part, kind))
            return make_boxed_func(part.forward)

        return compiler

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append(graph(module, FORWARD))
        if not traces_backward:
            return module.forward
        both = aot_autograd(fw_compiler=keep(FORWARD_PART), bw_compiler=keep(BACKWARD_PART), partition_fn=partition)
        traced: Callable[..., Any] = both(module, inputs)
        return traced

    program.step(torch.compile(program.compute, backend=backend, dynamic=False))
    if not found:
        left_out.append("the graphs: torch.compile gave none (is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE set?)")
    order = {kind: number for number, kind in enumerate((FORWARD, JOINT, FORWARD_PART, BACKWARD_PART))}
    return sorted(found, key=lambda each: order[each.kind]), left_out


def graph(module: fx.GraphModule, kind: str) -> Graph:
    """Return what is shown of a graph."""
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    [output] = [node for node in nodes if node.op == "output"]
    outputs = list(output.all_input_nodes)
    return Graph(
        kind=kind,
        inputs=len(inputs),
        operations=tuple(_name(node.target) for node in nodes if node.op.startswith("call_")),
        outputs=len(_leaves(output.args)),
        moved_bytes=_moved_bytes({*inputs, *outputs}),
        text=module.print_readable(print_output=False).strip() + "\n",
    )


def _leaves(arguments: Any) -> list[fx.Node]:
    """Return the nodes among nested arguments; one that is returned twice counts twice."""
    found: list[fx.Node] = []
    fx.map_arg(arguments, found.append)
    return found


def _name(target: Any) -> str:
    """Return ``mul`` for ``operator.mul``, for ``torch.ops.aten.mul.Tensor``, and for the method ``mul``."""
    if isinstance(target, str):
        return target
    text = str(getattr(target, "overloadpacket", "") or getattr(target, "__name__", target))
    return text.removeprefix("aten.")


def _moved_bytes(nodes: Iterable[fx.Node]) -> int | None:
    """Return the bytes of the results of nodes; None if the shape of one is unknown."""
    values = [node.meta.get("val") for node in nodes]
    if any(value is None for value in values):
        return None
    tensors = [value for value in values if isinstance(value, Tensor)]
    return functools.reduce(lambda total, tensor: total + tensor.numel() * tensor.element_size(), tensors, 0)
