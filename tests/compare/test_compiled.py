"""Compilations of two sides, and eager operations beside the kernels that replaced them."""

import json

import builders
import pytest
from builders import rendered
from compiled_builders import AGAIN, BROKEN, compilation, compiled, eager

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.exact import exact_differences
from mnistbench.compare.judge import acceptance_for, judge
from mnistbench.compare.replacements import module_groups
from mnistbench.core.compiled.compilation import CompileTime, time_differences
from mnistbench.core.compiled.names import COMPILED, LOOKUP
from mnistbench.core.operation import OUTSIDE
from mnistbench.judging.acceptance import Acceptance

row = builders.op_row


def compared(base, head, **options):
    [case] = compare([builders.summary(base)], builders.summary(head), **options).cases
    return case


def case_of(*rows):
    return builders.case_record(tables=(builders.op_table(*rows),))


def report(base, head, form="terminal", top=20, by="op,module", **criteria):
    comparison = compare([builders.summary(base)], builders.summary(head), by=by)
    return rendered(judge(comparison, Criteria(by=by, **criteria)), form, top)


def data(base, head, **options):
    [case] = json.loads(report(base, head, "json", **options))["cases"]
    return case


# ---- Compilations of both sides ------------------------------------------------------------------


def test_differences_of_compilations_come_first_and_their_causes_before_the_counts():
    head = compiled(compilation=compilation(breaks=(BROKEN,), recompilations=(AGAIN,)))
    slow = compiled(parameter_count=7, compilation=compilation())
    assert exact_differences(compared(slow, head))[:5] == (
        "new graph break at model.py:13 (Tensor.item() is not traced)",
        "new recompilation of forward at model.py:15 (self.k == 0 fails)",
        "graph breaks: 0 -> 1",
        "recompilations: 0 -> 2",
        "parameters: 7 -> 1,199,882",
    )


def test_the_same_compilations_have_no_difference():
    assert exact_differences(compared(compiled(), compiled())) == ()


def test_a_compilation_that_was_not_recorded_is_no_difference():
    assert exact_differences(compared(compiled(compilation=None), compiled())) == ()


@pytest.mark.parametrize(
    ("base", "head", "side", "what"),
    [(eager, compiled, "head", "new"), (compiled, eager, "base", "vanished")],
)
def test_one_compiled_side_has_its_counts_and_graph_breaks(base, head, side, what):
    made = {"compilation": compilation(breaks=(BROKEN,))}
    base = base(**made) if side == "base" else base()
    head = head(**made) if side == "head" else head()
    summary = (
        "1 graph, 20 operations in 3 generated kernels and 5 library calls, 1 graph break, "
        "0 recompilations"
    )
    first = (
        f"compiled in the {side} alone: {summary}",
        f"{what} graph break at model.py:13 (Tensor.item() is not traced)",
    )
    case = compared(base, head)
    assert exact_differences(case)[:2] == first
    because = f"because the {side} alone is compiled; --format json has all"
    last = f"10 differences of operations, {because}"
    assert exact_differences(case, brief=True) == (*first, last)


def test_first_calls_are_shown_with_the_part_that_changed_most():
    slower = compilation(
        cold=CompileTime(250_000_000, 350_000_000, 5_400_000_000, 100_000_000), warm=None
    )
    parts = "tracing 180 ms, backend 40.0 ms, generation and build 0 ns, run 20.0 ms"
    assert list(time_differences(compilation(), slower)) == [
        "first call with empty cache: 4.58 s -> 6.10 s (generation and build 3.98 s -> 5.40 s)",
        f"first call with filled cache, base: 240 ms ({parts})",
    ]
    parts = "tracing 250 ms, backend 350 ms, generation and build 5.40 s, run 100 ms"
    assert list(time_differences(None, slower)) == [
        f"first call with empty cache, head: 6.10 s ({parts})"
    ]
    assert list(time_differences(None, None)) == []


def test_times_of_first_calls_are_neither_exact_nor_judged():
    slower = compiled(compilation=compilation(cold=CompileTime(1, 1, 9_000_000_000, 1)))
    text = report(compiled(), slower)
    assert "\nfirst call with empty cache: 4.58 s -> 9.00 s (generation and build " in text
    assert "exact: the same operations" in text
    assert "regressed" not in text


def test_cases_without_tables_have_the_differences_of_compilations():
    base = compiled(tables=())
    head = compiled(tables=(), compilation=compilation(breaks=(BROKEN,)))
    assert ": graph breaks: 0 -> 1\n" in report(base, head)
    assert ": first call with filled cache: 240 ms -> 240 ms (" in report(base, head)


def test_the_json_has_both_compilations():
    head = compilation(breaks=(BROKEN,), warm=None)
    both = data(compiled(), compiled(compilation=head))["compilation"]
    assert both["base"]["cold"] == {
        "tracing_ns": 200_000_000,
        "backend_ns": 300_000_000,
        "build_ns": 3_980_000_000,
        "run_ns": 100_000_000,
        "total_ns": 4_580_000_000,
    }
    assert both["head"]["warm"] is None
    assert both["head"]["breaks"] == [
        {
            "reason": "Tensor.item() is not traced",
            "place": {"path": "model.py", "line": 13, "function": "forward"},
        }
    ]
    assert data(eager(), compiled())["compilation"]["base"] is None
    assert data(eager(), eager())["compilation"] is None


# ---- Which side is compiled ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head", "side"),
    [
        (eager(), compiled(), "head"),
        (eager(), compiled(compilation=None), "head"),  # its rows tell
        (compiled(), eager(), "base"),
        (compiled(), compiled(), ""),
        (eager(), eager(), ""),
        (eager(tables=()), compiled(), ""),  # it may have been compiled by an earlier version
        (case_of(row("Torch-Compiled Region: 0/0", module="")), compiled(), ""),
    ],
)
def test_the_compiled_side(base, head, side):
    assert compared(base, head).compiled_side == side


# ---- Modules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_a_row_has_the_operations_of_modules_beside_their_kernels(golden, form):
    ending = {"terminal": "txt"}.get(form, form)
    golden(report(eager(), compiled(), form), f"comparison_compiled.{ending}")


NORM_AND_ACT = (
    "norm + act, forward: aten::gelu + aten::native_layer_norm -> fused gelu, native_layer_norm"
)


def groups_of(base, head, **options):
    case = compared(base, head, **options)
    return {group.title: group for group in module_groups(case, case.operations.parts)}


def test_modules_that_share_a_kernel_are_one_group_of_their_phase():
    groups = groups_of(eager(), compiled())
    assert sorted(groups) == [
        "act, backward: aten::gelu_backward -> fused gelu_backward",
        "backward: AddmmBackward0 -> nothing",
        "fc1, backward: aten::mm + aten::sum -> aten::mm + fused sum",
        NORM_AND_ACT,
        "norm, backward: aten::native_layer_norm_backward -> fused native_layer_norm_backward",
        "small, forward: aten::relu -> fused relu",
    ]
    group = groups[
        "norm + act, forward: aten::gelu + aten::native_layer_norm -> fused gelu, native_layer_norm"
    ]
    assert (group.modules, group.base_ns, group.head_ns) == (("norm", "act"), 66_000, 21_000)


def test_groups_and_what_is_in_none_add_up_to_the_difference_of_the_sums():
    case = data(eager(), compiled(), min_share=0.0)
    of_modules = sum(group["change_ns"] for group in case["modules"])
    names = {COMPILED: 110_000, LOOKUP: 15_000, OUTSIDE: -100_000, "aten::addmm": -3_000}
    sums = [
        sum(builder.self_cpu_ns[0] for builder in record.tables[0].rows)
        for record in (eager(), compiled())
    ]
    assert of_modules + sum(names.values()) == sums[1] - sums[0]
    judged = sum(quantity["change_ns"] for quantity in case["operations"])
    assert judged == sums[1] - sums[0]


def test_small_modules_have_rows_without_a_verdict_of_their_own():
    base, head = (
        case_of(
            row("aten::mm", 900_000),
            row("aten::t", 100, module="fc2"),
            *rows,
        )
        for rows in (
            [row("aten::relu", 900, module="small")],
            [row("fused relu", 700, module="small"), row(COMPILED, 500, module="")],
        )
    )
    lines = [line.split("  ") for line in report(base, head).splitlines()]
    cells = {line[0]: [cell.strip() for cell in line if cell] for line in lines}
    small = cells["aten::relu -> fused relu"]
    assert small[1:6] == ["forward", "small", "900 ns", "700 ns", "-200 ns"]
    assert small[-1] == "included in other"
    assert cells["other (2 operations and 2 above)"][1:4] == ["100 ns", "600 ns", "+500 ns"]
    hidden = report(base, head, top=1)
    assert "aten::relu" not in hidden.partition("exact:")[0]
    assert "\nother (4 operations) " in hidden


def test_kernels_that_share_a_module_are_one_group():
    base = case_of(*(row(f"aten::{name}", 10_000, module=name) for name in "abcd"))
    head = case_of(
        row("fused a, b", 5_000, module="a + b"),
        row("fused b, c", 6_000, module="b + c"),
        row("aten::d", 10_000, module="d"),
    )
    [group] = groups_of(base, head).values()
    assert group.modules == ("a", "b", "c")
    assert (group.base_ns, group.head_ns) == (30_000, 11_000)


def test_a_kernel_that_does_not_name_all_modules_computes_those_that_vanished():
    base = case_of(*(row(f"aten::{name}", 10_000, module=name) for name in "abcdx"))
    head = case_of(
        row("fused a", 5_000, module="a + b + 2 others"), row("aten::x", 10_000, module="x")
    )
    [group] = groups_of(base, head).values()
    assert set(group.modules) == set("abcd")
    assert group.module == "a + b + 2 others"
    assert (group.base_ns, group.head_ns) == (40_000, 5_000)


def test_a_trace_does_not_tell_the_modules_of_kernels():
    base = case_of(row("aten::relu", 10_000, module="act"))
    head = case_of(row("fused relu", 10_000, module=""), row(COMPILED, 1_000, module=""))
    assert compared(base, head).compiled_side == "head"
    assert groups_of(base, head) == {}
    assert data(base, head)["modules"] == []


def test_sums_by_module_are_groups_by_place():
    assert "norm + act, forward: act forward + norm forward -> norm + act forward" in groups_of(
        eager(), compiled(), by="module"
    )


def test_an_operation_that_a_threshold_names_is_judged_by_itself():
    case = compared(eager(), compiled())
    named = {id(change) for change in case.operations.parts if change.name == "aten::mm"}
    titles = [group.title for group in module_groups(case, case.operations.parts, named)]
    assert "fc1, backward: aten::sum -> fused sum" in titles


def test_two_compiled_sides_are_compared_as_before():
    assert groups_of(compiled(), compiled()) == {}
    assert data(compiled(), compiled())["modules"] == []


def test_the_operations_of_modules_are_judged_and_accepted_by_their_name():
    comparison = compare([builders.summary(compiled())], builders.summary(eager()))
    criteria = {"op_fail": (Threshold.parse("50%"),)}
    judgement = judge(comparison, Criteria(**criteria))
    regressed = {finding.measured.name: finding for finding in judgement.regressions}
    name = (
        "norm + act, forward: fused gelu, native_layer_norm -> aten::gelu + aten::native_layer_norm"
    )
    assert regressed[name].measured.change == pytest.approx(66 / 21 - 1)
    accept = (Acceptance.parse(acceptance_for(judgement, regressed[name])),)
    excused = judge(comparison, Criteria(**criteria, accept=accept, reason="it is exact now"))
    assert [finding.measured.name for finding in excused.accepted] == [name]
