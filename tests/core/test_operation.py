"""Names of operations, and the length of spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.operation import (
    OUTSIDE,
    RUNTIME,
    UNATTRIBUTED,
    covered,
    is_runtime_call,
    operation_name,
    place_name,
    replacement_title,
)


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
        ([(("a", "forward", ""), 1, 2)], "a (not in every trial), forward"),
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
