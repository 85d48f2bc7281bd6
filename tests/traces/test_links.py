"""Which operation a kernel belongs to."""

import pytest
import trace_builders as build

from mnistbench.traces.calls import link_calls
from mnistbench.traces.links import link_kernels
from mnistbench.traces.reader import read


def owner(tmp_path, *events):
    """The names of the operation and of the launch of the only kernel."""
    trace = read(build.trace_file(tmp_path, events))
    link_calls(trace)
    link_kernels(trace)
    [kernel] = trace.device
    return tuple(found and found.name for found in (kernel.operation, kernel.launch))


def test_by_external_id(tmp_path):
    found = owner(tmp_path, build.op("aten::mm", 0, 9, external=4), build.kernel("k", 20, 5, external=4, correlation=70))
    assert found == ("aten::mm", None)


def test_by_correlation_where_the_external_id_repeats_it(tmp_path):
    """Earlier versions do so; the number may be that of another operation by chance."""
    events = [
        build.op("aten::other", 0, 5, external=70),
        build.op("aten::linear", 10, 30, external=1),
        build.op("aten::addmm", 12, 20, external=2),
        build.launch(15, 3, 70, external=70),
    ]
    assert owner(tmp_path, *events, build.kernel("k", 50, 5, external=70, correlation=70)) == (
        "aten::addmm",
        "cudaLaunchKernel",
    )


def test_an_external_id_that_is_the_correlation_by_chance_is_a_link(tmp_path):
    """Where the others of the file are not repeated, the file is no earlier version's."""
    events = [
        build.op("aten::mm", 0, 9, external=4), build.op("aten::add", 10, 9, external=6),
        build.kernel("k", 20, 5, external=4, correlation=4), build.kernel("other", 30, 5, external=6, correlation=9),
    ]  # fmt: skip
    trace = read(build.trace_file(tmp_path, events))
    link_calls(trace)
    link_kernels(trace)
    assert [kernel.operation.name for kernel in trace.device] == ["aten::mm", "aten::add"]


def test_by_correlation_where_the_external_id_names_no_operation(tmp_path):
    events = [build.range_("all", 0, 90), build.op("aten::mm", 1, 20), build.launch(5, 3, 70)]
    assert owner(tmp_path, *events, build.kernel("k", 50, 5, external=9, correlation=70)) == ("aten::mm", "cudaLaunchKernel")


def test_a_python_function_and_a_range_around_the_launch_are_passed_over(tmp_path):
    events = [
        build.op("MyFunction", 0, 90),
        build.module("Linear_0", 1, 60),
        build.range_("part", 2, 50),
        build.launch(5, 3, 7),
    ]
    assert owner(tmp_path, *events, build.kernel("k", 95, 5, correlation=7)) == ("MyFunction", "cudaLaunchKernel")


def test_an_operation_of_another_thread_is_not_around_the_launch(tmp_path):
    events = [build.op("aten::mm", 0, 90), build.launch(5, 3, 7, thread=5)]
    assert owner(tmp_path, *events, build.kernel("k", 95, 5, correlation=7)) == (None, "cudaLaunchKernel")


@pytest.mark.parametrize("kernel", [{}, {"correlation": 8}, {"external": 8}, {"external": 8, "correlation": 8}])
def test_a_kernel_without_a_link_has_no_operation(tmp_path, kernel):
    events = [build.op("aten::mm", 0, 90, external=3), build.launch(5, 3, 7)]
    assert owner(tmp_path, *events, build.kernel("k", 50, 5, **kernel)) == (None, None)


def test_all_kernels_of_a_graph_belong_to_its_launch(tmp_path):
    events = [
        build.op("CompiledFunction", 0, 90, external=3),
        build.launch(5, 30, 7, name="cudaGraphLaunch"),
        *(build.kernel(f"k{number}", 100 + 10 * number, 5, correlation=7) for number in range(3)),
    ]
    trace = read(build.trace_file(tmp_path, events))
    link_calls(trace)
    link_kernels(trace)
    assert [kernel.operation.name for kernel in trace.device] == ["CompiledFunction"] * 3


def test_the_kernel_of_a_repeated_operation_belongs_to_the_one_that_is_counted(tmp_path):
    events = [
        build.op("aten::to", 0, 90, external=1),
        build.op("aten::to", 1, 80, external=2),
        build.op("aten::copy_", 2, 70, external=3),
    ]
    assert owner(tmp_path, *events, build.kernel("k", 95, 5, external=2)) == ("aten::to", None)
    trace = read(build.trace_file(tmp_path, [*events, build.kernel("k", 95, 5, external=2)]))
    link_calls(trace)
    link_kernels(trace)
    assert trace.device[0].operation is trace.host[0]
