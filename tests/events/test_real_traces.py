"""Traces that others recorded on accelerators.

Nothing is lost, and another tool's numbers are reached.

TraceLens' tables are in the same folder. They differ from ours in two classes, whose sums the tests
state:

- its table of operations and its timeline leave out kernels, copies and fills that the trace links
  to no launch;
- its table of kernels has neither copies nor fills.
"""

import csv
import dataclasses
import functools
import gzip
import json
from collections import defaultdict

import pytest
import real_traces
from kineto_builders import OPERATION, RANGE, KinetoEvent, fields, profiled
from real_traces import analysed, linked, needs_traces
from torch.autograd import DeviceType

from mnistbench.core.compiled.names import COMPILED, OTHER_KERNELS, compiled_name
from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import UNATTRIBUTED
from mnistbench.events.analysis import timelines
from mnistbench.events.model import KERNEL, steps_of
from mnistbench.events.table import host_and_device, key_of

pytestmark = needs_traces

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")

COMPARED = ("h100_bert_small", "h100_qwen_0.5b", "mi300_bert_small", "mi300_qwen_0.5b")

#: Time of what the trace links to no launch, ns.
UNLINKED = {
    "h100_bert_small": 0,
    "h100_qwen_0.5b": 13_741_827,
    "mi300_bert_small": 0,
    "mi300_qwen_0.5b": 13_318_864,
}

#: Time of copies and fills, ns.
COPIES = {
    "h100_bert_small": 2_240,
    "h100_qwen_0.5b": 214_602,
    "mi300_bert_small": 2_404,
    "mi300_qwen_0.5b": 760,
}


@pytest.fixture(autouse=True)
def without_garbage_collection():
    """Millions of objects, and no cycles among them, would be searched again and again."""
    with gc_paused():
        yield


@functools.lru_cache(maxsize=1)
def raw_events(name):
    return json.loads(gzip.decompress(real_traces.path(name).read_bytes()))["traceEvents"]


def tracelens(name, table):
    with (real_traces.FOLDER / "tracelens" / f"{name}_{table}.csv").open(
        encoding="utf-8"
    ) as stream:
        return list(csv.DictReader(stream))


#: At least this share of the device time has an operation, where it is not all of it.
SHARES = {
    "b200_eager": 0.999,
    "diff_control": 0.98,
    "diff_test": 0.92,
    "h100_qwen_0.5b": 0.69,
    "mi300_qwen_0.5b": 0.69,
    "mi300_resnet_training": 0.68,
}

#: Number of kernels that the launch of a graph ran.
KERNELS_OF_GRAPHS = {"diff_test": 5046}

#: Number of links from forward to backward.
PAIRS = {"mi250_mlp_training": 4, "mi300_resnet_training": 213}


# All tests of one trace before those of the next: its events stay in memory for no longer.
@pytest.mark.parametrize("name", real_traces.ALL, scope="class")
class TestOneTrace:
    def test_the_device_column_adds_up_to_all_kernels_copies_and_fills(self, name):
        trace = analysed(name)
        ran = [event for event in raw_events(name) if event.get("cat") in DEVICE_CATEGORIES]
        assert sum(sum(row.self_device_ns) for row in trace.tables.device.rows) == sum(
            round(event["dur"] * 1000) for event in ran
        )
        assert sum(kernel.count for kernel in trace.kernels) == len(ran)

    def test_the_host_rows_add_up_to_the_steps(self, name):
        table = analysed(name).tables.host
        assert (
            tuple(map(sum, zip(*(row.self_cpu_ns for row in table.rows), strict=True)))
            == table.iteration_ns
        )

    def test_no_kernel_with_a_link_is_without_an_operation(self, name):
        """A kernel whose External id is that of an operation has that operation.

        Its own correlation alone is not enough.
        """
        trace = linked(name)
        operations = {
            event["args"]["External id"]: event["name"]
            for event in raw_events(name)
            if event.get("cat") == "cpu_op"
        }
        for kernel in trace.device:
            if kernel.external in operations and kernel.external != kernel.correlation:
                assert kernel.operation is not None
                assert kernel.operation.name == compiled_name(operations[kernel.external])

    def test_the_share_of_the_device_time_with_an_operation(self, name):
        trace = linked(name)
        with_operation = sum(event.ns for event in trace.device if event.operation is not None)
        share = with_operation / sum(event.ns for event in trace.device)
        assert SHARES.get(name, 1) <= share <= 1

    def test_the_kernels_of_graphs_belong_to_the_operation_that_launched_the_graph(self, name):
        graph_kernels = [
            event
            for event in linked(name).device
            if event.launch is not None and event.launch.name == "cudaGraphLaunch"
        ]
        assert len(graph_kernels) == KERNELS_OF_GRAPHS.get(name, 0)
        assert {event.operation.name for event in graph_kernels} == (
            {COMPILED} if graph_kernels else set()
        )
        assert {key_of(event)[0] for event in graph_kernels} == (
            {OTHER_KERNELS} if graph_kernels else set()
        )

    def test_every_link_from_forward_to_backward_gives_phase_and_module(self, name):
        trace = linked(name)
        events_of_place = defaultdict(list)
        for event in trace.host:
            events_of_place[event.thread, event.start].append(event)
        assert len(trace.flows) == PAIRS.get(name, 0)
        without_module = set()
        for forward, backward in trace.flows:
            origin = next(event for event in events_of_place[forward] if event.sequence is not None)
            origin_of_backward = next(
                event for event in events_of_place[backward] if event.is_backward
            )
            assert (origin.scope.phase, origin_of_backward.scope.phase) == ("forward", "backward")
            assert origin_of_backward.scope.module == origin.scope.module
            without_module |= set() if origin.scope.module else {origin.name}
        # The loss is a function outside of all modules; one trace has no Python stacks.
        if name != "mi250_mlp_training":
            assert without_module == ({"aten::mse_loss"} if PAIRS.get(name) else set())


# ---- Sums of TraceLens ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPARED)
def test_device_time_per_operation_is_that_of_tracelens(name):
    times = defaultdict(int)
    for row in analysed(name).tables.device.rows:
        if sum(row.self_device_ns):
            times[row.name] += sum(row.self_device_ns)
    assert times.pop(UNATTRIBUTED, 0) == UNLINKED[name]
    theirs = {
        row["name"]: float(row["total_direct_kernel_time_sum"]) * 1000
        for row in tracelens(name, "ops_summary")
    }
    assert times == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("name", COMPARED)
def test_time_per_kernel_is_that_of_tracelens(name):
    ours = defaultdict(lambda: [0, 0])
    theirs = defaultdict(lambda: [0, 0])
    copies = 0
    for kernel in analysed(name).kernels:
        if kernel.kind != KERNEL:
            copies += kernel.ns
            continue
        sums = ours[kernel.key[0], kernel.name]
        sums[0] = sums[0] + kernel.ns
        sums[1] = sums[1] + kernel.count
    for row in tracelens(name, "kernel_summary"):
        sums = theirs[row["Parent cpu_op"] or UNATTRIBUTED, row["Kernel name"]]
        sums[0] += float(row["Kernel duration (µs)_sum"]) * 1000
        sums[1] += int(row["Kernel duration (µs)_count"])
    assert ours.keys() == theirs.keys()
    for key, (ns, count) in theirs.items():
        assert ours[key] == [pytest.approx(ns, rel=1e-3), count]
    assert copies == COPIES[name]


@pytest.mark.parametrize("name", COMPARED)
def test_busy_and_idle_time_are_those_of_tracelens(name):
    trace = linked(name)
    unlinked = [event for event in trace.device if event.launch is None]
    with_launch = [event for event in trace.device if event.launch is not None]
    [line] = timelines(dataclasses.replace(trace, device=with_launch))
    theirs = {row["type"]: float(row["time ms"]) * 1e6 for row in tracelens(name, "gpu_timeline")}
    assert sum(event.ns for event in unlinked) == UNLINKED[name]
    assert {
        "computation_time": line.computation_ns,
        "exposed_comm_time": line.exposed_communication_ns,
        "exposed_memcpy_time": line.exposed_copies_ns,
        "busy_time": line.busy_ns,
        "idle_time": line.idle_ns,
        "total_time": line.span_ns,
        "total_comm_time": line.communication_ns,
        "total_memcpy_time": line.copies_ns,
    } == pytest.approx(theirs, rel=1e-3)


# ---- The same events from the profiler -----------------------------------------------------------


#: Traces whose kernels have the number of their operation, as those of a profile do.
NAME_OPERATIONS = (
    "b200_eager",
    "h100_bert_small",
    "h100_qwen_0.5b",
    "mi250_mlp_training",
    "mi300_bert_small",
    "mi300_qwen_0.5b",
    "mi300_resnet_training",
    "torch_compile_triton",
)

#: Categories of events that a profile of ours has.
PROFILED_CATEGORIES = (
    "cpu_op",
    "user_annotation",
    "cuda_runtime",
    "cuda_driver",
    "overhead",
    "gpu_user_annotation",
    *DEVICE_CATEGORIES,
)


def kineto_event(event, *, has_types):
    """An event of a file as the profiler gives it."""
    category = event["cat"]
    args = event.get("args", {})
    is_of_device = category in (*DEVICE_CATEGORIES, "gpu_user_annotation")
    is_operation = category == "cpu_op"
    start_ns = round(event["ts"] * 1000)
    values = {
        "scope": RANGE if category == "user_annotation" else OPERATION,
        "device_type": DeviceType.CUDA if is_of_device else DeviceType.CPU,
        "device_index": args.get("device", 0),
        "device_resource_id": args.get("stream") if is_of_device else event["tid"],
        "is_user_annotation": category == "gpu_user_annotation",
        "fwd_thread_id": args.get("Fwd thread id", 0),
        "sequence_nr": args.get("Sequence number", -1),
        "correlation_id": args.get("External id" if is_operation else "correlation", 0),
        "linked_correlation_id": 0 if is_operation else args.get("External id", 0),
        "shapes": args.get("Input Dims", []),
        **({"activity_type": category} if has_types else {}),
    }
    end_ns = start_ns + round(event["dur"] * 1000)
    return KinetoEvent(**fields(event["name"], start_ns, end_ns, 1, **values))


@pytest.mark.parametrize("has_types", [True, False])
@pytest.mark.parametrize("name", NAME_OPERATIONS)
def test_a_profile_with_the_events_of_a_trace_has_its_device_times(name, has_types):
    """Of each operation, and the host time of all but what only the file tells: links of autograd.

    torch 2.11 does not tell the types of events.
    """
    raw = [event for event in raw_events(name) if event.get("cat") in PROFILED_CATEGORIES]
    trace = profiled([kineto_event(event, has_types=has_types) for event in raw if "dur" in event])
    both = host_and_device(trace, steps_of(trace), has_device=True, memory_of_host=False)
    read = analysed(name)
    assert both.device.busy_ns == read.tables.device.busy_ns
    assert times_by_name(both.device, "self_device_ns") == times_by_name(
        read.tables.device, "self_device_ns"
    )
    assert times_by_name(both.host, "self_cpu_ns") == times_by_name(read.tables.host, "self_cpu_ns")


def times_by_name(table, column):
    times = defaultdict(int)
    for row in table.rows:
        times[row.name] += sum(getattr(row, column))
    return times
