"""How long does a convolution take, computed in many ways? Each size that a way can compute, forward and backward.

Left out of ``pytest bench``, because no model of the suite uses these ways: name this file. Each record has the FLOPs that
are done, the bytes moved, and the share of this machine's ceiling.
"""

import pytest

from mnistbench.course.studies.convolution.calls import call_of, cost
from mnistbench.course.studies.convolution.ways import GRID, WAYS
from mnistbench.measuring.case import thread_count
from mnistbench.profile.ceilings import ceilings_of

#: Most passes of a way's loop over operations of torch: profiling them takes much longer than running them.
MOST_PASSES = 1_300


def runs(way, sizes):
    return way.can(sizes) and (way.name == "seven_loops" or way.passes(sizes) <= MOST_PASSES)


CASES = [(size, way.name) for size, sizes in GRID.items() for way in WAYS.values() if runs(way, sizes)]


@pytest.mark.study
@pytest.mark.benchmark(min_rounds=3, max_time=0.1)
@pytest.mark.parametrize(("size", "way"), CASES)
def test_conv(benchmark, op_benchmark, size, way):
    with thread_count(1):
        op_benchmark(call_of(WAYS[way], GRID[size]))
        if benchmark.enabled:
            found = cost(size, WAYS[way], GRID[size], seconds=benchmark.stats.stats.median)
            benchmark.extra_info["convolution"] = found.to_json(ceilings_of("cpu", found.dtype, 1))
