"""Values that two sides compute or are given have the same hash if they are equal, and another one if they are not."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values, many

from mnistbench.gate.sides.fingerprint import fingerprint


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
    found = {name: fingerprint(make()).digest for name, make in EQUAL.items() if name != "array in another order"}
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0), (1, True), ("1", 1), (b"a", "a"), ([1, 2], (1, 2)), ([1, 2], [2, 1]), ([[1], 2], [[1, 2]]),
        (["ab"], ["a", "b"]),
        ({"a": 1}, {"a": 2}), (0.0, -0.0), (0.1, 0.1000000000000001), (np.ones(4), np.ones((2, 2))),
        (np.ones(2), torch.ones(2)),
        (np.ones(2), np.ones(2, np.float32)), (torch.ones(4), torch.ones(2, 2)), (torch.zeros(2), torch.zeros(2).double()),
    ],
)  # fmt: skip
def test_different_values_have_different_fingerprints(one, other):
    assert fingerprint(one).digest != fingerprint(other).digest


@many(300)
@given(json_values(), json_values())
def test_fingerprints_of_json_are_equal_exactly_if_the_values_are(one, other):
    assert (fingerprint(one) == fingerprint(other)) == (repr(one) == repr(other))


@many(100)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100), min_size=1))
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


def test_a_container_may_contain_itself():
    endless = []
    endless.append(endless)
    assert fingerprint(endless).unread == ("a deeper nesting",)
