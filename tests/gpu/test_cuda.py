"""What only a CUDA device shows.

``tox -e gpu`` runs these tests; docs/evidence/accelerator.md has what they should print.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import builders
import pytest
import torch
from torch_builders import LossSpy, tiny_params, tiny_workload

from mnistbench.compare.diff import compare
from mnistbench.core.operation import ITERATION, RUNTIME, UNATTRIBUTED
from mnistbench.core.params import Params
from mnistbench.core.record import OpTable, median_ns
from mnistbench.events.analysis import analyse
from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.suite.measuring.case import Case, build, fork_random
from mnistbench.suite.measuring.profiling import cost_per_call, profile_warm
from mnistbench.suite.op_benchmark.fixture import EVENT_CALLS, device_times
from mnistbench.suite.profile import ceilings, run
from mnistbench.suite.workload_case import WorkloadCase, columns
from mnistbench.suite.workloads.workload import Workload, builtin_workloads

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = "cuda:0"
ITERATIONS = 5
GIB = 2**30

#: Kineto's types of events that are work of the device, and of calls that are no operations.
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CALLS = ("cuda_runtime", "cuda_driver")


@pytest.fixture(autouse=True)
def _own_random_numbers() -> Iterator[None]:
    with fork_random(torch.device(DEVICE)):
        yield


def convnet(**changes: Any) -> Case:
    """A training step of ConvNet at batch 1, which is limited by launches."""
    return build(on_cuda(batch_size=1, **changes), workload())


def workload() -> Workload:
    by_name = {workload.name: workload for workload in builtin_workloads("digits", None)}
    return by_name["convnet"]


def on_cuda(**changes: Any) -> Params:
    return builders.params(**{"device": DEVICE, "phase": "step", **changes})


class Profile(NamedTuple):
    """A profile as mnistbench reads it, and the events of its trace.

    torch exports the trace of the same profile.
    """

    case: Case
    table: OpTable
    events: list[dict[str, Any]]
    trace: Path

    def iterations(self) -> list[tuple[float, float]]:
        """Start and end of each profiled iteration, in microseconds."""
        marks = [
            event
            for event in self.events
            if event["cat"] == "user_annotation" and event["name"] == ITERATION
        ]
        return sorted((event["ts"], event["ts"] + event["dur"]) for event in marks)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Events of these types that start in an iteration."""
        spans = self.iterations()
        events = [event for event in self.events if event["cat"] in kinds]
        return [
            event for event in events if any(start <= event["ts"] <= end for start, end in spans)
        ]


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """A profiled case with the trace of it, which is read without mnistbench."""
    file: Path = tmp_path_factory.mktemp("trace") / "trace.json"
    with fork_random(torch.device(DEVICE)):
        case = convnet()
        profiled = profile_warm(case, iterations=ITERATIONS, view="device")
        table = profiled.table()
        profiled.export_trace(file)
    events = [
        event for event in json.loads(file.read_text())["traceEvents"] if event.get("ph") == "X"
    ]
    return Profile(case, table, [event for event in events if "cat" in event], file)


def test_the_trace_of_a_profile_has_the_table_of_the_profile(profile: Profile) -> None:
    """Device time of each operation, phase and module, to the nanosecond, and the busy time.

    And calls, host times and kernels.
    """
    exported = analyse(profile.trace).tables.device
    assert exported is not None
    assert device_times_of(exported) == device_times_of(profile.table)
    assert exported.busy_ns == profile.table.busy_ns
    assert {row.key: row for row in exported.rows} == {row.key: row for row in profile.table.rows}


def device_times_of(table: OpTable) -> dict[tuple[str, str, str], tuple[int, ...]]:
    return {row.key: row.self_device_ns for row in table.rows if any(row.self_device_ns)}


def test_the_trace_of_mnistbench_profile_has_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is exported after the profiles of both views, the second of which has the kernels."""
    monkeypatch.setattr(run, "ceilings_of", lambda *_: None)
    cost_per_call.cache_clear()
    trace = tmp_path / "trace.json"
    case = run.profile_case(on_cuda(batch_size=1), workload(), iterations=2, trace=trace)
    _, device = case.tables
    exported = analyse(trace).tables.device
    assert exported is not None
    assert device_times_of(exported) == device_times_of(device)


# ---- Busy and elapsed time -----------------------------------------------------------------------


def test_an_accelerator_is_busy_for_a_part_of_each_iteration(profile: Profile) -> None:
    assert len(profile.table.busy_ns) == ITERATIONS
    assert all(
        0 < busy < whole
        for busy, whole in zip(profile.table.busy_ns, profile.table.iteration_ns, strict=True)
    )


def test_a_launch_bound_call_is_busy_for_less_than_its_elapsed_time(
    profile: Profile,
) -> None:
    elapsed_ns = device_times(profile.case)
    assert len(elapsed_ns) == EVENT_CALLS
    assert median_ns(profile.table.busy_ns) < median_ns(elapsed_ns)


def test_the_operations_of_two_runs_are_held_against_busy_time(profile: Profile) -> None:
    record = builders.case_record(
        params=on_cuda(batch_size=1), device_ns=device_times(profile.case), tables=(profile.table,)
    )
    [case] = compare([builders.summary(record)], builders.summary(record)).cases
    assert case.clock == "device"
    assert case.operations.head_ns == median_ns(profile.table.busy_ns) < case.head_ns


def test_device_times_begin_at_the_initial_state() -> None:
    losses = LossSpy()
    case = build(tiny_params(device=DEVICE), tiny_workload(loss=losses))
    for _ in range(WARMUP_ITERATIONS + 7):
        case()
    device_times(case)
    assert losses.values[-EVENT_CALLS] == pytest.approx(losses.values[0], rel=1e-3)
    assert losses.values[WARMUP_ITERATIONS + 6] != pytest.approx(losses.values[0], rel=1e-3)


# ---- Rows ----------------------------------------------------------------------------------------


def test_the_device_column_adds_up_to_all_kernels_and_copies_of_the_trace(profile: Profile) -> None:
    column = [
        sum(times)
        for times in zip(*(row.self_device_ns for row in profile.table.rows), strict=True)
    ]
    work = profile.of(*WORK)
    trace_ns = [
        1e3 * sum(e["dur"] for e in work if start <= e["ts"] <= end)
        for start, end in profile.iterations()
    ]
    assert column == pytest.approx(trace_ns, rel=1e-4)  # each is rounded to nanoseconds
    assert all(busy <= ns * 1.0001 for busy, ns in zip(profile.table.busy_ns, column, strict=True))


def test_every_kernel_of_the_trace_is_in_a_row(profile: Profile) -> None:
    kernels_of_rows = {kernel for row in profile.table.rows for kernel in row.kernels}
    assert {event["name"] for event in profile.of("kernel")} <= kernels_of_rows


def test_kernels_belong_to_operations_of_modules(profile: Profile) -> None:
    conv = [row for row in profile.table.rows if row.module == "conv2" and row.kernels]
    assert {row.phase for row in conv} == {"forward", "backward"}
    alone = profile.table.rest_ns("device").get(UNATTRIBUTED, 0)
    assert alone < profile.table.total_ns / 10


def test_runtime_calls_are_one_row_and_no_operation(profile: Profile) -> None:
    names = {event["name"] for event in profile.of(*RUNTIME_CALLS)}
    assert any("Launch" in name for name in names)
    assert not names & {row.name for row in profile.table.rows}
    [runtime] = [row for row in profile.table.rows if row.name == RUNTIME]
    assert runtime.calls > 0
    assert min(runtime.self_cpu_ns) > 0
    assert not any(runtime.self_device_ns)


def test_both_views_have_the_memory_of_the_device() -> None:
    """The allocator gives a large tensor up to 1 MiB more, that of the free block it takes.

    Both views begin with none free.
    """
    convnet()()  # libraries keep their workspaces
    tables = []
    for view in ("host", "device"):
        gc.collect()
        torch.cuda.empty_cache()
        tables.append(profile_warm(convnet(), iterations=ITERATIONS, view=view).table())
    host, device = (
        {row.key: row.memory_bytes for row in table.rows if row.is_operation} for table in tables
    )
    assert max(host.values()) > 0
    assert {key: n_bytes for key, n_bytes in host.items() if n_bytes} == {
        key: n_bytes for key, n_bytes in device.items() if n_bytes
    }


# ---- The gate ------------------------------------------------------------------------------------


def test_the_gate_has_elapsed_and_busy_times_of_its_case() -> None:
    case = WorkloadCase(convnet, DEVICE, 1)
    case.build()
    for _ in range(WARMUP_ITERATIONS):
        case()
    sample = case.clocked()
    assert sample.device_ns
    operations = case.operations(lambda: [None], [None] * ITERATIONS)
    assert operations.keys() == columns(OpTable("warm", "device", (), ())).keys()
    sums = list(map(sum, zip(*operations["self_ns"], strict=True)))
    assert all(
        0 < busy <= ns * 1.0001 for busy, ns in zip(operations["busy_ns"], sums, strict=True)
    )


# ---- Memory and random numbers -------------------------------------------------------------------


def test_ceilings_are_measured_with_little_free_memory() -> None:
    device = torch.device(DEVICE)
    ceilings.measured_ceilings.cache_clear()
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    taken = torch.empty(max(0, free_bytes - GIB), dtype=torch.uint8, device=device)
    try:
        rates = ceilings.ceilings_of(DEVICE, "float32", 1)
    finally:
        del taken
        torch.cuda.empty_cache()
        ceilings.measured_ceilings.cache_clear()
    assert min(rates.flops_per_s, rates.bytes_per_s) > 1e9


def test_a_case_on_the_cpu_leaves_the_random_numbers_of_the_device() -> None:
    before = torch.cuda.get_rng_state(0)
    with fork_random(torch.device("cpu")):
        build(tiny_params(), tiny_workload()).reset()
    assert torch.equal(torch.cuda.get_rng_state(0), before)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_case_on_the_second_device_leaves_the_random_numbers_of_both() -> None:
    before = [torch.cuda.get_rng_state(index) for index in (0, 1)]
    with fork_random(torch.device("cuda:1")):
        case = build(tiny_params(device="cuda:1"), tiny_workload())
        case()
        case.reset()
        assert torch.equal(torch.cuda.get_rng_state(0), before[0])
        assert not torch.equal(torch.cuda.get_rng_state(1), before[1])
    assert all(
        torch.equal(torch.cuda.get_rng_state(index), state) for index, state in enumerate(before)
    )
