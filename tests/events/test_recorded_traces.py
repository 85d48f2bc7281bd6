"""Small recorded traces of four machines: the numbers of the reader, computed a second time.

The second computation reads the JSON alone. ``test_real_traces.py`` has the large traces.
"""

import functools
import gzip
import json
from pathlib import Path

import pytest

from mnistbench.core.compiled.names import compiled_name
from mnistbench.core.record import median_ns
from mnistbench.events import analysis

FOLDER = Path(__file__).parents[1] / "data" / "traces"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))

#: Categories of work of the accelerator, and of calls of its runtime.
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CALLS = ("cuda_runtime", "cuda_driver", "hip_runtime")


def file_of(name):
    return FOLDER / f"{name}.json.gz"


@functools.cache
def recorded_events(name, *categories):
    """Return the events of a file that have a duration and one of these categories."""
    events = json.loads(gzip.decompress(file_of(name).read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X" and event["cat"] in categories]


def nanoseconds(event):
    """Return the start and the end of an event, which has microseconds."""
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def contains(outer, inner):
    outer_start, outer_end = nanoseconds(outer)
    inner_start, inner_end = nanoseconds(inner)
    return outer["tid"] == inner["tid"] and outer_start <= inner_start <= inner_end <= outer_end


@functools.cache
def analysed(name):
    return analysis.analyse(file_of(name))


def test_there_are_traces_of_both_vendors():
    assert len(NAMES) == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_device_column_adds_up_to_all_kernels_copies_and_fills(name):
    column = sum(sum(row.self_device_ns) for row in analysed(name).tables.device.rows)
    durations = [round(event["dur"] * 1000) for event in recorded_events(name, *WORK)]
    assert column == sum(durations) > 0
    assert sum(kernel.count for kernel in analysed(name).kernels) == len(durations)


@pytest.mark.parametrize("name", NAMES)
def test_busy_time_counts_overlapping_kernels_once(name):
    busy_ns = 0
    last_end = 0
    for start, end in sorted(nanoseconds(event) for event in recorded_events(name, *WORK)):
        busy_ns += max(0, end - max(start, last_end))
        last_end = max(last_end, end)
    assert sum(analysed(name).tables.device.busy_ns) == busy_ns


@pytest.mark.parametrize("name", NAMES)
def test_the_host_rows_add_up_to_the_steps(name):
    host = analysed(name).tables.host
    sums = [sum(times) for times in zip(*(row.self_cpu_ns for row in host.rows), strict=True)]
    assert sums == list(host.iteration_ns)
    assert median_ns(host.iteration_ns) > 0


@pytest.mark.parametrize("name", NAMES)
def test_kernels_belong_to_the_innermost_operation_around_their_launch(name):
    launches = {
        call["args"]["correlation"]: call
        for call in recorded_events(name, *RUNTIME_CALLS)
        if "correlation" in call["args"]
    }
    operations = recorded_events(name, "cpu_op")
    compared = 0
    for kernel in analysis.linked(file_of(name)).device:
        launch = launches.get(kernel.correlation)
        around = [event for event in operations if launch and contains(event, launch)]
        if not around:
            continue
        innermost = min(around, key=lambda event: event["dur"])
        assert kernel.operation is not None
        assert kernel.operation.name == compiled_name(innermost["name"])
        compared += 1
    assert compared >= len(recorded_events(name, "kernel")) / 2
