import dataclasses
import functools

import builders
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.compare.diff import BUSY_TIME, ITERATION_TIME, compare
from mnistbench.compare.pairing import first_with_form, other_settings
from mnistbench.core.operation import IN_TORCH, OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.core.options import GROUPINGS


def only_case(base, head):
    [case] = compare([builders.summary(base)], builders.summary(head)).cases
    return case


def test_changes_of_operations_and_the_remainder_add_up_to_that_of_the_call():
    base = builders.case_record(
        tables=(
            builders.op_table(
                builders.op_row("aten::mm", 100_000),
                builders.op_row("aten::add", 50_000, module=""),
            ),
        ),
        timing=builders.timing(median_ns=1_000_000),
    )
    head = builders.case_record(
        tables=(
            builders.op_table(
                builders.op_row("aten::mm", 340_000), builders.op_row("aten::mul", 5_000, module="")
            ),
        ),
        timing=builders.timing(median_ns=1_250_000),
    )
    case = only_case(base, head)
    assert [(change.name, change.change_ns) for change in case.changes] == [
        ("aten::mm", 240_000),
        ("aten::add", -50_000),
        ("aten::mul", 5_000),
    ]
    assert case.operations.change_ns - case.operations.remainder_ns == 195_000
    assert case.change_ns == 250_000
    assert case.operations.remainder_ns == 55_000


@given(strategies.case_records(), strategies.case_records(), st.sampled_from(GROUPINGS))
@strategies.ANY_SPEED
def test_changes_always_add_up(base, head, by):
    same_case = {
        "test": base.test,
        "params": base.params,
        "timing": head.timing or builders.timing(),
    }
    base = dataclasses.replace(base, timing=base.timing or builders.timing())
    comparison = compare(
        [builders.summary(base)], builders.summary(dataclasses.replace(head, **same_case)), by=by
    )
    for case in comparison.cases:
        explained_ns = sum(change.change_ns for change in case.operations.parts)
        # The time of the iteration has fractions of a nanosecond.
        assert explained_ns + case.operations.remainder_ns == pytest.approx(
            case.operations.change_ns, rel=1e-9, abs=1e-3
        )
        is_busy = case.operations.name == BUSY_TIME
        assert is_busy or case.operations.change_ns == case.change_ns


def test_new_and_vanished_operations_have_one_side_only():
    base = builders.case_record(tables=(builders.op_table(builders.op_row("aten::add", 7)),))
    head = builders.case_record(
        tables=(builders.op_table(builders.op_row("aten::mul", 9, calls=2)),)
    )
    mul, add = only_case(base, head).changes
    assert (mul.base_ns, mul.head_ns, mul.base, mul.head.calls) == (None, 9, None, 2)
    assert (add.base_ns, add.head_ns, add.base.calls, add.head) == (7, None, 1, None)


def test_one_name_in_two_modules_is_two_operations():
    rows = [
        builders.op_row("aten::addmm", 10, module="fc1"),
        builders.op_row("aten::addmm", 20, module="fc2"),
    ]
    slower = [
        builders.op_row("aten::addmm", 10, module="fc1"),
        builders.op_row("aten::addmm", 25, module="fc2"),
    ]
    case = only_case(
        builders.case_record(tables=(builders.op_table(*rows),)),
        builders.case_record(tables=(builders.op_table(*slower),)),
    )
    assert [(change.module, change.change_ns) for change in case.changes] == [
        ("fc2", 5),
        ("fc1", 0),
    ]


@pytest.mark.parametrize(
    "change", [{"batch_size": 64}, {"seed": 2}, {"workload": "lenet5"}], ids=str
)
def test_a_case_is_the_same_only_with_equal_params(change):
    comparison = compare(
        [builders.summary(builders.case_record())], builders.summary(builders.case_record(**change))
    )
    assert comparison.cases == ()
    [(_, missing_case)] = comparison.only_base
    assert bool(other_settings(missing_case, first_with_form(comparison.only_head))) == (
        "seed" in change
    )


def test_a_renamed_test_is_the_same_case():
    renamed = builders.case_record(
        test="bench/test_step.py::test_other", node_id="bench/test_step.py::test_other[x]"
    )
    [case] = compare([builders.summary()], builders.summary(renamed)).cases
    assert case.renamed_from == builders.case_record().node_id


def test_of_two_tests_with_the_same_params_none_is_renamed():
    head = [
        builders.case_record(test=f"bench/test_step.py::{name}", node_id=f"{name}[x]")
        for name in ("test_a", "test_b")
    ]
    comparison = compare([builders.summary()], builders.summary(*head))
    assert comparison.cases == ()
    assert len(comparison.only_head) == 2


def test_another_node_id_alone_is_no_renaming():
    [case] = compare(
        [builders.summary()], builders.summary(builders.case_record(node_id="elsewhere[x]"))
    ).cases
    assert case.renamed_from == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"threads": 4, "node_id": builders.case_record().node_id}, {"threads": (1, 4)}),
        ({"dtype": "bfloat16"}, {"dtype": ("float32", "bfloat16")}),  # its id differs, too
    ],
    ids=["threads", "dtype"],
)
def test_a_missing_case_that_the_head_has_with_other_settings_is_hinted_at(changes, expected):
    head = builders.case_record(**changes)
    comparison = compare([builders.summary()], builders.summary(head))
    [(_, missing_case)] = comparison.only_base
    assert other_settings(missing_case, first_with_form(comparison.only_head)) == expected
    assert (
        other_settings(missing_case, first_with_form([builders.case_record(batch_size=64)])) == {}
    )


def test_differences_of_the_environment_are_named_base_first():
    base = builders.summary(environment=builders.environment(torch="2.13.0"))
    head = builders.summary(environment=builders.environment(torch="2.15.0", cpu_count=4))
    assert compare([base], head).environment == {"torch": ("2.13.0", "2.15.0"), "cpu_count": (2, 4)}


def test_the_overhead_of_the_profiler_is_subtracted_per_call():
    watched = [
        builders.case_record(
            tables=(
                builders.op_table(builders.op_row("aten::mm", ns, calls=calls), profiler_ns=300),
            ),
        )
        for ns, calls in ((10_000, 2), (13_000, 12))
    ]
    [change] = only_case(*watched).changes
    assert (change.base_ns, change.head_ns, change.change_ns) == (9_400, 9_400, 0)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            "op,module",
            {
                ("aten::mm", "forward", "fc1"),
                ("aten::mm", "backward", "fc1"),
                ("aten::mm", "forward", "fc2"),
            },
        ),
        ("op", {("aten::mm", "", "")}),
        ("module", {("", "forward", "fc1"), ("", "backward", "fc1"), ("", "forward", "fc2")}),
    ],
)
def test_operations_are_summed_as_the_option_asks(by, expected):
    rows = [
        builders.op_row("aten::mm", 10, module="fc1"),
        builders.op_row("aten::mm", 20, module="fc1", phase="backward"),
        builders.op_row("aten::mm", 40, module="fc2"),
    ]
    record = builders.case_record(tables=(builders.op_table(*rows),))
    [case] = compare([builders.summary(record)], builders.summary(record), by=by).cases
    assert {(change.name, change.phase, change.module) for change in case.changes} == expected
    assert sum(change.head_ns for change in case.changes) == 70


def test_several_base_runs_count_by_their_median():
    bases = builders.base_runs(3, 100, 400, 200)
    [case] = compare(bases, builders.base_runs(1, 250)[0]).cases
    assert case.changes[0].base_runs == (100, 400, 200)
    assert case.changes[0].change_ns == 50
    assert case.bases.times_ns == (7_500_000,) * 3


@pytest.mark.parametrize(
    ("with_it", "base_runs"), [((True, True, False), (100, 100, 0)), ((True, False, False), ())]
)
def test_an_operation_is_new_if_most_base_runs_are_without_it(with_it, base_runs):
    mm = builders.op_row("aten::mm", 100)
    relu = builders.op_row("aten::relu", 100)
    bases = [
        builders.summary(
            builders.case_record(tables=(builders.op_table(mm, *([relu] if has else [])),))
        )
        for has in with_it
    ]
    head = builders.summary(builders.case_record(tables=(builders.op_table(mm, relu),)))
    [case] = compare(bases, head).cases
    [change] = [change for change in case.changes if change.name == "aten::relu"]
    assert (change.base_runs, change.base is None) == (base_runs, not base_runs)


def test_without_a_comparable_base_run_the_newest_is_used_with_the_reason():
    bases = [
        builders.summary(environment=builders.environment(cpu_count=count)) for count in (8, 4)
    ]
    [case] = compare(bases, builders.summary()).cases
    assert case.incomparable == {"cpu_count": (4, 2)}
    assert case.changes


def test_runs_of_other_machines_or_versions_are_compared_only_when_asked():
    base = builders.summary(
        environment=builders.environment(cpu_model="Intel Xeon", torch="2.15.0")
    )
    cpus = {"cpu_model": ("Intel Xeon", "AMD EPYC 9R14")}
    [case] = compare([base], builders.summary()).cases
    assert (case.incomparable, case.across_machines) == (cpus, {})
    [case] = compare([base], builders.summary(), across_machines=True).cases
    assert (case.incomparable, case.across_machines) == ({}, cpus)
    older = builders.summary(environment=builders.environment(torch="2.13.0"))
    [case] = compare([older], builders.summary()).cases
    assert (case.incomparable, case.changes) == ({"torch": ("2.13.0", "2.15.0")}, ())
    [case] = compare([older], builders.summary(), across_versions=True).cases
    assert (case.incomparable, case.across_machines, bool(case.changes)) == ({}, {}, True)
    [same] = compare([builders.summary()], builders.summary(), across_machines=True).cases
    assert same.across_machines == {}


@pytest.mark.parametrize("name", ["across_versions", "across_machines"])
def test_runs_of_a_commit_on_two_machines_or_versions_are_no_common_base(name):
    other_environment = (
        builders.environment(torch="2.13.0")
        if name == "across_versions"
        else builders.environment(cpu_model="Intel Xeon")
    )
    bases = [
        saved(1, environment=other_environment),
        saved(2),
        saved(3, environment=other_environment),
        saved(4, environment=other_environment),
    ]
    [case] = compare(bases, builders.summary(), **{name: True}).cases
    assert (minutes(case.bases.runs), case.bases.left_out) == (
        [1, 3, 4],
        {"another machine or software": 1},
    )


STEP = builders.case_record()
SMALL = builders.case_record(batch_size=1)
OTHER = "f" * 40


def saved(minute, *cases, **changes):
    """A base run of these cases, saved in this minute."""
    return builders.summary(*cases, saved_at=f"2026-11-20T10:{minute:02}:00+00:00", **changes)


def minutes(runs):
    return [int(run.minute[-2:]) for run in runs]


def missing(comparison):
    return [(case.node_id, int(run.minute[-2:])) for run, case in comparison.only_base]


def test_each_case_is_compared_with_the_newest_base_run_that_has_it():
    bases = [*(saved(minute, STEP, SMALL) for minute in range(8)), saved(8, STEP)]
    step, small = compare(bases, builders.summary(STEP, SMALL)).cases
    assert (minutes(step.bases.runs), step.bases.left_out) == ([*range(9)], {})
    assert (minutes(small.bases.runs), small.bases.left_out) == (
        [*range(8)],
        {"without the case": 1},
    )


def test_missing_cases_are_those_of_any_base_run_with_the_run_that_had_them_last():
    large = builders.case_record(batch_size=64)
    comparison = compare(
        [saved(1, STEP, SMALL, large), saved(2, STEP, SMALL), saved(3, STEP)],
        builders.summary(STEP),
    )
    assert missing(comparison) == [(SMALL.node_id, 2), (large.node_id, 1)]
    assert comparison.only_head == ()


def test_an_earlier_name_of_a_case_is_not_missing():
    renamed = builders.case_record(
        test="bench/test_step.py::test_old", node_id="bench/test_step.py::test_old[x]"
    )
    comparison = compare([saved(1, renamed), saved(2, STEP)], builders.summary(STEP))
    assert (missing(comparison), minutes(comparison.cases[0].bases.runs)) == ([], [2])
    # Two tests that ran in one session are two cases.
    comparison = compare([saved(1, renamed, STEP), saved(2, STEP)], builders.summary(STEP))
    assert missing(comparison) == [(renamed.node_id, 1)]


def test_a_case_that_was_renamed_twice_is_compared_with_its_newest_name():
    first, second = (
        builders.case_record(
            test=f"bench/test_step.py::{name}", node_id=f"bench/test_step.py::{name}[x]"
        )
        for name in ("test_first", "test_second")
    )
    comparison = compare([saved(1, first), saved(2, second)], builders.summary(STEP))
    [case] = comparison.cases
    assert (case.renamed_from, missing(comparison)) == (second.node_id, [])


def test_a_case_is_compared_by_its_name_before_its_params():
    other_case = builders.case_record(
        test="bench/test_step.py::test_other", node_id="bench/test_step.py::test_other[x]"
    )
    comparison = compare([saved(1, STEP), saved(2, other_case)], builders.summary(STEP))
    [case] = comparison.cases
    assert (case.renamed_from, minutes(case.bases.runs)) == ("", [1])


def test_a_case_that_older_runs_measured_in_another_way_is_not_missing():
    threads = builders.case_record(threads=4, node_id=STEP.node_id)
    assert missing(compare([saved(1, threads), saved(2, STEP)], builders.summary(STEP))) == []
    # Where it now runs in a third way, the newest of the others is what it was.
    comparison = compare(
        [saved(1, threads), saved(2, STEP)],
        builders.summary(builders.case_record(dtype="bfloat16")),
    )
    [(_, missing_case)] = comparison.only_base
    assert (
        missing_case.node_id,
        other_settings(missing_case, first_with_form(comparison.only_head)),
    ) == (
        STEP.node_id,
        {"dtype": ("float32", "bfloat16")},
    )


# ---- which base runs are samples -----------------------------------------------------------------

ELSEWHERE = builders.environment(cpu_model="other")


@pytest.mark.parametrize(
    ("runs", "used", "left_out"),
    [
        ([{}, {}, {}], [0, 1, 2], {}),
        ([{"commit": OTHER}, {}, {}], [1, 2], {"other commit": 1}),
        ([{}, {"commit": OTHER}, {}], [0, 2], {"other commit": 1}),
        ([{}, {"dirty": True}, {}], [0, 2], {"dirty tree": 1}),
        # What a dirty tree held is not known: such a run is alone, and so is one without a commit.
        ([{}, {"dirty": True}], [1], {"dirty tree": 1}),
        ([{"commit": "unknown"}, {"commit": "unknown"}], [1], {"no commit": 1}),
        # The newest run that can be compared decides, not the newest.
        ([{}, {}, {"environment": ELSEWHERE}], [0, 1], {"another machine or software": 1}),
        (
            [{"commit": OTHER}, {"environment": ELSEWHERE}, {}],
            [2],
            {"other commit": 1, "another machine or software": 1},
        ),
        ([{"environment": ELSEWHERE}] * 2, [], {"another machine or software": 2}),
    ],
    ids=str,
)
def test_the_samples_of_a_case_are_the_runs_of_one_commit_with_a_clean_tree(runs, used, left_out):
    bases = [saved(number, STEP, **changes) for number, changes in enumerate(runs)]
    [case] = compare(bases, builders.summary(STEP)).cases
    assert (minutes(case.bases.runs), case.bases.left_out) == (used, left_out)
    assert len(case.bases.times_ns) == max(1, len(used))
    assert bool(case.incomparable) is not bool(used)


def test_runs_of_several_commits_are_samples_of_one_base_where_that_is_asked_for():
    changes = [
        {"commit": OTHER},
        {"dirty": True},
        {"commit": "unknown"},
        {"environment": ELSEWHERE},
        {},
    ]
    bases = [saved(number, STEP, **change) for number, change in enumerate(changes)]
    [case] = compare(bases, builders.summary(STEP), pool_commits=True).cases
    assert (minutes(case.bases.runs), case.bases.left_out) == (
        [0, 1, 2, 4],
        {"another machine or software": 1},
    )


def test_differences_of_the_environment_are_those_of_the_runs_that_count():
    bases = [saved(1, STEP), saved(2, STEP, environment=ELSEWHERE)]
    assert compare(bases, builders.summary(STEP)).environment == {}
    assert set(compare(bases[1:], builders.summary(STEP)).environment) == {"cpu_model"}


def test_plain_benchmarks_are_compared_by_name_and_call():
    [case] = compare(
        [builders.plain_summary("test_x", 0.5)], builders.plain_summary("test_x", 0.75)
    ).cases
    assert (case.base_ns, case.head_ns, case.changes) == (500_000_000, 750_000_000, ())
    assert compare([builders.plain_summary("test_x")], builders.plain_summary("test_y")).cases == ()


def test_a_plain_benchmark_of_the_same_name_is_compared_with_ours_by_call():
    [case] = compare(
        [builders.plain_summary(builders.case_record().node_id, 0.5)], builders.summary()
    ).cases
    assert (case.base_ns, case.head_ns, case.changes) == (500_000_000, 7_500_000, ())


# ---- Functions of Python -------------------------------------------------------------------------


def functions_case(*rows, operations=(), **changes):
    tables = (
        *([builders.op_table(*operations)] if operations else []),
        builders.op_table(*rows, view="functions"),
    )
    return builders.case_record(tables=tables, **changes)


def test_functions_are_compared_as_operations_are():
    base = functions_case(builders.function_row("read", 10, calls=20))
    head = functions_case(
        builders.function_row("read", 15, calls=41),
        builders.function_row("peek", 7, sources=["package/parse.py:3"]),
    )
    peek, read = only_case(base, head).changes
    assert (peek.base, peek.head_ns, peek.head.sources) == (None, 7, ("package/parse.py:3",))
    assert (read.base.calls, read.head.calls, read.change_ns) == (20, 41, 5)


def test_functions_are_no_parts_of_the_time_that_operations_explain():
    operations = [builders.op_row("aten::mm", 10), builders.op_row(OUTSIDE, 100, phase="")]
    slower = [builders.op_row("aten::mm", 30), builders.op_row(OUTSIDE, 150, phase="")]
    in_torch = builders.function_row(IN_TORCH, 30)
    case = only_case(
        functions_case(builders.function_row("read", 200), in_torch, operations=operations),
        functions_case(builders.function_row("read", 900), in_torch, operations=slower),
    )
    assert [change.name for change in case.changes] == ["read", OUTSIDE, "aten::mm"]
    assert case.operations.remainder_ns == case.change_ns - 20 - 50
    assert (case.functions.base_ns, case.functions.head_ns) == (200, 900)
    assert [change.name for change in case.functions.parts] == ["read"]


@pytest.mark.parametrize("is_in_base", [True, False])
def test_functions_that_one_side_has_are_not_compared(is_in_base):
    operations = [builders.op_row("aten::mm", 10)]
    sides = [
        functions_case(builders.function_row(), operations=operations),
        builders.case_record(tables=(builders.op_table(*operations),)),
    ]
    base, head = sides if is_in_base else reversed(sides)
    assert [change.name for change in only_case(base, head).changes] == ["aten::mm"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("op", {("read", "", ""): 30, ("len", "", ""): 1}),
        ("module", {("", "", "a"): 10, ("", "", "b"): 20, ("", "", "builtins"): 1}),
    ],
)
def test_functions_are_summed_as_operations_are(by, expected):
    case = functions_case(
        builders.function_row("read", 10, module="a"),
        builders.function_row("read", 20, module="b"),
        builders.function_row("len", 1, module="builtins", sources=[]),
    )
    comparison = compare([builders.summary(case)], builders.summary(case), by=by)
    assert {change.key: change.head_ns for change in comparison.cases[0].changes} == expected


# ---- Accelerators --------------------------------------------------------------------------------


def device_case(device_ns, kernel_ns, host_ns=900_000):
    row = builders.op_row("aten::mm", host_ns, self_device_ns=kernel_ns)
    return builders.case_record(
        device="cuda",
        device_ns=(device_ns,) * 3,
        tables=(
            builders.op_table(builders.op_row("aten::mm", 5)),
            builders.op_table(row, view="device"),
        ),
    )


def busy_case(elapsed_ns, busy_ns, *rows):
    return builders.case_record(
        device="cuda",
        device_ns=(elapsed_ns,) * 3,
        tables=(builders.op_table(*rows, view="device", busy_ns=busy_ns),),
    )


def test_operations_of_an_accelerator_are_parts_of_its_busy_time():
    kernel = functools.partial(builders.op_row, "aten::mm", 900_000)
    base = busy_case(
        1_500_000, 30_000, kernel(self_device_ns=20_000), builders.op_row(self_device_ns=10_000)
    )
    head = busy_case(
        1_501_000, 39_000, kernel(self_device_ns=29_000), builders.op_row(self_device_ns=10_000)
    )
    case = only_case(base, head)
    assert (case.clock, case.base_ns, case.head_ns, case.change_ns) == (
        "device",
        1_500_000,
        1_501_000,
        1_000,
    )
    assert (case.operations.base_ns, case.operations.head_ns, case.operations.change_ns) == (
        30_000,
        39_000,
        9_000,
    )
    assert (case.operations.change_ns, case.operations.remainder_ns) == (9_000, 0)


@pytest.mark.parametrize(("before", "after"), [((), 39_000), (30_000, ()), ((), ())])
def test_without_busy_time_of_a_side_operations_are_parts_of_elapsed_time(before, after):
    base, head = (
        busy_case(1_500_000, busy, builders.op_row(self_device_ns=20_000))
        for busy in (before, after)
    )
    case = only_case(base, head)
    assert case.operations.name == ITERATION_TIME
    assert (case.operations.base_ns, case.operations.head_ns) == (1_500_000, 1_500_000)


def test_of_several_base_runs_those_with_busy_time_count():
    runs = [
        builders.summary(busy_case(9_000, busy, builders.op_row(self_device_ns=20)))
        for busy in ((), 30, 50)
    ]
    [case] = compare(runs, runs[-1]).cases
    assert (case.operations.base_ns, len(case.bases.times_ns)) == (40, 3)


@pytest.mark.parametrize("kernels", [(0, 600), (600, 0)], ids=str)
def test_a_device_table_without_any_device_time_is_none(kernels):
    case = only_case(*(device_case(1_000, ns) for ns in kernels))
    assert (case.clock, case.changes) == ("device", ())


def test_where_one_side_lacks_device_times_both_are_compared_by_host_views():
    base = device_case(1_000, 600)
    head = builders.case_record(
        device="cuda", tables=(builders.op_table(builders.op_row("aten::mm", 25)),)
    )
    case = only_case(base, head)
    assert case.clock == "cpu"
    assert case.changes[0].change_ns == 20


def test_a_case_without_a_table_on_one_side_is_compared_by_its_wall_time_alone():
    case = only_case(
        builders.case_record(tables=()),
        builders.case_record(timing=builders.timing(median_ns=8_000_000)),
    )
    assert case.changes == ()
    assert case.operations.remainder_ns == case.change_ns == 500_000


def test_rows_that_are_no_operations_stay_apart_when_operations_are_summed_by_module():
    names = ["aten::mm", "aten::t", OUTSIDE, RUNTIME, UNATTRIBUTED]
    record = builders.case_record(
        tables=(builders.op_table(*(builders.op_row(name, phase="", module="") for name in names)),)
    )
    [case] = compare([builders.summary(record)], builders.summary(record), by="module").cases
    assert {change.name: change.is_operation for change in case.changes} == {
        "": True,
        OUTSIDE: False,
        RUNTIME: False,
        UNATTRIBUTED: False,
    }


def test_the_operations_of_several_runs_of_the_head_count_by_their_median():
    [base] = builders.base_runs(1, 1_000_000)
    heads = builders.base_runs(3, 1_200_000, 1_500_000, 1_300_000)
    case = compare([base], heads[-1], heads[:-1]).cases[0]
    assert len(case.heads.times_ns) == 3
    [change] = [change for change in case.changes if change.name == "aten::mm"]
    assert change.head_runs == (1_200_000, 1_500_000, 1_300_000)
    assert (change.head_ns, change.change_ns) == (1_300_000, 300_000)
