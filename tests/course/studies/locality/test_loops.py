"""Every order computes the same numbers, and touches the elements that its name says."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution.sizes import ConvolutionSizes
from mnistbench.course.studies.locality.caches import Cache, Caches
from mnistbench.course.studies.locality.measurement import simulate
from mnistbench.course.studies.locality.nests import (
    CONVOLUTIONS,
    PRODUCTS,
    convolution,
    in_l1,
    product,
    starts,
    strides,
    tile_that_fits,
)

SIZES = ConvolutionSizes(2, 3, 6, 7, 4, 2, 3)
L1 = Cache(48 * 1024, 64, 12)
side = st.integers(1, 7)


class Recorded:
    """An array of numbers that notes each access."""

    def __init__(self, name, shape, log):
        self.name = name
        self.values = np.zeros(shape)
        self.log = log

    def __getitem__(self, index):
        self.log.append((self.name, "read", index))
        return float(self.values[index])

    def __setitem__(self, index, value):
        self.log.append((self.name, "write", index))
        self.values[index] = value


def run(nest, *inputs):
    """Run a nest in Python; return the result, and all accesses."""
    log = []
    arrays = [Recorded(name, shape, log) for name, shape in nest.shapes.items()]
    for array, values in zip(arrays, inputs, strict=False):
        array.values[...] = values
    nest.loops(*arrays, *nest.lengths)
    return arrays[-1].values, log


@pytest.mark.parametrize("order", PRODUCTS)
@given(rows=side, columns=side, inner=side, tile=side)
def test_each_order_is_the_matrix_product(order, rows, columns, inner, tile):
    random = np.random.default_rng(0)
    a = random.random((rows, inner))
    b = random.random((inner, columns))
    nest = product(order, rows, columns, inner, tile)
    np.testing.assert_allclose(run(nest, a, b)[0], a @ b)
    assert nest.multiply_adds == rows * columns * inner


@pytest.mark.parametrize("order", CONVOLUTIONS)
def test_each_order_is_the_convolution(order):
    images, weights = SIZES.tensors(torch.float64)
    nest = convolution(order, SIZES)
    outputs, _ = run(nest, images.numpy(), weights.numpy())
    np.testing.assert_allclose(outputs, torch.nn.functional.conv2d(images, weights).numpy())
    assert nest.multiply_adds == SIZES.multiply_adds


def expected(order, lengths):
    """The accesses of an order, from its name.

    Elements that do not depend on the innermost index stay in a register.
    """
    indices = {"a": "ik", "b": "kj", "c": "ij"}
    fixed = next(name for name, of in indices.items() if order[-1] not in of)

    def place(name, at):
        return tuple(at[index] for index in indices[name])

    for outer in itertools.product(*(range(lengths[index]) for index in order[:2])):
        at = dict(zip(order, outer, strict=False))
        yield fixed, "read", place(fixed, at)
        for last in range(lengths[order[2]]):
            at[order[2]] = last
            yield from (
                (name, "read", place(name, at)) for name in ("c", "a", "b") if name != fixed
            )
            if fixed != "c":
                yield "c", "write", place("c", at)
        if fixed == "c":
            yield "c", "write", place("c", at)


@pytest.mark.parametrize("order", [order for order in PRODUCTS if order != "tiled"])
def test_the_accesses_of_a_product_are_in_the_order_of_its_name(order):
    lengths = {"i": 3, "j": 4, "k": 5}
    _, log = run(product(order, 3, 4, 5))
    assert log == list(expected(order, lengths))


@pytest.mark.parametrize("tile", [1, 2, 3, 9])
def test_tiles_touch_the_elements_of_ikj_tile_by_tile(tile):
    _, log = run(product("tiled", 5, 4, 3, tile))
    _, whole = run(product("ikj", 5, 4, 3))
    if tile == 9:
        assert log == whole
    multiply_adds = [
        [(name, index) for name, kind, index in of if kind == "read" and name != "a"]
        for of in (log, whole)
    ]
    assert sorted(multiply_adds[0]) == sorted(multiply_adds[1])
    first = [index for name, kind, index in log if name == "a"][: min(tile, 5) * min(tile, 3)]
    assert set(first) == set(itertools.product(range(min(tile, 5)), range(min(tile, 3))))


@pytest.mark.parametrize(
    ("order", "innermost"), [("columns_innermost", 3), ("filters_innermost", 1)]
)
def test_the_innermost_loop_of_a_convolution_is_the_one_of_its_name(order, innermost):
    _, log = run(convolution(order, SIZES))
    written = [index for name, kind, index in log if kind == "write"]
    assert written[1][innermost] - written[0][innermost] == 1
    assert sum(a != b for a, b in zip(*written[:2], strict=True)) == 1


@pytest.mark.parametrize("changed", [{"stride": 2}, {"padding": 1}, {"groups": 3, "filters": 3}])
def test_a_convolution_that_the_loops_cannot_compute_is_refused(changed):
    values = {
        "batch": 1,
        "channels": 3,
        "height": 6,
        "width": 6,
        "filters": 3,
        "kernel_height": 3,
        "kernel_width": 3,
    }
    with pytest.raises(UsageError, match="these loops need stride 1, no padding and one group"):
        convolution("columns_innermost", ConvolutionSizes(**values | changed))


def test_arrays_are_one_after_the_other_at_the_start_of_a_line():
    assert starts(product("ijk", 3, 5, 7), 64) == [0, 32, 80]  # 21 and 35 elements, in lines of 16
    assert strides((2, 3, 4, 5)) == (60, 20, 5, 1)


@pytest.mark.parametrize(
    ("l1", "side"), [(L1, 64), (Cache(32 * 1024, 64, 8), 48), (Cache(256, 64, 1), 16)]
)
def test_the_default_tile_is_the_largest_of_whole_lines_of_which_three_fit(l1, side):
    assert tile_that_fits(l1) == side


@pytest.mark.parametrize("order", [*PRODUCTS, *CONVOLUTIONS])
def test_a_nest_in_l1_has_the_innermost_loop_of_the_whole_and_first_misses_only(order):
    whole = (
        product(order, 128, 128, 128, 64)
        if order in PRODUCTS
        else convolution(order, ConvolutionSizes(1, 32, 26, 26, 64, 3, 3))
    )
    small = in_l1(whole, L1.size // 2)
    counts = simulate(small, Caches(L1, L1), compiled=False)
    lines = sum(-(-np.prod(shape) // 16) for shape in small.shapes.values())
    assert sum(count.l1_misses for count in counts.values()) == lines
    inner = {"tiled": 64, "columns_innermost": 24, "filters_innermost": 64}.get(order, 128)
    assert inner in small.lengths[:5]
    assert small.multiply_adds < whole.multiply_adds / 50


def test_a_row_that_does_not_fit_leaves_no_nest_in_l1():
    assert in_l1(product("ikj", 128, 128, 128), 512) is None
