"""A trace as a saved run: its cases, its machine, and how its file is told from a saved run."""

import json

import builders
import pytest
import real_traces
import trace_builders as build

from mnistbench.compare.criteria import Criteria
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.core.errors import RecordError
from mnistbench.core.operation import OUTSIDE, RUNTIME
from mnistbench.saved_runs.references import is_trace
from mnistbench.saved_runs.trace import saved_trace

GEMM = ("aten::addmm", "forward", "Linear_0")
RELU = ("aten::relu", "forward", "ReLU_0")


def cases(saved):
    return {case.node_id: case for case in saved.run.cases}


def compared(base, head, **options):
    return {case.head.node_id: case for case in compare([base.run], head.run, **options).cases}


# ---- cases ---------------------------------------------------------------------------------------


def test_the_host_has_the_time_of_a_step_and_the_device_its_busy_time(tmp_path):
    saved = saved_trace(build.trace_file(tmp_path, build.network(steps=3)))
    host = cases(saved)["host"]
    device = cases(saved)["device"]
    assert (host.wall_ns, host.device_ns) == (1_000_000, ())
    assert (device.wall_ns, device.device_ns) == (165_000, (150_000, 165_000, 181_500))
    [table] = device.tables
    assert table.view == "device"
    assert table.busy_ns == device.device_ns
    assert device.wall_spread_ns == 15_750  # quartiles 157.5 and 173.25 us
    assert dict(zip(table.keys, table.columns.net_ns, strict=True))[GEMM] == 110_000
    [host_table] = host.tables
    times = {
        name: ns
        for (name, _, _), ns in zip(host_table.keys, host_table.columns.net_ns, strict=True)
    }
    assert times == {
        "aten::addmm": 280_000,
        "aten::relu": 90_000,
        RUNTIME: 30_000,
        OUTSIDE: 600_000,
    }


def test_kernels_that_run_at_once_make_busy_time_less_than_their_sum(tmp_path):
    both = [build.kernel("a", 100, 60, stream=1), build.kernel("b", 130, 60, stream=2)]
    events = [build.step(0, 0, 500), build.op("aten::mm", 10, 20), *both]
    device = cases(saved_trace(build.trace_file(tmp_path, events)))["device"]
    assert device.wall_ns == 90_000
    assert device.table("warm").total_ns == 120_000


def test_a_trace_without_an_accelerator_has_a_host_only(tmp_path):
    saved = saved_trace(build.trace_file(tmp_path, [build.op("aten::mm", 0, 10)], devices=()))
    assert list(cases(saved)) == ["host"]
    assert saved.run.environment["devices"] == ()


def test_the_label_states_how_many_launches_have_no_kernel(tmp_path):
    events = build.network(steps=2)
    complete = saved_trace(build.trace_file(tmp_path, events))
    kernel_of_first_step = next(
        number for number, event in enumerate(events) if event["cat"] == "kernel"
    )
    del events[kernel_of_first_step]
    lacking = saved_trace(build.trace_file(tmp_path, events, name="lacking.json"))
    assert complete.run.trace.endswith("trace.json, 2 steps")
    assert lacking.run.trace.endswith("lacking.json, 2 steps, 1 of 4 kernel launches has no kernel")


def test_the_run_has_the_samples_of_each_step(tmp_path):
    saved = saved_trace(build.trace_file(tmp_path, build.network(steps=3)))
    host, device = saved.run.cases
    assert host.rounds_ns == (1_000_000,) * 3
    assert device.rounds_ns == (150_000, 165_000, 181_500)
    assert device.timing.median_ns == 165_000
    assert device.timing.mean_ns == 165_500
    assert device.timing.rounds == 3
    assert [case.params for case in saved.run.cases] == [None, None]


def test_cases_of_two_traces_are_the_same_whatever_the_files_are_called(tmp_path):
    base = saved_trace(build.trace_file(tmp_path, build.network(), name="a.json"))
    head = saved_trace(build.trace_file(tmp_path, build.network(scale=2.0), name="b.json.gz"))
    cases_by_id = compared(base, head)
    assert set(cases_by_id) == {"host", "device"}
    device = cases_by_id["device"]
    assert (device.base_ns, device.head_ns, device.clock) == (150_000, 300_000, "device")
    assert device.is_busy_time
    assert {change.key: change.change_ns for change in device.changes if change.is_operation} == {
        GEMM: 100_000,
        RELU: 50_000,
    }
    assert device.operations.remainder_ns == 0
    assert not cases_by_id["host"].is_busy_time


def test_thresholds_alone_judge_a_trace(tmp_path):
    """The steps of one process are no replicates.

    That they differ by more than the change is no reason to doubt it.
    """
    base = saved_trace(build.trace_file(tmp_path, build.network(steps=6), name="a.json"))
    head = saved_trace(
        build.trace_file(tmp_path, build.network(steps=6, scale=1.15), name="b.json")
    )
    judged = judge(compare([base.run], head.run), Criteria())
    verdicts = {
        (case.case.head.node_id, finding.measured.name): finding.verdict
        for case in judged.cases
        for finding in case.findings
    }
    assert (
        verdicts["device", "aten::addmm, forward Linear_0"]
        == verdicts["device", "iteration"]
        == "regressed"
    )


# ---- the machine ---------------------------------------------------------------------------------


def incomparable(tmp_path, base, head):
    """The differences that make a comparison of the same events impossible.

    From entries at the top of two files.
    """
    sides = [
        saved_trace(build.trace_file(tmp_path, build.network(), name=name, **top))
        for name, top in (("a.json", base), ("b.json", head))
    ]
    return compared(*sides)["host"].incomparable, compare([sides[0].run], sides[1].run).environment


def test_the_name_of_the_accelerator_decides(tmp_path):
    both = {"devices": ((build.H100,), (build.MI300X,))}
    assert incomparable(tmp_path, {}, {"devices": (build.MI300X,)}) == (both, both)


# Drivers leave out some of the memory: an A100 of 40 GB is listed with 39.4 or 39.6 GiB.
LEAST = {"deviceProperties": [{"id": 0, "name": build.H100, "totalGlobalMem": 79 * 1024**3}]}


@pytest.mark.parametrize(
    ("base", "head", "reported"),
    [
        (
            {"cuda_driver_version": 12090},
            {"cuda_driver_version": 13000},
            {"cuda_driver_version": ("12090", "13000")},
        ),
        (
            *({"distributedInfo": {"rank": 1, "world_size": size}} for size in (8, 2)),
            {"ranks": (8, 2)},
        ),
        (LEAST, {}, {"device_memory": (("79.0 GiB",), ("80.0 GiB",))}),
    ],
    ids=["versions", "ranks", "memory"],
)
def test_a_difference_that_prevents_no_comparison_is_reported(tmp_path, base, head, reported):
    assert incomparable(tmp_path, base, head) == ({}, reported)


def test_across_machines_compares_them_and_names_both(tmp_path):
    base = saved_trace(build.trace_file(tmp_path, build.network(), name="a.json"))
    head = saved_trace(
        build.trace_file(tmp_path, build.network(), name="b.json", devices=(build.MI300X,))
    )
    for case in compared(base, head, across_machines=True).values():
        assert case.incomparable == {}
        assert case.across_machines == {"devices": ((build.H100,), (build.MI300X,))}


@pytest.mark.parametrize(
    ("events", "top", "ending"),
    [
        (build.network(steps=2), {}, "a.json, 2 steps"),
        (build.network()[1:], {}, "a.json, no steps, so that one iteration is the whole trace"),
        (
            build.network(),
            {"distributedInfo": {"rank": 3, "world_size": 8}},
            "a.json, rank 3 of 8, 1 step",
        ),
        (build.network(), {"distributedInfo": {"rank": 0}}, "a.json, 1 step"),
    ],
)
def test_a_trace_is_called_by_its_file_its_rank_and_its_steps(tmp_path, events, top, ending):
    path = build.trace_file(tmp_path, events, name="a.json", **top)
    assert saved_trace(path).run.label == f"trace {tmp_path}/{ending}"


def test_a_trace_with_impossible_times_is_called_so(tmp_path):
    overlapping = [
        build.kernel("a", 1500, 900, correlation=91),
        build.kernel("b", 1600, 900, correlation=92),
    ]
    path = build.trace_file(tmp_path, build.network() + overlapping, name="a.json")
    assert saved_trace(path).run.label.endswith(
        "a.json, 1 step, with impossible times, see mnistbench trace"
    )


# ---- which files are traces ----------------------------------------------------------------------


def test_a_trace_is_one_whatever_it_is_called_and_comes_before_its_events(tmp_path):
    assert is_trace(str(build.trace_file(tmp_path, build.network(), name="a.json")))
    assert is_trace(build.trace_file(tmp_path, build.network(), name="a.json.gz"))
    assert is_trace((tmp_path / "a.json.gz").rename(tmp_path / "compressed.json"))
    assert is_trace(
        build.trace_file(
            tmp_path,
            build.network(),
            name="a.pt.trace.json",
            metadata={"benchmarked": "x" * 3_000_000},
        )
    )


@pytest.mark.parametrize("shift", range(-20, 20, 3))
def test_a_key_across_the_parts_in_which_the_file_is_read_is_found(tmp_path, shift):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": "' + b"x" * (2**20 + shift) + b'", "traceEvents": []}')
    assert is_trace(path)


def test_a_saved_run_is_none_even_if_it_contains_the_words(tmp_path):
    record = builders.case_record(
        attached={"note": '"traceEvents": []'}, notes=('{"traceEvents": []}',)
    )
    path = tmp_path / "0001_a.json"
    for text in (
        json.dumps(builders.saved_file(record)),
        json.dumps(builders.saved_file(record), indent=4),
        "",
        "[]",
        "no JSON",
    ):
        path.write_text(text, encoding="utf-8")
        assert not is_trace(path)
    document = builders.saved_file(record)
    document["benchmarks"][0]["extra_info"]["trace"] = {"traceEvents": []}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert not is_trace(path)


def test_a_damaged_trace_is_an_error_of_one_line(tmp_path):
    path = build.trace_file(tmp_path, build.network(), name="a.json.gz")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert is_trace(path)
    with pytest.raises(RecordError, match=r"a\.json\.gz: is cut off"):
        saved_trace(path)


# ---- traces of real machines ---------------------------------------------------------------------


@real_traces.needs_traces
@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("h100_bert_small", "mi300_bert_small"),
        ("h100_qwen_0.5b", "mi300_qwen_0.5b"),
        ("diff_control", "diff_test"),
    ],
)
def test_the_ledger_of_two_real_machines_adds_up(base, head, monkeypatch):
    monkeypatch.setattr("mnistbench.saved_runs.trace.analyse", real_traces.analysed_file)
    sides = [saved_trace(real_traces.path(name)) for name in (base, head)]
    cases_by_id = compared(*sides, across_machines=True)
    assert set(cases_by_id) == {"host", "device"}
    for case in cases_by_id.values():
        assert (
            sum(change.change_ns for change in case.operations.parts) + case.operations.remainder_ns
            == case.change_ns
        )
        assert case.across_machines
