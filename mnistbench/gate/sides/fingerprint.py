"""A hash of what a function returns or is given, so that two sides can be compared. Does not import torch or numpy."""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

#: Types whose ``repr`` is their value.
_WRITTEN = (type(None), bool, int, str, bytes, bytearray)

#: Deepest nesting that is read; a container may contain itself.
_DEEPEST = 50


class Fingerprint(NamedTuple):
    """Equal values have the same hash."""

    digest: str
    number: float  # mean of the absolute numbers that are finite; 0 without any
    unread: tuple[str, ...]  # types whose values are not part of the hash


def fingerprint(*values: object) -> Fingerprint:
    """Return the fingerprint of numbers, texts, tensors, arrays and containers of them, in their order."""
    reader = _Reader()
    for value in values:
        reader.read(value, 0)
    return Fingerprint(reader.digest.hexdigest()[:16], reader.total / max(1, reader.count), tuple(dict.fromkeys(reader.unread)))


class _Reader:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.total, self.count = 0.0, 0
        self.unread: list[str] = []

    def read(self, value: Any, depth: int) -> None:
        kind = type(value)
        self._add(kind.__qualname__.encode())
        if depth > _DEEPEST:
            self.unread.append("a deeper nesting")
        elif isinstance(value, (float, complex)):
            self._add(repr(value).encode())
            self._count(abs(value))
        elif isinstance(value, _WRITTEN):
            self._add(repr(value).encode())
            if isinstance(value, int) and not isinstance(value, bool):
                self._count(float(abs(value)) if abs(value) < 2**1000 else math.inf)
        elif isinstance(value, Mapping):
            self._read_all((item for pair in value.items() for item in pair), depth)
        elif isinstance(value, (list, tuple)):
            self._read_all(value, depth)
        elif isinstance(value, (set, frozenset)):
            self._read_set(value, depth)
        elif self._read_array(value):
            pass
        elif is_dataclass(value) and not isinstance(value, type):
            self._read_all((getattr(value, field.name, None) for field in fields(value)), depth)
        else:
            self.unread.append(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))

    def _add(self, content: bytes) -> None:
        self.digest.update(len(content).to_bytes(8, "little") + content)

    def _count(self, number: float) -> None:
        """Count a number, or the mean of an array."""
        if math.isfinite(number):
            self.total += number
            self.count += 1

    def _read_all(self, values: Iterable[object], depth: int) -> None:
        for value in values:
            self.read(value, depth + 1)
        self._add(b"end")

    def _read_set(self, values: Iterable[object], depth: int) -> None:
        """Read values whose order depends on their addresses, by their hashes."""
        found = []
        for value in values:
            one = _Reader()
            one.read(value, depth + 1)
            found.append(one)
        for one in sorted(found, key=lambda one: one.digest.digest()):
            self._add(one.digest.digest())
            self.total, self.count = self.total + one.total, self.count + one.count
            self.unread += one.unread

    def _read_array(self, value: Any) -> bool:
        """Read a tensor or an array; return whether it is one."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch and isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
                self.unread.append(f"torch.Tensor, {value.layout}")
                return True
            tensor = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
            self._add(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            content = tensor.reshape(-1).view(torch.uint8)
            self._add(ctypes.string_at(content.data_ptr(), content.numel()))
            sizes = tensor.abs() if tensor.is_complex() else tensor.double().abs()  # there is no abs of truth values
            self._count(float(sizes.double().nan_to_num(0.0, 0.0, 0.0).mean()) if tensor.numel() else 0.0)
            return True
        if numpy and isinstance(value, (numpy.ndarray, numpy.generic)):
            array = numpy.ascontiguousarray(value)
            if array.dtype.hasobject:
                self.unread.append("numpy.ndarray of objects")
                return True
            self._add(f"{array.dtype} {numpy.shape(value)}".encode())
            self._add(array.tobytes())
            if array.size and array.dtype.kind in "biufc":
                self._count(float(numpy.nan_to_num(abs(array).astype(float), posinf=0.0, neginf=0.0).mean()))
            return True
        return False
