"""Read JSON values into records by their type hints.

An error names the place of the value: ``tables[0].view: needs ...``.

``read``, ``read_text`` and ``member`` do it with msgspec. A field with a default may be missing.
What a type hint cannot say, ``__post_init__`` checks with a ValueError. A class that is saved in
another form has a classmethod ``from_saved``, which makes it of that.

A side of the gate does not load this module: it has pytest and torch alone.
"""

from __future__ import annotations

import functools
import json
import math
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from mnistbench.core import units
from mnistbench.core.errors import MnistbenchError, RecordError
from mnistbench.core.machine import available_bytes
from mnistbench.core.units import LARGEST

_T = TypeVar("_T")

Nanoseconds = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]


class FieldError(RecordError, ValueError):
    """A value that is not what its type hint needs.

    ``path`` grows from the value outwards while the error is raised. It is a ValueError, too, so
    that msgspec adds the place of a record whose ``__post_init__`` raises it.
    """

    def __init__(self, complaint: str, path: str = "") -> None:
        super().__init__(complaint, path)
        self.complaint = complaint
        self.path = path

    def __str__(self) -> str:
        return f"{self.path or 'file'}: {self.complaint}"

    def enter(self, step: str) -> None:
        """Put a step before the path: the name of a member, ``[3]``, or a whole path."""
        self.path = (
            f"{step}.{self.path}"
            if step and self.path and not self.path.startswith("[")
            else step + self.path
        )


def wrong(value: object, expected: str, path: str = "") -> FieldError:
    """Return the error that a value is not what was expected."""
    shown = repr(value)
    return FieldError(
        f"needs {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}", path
    )


class place:  # noqa: N801  # a context manager that is called like a function
    """Put a path before that of a FieldError of the body.

    It is a class, because a generator takes three times as long, and a comparison of 1,000 runs
    enters it 60,000 times.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, FieldError):
            error.enter(self._path)


@typing.overload
def read(data: object, hint: type[_T], path: str = "") -> _T: ...
@typing.overload
def read(data: object, hint: Any, path: str = "") -> Any: ...
def read(data: object, hint: Any, path: str = "") -> Any:
    """Return a parsed JSON value as its type hint asks for.

    Raises:
        FieldError: names the place of the value below ``path``.
    """
    try:
        return msgspec.convert(data, hint, dec_hook=_unpack)
    except (msgspec.ValidationError, MnistbenchError) as error:
        raise _field_error(error, path) from None
    except UnicodeError:  # of msgspec's error, which has no place then
        raise FieldError("has a text with half a surrogate pair, and a wrong value", path) from None
    except RecursionError:
        raise FieldError("is nested too deeply", path) from None


@typing.overload
def read_text(text: str | bytes, hint: type[_T], path: str = "") -> _T: ...
@typing.overload
def read_text(text: str | bytes, hint: Any, path: str = "") -> Any: ...
def read_text(text: str | bytes, hint: Any, path: str = "") -> Any:
    """Parse JSON and return its value as its type hint asks for.

    Raises:
        FieldError: names the place of the value below ``path``, or the place in the text.
    """
    try:
        return _decoder(hint).decode(text)
    except (msgspec.ValidationError, MnistbenchError) as error:
        raise _field_error(error, path) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    # Python's own parser reads half a surrogate pair, and says what is wrong with the rest.
    return read(parsed(text, path), hint, path)


def parsed(
    text: str | bytes,
    path: str = "",
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Return the value of JSON, whose numbers are finite; the hook is that of ``json.loads``.

    Raises:
        FieldError: it is no JSON.
    """
    try:
        return json.loads(
            text,
            parse_constant=_no_number,
            parse_float=_finite,
            object_pairs_hook=object_pairs_hook,
        )
    except (ValueError, RecursionError) as error:
        raise FieldError(f"is not JSON ({error})", path) from None


#: Bytes of a Python object of JSON at least: a number or a short text with its place in a list, and
#: an empty list or object.
_VALUE_BYTES = 64
_CONTAINER_BYTES = 80


def check_memory(content: bytes, path: str) -> None:
    """Check that the memory is enough to parse JSON.

    Raises:
        RecordError: it is not.
    """
    containers = content.count(b"{") + content.count(b"[")
    needed = len(content) + _VALUE_BYTES * content.count(b",") + _CONTAINER_BYTES * containers
    available = available_bytes()
    if needed > available:
        raise RecordError(
            f"{path}: needs at least {units.size(needed)} of memory, and {units.size(available)} "
            "are available; read it on a machine with more"
        )


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


@functools.cache
def _decoder(hint: Any) -> Any:
    return msgspec.json.Decoder(hint, dec_hook=_unpack)


def member(data: object, name: str, hint: Any, path: str = "") -> Any:
    """Return one member of an object as its type hint asks for; what else it has is not read.

    Raises:
        FieldError: the value is no object, or the member is missing or wrong.
    """
    if not isinstance(data, Mapping):
        raise wrong(data, "an object", path)
    if name not in data:
        raise FieldError("is missing", f"{path}.{name}" if path else name)
    return read(data[name], hint, f"{path}.{name}" if path else name)


def _unpack(hint: Any, saved: object) -> Any:
    """Return a value of a type that msgspec does not know."""
    from_saved = getattr(hint, "from_saved", None)
    if from_saved is None:
        raise NotImplementedError(f"{hint} cannot be read from JSON")
    return from_saved(saved)


#: msgspec's error where a member is not there; it does not have the member in its path.
_MISSING = re.compile(r"Object missing required field `(.+)`")


def _field_error(error: Exception, path: str) -> FieldError:
    """Return msgspec's error with our path, which it ends in: ``at `$.tables[0]```."""
    complaint, _, inside = str(error).partition(" - at `$")
    field_error = FieldError(complaint)
    if isinstance(cause := error.__cause__, FieldError):
        field_error = FieldError(cause.complaint, cause.path)
    elif missing := _MISSING.fullmatch(complaint):
        field_error = FieldError("is missing", missing[1])
    field_error.enter(inside.removesuffix("`").removeprefix("."))
    field_error.enter(path)
    return field_error
