"""Sums over events as rows of a table."""

import pytest

from mnistbench.core.operation import RowSums, subtract_waiting
from mnistbench.core.record import NO_MODULE, OUTSIDE

KEY = ("aten::mm", "forward", "fc1")


def sums(**times):
    found = RowSums(2, calls=3)
    for name, values in times.items():
        setattr(found, name, values)
    return found


@pytest.mark.parametrize(("unit_ns", "expected"), [(1, (2, 0)), (1000, (1500, 0))])
def test_times_are_whole_nanoseconds_and_never_below_zero(unit_ns, expected):
    """A difference of rounded times may be."""
    row = sums(self_cpu=[1.5, -0.2]).op_row(KEY, "host", unit_ns)
    assert (row.self_cpu_ns, row.calls) == (expected, 1.5)


def test_only_a_device_table_has_device_times_and_kernels():
    found = sums(self_device=[4, 5], kernels={"gemm"})
    host, device = found.op_row(KEY, "host", 1), found.op_row(KEY, "device", 1)
    assert (host.self_device_ns, host.kernels) == ((), ())
    assert (device.self_device_ns, device.kernels) == ((4, 5), ("gemm",))


def test_waiting_is_subtracted_from_the_time_outside_operations():
    rows = {(OUTSIDE, "backward", NO_MODULE): sums(self_cpu=[30, 10], total_cpu=[30, 10]), KEY: sums(self_cpu=[7, 7])}
    subtract_waiting(rows, {("backward", 0): 12, ("backward", 1): 40, ("forward", 0): 5})
    outside = rows[OUTSIDE, "backward", NO_MODULE]
    assert (outside.self_cpu, outside.total_cpu) == ([18, 0], [18, 0])
    assert rows[KEY].self_cpu == [7, 7]
