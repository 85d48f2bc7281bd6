"""A hash of what a function returns or is given, so that two sides can be compared.

Does not import torch or numpy.

Reading a value runs no code of the user: no property, no ``__getattr__``, no ``__iter__``,
``__eq__``, ``__hash__`` or ``__repr__``, and no metaclass. Such code may compute for minutes, wait,
raise or change something. So builtin containers are read by the methods of their builtin type, and
fields of dataclasses from where Python stores them. What cannot be read in this way is named by its
type.

A value is read without recursion, and each object once. Parts that contain no reference to an
object around them have the hash of their value, shared or not. Objects of a cycle have a hash of
their structure: a reference to an object around them is a number of steps, another one to an object
of a cycle that was read before is the number of that object.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import hashlib
import itertools
import math
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any, NamedTuple

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

    Numbers, texts, tensors, arrays and containers of them, in their order.
    """
    reader = _Reader(limits)
    root = _Container(values, iter(values))
    limit = ""
    is_timed_out = False
    try:
        reader.read(root)
    except _LimitError as error:
        limit = str(error)
        is_timed_out = error.is_timed_out
    number = root.total / max(1.0, root.count)
    return Fingerprint(
        digest=root.finished().hex()[:16],
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


@dataclass(slots=True)
class _Container:
    """A container that is being read."""

    value: object
    members: Iterator[object]  # that are still to be read
    is_set: bool = False  # the order of its members depends on their addresses
    hasher: Any = field(default_factory=hashlib.sha256)
    total: float = 0.0  # of absolute numbers that are finite
    count: float = 0.0  # of these numbers
    is_cyclic: bool = False  # it has a part that refers to an object of a cycle
    # Of a set: hash, total and count of each.
    elements: list[tuple[bytes, float, float]] = field(default_factory=list)
    cycles_before: int = 0  # of a set: objects of cycles that were read before

    def add(self, content: bytes, total: float = 0.0, count: float = 0.0) -> None:
        """Add what was read of a member."""
        if self.is_set:
            self.elements.append((content, total, count))
        else:
            self.hasher.update(content)
            self.total += total
            self.count += count

    def finished(self) -> bytes:
        """Return the hash."""
        for content, total, count in sorted(self.elements):
            self.hasher.update(_framed(b"element", content))
            self.total += total
            self.count += count
        self.elements.clear()
        digest: bytes = self.hasher.digest()
        return digest


#: What a value contains: its bytes and the absolute number, or None if it is none that is counted.
_Leaf = tuple[bytes, float | None]


class _Reader:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left_objects = limits.objects
        self._left_bytes = limits.n_bytes
        self._deadline_ns = Clock.wall_ns() + 1e9 * limits.seconds
        self.unread_types: list[str] = []
        # By the id of a type, whose hash may be computed by its metaclass.
        self._kinds: dict[int, tuple[type, _Kind]] = {}
        # Id of each object that is being read -> its position on the stack.
        self._depths: dict[int, int] = {}
        # Id of an object that was read and is not part of a cycle -> the object, which keeps its
        # id, and hash, total and count
        self._known: dict[int, tuple[object, bytes, float, float]] = {}
        self._numbers: dict[int, int] = {}  # id of an object of a cycle that was read -> its number
        self._cyclic: list[object] = []  # these objects, by number

    def read(self, root: _Container) -> None:
        """Read a container to its end.

        Raises:
            _LimitError: a limit is reached; the container has what was read before.
        """
        stack = [root]
        try:
            while stack:
                opened = self._next_container(stack[-1], len(stack))
                if opened:
                    self._depths[id(opened.value)] = len(stack)
                    stack.append(opened)
                else:
                    self._close(stack)
        except _LimitError:
            while len(stack) > 1:
                self._close(stack)
            raise

    def _next_container(self, container: _Container, depth: int) -> _Container | None:
        """Read members of a container up to one that is a container itself, and return that.

        The result is None at the end.
        """
        try:
            for member in container.members:
                self._count_object()
                kind = self._kind_of(member)
                identity = id(member)
                if kind.is_scalar:
                    self._read_member(member, kind, container)
                elif identity in self._depths:
                    container.is_cyclic = True
                    container.add(_framed(b"up", b"%d" % (depth - self._depths[identity])))
                elif identity in self._numbers:
                    container.is_cyclic = True
                    container.add(_framed(b"cycle", b"%d" % self._numbers[identity]))
                elif identity in self._known:
                    container.add(*self._known[identity][1:])
                else:
                    opened = self._read_member(member, kind, container)
                    if opened:
                        return opened
        except RuntimeError:  # another thread changes the container
            self.unread_types.append(_full_name(type(container.value)))
        return None

    def _read_member(self, member: object, kind: _Kind, container: _Container) -> _Container | None:
        """Add a value to its container; return it instead if it is a container itself."""
        try:
            content_or_container = kind.read(self, member)
        except _LimitError:
            raise
        except Exception:  # noqa: BLE001  # an array of an extension, or memory that is missing
            content_or_container = self._unread(member)
        if isinstance(content_or_container, _Container):
            content_or_container.hasher.update(_framed(kind.name, b"("))
            if content_or_container.is_set:
                content_or_container.cycles_before = len(self._cyclic)
            return content_or_container
        content, number = content_or_container
        is_counted = number is not None and math.isfinite(number)
        container.add(
            _framed(kind.name, content),
            number if number is not None and is_counted else 0.0,
            float(is_counted),
        )
        return None

    def _close(self, stack: list[_Container]) -> None:
        """Add a container that was read to the one around it."""
        container = stack.pop()
        if not stack:
            return
        del self._depths[id(container.value)]
        digest = container.finished()
        if container.is_cyclic:
            self._numbers[id(container.value)] = len(self._cyclic)
            self._cyclic.append(container.value)
        else:
            self._known[id(container.value)] = (
                container.value,
                digest,
                container.total,
                container.count,
            )
        around = stack[-1]
        around.is_cyclic |= container.is_cyclic
        around.add(digest, container.total, container.count)
        if around.is_set:  # what is read of an element must not depend on the elements before it
            for cyclic in self._cyclic[around.cycles_before :]:
                del self._numbers[id(cyclic)]
            del self._cyclic[around.cycles_before :]

    def _kind_of(self, value: object) -> _Kind:
        kind = type(value)
        if id(kind) not in self._kinds:
            self._kinds[id(kind)] = kind, _Kind.of(kind)
        return self._kinds[id(kind)][1]

    def _unread(self, value: object) -> _Leaf:
        self.unread_types.append(_full_name(type(value)))
        return b"", None

    # ---- Limits ----------------------------------------------------------------------------------

    def _count_object(self) -> None:
        self._left_objects -= 1
        if self._left_objects < 0:
            raise _LimitError(f"more than {self._limits.objects:,} objects")
        if self._left_objects % _BETWEEN_READINGS == 0:
            self._check_time()

    def count_bytes(self, n_bytes: int) -> None:
        """Count bytes before they are read.

        Raises:
            _LimitError: they are too many.
        """
        self._left_bytes -= n_bytes
        if self._left_bytes < 0:
            raise _LimitError(f"more than {units.size(self._limits.n_bytes)}")

    def _check_time(self) -> None:
        if Clock.wall_ns() > self._deadline_ns:
            raise _LimitError(
                f"what takes more than {self._limits.seconds:g} s to read", is_timed_out=True
            )

    def parts_of(self, number: int, item_bytes: int) -> Iterator[slice]:
        """Return the parts of so many items that are read at once.

        Raises:
            _LimitError: a limit is reached, at once or while the parts are read.
        """
        self.count_bytes(number * item_bytes)
        size = max(1, _CHUNK_BYTES // max(1, item_bytes))

        def parts() -> Iterator[slice]:
            for first in range(0, number, size):
                self._check_time()
                yield slice(first, first + size)

        return parts()

    # ---- Kinds of values -------------------------------------------------------------------------

    def read_nothing(self, _: Any) -> _Leaf:
        return b"", None

    def read_bool(self, value: Any) -> _Leaf:
        return bool.__repr__(value).encode(), None

    def read_int(self, value: Any) -> _Leaf:
        n_bits = int.bit_length(value)
        self.count_bytes(n_bits // 8)
        return int.__format__(value, "x").encode(), float(
            int.__abs__(value)
        ) if n_bits < 1_000 else math.inf

    def read_float(self, value: Any) -> _Leaf:
        return float.__repr__(value).encode(), float.__abs__(value)

    def read_complex(self, value: Any) -> _Leaf:
        return complex.__repr__(value).encode(), complex.__abs__(value)

    def read_text(self, value: Any) -> _Leaf:
        self.count_bytes(str.__len__(value))
        return str.encode(value, "utf-8", "surrogatepass"), None

    def read_bytes(self, value: Any) -> _Leaf:
        self.count_bytes(bytes.__len__(value))
        return bytes.__getitem__(value, slice(None)), None

    def read_bytearray(self, value: Any) -> _Leaf:
        self.count_bytes(bytearray.__len__(value))
        return bytes(bytearray.__getitem__(value, slice(None))), None

    def read_list(self, value: Any) -> _Container:
        return _Container(value, list.__iter__(value))

    def read_tuple(self, value: Any) -> _Container:
        return _Container(value, tuple.__iter__(value))

    def read_set(self, value: Any) -> _Container:
        iterate: Callable[[Any], Iterator[object]] = (
            set.__iter__ if issubclass(type(value), set) else frozenset.__iter__
        )
        return _Container(value, iterate(value), is_set=True)

    def read_dict(self, value: Any) -> _Container:
        items = dict.items(value)
        # The order of an OrderedDict is another one than that of the dict in it, and is read by the
        # hashes of the keys.
        if issubclass(type(value), collections.OrderedDict) and all(
            map(_is_hashed_by_python, dict.keys(value))
        ):
            items = collections.OrderedDict.items(value)
        return _Container(value, itertools.chain.from_iterable(items))

    def read_mapping_proxy(self, value: Any) -> _Container:
        return _Container(value, iter(gc.get_referents(value)))

    def read_user_dict(self, value: Any) -> _Container | _Leaf:
        attributes = _instance_attributes(value)
        return (
            _Container(value, iter([attributes["data"]]))
            if "data" in attributes
            else self._unread(value)
        )

    def read_dataclass(self, value: Any) -> _Container | _Leaf:
        try:
            return _Container(value, iter(_fields(value)))
        except _ComputedError:
            return self._unread(value)

    def read_array(self, value: Any) -> _Leaf:
        numpy: Any = sys.modules["numpy"]
        is_array = issubclass(type(value), numpy.ndarray)
        array = numpy.ndarray.view(value, numpy.ndarray) if is_array else numpy.asarray(value)
        if array.dtype.hasobject:
            self.unread_types.append("numpy.ndarray of objects")
            return b"", None
        hasher = hashlib.sha256()
        total = 0.0
        has_numbers = array.dtype.kind in "biufc"
        flat = numpy.ascontiguousarray(array).reshape(-1)
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # the session of a test may turn them into errors
            for part in self.parts_of(flat.size, flat.itemsize):
                hasher.update(flat[part].tobytes())
                if has_numbers:
                    sizes = numpy.abs(flat[part]).astype(float)
                    total += float(sizes[numpy.isfinite(sizes)].sum())
        content = f"{array.dtype} {array.shape} {hasher.hexdigest()}".encode()
        return content, total / flat.size if flat.size and has_numbers else None

    def read_tensor(self, value: Any) -> _Leaf:
        provider = imported_provider()
        if any(
            "__torch_dispatch__" in _namespace(parent)
            for parent in _parents(type(value))
            if parent not in provider.tensor_types()
        ):
            return self._unread(value)
        content = provider.content_of(value, self.parts_of)
        if isinstance(content, str):
            self.unread_types.append(content)
            return b"", None
        return content


class _Kind(NamedTuple):
    """How values of a type are read."""

    name: bytes
    read: Callable[[_Reader, Any], _Container | _Leaf]
    is_scalar: bool  # cheaper to read than to remember

    @classmethod
    def of(cls, kind: type) -> _Kind:
        read = _read_function(kind)
        is_scalar = any(read is read_scalar for _, read_scalar in _SCALARS)
        return cls(_qualified_name(kind).encode("utf-8", "surrogatepass"), read, is_scalar)


#: A type, and the function that reads its values and those of its subclasses.
_ReadType = tuple[type, Callable[[_Reader, Any], "_Container | _Leaf"]]

_SCALARS: tuple[_ReadType, ...] = (
    (type(None), _Reader.read_nothing),
    (bool, _Reader.read_bool),
    (int, _Reader.read_int),
    (float, _Reader.read_float),
    (complex, _Reader.read_complex),
    (str, _Reader.read_text),
    (bytes, _Reader.read_bytes),
    (bytearray, _Reader.read_bytearray),
)

_CONTAINERS: tuple[_ReadType, ...] = (
    (list, _Reader.read_list),
    (tuple, _Reader.read_tuple),
    (set, _Reader.read_set),
    (frozenset, _Reader.read_set),
    (dict, _Reader.read_dict),
    (types.MappingProxyType, _Reader.read_mapping_proxy),
    (collections.UserDict, _Reader.read_user_dict),
)


def _is_hashed_by_python(key: object) -> bool:
    """Whether ``__hash__`` and ``__eq__`` of a key are Python's."""
    return any(type(key) is kind for kind in (str, int, float, bool, bytes, type(None)))


def _read_function(kind: type) -> Callable[[_Reader, Any], _Container | _Leaf]:
    """Return what reads the values of a type."""
    parents = _parents(kind)
    for builtin, read in (*_SCALARS, *_CONTAINERS):
        if any(parent is builtin for parent in parents):
            return read
    loaded = sys.modules.get("numpy")  # None if an import is blocked
    array_types = [vars(loaded).get(name) for name in ("ndarray", "generic")] if loaded else []
    for types_of_kind, read in (
        (imported_provider().tensor_types(), _Reader.read_tensor),
        (array_types, _Reader.read_array),
    ):
        if any(parent is known for parent in parents for known in types_of_kind):
            return read
    is_dataclass = _class_attribute(kind, "__dataclass_fields__")
    return _Reader.read_dataclass if type(is_dataclass) is dict else _Reader._unread  # noqa: SLF001


def _framed(name: bytes, content: bytes) -> bytes:
    return b"%d:%d:%s%s" % (len(name), len(content), name, content)


# ---- Types and objects, read without running their code ------------------------------------------

#: What Python stores of a type; a metaclass may define attributes of these names.
_STORED_NAMESPACE = type.__dict__["__dict__"]
_STORED_PARENTS = type.__dict__["__mro__"]
_STORED_NAME = type.__dict__["__qualname__"]


def _namespace(kind: type) -> Mapping[str, Any]:
    namespace: Mapping[str, Any] = _STORED_NAMESPACE.__get__(kind)
    return namespace


def _parents(kind: type) -> tuple[type, ...]:
    """Return the type and those that it inherits from.

    They come in the order in which Python looks for an attribute.
    """
    parents: tuple[type, ...] = _STORED_PARENTS.__get__(kind)
    return parents


def _qualified_name(kind: type) -> str:
    return str(_STORED_NAME.__get__(kind))


def _full_name(kind: type) -> str:
    module = _namespace(kind).get("__module__")
    return (
        f"{module}.{_qualified_name(kind)}".removeprefix("builtins.")
        if type(module) is str
        else _qualified_name(kind)
    )


def type_name(value: object) -> str:
    """Return the name of the type of a value, without its module."""
    return _qualified_name(type(value))


def _class_attribute(kind: type, name: str) -> object:
    """Return what a class stores under a name; None if it has nothing of this name."""
    return next(
        (_namespace(parent)[name] for parent in _parents(kind) if name in _namespace(parent)),
        None,
    )


def _instance_attributes(value: object) -> Mapping[str, Any]:
    """Return what Python stores in the ``__dict__`` of an object.

    It is found even if the class has a property of this name.
    """
    for parent in _parents(type(value)):
        descriptor = _namespace(parent).get("__dict__")
        if type(descriptor) is types.GetSetDescriptorType:
            attributes = descriptor.__get__(value)
            return attributes if type(attributes) is dict else {}
    return {}


class _ComputedError(Exception):
    """A field is computed when it is read."""


def _fields(value: object) -> Sequence[object]:
    """Return the fields of a dataclass that take part in a comparison and have a value.

    Raises:
        _ComputedError: one of them is a descriptor of the user.
    """
    kind = type(value)
    attributes = _instance_attributes(value)
    declared = SimpleNamespace(__dataclass_fields__=_class_attribute(kind, "__dataclass_fields__"))
    field_values = []
    for name in [item.name for item in fields(declared) if item.compare]:  # type: ignore[arg-type]
        class_value = _class_attribute(kind, name)
        if type(class_value) is types.MemberDescriptorType:  # of __slots__
            with contextlib.suppress(AttributeError):  # not set
                field_values.append(class_value.__get__(value))
        elif name in attributes:
            field_values.append(attributes[name])
        elif class_value is not None:
            if _class_attribute(type(class_value), "__get__") is not None:
                raise _ComputedError
            field_values.append(class_value)  # a default
    return field_values
