"""Which operations replaced which, and that a replacement is judged as one.

Whatever the shares of its parts are.
"""

import builders
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.compare.replacements import replacements
from mnistbench.compare.report import verdict_lines
from mnistbench.judging.acceptance import Acceptance

row = builders.op_row

#: Nanoseconds. A case takes 7.5 ms, so an operation below 150 us is too small to be judged by
#: itself.
SMALL = 100_000
#: Nanoseconds of an operation that is judged by itself.
LARGE = 1_000_000

PARTS = [row(f"my::part{number}", SMALL) for number in range(4)]
MATMUL = row("aten::mm", LARGE, module="fc2")


def run(*rows, **changes):
    return builders.summary(builders.case_record(tables=(builders.op_table(*rows),), **changes))


def judged(base, head, *texts, **changes):
    criteria = Criteria(op_fail=tuple(map(Threshold.parse, texts or ("10%",))), **changes)
    return judge(compare([run(*base)], run(*head), by=criteria.by), criteria)


def verdicts(judgement):
    """The verdict of each operation, by its name in the table."""
    return {finding.measured.name: finding.text for finding in judgement.cases[0].operations}


def grouped(base, head, **changes):
    """The names of the operations of each group."""
    case = compare([run(*base)], run(*head), **changes).cases[0]
    return sorted(sorted(change.name for change in group) for group in replacements(case.changes))


# ---- fused and split -----------------------------------------------------------------------------


def test_small_operations_that_are_fused_into_a_large_one_are_compared_with_it():
    judgement = judged([MATMUL, *PARTS], [MATMUL, row("my::fused", 3 * SMALL)])
    assert judgement.outcome == "passed"
    assert verdicts(judgement) == {
        "aten::mm, forward fc2": "within 10.0 %",
        "my::part0 + my::part1 + 2 others -> my::fused, forward fc1": "improved",
    }


def test_an_operation_that_is_split_into_small_ones_is_compared_with_them():
    judgement = judged([MATMUL, row("my::fused", 4 * SMALL)], [MATMUL, *PARTS])
    name = "my::fused -> my::part0 + my::part1 + 2 others, forward fc1"
    assert (judgement.outcome, verdicts(judgement)[name]) == ("passed", "within 10.0 %")
    slower = judged([MATMUL, row("my::fused", 3 * SMALL)], [MATMUL, *PARTS])
    assert [finding.measured.name for finding in slower.regressions] == [name]


def test_small_replacements_are_judged_together_if_their_sum_is_large():
    replacing = [row(f"my::other{number}", 2 * SMALL - 60_000) for number in range(4)]
    judgement = judged([MATMUL, *PARTS], [MATMUL, *replacing])
    [slower] = judgement.regressions
    measured = slower.measured
    assert (measured.kind, measured.base_ns, measured.head_ns) == ("replaced", 4 * SMALL, 560_000)


def test_a_small_operation_that_replaces_nothing_stays_with_the_other_small_ones():
    rest = row("aten::t", 1_000)
    assert verdicts(judged([MATMUL, rest], [MATMUL, rest, row("my::new", 50)])) == {
        "aten::mm, forward fc2": "within 10.0 %",
        "other": "within 10.0 %",
    }


def test_a_threshold_that_names_a_vanished_operation_applies_to_what_replaced_it():
    base = [MATMUL, row("my::old", SMALL)]
    head = [MATMUL, row("my::new", round(1.2 * SMALL))]
    assert judged(base, head, "my::old:30%").outcome == "passed"
    assert judged(base, head, "my::old:10%").outcome == "regressed"
    assert judged(base, head, "fc1:30%").outcome == judged(base, head, "fc2:1%").outcome == "passed"


def test_a_replacement_of_many_is_accepted_by_the_name_that_the_report_shows():
    base = [MATMUL, *PARTS]
    head = [MATMUL, row("my::fused", LARGE)]
    [slower] = judged(base, head).regressions
    for name in (slower.measured.name, "my::part3", "my::fused"):
        accept = Acceptance.parse(f"*:{name}:200%")
        assert judged(base, head, accept=(accept,), reason="x").outcome == "passed"


# ---- calls that moved within a place -------------------------------------------------------------


def moved(mm_base, mm_head, *, fused, calls=(10, 5)):
    """A matrix product, of whose calls some become a fused operation."""
    base, head = (
        row("aten::mm", ns, calls=count)
        for ns, count in zip((mm_base, mm_head), calls, strict=True)
    )
    return [MATMUL, base], [MATMUL, head, row("my::fused", fused)]


@pytest.mark.parametrize(
    ("mm_head", "fused", "text"),
    [
        (400_000, 300_000, "improved"),
        (400_000, 390_000, "within 10.0 %"),
        (500_000, 490_000, "regressed"),
        (310_000, 300_000, "improved"),  # it saved more than the new one takes
    ],
)
def test_an_operation_of_which_calls_became_a_new_one_is_compared_together_with_it(
    mm_head, fused, text
):
    base, head = moved(800_000, mm_head, fused=fused)
    assert verdicts(judged(base, head))["aten::mm -> aten::mm + my::fused, forward fc1"] == text


def test_calls_that_moved_back_are_compared_in_the_same_way():
    base, head = moved(800_000, 400_000, fused=390_000)
    assert (
        verdicts(judged(head, base))["aten::mm + my::fused -> aten::mm, forward fc1"]
        == "within 10.0 %"
    )


@pytest.mark.parametrize(
    ("mm_head", "calls", "text"),
    [
        (400_000, (10, 10), "improved"),  # it got faster for another reason
        (790_000, (10, 9), "within 10.0 %"),  # it explains hardly anything of the new one
        (900_000, (10, 5), "regressed"),  # each of its calls got slower
        (900_000, (5, 10), "regressed"),
    ],
)
def test_an_operation_that_explains_no_new_one_is_judged_by_itself(mm_head, calls, text):
    base, head = moved(800_000, mm_head, fused=300_000, calls=calls)
    assert verdicts(judged(base, head)) == {
        "aten::mm, forward fc2": "within 10.0 %",
        "aten::mm, forward fc1": text,
        "nothing -> my::fused, forward fc1": "regressed",
    }


def test_an_operation_that_grew_more_than_vanished_is_judged_by_itself():
    base = [MATMUL, row("aten::copy_", LARGE, calls=10), row("my::old", 2 * SMALL)]
    head = [MATMUL, row("aten::copy_", 2 * LARGE, calls=80)]
    assert verdicts(judged(base, head))["aten::copy_, forward fc1"] == "regressed"


def test_an_operation_that_a_threshold_names_is_judged_by_itself():
    base, head = moved(800_000, 400_000, fused=300_000)
    assert "aten::mm, forward fc1" in verdicts(judged(base, head, "10%", "aten::mm:5%"))


# ---- places --------------------------------------------------------------------------------------


def test_a_renamed_module_is_compared_with_itself_in_each_phase():
    def network(module, scale=1):
        phases = {"forward": LARGE, "backward": 2 * LARGE}
        rows = [
            row("aten::addmm", round(ns * scale), phase=phase, module=module)
            for phase, ns in phases.items()
        ]
        return [MATMUL, row("aten::mm", LARGE, phase="backward", module="fc2"), *rows]

    same = judged(network("head"), network("classifier"))
    assert same.outcome == "passed"
    assert set(verdicts(same)) >= {
        "head forward -> classifier forward",
        "head backward -> classifier backward",
    }
    assert {
        finding.measured.name
        for finding in judged(network("head"), network("classifier", 1.2)).regressions
    } == {
        "head forward -> classifier forward",
        "head backward -> classifier backward",
    }
    assert judged(network("head"), network("classifier"), by="module").outcome == "passed"


def test_a_side_whose_operations_have_no_place_is_compared_as_a_whole():
    base = [
        row("aten::mm", LARGE, phase="", module=""),
        row("aten::add", SMALL, phase="", module=""),
    ]
    head = [row("aten::mm", LARGE), row("aten::add", SMALL, phase="backward")]
    assert grouped(base, head) == [["aten::add", "aten::add", "aten::mm", "aten::mm"]]
    assert judged(base, head).outcome == "passed"


def test_operations_of_different_places_are_not_compared_but_reported():
    rest = [row("aten::relu", SMALL), row("aten::relu", SMALL, module="fc2")]
    judgement = judged(
        [row("aten::old", LARGE), *rest], [row("aten::new", LARGE, module="fc2"), *rest]
    )
    assert verdicts(judgement)["nothing -> aten::new, forward fc2"] == "regressed"
    [line] = [line for line in verdict_lines(judgement) if line.startswith("regressed:")]
    assert (
        "nothing vanished in its place, but 1.00 ms of operations in other places (aten::old, "
        "forward fc1)"
    ) in line
    assert "--accept 'step convnet-b16-cpu:nothing -> aten::new, forward fc2:14%'" in line


def test_where_nothing_vanished_the_report_has_no_word_of_it():
    judgement = judged([MATMUL], [MATMUL, row("my::new", LARGE)])
    [line] = [line for line in verdict_lines(judgement) if line.startswith("regressed:")]
    assert "vanished" not in line


@pytest.mark.parametrize("by", ["op", "op,module"])
def test_operations_without_a_place_are_compared_by_case(by):
    base, head = (
        [row(name, SMALL, phase="", module="") for name in names]
        for names in (("a", "b", "c"), ("c", "d"))
    )
    assert grouped(base, head, by=by) == [["a", "b", "d"]]


# ---- any operations ------------------------------------------------------------------------------

_KEYS = st.tuples(
    st.sampled_from("abcd"),
    st.sampled_from(["forward", "backward"]),
    st.sampled_from(["", "fc1", "fc2"]),
)
_ROWS = st.dictionaries(
    _KEYS, st.tuples(st.integers(0, LARGE), st.integers(1, 9)), min_size=1, max_size=8
).map(
    lambda rows: [
        row(name, ns, phase=phase, module=of, calls=calls)
        for (name, phase, of), (ns, calls) in rows.items()
    ]
)


@given(_ROWS, _ROWS)
@strategies.ANY_SPEED
def test_each_one_sided_operation_is_in_one_group_whichever_side_is_the_base(base, head):
    forth, back = (
        compare([run(*first)], run(*second)).cases[0].changes
        for first, second in ((base, head), (head, base))
    )
    groups = [
        sorted(
            sorted(change.key for change in group if not (change.base and change.head))
            for group in replacements(operations)
        )
        for operations in (forth, back)
    ]
    assert groups[0] == groups[1]
    one_sided = sorted(change.key for change in forth if not (change.base and change.head))
    assert sorted(key for group in groups[0] for key in group) == one_sided
    members = [id(change) for group in replacements(forth) for change in group]
    assert len(members) == len(set(members))


@given(_ROWS, _ROWS)
@strategies.ANY_SPEED
def test_the_quantities_of_a_case_have_each_operation_once(base, head):
    judgement = judged(base, head)
    [case] = judgement.cases
    members = [change.key for finding in case.operations for change in finding.measured.members]
    assert sorted(members) == sorted(change.key for change in case.case.changes)


def test_small_new_operations_beside_others_leave_nothing_open():
    judgement = judged([MATMUL], [MATMUL, row("my::new", 30_000), row("my::newer", 20_000)])
    [new] = judgement.cases[0].operations[1:]
    assert (new.text, new.is_open) == ("within 10.0 %", False)
    assert judgement.outcome == "passed"
