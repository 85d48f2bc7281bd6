"""A JSON value that anybody may have written, read with its types checked: every complaint names the field."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Self

from mnistbench.core.errors import RecordError

#: No time in nanoseconds and no size in bytes is larger: 292 years, 8 EiB.
LARGEST = 2**63 - 1


class Reader:
    """A JSON value and the path that led to it. Every method raises RecordError where the value is something else."""

    __slots__ = ("_step", "_within", "value")

    def __init__(self, value: object, step: str = "", within: Reader | None = None) -> None:
        self.value = value
        self._step = step
        self._within = within

    @property
    def path(self) -> str:
        """The path that led here: ``tables[0].view``. Put together only when asked for: a thousand files have many fields."""
        before = self._within.path if self._within else ""
        return f"{before}.{self._step}" if before and not self._step.startswith("[") else before + self._step

    def wrong(self, expected: str) -> RecordError:
        """Return the error that this value is not what was expected."""
        shown = repr(self.value)
        return RecordError(
            f"{self.path or 'file'}: needs {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}"
        )

    def __getitem__(self, name: str) -> Self:
        """Return a member of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        if name not in self.value:
            raise RecordError(f"{type(self)(None, name, self).path}: is missing")
        return type(self)(self.value[name], name, self)

    def items(self) -> list[Self]:
        """Return the members of a list."""
        if not isinstance(self.value, list | tuple):
            raise self.wrong("a list")
        return [type(self)(item, f"[{position}]", self) for position, item in enumerate(self.value)]

    def mapping(self) -> dict[str, Self]:
        """Return the members of an object."""
        if not isinstance(self.value, dict) or not all(isinstance(name, str) for name in self.value):
            raise self.wrong("an object")
        return {name: type(self)(item, name, self) for name, item in self.value.items()}

    def parsed(self) -> Self:
        """Parse the compact JSON string here."""
        try:
            return type(self)(json.loads(self.text()), self._step, self._within)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of more digits than Python takes
            raise RecordError(f"{self.path}: is not JSON ({error})") from None

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return self.value

    def whole(self) -> int:
        """Return a whole number."""
        if type(self.value) is not int or not -LARGEST <= self.value <= LARGEST:
            raise self.wrong("a whole number")
        return self.value

    def nanoseconds(self) -> int:
        """Return a time in nanoseconds."""
        if self.whole() < 0:
            raise self.wrong("a time of at least 0 ns")
        return self.whole()

    def number(self) -> float:
        """Return a finite number."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:  # nor NaN
            raise self.wrong("a finite number")
        return float(value)

    def number_or_none(self) -> float | None:
        """Return a finite number, or None for null."""
        return None if self.value is None else self.number()

    def flag(self) -> bool:
        """Return true or false."""
        if type(self.value) is not bool:
            raise self.wrong("true or false")
        return self.value

    def all_nanoseconds(self) -> tuple[int, ...]:
        """Return a list of times in nanoseconds."""
        return tuple(item.nanoseconds() for item in self.items())

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(item.text() for item in self.items())

    def one_of(self, *choices: str) -> str:
        """Return one of these texts."""
        if self.value not in choices:
            raise self.wrong(" or ".join(choices))
        return self.text()


def in_path(reader: Reader, check: Callable[[object], None]) -> None:
    """Run a check on the value; what it raises begins with the path."""
    try:
        check(reader.value)
    except RecordError as error:
        raise RecordError(f"{reader.path}.{error}") from None
