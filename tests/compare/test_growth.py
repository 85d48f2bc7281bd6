"""The work of a comparison grows with the number of cases, operations and runs.

Not with its square.

Calls of functions are counted: unlike seconds, they are the same in every run.
"""

import sys

import builders
import pytest
from builders import rendered

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge

CRITERIA = Criteria(op_fail=(Threshold("", 0.1),), min_share=0.0, pool_commits=True)


def calls(function):
    """Return how many functions were called, and generators resumed.

    Methods of built-in types count as functions.
    """
    count_of_calls = 0

    def count(_frame, event, _argument):
        nonlocal count_of_calls
        count_of_calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count_of_calls


def many_cases(name, count):
    return builders.summary(
        *(
            builders.case_record(test=f"test_x.py::{name}{n}", node_id=f"{name}{n}")
            for n in range(count)
        )
    )


def many_operations(name, count, ns):
    rows = (builders.op_row(f"aten::{name}{n}", ns, module=f"layer{n}") for n in range(count))
    return builders.summary(builders.case_record(tables=(builders.op_table(*rows),)))


SHAPES = {
    "cases": lambda n: ([many_cases("a", n)], many_cases("a", n)),
    "cases of other names": lambda n: ([many_cases("a", n)], many_cases("b", n)),
    "operations": lambda n: ([many_operations("a", n, 100_000)], many_operations("a", n, 100_000)),
    "operations that regressed": lambda n: (
        [many_operations("a", n, 100_000)],
        many_operations("a", n, 200_000),
    ),
    "operations of other names": lambda n: (
        [many_operations("a", n, 100_000)],
        many_operations("b", n, 100_000),
    ),
    "runs": lambda n: (builders.base_runs(n, 100_000, 110_000), builders.base_runs(1, 100_000)[0]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_three_times_as_much_takes_three_times_the_calls_and_not_nine(shape):
    def report(sides):
        bases, head = sides
        judgement = judge(compare(bases, head, pool_commits=True), CRITERIA)
        return [rendered(judgement, name, 10) for name in ("terminal", "json")]

    few = SHAPES[shape](30)
    many = SHAPES[shape](90)
    report(few)  # what is done once
    assert calls(lambda: report(many)) < 4.5 * calls(lambda: report(few))
