"""A record of our own suite and a trace of the same profile have the same table.

To the nanosecond.
"""

import json
from collections import defaultdict
from dataclasses import replace

import builders
import pytest
import torch
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.record import CaseRecord
from mnistbench.events.analysis import analyse
from mnistbench.events.from_profiler import operation_table
from mnistbench.suite.measuring.case import build
from mnistbench.suite.measuring.profiling import profile_warm
from mnistbench.suite.workloads.workload import builtin_workloads

pytestmark = pytest.mark.versions


@pytest.fixture(autouse=True)
def _own_random_numbers():
    with torch.random.fork_rng():
        yield


def by_key(table):
    return {row.key: row for row in table.rows}


@pytest.mark.parametrize(("phase", "shapes"), [("step", False), ("step", True), ("forward", False)])
def test_a_saved_record_and_its_trace_have_the_same_table(tmp_path, phase, shapes):
    case = build(builders.params(phase=phase, batch_size=4), builtin_workloads("digits", None)[0])
    profiled = profile_warm(case, iterations=3, shapes=shapes)
    path = tmp_path / "trace.json.gz"
    profiled.export_trace(path)
    record = builders.case_record(params=case.params, tables=(profiled.table(),))
    saved = CaseRecord.from_json(json.loads(json.dumps(record.to_json()))).table("warm", "host")
    trace = analyse(path)
    assert by_key(trace.tables.host) == by_key(saved)
    assert replace(trace.tables.host, rows=()) == replace(saved, rows=(), profiler_ns=0)
    assert trace.tables.device is None


def test_a_table_of_a_profile_of_a_users_own_code_is_that_of_its_trace(tmp_path):
    """Without ranges of mnistbench, with repeated operations, in a step of the profiler."""
    weight = torch.ones(4, 4, requires_grad=True)
    with (
        torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded,
        record_function("ProfilerStep#1"),
    ):
        torch.relu(torch.ones(2, 4) @ weight).to(torch.float64).sum().backward()
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    own = operation_table(recorded, "cpu", "host")
    table = analyse(path).tables.host

    def numbers(rows):
        sums = {}
        for row in rows:
            calls, own_ns, memory = sums.get(row.name, (0, 0, 0))
            sums[row.name] = (
                calls + row.calls,
                own_ns + sum(row.self_cpu_ns),
                memory + row.memory_bytes,
            )
        return sums

    assert numbers(table.rows) == numbers(own.rows)
    assert {row.phase for row in table.rows if row.name == "aten::mm"} == {"forward", "backward"}


@pytest.mark.parametrize("with_stack", [False, True])
def test_a_list_of_events_has_the_operations_of_the_trace(tmp_path, with_stack):
    """The list has no sequence numbers, so there are neither phases nor modules."""
    layer = torch.nn.Linear(4, 4)
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU], with_stack=with_stack
    ) as recorded:
        torch.relu(layer(torch.ones(2, 4))).sum().backward()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    recorded.events().export_chrome_trace(str(tmp_path / "list.json"))

    def operations(name):
        times = defaultdict(lambda: [0, 0])
        for row in analyse(tmp_path / name).tables.host.rows:
            if row.is_operation:
                times[row.name][0] += row.calls
                times[row.name][1] += sum(row.self_cpu_ns)
        return dict(times)

    assert operations("list.json") == operations("trace.json")
