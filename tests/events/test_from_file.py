"""What is read from a file of torch.profiler, and one line for each file that is none."""

import gzip
import json

import pytest
import trace_builders as build

from mnistbench.core.errors import RecordError
from mnistbench.events.from_file import read
from mnistbench.events.model import COPY, FILL, KERNEL, OPERATION, PYTHON, RANGE, RUNTIME

COMPRESSED = gzip.compress(b'{"traceEvents": []}', mtime=0)


def read_events(tmp_path, events, **top):
    return read(build.trace_file(tmp_path, events, **top))


@pytest.mark.parametrize(
    ("ts", "dur", "ns", "is_rounded"),
    [
        (3743411230047.485, 67.321, (3743411230047485, 3743411230114806), False),
        # Whole microseconds since 1970.
        (1695835542514261, 43425283, (1695835542514261000, 1695835585939544000), True),
    ],
)
def test_times_are_nanoseconds_to_the_last_digit(tmp_path, ts, dur, ns, is_rounded):
    trace = read_events(tmp_path, [build.op("aten::mm", ts, dur)])
    assert [(event.start, event.end) for event in trace.host] == [ns]
    assert trace.is_rounded == is_rounded


def test_times_in_texts_are_exact(tmp_path):
    """torch_npu writes them; a binary number of this size would have steps of 250 ns."""
    [event] = read_events(tmp_path, [build.op("aten::mm", "1700000000000000.123\t", "50.5")]).host
    assert (event.start, event.end) == (1700000000000000123, 1700000000000050623)


@pytest.mark.parametrize("text", ["", "soon", "1e5", "0x10", "1.2.3", "9" * 40, "1\u0661", "nan"])
def test_other_texts_are_no_times(tmp_path, text):
    with pytest.raises(RecordError, match=r"traceEvents\[0\]\.ts: .* is not a time"):
        read_events(tmp_path, [build.op("aten::mm", text, 5)])


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.pt.trace.json.gz"])
def test_compression_follows_from_the_content(tmp_path, name):
    path = build.trace_file(tmp_path, [build.op("aten::mm", 1, 2)], name=name)
    renamed = path.rename(tmp_path / "other")
    assert [event.name for event in read(renamed).host] == ["aten::mm"]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cpu_op", OPERATION),
        ("Operator", OPERATION),
        ("user_annotation", RANGE),
        ("python_function", PYTHON),
        ("cuda_runtime", RUNTIME),
        ("cuda_driver", RUNTIME),
        ("xpu_runtime", RUNTIME),
        ("Runtime", RUNTIME),
        ("kernel", KERNEL),
        ("Kernel", KERNEL),
        ("gpu_memcpy", COPY),
        ("Memcpy", COPY),
        ("gpu_memset", FILL),
        ("Memset", FILL),
    ],
)
def test_categories(tmp_path, category, kind):
    trace = read_events(tmp_path, [build.event(category, "name", 1, 2), build.op("aten::mm", 1, 2)])
    events = trace.device if kind in (KERNEL, COPY, FILL) else trace.host
    assert next(event.kind for event in events if event.name == "name") == kind


@pytest.mark.parametrize("category", ["gpu_user_annotation", "Trace", "cuda_sync"])
def test_copies_of_ranges_are_no_work(tmp_path, category):
    trace = read_events(tmp_path, [build.event(category, "name", 1, 2), build.op("aten::mm", 1, 2)])
    assert [event.name for event in trace.host] == ["aten::mm"]
    assert not trace.device
    assert not trace.left_out


@pytest.mark.parametrize(
    ("unknown", "what"),
    [
        (build.event("mtia_ccp_events", "kernel", 1, 2), "the category mtia_ccp_events"),
        (build.event("hpu_op", "kernel", 1, 2), "the category hpu_op"),
        (build.event(None, "name", 1, 2), "no category"),
        (build.event(["kernel"], "name", 1, 2), "no category"),
        (
            build.event(None, "MatMul", 1, 2, **{"Task Type": "AI_CORE"}),
            "the task type AI_CORE of Ascend",
        ),
        (
            {"ph": "B", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1},
            "the phases B and E",
        ),
    ],
)
def test_events_that_are_not_known_are_counted(tmp_path, unknown, what):
    trace = read_events(tmp_path, [unknown, unknown, build.op("aten::mm", 1, 2)])
    assert [event.name for event in trace.host] == ["aten::mm"]
    assert not trace.device
    assert trace.left_out == {what: 2}


def test_overhead_of_the_profiler_counts_on_threads_with_operations_alone(tmp_path):
    """Its buffers have a thread of their own in the trace."""
    events = [
        build.op("aten::mm", 1, 9),
        build.event("overhead", "Lazy Function Loading", 2, 3),
        build.event("overhead", "Activity Buffer Request", 2, 3, pid=-1, thread=0),
    ]
    host = read_events(tmp_path, events).host
    assert [(event.name, event.kind) for event in host] == [
        ("aten::mm", OPERATION),
        ("Lazy Function Loading", RUNTIME),
    ]


def test_steps_of_files_without_ranges_are_ranges(tmp_path):
    trace = read_events(
        tmp_path, [build.event("Operator", "ProfilerStep#3", 1, 9), build.op("aten::mm", 2, 2)]
    )
    assert [event.kind for event in trace.host] == [RANGE, OPERATION]


@pytest.mark.parametrize("dur", [None, -5])
def test_events_without_an_end_are_counted(tmp_path, dur):
    trace = read_events(
        tmp_path, [build.event("cpu_op", "cut", 1, dur), build.op("aten::mm", 1, 2)]
    )
    assert ([event.name for event in trace.host], trace.unfinished) == (["aten::mm"], 1)


def test_a_link_may_name_its_end_first(tmp_path):
    forward = build.op("aten::mm", 1, 2, sequence=4)
    backward = build.backward("MmBackward0", 5, 2, 4)
    links = build.forward_backward(1, forward, backward)
    flows = [
        read_events(tmp_path, [forward, backward, *order]).flows for order in (links, links[::-1])
    ]
    assert flows[0] == flows[1]
    assert [(start, end) for (_, start), (_, end) in flows[0]] == [(1000, 5000)]


def test_the_machine_and_the_rank(tmp_path):
    trace = read_events(
        tmp_path,
        [build.kernel("k", 1, 2)],
        devices=[build.H100],
        distributedInfo={"rank": 3, "world_size": 8},
        cuda_runtime_version=12040,
    )
    assert (trace.rank, trace.ranks, dict(trace.versions)) == (
        3,
        8,
        {"cuda_runtime_version": "12040"},
    )
    assert trace.devices == {"0": (build.H100, 80 * 1024**3)}


@pytest.mark.parametrize(
    ("devices", "number", "name"),
    [
        ([build.H100], "0", build.H100),
        ([build.H100], "5", build.H100),
        ([build.H100, build.MI300X], "5", ""),
        ([], "0", ""),
    ],
)
def test_the_name_of_a_device(tmp_path, devices, number, name):
    """A process that may use one device of eight describes only that one, as number 0."""
    assert read_events(tmp_path, [build.kernel("k", 1, 2)], devices=devices).name_of(number) == name


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_device_without_a_name_has_its_memory(tmp_path, name):
    trace = read_events(tmp_path, [build.kernel("k", 1, 2)], devices=[name])
    assert trace.devices == {"0": ("", 80 * 1024**3)}


def test_a_number_of_ranks_that_cannot_be_is_not_one(tmp_path):
    trace = read_events(
        tmp_path, [build.op("aten::mm", 1, 2)], distributedInfo={"rank": 0, "world_size": 10**15}
    )
    assert (trace.rank, trace.ranks) == (0, None)


# ---- Lists of events -----------------------------------------------------------------------------


def test_the_array_form_of_chrome_is_read(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([build.op("aten::mm", 1, 2), build.kernel("k", 2, 3)]))
    trace = read(path)
    assert ([event.name for event in trace.host], [event.name for event in trace.device]) == (
        ["aten::mm"],
        ["k"],
    )


def legacy(*names, process="CPU functions"):
    """What prof.events().export_chrome_trace writes: no categories, no ids."""
    return [
        {
            "name": name,
            "ph": "X",
            "ts": 100 * number,
            "dur": 50,
            "tid": 1,
            "pid": process,
            "args": {},
        }
        for number, name in enumerate(names)
    ]


def test_the_list_of_the_legacy_profiler_has_operations(tmp_path):
    path = tmp_path / "trace.json"
    cuda = "the process CUDA functions, whose times are of whole operations"
    path.write_text(
        json.dumps(
            legacy("aten::mul", "ProfilerStep#1") + legacy("aten::mul", process="CUDA functions")
        )
    )
    trace = read(path)
    assert [(event.name, event.kind, event.ns) for event in trace.host] == [
        ("aten::mul", OPERATION, 50_000),
        ("ProfilerStep#1", RANGE, 50_000),
    ]
    assert trace.left_out == {cuda: 1}


@pytest.mark.parametrize(
    "name",
    [
        "torch/nn/modules/module.py(1774): _call_impl",
        "<built-in method t of Tensor object at 0x1>",
        "nn.Module: Linear_0",
    ],
)
def test_functions_of_python_in_a_list_are_no_operations(tmp_path, name):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(legacy(name, "aten::mul")))
    assert [event.kind for event in read(path).host] == [PYTHON, OPERATION]


def test_a_list_with_kernels_among_the_operations_is_refused(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps(legacy("aten::mul", "cudaLaunchKernel", "void at::native::elementwise_kernel"))
    )
    with pytest.raises(
        RecordError,
        match=r"is a list of prof.events\(\), in which kernels cannot be told from operations",
    ):
        read(path)


def test_line_breaks_in_names_are_read(tmp_path):
    """Some versions of torch write the name of a Python function as it is.

    It may be a line of code.
    """
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps(build.document([build.op("first second", 1, 2)])).replace(" second", "\nsecond")
    )
    assert [event.name for event in read(path).host] == ["first\nsecond"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"traceEvents": [{"ph": "X"', "is not JSON"),
        (b"\x80\x81\x82", "is not a text file"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "has no list of traceEvents"),
        (b'{"benchmarks": []}', "is a saved run of pytest-benchmark"),
        (b'[{"bs": 32}]', "has no list of traceEvents"),
        (b'{"traceEvents": {}}', "has no list of traceEvents"),
        (b'{"traceEvents": []}', "has no operation and no kernel"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "v8", "name": "a", "ts": 1, "dur": 1}]}',
            "has no operation and no kernel",
        ),
        (b'{"traceEvents": [3]}', "traceEvents[0]: is not an event"),
        (COMPRESSED[:-9], "is cut off"),
        (COMPRESSED[:-8] + bytes(8), "is damaged"),
        (COMPRESSED[:3], "is cut off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_trace_has_one_line(tmp_path, content, complaint):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(RecordError) as raised:
        read(path)
    assert complaint in str(raised.value)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "complaint"), [("missing.json", "cannot be read"), (".", "is not a file")]
)
def test_a_path_that_is_no_file_has_one_line(tmp_path, name, complaint):
    with pytest.raises(RecordError, match=complaint):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("name", 3, "traceEvents[1].name: 3"),
        ("name", None, "traceEvents[1].name: None"),
        ("ts", "soon", "traceEvents[1].ts: 'soon'"),
        ("ts", None, "traceEvents[1].ts: None"),
        ("ts", True, "traceEvents[1].ts: True"),
        ("ts", float("nan"), "traceEvents[1].ts: nan"),
        ("ts", 10**30, "traceEvents[1].ts: 1"),
        ("dur", "long", "traceEvents[1].dur: 'long'"),
        ("dur", float("inf"), "traceEvents[1].dur: inf"),
        ("ts", 1.8e305, "traceEvents[1].ts: 1.8e+305"),
    ],
)
def test_a_damaged_event_is_named(tmp_path, field, value, place):
    with pytest.raises(RecordError) as raised:
        read_events(
            tmp_path, [build.op("aten::mm", 1, 2), {**build.op("aten::add", 4, 1), field: value}]
        )
    assert place in str(raised.value)


@pytest.mark.parametrize(
    "args", [None, 3, [], {"External id": "x", "correlation": -1, "device": {}, "stream": None}]
)
def test_arguments_of_another_type_are_ignored(tmp_path, args):
    trace = read_events(tmp_path, [{**build.kernel("k", 1, 2), "args": args}])
    assert [(event.external, event.correlation, event.device) for event in trace.device] == [
        (None, None, "0")
    ]
