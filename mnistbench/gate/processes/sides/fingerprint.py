"""A hash of what a function returns or is given, so that two sides can be compared.

Does not import torch or numpy.

Reading a value runs no code of the user: no property, no ``__getattr__``, no ``__iter__``,
``__eq__`` or ``__repr__``, and no metaclass. Such code may compute for minutes, wait, raise or
change something. So builtin containers are read by the methods of their builtin type, and fields of
dataclasses from where Python stores them. What cannot be read in this way is named by its type.

A value is read recursively. A part that several others refer to is read each time, so its hash does
not depend on what is shared. In a cycle, a reference to an object around it is a number of levels.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import inspect
import itertools
import math
import sys
import types
import warnings
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from mnistbench.core import units
from mnistbench.measuring.provider import imported_provider
from mnistbench.measuring.timing import Clock


class Limits(NamedTuple):
    """What is read of a value at most."""

    objects: int
    n_bytes: int  # of texts, arrays and tensors
    seconds: float


#: Limits of results and arguments. Reading a million numbers takes about a second, a GiB of an
#: array several seconds.
WHOLE = Limits(1_000_000, 2**30, 10.0)

#: Most containers in each other. Each takes three frames of Python's stack, which has 1,000.
_MAX_LEVELS = 100

#: Objects between two readings of the clock.
_BETWEEN_READINGS = 1_024

#: Bytes of an array or a tensor that are read at once.
_CHUNK_BYTES = 2**24


class Fingerprint(NamedTuple):
    """Equal values have the same hash."""

    digest: str
    number: float  # mean of the absolute numbers that are finite; 0 without any
    unread_types: tuple[str, ...]  # types whose values are not part of the hash
    limit: str = ""  # the limit that ended the reading, as in "returns more than 1,000,000 objects"
    is_timed_out: bool = False  # this limit is the time, so another reading may end elsewhere

    @property
    def unread(self) -> tuple[str, ...]:
        """What is not part of the hash; empty if the hash is that of the whole value."""
        return (*self.unread_types, *filter(None, [self.limit]))


def fingerprint(*values: object, limits: Limits = WHOLE) -> Fingerprint:
    """Return the fingerprint of a value.

    Numbers, texts, tensors, arrays, dataclasses and builtin containers of them, in their order.
    """
    reader = _Reader(limits)
    hasher = hashlib.sha256()
    limit = ""
    is_timed_out = False
    try:
        for value in values:
            reader.read(value, hasher)
    except _LimitError as error:
        limit = str(error)
        is_timed_out = error.is_timed_out
    number = reader.total / max(1, reader.count)
    return Fingerprint(
        digest=hasher.hexdigest()[:16],
        number=number if math.isfinite(number) else 0.0,
        unread_types=tuple(dict.fromkeys(reader.unread_types)),
        limit=limit,
        is_timed_out=is_timed_out,
    )


class _LimitError(Exception):
    """A limit is reached."""

    def __init__(self, text: str, *, is_timed_out: bool = False) -> None:
        super().__init__(text)
        self.is_timed_out = is_timed_out


class _Reader:
    """Adds values to hashes, and counts what it has read."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left_objects = limits.objects
        self._left_bytes = limits.n_bytes
        self._deadline_ns = Clock.wall_ns() + 1e9 * limits.seconds
        self._levels: dict[int, int] = {}  # id of each container that is being read -> its level
        self.unread_types: list[str] = []
        self.total = 0.0  # of absolute numbers that are finite
        self.count = 0  # of these numbers

    def read(self, value: object, hasher: Any) -> None:
        """Add a value to a hash.

        Raises:
            _LimitError: a limit is reached; the hash has what was read before.
        """
        self._count_object()
        name = type_name(value).encode("utf-8", "surrogatepass")
        hasher.update(b"(%d:%s" % (len(name), name))
        try:
            self._read_content(value, hasher)
        except _LimitError:
            raise
        # Another thread changes a container, an array of an extension, or memory that is missing.
        except Exception:  # noqa: BLE001
            self._leave_out(value)
        hasher.update(b")")

    def _read_content(self, value: object, hasher: Any) -> None:
        kind = type(value)
        if leaf := _of_type(kind, _LEAVES):
            self._read_leaf(leaf, value, hasher)
            return
        numpy: Any = sys.modules.get("numpy")  # None if an import is blocked
        array_types = (numpy.ndarray, numpy.generic) if hasattr(numpy, "generic") else ()
        if members_of := _of_type(kind, _CONTAINERS):
            self._read_members(value, members_of(value), hasher)
        elif issubclass(kind, imported_provider().tensor_types()):
            self._read_tensor(value, hasher)
        elif issubclass(kind, array_types):
            self._read_array(value, hasher)
        elif type(_class_attribute(kind, "__dataclass_fields__")) is dict:
            self._read_members(value, _fields(value), hasher)
        else:
            self._leave_out(value)

    def _leave_out(self, value: object) -> None:
        kind = type(value)
        module = _class_attribute(kind, "__module__")
        name = f"{module}.{type_name(value)}" if type(module) is str else type_name(value)
        self.unread_types.append(name.removeprefix("builtins."))

    def _add_number(self, number: float) -> None:
        if math.isfinite(number):
            self.total += number
            self.count += 1

    # ---- Limits ----------------------------------------------------------------------------------

    def _count_object(self) -> None:
        self._left_objects -= 1
        if self._left_objects < 0:
            raise _LimitError(f"more than {self._limits.objects:,} objects")
        if self._left_objects % _BETWEEN_READINGS == 0:
            self._check_time()

    def _count_bytes(self, n_bytes: int) -> None:
        self._left_bytes -= n_bytes
        if self._left_bytes < 0:
            raise _LimitError(f"more than {units.size(self._limits.n_bytes)}")

    def _check_time(self) -> None:
        if Clock.wall_ns() > self._deadline_ns:
            raise _LimitError(
                f"what takes more than {self._limits.seconds:g} s to read", is_timed_out=True
            )

    def _parts_of(self, number: int, item_bytes: int) -> Iterator[slice]:
        """Return the parts of so many items that are read at once.

        Raises:
            _LimitError: a limit is reached, at once or while the parts are read.
        """
        self._count_bytes(number * item_bytes)
        size = max(1, _CHUNK_BYTES // max(1, item_bytes))

        def parts() -> Iterator[slice]:
            for first in range(0, number, size):
                self._check_time()
                yield slice(first, first + size)

        return parts()

    # ---- Kinds of values -------------------------------------------------------------------------

    def _read_leaf(self, leaf: _Leaf, value: Any, hasher: Any) -> None:
        content = leaf.content(value)
        self._count_bytes(len(content))
        hasher.update(b"%d:%s" % (len(content), content))
        if leaf.size:
            with contextlib.suppress(OverflowError):
                self._add_number(float(leaf.size(value)))

    def _read_members(self, value: object, members: Iterable[object], hasher: Any) -> None:
        level = len(self._levels)
        if id(value) in self._levels:  # a cycle
            hasher.update(b"%d up" % (level - self._levels[id(value)]))
            return
        if level == _MAX_LEVELS:
            raise _LimitError(f"more than {_MAX_LEVELS} levels")
        self._levels[id(value)] = level
        if issubclass(type(value), (set, frozenset)):
            # Their order depends on addresses and on the seed of hashes.
            digests = []
            for member in members:
                member_hasher = hashlib.sha256()
                self.read(member, member_hasher)
                digests.append(member_hasher.digest())
            hasher.update(b"".join(sorted(digests)))
        else:
            for member in members:
                self.read(member, hasher)
        del self._levels[id(value)]

    def _read_array(self, value: Any, hasher: Any) -> None:
        numpy: Any = sys.modules["numpy"]
        is_array = issubclass(type(value), numpy.ndarray)
        array = numpy.ndarray.view(value, numpy.ndarray) if is_array else numpy.asarray(value)
        if array.dtype.hasobject:
            self.unread_types.append("numpy.ndarray of objects")
            return
        hasher.update(f"{array.dtype} {array.shape} ".encode())
        total = 0.0
        has_numbers = array.dtype.kind in "biufc"
        flat = numpy.ascontiguousarray(array).reshape(-1)
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # the session of a test may turn them into errors
            for part in self._parts_of(flat.size, flat.itemsize):
                hasher.update(flat[part].tobytes())
                if has_numbers:
                    sizes = numpy.abs(flat[part]).astype(float)
                    total += float(sizes[numpy.isfinite(sizes)].sum())
        if flat.size and has_numbers:
            self._add_number(total / flat.size)

    def _read_tensor(self, value: Any, hasher: Any) -> None:
        provider = imported_provider()
        if any(
            "__torch_dispatch__" in vars(parent)
            for parent in type(value).__mro__
            if parent not in provider.tensor_types()
        ):
            self._leave_out(value)
            return
        content = provider.content_of(value, self._parts_of)
        if isinstance(content, str):
            self.unread_types.append(content)
            return
        description, number = content
        hasher.update(description)
        if number is not None:
            self._add_number(number)


class _Leaf(NamedTuple):
    """How a value that refers to no others is read."""

    content: Callable[[Any], bytes]
    size: Callable[[Any], float] | None = None  # the absolute number


_T = TypeVar("_T")


def _by_id(by_type: Mapping[type, _T]) -> Mapping[int, _T]:
    """Return a mapping by the id of a type: its hash may be computed by its metaclass."""
    return {id(kind): item for kind, item in by_type.items()}


def _of_type(kind: type, by_id: Mapping[int, _T]) -> _T | None:
    """Return what a mapping has for a type or for the first one that it inherits from."""
    if id(kind) in by_id:
        return by_id[id(kind)]
    return next((by_id[id(parent)] for parent in _parents(kind) if id(parent) in by_id), None)


#: Builtin type -> how its values and those of subclasses are read, by its own methods.
_LEAVES = _by_id(
    {
        type(None): _Leaf(lambda _: b""),
        bool: _Leaf(lambda value: b"%d" % value),
        int: _Leaf(lambda value: int.__format__(value, "x").encode(), int.__abs__),
        float: _Leaf(lambda value: float.__repr__(value).encode(), float.__abs__),
        complex: _Leaf(lambda value: complex.__repr__(value).encode(), complex.__abs__),
        str: _Leaf(lambda value: str.encode(value, "utf-8", "surrogatepass")),
        bytes: _Leaf(bytes.__bytes__),
        bytearray: _Leaf(lambda value: bytes(bytearray.copy(value))),
    }
)

#: Type of a container -> the members of its values and of those of subclasses.
_MEMBERS: Mapping[type, Callable[[Any], Iterable[object]]] = {
    list: list.__iter__,
    tuple: tuple.__iter__,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
    dict: lambda value: itertools.chain.from_iterable(dict.items(value)),
    # Its order is another one than that of the dict in it.
    OrderedDict: lambda value: itertools.chain.from_iterable(OrderedDict.items(value)),
    UserDict: lambda value: [inspect.getattr_static(value, "data")],
    types.MappingProxyType: gc.get_referents,
}
_CONTAINERS = _by_id(_MEMBERS)


def _fields(value: object) -> Iterator[object]:
    """Yield the fields of a dataclass that take part in a comparison and have a value.

    A field that is computed is the descriptor that computes it.
    """
    declared: Any = _class_attribute(type(value), "__dataclass_fields__")
    for item in dict.values(declared):
        if item.compare and item._field_type is dataclasses._FIELD:  # type: ignore[attr-defined]  # noqa: SLF001
            with contextlib.suppress(AttributeError):  # not set
                stored = inspect.getattr_static(value, item.name)
                is_slot = type(stored) is types.MemberDescriptorType
                yield stored.__get__(value) if is_slot else stored


# A metaclass may define attributes of these names, so they are read by the methods of ``type``.


def type_name(value: object) -> str:
    """Return the name of the type of a value, without its module."""
    return str(type.__dict__["__qualname__"].__get__(type(value)))


def _parents(kind: type) -> tuple[type, ...]:
    """Return a type and those that it inherits from."""
    parents: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return parents


def _class_attribute(kind: type, name: str) -> object:
    """Return what a class or one that it inherits from stores under a name, else None."""
    for parent in _parents(kind):
        namespace = type.__dict__["__dict__"].__get__(parent)
        if name in namespace:
            return namespace[name]
    return None
