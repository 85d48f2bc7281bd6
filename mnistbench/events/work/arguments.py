"""The recorded arguments of an operation: shapes and formats of tensors, values of the others.

``record_shapes=True`` of torch.profiler records them: "Input Dims", "Input type", "Input Strides"
and "Concrete Inputs", a list with an entry per argument each. Values are texts: ``[2, 2]``,
``False``, ``0.1``; empty for tensors and for None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: C++ type of a tensor's elements, as recorded -> number format and bytes. ``long`` is of torch
#: 1.x.
_TYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "c10::BFloat16": ("bfloat16", 2),
    "c10::Half": ("float16", 2),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "int": ("int32", 4),
    "short int": ("int16", 2),
    "short": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
}

#: Bytes of an element of a number format.
SIZES = dict(_TYPES.values())

#: Values of c10::ScalarType, by which an argument ``dtype`` is recorded.
_SCALAR_TYPES = {
    "0": "uint8",
    "1": "int8",
    "2": "int16",
    "3": "int32",
    "4": "int64",
    "5": "float16",
    "6": "float32",
    "7": "float64",
    "11": "bool",
    "15": "bfloat16",
}

#: Why the work of a call is not counted.
NOT_RECORDED = "operations whose shapes or arguments are not recorded"
NO_RULE = "operations without a rule for their FLOPs and bytes"


class UncountedError(Exception):
    """The work of a call cannot be derived.

    The message is a reason, which holds for other operations, too.
    """


@dataclass(frozen=True)
class Tensor:
    """A recorded tensor, or one that an operation makes."""

    shape: tuple[int, ...]
    dtype: str  # bfloat16
    strides: tuple[int, ...] = ()  # in elements; empty where they are not recorded

    @property
    def n_bytes(self) -> int:
        """Size in memory. An expanded dimension, whose stride is 0, repeats the same memory."""
        strides = self.strides if len(self.strides) == len(self.shape) else (1,) * len(self.shape)
        return SIZES[self.dtype] * math.prod(
            size for size, stride in zip(self.shape, strides, strict=True) if stride
        )

    @property
    def is_floating(self) -> bool:
        return "float" in self.dtype


class Arguments:
    """The arguments of one call, by position.

    Every method raises UncountedError where an argument is not recorded as it has to be.
    """

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self._dims, self._types, self._strides, self._values = (
            values if type(values := recorded.get(name)) is list else []
            for name in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
        )
        if not self._types or len(self._types) != len(self._dims):
            raise UncountedError(NOT_RECORDED)

    def __len__(self) -> int:
        """Return the number of arguments."""
        return len(self._types)

    def kind(self, position: int) -> str:
        """Return the recorded type: of a tensor's elements, Scalar, ScalarList or TensorList."""
        recorded_type = self._types[position] if position < len(self) else ""
        return recorded_type if type(recorded_type) is str else ""

    def is_tensor(self, position: int) -> bool:
        """Whether an argument is a tensor of a number format that is known here."""
        return self.kind(position) in _TYPES

    def tensor(self, position: int) -> Tensor:
        """Return a tensor."""
        if not self.is_tensor(position):
            raise UncountedError(NOT_RECORDED)
        strides = _sizes(self._strides[position]) if position < len(self._strides) else ()
        shape = _sizes(self._dims[position])
        if shape is None:
            raise UncountedError(NOT_RECORDED)
        return Tensor(shape, _TYPES[self.kind(position)][0], strides or ())

    def tensors(self, positions: Iterable[int]) -> list[Tensor]:
        """Return those of the arguments that are tensors.

        Others may be None or numbers, but no lists of tensors.
        """
        listed = list(positions)
        if any(
            self.kind(position) not in (*_TYPES, "Scalar", "ScalarList", "") for position in listed
        ):
            raise UncountedError(NO_RULE)
        return [self.tensor(position) for position in listed if self.is_tensor(position)]

    def value(self, position: int) -> str:
        """Return a value as recorded."""
        text = self._values[position] if position < min(len(self), len(self._values)) else None
        if type(text) is not str:
            raise UncountedError(NOT_RECORDED)
        return text

    def is_set(self, position: int) -> bool:
        """Whether a truth value is recorded as true, or a number as another than 0."""
        return position < len(self._values) and self._values[position] not in ("", "0", "False")

    def number(self, position: int) -> int:
        """Return a whole number."""
        sizes = _sizes([_parsed(self.value(position))], least=None)
        if sizes is None:
            raise UncountedError(NOT_RECORDED)
        return sizes[0]

    def numbers(self, position: int, length: int = 0) -> tuple[int, ...]:
        """Return a list of whole numbers.

        One number stands for all of ``length``; empty for None.
        """
        sizes = _sizes(_parsed(self.value(position) or "[]"), least=None)
        if sizes is None:
            raise UncountedError(NOT_RECORDED)
        return sizes * length if len(sizes) == 1 and length else sizes

    def flags(self, position: int) -> tuple[bool, ...]:
        """Return a list of truth values."""
        return tuple(text.strip() == "True" for text in self.value(position).strip("[]").split(","))

    def flag(self, position: int) -> bool:
        """Return a truth value."""
        return self.value(position) == "True"

    def dtype(self, position: int, otherwise: str) -> str:
        """Return a number format; ``otherwise`` for None."""
        text = self.value(position)
        if text and text not in _SCALAR_TYPES:
            raise UncountedError(NOT_RECORDED)
        return _SCALAR_TYPES[text] if text else otherwise


def _parsed(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        raise UncountedError(NOT_RECORDED) from None
    return value


def _sizes(value: object, least: int | None = 0) -> tuple[int, ...] | None:
    """Return a list of whole numbers of at least ``least``; None for anything else."""
    if type(value) is not list or any(
        type(size) is not int or (least is not None and size < least) for size in value
    ):
        return None
    return tuple(value)
