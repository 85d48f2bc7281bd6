"""Values of two sides have the same hash if they are equal, and another one if not.

The sides compute them or are given them.
"""

import collections
import copy
import itertools
import random
import sys
import types
import unittest.mock
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values, many

from mnistbench.gate.processes.sides.fingerprint import Limits, fingerprint
from mnistbench.measuring.timing import Clock


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Pair:
    first: object
    second: object


class Opaque:
    pass


EQUAL = {
    "number": lambda: 3,
    "text": lambda: "three",
    "bytes": lambda: b"three",
    "nothing": lambda: None,
    "complex": lambda: 1 + 2j,
    "list": lambda: [1, [2.5, "x"], {"a": (1, 2)}],
    "set": lambda: {f"text {number}" for number in range(50)},
    "set of tuples": lambda: frozenset({(1, "a"), (2, "b")}),
    "named tuple": lambda: Point(1, 2),
    "dataclass": lambda: Pair([1], {"a": 2}),
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "array in another order": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "array of texts": lambda: np.array(["a", "bc"]),
    "element": lambda: np.float32(1.5),
    "empty array": lambda: np.zeros((0, 3)),
    "tensor": lambda: torch.arange(6.0).reshape(2, 3),
    "tensor with a gradient": lambda: torch.ones(2, requires_grad=True),
    "transposed tensor": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "conjugated tensor": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "half precision": lambda: torch.ones(2, dtype=torch.bfloat16),
    "truth values": lambda: torch.tensor([True, False]),
    "one number": lambda: torch.tensor(2),
    "empty tensor": lambda: torch.zeros(0, 3),
    "a large integer": lambda: 10**400,
    "infinity": lambda: float("inf"),
    "no number": lambda: [float("nan"), np.array([np.nan, np.inf]), torch.tensor([float("nan")])],
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_values_have_equal_fingerprints(name):
    make = EQUAL[name]
    assert fingerprint(make()) == fingerprint(make())
    assert fingerprint(make()).unread == ()


def test_all_values_of_the_table_have_different_fingerprints():
    digests = {
        name: fingerprint(make()).digest
        for name, make in EQUAL.items()
        if name != "array in another order"
    }
    assert len(set(digests.values())) == len(digests)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 1.0),
        (1, True),
        ("1", 1),
        (b"a", "a"),
        ([1, 2], (1, 2)),
        ([1, 2], [2, 1]),
        ([[1], 2], [[1, 2]]),
        (["ab"], ["a", "b"]),
        ({"a": 1}, {"a": 2}),
        (0.0, -0.0),
        (0.1, 0.1000000000000001),
        (np.ones(4), np.ones((2, 2))),
        (np.ones(2), torch.ones(2)),
        (np.ones(2), np.ones(2, np.float32)),
        (torch.ones(4), torch.ones(2, 2)),
        (torch.zeros(2), torch.zeros(2).double()),
    ],
)
def test_different_values_have_different_fingerprints(first, second):
    assert fingerprint(first).digest != fingerprint(second).digest


@many(300)
@given(json_values(), json_values())
def test_fingerprints_of_json_are_equal_exactly_if_the_values_are(first, second):
    assert (fingerprint(first) == fingerprint(second)) == (repr(first) == repr(second))


@many(100)
@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100),
        min_size=1,
    )
)
def test_the_number_is_the_mean_of_absolute_numbers(values):
    expected = sum(map(abs, values)) / len(values)
    assert fingerprint(values).number == pytest.approx(expected)
    assert fingerprint(np.array(values)).number == pytest.approx(expected)
    assert fingerprint(torch.tensor(values, dtype=torch.float64)).number == pytest.approx(expected)


def test_what_is_not_finite_does_not_count():
    assert fingerprint([2, float("nan"), float("inf")]).number == 2
    assert fingerprint("text").number == 0


def test_an_object_is_named_by_its_type():
    assert fingerprint([1, Opaque(), object()]).unread == (f"{__name__}.Opaque", "object")
    assert fingerprint(np.array([object()], dtype=object)).unread == ("numpy.ndarray of objects",)
    assert fingerprint(torch.eye(2).to_sparse()).unread == ("torch.Tensor, torch.sparse_coo",)
    assert fingerprint({Opaque()}).unread == (f"{__name__}.Opaque",)


# ---- Parts that are shared, and cycles -----------------------------------------------------------


@dataclass(eq=False)
class Node:
    name: str
    parent: "Node | None" = None
    children: list["Node"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    peers: frozenset = frozenset()


def tree(*names, breadth=10, depth=1):
    root = Node("root")

    def grow(node, left):
        node.children = [Node(f"{node.name}.{name}", node) for name in names or range(breadth)]
        for child in node.children if left > 1 else ():
            grow(child, left - 1)

    grow(root, depth)
    return root


def ring(*values):
    items = list(values)
    items += [items, items]
    return items


def linked(length):
    first = Node("0")
    node = first
    for number in range(1, length):
        node.children = [Node(str(number), node)]
        node = node.children[0]
    return first


def in_dict():
    value = {"a": 1}
    value["self"] = [value, {"again": value}]
    return value


def in_tuple():
    inner = []
    value = (1, inner)
    inner.append(value)
    return value


def in_set():
    peers = []
    node = Slotted("a", frozenset([Slotted("b", frozenset()), Slotted("c", frozenset())]))
    peers.append(peers)
    return [node, peers]


def complete_graph(size=30):
    """Each node has all others as its children: more simple paths than can be read."""
    nodes = [Node(str(number)) for number in range(size)]
    for node in nodes:
        node.children = nodes
    return nodes[0]


def shared_many_times():
    """A hundred levels, each of which has the one below twice."""
    value = [1, "x"]
    for _ in range(100):
        value = [value, value]
    return value


CYCLIC = {
    "tree with links to the parents": tree,
    "deep tree": lambda: tree(breadth=3, depth=6),
    "list in itself": lambda: ring(1, 2),
    "empty list in itself": ring,
    "dict in itself": in_dict,
    "tuple in its list": in_tuple,
    "set of slotted objects": in_set,
    "linked list": lambda: linked(40),
    "complete graph": complete_graph,
}


@pytest.mark.parametrize("name", CYCLIC)
def test_a_value_with_cycles_or_shared_parts_is_read_to_its_end(name):
    result = fingerprint(CYCLIC[name]())
    assert result == fingerprint(CYCLIC[name]())
    assert result.unread == ()


def test_values_with_cycles_differ_if_a_part_of_them_does():
    digests = {name: fingerprint(make()).digest for name, make in CYCLIC.items()}
    assert len(set(digests.values())) == len(digests)
    assert fingerprint(ring(1)).digest != fingerprint(ring(2)).digest
    assert fingerprint(linked(40)).digest != fingerprint(linked(41)).digest
    changed = tree()
    changed.children[7].children = [changed]  # another reference
    assert fingerprint(tree()).digest != fingerprint(changed).digest


@pytest.mark.parametrize("make", [lambda: linked(20_000), shared_many_times])
def test_a_value_of_many_levels_is_read_to_a_limit(make):
    result = fingerprint([3, make()])
    assert result == fingerprint([3, make()])
    assert result.unread == ("more than 100 levels",)
    assert not result.is_timed_out


def test_a_part_that_is_shared_counts_each_time():
    value = [1, "x"]
    for _ in range(20):
        value = [value, value]
    result = fingerprint(value, limits=Limits(1_000, 1_000, 100.0))
    assert result.unread == ("more than 1,000 objects",)


def test_a_shared_part_has_the_hash_of_an_equal_copy():
    part = {"a": [1, (2, 3)]}
    assert fingerprint([part, part]) == fingerprint([part, copy.deepcopy(part)])
    assert fingerprint([part, part]).number == 2
    ends_in_it = [ring(1), part, part]
    assert fingerprint(ends_in_it) == fingerprint([ring(1), part, copy.deepcopy(part)])


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_a_set_does_not_matter_even_if_its_elements_refer_to_each_other(seed):
    """The addresses of objects, which are their hashes, are in another order each time."""
    numbers = random.Random(seed).sample(range(4), 4)
    nodes = {number: Node(str(number)) for number in numbers}
    outer = Node("outer")
    for number, node in nodes.items():
        node.parent = outer
        node.children = [nodes[sibling] for sibling in range(4) if sibling != number]
    value = [outer, {*nodes.values()}, {frozenset({node, outer}) for node in nodes.values()}]
    in_order = [Node(str(number), outer) for number in range(4)]
    for number, node in enumerate(in_order):
        node.children = [sibling for position, sibling in enumerate(in_order) if position != number]
    expected = [outer, {*in_order}, {frozenset({node, outer}) for node in in_order}]
    assert fingerprint(value) == fingerprint(expected)
    in_order[3].name = "another"
    assert fingerprint(value) != fingerprint(expected)


@many(200)
@given(json_values(), st.randoms(use_true_random=False))
def test_the_hash_is_that_of_the_value_whatever_is_shared(value, coin):
    objects = {}

    def rebuilt(part):
        """Return an equal value, some of whose equal parts are one object."""
        if isinstance(part, list):
            again = [rebuilt(item) for item in part]
        elif isinstance(part, dict):
            again = {name: rebuilt(item) for name, item in part.items()}
        else:
            return part
        return objects.setdefault(repr(again), again) if coin.random() < 0.7 else again

    assert fingerprint(rebuilt(value)) == fingerprint(value)


# ---- No code of the user runs --------------------------------------------------------------------


class CodeRunError(BaseException):
    """Raised by code that must not run; not an Exception, which a reader may catch."""


def forbidden(*_, **__):
    raise CodeRunError


#: Names of what a class may define that reading a value could call.
METHODS = """
    __getattribute__ __getattr__ __repr__ __str__ __eq__ __ne__ __lt__ __hash__ __iter__ __len__
    __contains__ __getitem__ __bool__ __abs__ __int__ __float__ __index__ __bytes__ __format__
    __reduce__ __reduce_ex__ __sizeof__ __dir__ __length_hint__ __next__ __array__ __array_ufunc__
    __array_function__ keys values items get encode bit_length tobytes
"""

HOSTILE = dict.fromkeys(METHODS.split(), forbidden) | dict.fromkeys(
    ["__class__", "__dict__"], property(forbidden)
)


class HostileMeta(type):
    __getattribute__ = __instancecheck__ = __subclasscheck__ = __hash__ = __eq__ = __repr__ = (
        forbidden
    )


def hostile(base, *values):
    """Return a value of a subclass of a builtin type, each time of another one of the same name."""
    return type.__call__(HostileMeta("Hostile", (base,), HOSTILE), *values)


def hostile_counter():
    counter = collections.Counter.__new__(HostileMeta("Hostile", (collections.Counter,), HOSTILE))
    dict.update(counter, a=1)  # its own constructor calls update
    return counter


def hostile_array():
    used_by_numpy = {"__getattribute__", "__getattr__", "__class__"}  # to make a view
    methods = {name: method for name, method in HOSTILE.items() if name not in used_by_numpy}
    return np.arange(3).view(type("Hostile", (np.ndarray,), methods))


@dataclass
class WithProperty:
    rows: int

    rows_read = property(forbidden)


@dataclass
class WithCache:
    rows: int
    cache: object = field(default=None, compare=False)


HOSTILE_VALUES = {
    "integer": lambda: hostile(int, 3),
    "number": lambda: hostile(float, 3.5),
    "text": lambda: hostile(str, "three"),
    "bytes": lambda: hostile(bytes, b"three"),
    "bytearray": lambda: hostile(bytearray, b"three"),
    "list": lambda: hostile(list, [1, 2]),
    "tuple": lambda: hostile(tuple, (1, 2)),
    "dict": lambda: hostile(dict, {"a": 1}),
    "ordered dict": lambda: hostile(collections.OrderedDict, {"a": 1}),
    "default dict": lambda: collections.defaultdict(forbidden, a=1),
    "counter": hostile_counter,
    "set": lambda: hostile(set, {1, 2}),
    "frozen set": lambda: hostile(frozenset, {1, 2}),
    "array": hostile_array,
    "property of a dataclass": lambda: WithProperty(3),
    "wrapper of a dict": lambda: types.MappingProxyType({"a": 1}),
    "dict of Python": lambda: collections.UserDict(a=1),
}


@pytest.mark.parametrize("name", HOSTILE_VALUES)
def test_a_subclass_is_read_by_the_methods_of_its_builtin_type(name):
    make = HOSTILE_VALUES[name]
    result = fingerprint(make())
    assert result == fingerprint(make())
    assert result.unread == ()
    assert result.digest != fingerprint(type("Hostile", (), {})()).digest


def test_a_tensor_of_a_subclass_is_read_without_its_code():
    class Own(torch.Tensor):
        __torch_function__ = classmethod(forbidden)

    class Dispatching(torch.Tensor):
        __torch_dispatch__ = classmethod(forbidden)

    assert fingerprint(torch.ones(2).as_subclass(Own)) == fingerprint(
        torch.ones(2).as_subclass(Own)
    )
    assert fingerprint(torch.ones(2).as_subclass(Own)) != fingerprint(
        torch.zeros(2).as_subclass(Own)
    )
    assert fingerprint(torch.ones(2).as_subclass(Own)).unread == ()
    wrapped = torch.Tensor._make_wrapper_subclass(Dispatching, (2,))
    assert fingerprint(wrapped).unread == (
        f"{__name__}.test_a_tensor_of_a_subclass_is_read_without_its_code.<locals>.Dispatching",
    )
    assert fingerprint(torch.nn.Parameter(torch.ones(2))).unread == ()


class Lazy(Mapping):
    __getitem__ = __iter__ = __len__ = forbidden


class Endless(Sequence):
    __getitem__ = __len__ = forbidden


class Descriptor:
    __get__ = __set__ = forbidden


@dataclass
class Computed:
    rows: int


Computed.rows = Descriptor()


def generator():
    forbidden()
    yield


class Anything:
    __getattr__ = forbidden


OPAQUE = {
    "lazy mapping": Lazy,
    "endless sequence": Endless,
    "field that is computed": lambda: Computed.__new__(Computed),
    "generator": generator,
    "weak reference": lambda: weakref.proxy(generator),
    "mock": unittest.mock.MagicMock,
    "any attribute": Anything,
    "class": lambda: HostileMeta("Hostile", (), {}),
    "object": lambda: hostile(object),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_cannot_be_read_without_code_of_the_user_is_named(name):
    result = fingerprint([1, OPAQUE[name]()])
    assert len(result.unread) == 1
    assert result.number == 1
    assert not result.limit


@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_a_package_whose_import_is_blocked_is_not_needed(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert fingerprint([1, Opaque()]).unread == (f"{__name__}.Opaque",)


def test_fields_that_a_dataclass_does_not_compare_are_not_read():
    assert fingerprint(WithCache(1, object())) == fingerprint(WithCache(1))
    assert fingerprint(WithCache(1)) != fingerprint(WithCache(2))


def test_a_field_of_slots_may_be_unset_and_one_of_a_class_may_be_a_default():
    unset = Slotted.__new__(Slotted)
    assert fingerprint(unset) != fingerprint(Slotted("a"))
    default = WithCache.__new__(WithCache)
    assert fingerprint(default).unread == ()


def test_the_order_of_an_ordered_dict_counts():
    moved = collections.OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    assert fingerprint(moved) != fingerprint(collections.OrderedDict(a=1, b=2))


def test_texts_and_numbers_of_any_kind_are_read():
    assert fingerprint("\ud800") != fingerprint("\udfff")
    assert fingerprint(10**10_000).unread == ()  # too long for repr
    assert fingerprint(10**10_000) != fingerprint(10**10_000 + 1)


# ---- Limits --------------------------------------------------------------------------------------


def test_a_limit_of_objects_ends_the_reading_at_the_same_place_each_time():
    result = fingerprint([1, [2, Opaque(), 3], 4], limits=Limits(5, 100, 1.0))
    assert result.unread == (f"{__name__}.Opaque", "more than 5 objects")
    assert result == fingerprint([1, [2, Opaque(), 30], 40], limits=Limits(5, 100, 1.0))
    assert (
        result.digest != fingerprint([1, [20, Opaque(), 3], 4], limits=Limits(5, 100, 1.0)).digest
    )
    assert not result.is_timed_out


@pytest.mark.parametrize(
    "value",
    [
        "x" * 101,
        b"x" * 101,
        bytearray(101),
        1 << 900,  # 113 bytes
        np.zeros(101, np.int8),
        torch.zeros(101, dtype=torch.int8),
        ["x" * 60] * 2,
    ],
)
def test_a_limit_of_bytes_ends_the_reading(value):
    result = fingerprint([7, value], limits=Limits(10, 100, 1.0))
    assert result.unread == ("more than 100 B",)
    assert not result.is_timed_out


def test_a_large_array_is_not_copied_as_a_whole():
    tensor = torch.ones(2**22, dtype=torch.int8)
    array = np.ones(2**22, np.int8)
    for value in (tensor, array):
        assert fingerprint(value).number == 1
        assert fingerprint(value).unread == ()


@pytest.mark.parametrize(
    "value", [list(range(5_000)), np.zeros(10), torch.zeros(10)], ids=["list", "array", "tensor"]
)
def test_a_limit_of_time_ends_the_reading(monkeypatch, value):
    now = itertools.count(0, 3_000_000_000)
    monkeypatch.setattr(Clock, "wall_ns", lambda: next(now))
    result = fingerprint(value, limits=Limits(10_000, 10_000, 1.0))
    assert result.unread == ("what takes more than 1 s to read",)
    assert result.is_timed_out
