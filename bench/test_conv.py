"""How long does a convolution take, computed in many ways?

Each size that a way can compute, forward and backward.

Left out of ``pytest bench``, because no model of the suite uses these ways: name this file. Each
record has the FLOPs that are done, the bytes moved, and the share of this machine's ceiling.
"""

import pytest

from mnistbench.course.studies.convolution.measurement import call_of, cost
from mnistbench.course.studies.convolution.sizes import GRID
from mnistbench.course.studies.convolution.study import COSTS, WayCase
from mnistbench.course.studies.convolution.ways import WAYS
from mnistbench.showing.table import Table
from mnistbench.suite.measuring.case import thread_count
from mnistbench.suite.profile.ceilings import ceilings_of

#: Most passes of a way's loop over operations of torch: profiling them takes much longer than
#: running them.
MAX_PASSES = 1_300


def runs(way, sizes):
    return not way.refusal(sizes) and (way.name == "seven_loops" or way.passes(sizes) <= MAX_PASSES)


CASES = [
    (size, way.name) for size, sizes in GRID.items() for way in WAYS.values() if runs(way, sizes)
]


@pytest.mark.study
@pytest.mark.op_benchmark
@pytest.mark.benchmark(min_rounds=3, max_time=0.1)
@pytest.mark.parametrize(("size", "way"), CASES)
def test_conv(benchmark, size, way):
    with thread_count(1):
        benchmark(call_of(WAYS[way], GRID[size]))
        if benchmark.enabled:
            case = WayCase(size, GRID[size], way, "float32")
            way_cost = cost(
                case, ceilings_of("cpu", case.dtype, 1), seconds=benchmark.stats.stats.median
            )
            [benchmark.extra_info["convolution"]] = Table("", COSTS, [way_cost]).records()
