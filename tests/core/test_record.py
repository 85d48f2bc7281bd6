"""Records are read back as they were written; errors name the file and the field."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from builders import (
    case_record,
    environment,
    op_row,
    op_table,
    params,
    saved_file,
    scalars,
    timing,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_runs import BLOCKED
from strategies import (
    ANY_SPEED,
    NANOSECONDS,
    TEXTS,
    case_records,
    dotted,
    environments,
    json_values,
    op_tables,
    spoiled,
)

from mnistbench.core.errors import RecordError
from mnistbench.core.operation import OUTSIDE
from mnistbench.core.record import (
    KEY,
    MAX_POINTS,
    SCHEMA,
    CaseRecord,
    Environment,
    OpTable,
    Timing,
    finite,
    median_ns,
    nanoseconds,
    quartiles_ns,
    run_header,
    thin,
)
from mnistbench.saved_runs.run import Run


def through_a_file(value: Any) -> Any:
    """What a value is after pytest-benchmark wrote it and somebody read it."""
    return json.loads(json.dumps(value, indent=4))


def error_of_case(data: object) -> str:
    with pytest.raises(RecordError) as error:
        CaseRecord.from_json(data)
    assert "\n" not in str(error.value)
    return str(error.value)


def error_of_run(data: object) -> str:
    with pytest.raises(RecordError) as error:
        Run.from_json(data, "0001_base.json")
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- both ways -----------------------------------------------------------------------------------


@given(case_records())
@ANY_SPEED
def test_a_record_reads_back_as_it_was_written(record: CaseRecord) -> None:
    assert CaseRecord.from_json(through_a_file(record.to_json()), record.timing) == record


def test_timing_is_not_written_a_second_time() -> None:
    record = case_record(timing=timing(median_ns=123))
    assert record.to_json() == case_record(timing=None).to_json()
    assert CaseRecord.from_json(record.to_json()).timing is None


@given(environments())
@ANY_SPEED
def test_an_environment_reads_back_as_it_was_written(written: Environment) -> None:
    read = Run.from_json(
        through_a_file(saved_file(mnistbench=run_header(written))), "0001_base.json"
    )
    known = {name: value for name, value in vars(written).items() if value != ""}
    assert read.environment == known


def test_a_run_reads_back_every_case_in_order() -> None:
    cases = (EVERY_PART, case_record(batch_size=64))
    assert Run.from_json(through_a_file(saved_file(*cases)), "0001_base.json").cases == cases


def test_values_that_are_not_finite_are_stored_as_none() -> None:
    curve = tuple((step, finite(value)) for step, value in enumerate([2.5, math.inf, math.nan]))
    record = case_record(
        scalars=scalars(curves={"loss/train": curve}, final={"loss/train": finite(math.nan)})
    )
    read = CaseRecord.from_json(through_a_file(record.to_json())).scalars
    assert read is not None
    assert read.curves == {"loss/train": ((0, 2.5), (1, None), (2, None))}
    assert read.final == {"loss/train": None}


def test_a_table_is_three_compact_texts_of_columns() -> None:
    row = op_row(
        "aten::mm", (10, 20, 40), module="fc1", calls=2, memory_bytes=64, shapes=["[2, 2]"]
    )
    (table,) = case_record(tables=(op_table(row, row),)).to_json()["tables"]
    parts = {name: json.loads(table[name]) for name in ("operations", "times", "samples")}
    # No line ends for pytest-benchmark.
    assert not any(re.search(r"\s", table[name].replace("[2, 2]", "")) for name in parts)
    assert parts["operations"] == {
        "name": ["aten::mm"] * 2,
        "phase": ["forward"] * 2,
        "module": ["fc1"] * 2,
        "calls": [2] * 2,
        "memory_bytes": [64] * 2,
        "shapes": [["[2, 2]"]] * 2,
        "kernels": [[]] * 2,
        "sources": [[]] * 2,
        "varying": [[]] * 2,
    }
    assert (parts["times"]["self_ns"], parts["times"]["spread_ns"]) == ([20, 20], [15, 15])
    times = [[10, 20, 40]] * 2
    assert parts["samples"] == {
        "self_cpu_ns": times,
        "total_cpu_ns": times,
        "self_device_ns": [[], []],
    }


def test_medians_of_a_device_table_are_those_of_the_device() -> None:
    (table,) = case_record(
        tables=(op_table(op_row(self_device_ns=(1, 3, 5)), view="device"),)
    ).to_json()["tables"]
    columns = json.loads(table["times"])
    assert (columns["self_ns"], columns["spread_ns"]) == ([3], [2])


def test_curves_and_device_times_are_compact_texts() -> None:
    written = case_record(device_ns=(5, 6), attached={"gpu": {"clocks": [1, 2]}}).to_json()
    assert written["device_ns"] == "[5,6]"
    assert written["attached"] == '{"gpu":{"clocks":[1,2]}}'
    assert not re.search(r"\s", written["scalars"] + written["curves"])


# ---- a file of pytest-benchmark ------------------------------------------------------------------

PLUGIN = f"""
def pytest_benchmark_update_json(output_json):
    output_json["mnistbench"] = {run_header(environment())!r}
"""
BENCHMARKS = f"""
def test_ours(benchmark):
    benchmark.extra_info["mnistbench"] = {case_record().to_json()!r}
    benchmark.pedantic(lambda: None, rounds=3)

def test_of_somebody_else(benchmark):
    benchmark.extra_info["commit"] = "anything"
    benchmark.pedantic(lambda: None, rounds=3)
"""


def test_a_file_that_pytest_benchmark_saved_gives_our_case_with_its_statistics(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest(PLUGIN)
    pytester.makepyfile(BENCHMARKS)
    pytester.runpytest_subprocess(
        *BLOCKED, "-p", "no:mnistbench", "--benchmark-save=base"
    ).assert_outcomes(passed=2)
    [saved] = pytester.path.glob(".benchmarks/*/0001_base.json")
    file = json.loads(saved.read_text())
    read = Run.from_json(file, saved.name)
    (case, plain) = read.cases
    stats = {entry["name"]: entry["stats"] for entry in file["benchmarks"]}
    assert list(stats) == ["test_ours", "test_of_somebody_else"]
    assert dataclasses.replace(case, timing=None) == case_record(timing=None)
    assert plain.params is None
    assert plain.attached == {"commit": "anything"}
    assert Environment(**read.environment) == environment()
    assert read.saved_at == file["datetime"]
    assert case.timing is not None
    assert case.timing.rounds == 3
    for name in ("median", "min", "mean", "stddev", "iqr"):
        assert getattr(case.timing, f"{name}_ns") == pytest.approx(
            stats["test_ours"][name] * 1e9, rel=1e-12
        )


def test_float_seconds_become_nanoseconds_with_their_fractions() -> None:
    stats = {
        "median": 0.0075,
        "min": 4e-10,
        "mean": 4.14e-08,
        "stddev": 0,
        "rounds": 20,
        "iqr": 1.0,
    }
    expected = Timing(
        median_ns=7_500_000,
        iqr_ns=10**9,
        min_ns=0.4,
        mean_ns=41.4,
        stddev_ns=0,
        rounds=20,
        timer="perf_counter",
    )
    assert Timing.from_stats(stats, "perf_counter") == expected


@pytest.mark.parametrize("nanosecond", [0.0, 0.4, 0.123, 41.4, 7_500_000, 3.6e12, 1 / 3])
def test_seconds_have_the_same_digits_in_nanoseconds(nanosecond: float) -> None:
    seconds = float(f"{nanosecond!r}e-9") if "e" not in repr(nanosecond) else nanosecond / 1e9
    assert nanoseconds(seconds) == nanosecond


@pytest.mark.parametrize(
    ("commit_info", "commit"),
    [
        ({"id": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "dirty": False}, "1a2b3c4"),
        ({"id": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "dirty": True}, "1a2b3c4+"),
        ({"id": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"}, "1a2b3c4"),
        ({"id": "unversioned", "dirty": False}, ""),
        ({"id": "unknown", "dirty": True, "error": "git is missing"}, ""),
        ({"id": None, "dirty": True}, ""),
        ({"id": ""}, ""),
        ({}, ""),
    ],
)
def test_a_commit_is_its_short_id_and_whether_the_tree_had_changes(
    commit_info: dict[str, Any], commit: str
) -> None:
    assert Run.from_json(saved_file(commit_info=commit_info), "x.json").short_commit == commit


@pytest.mark.parametrize(
    "absent", ["machine_info", "commit_info", "datetime", "version", "mnistbench"]
)
def test_a_file_needs_nothing_but_its_benchmarks(absent: str) -> None:
    document = saved_file()
    del document[absent]
    assert Run.from_json(document, "0001_base.json").cases == (case_record(),)


# ---- schema --------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [None, "1", 1.0, True, 0, [1]])
def test_a_schema_that_is_not_a_version_is_refused(schema: object) -> None:
    message = f"schema: {schema!r} is not a version of a mnistbench record"
    assert error_of_case({**case_record().to_json(), "schema": schema}) == message
    header = {**run_header(environment()), "schema": schema}
    assert error_of_run(saved_file(mnistbench=header)).startswith(
        f"0001_base.json: mnistbench.{message}"
    )


@pytest.mark.parametrize("data", [{}, None, [["schema", 1]]])
def test_a_record_without_a_schema_is_refused(data: object) -> None:
    assert error_of_case(data) == "schema: None is not a version of a mnistbench record"


def test_a_newer_schema_asks_for_an_upgrade() -> None:
    document = saved_file(case_record(), case_record(batch_size=64))
    newer = document["benchmarks"][1]["extra_info"][KEY]
    assert newer["schema"] == run_header(environment())["schema"] == SCHEMA
    newer["schema"] = SCHEMA + 1
    message = (
        f"schema: {SCHEMA + 1} is newer than the {SCHEMA} that this mnistbench reads: upgrade "
        "mnistbench"
    )
    assert error_of_case(newer) == message
    assert error_of_run(document).startswith(
        f"0001_base.json: benchmarks[1].extra_info.mnistbench.{message}"
    )


# ---- wrong values --------------------------------------------------------------------------------

EVERY_PART = case_record(
    device_ns=(5_000_000, 6_000_000),
    tables=(
        op_table(op_row(iterations=1), temperature="cold", iterations=1, first_of_process=True),
        op_table(
            op_row(self_device_ns=7, shapes=("[16, 9216]",)),
            op_row(OUTSIDE, module=""),
            view="device",
        ),
    ),
    tables_in="step convnet-b16-cpu",
    notes=("the graph could not be traced",),
    attached={"gpu": {"clocks": [1, 2.5, None, True, "x"]}},
)
MACHINE_WITH_EVERY_PART = environment(devices=({"name": "NVIDIA H200", "driver": "570.1"},))


@pytest.mark.parametrize("field", ["test", "node_id", "params", "curves"])
def test_a_missing_field_without_a_default_is_named(field: str) -> None:
    data = EVERY_PART.to_json()
    del data[field]
    assert error_of_case(data) == f"{field}: is missing"


def test_a_record_from_before_the_settings_of_the_compiler_has_none() -> None:
    data = case_record(compile=True).to_json()
    assert data["params"].pop("compile_with") == ""
    assert CaseRecord.from_json(data).params == params(compile=True)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("params", [], "params: "),
        ("params", {"workload": "convnet"}, "params.phase: is missing"),
        (
            "params",
            {**dataclasses.asdict(params()), "batch_size": "16"},
            "params.batch_size: ",
        ),
        (
            "params",
            {**dataclasses.asdict(params()), "threads": 0},
            "file: threads 0 is below 1: give a number of threads",
        ),
        ("device_ns", [1, 2], "device_ns: "),
        (
            "device_ns",
            "[1,2",
            "device_ns: is not JSON (",
        ),
        ("rounds_ns", "[1,-1]", "file: rounds_ns needs times of at least 0 ns"),
        (
            "tables",
            [{"operations": "{}", "times": "{}", "samples": "{}"}],
            "tables[0].temperature: is missing",
        ),
        ("tables", ["{}"], "tables[0]: "),
        ("curves", '{"loss":[[1]]}', "curves[...][0]: "),
        ("attached", "[]", "attached: "),
    ],
)
def test_error_names_the_field_and_shows_the_value(field: str, value: object, message: str) -> None:
    assert error_of_case({**EVERY_PART.to_json(), field: value}).startswith(message)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("times", "first_of_process", 0, ".times.first_of_process: "),
        ("times", "self_ns", [-1], ".times: self_ns needs times of at least 0 ns"),
        ("operations", "calls", ["1"], ".operations.calls[0]: "),
        ("operations", "name", [], ".operations: has columns of different length"),
        ("", "temperature", "lukewarm", ".temperature: "),
    ],
)
def test_error_names_the_place_in_a_table(
    part: str, name: str, value: object, message: str
) -> None:
    data = EVERY_PART.to_json()
    table = data["tables"][0]
    table.update(
        {part: json.dumps({**json.loads(table[part]), name: value})} if part else {name: value}
    )
    assert error_of_case(data).startswith(f"tables[0]{message}")


def test_a_step_below_zero_is_named_by_the_member_that_has_it() -> None:
    """Curves are saved beside the other scalars, and read together with them."""
    curves = json.dumps({"train/loss": [[-1, 0.5]]})
    message = error_of_case({**EVERY_PART.to_json(), "curves": curves})
    assert message.startswith("curves: train/loss needs steps")


@given(spoiled(saved_file(EVERY_PART, mnistbench=run_header(MACHINE_WITH_EVERY_PART))))
@settings(ANY_SPEED, max_examples=500)
def test_a_spoiled_file_is_read_or_the_error_names_file_and_place(
    case: tuple[list[str | int], Any],
) -> None:
    path, data = case
    try:
        read = Run.from_json(through_a_file(data), "0001_base.json")
    except RecordError as error:
        source, _, rest = str(error).partition(": ")
        assert source == "0001_base.json"
        assert rest.endswith("; save the run again or leave the file out")
        assert_names_the_place(rest, path)
    else:
        assert isinstance(read, Run)


def assert_names_the_place(message: str, path: list[str | int]) -> None:
    """The message begins with the spoiled place, something inside it, or what it is part of."""
    named, _, complaint = message.partition(": ")
    named = named.partition("[...]")[0]  # a member whose name msgspec does not tell
    assert named
    assert complaint
    assert named.startswith(dotted(path)) or dotted(path).startswith(named)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "file: needs an object, found None"),
        ([], "file: needs an object, found []"),
        ("text", "file: needs an object, found 'text'"),
        ({}, "benchmarks: is missing"),
        ({"benchmarks": {}}, "benchmarks: "),
        ({"benchmarks": [], "mnistbench": {"schema": 1}}, "mnistbench.environment: is missing"),
        (
            saved_file(mnistbench={"schema": 1, "environment": {"mnistbench": 1}}),
            "mnistbench.environment.mnistbench: ",
        ),
    ],
)
def test_a_file_that_is_not_pytest_benchmarks_is_refused_by_name(
    data: object, message: str
) -> None:
    error = error_of_run(data)
    assert error.startswith(f"0001_base.json: {message}")
    assert error.endswith("; save the run again or leave the file out")


@pytest.mark.parametrize(
    "extra_info",
    [{}, {"extra_info": None}, {"extra_info": {}}, {"extra_info": {"mnistbench": "0.1"}}],
)
@pytest.mark.parametrize(
    "top",
    [
        {},
        {"commit_info": "1a2b3c4"},
        {"commit_info": None},
        {"datetime": None},
        {"datetime": "soon"},
    ],
)
def test_a_benchmark_without_a_record_and_an_origin_of_another_form_are_left_out(
    extra_info: Any, top: Any
) -> None:
    recorded = saved_file()["benchmarks"]
    run = Run.from_json(
        {
            **saved_file(),
            "benchmarks": [*recorded, {"name": "x", "stats": {}, **extra_info}],
            **top,
        },
        "x.json",
    )
    assert [case.node_id for case in run.cases] == [recorded[0]["fullname"]]
    assert run.short_commit == ("" if "commit_info" in top else "1a2b3c4")
    assert run.saved_at == ("" if "datetime" in top else saved_file()["datetime"])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-01-02T03:04:05.123456+00:00", "2026-01-02T03:04:05.123456+00:00"),
        ("2017-10-25T12:00:00.123456", "2017-10-25T12:00:00.123456"),  # pytest-benchmark 3, in UTC
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05+00:00"),
        ("2026-01-02 03:04:05", "2026-01-02T03:04:05"),
        (1_767_322_800, "2026-01-02T03:00:00+00:00"),
        (1e300, ""),
        (math.nan, ""),
        (True, ""),
        ("0001-01-01T00:00:00+02:00", ""),
        ("yesterday", ""),
        ([], ""),
    ],
)
def test_times_of_any_program_are_read_as_utc(written: object, read: str) -> None:
    assert Run.from_json(saved_file(datetime=written), "x.json").saved_at == read


@pytest.mark.parametrize("name", ["median", "iqr", "min", "mean", "stddev", "rounds"])
def test_a_missing_statistic_is_named(name: str) -> None:
    document = saved_file()
    del document["benchmarks"][0]["stats"][name]
    assert error_of_run(document).startswith(
        f"0001_base.json: benchmarks[0].stats.{name}: is missing"
    )


@pytest.mark.parametrize(
    "seconds", ["0.1", None, True, math.nan, 10**400, 1e308, -1], ids=lambda value: repr(value)[:20]
)
def test_a_statistic_is_a_time(seconds: object) -> None:
    document = saved_file()
    document["benchmarks"][0]["stats"]["median"] = seconds
    assert error_of_run(document).startswith("0001_base.json: benchmarks[0].stats.median: ")


# ---- what a conftest.py attaches -----------------------------------------------------------------


def error_of_attachments(attachments: Any) -> str:
    with pytest.raises(RecordError) as error:
        case_record().with_checked_attachments(attachments)
    assert "\n" not in str(error.value)
    return str(error.value)


COLD = op_table(temperature="cold")
WARM = op_table(temperature="warm")
ELSEWHERE = scalars(directory="elsewhere")


@pytest.mark.parametrize(
    ("before", "attachments", "after"),
    [
        (
            {"tables": (), "scalars": None},
            {"operation_tables": [COLD], "training_scalars": ELSEWHERE},
            {"tables": (COLD,), "scalars": ELSEWHERE},
        ),
        ({"tables": (COLD,)}, {"operation_tables": (WARM,)}, {"tables": (COLD, WARM)}),
        (
            {"notes": ("no profile",)},
            {"notes": ["no graph", "no images"]},
            {"notes": ("no profile", "no graph", "no images")},
        ),
        (
            {"attached": {"kept": 1, "replaced": 1}},
            {"replaced": [2], "gpu": {"clock": 1.5}},
            {"attached": {"kept": 1, "replaced": [2], "gpu": {"clock": 1.5}}},
        ),
        ({"notes": ("a note",)}, {}, {"notes": ("a note",)}),
    ],
)
def test_attachments_are_added_to_their_fields_and_change_nothing_else(
    before: dict[str, Any], attachments: dict[str, Any], after: dict[str, Any]
) -> None:
    assert case_record(**before).with_checked_attachments(attachments) == case_record(**after)


@given(st.dictionaries(TEXTS.map("lab: {}".format), json_values(), max_size=3))
@ANY_SPEED
def test_what_was_attached_is_what_is_read_back(attachments: dict[str, Any]) -> None:
    record = case_record().with_checked_attachments(attachments)
    assert record.attached == attachments
    assert CaseRecord.from_json(through_a_file(record.to_json()), record.timing) == record


def nested(depth: int) -> list[Any]:
    lists: list[Any] = []
    for _ in range(depth):
        lists = [lists]
    return lists


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "value",
    [{1, 2}, [1j], math.nan, ENDLESS, nested(100_000)],
    ids=["set", "complex", "nan", "endless", "deep"],
)
def test_a_value_that_is_not_json_is_refused_by_name(value: object) -> None:
    assert error_of_attachments({"gpu": value}).startswith("gpu: not JSON (")


@pytest.mark.parametrize(
    ("attachments", "message"),
    [
        *(
            ({"operation_tables": value}, "operation_tables needs a list of OpTable objects")
            for value in (None, op_table(), [op_table(), None])
        ),
        *(
            ({"notes": value}, "notes needs a list of texts")
            for value in ("one note", ["fine", None])
        ),
        *(
            (
                {"training_scalars": value},
                f"training_scalars needs a Scalars object, not {type(value).__name__}",
            )
            for value in ({"loss": 1}, 1.5)
        ),
        *(
            (value, f"attachments need a dict of names and values, not {type(value).__name__}")
            for value in (None, "gpu")
        ),
    ],
)
def test_attachments_of_another_type_are_refused(attachments: Any, message: str) -> None:
    assert error_of_attachments(attachments) == message


NOT_WHOLE: Any = (1.5, 2)


@pytest.mark.parametrize(
    ("attachments", "message"),
    [
        (
            {"training_scalars": scalars(final={"loss/train": math.nan})},
            "training_scalars: not JSON (",
        ),
        (
            {"training_scalars": scalars(directory=None)},
            "scalars.directory: ",
        ),
        (
            {"operation_tables": [op_table(iteration_ns=NOT_WHOLE)]},
            "tables[1].times.iteration_ns[0]: ",
        ),
        (
            {"operation_tables": [op_table(temperature="hot")]},
            "tables[1].temperature: ",
        ),
    ],
    ids=["scalar NaN", "scalar directory", "float times", "temperature"],
)
def test_attachments_that_could_not_be_read_back_are_refused(
    attachments: dict[str, Any], message: str
) -> None:
    assert error_of_attachments(attachments).startswith(message)


# ---- tables --------------------------------------------------------------------------------------

WARM_ON_DEVICE = op_table(op_row(self_device_ns=10), temperature="warm", view="device")


@pytest.mark.parametrize(
    ("tables", "asked", "expected"),
    [
        ((COLD, WARM), ("warm",), WARM),
        ((COLD, WARM_ON_DEVICE, WARM), ("warm",), WARM_ON_DEVICE),
        ((COLD, WARM, WARM_ON_DEVICE), ("warm", "host"), WARM),
        ((COLD, WARM, WARM_ON_DEVICE), ("cold",), COLD),
        ((COLD, WARM, WARM_ON_DEVICE), ("cold", "device"), None),
        ((), ("warm",), None),
    ],
)
def test_the_device_table_is_preferred_unless_a_view_is_asked_for(
    tables: tuple[OpTable, ...], asked: tuple[str, ...], expected: OpTable | None
) -> None:
    assert case_record(tables=tables).table(*asked) == expected


@pytest.mark.parametrize(
    ("view", "clock", "total"), [("host", "cpu", 20 + 3), ("device", "device", 7 + 6)]
)
def test_total_of_a_table_is_on_its_own_clock(view: str, clock: str, total: int) -> None:
    rows = (
        op_row(self_cpu_ns=(10, 40, 20), self_device_ns=(5, 9, 7)),
        op_row(self_cpu_ns=3, self_device_ns=6),
    )
    table = op_table(*rows, view=view)
    assert (table.clock, table.total_ns) == (clock, total)


def test_an_operation_is_identified_by_name_phase_and_module() -> None:
    assert op_row("aten::add", 5, phase="loss", module="fc2", calls=7).key == (
        "aten::add",
        "loss",
        "fc2",
    )
    assert op_row("aten::add").is_operation
    assert not op_row(OUTSIDE).is_operation


@pytest.mark.parametrize("busy", [(), (80, 90, 100)])
def test_busy_time_of_a_table_is_read_back(busy: tuple[int, ...]) -> None:
    table = op_table(op_row(self_device_ns=60), view="device", busy_ns=busy)
    assert CaseRecord.from_json(case_record(tables=(table,)).to_json()).tables == (table,)
    assert table.of_one_call(10).busy_ns == tuple(ns // 10 for ns in busy)


def test_the_same_case_is_the_same_test_and_identity() -> None:
    record = case_record(node_id="moved", tables=())
    assert record.key == case_record().key
    assert record.key != case_record(batch_size=64).key
    assert record.key != case_record(test="bench/test_step.py::test_other").key


# ---- numbers -------------------------------------------------------------------------------------


@given(st.lists(NANOSECONDS, max_size=30))
@ANY_SPEED
def test_median_and_quartiles_are_those_of_numpy(samples: list[int]) -> None:
    first, median, third = (
        round(float(value))
        for value in np.percentile(samples or [0], [25, 50, 75], method="linear")
    )
    assert (median_ns(iter(samples)), quartiles_ns(iter(samples))) == (median, (first, third))


@given(st.integers(min_value=0, max_value=5_000))
@ANY_SPEED
def test_a_long_curve_is_thinned_evenly_and_keeps_its_ends(length: int) -> None:
    thinned = thin(range(length))
    assert len(thinned) == min(length, MAX_POINTS)
    if length > 1:
        gaps = {later - earlier for earlier, later in pairwise(thinned)}
        assert (thinned[0], thinned[-1]) == (0, length - 1)
        assert min(gaps) >= 1
        assert max(gaps) - min(gaps) <= (length > MAX_POINTS)


def test_table_of_a_repeated_call_has_the_numbers_of_one_call() -> None:
    row = op_row("aten::mm", 40_006, calls=20, memory_bytes=-80)
    table = op_table(row, iteration_ns=100_004).of_one_call(10)
    [repeated] = table.rows
    assert (repeated.calls, repeated.memory_bytes) == (2, -8)
    assert set(repeated.self_cpu_ns) == set(repeated.total_cpu_ns) == {4_001}  # to the nearest
    assert set(table.iteration_ns) == {10_000}
    assert op_table(row).of_one_call(1) == op_table(row)


def test_the_calls_of_a_repeated_call_are_an_average_if_they_are_no_multiple() -> None:
    rows = [op_row("aten::mm", calls=20), op_row("aten::t", calls=21)]
    assert [row.varying for row in op_table(*rows).of_one_call(10).rows] == [(), ("calls",)]


def test_only_an_average_of_a_file_that_does_not_tell_has_a_fraction() -> None:
    saved = op_table(op_row(calls=1.5), op_row("aten::t", calls=2)).to_json()
    counts = json.loads(saved["operations"])
    del counts["varying"]
    read = OpTable.from_json({**saved, "operations": json.dumps(counts)})
    assert [row.varying for row in read.rows] == [("calls",), ()]


def test_a_total_is_the_self_time_and_the_share_that_the_calls_take_of_the_sum() -> None:
    """Three of five iterations are disturbed, each in another function."""
    outer = op_row("outer", (10, 10, 10, 10, 60), total_cpu_ns=(110, 160, 310, 110, 160))
    inner = op_row("inner", (50, 100, 50, 50, 50))
    leaf = op_row("leaf", (50, 50, 250, 50, 50))
    table = op_table(outer, inner, leaf, view="functions", iterations=5)
    assert (table.total_ns, median_ns(outer.total_cpu_ns)) == (110, 160)
    assert table.totals_ns == (110, 50, 50)


@given(op_tables())
@ANY_SPEED
def test_a_total_is_between_the_self_time_and_the_sum(table: OpTable) -> None:
    whole_ns = sum(row.self_ns("cpu") for row in table.rows)
    for row, total_ns in zip(table.rows, table.totals_ns, strict=True):
        assert row.self_ns("cpu") <= total_ns <= whole_ns
