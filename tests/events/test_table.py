"""The rows of a table: times, calls, steps, and the rows that are no operations."""

import pytest
import trace_builders as build

from mnistbench.core.operation import NO_MODULE, OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.events.analysis import analyse
from mnistbench.events.table import RowSums, subtract_waiting


def analysed(tmp_path, *events, **top):
    return analyse(build.trace_file(tmp_path, events, **top))


def host(tmp_path, *events):
    """(calls, self us, total us) by the name of the operation or the row."""
    table = analysed(tmp_path, *events).tables.host
    return {
        row.name + (f" {row.phase}" if row.phase else ""): (
            row.calls,
            sum(row.self_cpu_ns) / 1e3,
            sum(row.total_cpu_ns) / 1e3,
        )
        for row in table.rows
    }


def device(tmp_path, *events, **top):
    """(device us, names of kernels) by the name of the row."""
    table = analysed(tmp_path, *events, **top).tables.device
    return {
        row.name: (sum(row.self_device_ns) / 1e3, row.kernels)
        for row in table.rows
        if sum(row.self_device_ns)
    }


def test_self_time_is_without_operations_ranges_and_runtime(tmp_path):
    rows = host(
        tmp_path,
        build.step(1, 0, 100),
        build.op("aten::linear", 10, 50),
        build.op("aten::addmm", 20, 30),
        build.launch(25, 10, 1),
        build.kernel("k", 70, 5, correlation=1),
    )
    assert rows == {
        "aten::linear": (1, 20, 50),
        "aten::addmm": (1, 20, 30),
        RUNTIME: (1, 10, 10),
        OUTSIDE: (0, 50, 50),
    }


def test_python_functions_take_no_time_of_an_operation(tmp_path):
    rows = host(
        tmp_path,
        build.step(1, 0, 100),
        build.op("MyFunction", 10, 50),
        build.module("Linear_0", 12, 40),
        build.op("aten::mm", 20, 10),
    )
    assert (rows["MyFunction"], rows["aten::mm forward"]) == ((1, 40, 50), (1, 10, 10))


def test_an_operation_that_only_calls_one_of_its_name_is_counted_once(tmp_path):
    rows = host(
        tmp_path,
        build.step(1, 0, 100),
        build.op("aten::to", 10, 50),
        build.op("aten::to", 12, 40),
        build.op("aten::to", 13, 30),
        build.op("aten::copy_", 20, 10),
    )
    assert (rows["aten::to"], rows["aten::copy_"]) == ((1, 40, 50), (1, 10, 10))


def test_rounded_times_do_not_break_calls(tmp_path):
    """In whole microseconds an operation may seem to end one after the operation around it."""
    rows = host(
        tmp_path,
        build.step(1, 0, 100),
        build.op("aten::linear", 10, 50),
        build.op("aten::addmm", 50, 11),
    )
    assert (rows["aten::linear"], rows["aten::addmm"]) == ((1, 40, 50), (1, 11, 11))


def test_communication_of_the_cpu_runs_beside_its_thread(tmp_path):
    rows = host(
        tmp_path,
        build.step(1, 0, 100),
        build.op("c10d::allreduce_", 10, 10),
        build.range_("gloo:all_reduce", 15, 60),
        build.op("aten::mm", 30, 20),
    )
    assert rows == {
        "c10d::allreduce_": (1, 10, 10),
        "gloo:all_reduce": (1, 60, 60),
        "aten::mm": (1, 20, 20),
        OUTSIDE: (0, 70, 70),
    }


def test_memory_beside_a_thread_is_that_of_its_operations(tmp_path):
    events = [
        build.range_("gloo:all_reduce", 15, 60),
        build.op("aten::mm", 30, 20),
        build.memory(35, 64, of_host=True),
    ]
    table = analysed(tmp_path, *events, devices=[]).tables.host
    assert {row.name: row.memory_bytes for row in table.rows if row.is_operation} == {
        "gloo:all_reduce": 0,
        "aten::mm": 64,
    }


def test_the_host_rows_add_up_to_the_step_with_backward_on_another_thread(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.range_("## forward ##", 0, 30),
        build.op("aten::addmm", 5, 20, sequence=3),
        build.range_("## backward ##", 40, 50),
        build.backward("AddmmBackward0", 45, 40, 3),
        build.op("aten::mm", 50, 10, thread=build.BACKWARD_THREAD),
    ]
    rows = host(tmp_path, *events)
    assert rows["(outside operations) backward"][1] == 10
    assert sum(own for _, own, _ in rows.values()) == 100


def test_a_range_on_another_thread_takes_its_time_from_the_thread_of_the_steps_too(tmp_path):
    """Such as that of a hook in backward, which the thread of the steps waits for."""
    rows = host(
        tmp_path,
        build.step(1, 0, 100),
        build.range_("## backward ##", 10, 80),
        build.op("aten::a", 1, 5),
        build.range_("hook", 20, 40, thread=7),
        build.op("aten::mm", 25, 30, thread=7),
    )
    assert sum(own for _, own, _ in rows.values()) == 100


def test_no_time_is_below_0_where_events_of_a_thread_overlap(tmp_path):
    """They do in a file without numbers of threads.

    Operations of several threads seem to be of one.
    """
    rows = host(
        tmp_path,
        build.op("aten::mm", 0, 10, thread=None),
        build.op("aten::add", 5, 10, thread=None),
    )
    assert rows == {"aten::mm": (1, 10, 10), "aten::add": (1, 10, 10), OUTSIDE: (0, 0, 0)}


def test_each_step_has_a_sample(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 10, 20),
        build.step(2, 100, 200),
        build.op("aten::mm", 110, 30),
        build.op("aten::mm", 150, 40),
    ]
    trace = analysed(tmp_path, *events)
    [row] = [row for row in trace.tables.host.rows if row.is_operation]
    assert (trace.tables.steps, trace.tables.host.iteration_ns) == (
        ("ProfilerStep#1", "ProfilerStep#2"),
        (100_000, 200_000),
    )
    assert (row.calls, row.self_cpu_ns) == (1.5, (20_000, 70_000))


def test_calls_outside_the_steps_are_left_out_and_stated(tmp_path):
    trace = analysed(
        tmp_path,
        build.op("aten::before", 0, 7),
        build.step(1, 10, 50),
        build.op("aten::mm", 15, 5),
        build.op("aten::after", 70, 4),
    )
    assert (
        [row.name for row in trace.tables.host.rows if row.is_operation],
        trace.tables.outside_ns,
    ) == (
        ["aten::mm"],
        11_000,
    )


def test_a_step_without_an_operation_is_none(tmp_path):
    """The profiler opens one more step when the last one ends."""
    trace = analysed(
        tmp_path, build.step(1, 0, 100), build.op("aten::mm", 10, 20), build.step(2, 100, 3)
    )
    assert trace.tables.steps == ("ProfilerStep#1",)


def test_without_steps_the_trace_is_one(tmp_path):
    trace = analysed(
        tmp_path,
        build.op("aten::mm", 10, 20),
        build.op("aten::add", 50, 30),
        build.op("aten::t", 60, 90, thread=7),
    )
    times = {row.name: sum(row.self_cpu_ns) for row in trace.tables.host.rows}
    assert (trace.tables.are_steps_marked, trace.tables.host.iteration_ns) == (False, (140_000,))
    # The thread of the step is the one with the most time; it is idle or in Python while the other
    # one runs 50 us.
    assert times == {"aten::mm": 20_000, "aten::add": 30_000, "aten::t": 90_000, OUTSIDE: 0}


def test_the_whole_trace_ends_with_its_last_event(tmp_path):
    """The accelerator may run what the host launched long after the last call of the host."""
    events = [build.op("aten::mm", 1000, 80, external=1), build.launch(1020, 10, 1)]
    trace = analysed(
        tmp_path, *events, build.kernel("gemm", 1050, 100_000, correlation=1, external=1)
    )
    assert (trace.tables.host.iteration_ns, trace.tables.device.busy_ns) == (
        (100_050_000,),
        (100_000_000,),
    )
    assert sum(sum(row.self_cpu_ns) for row in trace.tables.host.rows) == 100_050_000


def test_device_time_adds_up_whatever_is_linked(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 10, 20, external=3),
        build.launch(12, 3, 8),
        build.launch(40, 3, 9),
        build.kernel("gemm", 50, 10, external=3, correlation=8),
        build.kernel("alone", 60, 5, correlation=9),
        build.kernel("lost", -50, 7),
        build.kernel("Memcpy DtoH", 90, 2, category="gpu_memcpy"),
    ]
    assert device(tmp_path, *events) == {
        "aten::mm": (10, ("gemm",)),
        UNATTRIBUTED: (14, ("Memcpy DtoH", "alone", "lost")),
    }


def test_a_kernel_counts_to_the_step_that_launched_it(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 10, 20, external=3),
        build.launch(12, 3, 8),
        build.step(2, 100, 100),
        build.op("aten::mm", 110, 20, external=4),
        build.launch(112, 3, 9),
        build.kernel("gemm", 150, 10, external=3, correlation=8),
        build.kernel("gemm", 160, 20, external=4, correlation=9),
        build.kernel("lost", -50, 7),
        build.kernel("late", 500, 3),
    ]
    table = analysed(tmp_path, *events).tables.device
    times = {row.name: row.self_device_ns for row in table.rows if sum(row.self_device_ns)}
    assert times == {"aten::mm": (10_000, 20_000), UNATTRIBUTED: (7_000, 3_000)}
    assert table.busy_ns == (17_000, 23_000)


def test_kernels_of_two_streams_are_busy_once(tmp_path):
    events = [
        build.op("aten::mm", 10, 20, external=3),
        *(
            build.kernel(f"k{stream}", 50 + stream, 10, external=3, stream=stream)
            for stream in (1, 2)
        ),
    ]
    table = analysed(tmp_path, *events).tables.device
    assert (sum(sum(row.self_device_ns) for row in table.rows), table.busy_ns) == (
        20_000,
        (11_000,),
    )


def test_a_graph_outside_all_operations_has_a_row(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 80, 5),
        build.launch(10, 20, 8, name="cudaGraphLaunch"),
        build.kernel("k1", 50, 10, correlation=8),
        build.kernel("k2", 60, 5, correlation=8),
    ]
    assert device(tmp_path, *events) == {"cudaGraphLaunch": (15, ("k1", "k2"))}


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_launches_of_a_graph_are_its_calls(tmp_path, name):
    events = [build.step(1, 0, 400), build.op("aten::mm", 380, 5)]
    for launch in range(3):
        start = 100 * launch
        events.append(build.launch(start + 10, 20, launch, name=name))
        events += [
            build.kernel(f"k{part}", start + 50 + 10 * part, 10, correlation=launch)
            for part in range(4)
        ]
    [row] = [row for row in analysed(tmp_path, *events).tables.device.rows if row.name == name]
    assert (row.calls, row.self_device_ns) == (3, (120_000,))


def test_rows_that_are_no_operations_have_no_place(tmp_path):
    events = [
        build.range_("## forward ##", 0, 8),
        build.op("aten::mm", 30, 5),
        build.launch(10, 3, 8),
        build.kernel("triton", 50, 10, correlation=8),
        build.kernel("lost", 70, 10),
    ]
    trace = analysed(tmp_path, *events)
    rows = {row.key: row for row in trace.tables.device.rows}
    assert (rows[UNATTRIBUTED, "", ""].calls, rows[UNATTRIBUTED, "", ""].self_device_ns) == (
        2,
        (20_000,),
    )
    assert not any(rows[RUNTIME, "", ""].self_device_ns)
    assert UNATTRIBUTED not in {row.name for row in trace.tables.host.rows}


def in_ranges(*, thread=build.THREAD):
    """A step with an operation, two kernels of a fused optimizer and one in an inner range."""
    return [
        build.step(1, 0, 900),
        build.op("aten::mm", 100, 50, external=1),
        build.launch(110, 10, 1, external=1),
        build.kernel("gemm", 200, 100, correlation=1, external=1),
        build.range_("Optimizer.step#FusedAdam.step", 300, 200, thread=thread),
        build.launch(310, 10, 2, thread=thread),
        build.kernel("adam", 350, 40, correlation=2),
        build.launch(330, 10, 3, thread=thread),
        build.kernel("adam", 400, 30, correlation=3),
        build.range_("unscale", 400, 50, thread=thread),
        build.launch(410, 10, 4, thread=thread),
        build.kernel("unscale_kernel", 450, 5, correlation=4),
    ]


@pytest.mark.parametrize("thread", [build.THREAD, build.BACKWARD_THREAD])
def test_kernels_outside_operations_belong_to_the_range_around_their_launch(tmp_path, thread):
    trace = analysed(tmp_path, *in_ranges(thread=thread))
    rows = {
        row.key: (row.calls, row.self_device_ns, row.kernels)
        for row in trace.tables.device.rows
        if any(row.self_device_ns)
    }
    assert rows == {
        ("aten::mm", "", ""): (1, (100_000,), ("gemm",)),
        ("Optimizer.step#FusedAdam.step", "optimizer", ""): (1, (70_000,), ("adam",)),
        ("unscale", "optimizer", ""): (1, (5_000,), ("unscale_kernel",)),
    }
    assert sum(sum(row.self_device_ns) for row in trace.tables.device.rows) == sum(
        trace.tables.device.busy_ns
    )


def test_the_host_time_of_ranges_stays_outside_operations(tmp_path):
    trace = analysed(tmp_path, *in_ranges())
    for table in (trace.tables.host, trace.tables.device):
        assert sum(sum(row.self_cpu_ns) for row in table.rows) == sum(table.iteration_ns)
    host = {row.key: sum(row.self_cpu_ns) for row in trace.tables.host.rows}
    assert host[OUTSIDE, "optimizer", ""] == 170_000  # without three launches
    assert (
        trace.tables.ranges
        == {"Optimizer.step#FusedAdam.step", "unscale"}
        == {row.name for row in trace.tables.device.rows}
        - {row.name for row in trace.tables.host.rows}
    )


def test_each_call_of_a_range_with_kernels_counts_in_its_step(tmp_path):
    events = []
    for number in range(2):
        start = 1000 * number
        events += [build.step(number, start, 900), build.op("aten::mm", start + 800, 50)]
        for call in range(number + 1):
            at = start + 100 * call
            correlation = 10 * number + call
            events += [
                build.range_("mlp(B)", at, 50),
                build.launch(at + 10, 10, correlation),
                build.kernel("grouped_gemm", at + 30, 7, correlation=correlation),
            ]
    [row] = [row for row in analysed(tmp_path, *events).tables.device.rows if row.name == "mlp(B)"]
    assert (row.calls, row.total_cpu_ns, row.self_device_ns) == (
        1.5,
        (50_000, 100_000),
        (7_000, 14_000),
    )


@pytest.mark.parametrize(
    "name",
    ["ProfilerStep#1", "mnistbench.iteration", "mnistbench.phase:forward", "mnistbench.module:fc1"],
)
def test_ranges_that_mark_steps_phases_and_modules_are_no_rows(tmp_path, name):
    events = [
        build.range_("mnistbench.iteration", 0, 90),
        build.range_(name, 0, 90),
        build.op("aten::mm", 80, 5),
    ]
    rows = device(
        tmp_path, *events, build.launch(10, 5, 8), build.kernel("k", 50, 10, correlation=8)
    )
    assert rows == {UNATTRIBUTED: (10, ("k",))}


def test_a_range_within_an_operation_and_one_of_another_thread_have_no_kernels(tmp_path):
    events = [
        build.op("MyFunction", 0, 50),
        build.range_("inner", 5, 30),
        build.launch(10, 5, 1),
        build.kernel("k1", 60, 10, correlation=1),
        build.range_("beside", 60, 30),
        build.launch(70, 5, 2, thread=5),
        build.kernel("k2", 80, 4, correlation=2),
    ]
    assert device(tmp_path, *events) == {"MyFunction": (10, ("k1",)), UNATTRIBUTED: (4, ("k2",))}


def test_a_range_named_like_an_operation_shares_its_row(tmp_path):
    events = [
        build.op("aten::mm", 0, 20, external=1),
        build.kernel("k1", 60, 10, external=1),
        build.range_("aten::mm", 30, 20),
        build.launch(35, 5, 2),
        build.kernel("k2", 80, 4, correlation=2),
    ]
    trace = analysed(tmp_path, *events)
    [row] = [row for row in trace.tables.device.rows if row.name == "aten::mm"]
    assert (row.calls, row.self_device_ns, row.self_cpu_ns, trace.tables.ranges) == (
        1,
        (14_000,),
        (20_000,),
        set(),
    )


def test_iterations_of_mnistbench_are_counted_alone(tmp_path):
    """Its table has the marked iterations; it profiles one more before them."""
    events = [
        build.op("aten::mm", 0, 5, external=1),
        build.launch(1, 2, 1),
        build.kernel("k", 10, 3, external=1, correlation=1),
        build.range_("mnistbench.iteration", 20, 30),
        build.op("aten::mm", 22, 5, external=2),
        build.launch(23, 2, 2),
        build.kernel("k", 30, 4, external=2, correlation=2),
    ]
    trace = analysed(tmp_path, *events)
    times = {row.name: row.self_device_ns for row in trace.tables.device.rows}
    assert (times["aten::mm"], trace.tables.outside_device_ns) == ((4_000,), 3_000)


@pytest.mark.parametrize(
    ("of_host", "n_bytes"),
    [(True, {"aten::linear": 0, "aten::addmm": 64, "aten::empty": 100}), (False, {})],
)
def test_memory_is_that_of_the_operation_itself(tmp_path, of_host, n_bytes):
    """Without an accelerator, that of the host; records of the other kind do not count."""
    events = [
        build.op("aten::linear", 10, 50),
        build.op("aten::addmm", 20, 30),
        build.op("aten::empty", 25, 5),
        build.memory(26, 100, of_host=of_host),
        build.memory(40, 64, of_host=of_host),
    ]
    rows = analysed(tmp_path, *events).tables.host.rows
    assert {row.name: row.memory_bytes for row in rows if row.is_operation} == (
        n_bytes or dict.fromkeys(("aten::linear", "aten::addmm", "aten::empty"), 0)
    )


def test_shares_without_a_place(tmp_path):
    events = [
        build.module("Linear_0", 0, 40),
        build.op("aten::addmm", 10, 30, external=1),
        build.op("aten::mm", 50, 10, external=2),
        build.kernel("k", 60, 9, external=1),
        build.kernel("k", 70, 1, external=2),
    ]
    shares = analysed(tmp_path, *events).tables.unplaced
    assert shares == {
        "host_phase": 0.25,
        "host_module": 0.25,
        "device_phase": 0.1,
        "device_module": 0.1,
    }


def test_shapes_are_kept_where_they_were_recorded(tmp_path):
    events = [
        build.op("aten::mm", 10, 20, shapes=[[2, 3], [3, 4]]),
        build.op("aten::mm", 40, 20, shapes=[[5, 3], [3, 4]]),
    ]
    [row] = [row for row in analysed(tmp_path, *events).tables.host.rows if row.is_operation]
    assert row.shapes == ("[[2, 3], [3, 4]]", "[[5, 3], [3, 4]]")


# ---- Rows ----------------------------------------------------------------------------------------


KEY = ("aten::mm", "forward", "fc1")


def sums(**times):
    row_sums = RowSums(2)
    row_sums.calls = [2, 1]
    for name, values in times.items():
        setattr(row_sums, name, values)
    return row_sums


def test_a_self_time_is_never_below_zero():
    """Where calls of a thread overlap, the difference may be."""
    row = sums(self_cpu=[1500, -200]).op_row(KEY, "host")
    assert (row.self_cpu_ns, row.calls) == ((1500, 0), 1.5)


def test_a_count_that_is_not_the_same_in_each_iteration_is_an_average():
    assert sums().op_row(KEY, "host").varying == ("calls",)
    assert sums(calls=[2, 2], memory=[64, 0]).op_row(KEY, "host").varying == ("bytes",)
    assert sums(calls=[2, 2], memory=[64, 64]).op_row(KEY, "host").varying == ()


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


def test_a_range_around_the_end_of_a_step_is_one_call(tmp_path):
    events = [
        build.step(1, 0, 100),
        build.op("aten::a", 1, 2),
        build.range_("part", 50, 100),
        build.launch(60, 5, 3),
        build.kernel("k", 70, 5, correlation=3),
        build.step(2, 100, 100),
        build.launch(120, 5, 4),
        build.op("aten::a", 180, 2),
        build.kernel("k", 130, 5, correlation=4),
    ]
    [row] = [row for row in analysed(tmp_path, *events).tables.device.rows if row.name == "part"]
    assert (row.calls, row.self_device_ns, row.total_cpu_ns) == (
        0.5,
        (5_000, 5_000),
        (50_000, 50_000),
    )
