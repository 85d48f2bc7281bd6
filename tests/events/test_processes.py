"""Files that several ranks are merged into.

Each rank has the numbers that it has in a file of its own.
"""

import copy
import dataclasses
import gzip
import json

import pytest
import real_traces
import trace_builders as build
from real_traces import needs_traces

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.events import analysis
from mnistbench.events.analysis import analyse, analyse_processes, read_ranks


def rank_events(rank, *, device=None, ids=0):
    """Two training steps of a rank, whose kernels take longer than those of the rank before.

    External ids, correlations, numbers of flows, sequence numbers and threads of autograd are
    counted in each rank anew. ``ids`` are added to External ids and correlations.
    """
    events = []
    for number in range(2):
        start = 1000 * number
        external = 10 * number + ids + 1
        correlation = external + 50
        kernel_of = {"device": device or 0}
        forward = build.op("aten::addmm", start + 20, 60, external=external, sequence=number)
        node = build.backward("aten::mm", start + 400, 60, number)
        node["args"]["External id"] = external + 1
        events += [
            build.step(number, start, 900),
            build.module("Linear_0", start + 10, 90),
            forward,
            build.launch(start + 30, 10, correlation, external=external),
            build.kernel(
                "gemm",
                start + 70,
                100 * (rank + 1),
                correlation=correlation,
                external=external,
                **kernel_of,
            ),
            node,
            build.launch(
                start + 420,
                10,
                correlation + 1,
                external=external + 1,
                thread=build.BACKWARD_THREAD,
            ),
            build.kernel(
                "gemm_backward",
                start + 450,
                50 + rank,
                correlation=correlation + 1,
                external=external + 1,
                **kernel_of,
            ),
            *build.forward_backward(number, forward, node),
            build.range_("Optimizer.step#FusedAdam.step", start + 600, 100),
            build.launch(start + 610, 10, correlation + 2),
            build.kernel("adam", start + 650, 20 + rank, correlation=correlation + 2, **kernel_of),
            build.memory(start + 35, 1024 * (rank + 1)),
        ]
    return events


def labelled(events, rank):
    """SGLang."""
    for event in events:
        event["pid"] = f"[TP{rank:02d}-EP{rank:02d}] {event['pid']}"


def with_suffix(events, rank):
    """Triton-distributed."""
    for event in events:
        event["pid"] = f"{event['pid']}_{rank}"
        event["tid"] = event["tid"] * 2 + rank


def with_prefix(events, rank):
    for event in events:
        event["pid"] = f"rank{rank}_pid{event['pid']}"


def with_rank(events, rank):
    """TraceLens: External ids stay."""
    for event in events:
        event.setdefault("args", {})["rank"] = rank
        event["pid"] += 10_000 * rank
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1000 * rank


def in_one_process(events, rank):
    """Megatron-LM-AutoTuner."""
    for event in events:
        event["pid"] = rank + 1


def joined(events, rank):
    """Only the processes of the host differ."""
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            event["pid"] += rank


TOOLS = (labelled, with_suffix, with_prefix, with_rank, in_one_process, joined)


def merged(tmp_path, tool, ranks, **top):
    events = []
    for rank, alone in enumerate(ranks):
        rank_copy = copy.deepcopy(alone)
        tool(rank_copy, rank)
        events += rank_copy
    return build.trace_file(tmp_path, events, name="merged.json", devices=[build.H100] * 2, **top)


def without_names(trace):
    return dataclasses.replace(
        trace, file=dataclasses.replace(trace.file, source="", rank=None, ranks=None)
    )


@pytest.mark.parametrize("tool", TOOLS)
def test_each_rank_has_the_numbers_of_its_own_file(tmp_path, tool):
    ranks = [rank_events(rank, device=rank, ids=rank) for rank in range(2)]
    alone = [
        analyse(
            build.trace_file(tmp_path, events, name=f"{rank}.json", devices=[build.H100] * 2),
            counts_work=True,
        )
        for rank, events in enumerate(ranks)
    ]
    traces = analyse_processes(merged(tmp_path, tool, ranks), counts_work=True)
    assert list(map(without_names, traces)) == list(map(without_names, alone))
    assert [trace.file.rank for trace in traces] == [0, 1]


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool is not joined])
def test_ranks_with_the_same_ids_and_the_same_number_of_their_device(tmp_path, tool):
    """In containers, each process has an accelerator 0."""
    ranks = [rank_events(rank) for rank in range(2)]
    traces = analyse_processes(merged(tmp_path, tool, ranks))
    assert [
        [kernel.ns for kernel in trace.kernels if kernel.name == "gemm"] for trace in traces
    ] == [[200_000], [400_000]]
    assert [len(trace.timeline.devices) for trace in traces] == [1, 1]


def test_joined_files_with_the_same_ids_are_refused(tmp_path):
    path = merged(tmp_path, joined, [rank_events(rank, device=rank) for rank in range(2)])
    with pytest.raises(
        RecordError, match=r"merged\.json: 2 processes are merged into it \(100, 101\).*same"
    ):
        analyse_processes(path)


def test_joined_files_with_other_ids_on_one_device_are_told_apart(tmp_path):
    """Each correlation is of one process."""
    traces = analyse_processes(
        merged(tmp_path, joined, [rank_events(rank, ids=100 * rank) for rank in range(2)])
    )
    assert [
        [kernel.ns for kernel in trace.kernels if kernel.name == "gemm"] for trace in traces
    ] == [[200_000], [400_000]]


def test_kernels_without_a_launch_belong_to_the_process_of_their_device(tmp_path):
    ranks = [
        [*rank_events(rank, device=rank, ids=100 * rank), build.kernel("early", 1, 3, device=rank)]
        for rank in range(2)
    ]
    traces = analyse_processes(merged(tmp_path, joined, ranks))
    assert ["early" in {kernel.name for kernel in trace.kernels} for trace in traces] == [
        True,
        True,
    ]


def test_a_kernel_from_before_the_trace_tells_nothing(tmp_path):
    """By chance its correlation is that of a launch of the other process.

    The other kernels may be of both.
    """
    ranks = [rank_events(rank, device=rank) for rank in range(2)]
    ranks[0].append(build.kernel("early", 1, 50, device=0, correlation=999))
    ranks[1].append(build.launch(2, 3, 999, external=4))
    with pytest.raises(RecordError, match="2 processes are merged"):
        analyse_processes(merged(tmp_path, joined, ranks))


def test_several_traces_of_one_process_number_are_refused(tmp_path):
    """Joined files of two containers, in which the program has the same number."""
    events = [*rank_events(0), *rank_events(1)]
    with pytest.raises(RecordError, match="several launches have the correlation"):
        analyse_processes(build.trace_file(tmp_path, events))


def test_the_rank_and_the_size_of_the_run(tmp_path):
    ranks = [rank_events(rank, device=rank, ids=rank) for rank in range(2)]
    run = {"distributedInfo": {"rank": 0, "world_size": 8}}

    def named(tool):
        traces = analyse_processes(merged(tmp_path, tool, ranks, **run))
        return [
            (trace.file.source.removeprefix(f"{tmp_path}/"), trace.file.rank, trace.file.ranks)
            for trace in traces
        ]

    assert named(with_rank) == [("merged.json (rank 0)", 0, 8), ("merged.json (rank 1)", 1, 8)]
    assert named(with_suffix) == [("merged.json (rank 0)", 0, 8), ("merged.json (rank 1)", 1, 8)]
    assert named(labelled) == [
        ("merged.json (TP00-EP00)", 0, None),
        ("merged.json (TP01-EP01)", 1, None),
    ]
    assert named(in_one_process) == [
        ("merged.json (process 1)", 0, None),
        ("merged.json (process 2)", 1, None),
    ]


def test_a_number_of_different_accelerators_has_no_name(tmp_path):
    """A tool that merges files of two machines lists the accelerators of both."""
    ranks = [rank_events(rank) for rank in range(2)]
    events = []
    for rank, labelled_events in enumerate(ranks):
        labelled(labelled_events, rank)
        events += labelled_events
    listed = [
        {"id": number, "name": name} for name in (build.H100, build.MI300X) for number in (0, 1)
    ]
    traces = analyse_processes(build.trace_file(tmp_path, events, deviceProperties=listed))
    assert [trace.timeline.machine for trace in traces] == [(("", 0),), (("", 0),)]


def test_ranks_of_the_cpu(tmp_path):
    ranks = [
        [build.step(1, 0, 900), build.op("aten::mm", 10, 50 + rank), build.backward("b", 90, 9, 1)]
        for rank in range(2)
    ]
    for tool in TOOLS:
        traces = analyse_processes(merged(tmp_path, tool, ranks))
        times = [
            row.self_cpu_ns
            for trace in traces
            for row in trace.tables.host.rows
            if row.name == "aten::mm"
        ]
        assert times == [(50_000,), (51_000,)], tool


def test_labels_without_a_host(tmp_path):
    ranks = [[build.kernel("gemm", 0, 10 + rank)] for rank in range(2)]
    for tool in (labelled, with_rank):
        traces = analyse_processes(merged(tmp_path, tool, ranks))
        assert [trace.timeline.devices[0].busy_ns for trace in traces] == [10_000, 11_000], tool


@needs_traces
@pytest.mark.parametrize("tool", TOOLS)
def test_real_traces_that_are_merged_have_the_tables_of_their_own_files(tmp_path, tool):
    names = ("mi300_bert_small", "h100_bert_small")  # in the order of their process numbers
    alone = [real_traces.analysed(name) for name in names]
    ranks = [
        json.loads(gzip.decompress(real_traces.path(name).read_bytes()))["traceEvents"]
        for name in names
    ]
    for events in ranks:
        events[:] = [
            event
            for event in events
            if type(event.get("pid")) is int and type(event.get("tid")) is int
        ]
    merged_traces = analyse_processes(merged(tmp_path, tool, ranks))
    tables = [
        [
            (trace.tables.host, trace.tables.device, trace.kernels, trace.launches)
            for trace in traces
        ]
        for traces in (alone, merged_traces)
    ]
    assert tables[0] == tables[1]


# ---- Files of one process ------------------------------------------------------------------------


def only_trace(tmp_path, events, **options):
    [trace] = analysis.linked_processes(build.trace_file(tmp_path, events, **options))
    return trace


def test_several_accelerators_of_one_process_are_one_trace(tmp_path):
    events = [
        *rank_events(0),
        build.launch(850, 5, 777),
        build.kernel("second", 860, 5, correlation=777, device=1),
    ]
    trace = only_trace(tmp_path, events, devices=[build.H100] * 2)
    assert [timeline.device for timeline in analysis.timelines(trace)] == ["0", "1"]


@pytest.mark.parametrize("pid", [0, 7, "Spans", "worker 1", ""])
def test_processes_that_run_no_program_are_no_ranks(tmp_path, pid):
    """An operation of another process with the same ids does not take the kernels."""
    beside = [
        build.event(
            "cpu_op",
            "aten::stack",
            45,
            5,
            pid=pid,
            thread=1,
            **{"External id": 1, "Sequence number": 0},
        ),
        build.event("python_function", "worker.py", 0, 900, pid=pid, thread=1),
        build.event("user_annotation", "loading", 0, 900, pid=pid, thread=1),
    ]
    trace = only_trace(tmp_path, [*rank_events(0), *beside])
    kernels = {kernel.name: kernel.operation and kernel.operation.name for kernel in trace.device}
    assert kernels == {"gemm": "aten::addmm", "gemm_backward": "aten::mm", "adam": None}
    backward = [event.scope for event in trace.host if event.name == "aten::mm"]
    assert {scope.module for scope in backward} == {"Linear_0"}


def test_annotations_may_have_the_number_of_the_process_outside_its_container(tmp_path):
    events = rank_events(0)
    for event in events:
        if event["cat"] == "user_annotation":
            event["pid"] = 4_000_000
    assert len(analyse(build.trace_file(tmp_path, events)).tables.steps) == 2


def test_one_rank_with_a_label_is_one_trace(tmp_path):
    events = rank_events(0)
    labelled(events, 3)
    trace = analyse(build.trace_file(tmp_path, events))
    assert [kernel.key for kernel in trace.kernels if kernel.name == "gemm"] == [
        ("aten::addmm", "forward", "Linear_0")
    ]


def test_an_id_of_two_operations_belongs_to_the_one_around_the_launch(tmp_path):
    events = [
        build.op("aten::other", 0, 9, external=1),
        build.op("aten::mm", 10, 50, external=1),
        build.launch(20, 5, 7, external=1),
        build.kernel("gemm", 40, 5, external=1, correlation=7),
        build.kernel("relu", 50, 5, external=2, correlation=8),
    ]
    assert [
        kernel.operation and kernel.operation.name for kernel in only_trace(tmp_path, events).device
    ] == ["aten::mm", None]


def test_the_driver_may_repeat_the_correlation_of_the_runtime(tmp_path):
    events = [
        build.op("aten::mm", 0, 90),
        build.launch(10, 30, 7),
        build.launch(20, 10, 7, name="cuLaunchKernel"),
    ]
    [kernel] = only_trace(tmp_path, [*events, build.kernel("gemm", 50, 5, correlation=7)]).device
    assert (kernel.operation.name, kernel.launch.name) == ("aten::mm", "cuLaunchKernel")


def test_a_merged_file_in_the_folder_of_its_ranks_is_left_out(tmp_path):
    ranks = [rank_events(rank, device=rank) for rank in range(2)]
    merged(tmp_path, labelled, ranks)
    with pytest.raises(
        UsageError, match=r"merged\.json: several ranks are merged into it; name this file"
    ):
        read_ranks(tmp_path, lambda _: None)
    for rank, events in enumerate(ranks):
        build.trace_file(
            tmp_path, events, name=f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2}
        )
    run = read_ranks(tmp_path, lambda _: None)
    assert ([trace.file.rank for trace in run.ranks], run.merged) == ([0, 1], ("merged.json",))


def test_where_one_trace_is_needed_a_merged_file_is_refused(tmp_path):
    path = merged(tmp_path, labelled, [rank_events(rank, device=rank) for rank in range(2)])
    with pytest.raises(
        RecordError, match=r"2 processes are merged into it \(TP00-EP00, TP01-EP01\)"
    ):
        analyse(path)


def of_two_lines(events, rank):
    for event in events:
        event["pid"] = f"[TP{rank:02d}\n] {event['pid']}"


def joined_of_two_lines(events, rank):
    joined(events, rank)
    for event in events:
        event["pid"] = f"{event['pid']}\nrank"


@pytest.mark.parametrize("tool", [of_two_lines, joined_of_two_lines])
def test_a_refusal_is_one_line_whatever_the_processes_are_called(tmp_path, tool):
    path = merged(tmp_path, tool, [rank_events(rank, device=rank) for rank in range(2)])
    with pytest.raises(RecordError, match="2 processes are merged into it") as refusal:
        analyse(path)
    assert str(refusal.value).isprintable()
