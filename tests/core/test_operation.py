"""Names of operations, the length of spans, and sums over events as rows of a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.operation import (
    NO_MODULE,
    OUTSIDE,
    RUNTIME,
    UNATTRIBUTED,
    covered,
    is_runtime_call,
    operation_name,
    place_name,
    replacement_title,
)
from mnistbench.core.record import RowSums, subtract_waiting


@pytest.mark.parametrize(
    ("name", "phase", "module", "expected"),
    [
        ("aten::mm", "backward", "fc1", "aten::mm, backward fc1"),
        ("aten::mm", "optimizer", "", "aten::mm, optimizer"),
        ("aten::mm", "", "", "aten::mm"),
        (
            "autograd::engine::evaluate_function: X",
            "backward",
            "fc1",
            "evaluate_function: X, backward fc1",
        ),
        ("", "backward", "conv2", "conv2 backward"),
        ("", "optimizer", "", "no module optimizer"),
        ("", "", "", "no module"),
        (OUTSIDE, "forward", "", "outside operations (forward)"),
        (OUTSIDE, "", "", "outside operations"),
        (RUNTIME, "", "", "runtime calls"),
        (UNATTRIBUTED, "", "", "unattributed kernels"),
    ],
)
def test_an_operation_has_one_name(name, phase, module, expected):
    assert operation_name(name, phase, module) == expected


def test_a_scope_is_a_phase_and_a_module():
    assert (place_name("backward", "fc1"), place_name("optimizer", ""), place_name("", "")) == (
        "backward fc1",
        "optimizer",
        "",
    )


@pytest.mark.parametrize(
    ("members", "title"),
    [
        (
            [(("a", "forward", "fc1"), 1, None), (("b", "forward", "fc1"), None, 2)],
            "a -> b, forward fc1",
        ),
        ([(("a", "", ""), None, 2)], "nothing -> a"),
        ([(("a", "", ""), 2, None)], "a -> nothing"),
        ([(("a", "", ""), 5, 3), (("b", "", ""), None, 2)], "a -> a + b"),
        (
            [((name, "", ""), ns, None) for ns, name in enumerate("abcd")],
            "d + c + 2 others -> nothing",
        ),
        ([((name, "", ""), ns, None) for ns, name in enumerate("abc")], "c + b + a -> nothing"),
        (
            [(("a", "forward", "fc1"), 1, None), (("a", "forward", "fc2"), None, 2)],
            "fc1 forward -> fc2 forward",
        ),
        ([(("", "forward", "fc1"), None, 2)], "nothing -> fc1 forward"),
        ([(("a", "forward", ""), 1, 2)], "a (not in every launch), forward"),
    ],
)
def test_a_replacement_is_named_by_its_largest_operations(members, title):
    assert replacement_title(members) == title


@pytest.mark.parametrize(
    ("name", "is_call"),
    [
        ("cudaLaunchKernel", True),
        ("cuLaunchKernelEx", True),
        ("hipGetDevicePropertiesR0600", True),
        ("urEnqueueKernelLaunch", True),
        ("zeCommandListAppendLaunchKernel", True),
        ("aten::cudnn_convolution", False),
        ("cumsum", False),
        ("CudnnRnnBackward0", False),
        ("url::get", False),
    ],
)
def test_calls_of_a_runtime_are_known_by_their_names(name, is_call):
    assert is_runtime_call(name) is is_call


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=12))
def test_overlapping_spans_are_counted_once(starts_and_lengths):
    spans = [(start, start + length) for start, length in starts_and_lengths]
    assert covered(spans) == len({point for start, end in spans for point in range(start, end)})


@pytest.mark.parametrize(
    ("spans", "length"), [([], 0), ([(5, 3)], 0), ([(0.5, 2.0), (1.0, 2.5), (4.0, 4.0)], 2.0)]
)
def test_a_span_that_ends_before_it_starts_is_empty(spans, length):
    assert covered(spans) == length


KEY = ("aten::mm", "forward", "fc1")


def sums(**times):
    row_sums = RowSums(2, calls=3)
    for name, values in times.items():
        setattr(row_sums, name, values)
    return row_sums


def test_a_self_time_is_never_below_zero():
    """Where calls of a thread overlap, the difference may be."""
    row = sums(self_cpu=[1500, -200]).op_row(KEY, "host")
    assert (row.self_cpu_ns, row.calls) == ((1500, 0), 1.5)


def test_only_a_device_table_has_device_times_and_kernels():
    row_sums = sums(self_device=[4, 5], kernels={"gemm"})
    host = row_sums.op_row(KEY, "host")
    device = row_sums.op_row(KEY, "device")
    assert (host.self_device_ns, host.kernels) == ((), ())
    assert (device.self_device_ns, device.kernels) == ((4, 5), ("gemm",))


def test_waiting_is_subtracted_from_the_time_outside_operations():
    rows = {
        (OUTSIDE, "backward", NO_MODULE): sums(self_cpu=[30, 10], total_cpu=[30, 10]),
        KEY: sums(self_cpu=[7, 7]),
    }
    subtract_waiting(rows, {("backward", 0): 12, ("backward", 1): 40, ("forward", 0): 5})
    outside = rows[OUTSIDE, "backward", NO_MODULE]
    assert (outside.self_cpu, outside.total_cpu) == ([18, 0], [18, 0])
    assert rows[KEY].self_cpu == [7, 7]
