"""Launches without a kernel in the trace.

How many there are, in which steps, and which operations have no rates.
"""

import pytest
import real_traces
import trace_builders as build
from real_traces import needs_traces

from mnistbench.events.analysis import analyse
from mnistbench.events.work.costs import UNRECORDED

SQUARE = build.Of([4096, 4096], "float32")


def analysed(tmp_path, *events, **top):
    return analyse(build.trace_file(tmp_path, events, **top), counts_work=True)


def product(ts, number, *, has_kernel, name="aten::mm", call="cudaLaunchKernel", launches=1):
    """A matrix product that launches kernels; of more than one, only the first is recorded."""
    events = [build.op(name, ts, 80, SQUARE, SQUARE, external=number)]
    for launch in range(launches):
        correlation = 10 * number + launch
        events.append(
            build.launch(ts + 10 + 20 * launch, 10, correlation, external=number, name=call)
        )
        if has_kernel and launch == 0:
            events.append(
                build.kernel("gemm", ts + 90, 200, correlation=correlation, external=number)
            )
    return events


def counts(trace):
    return (trace.launches.n_lost, trace.launches.n_calls, trace.launches.captured)


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaLaunchCooperativeKernel",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipModuleLaunchKernel",
        "urEnqueueKernelLaunch",
        "zeCommandListAppendLaunchKernel",
        "cudaGraphLaunch",
        "hipGraphLaunch",
    ],
)
def test_launches_of_an_accelerator_that_was_not_recorded(tmp_path, call):
    trace = analysed(tmp_path, build.step(1, 0, 900), *product(100, 1, has_kernel=False, call=call))
    assert (counts(trace), trace.launches.lost) == ((1, 1, 0), (1,))
    assert (trace.costs.work, trace.costs.uncounted) == ({}, {("aten::mm", "", ""): UNRECORDED})


@pytest.mark.parametrize(
    "call",
    [
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaStreamSynchronize",
        "cudaLaunchHostFunc",
        "hipMalloc",
    ],
)
def test_other_calls_launch_no_kernel(tmp_path, call):
    trace = analysed(tmp_path, build.step(1, 0, 900), *product(100, 1, has_kernel=False, call=call))
    assert counts(trace) == (0, 0, 0)
    assert set(trace.costs.work) == {("aten::mm", "", "")}


def test_operations_around_a_launch_have_no_rates_and_others_keep_theirs(tmp_path):
    """Without an accelerator, their time is the launch's.

    An operation of the CPU beside them has launched nothing.
    """
    trace = analysed(
        tmp_path,
        build.step(1, 0, 900),
        build.op("aten::copy_", 90, 100, SQUARE, SQUARE),
        *product(100, 1, has_kernel=False),
        *[
            event
            for event in product(300, 2, has_kernel=False, name="aten::bmm")
            if event["cat"] == "cpu_op"
        ],
        build.op("aten::add", 500, 50, SQUARE, SQUARE),
    )
    assert (
        trace.costs.uncounted["aten::mm", "", ""]
        == trace.costs.uncounted["aten::copy_", "", ""]
        == UNRECORDED
    )
    assert ("aten::add", "", "") in trace.costs.work


def test_lost_kernels_are_counted_in_their_steps(tmp_path):
    events = [
        build.step(3, 0, 900),
        *product(100, 1, has_kernel=False),
        *product(300, 2, has_kernel=False),
    ]
    events += [
        build.step(4, 1000, 900),
        *product(1100, 3, has_kernel=True),
        *product(1500, 4, has_kernel=True),
    ]
    trace = analysed(tmp_path, *events, *product(5000, 5, has_kernel=False))
    assert (trace.launches.lost, trace.launches.calls) == ((2, 0), (2, 2))
    assert (trace.launches.lost_outside, trace.launches.calls_outside) == (1, 1)


def test_a_call_with_a_part_of_its_kernels_has_no_rates(tmp_path):
    trace = analysed(tmp_path, build.step(1, 0, 900), *product(100, 1, has_kernel=True, launches=2))
    assert counts(trace) == (1, 2, 0)
    assert (trace.costs.work, trace.costs.uncounted) == ({}, {("aten::mm", "", ""): UNRECORDED})


def test_a_complete_trace_has_lost_nothing(tmp_path):
    trace = analysed(tmp_path, build.step(1, 0, 900), *product(100, 1, has_kernel=True))
    assert counts(trace) == (0, 1, 0)
    assert set(trace.costs.work) == {("aten::mm", "", "")}


def test_a_launch_by_the_driver_within_one_by_the_runtime_is_one(tmp_path):
    events = [
        build.op("aten::mm", 0, 90),
        build.launch(10, 30, 1),
        build.launch(20, 10, 2, name="cuLaunchKernel"),
    ]
    assert counts(analysed(tmp_path, *events, build.kernel("gemm", 50, 9, correlation=2))) == (
        0,
        1,
        0,
    )
    assert counts(analysed(tmp_path, *events, build.kernel("gemm", 50, 9, correlation=1))) == (
        0,
        1,
        0,
    )
    assert counts(analysed(tmp_path, *events, build.kernel("gemm", 50, 9, correlation=3))) == (
        1,
        1,
        0,
    )


def test_kernels_without_a_correlation_may_be_those_of_any_launch(tmp_path):
    events = [build.op("aten::mm", 0, 90, external=1), build.launch(10, 30, 1)]
    assert counts(analysed(tmp_path, *events, build.kernel("gemm", 50, 9, external=1))) == (0, 1, 0)


@pytest.mark.parametrize(("start", "lost"), [(5, 1), (50, 0)])
def test_kernels_after_the_launch_of_a_graph_may_be_its_own(tmp_path, start, lost):
    """Those before it are not.

    Their correlation is that of another call, which the trace does not have.
    """
    events = [build.op("aten::mm", 0, 90), build.launch(10, 30, 1, name="hipGraphLaunch")]
    assert counts(analysed(tmp_path, *events, build.kernel("gemm", start, 4, correlation=77))) == (
        lost,
        1,
        0,
    )


def capture(begin, end):
    """The calls that begin and end a capture; None is before or after the trace."""
    calls = [(begin, "cudaStreamBeginCapture"), (end, "cudaStreamEndCapture_v10000")]
    return [build.launch(ts, 1, 900 + ts, name=name) for ts, name in calls if ts is not None]


@pytest.mark.parametrize(("begin", "end"), [(200, 400), (None, 400), (200, None)])
@pytest.mark.parametrize("is_host_only", [False, True])
def test_launches_during_a_capture_run_no_kernels(tmp_path, begin, end, is_host_only):
    events = [*capture(begin, end), *product(250, 2, has_kernel=False)]
    if begin is not None and not is_host_only:
        events += product(100, 1, has_kernel=True)
    trace = analysed(tmp_path, build.step(1, 0, 900), *events)
    assert (trace.launches.n_lost, trace.launches.captured) == (0, 1)
    if is_host_only:
        assert trace.costs.work == {}


def test_a_launch_after_a_capture_is_lost(tmp_path):
    trace = analysed(
        tmp_path,
        build.step(1, 0, 900),
        *capture(200, 400),
        *product(250, 2, has_kernel=False),
        *product(500, 3, has_kernel=False),
    )
    assert counts(trace) == (1, 2, 1)


@needs_traces
@pytest.mark.parametrize("name", real_traces.ALL)
def test_real_traces_have_lost_nothing(name):
    trace = real_traces.analysed(name)
    assert (trace.launches.n_lost, trace.launches.captured) == (0, 0)
    assert trace.launches.n_calls > 0
