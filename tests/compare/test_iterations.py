"""Traces without steps, which may hold different numbers of iterations."""

import dataclasses

import builders
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.iterations import SAME, Iterations, iterations_of
from mnistbench.compare.judge import judge
from mnistbench.compare.report import blocks
from mnistbench.core.operation import OUTSIDE, RUNTIME
from mnistbench.judging.verdicts import INCOMPARABLE

row = builders.op_row

#: Self time of one call of each operation, ns.
CALL_NS = {"aten::mm": 80_000, "aten::add": 20_000, "aten::relu": 10_000}


def rows(iterations, calls=None, **call_ns):
    """Operations of so many iterations.

    Each runs once in an iteration, unless its number of calls is given.
    """
    numbers = {**dict.fromkeys(CALL_NS, iterations), **(calls or {})}
    times = {**CALL_NS, **call_ns}
    return [
        row(name, round(times[name] * count), iterations=1, calls=count, memory_bytes=64 * count)
        for name, count in numbers.items()
    ]


def trace(operations, has_steps=False, wall_ns=1_000_000, **changes):
    record = builders.case_record(
        tables=(builders.op_table(*operations, iterations=1),),
        timing=builders.timing(median_ns=wall_ns, iqr_ns=0),
        **changes,
    )
    return dataclasses.replace(
        builders.summary(record, environment=None), trace="a.json", has_steps=has_steps
    )


def compared(base, head, *texts, **changes):
    criteria = Criteria(op_fail=tuple(map(Threshold.parse, texts or ("10%",))), **changes)
    return judge(compare([base], head), criteria)


def lines_about_calls(judgement):
    return [
        line for line in blocks(judgement, 3)[0].lines if line.startswith("different numbers of")
    ]


@pytest.mark.parametrize(
    ("base", "head", "divided"),
    [
        (10, 1, Iterations((10,), 1)),
        (1, 10, Iterations((1,), 10)),
        (30, 20, Iterations((3,), 2)),
        (7, 7, SAME),
    ],
)
def test_traces_of_different_numbers_of_iterations_are_compared_per_call(base, head, divided):
    slower = trace(rows(head, **{"aten::mm": 100_000}), wall_ns=100_000 * head)
    judgement = compared(trace(rows(base), wall_ns=100_000 * base), slower)
    [case] = judgement.cases
    assert case.case.iterations == divided
    assert [
        (finding.measured.name, round(finding.measured.change, 3))
        for finding in judgement.regressions
    ] == [("aten::mm, forward fc1", 0.25)]
    assert case.iteration.measured.change == pytest.approx(0.0)
    assert bool(lines_about_calls(judgement)) is (divided != SAME)
    [mm] = [change for change in case.case.changes if change.name == "aten::mm"]
    assert mm.base.calls == mm.head.calls
    assert mm.base.memory_bytes == mm.head.memory_bytes


def test_what_was_divided_is_said_with_both_numbers():
    [line] = lines_about_calls(compared(trace(rows(10)), trace(rows(1))))
    assert "10 calls in the base for 1 call in the head" in line
    assert line.endswith("those of the base by 10")
    [line] = lines_about_calls(compared(trace(rows(30)), trace(rows(20))))
    assert line.endswith("those of the base by 3 and of the head by 2")


def test_wall_time_of_divided_iterations_cannot_be_held_to_a_limit():
    sides = trace(rows(10), wall_ns=1_000_000), trace(rows(1), wall_ns=200_000)
    judgement = compared(*sides)
    assert judgement.cases[0].iteration.verdict == INCOMPARABLE
    assert not judgement.problems
    [problem] = compared(*sides, case_fail=Threshold.parse("10%")).problems
    assert (problem.kind, problem.excused) == (INCOMPARABLE, False)
    [problem] = compared(*sides, case_fail=Threshold.parse("10%"), allow_incomparable=True).problems
    assert problem.excused


def test_the_same_numbers_of_iterations_are_found_against_a_trace_with_steps():
    per_step = trace(rows(1), has_steps=True)
    whole = trace(rows(5))
    assert compared(per_step, whole).cases[0].case.iterations == Iterations((1,), 5)


@pytest.mark.parametrize("has_trace", [True, False])
def test_calls_of_steps_and_of_saved_runs_are_never_divided(has_trace):
    base, head = (trace(rows(count), has_steps=True) for count in (10, 1))
    if not has_trace:
        base, head = (dataclasses.replace(run, trace="", has_steps=True) for run in (base, head))
    [case] = compared(base, head).cases
    assert case.case.iterations == SAME
    assert case.case.changes[0].base.calls == 10


def test_operations_of_one_side_are_divided_if_each_iteration_may_run_them():
    base = [*rows(10), row("my::old", 100_000, iterations=1, calls=20)]
    head = [*rows(1), row("my::new", 10_000, iterations=1, calls=3)]
    judgement = compared(trace(base), trace(head))
    assert judgement.outcome == "passed"
    [replaced] = [finding for finding in judgement.findings if finding.measured.kind == "replaced"]
    assert (replaced.measured.base_ns, replaced.measured.head_ns) == (10_000, 10_000)


def test_what_ran_once_beside_iterations_cannot_be_compared():
    base = rows(10, {"aten::randn": 1}, **{"aten::randn": 5_000})
    head = rows(1, {"aten::randn": 1}, **{"aten::randn": 5_000})
    judgement = compared(trace(base), trace(head))
    assert judgement.outcome == "inconclusive"
    [problem] = judgement.problems
    assert (problem.kind, problem.excused) == ("incomparable", False)
    assert "aten::mm 10 -> 1, aten::randn 1 -> 1" in problem.text
    assert {finding.verdict for finding in judgement.findings} == {"incomparable"}
    assert compared(trace(base), trace(head), allow_incomparable=True).outcome == "passed"


def test_other_numbers_of_calls_by_several_factors_are_compared_as_they_are_and_said():
    judgement = compared(trace(rows(4)), trace(rows(4, {"aten::add": 6, "aten::relu": 2})))
    assert [finding.measured.name for finding in judgement.regressions] == [
        "aten::add, forward fc1"
    ]
    [line] = lines_about_calls(judgement)
    assert "aten::mm 4 -> 4" in line
    assert "aten::add 4 -> 6" in line


def test_time_outside_operations_has_no_verdict_if_numbers_of_iterations_differ():
    rest = [
        row(OUTSIDE, 90_000, iterations=1, calls=0),
        row(RUNTIME, 50_000, iterations=1, calls=9),
    ]
    base = [*rows(1)]
    head = [*rows(10), *rest]
    judgement = compared(trace(base), trace(head))
    assert judgement.outcome == "passed"
    assert {
        finding.measured.name: finding.verdict
        for finding in judgement.findings
        if finding.measured.kind == "outside"
    } == {
        "outside operations": "incomparable",
        "runtime calls": "incomparable",
    }


_CALLS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 12), min_size=1)


def table(calls):
    return {(name, "", ""): float(count) for name, count in calls.items()}


@given(_CALLS, st.integers(1, 40), st.integers(1, 40))
@strategies.ANY_SPEED
def test_repeating_an_iteration_is_always_found(calls, base, head):
    sides = [
        table({name: count * times for name, count in calls.items()}) for times in (base, head)
    ]
    iterations = iterations_of(sides[:1], sides[1])
    if base == head:
        assert iterations == SAME
    else:
        assert iterations.bases[0] * head == iterations.head * base


@given(_CALLS, _CALLS)
@strategies.ANY_SPEED
def test_both_directions_agree(base, head):
    forth, back = (
        iterations_of([table(first)], table(second))
        for first, second in ((base, head), (head, base))
    )
    assert (forth.bases or (1,), forth.head) == ((back.head,), (back.bases or (1,))[0])
    assert (bool(forth.unknown), bool(forth.mixed_calls)) == (
        bool(back.unknown),
        bool(back.mixed_calls),
    )
