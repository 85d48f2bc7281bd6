"""Misses of simulated caches: textbook examples, an independent model, and properties of LRU."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.course.studies.convolution.sizes import ConvolutionSizes
from mnistbench.course.studies.locality.caches import Cache, Caches, touch
from mnistbench.course.studies.locality.measurement import simulate
from mnistbench.course.studies.locality.nests import Nest, convolution, product

#: An L2 whose size does not matter.
ANY = Cache(64 * 1024, 64, 16)

lines = st.lists(st.integers(0, 40), max_size=200)


def misses(cache, touched):
    """Positions of the misses of a sequence of lines."""
    sets = [[-1] * cache.ways for _ in range(cache.sets)]
    return [position for position, line in enumerate(touched) if not touch(sets, line)]


def misses_by_definition(cache, touched):
    """The same, with a dictionary for each set whose first entry is the least recently used."""
    sets = [OrderedDict() for _ in range(cache.sets)]
    missed = []
    for position, line in enumerate(touched):
        used = sets[line % cache.sets]
        if line not in used:
            missed.append(position)
            if len(used) == cache.ways:
                used.popitem(last=False)
        used[line] = None
        used.move_to_end(line)
    return missed


@given(lines, st.integers(1, 6), st.integers(1, 5))
def test_a_cache_is_least_recently_used(touched, ways, sets):
    cache = Cache(sets * ways * 64, 64, ways)
    assert misses(cache, touched) == misses_by_definition(cache, touched)


@given(lines, st.integers(1, 20))
def test_a_fully_associative_cache_misses_no_more_with_one_more_way(touched, ways):
    smaller, larger = (
        misses(Cache(number * 64, 64, number), touched) for number in (ways, ways + 1)
    )
    assert set(larger) <= set(smaller)


@given(lines, st.integers(1, 4), st.integers(1, 4))
def test_each_line_is_missed_once_at_least_and_once_only_where_all_fit(touched, ways, sets):
    assert len(misses(Cache(sets * ways * 64, 64, ways), touched)) >= len(set(touched))
    assert len(misses(Cache(64 * 64, 64, 64), touched)) == len(set(touched))


def counts(loops, shapes, lengths, l1, l2=ANY):
    return simulate(Nest("", loops, shapes, lengths, 0), Caches(l1, l2), compiled=False)


@pytest.mark.parametrize(("padding", "expected"), [(0, (8, 8)), (4, (2, 2))])
def test_a_dot_product_in_a_direct_mapped_cache(padding, expected):
    """Bryant and O'Hallaron, section 6.4.2.

    Two sets of 16 bytes. x[i] and y[i] are in one set, unless x has padding.
    """

    def dot_product(x, y, length):
        for i in range(length):
            _ = x[i,] * y[i,]

    counted = counts(
        dot_product, {"x": (8 + padding,), "y": (8,)}, (8,), Cache(32, 16, 1), Cache(64, 16, 1)
    )
    assert (counted["x"].l1_misses, counted["y"].l1_misses) == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # 16 elements a line, rows of two lines. The column that is read between evicts everything.
        # c: each write, and each first read of a line.
        ("ijk", {"a": 32 * 32 * 2, "b": 32**3, "c": 32 * 32 + 32 * 2}),
        # A row of each stays: a is missed once a line, b once for each row of c, c once.
        ("ikj", {"a": 32 * 2, "b": 32 * 32 * 2, "c": 32 * 2}),
        # Both columns are missed at each element; b at each, because it is read once between two
        # columns.
        ("jki", {"a": 32**3, "b": 32 * 32, "c": 32**3}),
    ],
)
def test_misses_of_matrix_products_by_hand(order, expected):
    """32 x 32 elements; a fully associative cache of 16 lines holds half a column."""
    nest = product(order, 32, 32, 32)
    counted = simulate(nest, Caches(Cache(16 * 64, 64, 16), ANY), compiled=False)
    assert {name: of.l1_misses for name, of in counted.items()} == expected
    assert {name: of.l2_misses for name, of in counted.items()} == dict.fromkeys("abc", 64)


def test_accesses_that_stay_in_a_register_are_not_counted():
    n = 5
    counted = {
        order: simulate(product(order, n, n, n), Caches(ANY, ANY), compiled=False)
        for order in ("ijk", "kij")
    }
    assert {name: of.accesses for name, of in counted["ijk"].items()} == {
        "a": n**3,
        "b": n**3,
        "c": 2 * n**2,
    }
    assert {name: of.accesses for name, of in counted["kij"].items()} == {
        "a": n**2,
        "b": n**3,
        "c": 2 * n**3,
    }


def test_a_power_of_two_puts_a_column_into_few_sets():
    """Of 64 sets, rows of 2 KiB use two: 16 rows in two sets of four ways."""
    l1 = Cache(16 * 1024, 64, 4)

    def column(array, rows):
        for _ in range(2):
            for i in range(rows):
                _ = array[i, 0]

    counted = {
        columns: counts(column, {"array": (16, columns)}, (16,), l1)["array"].l1_misses
        for columns in (512, 528)
    }
    assert counted == {512: 32, 528: 16}


def test_l2_sees_what_l1_misses_in_lines_of_its_own():
    def along(array, length):
        for i in range(length):
            _ = array[i,]

    counted = counts(along, {"array": (64,)}, (64,), Cache(128, 32, 1), Cache(1024, 128, 2))[
        "array"
    ]
    assert (counted.accesses, counted.l1_misses, counted.l2_misses) == (64, 8, 2)


@pytest.mark.parametrize(
    "nest",
    [
        product("ijk", 9, 10, 11),
        product("tiled", 9, 10, 11, 4),
        convolution("filters_innermost", ConvolutionSizes(1, 3, 6, 6, 8, 3, 3)),
    ],
    ids=lambda nest: nest.order,
)
def test_a_compiled_simulation_counts_the_same(nest):
    pytest.importorskip("numba", reason="numba is an optional package")
    caches = Caches(Cache(256, 32, 2), Cache(1024, 64, 4))
    assert simulate(nest, caches, compiled=True) == simulate(nest, caches, compiled=False)
