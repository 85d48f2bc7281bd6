"""Any damage to a trace is one line, or harmless.

Never a traceback, never a sum that does not add up.
"""

import gzip
import json

import pytest
import real_traces
import trace_builders as build
from damage import OF_EACH_TYPE
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ANY_SPEED, many

from mnistbench.core.errors import RecordError
from mnistbench.events.analysis import analyse, analyse_processes
from mnistbench.events.report import traces_report
from mnistbench.showing.terminal import draw_report

VALUES = st.one_of(
    OF_EACH_TYPE,
    st.sampled_from(["ProfilerStep#1", "mnistbench.iteration", "kernel", "cpu_op", "\x1b[31m\n"]),
)


def survives(path):
    """Read the file as the command does.

    It is a trace whose device time adds up, or it has one line.
    """
    complaint = ""
    try:
        trace = analyse(path, counts_work=True)
    except RecordError as error:
        complaint = str(error)
    if complaint:
        assert complaint.startswith(f"{path}: ")
        assert "\n" not in complaint
        return
    if trace.tables.device is not None:
        assert sum(kernel.ns for kernel in trace.kernels) == sum(
            sum(row.self_device_ns) for row in trace.tables.device.rows
        )
    report = traces_report([trace], 3, "op,module", {})
    assert "\x1b" not in draw_report(report.blocks)
    json.loads(report.json)


def mutated(document, draw):
    """Replace, remove or repeat some values of events."""
    events = document["traceEvents"]
    for _ in range(draw(st.integers(1, 6))):
        event = events[draw(st.integers(0, len(events) - 1))]
        inner = (
            event
            if draw(st.booleans()) or not isinstance(event.get("args"), dict)
            else event["args"]
        )
        name = draw(st.sampled_from(sorted(inner) or ["ts"]))
        if draw(st.booleans()):
            inner[name] = draw(VALUES)
        else:
            inner.pop(name, None)
    return document


@settings(ANY_SPEED)
@given(st.data())
def test_damaged_events(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "trace.json"
    path.write_text(json.dumps(mutated(build.document(build.network(steps=2)), data.draw)))
    survives(path)


@settings(ANY_SPEED)
@given(st.data())
def test_damaged_bytes(tmp_path_factory, data):
    content = bytearray(json.dumps(build.document(build.network())).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "trace.json"
    path.write_bytes(
        content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    )
    survives(path)


@pytest.mark.parametrize(
    "events",
    [
        [build.op("aten::mm", 9e15, 5), build.op("aten::mm", -9e15, 5)],
        [build.op("aten::mm", 0, 5), *(build.memory(at, 2**62, of_host=True) for at in range(3))],
    ],
)
def test_times_and_sizes_that_are_possible_alone(tmp_path, events):
    with pytest.raises(RecordError, match="add up to more than can be") as raised:
        analyse(build.trace_file(tmp_path, events))
    assert str(raised.value).startswith(f"{tmp_path}")


@pytest.mark.parametrize("text", ["9" * 5_000, "1 " * 100_000])
def test_processes_with_long_numbers(tmp_path, text):
    events = [
        event | {"pid": f"[A{text}{number}] {number}"}
        for number in range(2)
        for event in (build.op("aten::mm", 0, 10), build.kernel("k", 20, 5))
    ]
    path = build.trace_file(tmp_path, events)
    assert len(analyse_processes(path)[0].kernels) == 1


@real_traces.needs_traces
@pytest.mark.parametrize(
    "name",
    ["mi250_mlp_training", "a100_alexnet_training", "h100_bert_small", "torch_compile_triton"],
)
@many(600)
@given(data=st.data())
def test_damaged_real_traces(tmp_path_factory, name, data):
    content = gzip.decompress(real_traces.path(name).read_bytes())
    path = tmp_path_factory.mktemp("damaged") / "trace.json"
    if data.draw(st.booleans()):
        path.write_text(json.dumps(mutated(json.loads(content), data.draw)))
    else:
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    survives(path)
