"""Header and trials to a verdict.

What is accepted, what differs exactly, and what is not passed over.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import re

import gate_builders
import pytest
import strategies
from gate_builders import (
    ADD,
    CASE,
    CLONE,
    CONV,
    ENGINE,
    GEMM,
    LABEL,
    MM,
    PAIRS,
    TINY,
    Measured,
    build,
    header,
    line,
    operation,
    operation_columns,
    recorded,
    rendered,
    series,
    side,
    time_columns,
    trial,
)
from hypothesis import given, settings

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.options import TRIALS, JudgeOptions
from mnistbench.gate.report.outcome import last_line
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.report.text import finding_lines
from mnistbench.gate.samples.raw_samples import COMPLETE, INTERRUPTED, NO_END, End, load
from mnistbench.gate.words import ALL_CASES, BASE, HEAD
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.verdicts import IMPROVED, INCONCLUSIVE, PASSED, REGRESSED

OTHER_CASE = "bench/test_step.py::test_step[lenet5-b1-cpu]"
OTHER_LABEL = "step lenet5-b1-cpu on digits"
BOTH = {CASE: LABEL, OTHER_CASE: OTHER_LABEL}

MM_TEXT = "aten::mm, forward fc1"

#: Ordinary operations, with one of them changed by a factor.
QUIET = Measured().operations


def operations(**factors):
    names = {"conv": CONV, "mm": MM, "add": ADD, "tiny": TINY}
    return {
        **QUIET,
        **{names[name]: (QUIET[names[name]][0], factor) for name, factor in factors.items()},
    }


def both_stages(cases, second=None, *, count=8):
    """Trials of the first stage, and fresh ones of the same or of other code."""
    return [
        *series(cases, count=count, seed=3),
        *series(cases if second is None else second, stage=2, seed=4),
    ]


def concluded(trials, *accept, limits=None, end=COMPLETE, **changes):
    """A verdict; what is accepted may get ten times as slow where it names no limit."""
    accepted = [Acceptance.parse(text if text.endswith("%") else f"{text}:900%") for text in accept]
    reason = "it is exact now" if accept else ""
    options = JudgeOptions(accept=tuple(accepted), reason=reason, **(limits or {}))
    return conclude(recorded(trials, end=end, **changes), options)


def texts(verdict):
    return tuple(reason.text for reason in verdict.reasons)


#: An operation of a quarter of its case that got 30 % slower, and the case with it.
SLOWER = Measured(factor=1.075, operations=operations(mm=1.3))


@pytest.fixture(scope="module")
def slower():
    return both_stages(SLOWER)


def verdicts(verdict):
    return {finding.quantity.name: finding.verdict for finding in verdict.decision.findings}


# ---- what a verdict says -------------------------------------------------------------------------


def test_the_same_code_passes():
    verdict = concluded(series())
    assert (verdict.outcome, verdict.reasons, verdict.decision.findings) == (PASSED, (), ())
    assert (verdict.exact_differences, verdict.different, verdict.unused, verdict.regressions) == (
        {},
        (),
        (),
        (),
    )
    assert verdict.recorded.seconds == 8 * 20


def test_slower_code_regresses(slower):
    verdict = concluded(slower)
    assert verdict.outcome == REGRESSED
    assert verdicts(verdict) == {"wall": REGRESSED, "cpu": REGRESSED, MM_TEXT: REGRESSED}
    assert verdict.regressions == verdict.shown.findings
    assert verdict.recorded.seconds == 16 * 20


def test_sides_that_change_names_improve(slower):
    verdict = concluded([gate_builders.swapped(measured) for measured in slower])
    assert verdict.outcome == PASSED
    assert set(verdicts(verdict).values()) == {IMPROVED}


def test_thresholds_are_those_given(slower):
    assert concluded(slower, limits={"case": 0.5, "operation": 0.5}).outcome == PASSED


def test_two_cases_of_one_label_are_called_by_their_node_ids():
    trials = series({CASE: Measured(), OTHER_CASE: SLOWER})
    verdict = concluded(trials, labels={CASE: LABEL, OTHER_CASE: LABEL})
    assert {estimate.quantity.case for estimate in verdict.decision.cases} == {CASE, OTHER_CASE}
    assert {finding.quantity.case for finding in verdict.decision.findings} == {OTHER_CASE}


def test_a_case_that_was_not_measured_in_every_trial_is_not_passed_over():
    first = series({CASE: Measured(), OTHER_CASE: Measured()})
    lacking = [*first[:-1], *series({CASE: Measured()}, count=1)]
    for trials in (lacking, series()):
        verdict = concluded(trials, labels=BOTH)
        assert verdict.outcome == INCONCLUSIVE
        assert any(OTHER_LABEL in reason for reason in texts(verdict))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"only_base": list("abcd")},
            (
                "not in the head, so not judged: a, b, c and 1 more; add --allow-missing if this "
                "is intended"
            ),
        ),
        (
            {
                "only_base": ["a"],
                "left_out": {"base": {}, "head": {"a": "is skipped: slow", "b": "xfails"}},
            },
            (
                "not in the head, so not judged: a (is skipped: slow); add --allow-missing if "
                "this is intended"
            ),
        ),
        (
            {"changed": ["a"]},
            (
                "other parameters in the head, so not judged: a; add --allow-missing if this is "
                "intended"
            ),
        ),
    ],
)
def test_a_case_of_the_base_that_was_not_judged_is_not_passed_over(changes, reason):
    assert texts(concluded(series(), **changes)) == (reason,)
    allowed = conclude(recorded(series(), **changes), JudgeOptions(allow_missing=True))
    assert (allowed.outcome, allowed.reasons) == (PASSED, ())


ASYNC = "its function only creates a coroutine"


@pytest.mark.parametrize(
    ("unmeasurable", "reasons"),
    [
        ({"a": ASYNC}, [f"not measured: a: {ASYNC}; add --allow-missing to judge without it"]),
        (
            dict.fromkeys("abcde", ASYNC) | {"f": "its id differs"},
            [
                (
                    f"not measured: a, b, c and 2 more: {ASYNC}; add --allow-missing to judge "
                    "without it"
                ),
                "not measured: f: its id differs; add --allow-missing to judge without it",
            ],
        ),
    ],
)
def test_a_case_that_cannot_be_measured_is_not_passed_over(unmeasurable, reasons):
    verdict = concluded(series(), unmeasurable=unmeasurable)
    assert (verdict.outcome, list(texts(verdict))) == (INCONCLUSIVE, reasons)
    assert not verdict.is_excusable
    assert (
        conclude(
            recorded(series(), unmeasurable=unmeasurable), JudgeOptions(allow_missing=True)
        ).outcome
        == PASSED
    )


def test_a_case_that_a_trial_does_not_find_again_is_judged_in_no_trial():
    both = series({CASE: Measured(), OTHER_CASE: Measured(factor=1.5)}, count=4)
    lacking = [
        dataclasses.replace(measured, unmeasurable={OTHER_CASE: "its id differs"})
        for measured in series(count=4, seed=2)
    ]
    verdict = concluded([*both, *lacking], labels=BOTH)
    assert verdict.unmeasurable == {OTHER_CASE: "its id differs"}
    assert texts(verdict) == (
        f"not measured: {OTHER_CASE}: its id differs; add --allow-missing to judge without it",
    )
    assert {estimate.quantity.case for estimate in verdict.decision.cases} == {CASE}
    allowed = conclude(recorded([*both, *lacking], labels=BOTH), JudgeOptions(allow_missing=True))
    assert (allowed.outcome, list(allowed.header.labels)) == (PASSED, [CASE])


def test_a_result_that_one_side_had_no_time_to_read_is_not_compared():
    read = side(outcome=("0123456789abcdef", 0.5))
    unread = side(outcome=("", 0.0))
    assert concluded([trial(build(read, unread))] * 8).different == ()
    assert concluded([trial(build(read, side(outcome=("f", 0.1))))] * 8).different == (CASE,)


def test_operations_that_some_trial_has_not_profiled_are_said_not_to_be_held():
    verdict = concluded([*series()[:-1], trial(build(side(operations={})))])
    assert (verdict.unprofiled, verdict.decision.operations) == ((CASE,), ())
    # A case that has none.
    assert concluded([trial(build(side(operations={})))] * 8).unprofiled == ()


def test_accepting_an_operation_does_not_excuse_the_noise_of_its_case():
    noisy = both_stages(Measured(factor=1.01, spread=0.04, operations=operations(add=1.3)))
    assert verdicts(concluded(noisy)) == {"aten::add_, optimizer": REGRESSED}
    accepted = concluded(noisy, "*:aten::add_")
    assert accepted.outcome == INCONCLUSIVE
    assert any("of its wall time cannot be ruled out" in reason for reason in texts(accepted))


def test_operations_that_fresh_trials_group_otherwise_are_held_as_at_first():
    # In the fresh trials what was flagged is a small part of the case, and would be pooled with
    # others.
    second = Measured(factor=1.075, operations={**SLOWER.operations, TINY: (80_000_000, 1.0)})
    assert verdicts(concluded(both_stages(SLOWER, second)))[MM_TEXT] == REGRESSED


# ---- accepted ------------------------------------------------------------------------------------

ALL_ITERATIONS = f"{LABEL}:iteration"


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (LABEL, MM_TEXT),
        ("step convnet-b16-cpu", "aten::mm"),
        (CASE, "fc1"),
        ("test_step[convnet-b16-cpu]", "*mm*"),
        ("*", "fc1"),
    ],
)
def test_a_case_and_an_operation_are_accepted_by_any_of_their_names(slower, case, name):
    verdict = concluded(slower, f"{case}:{name}")
    assert [finding.quantity.name for finding in verdict.accepted] == [MM_TEXT]
    assert (verdict.unused, verdict.options.reason) == ((), "it is exact now")
    # The calls that got slower with it are accepted apart.
    assert verdict.outcome == REGRESSED


@pytest.mark.parametrize(
    "pattern",
    [
        "step lenet5-b1-cpu:*",
        f"{LABEL}:aten::m",
        f"{LABEL}:conv2",
        "step:aten::mm",
        f"{LABEL}:aten::?m",
    ],
)
def test_what_is_called_otherwise_is_not_accepted(slower, pattern):
    verdict = concluded(slower, pattern)
    assert (verdict.accepted, verdict.unused, verdict.outcome) == (
        (),
        (f"{pattern}:900%",),
        REGRESSED,
    )


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (ALL_ITERATIONS, {"wall", "cpu"}),
        (f"{LABEL}:wall", {"wall"}),
        ("*:*", {"wall", "cpu", MM_TEXT}),
        (f"{LABEL}:*", {"wall", "cpu", MM_TEXT}),
    ],
)
def test_calls_are_accepted_by_their_clock_or_together(slower, pattern, names):
    assert {finding.quantity.name for finding in concluded(slower, pattern).accepted} == names


COSTS = {
    ("import", ALL_CASES): (50_000_000, 1.6),
    ("first iteration", CASE): (80_000_000, 1.5),
    ("setup", CASE): (90_000_000, 1.0),
}
COSTS_OF_THE_SAME_CODE = {key: (base, 1.0) for key, (base, _) in COSTS.items()}


@pytest.mark.parametrize(
    ("patterns", "regressed"),
    [
        ((), ["import", "first iteration"]),
        # The time of an iteration is another quantity.
        (("*:iteration",), ["import", "first iteration"]),
        ((f"{ALL_CASES}:import:80%",), ["first iteration"]),
        ((f"{LABEL}:first iteration:80%",), ["import"]),
        ((f"{CASE}:first iteration:10%",), ["import", "first iteration"]),
        ((f"{ALL_CASES}:import:80%", "*:first iteration:80%"), []),
    ],
)
def test_what_occurs_once_is_accepted_by_its_name(patterns, regressed):
    trials = [*series(once=COSTS, seed=3), *series(once=COSTS, stage=2, seed=4)]
    verdict = concluded(trials, *patterns)
    assert {finding.quantity.name for finding in verdict.regressions} == set(regressed)
    assert verdict.outcome == (REGRESSED if regressed else PASSED)


def with_a_new_cost(trial):
    """The trial with shared fixtures in the head alone."""
    once = {
        side: {**costs, "shared fixtures": {ALL_CASES: 80_000_000 if side == "head" else 0}}
        for side, costs in trial.once.items()
    }
    return dataclasses.replace(trial, once=once)


def test_a_cost_that_the_base_lacks_is_new_and_its_advised_limit_accepts_it():
    trials = [
        with_a_new_cost(measured)
        for stage in (1, 2)
        for measured in series(once=COSTS_OF_THE_SAME_CODE, stage=stage, seed=stage)
    ]
    text = gate_builders.rendered(concluded(trials), "terminal")
    assert "regressed: shared fixtures (all cases), new, 0 ns -> 80.0 ms; confirmed by " in text
    table = text.partition("once in a process: ")[2].partition("\n\n")[0]
    assert re.search(
        r"^shared fixtures +all cases +0 ns -> 80\.0 ms +new +- +- .* -$", table, re.MULTILINE
    )
    # A cost that the base does not have is no share of it.
    assert concluded(trials, f"{ALL_CASES}:shared fixtures:1000%").outcome == PASSED
    assert concluded(trials, f"{ALL_CASES}:shared fixtures:999%").outcome == REGRESSED


def test_what_is_accepted_passes_and_what_accepted_nothing_is_listed(slower):
    verdict = concluded(slower, f"{LABEL}:aten::mm", "*:aten::gone", ALL_ITERATIONS)
    assert (verdict.outcome, verdict.regressions, verdict.unused) == (
        PASSED,
        (),
        ("*:aten::gone:900%",),
    )
    assert {finding.quantity.title for finding in verdict.accepted} == {
        MM_TEXT,
        "wall time",
        "CPU time",
        "mean wall time",
        "mean CPU time",
    }


def test_an_improvement_uses_no_acceptance(slower):
    verdict = concluded([gate_builders.swapped(measured) for measured in slower], "*:aten::mm")
    assert (verdict.accepted, verdict.unused) == ((), ("*:aten::mm:900%",))


@pytest.mark.parametrize(
    ("labels", "pattern"),
    [
        ({CASE: LABEL, OTHER_CASE: LABEL}, LABEL),
        ({"test_a.py::test_second": "a", "test_b.py::test_second": "b"}, "test_second"),
        ({"x/t.py::test_f": "t.py::test_f", "y/t.py::test_f": "t.py::test_f"}, "t.py::test_f"),
    ],
    ids=["a title", "a function in two files", "a file in two folders"],
)
def test_a_name_of_two_cases_accepts_neither_and_that_of_one_accepts_it(labels, pattern):
    trials = both_stages(dict.fromkeys(labels, SLOWER))
    with pytest.raises(UsageError, match=f"'{re.escape(pattern)}:iteration:900%' names 2 cases: "):
        concluded(trials, f"{pattern}:iteration", labels=labels)
    one, other = labels
    left = concluded(trials, f"{one}:*", labels=labels).regressions
    assert {finding.quantity.case for finding in left} & {other, labels[other]}
    assert not {finding.quantity.case for finding in left} & {one}
    assert concluded(trials, f"*{pattern}*:*", labels=labels).outcome == PASSED


def test_the_id_of_a_case_is_no_name_of_another_in_a_folder():
    # A title has the file without its folder, which is the whole id of the first case.
    labels = dict.fromkeys(("t.py::test_f", "x/t.py::test_f"), "t.py::test_f")
    left = concluded(
        both_stages(dict.fromkeys(labels, SLOWER)), "t.py::test_f:*", labels=labels
    ).regressions
    assert {finding.quantity.case for finding in left} == {"x/t.py::test_f"}


@pytest.mark.parametrize(
    "name",
    [
        "evaluate_function: AddmmBackward0",
        ENGINE[0],
        "evaluate_function: AddmmBackward0, backward fc1",
    ],
)
def test_an_operation_is_accepted_as_tables_show_it_or_as_torch_calls_it(name):
    case = Measured(6_000_000, 1.1, operations={**QUIET, ENGINE: (2_000_000, 1.3)})
    verdict = concluded(both_stages(case), f"{LABEL}:{name}")
    assert [finding.quantity.members for finding in verdict.accepted] == [(ENGINE,)]


SMALL_ONES = {CONV: (3_000_000, 1.0), TINY: (20_000, 1.0), ADD: (20_000, 2.0)}


def test_what_is_held_together_is_accepted_together():
    trials = both_stages(Measured(factor=1.01, operations=SMALL_ONES))
    assert verdicts(concluded(trials)) == {"other": REGRESSED}
    assert concluded(trials, "*:other").outcome == PASSED
    # One operation's name does not excuse those pooled with it.
    assert concluded(trials, "*:aten::t", "*:fc1").outcome == REGRESSED


def test_a_place_is_accepted_by_what_came_what_went_and_its_module():
    case = Measured(
        factor=1.25, operations={**QUIET, GEMM: (2_000_000, 1.0)}, only_base=[MM], only_new=[GEMM]
    )
    trials = both_stages(case)
    assert verdicts(concluded(trials))["new and gone operations, forward fc1"] == REGRESSED
    title = "aten::mm -> aten::_scaled_mm, forward fc1"
    for name in (
        "aten::mm",
        "aten::_scaled_mm",
        "fc1",
        "new and gone operations, forward fc1",
        title,
    ):
        assert concluded(trials, f"*:{name}", ALL_ITERATIONS).outcome == PASSED, name


def test_a_regression_is_accepted_up_to_its_limit_and_no_further(slower):
    # The operation is 30 % slower, and its case 7.5 %.
    enough = concluded(slower, "*:aten::mm:35%", "*:iteration:10%")
    assert enough.outcome == PASSED
    assert {finding.exceeded_limit for finding in enough.decision.findings} == {None}
    for too_little in (("*:aten::mm:25%", "*:iteration:10%"), ("*:aten::mm:35%", "*:iteration:5%")):
        verdict = concluded(slower, *too_little)
        assert (verdict.outcome, verdict.unused) == (REGRESSED, ())
        assert {finding.exceeded_limit for finding in verdict.regressions} in ({0.25}, {0.05})
    # Of several the one that allows most counts.
    assert concluded(slower, "*:aten::mm:25%", "*:fc1:35%", "*:iteration:10%").outcome == PASSED


def test_a_slowdown_that_the_budget_left_unconfirmed_comes_before_the_budget():
    verdict = concluded(series(Measured(factor=1.97)), end=End("the budget leaves 3 s"))
    assert (verdict.outcome, verdict.is_excusable) == (INCONCLUSIVE, False)
    assert re.match(
        rf"inconclusive: {LABEL}: (mean )?(wall|CPU) time differs by \+9\d.\d %, and no fresh "
        r"trial has measured it again; increase --budget: --inconclusive warn does not excuse it",
        last_line(verdict),
    )
    assert "the budget leaves 3 s" in texts(verdict)


def test_noise_and_the_budget_are_excusable():
    assert concluded(series(Measured(spread=0.05))).is_excusable
    assert concluded(series(), end=End("the budget allowed 8 of 10 trials")).is_excusable


@pytest.mark.parametrize(
    "verdict",
    [
        lambda: concluded(series(), only_base=["gone"]),
        lambda: concluded(series(), changed=["other"]),
        lambda: concluded(series(), end=End("interrupted", broken_off=True)),
        lambda: concluded(series(), labels=BOTH),
    ],
    ids=["a case is missing", "a case is another", "interrupted", "not measured in every trial"],
)
def test_what_noise_does_not_explain_is_not_excusable(verdict):
    assert (verdict().outcome, verdict().is_excusable) == (INCONCLUSIVE, False)


# ---- slowdowns in few iterations -----------------------------------------------------------------


def rebuilt(trials, change):
    """The same trials, each build changed by a function."""
    return [
        dataclasses.replace(
            measured,
            cases={
                name: [change(samples) for samples in builds]
                for name, builds in measured.cases.items()
            },
        )
        for measured in trials
    ]


def with_times(trials, change):
    """The same trials, with what the head's iterations take changed."""
    return rebuilt(
        trials,
        lambda samples: {
            **samples,
            HEAD: dataclasses.replace(samples[HEAD], **time_columns(change(samples[HEAD].times))),
        },
    )


def test_a_head_whose_every_fifth_iteration_takes_twice_as_long_regresses():
    def every_fifth(times):
        factors = [2 if number % 5 == 2 else 1 for number in range(PAIRS)]
        return {
            clock: tuple(ns * factor for ns, factor in zip(clock_ns, factors, strict=True))
            for clock, clock_ns in times.items()
        }

    verdict = concluded(with_times(both_stages(Measured()), every_fifth))
    assert verdict.outcome == REGRESSED
    assert {finding.quantity.title for finding in verdict.regressions} == {
        "mean wall time",
        "mean CPU time",
    }


def test_a_head_that_sleeps_regresses_though_its_cpu_time_does_not():
    def sleeping(times):
        return {**times, "wall": tuple(round(ns * 1.05) for ns in times["wall"])}

    verdict = concluded(with_times(both_stages(Measured()), sleeping))
    assert verdict.outcome == REGRESSED
    assert {finding.quantity.title for finding in verdict.regressions} == {
        "wall time",
        "mean wall time",
    }
    line, *_ = finding_lines(Rows(verdict))
    assert line.startswith("regressed: wall time (")
    assert re.search(
        r"; not confirmed by CPU time, [+-]?\d\.\d % \([+-]?\d\.\d % to [+-]?\d\.\d %\)", line
    )
    both, *_ = finding_lines(Rows(concluded(both_stages(Measured(factor=1.05)))))
    assert "CPU time +" in both
    assert "not confirmed by" not in both


# ---- new and replaced operations -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("head_ns", "outcome"), [(100_000, PASSED), (102_000, PASSED), (115_000, REGRESSED)]
)
def test_a_replaced_operation_is_judged_as_if_it_had_kept_its_name(head_ns, outcome):
    # 2.4 % of the case: 15 % more of it is 0.4 % of the case, which is less than new operations may
    # add.
    operations = {**QUIET, CLONE: (100_000, 1.0), GEMM: (head_ns, 1.0)}
    case = Measured(
        factor=1 + (head_ns - 100_000) / 4e6,
        operations=operations,
        only_base=[CLONE],
        only_new=[GEMM],
    )
    verdict = concluded(both_stages(case, count=TRIALS))
    assert verdict.outcome == outcome
    assert ("new and gone operations, forward fc1" in verdicts(verdict)) == (outcome == REGRESSED)


LINEAR1 = ("aten::mm", "forward", "linear1")


@pytest.mark.parametrize(
    ("gone_ns", "head_ns", "outcome"),
    [
        (40_000, 76_000, REGRESSED),
        (40_000, 40_000, PASSED),
        (None, 100_000, REGRESSED),
        (None, 8_000, PASSED),
    ],
)
def test_operations_in_a_place_that_the_base_lacks_are_tested(gone_ns, head_ns, outcome):
    operations = {**QUIET, LINEAR1: (head_ns, 1.0), **({CLONE: (gone_ns, 1.0)} if gone_ns else {})}
    del operations[TINY]
    if gone_ns:  # the place of the base goes with its only operation
        del operations[MM]
    whole_ns = sum(ns for key, (ns, _) in operations.items() if key != LINEAR1)
    factor = 1.0 + (head_ns - (gone_ns or 0)) / whole_ns
    case = Measured(factor=factor, operations=operations, only_base=[CLONE], only_new=[LINEAR1])
    verdict = concluded(both_stages(case, count=TRIALS))
    assert verdict.outcome == outcome
    assert ("new and gone operations, new and gone modules" in verdicts(verdict)) == (
        outcome == REGRESSED
    )


def test_one_sample_of_nothing_does_not_take_an_operation_out(slower):
    spoiled = rebuilt(slower, zeroed)
    assert verdicts(concluded(spoiled))[MM_TEXT] == REGRESSED


def zeroed(samples):
    times = samples[BASE].operations[MM].self_ns
    operations = {**samples[BASE].operations, MM: operation((0, *times[1:]))}
    return {**samples, BASE: dataclasses.replace(samples[BASE], **operation_columns(operations))}


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "text"),
    [(110, "+10.0 %"), (90, "-10.0 %"), (300, "+200.0 %"), (109, ""), (91, ""), (100, "")],
)
def test_peak_memory_is_an_exact_difference_from_a_tenth_on(new, text):
    case_differences = concluded(
        series(), memory={CASE: {"base": 100, "head": new}}
    ).exact_differences
    process_differences = concluded(series(), resident={"base": 100, "head": new}).exact_differences
    assert case_differences == (
        {CASE: (f"peak memory of tensors: 100 -> {new} bytes ({text})",)} if text else {}
    )
    assert process_differences == (
        {"all cases": (f"peak memory of the process: 100 -> {new} bytes ({text})",)} if text else {}
    )


def test_without_a_tensor_in_the_base_there_is_no_difference_of_memory():
    assert concluded(series(), memory={CASE: {"base": 0, "head": 5}}).exact_differences == {}


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "sides", "sentence"),
    [
        ((("aa", 1.0), ("bb", None)), ("head",), "the head computes NaN or infinity"),
        ((("aa", None), ("aa", None)), ("base", "head"), "the base computes NaN or infinity"),
        ((("aa", 1.0), ("bb", 1.1)), (), "the sides compute different numbers"),
    ],
)
def test_sides_that_compute_no_numbers_or_others_are_in_the_closing_sentence(
    outcomes, sides, sentence
):
    verdict = concluded(series(Measured(outcomes=outcomes)))
    assert verdict.not_finite.get(CASE, ()) == sides
    assert f"{sentence} in {LABEL}" in last_line(verdict)


# ---- what differs exactly ------------------------------------------------------------------------


def exact_differences(case):
    return concluded(series(case, count=2)).exact_differences


def test_what_is_counted_differs():
    """Its sentences are tested with ``compare.exact``."""
    rows = {**QUIET, GEMM: (900_000, 1.0)}
    case = Measured(
        operations=rows,
        only_base=[MM],
        only_new=[GEMM],
        parameters=(8, 9),
        new={ADD: {"calls": 2.0}},
    )
    assert exact_differences(case) == {
        CASE: (
            "parameters: 8 -> 9",
            f"{MM_TEXT}: is now aten::_scaled_mm, with the same calls and bytes",
            "aten::add_, optimizer: 1 -> 2 calls",
        )
    }


def test_the_operation_that_added_most_is_told_of_first():
    more = {"calls": 2.0}
    case = Measured(operations=operations(conv=1.1, mm=1.5), new={ADD: more, CONV: more, MM: more})
    [facts] = exact_differences(case).values()
    assert [fact.partition(",")[0] for fact in facts] == [
        "aten::mm",
        "aten::mkldnn_convolution",
        "aten::add_",
    ]


def test_cases_that_do_not_differ_have_no_facts():
    cases = {CASE: Measured(), OTHER_CASE: Measured(new={MM: {"calls": 2.0}})}
    assert list(concluded(series(cases, count=2), labels=BOTH).exact_differences) == [OTHER_CASE]


def test_facts_are_of_the_first_stage_alone():
    more = Measured(new={MM: {"calls": 2.0}})
    assert concluded([*series(count=2), *series(more, stage=2, count=2)]).exact_differences == {}
    assert concluded(series(more, stage=2, count=2)).exact_differences == {}


# ---- what the sides compute ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "new", "exact", "different"),
    [
        (("aa", 1.0), ("aa", 1.0), True, False),
        (("aa", 1.0), ("bb", 1.0), True, True),
        (("aa", 1.0), ("bb", 1.009), True, True),
        (("aa", 1.0), ("bb", 1.009), False, False),
        (("aa", 1.0), ("bb", 1.02), False, True),
        (("aa", 1.0), ("bb", -1.0), False, True),
        (("aa", -1.0), ("bb", -1.009), False, False),
        (("aa", 0.0), ("bb", 0.0), False, False),
        (("aa", 0.0), ("bb", 1e-9), False, True),
        (("aa", 1.0), ("aa", 2.0), False, False),  # the bits decide
    ],
)
@pytest.mark.parametrize("stage", [1, 2])
def test_sides_that_do_not_compute_the_same_are_told(base, new, exact, different, stage):
    differing = build(side(outcome=base), side(outcome=new))
    trials = [trial(), trial(build(), differing, stage=stage)]
    assert concluded(trials, exact={CASE: exact}).different == (CASE,) * different
    assert (
        concluded(trials, exact={CASE: exact}, uncompared={CASE: "returns object"}).different == ()
    )


# ---- cut short -----------------------------------------------------------------------------------


def test_why_it_was_cut_short_comes_before_what_follows_from_it():
    verdict = concluded(series(count=3), end=End("the budget was used up after 3 of 12 trials"))
    assert verdict.outcome == INCONCLUSIVE
    assert texts(verdict) == (
        "the budget was used up after 3 of 12 trials",
        "3 trials are too few: the test needs at least 8",
    )


def test_a_confirmed_regression_is_the_outcome_unless_the_gate_was_broken_off(slower):
    used_up = "the budget allowed 8 of 10 trials"
    verdict = concluded(slower, end=End(used_up))
    assert (verdict.outcome, texts(verdict)) == (REGRESSED, (used_up,))
    for end in (INTERRUPTED, NO_END):
        verdict = concluded(slower, end=end)
        assert (verdict.outcome, texts(verdict)) == (INCONCLUSIVE, (end.cut_short,))
        assert verdict.regressions  # the report has them
        assert not verdict.is_excusable


# ---- spoiled files -------------------------------------------------------------------------------


TRIAL_LINES = [
    line(trial(build(side(operations={MM: 5_000, TINY: 70})), stage=stage)) for stage in (1, 1, 2)
]


@settings(parent=strategies.ANY_SPEED, max_examples=100)
@given(strategies.spoiled([header().line(), *TRIAL_LINES]))
def test_whatever_a_file_says_there_is_a_verdict_and_a_report_or_one_refusal(
    tmp_path_factory, drawn
):
    lines = drawn[1] if len(drawn[1]) > 1 else [header().line(), *TRIAL_LINES]
    path = tmp_path_factory.mktemp("samples") / "raw.jsonl.gz"
    path.write_bytes(
        gzip.compress("".join(f"{json.dumps(stored_line)}\n" for stored_line in lines).encode())
    )
    try:
        verdict = conclude(load(path), JudgeOptions())
    except (RecordError, UsageError):  # the latter of a threshold of a mark
        return
    assert verdict.outcome == INCONCLUSIVE  # so few trials
    for form in ("terminal", "markdown", "json"):
        rendered(verdict, form)
