"""A case that torch.compile compiled, the same case as it runs eagerly, and what was compiled."""

from __future__ import annotations

import dataclasses
from typing import Any

import builders

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
)
from mnistbench.core.compiled.names import COMPILED, LOOKUP
from mnistbench.core.operation import OUTSIDE
from mnistbench.core.record import CaseRecord

FORWARD_OF_MODEL = CodePlace("model.py", 7, "forward")
BROKEN = GraphBreak("Tensor.item() is not traced", CodePlace("model.py", 13, "forward"))
AGAIN = Recompilation("self.k == 0", CodePlace("model.py", 15, "forward"), times=2)

GELU = GraphOperation("gelu", "float32[16, 128]", FORWARD_OF_MODEL, "x = self.act(x)", calls=1)

_COMPILATION = Compilation(
    graphs=(
        CompiledGraph(
            FORWARD_OF_MODEL,
            FORWARD_PART,
            operations=6,
            kernels=1,
            external_calls=2,
            calls=(GELU,),
        ),
        CompiledGraph(FORWARD_OF_MODEL, BACKWARD_PART, operations=14, kernels=2, external_calls=3),
    ),
    cache_hits=2,
    cold=CompileTime(200_000_000, 300_000_000, 3_980_000_000, 100_000_000),
    warm=CompileTime(180_000_000, 40_000_000, 0, 20_000_000),
)


def compilation(**changes: Any) -> Compilation:
    """One graph with its backward part, which took 4.58 s with an empty cache."""
    return dataclasses.replace(_COMPILATION, **changes)


def eager(**changes: Any) -> CaseRecord:
    """A step whose normalisation and activation are two operations."""
    rows = (
        builders.op_row("aten::addmm", 58_000),
        builders.op_row("aten::native_layer_norm", 24_000, module="norm"),
        builders.op_row("aten::gelu", 42_000, module="act"),
        builders.op_row("aten::gelu_backward", 63_000, phase="backward", module="act"),
        builders.op_row(
            "aten::native_layer_norm_backward", 22_000, phase="backward", module="norm"
        ),
        builders.op_row("aten::mm", 65_000, phase="backward"),
        builders.op_row("aten::sum", 9_000, phase="backward"),
        builders.op_row("aten::_log_softmax", 17_000, module="(loss)"),
        builders.op_row("aten::add_", 14_000, phase="optimizer", module=""),
        builders.op_row("AddmmBackward0", 800, phase="backward", module=""),
        builders.op_row("aten::relu", 900, module="small"),
        builders.op_row(OUTSIDE, 300_000, module="", calls=0),
    )
    return _case(rows, 650_000, changes)


def compiled(**changes: Any) -> CaseRecord:
    """The same step, compiled: the kernel of the forward part computes both modules."""
    rows = (
        builders.op_row("aten::addmm", 55_000),
        builders.op_row("fused gelu, native_layer_norm", 21_000, module="norm + act"),
        builders.op_row("fused gelu_backward", 41_000, phase="backward", module="act"),
        builders.op_row(
            "fused native_layer_norm_backward", 12_000, phase="backward", module="norm"
        ),
        builders.op_row("aten::mm", 60_000, phase="backward"),
        builders.op_row("fused sum", 2_000, phase="backward"),
        builders.op_row("aten::_log_softmax", 17_000, module="(loss)"),
        builders.op_row("aten::add_", 14_000, phase="optimizer", module=""),
        builders.op_row("fused relu", 700, module="small"),
        builders.op_row(COMPILED, 60_000, module=""),
        builders.op_row(COMPILED, 50_000, phase="backward", module=""),
        builders.op_row(LOOKUP, 15_000, module=""),
        builders.op_row(OUTSIDE, 200_000, module="", calls=0),
    )
    return _case(rows, 570_000, {"compilation": compilation(), **changes})


def _case(rows: tuple[Any, ...], ns: int, changes: dict[str, Any]) -> CaseRecord:
    ordinary = {
        "tables": (builders.op_table(*rows),),
        "timing": builders.timing(median_ns=ns),
        "scalars": None,
    }
    return builders.case_record(**{**ordinary, **changes})
