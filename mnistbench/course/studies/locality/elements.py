"""What the loops need of an array."""

from __future__ import annotations

from typing import Protocol


class Elements(Protocol):
    """An array, or its stand-in that counts misses."""

    def __getitem__(self, index: tuple[int, ...], /) -> float: ...

    def __setitem__(self, index: tuple[int, ...], value: float, /) -> None: ...
