"""Times that cannot be are counted, and kept out of what would follow from them.

Healthy traces have none.
"""

from dataclasses import asdict

import pytest
import real_traces
import trace_builders as build

from mnistbench.events.analysis import analyse, linked
from mnistbench.events.report import traces_report
from mnistbench.showing.terminal import draw_report


def analysed(tmp_path, *events):
    return analyse(build.trace_file(tmp_path, events), counts_work=True)


def impossible(tmp_path, *events):
    """The counts and times that are not 0, in ns."""
    return {
        name: value
        for name, value in asdict(analysed(tmp_path, *events).file.impossible).items()
        if value
    }


def text(tmp_path, *events):
    return draw_report(traces_report([analysed(tmp_path, *events)], 9, "op,module", {}).blocks)


def launched(start, length, number, *, at=None, name="cudaLaunchKernel", **kernel):
    """A launch, by default 100 us before its kernel."""
    return [
        build.launch(start - 100 if at is None else at, 5, number, name=name),
        build.kernel("gemm", start, length, correlation=number, **kernel),
    ]


# ---- Kernels of one stream -----------------------------------------------------------------------


def test_kernels_of_one_stream_that_overlap(tmp_path):
    events = [event for number in range(10) for event in launched(1000 + 10 * number, 500, number)]
    trace = analysed(tmp_path, *events)
    assert (
        trace.file.impossible.overlapping_kernels,
        trace.file.impossible.overlapping_kernels_ns,
    ) == (
        9,
        9 * 490_000,
    )
    [timeline] = trace.timeline.devices
    assert (timeline.busy_ns, timeline.span_ns, trace.tables.device.busy_ns) == (
        590_000,
        590_000,
        (590_000,),
    )
    assert sum(sum(row.self_device_ns) for row in trace.tables.device.rows) == 5_000_000
    out = text(tmp_path, *events)
    assert (
        "Impossible: kernels that overlap the next kernel of their stream (9, by 4.41 ms in all)."
        in out
    )
    assert "calls ran at the same time" not in out


def test_a_kernel_that_runs_past_the_following_ones_does_not_fill_the_gaps(tmp_path):
    events = [*launched(1000, 50_000, 1), *launched(1100, 10, 2), *launched(1200, 10, 3)]
    [timeline] = analysed(tmp_path, *events).timeline.devices
    assert (timeline.busy_ns, timeline.span_ns) == (120_000, 210_000)


@pytest.mark.parametrize(
    "second",
    [
        {"stream": 8},
        {"device": 1},
        {"category": "gpu_memcpy"},
        {"category": "gpu_memset"},
        {"name": "cuLaunchKernelEx"},
        {"name": "cudaLaunchKernelExC"},
        {"name": "cudaGraphLaunch"},
    ],
)
def test_kernels_that_may_overlap(tmp_path, second):
    """On other streams; with programmatic dependent launch.

    Of a graph, whose branches the profiler gives one stream.
    """
    events = [*launched(1000, 500, 1), *launched(1010, 500, 2, **second)]
    assert impossible(tmp_path, *events) == {}


def test_kernels_of_a_graph_without_a_launch_may_overlap(tmp_path):
    events = [
        build.kernel(f"k{number}", 1000 + 10 * number, 50, correlation=7) for number in range(3)
    ]
    assert impossible(tmp_path, *events) == {}
    numbered = [
        build.kernel(f"k{number}", 1000 + 10 * number, 50, correlation=number)
        for number in range(3)
    ]
    for kernel in numbered:
        kernel["args"]["graph id"] = 4
    assert impossible(tmp_path, *numbered) == {}


@pytest.mark.parametrize(
    "name", ["hipLaunchKernel", "hipExtModuleLaunchKernel", "hipLaunchKernelExC", "cuLaunchKernel"]
)
def test_other_launches_do_not_allow_it(tmp_path, name):
    events = [*launched(1000, 500, 1), *launched(1010, 500, 2, name=name)]
    assert impossible(tmp_path, *events) == {
        "overlapping_kernels": 1,
        "overlapping_kernels_ns": 490_000,
    }


@pytest.mark.parametrize(
    ("start", "length", "overlap_us"),
    [(1000.5, 10.0, 0), (1000.5, 11.6, 1.1), (1000, 12, 0), (1000, 13, 3)],
)
def test_the_clock_and_rounding_are_no_overlap(tmp_path, start, length, overlap_us):
    """The next kernel begins at 1,011 or, in a file of whole microseconds, at 1,010."""
    is_rounded = type(start) is int
    events = [
        *launched(start, length, 1, at=100),
        *launched(1010 if is_rounded else 1011.0, 5, 2, at=200),
    ]
    expected = (
        {"overlapping_kernels": 1, "overlapping_kernels_ns": overlap_us * 1000}
        if overlap_us
        else {}
    )
    assert impossible(tmp_path, *events) == pytest.approx(expected)


def test_a_kernel_of_no_length_ends_no_other(tmp_path):
    events = [*launched(1000, 500, 1), *launched(1100, 0, 2), *launched(1500, 10, 3)]
    trace = analysed(tmp_path, *events)
    assert not trace.file.impossible.overlapping_kernels
    assert trace.timeline.devices[0].busy_ns == 510_000


def test_a_row_with_such_kernels_has_no_rates(tmp_path):
    matrices = (build.Of((512, 512)), build.Of((512, 512)))
    events = [
        build.op("aten::mm", 800, 300, *matrices, external=1),
        *launched(1000, 500, 1, external=1),
        build.op("aten::relu", 1110, 10, matrices[0], external=2),
        *launched(1200, 5, 2, at=1112, external=2),
    ]
    costs = analysed(tmp_path, *events).costs
    assert {key[0] for key in costs.work} == {"aten::relu"}
    assert costs.uncounted["aten::mm", "", ""] == "kernels with impossible times"


# ---- Kernels and their launches ------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 5])
def test_kernels_without_a_time(tmp_path, length):
    """CUPTI gives them 0. They are calls of their operation, but in no time line."""
    events = [
        build.step(1, 1000, 500),
        build.op("aten::mm", 1010, 100, external=1),
        build.launch(1020, 5, 1),
        build.kernel("lost", 0, length, correlation=1, external=1),
        build.op("aten::add", 1120, 50, external=2),
        *launched(1300, 100, 2, at=1130, external=2),
    ]
    trace = analysed(tmp_path, *events)
    assert trace.file.impossible.untimed == 1
    [timeline] = trace.timeline.devices
    assert (timeline.span_ns, timeline.busy_ns, timeline.kernels, timeline.launches) == (
        100_000,
        100_000,
        2,
        2,
    )
    assert trace.tables.device.busy_ns == (100_000,)
    assert sum(kernel.count for kernel in trace.kernels) == 2
    assert (
        "Impossible: kernels and copies that have a time of 0, last more than seven days or begin "
        "long before their own "
        "launch (1)."
    ) in text(tmp_path, *events)


def test_kernels_with_a_time_of_another_clock(tmp_path):
    events = [event for number in range(5) for event in launched(10**9 + 200 * number, 50, number)]
    events += launched(5000, 50, 9, at=10**9 + 2000)
    trace = analysed(tmp_path, *events)
    assert (trace.file.impossible.untimed, trace.timeline.devices[0].span_ns) == (1, 850_000)
    assert trace.tables.host.iteration_ns == (2_105_000,)


@pytest.mark.parametrize(("before_us", "is_left_out"), [(90, False), (110, True)])
def test_one_kernel_of_many_before_its_launch_is_no_matter_of_clocks(
    tmp_path, before_us, is_left_out
):
    events = [event for number in range(5) for event in launched(5000 + 200 * number, 50, number)]
    trace = analysed(tmp_path, *events, *launched(1000, 50, 9, at=1000 + before_us))
    assert (trace.file.impossible.untimed, trace.file.impossible.before_launch) == (
        (1, 0) if is_left_out else (0, 1)
    )
    assert trace.timeline.devices[0].span_ns == (850_000 if is_left_out else 4_850_000)


def test_kernels_without_a_time_and_a_launch(tmp_path):
    events = [
        build.op("aten::mm", 1000, 100),
        build.kernel("k", 1050, 10),
        *[build.kernel("lost", 0, 3)] * 2,
    ]
    trace = analysed(tmp_path, *events)
    assert (
        trace.file.impossible.untimed,
        trace.timeline.devices[0].span_ns,
        trace.tables.host.iteration_ns,
    ) == (
        2,
        10_000,
        (100_000,),
    )


def test_a_trace_may_begin_with_a_kernel_at_0(tmp_path):
    """Some tools let the times begin there; its launch was before the trace."""
    assert impossible(tmp_path, build.kernel("k", 0, 30), build.op("aten::mm", 5, 100)) == {}
    assert (
        impossible(
            tmp_path, build.op("aten::mm", 0, 100), build.kernel("k", 0, 0), build.kernel("k", 0, 0)
        )
        == {}
    )
    assert impossible(tmp_path, build.kernel("k", 0, 30), build.kernel("k", 0, 30, stream=8)) == {}


def test_a_trace_without_any_time_of_the_accelerator(tmp_path):
    trace = analysed(
        tmp_path,
        build.op("aten::mm", 900, 50),
        *launched(0, 0, 1, at=1000),
        *launched(0, 0, 2, at=1100),
    )
    assert (
        trace.file.impossible.untimed,
        trace.timeline.devices[0].span_ns,
        trace.tables.device.busy_ns,
    ) == (
        2,
        0,
        (0,),
    )


@pytest.mark.parametrize(
    ("before_us", "is_stated"), [(-50, False), (8, False), (20, False), (21, True), (900, True)]
)
def test_clocks_that_differ(tmp_path, before_us, is_stated):
    """A few microseconds are known of CUPTI and roctracer."""
    events = launched(5000, 10, 1, at=5000 + before_us)
    expected = {"before_launch": 1, "before_launch_ns": before_us * 1000} if is_stated else {}
    assert impossible(tmp_path, *events) == expected
    assert (
        "that begin before their own launch (1, by up to" in text(tmp_path, *events)
    ) == is_stated
    assert analysed(tmp_path, *events).timeline.devices[0].span_ns == 10_000


def test_clocks_without_a_common_time(tmp_path):
    """All kernels are a year before their launches.

    Their own time line is right, the trace does not last a year.
    """
    events = [build.launch(4e13 + 100 * number, 5, number) for number in range(4)]
    events += [
        build.kernel("gemm", 1000 + 100 * number, 50, correlation=number) for number in range(4)
    ]
    trace = analysed(tmp_path, *events)
    assert (trace.file.impossible.untimed, trace.file.impossible.before_launch) == (0, 4)
    assert (trace.timeline.devices[0].span_ns, trace.tables.host.iteration_ns) == (
        350_000,
        (305_000,),
    )


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "hipDeviceSynchronize"])
@pytest.mark.parametrize(
    ("start", "length", "busy_us"),
    [(200, 300, 300), (200, 390, 390), (200, 900, 300), (700, 50, 0)],  # the call waits until 500
)
def test_a_kernel_ends_before_the_call_that_waited_for_it(tmp_path, name, start, length, busy_us):
    events = [
        build.step(1, 0, 600),
        build.op("aten::mm", 10, 50, external=1),
        build.launch(20, 10, 1),
        build.launch(100, 400, 2, name=name),
        build.kernel("gemm", start, length, correlation=1, external=1),
    ]
    trace = analysed(tmp_path, *events)
    excess_us = start + length - 500
    is_impossible = excess_us > 100
    assert (trace.file.impossible.past_wait, trace.file.impossible.past_wait_ns) == (
        is_impossible,
        excess_us * 1000 * is_impossible,
    )
    assert trace.tables.device.busy_ns == (busy_us * 1000,)
    assert (
        "end after a call that waited for them (1, by up to" in text(tmp_path, *events)
    ) == is_impossible


def test_a_call_waits_for_its_own_process(tmp_path):
    wait = build.launch(100, 400, 3, name="cudaDeviceSynchronize")
    events = launched(200, 900, 1, at=20)
    assert impossible(tmp_path, *events, {**wait, "pid": 7}) == {}
    assert impossible(tmp_path, *events, wait) == {"past_wait": 1, "past_wait_ns": 600_000}


def test_which_of_two_accelerators_a_call_waits_for_is_not_known(tmp_path):
    events = [
        *launched(200, 900, 1, at=20),
        *launched(150, 10, 2, at=40, device=1),
        build.launch(100, 400, 3, name="cudaDeviceSynchronize"),
    ]
    assert impossible(tmp_path, *events) == {}


# ---- Events without a time ---------------------------------------------------------------------


SEVEN_DAYS_US = 7 * 24 * 3600e6


def without_time(tmp_path, *events):
    """What is left of the host's events, and how many have no time."""
    trace = linked(build.trace_file(tmp_path, events))
    return [event.name for event in trace.host], trace.untimed


@pytest.mark.parametrize(
    "event",
    [
        build.op("aten::lost", 0, 0),
        build.op("aten::lost", 100_000, SEVEN_DAYS_US + 1),
        build.op("aten::lost", 100_000, 2**64 / 1000),  # below 0, without a sign
        build.range_("lost", 0, 1.7e15),
        build.event("overhead", "lost", 0, 0),
    ],
)
def test_events_of_the_host_without_a_time_are_left_out(tmp_path, event):
    events = [build.op("aten::mm", 100_000, 20), event, build.op("aten::mm", 100_040, 20)]
    assert without_time(tmp_path, *events) == (["aten::mm", "aten::mm"], 1)
    trace = analysed(tmp_path, *events)
    assert trace.tables.host.iteration_ns == (60_000,)
    assert "Left out: 1 event without a time" in text(tmp_path, *events)


@pytest.mark.parametrize(
    "events",
    [
        # a trace that counts from its own beginning
        [build.op("aten::a", 0, 0), build.op("aten::mm", 900, 20)],
        [build.op("aten::a", 0, 5), build.op("aten::mm", 100_000, 20)],
        [build.op("aten::a", 0, SEVEN_DAYS_US), build.op("aten::mm", 10, 20)],
        [build.op("aten::a", 0, 0), build.op("aten::mm", 0, 0)],
    ],
)
def test_events_that_may_begin_at_0(tmp_path, events):
    assert without_time(tmp_path, *events) == (["aten::a", "aten::mm"], 0)


def test_in_the_time_of_the_system_no_event_begins_at_0(tmp_path):
    now = 1.7e15
    events = [build.op("aten::lost", 0, 20), build.op("aten::mm", now, 20)]
    assert without_time(tmp_path, *events) == (["aten::mm"], 1)


@pytest.mark.parametrize(
    "kernel",
    [
        launched(0, 0, 2, at=100_100),
        launched(0, 1.7e15, 2, at=100_100),
        launched(100_130, 2**64 / 1000, 2, at=100_100),
    ],
)
def test_kernels_without_a_time_are_in_no_mean_and_no_share(tmp_path, kernel):
    events = [
        build.op("aten::mm", 100_000, 200),
        *launched(100_050, 100, 1, at=100_010),
        *kernel,
        *launched(100_250, 50, 3, at=100_180),
    ]
    trace = analysed(tmp_path, *events)
    assert [(row.count, row.timed, row.ns, row.least_ns) for row in trace.kernels] == [
        (3, 2, 150_000, 50_000)
    ]
    assert trace.file.impossible.untimed == 1
    [timeline] = trace.timeline.devices
    assert (timeline.span_ns, timeline.busy_ns) == (250_000, 150_000)


# ---- Calls of one thread -------------------------------------------------------------------------


def test_an_operation_that_runs_past_its_step(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 90, 60),
        build.step(2, 100, 100),
        build.op("aten::add", 160, 20),
    ]
    trace = analysed(tmp_path, *events)
    rows = {row.name: row.self_cpu_ns for row in trace.tables.host.rows}
    assert rows == {
        "aten::mm": (10_000, 0),
        "aten::add": (0, 20_000),
        "(outside operations)": (90_000, 80_000),
    }
    assert (trace.file.impossible.past_step, trace.file.impossible.past_step_ns) == (1, 50_000)
    out = text(tmp_path, *events)
    assert (
        "Impossible: calls that end after the step in which they begin (1, by 50.0 us in all)"
        in out
    )
    assert "calls ran at the same time" not in out


def test_operations_in_one_that_runs_past_its_step_count_to_their_own_step(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::linear", 50, 100),
        build.op("aten::t", 60, 10),
        build.op("aten::mm", 110, 20),
        build.step(2, 100, 100),
    ]
    trace = analysed(tmp_path, *events)
    rows = {row.name: row.self_cpu_ns for row in trace.tables.host.rows}
    assert rows == {
        "aten::linear": (40_000, 0),
        "aten::t": (10_000, 0),
        "aten::mm": (0, 20_000),
        "(outside operations)": (50_000, 80_000),
    }
    assert trace.file.impossible.past_step == 1


def test_a_range_around_the_end_of_a_step_is_possible(tmp_path):
    """The program calls prof.step() in it. The host rows add up to the steps all the same."""
    events = [
        build.step(1, 0, 100),
        build.range_("epoch", 50, 100),
        build.op("aten::mm", 60, 20),
        build.step(2, 100, 100),
        build.op("aten::mm", 120, 20),
    ]
    trace = analysed(tmp_path, *events)
    assert not any(asdict(trace.file.impossible).values())
    assert [
        sum(times)
        for times in zip(*(row.self_cpu_ns for row in trace.tables.host.rows), strict=True)
    ] == [100_000, 100_000]


@pytest.mark.parametrize(
    "event",
    [
        build.range_("gloo:all_reduce", 50, 100),  # of a thread of its own
        build.op("aten::mm", 50, 100, thread=9),
        build.module("Linear_0", 50, 100),
        build.op("aten::mm", 50, 50.9),
        build.launch(50, 69, 3),  # the runtime has another clock
        build.range_("training", 0, 300),
    ],
)
def test_an_event_that_ends_after_the_step_is_not_always_impossible(tmp_path, event):
    events = [
        build.step(1, 0, 100),
        build.op("aten::add", 10, 20),
        event,
        build.op("aten::relu", 110, 5),
    ]
    assert impossible(tmp_path, *events) == {}


def test_calls_of_one_thread_that_overlap(tmp_path):
    events = [
        build.step(1, 0, 200),
        build.op("aten::linear", 10, 110),
        build.op("aten::mm", 20, 60),
        build.op("aten::add", 50, 60),
    ]
    trace = analysed(tmp_path, *events)
    assert (
        trace.file.impossible.overlapping_calls,
        trace.file.impossible.overlapping_calls_ns,
    ) == (
        1,
        30_000,
    )
    rows = {row.name: sum(row.self_cpu_ns) for row in trace.tables.host.rows}
    assert rows == {
        "aten::linear": 20_000,
        "aten::mm": 60_000,
        "aten::add": 60_000,
        "(outside operations)": 90_000,
    }
    out = text(tmp_path, *events)
    assert (
        "Impossible: calls that overlap another call of their thread (1, by 30.0 us in all)" in out
    )
    assert "calls ran at the same time" not in out


@pytest.mark.parametrize("end", [65, 90, 250])
def test_ranges_that_overlap_take_no_time_twice(tmp_path, end):
    events = [
        build.step(1, 0, 200),
        build.range_("coroutine 1", 10, 50),
        build.range_("coroutine 2", 30, end - 30),
        build.op("aten::mm", 50, 20),
    ]
    rows = {row.name: sum(row.self_cpu_ns) for row in analysed(tmp_path, *events).tables.host.rows}
    assert rows == {"aten::mm": 20_000, "(outside operations)": 180_000}


@pytest.mark.parametrize(
    "events",
    [
        # a function in which the program calls prof.step()
        [build.event("python_function", "train.py(3): f", 50, 100), build.op("aten::mm", 60, 20)],
        [build.op("aten::mm", 60, 40.5)],  # ends half a microsecond after its step
        [build.event("cpu_op", "nccl:all_reduce", 60, 90)],
        [build.event("overhead", "Activity Buffer Request", 60, 90)],
        [build.event("cuda_runtime", "cudaDeviceSynchronize", 60, 55, correlation=3)],
        [build.event("user_annotation", "nccl:all_reduce", 60, 90)],
        [build.op("aten::mm", 100, 1)],  # begins when its step has ended
    ],
)
def test_the_host_rows_of_one_thread_add_up_to_the_steps(tmp_path, events):
    events = [
        build.step(1, 0, 100),
        build.op("aten::add", 5, 20),
        *events,
        build.step(2, 101, 100),
        build.op("aten::relu", 160, 20),
    ]
    trace = analysed(tmp_path, *events)
    assert [
        sum(times)
        for times in zip(*(row.self_cpu_ns for row in trace.tables.host.rows), strict=True)
    ] == [100_000, 100_000]
    assert "add up to" not in text(tmp_path, *events)


def test_calls_of_two_threads_still_run_at_the_same_time(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 0, 60),
        build.op("aten::add", 40, 60),
        build.op("aten::relu", 0, 95, thread=9),
    ]
    out = text(tmp_path, *events)
    assert "by 20.0 us in all), although a thread runs one call at a time" in out
    assert (
        "add up to 95.0 us more than a step: calls ran at the same time, on several threads." in out
    )


def test_calls_beside_each_other_without_numbers_of_threads(tmp_path):
    """It is not known whether several threads ran them."""
    events = [
        build.op("aten::mm", 0, 60, thread=None),
        build.op("aten::add", 40, 60, thread=None),
    ]
    out = text(tmp_path, *events)
    assert (
        "add up to 20.0 us more than a step: the trace has calls of one thread that overlap, or "
        "no numbers of threads." in out
    )


def test_communication_beside_its_thread(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 0, 60),
        build.range_("gloo:all_reduce", 10, 80),
    ]
    assert (
        "add up to 80.0 us more than a step: calls ran at the same time, as communication in the "
        "background." in text(tmp_path, *events)
    )


@pytest.mark.parametrize(
    "events",
    [
        [build.op("aten::mm", 10, 20.5), build.op("aten::add", 30, 20)],
        [
            build.op("aten::mm", 10, 20),
            build.range_("gloo:all_reduce", 20, 50),
            build.op("aten::add", 40, 20),
        ],
        [build.op("aten::mm", 10, 50), build.module("f", 20, 60), build.op("aten::add", 65, 5)],
        [build.op("aten::mm", 10, 50), build.op("aten::add", 20, 60, thread=9)],
        [build.op("aten::mm", 10, 50, thread=None), build.op("aten::add", 20, 60, thread=None)],
        [
            build.range_("coroutine 1", 10, 50),
            build.range_("coroutine 2", 30, 60),
            build.op("aten::mm", 50, 20),
        ],
        [build.event("cpu_op", "nccl:all_reduce", 10, 50), build.op("aten::add", 30, 60)],
        [build.op("aten::mm", 10, 50), build.event("overhead", "Activity Buffer Request", 30, 60)],
        [build.op("aten::mm", 10, 50), build.launch(50, 29, 4)],
    ],
)
def test_calls_that_may_overlap(tmp_path, events):
    assert impossible(tmp_path, build.step(1, 0, 200), *events) == {}


@real_traces.needs_traces
@pytest.mark.parametrize("name", real_traces.ALL)
def test_real_traces_have_no_impossible_times(name):
    assert not any(asdict(real_traces.analysed(name).file.impossible).values())
