"""How long does it take to load a batch and move it to the device?

One workload is enough: the data do not depend on it.
"""

import pytest

pytestmark = pytest.mark.parametrize("bench_workload", ["convnet"])


def test_batch(op_benchmark):
    """Gather bytes that are in memory, normalise."""
    op_benchmark("batch")
