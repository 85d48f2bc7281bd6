"""Makes the operators of tensors visible to cProfile, which sees no operator (``a + b``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any

import torch

#: Operators of ``torch.Tensor`` that run operations.
_OPERATORS = tuple(
    f"__{name}__"
    for name in (
        *("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "matmul"),
        *("rmatmul", "imatmul", "truediv", "rtruediv", "itruediv", "floordiv", "rfloordiv"),
        *("ifloordiv", "mod", "rmod", "imod", "pow", "rpow", "ipow", "lshift", "rlshift"),
        *("ilshift", "rshift", "rrshift", "irshift", "and", "rand", "iand", "xor", "rxor"),
        *("ixor", "or", "ror", "ior", "neg", "pos", "abs", "invert", "lt", "le", "eq", "ne"),
        *("gt", "ge", "getitem", "setitem", "contains", "bool", "int", "float", "complex"),
        "index",
    )
)

#: Types of operators that C implements; others are functions of Python, which cProfile sees.
_TYPES_OF_C = (BuiltinMethodType, MethodDescriptorType, WrapperDescriptorType)


@contextmanager
def visible_operators() -> Iterator[None]:
    """Make a function of each operator of ``torch.Tensor`` while the body runs."""
    tensor: Any = torch.Tensor
    with ExitStack() as undo:
        for name in _OPERATORS:
            method = getattr(tensor, name, None)
            if not isinstance(method, _TYPES_OF_C):
                continue  # it is a function of Python, or torch does not have it
            if name in vars(tensor):
                undo.callback(setattr, tensor, name, method)
            else:
                undo.callback(delattr, tensor, name)
            setattr(tensor, name, _visible(method))
        yield


def _visible(method: Callable[..., Any]) -> FunctionType:
    def operator(*operands: Any) -> Any:
        return method(*operands)

    return operator  # type: ignore[return-value]


def is_operator(code: CodeType | str) -> bool:
    """Return whether what cProfile has is one of these functions."""
    if isinstance(code, str):
        # cProfile looks a bound method up in its type, where the function is.
        return code.startswith(f"<function {_visible.__qualname__}.")
    return code.co_filename == __file__
