"""Read JSON values into records by their type hints.

An error names the place of the value: ``tables[0].view: needs ...``.

``read``, ``read_text`` and ``member`` do it with msgspec. A field with a default may be missing.
What a type hint cannot say, ``__post_init__`` checks with a ValueError. A class that is saved in
another form has a classmethod ``from_saved``, which makes it of that.

A side of the gate does not load this module: it has pytest and torch alone.

:class:`Reader` does it for all other files. What a type hint may be for it:

- ``str``, ``int``, ``float`` (finite), ``bool`` and ``Any``;
- ``X | None``, ``Mapping[str, X]``, ``tuple[X, ...]`` and ``tuple[X, Y]``;
- a dataclass or a NamedTuple, read from an object that has every field. A class with
  ``__post_init__`` checks its own fields. A class that is saved in another form has a classmethod
  ``from_stored``: the annotation of its argument ``stored`` is read instead and handed to it;
- ``Annotated`` with :class:`Within`, :class:`Members`, ``Literal["host", "device"]`` or
  ``OPTIONAL``.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from mnistbench.core.errors import MnistbenchError, RecordError
from mnistbench.core.units import LARGEST

_T = TypeVar("_T")

#: Converts a parsed JSON value; raises FieldError.
_Convert = Callable[[Any], Any]

_Check = Callable[[Sequence[Any]], bool]


class Within(NamedTuple):
    """Limits of a number, both included."""

    least: float
    most: float
    expected: str  # how an error describes a number within the limits


class Members(NamedTuple):
    """What a list has.

    One member per type of ``tuple[X, Y]``, or at least one of ``tuple[X, ...]``.
    """

    expected: str  # how an error describes the members where there are more or fewer


#: The field may be missing; it then has its default.
OPTIONAL = "optional"

Nanoseconds = Annotated[int, Meta(ge=0, le=LARGEST), Within(0, LARGEST, "a time of at least 0 ns")]
Positive = Annotated[int, Meta(ge=1, le=LARGEST), Within(1, LARGEST, "at least 1")]


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


# ---- With msgspec --------------------------------------------------------------------------------


@contextlib.contextmanager
def place(path: str) -> Iterator[None]:
    """Put a path before that of a FieldError of the body."""
    try:
        yield
    except FieldError as error:
        error.enter(path)
        raise


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
    except (msgspec.DecodeError, UnicodeError):
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
    from_saved = getattr(typing.get_origin(hint) or hint, "from_saved", None)
    if from_saved is None:
        raise NotImplementedError(f"{hint} cannot be read from JSON")
    return from_saved(saved, *typing.get_args(hint))


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


# ---- Without it ----------------------------------------------------------------------------------


class Reader:
    """A JSON value and the path that leads to it.

    Methods raise :class:`FieldError` if the value is something else.
    """

    __slots__ = ("_step", "_within", "value")

    def __init__(self, value: object, step: str = "", within: Reader | None = None) -> None:
        self.value = value
        self._step = step
        self._within = within

    @property
    def path(self) -> str:
        """The path to the value: ``tables[0].view``.

        It is made on demand: a thousand files have many fields.
        """
        error = FieldError("", self._step)
        error.enter(self._within.path if self._within else "")
        return error.path

    def wrong(self, expected: str) -> FieldError:
        """Return the error that this value is not what was expected."""
        return wrong(self.value, expected, self.path)

    def __getitem__(self, name: str) -> Reader:
        """Return a member of an object."""
        members = self.value
        if not isinstance(members, dict):
            raise self.wrong("an object")
        if name not in members:
            raise FieldError("is missing", Reader(None, name, self).path)
        return Reader(members[name], name, self)

    def items(self) -> list[Reader]:
        """Return the members of a list."""
        if not isinstance(self.value, list | tuple):
            raise self.wrong("a list")
        return [Reader(item, f"[{position}]", self) for position, item in enumerate(self.value)]

    @typing.overload
    def read(self, hint: type[_T]) -> _T: ...
    @typing.overload
    def read(self, hint: Any) -> Any: ...
    def read(self, hint: Any) -> Any:
        """Return the value as its type hint asks for."""
        return self.convert(_converter(hint))

    def members(self, cls: type, names: Iterable[str]) -> dict[str, Any]:
        """Return the named fields of a dataclass or NamedTuple from an object that has them."""
        return self.convert(functools.partial(_read_members, cls, names))

    def convert(self, convert: Callable[[Any], _T]) -> _T:
        """Apply a function to the value.

        A FieldError that it raises gets the path of this value.
        """
        try:
            return convert(self.value)
        except FieldError as error:
            error.enter(self.path)
            raise


# ---- Type hints -> functions that convert --------------------------------------------------------


@functools.cache
def _converter(hint: Any) -> _Convert:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        return _annotated(*arguments)
    if origin in (typing.Union, types.UnionType):
        [inner] = (_converter(argument) for argument in arguments if argument is not types.NoneType)
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _tuple(arguments)
    if origin is collections.abc.Mapping:
        return functools.partial(_mapping, _converter(arguments[1]))
    if hasattr(hint, "from_stored"):
        stored = _converter(typing.get_type_hints(hint.from_stored, include_extras=True)["stored"])
        return lambda value: hint.from_stored(stored(value))
    return functools.partial(_record, hint)


def _annotated(inner: Any, *notes: Any) -> _Convert:
    *others, note = notes
    if isinstance(note, Members):
        return _tuple(typing.get_args(inner), note.expected)
    if typing.get_origin(note) is Literal:
        return functools.partial(_one_of, typing.get_args(note))
    convert = _annotated(inner, *others) if others else _converter(inner)
    if isinstance(note, Within):
        return functools.partial(_within, note, convert)
    return convert


def _tuple(members: tuple[Any, ...], expected: str = "") -> _Convert:
    if members[-1] is Ellipsis:
        return functools.partial(
            _column, _converter(members[0]), _AT_ONCE.get(members[0]), expected
        )
    return functools.partial(
        _row, tuple(map(_converter, members)), expected or f"a list of {len(members)}"
    )


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def _members(cls: Any) -> dict[str, tuple[_Convert, bool]]:
    """Return for each field its converter and whether it may be missing."""
    hints = _hints(cls)
    names = (
        [field.name for field in dataclasses.fields(cls)]
        if dataclasses.is_dataclass(cls)
        else cls._fields
    )
    checks_itself = hasattr(cls, "__post_init__")
    return {
        name: (
            _converter(Any if checks_itself else hints[name]),
            OPTIONAL in getattr(hints[name], "__metadata__", ()),
        )
        for name in names
    }


def _read_members(cls: type, names: Iterable[str], value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(value, "an object")
    members = _members(cls)
    found = {}
    name = ""
    try:
        for name in names:
            convert, is_optional = members[name]
            if name in value or not is_optional:
                found[name] = convert(value[name])
    except KeyError:  # converters raise FieldError only
        raise FieldError("is missing", name) from None
    except FieldError as error:
        error.enter(name)
        raise
    return found


def _record(cls: type, value: object) -> Any:
    members = _read_members(cls, _members(cls), value)
    try:
        return cls(**members)
    except MnistbenchError as error:
        raise FieldError(str(error)) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise wrong(value, "text")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not -LARGEST <= value <= LARGEST:
        raise wrong(value, "a whole number")
    return value


def _number(value: object) -> float:
    # Nor NaN.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) <= sys.float_info.max
    ):
        raise wrong(value, "a finite number")
    return float(value)


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise wrong(value, "true or false")
    return value


_PLAIN: dict[Any, _Convert] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _flag,
    Any: lambda value: value,
}


def _within(limits: Within, convert: _Convert, value: object) -> Any:
    number = convert(value)
    if not limits.least <= number <= limits.most:
        raise wrong(value, limits.expected)
    return number


def _one_of(choices: tuple[str, ...], value: object) -> str:
    if not isinstance(value, str) or value not in choices:
        raise wrong(value, " or ".join(choices))
    return value


def _column(
    convert: _Convert, at_once: _Check | None, expected: str, value: object
) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise wrong(value, "a list")
    if expected and not value:
        raise wrong(value, expected)
    return tuple(value) if at_once and at_once(value) else _each(itertools.repeat(convert), value)


def _row(converters: Sequence[_Convert], expected: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise wrong(value, "a list")
    if len(value) != len(converters):
        raise wrong(value, expected)
    return _each(converters, value)


def _each(converters: Iterable[_Convert], cells: Sequence[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for convert, cell in zip(converters, cells, strict=False):
            found.append(convert(cell))  # its length names the cell that is wrong
    except FieldError as error:
        error.enter(f"[{len(found)}]")
        raise
    return tuple(found)


#: Checks of a column in one go: whether every cell is right as it is. Saved runs are mostly such
#: columns.
_AT_ONCE: dict[Any, _Check] = {
    str: lambda cells: set(map(type, cells)) <= {str},
    Nanoseconds: lambda cells: (
        set(map(type, cells)) <= {int}
        and min(cells, default=0) >= 0
        and max(cells, default=0) <= LARGEST
    ),
}


def _mapping(convert: _Convert, value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise wrong(value, "an object")
    found = {}
    name = ""
    try:
        for name, member in value.items():
            found[name] = convert(member)
    except FieldError as error:
        error.enter(name)
        raise
    return found
