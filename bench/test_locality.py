"""How long does a product of 128x128 matrices take, its loops in each order?

Compiled by numba, one thread.

Left out of ``pytest bench``; name this file. ``mnistbench study locality`` counts the cache misses
of the same loops.
"""

import pytest

from mnistbench.course.studies.locality.nests import PRODUCTS, product

SIDE = 128
TILE = 64


@pytest.mark.study
@pytest.mark.benchmark(min_rounds=3, max_time=0.1)
@pytest.mark.parametrize("order", PRODUCTS)
def test_locality(benchmark, order):
    pytest.importorskip("numba", reason="needs pip install 'mnistbench[fast]'")
    from mnistbench.course.studies.locality.compiled import arrays_of, call_of

    nest = product(order, SIDE, SIDE, SIDE, TILE)
    call = call_of(nest, arrays_of(nest, line=64))
    call(1)  # compiles the loops
    benchmark(call, 1)
