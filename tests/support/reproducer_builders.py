"""What scripts are made of: ordinary objects of each kind, with keyword overrides."""

from __future__ import annotations

from typing import Any

from mnistbench.suite.reproducers.script import ScriptOrigin

NORMAL = {"kind": "normal", "mean": 0.01, "std": 0.5, "least": -2.0, "most": 2.0, "zeros": 0.0}


def header(**changes: Any) -> ScriptOrigin:
    """A confirmed slowdown."""
    ordinary = {
        "title": "aten::mm, backward fc1",
        "case": "step convnet-b16-cpu on digits",
        "change": 0.111,
        "low": 0.042,
        "high": 0.184,
        "base_ns": 1_800_000.0,
        "head_ns": 1_960_000.0,
        "base": "1a2b3c4",
        "head": "5d6e7f8 with changes",
        "torch": "2.15.0",
    }
    return ScriptOrigin(**{**ordinary, **changes})


def tensor(*shape: int, **changes: Any) -> dict[str, Any]:
    """A contiguous one of normal values."""
    stride = []
    elements = 1
    for size in reversed(shape):
        stride.insert(0, elements)
        elements *= size
    ordinary = {
        "shape": list(shape),
        "stride": stride,
        "offset": 0,
        "elements": elements,
        "dtype": "float32",
        "device": "cpu",
        "values": NORMAL,
        "since": 0,
    }
    return {"tensor": {**ordinary, **changes}}


def call(
    name: str, *args: Any, writes: Any = (), overload: str = "default", **kwargs: Any
) -> dict[str, Any]:
    """A call that takes 1 ms."""
    return {
        "name": name,
        "overload": overload,
        "args": list(args),
        "kwargs": kwargs,
        "writes": list(writes),
        "self_ns": 1_000_000,
    }


def row(*calls: Any, **changes: Any) -> dict[str, Any]:
    """A row whose calls are all made.

    The two products of a layer's backward pass, if none are given.
    """
    row_calls = list(calls) or [
        call(
            "aten::mm",
            tensor(128, 16, stride=[1, 128], since=8_000),
            tensor(16, 9216, since=18_000_000),
        ),
        call("aten::mm", tensor(16, 128), tensor(128, 9216, since=15_654_321)),
    ]
    ordinary = {
        "row": "aten::mm",
        "calls": row_calls,
        "number": len(row_calls),
        "whole_ns": 1_000_000 * len(row_calls),
        "self_share": 1.0,
    }
    return {**ordinary, **changes}
