"""Arguments of operations as torch.profiler records them with ``record_shapes=True``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trace_builders import Event, event

_TYPES = {"float32": "float", "float64": "double", "bfloat16": "c10::BFloat16", "float16": "c10::Half", "int64": "long int",
          "int32": "int", "uint8": "unsigned char", "bool": "bool"}  # fmt: skip


class Of(NamedTuple):
    """A tensor: its shape, its number format, and its strides if they are recorded."""

    shape: Sequence[int]
    dtype: str = "bfloat16"
    strides: Sequence[int] = ()


def recorded(*arguments: Any) -> dict[str, Any]:
    """The arguments of one call: each a tensor (of torch, or ``Of``), a list of them, a number, a list of numbers, or None."""
    each = [_argument(argument) for argument in arguments]
    names = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    return {name: list(column) for name, column in zip(names, zip(*each, strict=True), strict=True)}


def _argument(argument: Any) -> tuple[Any, str, Any, str]:
    if argument is None:
        return [], "", [], ""
    if isinstance(argument, Of):
        return list(argument.shape), _TYPES[argument.dtype], list(argument.strides), ""
    if hasattr(argument, "stride"):
        return list(argument.shape), _TYPES[str(argument.dtype).removeprefix("torch.")], list(argument.stride()), ""
    if isinstance(argument, list | tuple):
        if argument and not isinstance(argument[0], int):
            inner = [_argument(one) for one in argument]
            return [one[0] for one in inner], "TensorList", [one[2] for one in inner], ""
        return [], "ScalarList", [], str(list(argument))
    return [], "Scalar", [], str(argument)


def op(name: str, ts: float, dur: float, *arguments: Any, external: int | None = None, **others: Any) -> Event:
    """An operation with its arguments."""
    args = {**recorded(*arguments), "External id": external} if arguments else {"External id": external}
    return event("cpu_op", name, ts, dur, **{key: value for key, value in args.items() if value is not None}, **others)
