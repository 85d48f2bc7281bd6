"""The device view on the events of real accelerators, which others recorded.

They are not in the repository.
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import real_traces
from torch.autograd import DeviceType

from mnistbench.core.operation import ITERATION, RUNTIME, UNATTRIBUTED
from mnistbench.core.record import OpTable
from mnistbench.events.analysis import analyse
from mnistbench.measuring.events_to_table import table

#: Traces whose kernels name their operation by ``External id``, as the profiler's own events do.
TRACES = (
    "b200_eager",
    "h100_bert_small",
    "h100_qwen_0.5b",
    "mi250_mlp_training",
    "mi300_bert_small",
    "mi300_qwen_0.5b",
    "mi300_resnet_training",
    "torch_compile_triton",
)

pytestmark = real_traces.needs_traces

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CALLS = ("cuda_runtime", "cuda_driver")


@functools.cache
def events_of(name: str) -> list[dict[str, Any]]:
    content = json.loads(gzip.decompress(real_traces.path(name).read_bytes()))
    return [
        {"args": {}, **event}
        for event in content["traceEvents"]
        if event.get("ph") == "X" and "cat" in event
    ]


def profiled(raw: list[dict[str, Any]]) -> list[Any]:
    """Return the events as the profiler parses them.

    A tree of host events, kernels at the operation that they name.
    """
    start, end = (
        extreme(event["ts"] + last * event["dur"] for event in raw)
        for extreme, last in ((min, 0), (max, 1))
    )
    made = [
        _event(event)
        for event in raw
        if event["cat"] in ("cpu_op", "user_annotation", *RUNTIME_CALLS)
    ]
    work = [_event(event) for event in raw if event["cat"] in (*WORK, "gpu_user_annotation")]
    _link(made)
    operations = {event.external_id: event for event in made if event.activity_type == "cpu_op"}
    for event in work:
        if event.external_id in operations:
            kernel = SimpleNamespace(
                name=event.name, duration=event.time_range.end - event.time_range.start
            )
            operations[event.external_id].kernels.append(kernel)
    for event in made:
        event.self_device_time_total = sum(kernel.duration for kernel in event.kernels)
    whole = _event(
        {
            "name": ITERATION,
            "cat": "user_annotation",
            "ts": start,
            "dur": end - start,
            "args": {},
            "tid": "none",
        }
    )
    return [whole, *made, *work]


def _event(event: dict[str, Any]) -> Any:
    kind = event["cat"]
    start = event["ts"]
    return SimpleNamespace(
        name=event["name"],
        scope=7 if kind == "user_annotation" else 0,
        thread=event.get("tid"),
        fwd_thread=0,
        sequence_nr=-1,
        device_type=DeviceType.CUDA if kind in (*WORK, "gpu_user_annotation") else DeviceType.CPU,
        activity_type=kind,
        is_user_annotation=kind == "gpu_user_annotation",
        external_id=event["args"].get("External id"),
        cpu_parent=None,
        cpu_children=[],
        input_shapes=[],
        kernels=[],
        self_cpu_memory_usage=0,
        self_device_memory_usage=0,
        time_range=SimpleNamespace(start=start, end=start + event["dur"]),
        cpu_time_total=event["dur"],
        self_cpu_time_total=event["dur"],
    )


def _link(host: list[Any]) -> None:
    around: dict[Any, list[Any]] = defaultdict(list)
    for event in sorted(host, key=lambda one: (one.time_range.start, -one.time_range.end)):
        stack = around[event.thread]
        while stack and event.time_range.end > stack[-1].time_range.end:
            stack.pop()
        if stack:
            event.cpu_parent = stack[-1]
            stack[-1].cpu_children.append(event)
            stack[-1].self_cpu_time_total -= event.cpu_time_total
        stack.append(event)


@functools.cache
def found(name: str) -> OpTable:
    return table(profiled(events_of(name)), temperature="warm", view="device", device="cuda")


@pytest.mark.parametrize("name", TRACES)
def test_the_device_column_adds_up_to_all_kernels_and_copies(name: str) -> None:
    work = [event["dur"] for event in events_of(name) if event["cat"] in WORK]
    # Each is rounded to 1 ns.
    assert found(name).total_ns == pytest.approx(1e3 * sum(work), abs=len(found(name).rows))


@pytest.mark.parametrize("name", TRACES)
def test_the_kernels_without_a_link_are_the_unattributed_ones(name: str) -> None:
    raw = events_of(name)
    operations = {event["args"].get("External id") for event in raw if event["cat"] == "cpu_op"} - {
        None
    }
    unlinked = [
        e["dur"] for e in raw if e["cat"] in WORK and e["args"].get("External id") not in operations
    ]
    rows = {row.name: row for row in found(name).rows}
    assert (UNATTRIBUTED in rows) == bool(unlinked)
    if unlinked:
        assert rows[UNATTRIBUTED].calls == len(unlinked)
        # Times have 0.1 ns.
        assert rows[UNATTRIBUTED].self_device_ns[0] == pytest.approx(1e3 * sum(unlinked), abs=100)


@pytest.mark.parametrize("name", TRACES)
def test_runtime_calls_are_one_row_and_no_operation(name: str) -> None:
    calls = [event for event in events_of(name) if event["cat"] in RUNTIME_CALLS]
    rows = {row.name: row for row in found(name).rows}
    assert rows[RUNTIME].calls == len(calls)
    assert not {event["name"] for event in calls} & set(rows)
    assert not any(rows[RUNTIME].self_device_ns)


@pytest.mark.parametrize("name", TRACES)
def test_the_device_time_of_each_operation_is_that_of_the_reader_of_traces(name: str) -> None:
    """Events of torch do not say which kernels a range has launched.

    So a profiled case has no rows of ranges.
    """
    trace = analyse(real_traces.path(name))
    of_reader: dict[str, int] = defaultdict(int)
    own: dict[str, int] = defaultdict(int)
    for times, rows in ((of_reader, trace.table.rows), (own, found(name).rows)):
        for row in rows:
            times[UNATTRIBUTED if row.name in trace.ranges else row.name] += sum(row.self_device_ns)
    assert {key: ns for key, ns in own.items() if ns} == pytest.approx(
        {key: ns for key, ns in of_reader.items() if ns}, abs=50
    )


@pytest.mark.parametrize(
    "name", ["h100_bert_small", "h100_qwen_0.5b", "mi300_bert_small", "mi300_qwen_0.5b"]
)
def test_busy_time_is_that_of_an_independent_tool(name: str) -> None:
    """TraceLens leaves out kernels that no recorded runtime call has launched.

    So this test does, too.
    """
    raw = events_of(name)
    launches = {event["args"].get("correlation") for event in raw if event["cat"] in RUNTIME_CALLS}
    launched = [
        event
        for event in raw
        if event["cat"] not in WORK or event["args"].get("correlation") in launches
    ]
    with (real_traces.FOLDER / "tracelens" / f"{name}_gpu_timeline.csv").open(
        encoding="utf-8", newline=""
    ) as stream:
        timeline = {row["type"]: float(row["time ms"]) for row in csv.DictReader(stream)}
    busy_ns = table(profiled(launched), temperature="warm", view="device", device="cuda").busy_ns
    assert busy_ns == (pytest.approx(1e6 * timeline["busy_time"], rel=1e-5),)
