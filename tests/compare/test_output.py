"""Reports in every format, against files in golden/."""

import dataclasses
import re

import builders
import pytest
import strategies
from builders import rendered
from hypothesis import given
from hypothesis import strategies as st
from shown_numbers import agree, half_a_last_digit, read_back

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.compare.report import blocks
from mnistbench.core import units
from mnistbench.core.machine import PINNED
from mnistbench.core.operation import IN_TORCH, OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.core.params import params_of_call
from mnistbench.judging.acceptance import Acceptance
from mnistbench.saved_runs.case_tables import case_tables
from mnistbench.showing.environment import environment_text
from mnistbench.showing.terminal import draw
from mnistbench.suite.op_benchmark.plugin import session_line


def step(batch_size, scale=1, **changes):
    """A step with operations in three phases, whose times grow with ``scale``.

    Some are only at batch 1.
    """
    rows = [
        builders.op_row("aten::mkldnn_convolution", 400_000 * scale, module="conv2"),
        builders.op_row(
            "aten::convolution_backward", 1_234_567 * scale, phase="backward", module="conv2"
        ),
        builders.op_row("aten::addmm", 90_000 * scale, module="fc1"),
        builders.op_row("aten::add_", 30_000, phase="optimizer", module="", calls=16),
        builders.op_row(
            "autograd::engine::evaluate_function: ConvolutionBackward0",
            3_000,
            phase="backward",
            module="conv2",
        ),
        builders.op_row(OUTSIDE, 250_000, phase="forward", module="", calls=0),
        builders.op_row(OUTSIDE, 50_000, phase="", module="", calls=0),
    ]
    if batch_size == 1:
        rows.append(builders.op_row("aten::_slow_conv2d_forward", 15_000, module="conv1"))
    return builders.case_record(
        batch_size=batch_size,
        tables=(builders.op_table(*rows),),
        timing=builders.timing(median_ns=2_000_000 * scale),
        **changes,
    )


def text(tables):
    return "\n\n".join(draw(table) for table in tables) + "\n"


def test_operations_of_a_run_stand_beside_each_other_by_batch_size(golden):
    golden(text(case_tables([step(16, 4), step(1)], top=3)), "operations.txt")


def parsed():
    """A call of Python with operations in it."""
    rows = [
        builders.function_row("Parser.read", (9_000, 10_000, 14_000), total_cpu_ns=730_000),
        builders.function_row("Parser.word", 450_000, calls=60, sources=["package/parse.py:30"]),
        builders.function_row("str.upper", 200_000, calls=60, module="builtins", sources=[]),
        builders.function_row(
            "read.<locals>.<lambda>", 8_000, calls=2, sources=["package/a.py:1", "package/a.py:2"]
        ),
        builders.function_row(IN_TORCH, 70_000, calls=0, module="", sources=[]),
    ]
    test = "bench/test_parse.py::test_parse"
    return builders.case_record(
        test=test,
        node_id=test,
        params=params_of_call(test, "cpu", 1),
        tables=(builders.op_table(*rows, view="functions"),),
        scalars=None,
        timing=builders.timing(median_ns=300_000),
    )


def test_functions_of_a_case_have_calls_times_and_lines(golden):
    golden(text(case_tables([parsed()], top=3)), "functions.txt")


def table_of_functions(*rows, wall_ns=300_000):
    record = dataclasses.replace(
        parsed(),
        tables=(builders.op_table(*rows, view="functions"),),
        timing=builders.timing(median_ns=wall_ns),
    )
    [table] = case_tables([record], top=3)
    return table


def test_calls_of_a_table_are_exact_only_where_each_iteration_has_the_same():
    word = builders.function_row("Parser.word", 450_000, calls=60)
    read = dataclasses.replace(builders.function_row(), varying=("calls",))
    assert table_of_functions(word).lines[0].endswith("; calls are exact")
    assert (
        table_of_functions(word, read)
        .lines[0]
        .endswith("; calls of 1 function are averages, because they differ from call to call")
    )


@pytest.mark.parametrize(
    ("wall_ns", "line"),
    [
        (300_000, ""),
        (899_000, ""),
        (7_900, "the profiled iterations took 57 times as long as without the profiler"),
        (23_000_000, "the functions take 2.0 % of the wall time without the profiler"),
    ],
)
def test_a_table_whose_sum_is_far_from_the_wall_time_says_so(wall_ns, line):
    _, *lines = table_of_functions(builders.function_row("f", 450_000), wall_ns=wall_ns).lines
    assert [text[: len(line)] for text in lines] == ([line] if line else [])


def test_a_table_of_operations_whose_sum_is_far_from_the_wall_time_names_the_column():
    slow = dataclasses.replace(step(16), timing=builders.timing(median_ns=10**9))
    [table] = case_tables([slow, step(1)], top=3)
    assert [line.partition(" of the wall")[0] for line in table.lines] == [
        "b16: the operations take 0.2 %"
    ]


def test_a_comparison_names_functions(golden):
    base = parsed()
    rows = {row.name: row for row in base.tables[0].rows}
    rows["Parser.word"] = builders.function_row(
        "Parser.word", 930_000, calls=123, sources=["package/parse.py:30"]
    )
    rows["Parser.peek"] = builders.function_row(
        "Parser.peek", 150_000, calls=60, sources=["package/parse.py:41"]
    )
    head = dataclasses.replace(
        base,
        tables=(builders.op_table(*rows.values(), view="functions"),),
        timing=builders.timing(median_ns=650_000),
    )
    golden(
        report([builders.summary(base)], builders.summary(head), **thresholds("10%")),
        "comparison_functions.txt",
    )


def test_a_case_with_operations_and_functions_has_both_tables():
    case = parsed()
    both = dataclasses.replace(case, tables=(*step(1).tables, *case.tables))
    operations, functions = case_tables([both], top=3)
    assert operations.headings[0] == "operation"
    assert functions.title == case_tables([case], top=3)[0].title


def test_each_column_adds_up():
    [table] = case_tables([step(1), step(16, 4)], top=2)
    for column in (3, 5):
        times = [row[column] for row in (*table.rows, *table.sums[:2]) if row[column] != "-"]
        total = table.sums[2][column]
        rounded = sum(map(half_a_last_digit, (*times, total)))
        assert abs(sum(map(read_back, times)) - read_back(total)) <= rounded


def test_other_phases_workloads_and_devices_have_tables_of_their_own():
    records = [
        step(1),
        step(1, device="cuda"),
        step(1, workload="lenet5"),
        step(1, phase="forward"),
        step(1, dataset="mnist"),
    ]
    tables = case_tables(records, top=3)
    assert len({table.title for table in tables}) == len(tables) == 5


def test_cases_without_tables_are_left_out():
    assert case_tables([builders.case_record(tables=())], top=3) == []


def on_accelerator(kernel_ns, elapsed_ns, alone_ns=15_000):
    """An iteration that is limited by launches, with a kernel that belongs to no operation."""
    rows = [
        builders.op_row("aten::mm", 700_000, self_device_ns=kernel_ns),
        builders.op_row("aten::add_", 400_000, phase="optimizer", module="", self_device_ns=5_000),
        builders.op_row(OUTSIDE, 100_000, phase="forward", module="", calls=0, self_device_ns=0),
        builders.op_row(RUNTIME, 300_000, phase="", module="", calls=412, self_device_ns=0),
        builders.op_row(UNATTRIBUTED, 0, phase="", module="", calls=3, self_device_ns=alone_ns),
    ]
    busy_ns = kernel_ns + 5_000 + alone_ns
    return builders.case_record(
        device="cuda",
        device_ns=(elapsed_ns,) * 3,
        tables=(builders.op_table(*rows, view="device", busy_ns=busy_ns),),
    )


def test_a_table_by_device_time_has_rows_of_busy_and_elapsed_time():
    [table] = case_tables([on_accelerator(20_000, 1_500_000)], top=3)
    assert "self device time" in table.title
    sums = {row[0]: row[3] for row in table.sums}
    assert (sums["unattributed kernels"], sums["sum of one profiled iteration"]) == (
        "15.0 us",
        "40.0 us",
    )
    assert (sums["device busy time"], sums["device elapsed time without the profiler"]) == (
        "40.0 us",
        "1.50 ms",
    )
    assert not {"outside operations", "runtime calls"} & set(sums)  # they are times of the host


def test_the_operations_of_an_accelerator_are_shown_as_parts_of_its_busy_time(golden):
    base = on_accelerator(20_000, 1_500_000)
    head = on_accelerator(29_000, 1_498_000, alone_ns=16_000)
    golden(
        report([builders.summary(base)], builders.summary(head), **thresholds("10%")),
        "comparison_accelerator.txt",
    )


def slower():
    """The step with a slower, a new and a vanished operation.

    Also twice the calls of one, and other final values.
    """
    rows = [
        builders.op_row("aten::mkldnn_convolution", 400_000, module="conv2"),
        builders.op_row("aten::convolution_backward", 2_234_567, phase="backward", module="conv2"),
        builders.op_row("aten::add_", 33_000, phase="optimizer", module="", calls=32),
        builders.op_row("aten::clone", 120_000, module="fc1"),
        builders.op_row(OUTSIDE, 249_000, phase="forward", module="", calls=0),
    ]
    return builders.case_record(
        tables=(builders.op_table(*rows),),
        timing=builders.timing(median_ns=3_100_000),
        scalars=builders.scalars(
            final={"train/loss": 1.25, "train/accuracy": 62.5, "timing/ms_per_iteration": 3.1}
        ),
    )


BEFORE = builders.scalars(
    final={"train/loss": 1.5, "train/accuracy": 50.0, "timing/ms_per_iteration": 2.0}
)


def report(bases, head, top=4, **criteria):
    by = criteria.get("by", "op,module")
    judgement = judge(compare(bases, head, by=by), Criteria(**criteria))
    return rendered(judgement, "terminal", top)


def thresholds(*texts):
    return {"op_fail": tuple(map(Threshold.parse, texts)), "case_fail": Threshold.parse("5%")}


@pytest.mark.parametrize(
    ("form", "ending"),
    [("terminal", "txt"), ("markdown", "markdown"), ("json", "json")],
)
def test_a_comparison_shows_what_each_operation_added_what_remains_and_the_verdicts(
    golden, form, ending
):
    base = builders.summary(step(16, scalars=BEFORE))
    head = builders.summary(slower(), saved_at="2026-11-21T09:00:00+00:00")
    judgement = judge(compare([base], head), Criteria(**thresholds("10%", "conv2:50%")))
    golden(rendered(judgement, form, 4), f"comparison.{ending}")


@pytest.mark.parametrize("by", ["op", "module"])
def test_a_comparison_by_operation_or_by_module_alone(golden, by):
    golden(
        report([builders.summary(step(16))], builders.summary(slower()), by=by),
        f"comparison_by_{by}.txt",
    )


def test_a_comparison_without_a_change_shares_nothing(golden):
    same = builders.summary(step(16, scalars=None))
    golden(report([same], same, top=2), "comparison_same.txt")


def test_cases_without_tables_share_one_that_names_where_their_operations_are(golden):
    train = builders.case_record(phase="train", tables=(), tables_in="step convnet-b16-cpu")
    slower_eval = [
        builders.case_record(
            phase="eval", tables=(), tables_in="", timing=builders.timing(median_ns=ns, iqr_ns=0)
        )
        for ns in (4_000, 5_000)
    ]
    golden(
        report([builders.summary(train, slower_eval[0])], builders.summary(train, slower_eval[1])),
        "comparison_whole_cases.txt",
    )


def test_other_differences_and_what_cannot_be_judged(golden):
    base = builders.summary(
        builders.case_record(),
        builders.case_record(batch_size=1),
        builders.case_record(batch_size=64),
        environment=builders.environment(torch="2.13.0", threads=2, allocator={}),
        dirty=True,
    )
    head = builders.summary(
        builders.case_record(threads=2, node_id=builders.case_record().node_id),
        builders.case_record(batch_size=1),
        builders.case_record(batch_size=128),
        environment=builders.environment(
            devices=({"device": "cuda", "name": "NVIDIA H200", "memory": "150000000000"},)
        ),
    )
    golden(report([base], head, **thresholds("10%")), "comparison_unjudged.txt")
    excused = report([base], head, **thresholds("10%"), allow_missing=True, allow_incomparable=True)
    assert excused.count("(passed over: --allow-missing)") == 2
    assert excused.count("(passed over: --allow-incomparable)") == 3
    in_pytest = report([base], head, **thresholds("10%"), allow_missing=True, in_pytest=True)
    assert in_pytest.count("(passed over: --op-allow-missing)") == 2
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", in_pytest))
    assert options == {"--op-allow-missing", "--op-across-versions", "--bench-threads"}


def test_with_eight_base_runs_the_report_has_the_minimum_detectable_change(golden):
    bases = builders.base_runs(8, 100_000, 102_000, 101_000, 99_000)
    golden(
        report(bases, builders.base_runs(1, 140_000)[0], **thresholds("10%")),
        "comparison_by_runs.txt",
    )


def test_an_accepted_regression_is_echoed_with_its_reason(golden):
    patterns = ("step convnet-b16-cpu:aten::mm:60%", "*:aten::gone:5%")
    accepted = {
        "accept": tuple(map(Acceptance.parse, patterns)),
        "reason": "the new kernel is exact",
    }
    bases = builders.base_runs(1, 3_000_000)
    criteria = {**thresholds("10%"), "case_fail": Threshold.parse("10%"), **accepted}
    golden(
        report(bases, builders.base_runs(1, 4_500_000)[0], **criteria), "comparison_accepted.txt"
    )


def varying(factor, head=(1, 1, 1), **changes):
    """A run of three operations: the first differs from run to run."""
    times = (1_000_000 * factor * head[0], 800_000 * head[1], 600_000 * head[2])
    rows = [
        builders.op_row(f"aten::{name}", round(ns))
        for name, ns in zip(("mm", "conv", "add"), times, strict=True)
    ]
    return builders.summary(builders.case_record(tables=(builders.op_table(*rows),)), **changes)


def test_what_could_not_be_judged_is_named_with_what_to_do_about_it(golden):
    bases = [varying(factor) for factor in (1, 1.5, 0.8, 1.2) * 2]
    left_out = [
        varying(1, commit="f" * 40),
        varying(1, environment=builders.environment(cpu_count=8)),
        varying(1, dirty=True),
    ]
    accepted = {
        "accept": (Acceptance.parse("*:aten::conv:5%"),),
        "reason": "the new kernel is exact",
    }
    judged = [*left_out, *bases], varying(1.4, (1, 1.3, 1.415))
    golden(report(*judged, **thresholds("10%"), **accepted), "comparison_undecided.txt")
    assert "(passed over: --inconclusive warn)\n" in report(
        *judged, **thresholds("10%"), **accepted, inconclusive="warn"
    )


@pytest.mark.parametrize(("slower", "text"), [(1, "all within 10.0 %"), (0.5, "some improved")])
def test_operations_that_are_not_shown_have_their_most_serious_verdict(slower, text):
    lines = report([varying(1)], varying(1, (1, slower, 1)), top=0).splitlines()
    assert next(line for line in lines if line.startswith("not shown (3 operations)")).endswith(
        text
    )


def test_cases_that_have_other_base_runs_are_told_apart():
    step, small, large = (builders.case_record(batch_size=size) for size in (16, 1, 64))
    bases = [builders.summary(step, small, large)] * 2 + [
        builders.summary(step),
        builders.summary(step, commit=""),
    ]
    lines = [
        line
        for line in report(bases, builders.summary(step, small, large)).splitlines()
        if "base runs used" in line
    ]
    assert lines == [
        "base runs used for step convnet-b16-cpu on digits: 1 of 4; left out: 3 (other commit)",
        "base runs used for 2 cases: 2 of 4, commit 1a2b3c4; left out: 2 (without the case)",
    ]


def test_passing_by_the_rule_of_runs_states_the_minimum_detectable_change():
    bases = builders.base_runs(8, 1_000_000, 1_500_000, 800_000, 1_200_000)
    assert report(bases, bases[0], **thresholds("90%")).endswith(
        "thresholds: passed (minimum detectable change up to 85.2 %)\n"
    )
    noisy = report(
        bases, builders.base_runs(1, 1_400_000)[0], **thresholds("10%"), inconclusive="warn"
    )
    assert noisy.endswith("thresholds: passed, 1 inconclusive\n")


def test_a_case_that_cannot_be_judged_is_named_with_its_limit_and_what_to_do():
    bases = builders.base_runs(8, 1_000_000, 1_500_000, 800_000, 1_200_000)
    lines = report(bases, bases[0], **thresholds("10%")).splitlines()
    assert lines[-1] == "thresholds: inconclusive: 1"
    assert lines[-2] == (
        "inconclusive: aten::mm, forward fc1 (step convnet-b16-cpu on digits), 1.10 ms -> 1.00 "
        "ms, -9.1 %; -1.3 % of the iteration; the limit is 10.0 %, the minimum detectable change "
        "85.2 %; save more base runs or measure on a quieter machine, give a larger limit, or add "
        "--inconclusive warn"
    )


def test_small_operations_that_cannot_be_judged_are_counted_after_a_pass():
    def few(factor):
        small = (("mm", 300_000, "fc1"), ("add", 200_000, "conv2"))
        rows = [
            builders.op_row(f"aten::{name}", round(ns * factor), module=module)
            for name, ns, module in small
        ]
        return builders.summary(builders.case_record(tables=(builders.op_table(*rows),)))

    runs = [few(factor) for factor in (1, 1.5, 0.8, 1.2) * 2]
    which = (
        "the largest being aten::mm, forward fc1 (step convnet-b16-cpu on digits): minimum "
        "detectable change 99.2 %"
    )
    assert report(runs, runs[0], **thresholds("10%")).splitlines()[-1] == (
        f"thresholds: passed; 2 small operations cannot be judged at 10.0 %, {which}"
    )
    assert "1 small operation cannot be judged at 10.0 %" in report(
        runs, runs[0], **thresholds("aten::mm:120%", "10%")
    )
    assert "2 small operations cannot be judged at their limits" in report(
        runs, runs[0], **thresholds("fc1:20%", "10%")
    )


def test_environment_text(golden):
    device = {"device": "cuda", "name": "NVIDIA H200", "memory": "150000000000", "driver": "580.1"}
    golden(
        environment_text(builders.environment(devices=(device,), allocator=PINNED)) + "\n",
        "environment.txt",
    )


def test_environment_without_an_accelerator_says_so():
    assert "accelerator  none available to torch" in environment_text(builders.environment())


def test_session_line():
    environment = builders.environment(threads=2, allocator=PINNED)
    assert session_line(environment, "digits", ["cpu", "cuda"]) == (
        "mnistbench: torch 2.15.0, cpu, cuda, 2 threads, digits; allocator pinned"
    )


def test_the_table_of_a_plain_test_is_named_by_it_and_has_no_batch_size():
    record = builders.case_record(params=params_of_call("test_own.py::test_mm", "cpu", 1))
    [table] = case_tables([record], top=2)
    assert table.title == "test_own.py::test_mm, cpu: self CPU time per iteration"
    assert table.headings == ["operation", "phase", "module", "time", "share"]


def test_the_smallest_changes_of_a_replacement_are_one_row_and_all_add_up():
    parts = [builders.op_row(f"my::part{number}", 200_000 - number) for number in range(30)]
    base, head = (
        builders.summary(
            builders.case_record(tables=(builders.op_table(*rows),)), commit=commit * 40
        )
        for rows, commit in ((parts, "1"), ([builders.op_row("my::fused", 9_000_000)], "2"))
    )
    judgement = judge(compare([base], head), Criteria())
    [table] = [table for block in blocks(judgement, 4) for table in block.tables]
    assert [(cells[0], cells[-1]) for cells in table.cells] == [
        ("my::fused", "regressed"),
        ("my::part0", "included above"),
        ("my::part1", "included above"),
        ("28 more operations", "included above"),
    ]
    differences = [cells[5] for cells in table.cells]
    expected_ns = 9_000_000 - sum(200_000 - number for number in range(30))
    assert abs(sum(map(read_back, differences)) - expected_ns) <= sum(
        map(half_a_last_digit, differences)
    )


def shown_rows(judgement):
    """Base, head, difference and change of each row of the report that has both sides."""
    for table in (table for block in blocks(judgement, 50) for table in block.tables):
        for cells in (*table.cells, *table.sum_cells):
            row = dict(zip(table.headings, cells, strict=True))
            if units.MISSING not in (row["base"], row["head"], row["change"]) and row["base"]:
                yield row["base"], row["head"], row["difference"], row["change"]


@given(strategies.case_records(), strategies.case_records(), st.integers(0, 10_000))
@strategies.ANY_SPEED
def test_base_head_and_difference_of_each_row_give_its_change(base, head, profiler_ns):
    tables = [
        tuple(dataclasses.replace(table, profiler_ns=profiler_ns) for table in case.tables)
        for case in (base, head)
    ]
    same_case = {
        "test": base.test,
        "params": base.params,
        "timing": head.timing or builders.timing(),
    }
    base = dataclasses.replace(base, timing=base.timing or builders.timing(), tables=tables[0])
    head = dataclasses.replace(head, **same_case, tables=tables[1])
    judgement = judge(compare([builders.summary(base)], builders.summary(head)), Criteria())
    for before, after, difference, change in shown_rows(judgement):
        assert agree(before, after, change)
        rounded = sum(map(half_a_last_digit, (before, after, difference)))
        assert abs(read_back(after) - read_back(before) - read_back(difference)) <= rounded
