"""Spans of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Time = TypeVar("_Time", int, float)


def covered(spans: Iterable[tuple[_Time, _Time]]) -> _Time | int:
    """Return the length of the union of spans (start, end); a span that ends before it starts is empty."""
    length: _Time | int = 0
    until: _Time | None = None
    for start, end in sorted(spans):
        begin = start if until is None else max(start, until)
        if end > begin:
            length += end - begin
            until = end
    return length
