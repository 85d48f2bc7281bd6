"""Tables of saved runs, drawn ones against files in golden/."""

from pathlib import Path

import builders
import pytest

from mnistbench.core.errors import UsageError
from mnistbench.core.operation import OUTSIDE
from mnistbench.saved_runs.report import SPARKS, history_table, list_table, run_csv, sparkline
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SavedRun
from mnistbench.showing.terminal import draw

CASE = "step convnet-b16-cpu"


def step(scale=1.0, **changes):
    """A step whose one large operation and whose iteration take ``scale`` as long."""
    rows = (
        builders.op_row(
            "aten::convolution_backward", round(1_234_567 * scale), phase="backward", module="conv2"
        ),
        builders.op_row("aten::addmm", 90_000, module="fc1"),
        builders.op_row("aten::addmm", 45_000, module="fc2"),
        builders.op_row("aten::add_", 3_000, phase="optimizer", module="", calls=16),
        builders.op_row(OUTSIDE, 250_000, module="", calls=0),
    )
    changes.setdefault("tables", (builders.op_table(*rows, profiler_ns=100),))
    return builders.case_record(
        timing=builders.timing(median_ns=round(2_000_000 * scale)), **changes
    )


def saved(number, *cases, name="base", **changes):
    changes.setdefault("saved_at", f"2026-11-20T10:{number % 60:02}:00+00:00")
    return SavedRun(
        Path(f".benchmarks/{number:04}_{name}.json"), builders.summary(*cases, **changes)
    )


def series():
    """Five runs: torch changed with the third, another machine made the fourth."""
    newer = builders.environment(torch="2.16.0")
    h200 = {"device": "cuda", "name": "NVIDIA H200"}
    other = builders.environment(
        torch="2.16.0", cpu_model="Apple M4", cpu_count=10, devices=(h200,)
    )
    return [
        saved(1, step(1.0)),
        saved(2, step(1.02), dirty=True),
        saved(3, step(1.5), environment=newer, commit="9f8e7d6c5b4a"),
        saved(4, step(0.7), environment=other),
        saved(
            5, step(1.5), builders.case_record(batch_size=64), branch="faster", environment=newer
        ),
    ]


def plain(**changes):
    """A file of pytest-benchmark alone, from outside a repository."""
    benchmark = {**builders.saved_benchmark(builders.case_record()), "extra_info": {}}
    document = builders.saved_file(
        benchmarks=[benchmark], commit_info={"id": "unversioned", "branch": "unknown"}, **changes
    )
    del document["mnistbench"]
    return SavedRun(Path("run.json"), Run.from_json(document, "run.json"))


# ---- the list ------------------------------------------------------------------------------------


def test_the_list_says_of_each_run_what_it_is_and_whether_it_can_be_compared(golden):
    golden(draw(list_table([plain(), *series()])) + "\n", "list.txt")


def test_one_run_is_listed_in_the_singular():
    table = list_table([saved(1)])
    assert table.title == "1 saved run"
    assert table.cells == [
        [
            "0001",
            "base",
            "2026-11-20 10:01",
            "1a2b3c4",
            "main",
            "AMD EPYC 9R14 x 2",
            "2.15.0",
            "1",
            "yes",
        ]
    ]


def test_a_run_that_cannot_be_compared_with_the_newest_says_why():
    older = saved(1, environment=builders.environment(cpu_count=4, threads=2, platform="Linux 6.9"))
    assert [row[-1] for row in list_table([older, saved(2)]).cells] == [
        "no: different cpu count, threads",
        "yes",
    ]


def test_what_a_file_does_not_say_is_a_dash():
    [row] = list_table([plain(machine_info={}, datetime=None)]).cells
    assert row == ["run.json", "-", "-", "-", "-", "-", "1", "yes"]


# ---- the history ---------------------------------------------------------------------------------


def test_the_history_of_an_iteration_shows_each_change_and_what_else_changed(golden):
    golden(draw(history_table(series(), CASE, "", "")) + "\n", "history.txt")


def times(*arguments, runs=None):
    return [row[3] for row in history_table(runs or series()[:2], *arguments).cells]


def test_operations_of_a_name_are_summed_without_the_overhead_of_the_profiler():
    # 90 + 45 us, less 100 ns for each of two calls.
    assert times(CASE, "aten::addmm", "") == ["135 us", "135 us"]
    assert times(CASE, "aten::addmm", "fc2") == ["44.9 us", "44.9 us"]
    assert times(CASE, "", "conv2") == ["1.23 ms", "1.26 ms"]
    assert times(CASE, "aten::add_", "") == ["1.40 us", "1.40 us"]


def test_the_history_of_an_operation_on_an_accelerator_is_of_its_own_clock():
    tables = (
        builders.op_table(
            builders.op_row("aten::mm", 5_000, self_device_ns=800_000),
            view="device",
            profiler_ns=100,
        ),
        builders.op_table(builders.op_row("aten::mm", 6_000)),
    )
    assert times(
        CASE.replace("cpu", "cuda"),
        "aten::mm",
        "",
        runs=[saved(1, step(device="cuda", tables=tables))],
    ) == ["800 us"]


def with_functions(number=1):
    functions = builders.op_table(
        builders.function_row("Parser.read", 20_000 * number, calls=3), view="functions"
    )
    return saved(number, step(tables=(*step().tables, functions)))


def test_the_history_of_a_function_is_that_of_an_operation():
    runs = [with_functions(1), with_functions(2)]
    assert times(CASE, "Parser.read", "", runs=runs) == ["20.0 us", "40.0 us"]
    assert times(CASE, "", "package.parse", runs=runs) == ["20.0 us", "40.0 us"]
    assert times(CASE, "aten::add_", "", runs=runs) == ["1.40 us", "1.40 us"]


@pytest.mark.parametrize(
    "name",
    [
        CASE,
        f"{CASE} on digits",
        "bench/test_step.py::test_step[convnet-b16-cpu]",
        "test_step[convnet-b16-cpu]",
    ],
)
def test_a_case_is_found_by_each_of_its_names(name):
    assert history_table(series(), name, "", "").title.startswith(
        f"{CASE} on digits: wall time of one iteration\n"
    )
    assert times(name, "", "") == ["2.00 ms", "2.04 ms"]


def test_runs_without_the_case_or_the_operation_are_left_out():
    runs = [
        saved(1, builders.case_record(batch_size=1)),
        saved(2, step()),
        saved(3, step(tables=())),
    ]
    assert [row[0] for row in history_table(runs, CASE, "", "").cells] == ["0002", "0003"]
    assert [row[0] for row in history_table(runs, CASE, "aten::addmm", "").cells] == ["0002"]


def test_no_change_is_shown_for_the_first_run_nor_after_a_time_of_zero():
    runs = [saved(number, step(scale)) for number, scale in enumerate((0, 1, 0.5), 1)]
    assert [row[4] for row in history_table(runs, CASE, "", "").cells] == ["-", "-", "-50.0 %"]


def refused(*arguments, runs=None):
    with pytest.raises(UsageError) as error:
        history_table(runs or series(), *arguments)
    return str(error.value)


def test_an_unknown_case_is_refused_with_those_there_are():
    assert refused("step gone", "", "") == (
        "no saved run has case 'step gone'; cases: step convnet-b16-cpu on digits, step "
        "convnet-b64-cpu on digits"
    )


def test_an_unknown_operation_is_refused_with_those_of_the_nearest_names():
    assert refused(CASE, "aten::adm", "conv9") == (
        f"no saved run has case '{CASE}' with operation 'aten::adm' in 'conv9'; its operations "
        "with similar names: aten::addmm, aten::add_, aten::convolution_backward, (outside "
        "operations)"
    )
    nothing = refused(CASE, "aten::mm", "", runs=[saved(1, step(tables=()))])
    assert nothing.endswith("; its operations with similar names: none")


def test_an_unknown_module_of_a_known_operation_is_refused_with_the_nearest_modules():
    assert refused(CASE, "aten::addmm", "fc").endswith(
        "; its modules with similar names: fc2, fc1, conv2"
    )


def test_a_name_of_two_cases_is_refused_with_both():
    runs = [saved(1, step(), step(dataset="mnist"))]
    assert (
        refused(CASE, "", "", runs=runs)
        == f"'{CASE}' is 2 cases: {CASE} on digits, {CASE} on mnist; name one"
    )


def test_two_tests_of_one_case_are_no_series_and_each_has_its_own_by_its_node_id():
    other = step(2.0, test="bench/test_b.py::test_b", node_id="bench/test_b.py::test_b")
    runs = [saved(1, step(), other), saved(2, other, step())]
    assert refused(CASE, "", "", runs=runs) == (
        f"'{CASE}' is 2 cases: bench/test_b.py::test_b, "
        "bench/test_step.py::test_step[convnet-b16-cpu]; name one"
    )
    assert times("test_b", "", "", runs=runs) == ["4.00 ms", "4.00 ms"]


def test_a_case_whose_test_was_renamed_is_one_series():
    renamed = step(2.0, test="bench/test_new.py::test_step", node_id="bench/test_new.py::test_step")
    assert times(CASE, "", "", runs=[saved(1, step()), saved(2, renamed)]) == ["2.00 ms", "4.00 ms"]


# ---- sparklines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([5], "▁"),
        ([5, 5, 5], "▁▁▁"),
        ([-10, 0, 10], "▁▅█"),
        ([10**18, 10**18 + 7], "▁█"),
        ([0.1, 0.3, 0.30000000000000004], "▁██"),
    ],
)
def test_a_sparkline_goes_from_the_smallest_to_the_largest(values, line):
    assert sparkline(values) == line


def test_a_long_series_has_a_mark_for_the_median_of_each_part():
    # One outlier in a part of ten must not be what the part shows.
    values = [1.0] * 300 + [2.0] * 300
    values[5] = 50.0
    assert sparkline(values) == "▁" * 30 + "█" * 30


@pytest.mark.parametrize("count", [SPARKS, SPARKS + 1, 1_000])
def test_a_sparkline_is_never_wider_than_its_limit_and_leaves_no_run_out(count):
    line = sparkline(list(range(count)))
    assert len(line) == min(count, SPARKS)
    assert (line[0], line[-1]) == ("▁", "█")
    assert list(line) == sorted(line)


# ---- CSV -----------------------------------------------------------------------------------------


def test_times_below_a_nanosecond_keep_their_fractions():
    seconds_of_runs = (0.40e-9, 0.49e-9)
    runs = [
        SavedRun(Path(f"{number:04}_x.json"), builders.plain_summary("test_x", seconds))
        for number, seconds in enumerate(seconds_of_runs, 1)
    ]
    table = history_table(runs, "test_x", "", "")
    assert table.title.endswith("0.40 ns to 0.49 ns")
    assert [row.change for row in table.rows] == [None, pytest.approx(0.225)]
    assert run_csv(runs[0].run).splitlines()[1] == "test_x,(iteration),,,,0.4,0.0,,wall"


def test_functions_are_rows_of_the_csv_after_the_operations():
    *operations, function = run_csv(with_functions().run).splitlines()
    assert function == f"{CASE} on digits,Parser.read,,package.parse,3.0,20000,0,0,cpu"
    assert operations == run_csv(saved(1, step()).run).splitlines()


def test_one_run_as_csv_has_a_row_per_iteration_and_operation(golden):
    run = builders.summary(step(), builders.case_record(phase="train", tables=()))
    golden(run_csv(run), "run.csv")
