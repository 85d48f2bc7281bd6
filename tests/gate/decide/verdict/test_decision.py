"""Candidates, verdicts and reasons of a gate."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import gate_builders
import numpy as np
import pytest
import scipy.linalg
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from mnistbench.gate.decide.statistics.permutation import LEVEL
from mnistbench.gate.decide.verdict.decision import decide, is_settled
from mnistbench.gate.decide.verdict.estimates import Estimate, as_shown, kinds_of
from mnistbench.gate.decide.verdict.findings import (
    CHECKPOINTS,
    CONFIRMING,
    MIN_FRESH_OF_IMPROVEMENT,
    PRODUCT,
    SCREENING,
    is_confirmed,
    least_fresh,
)
from mnistbench.gate.decide.verdict.reasons import trials_needed
from mnistbench.gate.options import MEAN_FACTOR, MIN_TRIALS, TRIALS, Thresholds
from mnistbench.judging import verdicts
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.ratios import change_of
from mnistbench.judging.verdicts import (
    BELOW_FLOOR,
    CONTRADICTED,
    IMPROVED,
    INCONCLUSIVE,
    NOISE,
    PASSED,
    REGRESSED,
    SLOWER,
    UNCONFIRMED,
    WITHIN,
)

SEED = 7
LIMITS = Thresholds()
ACCEPT_ALL = (Acceptance("*:*", 9.0),)
NAMES = {"case": ("case",)}


# ---- candidates ----------------------------------------------------------------------------------


def test_a_false_alarm_has_a_probability_of_1_in_1_000():
    # p-values of unchanged code are uniform.
    first = (np.arange(2_000_000) + 0.5) / 2_000_000 * SCREENING
    assert len(CHECKPOINTS) * SCREENING * np.minimum(PRODUCT / first, CONFIRMING).mean() < 1.0e-3


@pytest.mark.parametrize(("trials", "fresh"), [(MIN_TRIALS, 8), (9, 8), (TRIALS, 4), (40, 4)])
def test_the_fewest_trials_that_can_confirm(trials, fresh):
    assert least_fresh(trials, LIMITS) == fresh
    assert 1 / 2 ** (trials + fresh) <= PRODUCT
    assert 1 / 2**MIN_FRESH_OF_IMPROVEMENT <= LEVEL


@pytest.mark.parametrize(
    ("change", "screened", "fresh", "trials", "confirmed"),
    [
        (0.1, 1 / 2**10, 1 / 2**4, 4, True),
        (0.1, 1 / 2**9, 1 / 2**4, 4, False),
        (0.1, 0.0013, 0.05, 8, True),
        (0.1, 0.017, 0.004, 8, True),
        (0.1, 0.018, 0.004, 8, False),  # the product is too large
        (0.1, 0.0001, 0.07, 8, False),  # the fresh trials alone are no evidence
        (-0.1, 0.01, 0.01, 8, True),
        (-0.1, 0.001, 0.011, 8, False),
    ],
)
def test_both_stages_confirm_together(change, screened, fresh, trials, confirmed):
    stages = [
        Estimate(call(change), change, change, change, p, count)
        for p, count in ((screened, 10), (fresh, trials))
    ]
    assert is_confirmed(*stages) is confirmed
    other_way = dataclasses.replace(stages[1], change=-change)
    assert is_confirmed(stages[0], other_way) is False


def words(seed):
    """Return the numbers of a seed, which may be nested."""
    return [word for part in seed for word in words(part)] if isinstance(seed, list) else [seed]


def logs(change, *, spread=0.003, count=12, seed=0):
    """Differences with exactly this mean change, and this standard deviation."""
    noise = np.random.default_rng([*words(seed), count]).normal(size=count)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    return tuple((math.log1p(change) + spread * noise).tolist())


def call(change=0.0, *, case="case", seed=0, spread=0.003, count=12, **changes):
    return gate_builders.quantity(
        logs(change, spread=spread, count=count, seed=[seed, 0]), case=case, **changes
    )


def operation(
    change=0.0,
    *,
    case="case",
    name="aten::mm, forward fc1",
    seed=0,
    spread=0.009,
    count=12,
    **changes,
):
    differences = logs(change, spread=spread, count=count, seed=[seed, 1])
    return gate_builders.quantity(
        differences, **{"case": case, "kind": "operation", "name": name, **changes}
    )


def added(change=0.0, **changes):
    """What operations that the base lacks add to their case, as a share of it."""
    return operation(
        change,
        **{
            "kind": "added",
            "name": "new and gone operations, forward fc1",
            "spread": 0.0005,
            **changes,
        },
    )


def mean(change=0.0, **changes):
    """The mean of a case, which varies more than its median."""
    return call(change, **{"kind": "mean", "spread": 0.006, **changes})


def once(change=0.0, *, name="import", **changes):
    """A cost that occurs once in a process; ``kind`` makes it memory."""
    ordinary = {"case": "all cases", "kind": "once", "spread": 0.03}
    return operation(change, name=name, **{**ordinary, **changes})


def quiet(count=12, seed=0):
    """Two cases of three operations each in which nothing differs."""
    for case, number in itertools.product(("case", "other case"), range(2)):
        yield call(
            case=case,
            seed=[seed, number],
            count=count,
            name=("wall", "cpu")[number],
        )
    for case, number in itertools.product(("case", "other case"), range(3)):
        yield operation(
            case=case, name=f"operation {number}", seed=[seed, len(case), number], count=count
        )


def among(*quantities, count=12, seed=0):
    """These quantities, and quiet ones for all keys that they do not have."""
    keys = {quantity.key for quantity in quantities}
    return [*quantities, *(quantity for quantity in quiet(count, seed) if quantity.key not in keys)]


def decided(first, second=(), thresholds=LIMITS, seed=SEED):
    return decide(first, second, thresholds, seed)


MM = "aten::mm, forward fc1"


@pytest.mark.parametrize(
    ("quantity", "flagged"),
    [
        (operation(0.1), True),
        (operation(-0.1), True),
        (operation(0.04), False),  # sure, but no matter
        (operation(0.1, spread=0.3), False),  # large, but not sure
        (call(0.03), True),
        (call(-0.03), True),
        (call(0.015), False),
        (call(0.03, spread=0.1), False),
        (operation(0.1, kind="other", name="other"), True),
        (added(0.008), True),
        (added(0.003), False),
        (mean(0.03), True),
        (mean(0.015), False),
        (call(0.03, name="cpu"), True),
        (call(0.03, name="device"), True),
        (once(0.3), True),
        (once(0.1), False),  # sure, but less than 20 %
        (once(0.3, spread=0.5), False),
        (once(-0.3), True),
        (once(0.12, kind="memory"), True),
        (once(0.06, kind="memory"), False),
    ],
)
def test_a_candidate_is_surely_and_relevantly_changed(quantity, flagged):
    assert [finding.quantity for finding in decided(among(quantity)).findings] == [
        quantity
    ] * flagged


def test_with_too_few_trials_nothing_is_flagged():
    assert decided([]).findings == ()
    assert decided([call(1.0, count=7)]).findings == ()
    assert len(decided([call(1.0, count=8)]).findings) == 1


def test_a_quantity_without_a_difference_is_no_candidate_and_blocks_none():
    spoiled = operation(0.5, name="spoiled")
    spoiled = dataclasses.replace(spoiled, logs=(math.nan, *spoiled.logs[1:]))
    assert [
        finding.quantity.name for finding in decided(among(operation(0.1), spoiled)).findings
    ] == [MM]


# ---- verdicts ------------------------------------------------------------------------------------


def texts(result):
    return [reason.text for reason in result.reasons]


def decision_of(first, second=(), **changes):
    """What became of a comparison: outcome, verdicts of the findings, reasons."""
    result = decided(among(*first), second, **changes)
    return result.outcome, [finding.verdict for finding in result.findings], texts(result)


def fresh(effect_of, change, **changes):
    """The same quantity in ten fresh trials."""
    return effect_of(change, count=10, seed=99, **changes)


def test_what_does_not_differ_passes_and_says_what_is_excluded():
    result = decided(among())
    assert (result.outcome, result.findings, result.reasons) == (PASSED, (), ())
    assert (result.trials, result.fresh) == (12, 0)
    assert 0 < result.bound < LIMITS.case
    assert result.bound == max(estimate.high for estimate in result.cases)
    assert (len(result.cases), len(result.operations)) == (4, 6)


@pytest.mark.parametrize(
    ("first", "second", "verdict", "outcome"),
    [
        (operation(0.1), fresh(operation, 0.1), REGRESSED, REGRESSED),
        # 5 % cannot be excluded.
        (operation(0.1), fresh(operation, 0.04, spread=0.03), SLOWER, INCONCLUSIVE),
        (operation(0.1), fresh(operation, 0.03), WITHIN, PASSED),
        (operation(-0.1), fresh(operation, -0.03), WITHIN, PASSED),
        (call(0.03), fresh(call, 0.03), REGRESSED, REGRESSED),
        # The other way round in fresh trials, or nothing.
        (operation(0.1), fresh(operation, -0.1), UNCONFIRMED, PASSED),
        (operation(0.1), fresh(operation, 0.0), UNCONFIRMED, PASSED),
        (operation(-0.1), fresh(operation, 0.1), UNCONFIRMED, PASSED),
        # An improvement never fails.
        (operation(-0.1), fresh(operation, -0.1), IMPROVED, PASSED),
        (call(-0.3), fresh(call, -0.3), IMPROVED, PASSED),
        (call(-0.3), fresh(call, 0.0), UNCONFIRMED, PASSED),
        # What occurs once.
        (once(0.3), fresh(once, 0.3), REGRESSED, REGRESSED),
        (once(0.3), fresh(once, 0.08), WITHIN, PASSED),
        (once(0.3), fresh(once, 0.0), UNCONFIRMED, PASSED),
        (once(0.3), fresh(once, 0.25, spread=1.0), INCONCLUSIVE, INCONCLUSIVE),
        (once(0.12, kind="memory"), fresh(once, 0.12, kind="memory"), REGRESSED, REGRESSED),
        (once(-0.3), fresh(once, -0.3), IMPROVED, PASSED),
    ],
)
def test_a_candidate_is_what_fresh_trials_make_of_it(first, second, verdict, outcome):
    # An operation of a quarter of its case moves it by little; the case has room for it here.
    share = {"share": 0.005} if first.kind == "operation" else {}
    changed, again = (dataclasses.replace(candidate, **share) for candidate in (first, second))
    result = decision_of([changed], among(again, count=10, seed=5))
    has_reason = verdict in (INCONCLUSIVE, SLOWER)
    assert (*result[:2], bool(result[2])) == (outcome, [verdict], has_reason)


@pytest.mark.parametrize(
    ("change", "fresh_change", "verdict", "kind"),
    [
        (0.02, 0.018, SLOWER, NOISE),
        (0.02, 0.021, SLOWER, SLOWER),
        (0.06, 0.05, REGRESSED, None),
        # The bounds of all trials exceed the limit because of those that chose the case.
        (0.05, 0.018, SLOWER, NOISE),
    ],
)
def test_a_regression_exceeds_the_limit_by_the_bound_of_all_trials(
    change, fresh_change, verdict, kind
):
    again = among(fresh(call, fresh_change, spread=0.006), count=10, seed=5)
    result = decided(among(call(change, spread=0.006)), again)
    [finding] = [finding for finding in result.findings if finding.quantity.is_case]
    assert finding.verdict == verdict
    assert finding.fails is (verdict == REGRESSED)
    assert [reason.kind for reason in result.reasons] == [kind] * (kind is not None)
    assert all("less or more than the limit of 2.0 %" in reason.text for reason in result.reasons)
    assert not result.open_cases
    [of_all] = [
        estimate for estimate in result.cases if estimate.quantity.key == finding.quantity.key
    ]
    if verdict == REGRESSED:
        assert LIMITS.case <= of_all.low
    else:
        assert not is_settled(dataclasses.replace(result, fresh=8), LIMITS)


def test_a_slower_case_that_is_accepted_is_settled_and_passes():
    again = among(fresh(call, 0.021, spread=0.006), count=10, seed=5)
    first = among(call(0.02, spread=0.006))
    accept = [Acceptance.parse("case:wall:5%")]
    result = decide(first, again, LIMITS, SEED, accept, {"case": ("case",)})
    assert [(finding.verdict, finding.accepted) for finding in result.findings] == [(SLOWER, True)]
    assert result.outcome == PASSED
    assert is_settled(result, LIMITS)


@pytest.mark.parametrize(
    ("wall", "verdict"),
    [
        (call(0.0), CONTRADICTED),  # 3 % of the CPU time are more than the wall time has grown
        (call(0.0, spread=0.05), REGRESSED),  # it varies too much
        (call(0.015, base=8e6, head=8.12e6), REGRESSED),  # it waits half of the time
    ],
)
def test_cpu_time_cannot_grow_by_more_than_the_wall_time_that_contains_it(wall, verdict):
    def cpu(**changes):
        return call(0.03, name="cpu", **changes)

    same_wall = dataclasses.replace(wall, logs=wall.logs[:10])
    again = among(cpu(count=10, seed=99), same_wall, count=10)
    result = decided(among(cpu(), wall), again)
    [finding] = [finding for finding in result.findings if finding.quantity.clock == "cpu"]
    assert finding.verdict == verdict
    assert ("more than its wall time shows" in str(result.reasons)) is (verdict == CONTRADICTED)


def test_what_occurs_once_may_have_any_bound_and_changes_no_other_one():
    names = ("import", "setup", "shared fixtures")
    noisy = [once(0.1, spread=0.8, name=name, seed=number) for number, name in enumerate(names)]
    result = decided(among(*noisy))
    without = decided(among())
    assert (result.outcome, result.reasons, result.unbounded) == (PASSED, (), ())
    assert min(estimate.high for estimate in result.once) > LIMITS.once
    assert [(estimate.low, estimate.high) for estimate in (*result.cases, *result.operations)] == [
        (estimate.low, estimate.high) for estimate in (*without.cases, *without.operations)
    ]
    # Their spread is no one else's s0.
    assert kinds_of([call(), mean(), operation(), added(), *noisy[:1], once(kind="memory")]) == [
        "iteration",
        "mean",
        "operation",
        "added",
        "once",
        "memory",
    ]


def test_a_limit_of_what_occurs_once_is_an_option():
    assert decided(among(once(0.3)), thresholds=Thresholds(once=0.5)).findings == ()


@pytest.mark.parametrize(
    ("again", "verdict", "outcome"), [(0.008, REGRESSED, REGRESSED), (0.003, WITHIN, PASSED)]
)
def test_new_operations_matter_from_half_a_percent_of_their_case_on(again, verdict, outcome):
    second = among(fresh(added, again, share=0.01), fresh(call, 0.008), count=10, seed=5)
    assert decision_of([added(0.008, share=0.01), call(0.008)], second) == (outcome, [verdict], [])


def test_an_operation_that_fresh_trials_neither_confirm_nor_exclude_is_no_pass():
    flagged = operation(0.1, share=0.005)
    outcome, verdicts, [reason] = decision_of(
        [flagged],
        among(operation(0.1, count=12, seed=99, spread=0.4, share=0.005), count=12, seed=5),
    )
    assert (outcome, verdicts) == (INCONCLUSIVE, [INCONCLUSIVE])
    assert re.fullmatch(
        (
            rf"case: {MM} was flagged, and 12 fresh trials neither .* 5.0 % \(up to \d+.\d %\); "
            r"measure again"
        ),
        reason,
    )


def test_the_estimate_to_report_is_that_of_trials_that_did_not_choose_it():
    [finding] = decided(
        among(operation(0.1, share=0.005)), [fresh(operation, 0.07, share=0.005)]
    ).findings
    assert finding.screened.change == pytest.approx(0.1)
    assert finding.best is finding.confirmed
    assert finding.best.change == pytest.approx(0.07)
    assert finding.best.trials == 10


def test_bounds_of_what_was_measured_again_are_of_all_its_trials():
    first = among(call(0.03))
    once = decided(first)
    again = decided(first, [fresh(call, 0.01)])
    before = once.cases[0]
    after = again.cases[0]
    assert (before.quantity.key, after.quantity.key) == (first[0].key, first[0].key)
    assert (before.trials, after.trials) == (12, 22)
    assert after.change == pytest.approx(
        math.expm1((12 * math.log(1.03) + 10 * math.log(1.01)) / 22)
    )
    assert after.p == before.p
    assert {estimate.trials for estimate in again.cases[1:]} == {12}


def test_findings_come_in_the_order_of_what_they_cost_their_case():
    changes = {"a": (0.5, 0.01), "b": (0.1, 0.2), "c": (-0.3, 0.1)}
    first = [
        operation(change, name=name, share=share, seed=1)
        for name, (change, share) in changes.items()
    ]
    second = [
        fresh(operation, change, name=name, share=share)
        for name, (change, share) in changes.items()
    ]
    result = decided(among(*first), second)
    assert [finding.quantity.name for finding in result.findings] == ["c", "b", "a"]


# ---- inconclusive --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_trials_judge_nothing(count):
    first = [call(0.01, count=count) if count > 1 else gate_builders.quantity((0.5,) * count)]
    result = decided(first)
    assert (result.outcome, result.cases, result.findings, result.trials) == (
        INCONCLUSIVE,
        (),
        (),
        count,
    )
    number = "1 trial is" if count == 1 else f"{count} trials are"
    assert texts(result) == [f"{number} too few: the test needs at least 8"]


@pytest.mark.parametrize(
    ("spoiled", "what"),
    [
        (call(case="third"), "third: too few usable samples of wall time"),
        (operation(name="spoiled"), "case: too few usable samples of spoiled"),
        (operation(name="moved", kind="added"), "case: too few usable samples of moved"),
    ],
)
def test_a_quantity_without_a_difference_is_a_reason(spoiled, what):
    spoiled = dataclasses.replace(spoiled, logs=(*spoiled.logs[:-1], math.nan))
    result = decided(among(spoiled))
    assert (result.outcome, result.findings) == (INCONCLUSIVE, ())
    [reason] = result.reasons
    assert reason.text.startswith(what)
    assert not reason.is_excusable
    assert (decided([spoiled]).cases, texts(decided([spoiled]))) == ((), [reason.text])


def test_an_operation_that_its_whole_case_contradicts_is_no_regression():
    # Half of the case got 30 % slower, and the case did not.
    changed = operation(0.3, share=0.5), fresh(operation, 0.3, share=0.5)
    outcome, verdicts, [reason] = decision_of(changed[:1], changed[1:])
    assert (outcome, verdicts) == (INCONCLUSIVE, [CONTRADICTED])
    assert reason == (
        f"case: {MM} differs by +30.0 %, more than the time of its case shows; profile this "
        "operation alone"
    )


def test_an_operation_that_is_slower_than_its_slower_case_shows_has_a_true_sentence():
    # Profiled, torch.sinh took three times as long as in the timed iterations, in which it was
    # slower, too.
    result = decided(
        among(operation(1.0, share=0.5), call(0.2)),
        [fresh(operation, 1.0, share=0.5), fresh(call, 0.2)],
    )
    assert sorted(finding.verdict for finding in result.findings) == [CONTRADICTED, REGRESSED]
    assert "more than the time of its case shows" in " ".join(texts(result))


@pytest.mark.parametrize(
    ("other_changes", "verdict"),
    [
        ([call(0.15)], REGRESSED),  # the case got slower by as much
        ([call(0.15, name="cpu")], REGRESSED),  # by either clock
        ([call(0.15, case="other case")], CONTRADICTED),
        ([operation(-0.4, name="x", share=0.4)], REGRESSED),  # another operation gave it back
        ([operation(-0.4, name="x", share=0.4, case="other case")], CONTRADICTED),
        ([operation(-0.4, name="x", share=0.05)], CONTRADICTED),
        ([operation(-0.4, name="x", share=0.4, spread=1.0)], CONTRADICTED),  # or perhaps not
    ],
)
def test_what_other_operations_gave_back_explains_a_case_that_did_not_get_slower(
    other_changes, verdict
):
    result = decided(
        among(operation(0.3, share=0.5), *other_changes), [fresh(operation, 0.3, share=0.5)]
    )
    assert [finding.verdict for finding in result.findings if finding.quantity.name == MM] == [
        verdict
    ]


@pytest.mark.parametrize(("busy_change", "verdict"), [(0.2, REGRESSED), (0.0, CONTRADICTED)])
def test_a_kernel_of_a_launch_bound_call_has_a_share_of_its_busy_time(busy_change, verdict):
    """A kernel with 80 % of the busy time takes 25 % more.

    The trials of a call of 1.5 ms hide it from every other clock.
    """
    clocks = [
        call(0.0),
        call(0.0, name="device"),
        call(busy_change, name="busy"),
    ]
    result = decided(
        among(operation(0.25, share=0.8), *clocks), [fresh(operation, 0.25, share=0.8)]
    )
    assert [finding.verdict for finding in result.findings if finding.quantity.name == MM] == [
        verdict
    ]


@pytest.mark.parametrize(
    ("count", "why"),
    [
        (0, "no fresh trial has measured it again"),
        (3, "3 fresh trials are too few to confirm it"),
    ],
)
def test_what_was_flagged_and_measured_again_too_little_asks_for_more_time(count, why):
    second = [operation(0.1, count=count, share=0.005)] if count else []
    outcome, verdicts, [reason] = decision_of([operation(0.1, share=0.005)], second)
    assert (outcome, verdicts) == (INCONCLUSIVE, [UNCONFIRMED])
    assert reason == (
        f"case: {MM} differs by +10.0 %, and {why}; increase --budget: --inconclusive warn does "
        "not excuse it"
    )


def excusable(result):
    return {reason.is_excusable for reason in result.reasons}


@pytest.mark.parametrize("count", [0, 3])
def test_what_looks_slower_and_was_not_confirmed_for_lack_of_trials_is_not_excusable(count):
    second = [call(0.97, count=count)] if count else []
    result = decided(among(call(0.97)), second)
    assert (result.outcome, result.reasons[0].kind) == (INCONCLUSIVE, UNCONFIRMED)
    assert False in excusable(result)
    # Noise that nothing flagged is, and what is faster needs no confirmation.
    assert excusable(decided(among(call(0.005, spread=0.05)))) == {True}
    assert decided(among(call(-0.5))).reasons == ()


@pytest.mark.parametrize(("limit", "is_excusable"), [(9.0, {True}), (0.5, {False, True})])
def test_what_is_accepted_needs_no_confirmation_to_be_excusable(limit, is_excusable):
    accept = (Acceptance("case:*", limit),)
    result = decide(among(call(0.97)), [], LIMITS, SEED, accept, NAMES)
    assert excusable(result) == is_excusable


@pytest.mark.parametrize(("count", "is_excusable"), [(5, False), (11, False), (12, True)])
@pytest.mark.parametrize("quantity", [call, operation])
def test_fresh_trials_that_a_budget_broke_off_leave_no_noise(quantity, count, is_excusable):
    # What the first stage saw is neither confirmed nor ruled out.
    first = {call: call(0.06, spread=0.01), operation: operation(0.2, spread=0.03, share=0.05)}
    second = {
        call: call(0.005, spread=0.05, count=count, seed=5),
        operation: operation(0.01, spread=0.15, count=count, seed=5, share=0.05),
    }
    result = decided(among(first[quantity]), [second[quantity]])
    assert result.outcome == INCONCLUSIVE
    assert all(excusable(result)) == is_excusable
    of_finding = [text for text in texts(result) if "was flagged, and " in text]
    if not is_excusable:
        limit = {call: "2.0 %", operation: "5.0 %"}[quantity]
        assert re.search(
            rf"was flagged, and {count} fresh trials neither confirm it nor rule out a slowdown "
            rf"of {limit} \(up to [\d.]+ %\); increase --budget: --inconclusive warn does not "
            r"excuse it$",
            of_finding[0],
        )


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize(("limit", "settled"), [(9.0, False), (0.1, True)])
def test_a_regression_that_is_accepted_settles_no_other_slowdown(count, limit, settled):
    other = "aten::add, forward fc2"
    first = [operation(0.3, share=0.005), operation(0.2, spread=0.03, share=0.05, name=other)]
    second = [
        operation(0.3, count=count, share=0.005),
        operation(0.01, spread=0.15, count=count, seed=5, share=0.05, name=other),
    ]
    accept = (Acceptance(f"case:{MM}", limit),)
    result = decide(among(*first), second, LIMITS, SEED, accept, NAMES)
    assert {finding.quantity.name: finding.verdict for finding in result.findings} == {
        MM: REGRESSED,
        other: INCONCLUSIVE,
    }
    assert is_settled(result, LIMITS) == settled
    assert all(excusable(result)) == settled  # the regression fails all the same


@pytest.mark.parametrize("count", [4, 8])
def test_a_regression_that_is_accepted_is_settled_itself(count):
    result = decide(among(call(0.3)), [call(0.3, count=count)], LIMITS, SEED, ACCEPT_ALL, NAMES)
    assert is_settled(result, LIMITS)


@pytest.mark.parametrize(
    ("count", "change", "kinds"),
    [
        (6, 0.97, ["budget", "unconfirmed"]),
        (6, 0.0, ["budget"]),
        (6, -0.5, ["budget"]),
        # Chance makes so few slower in one of sixteen gates.
        (4, 0.97, ["budget"]),
        (0, 0.0, ["budget"]),
    ],
)
def test_too_few_trials_are_not_excusable_if_all_are_slower(count, change, kinds):
    result = decided([call(change, count=count)] if count else [])
    assert [reason.kind for reason in result.reasons] == kinds
    if "unconfirmed" in kinds:
        assert re.fullmatch(
            r"case: wall time is slower by 9\d\.\d % or more in each of 6 trials, which are too "
            r"few to judge; increase --budget: --inconclusive warn does not excuse it",
            result.reasons[1].text,
        )


@pytest.mark.parametrize(
    ("first", "second", "count", "settled"),
    [
        # The first checkpoint confirms a slowdown of each group, or rules out all of them.
        ([call(0.03)], [call(0.03, count=4)], 4, True),
        (
            [call(0.03), operation(0.1, share=0.005)],
            [call(0.03, count=4), operation(0.1, share=0.005, count=4)],
            4,
            True,
        ),
        ([call(0.03), operation(0.1, share=0.005)], [call(0.03, count=4)], 4, False),
        (
            [call(0.03), call(0.03, case="other case")],
            [call(0.03, count=4), call(case="other case", count=4)],
            4,
            False,
        ),
        ([call(0.03)], [call(count=4)], 4, False),
        ([call(0.008)], [call(-0.008, count=4)], 4, True),  # 2 % is ruled out
        ([call(0.008), operation(-0.1)], [call(-0.008, count=4)], 4, False),
        # Four trials cannot confirm an improvement.
        ([call(-0.03)], [call(-0.03, count=4)], 4, False),
        ([once(0.3, case="case")], [once(0.3, case="case", count=4)], 4, True),
        (
            [operation(0.1, share=0.005), once(0.3, case="case")],
            [operation(0.1, share=0.005, count=4)],
            4,
            False,
        ),
        # Later ones settle a gate that has regressed, and one without an open slowdown.
        ([call(0.03), operation(0.1, share=0.005)], [call(0.03, count=8)], 8, True),
        ([call(-0.03)], [call(-0.03, count=8)], 8, True),
        ([call(-0.03)], [call(count=8)], 8, True),
        ([call(0.008)], [call(-0.008, count=8)], 8, True),  # 2 % is ruled out
        ([call(0.05, spread=0.02)], [call(count=8, spread=0.02)], 8, False),
        ([operation(0.1, share=0.005)], [operation(share=0.005, count=8)], 8, True),
        (
            [operation(0.1, share=0.005)],
            [operation(0.1, share=0.005, count=8, spread=0.2)],
            8,
            False,
        ),
    ],
)
def test_fresh_trials_end_when_a_look_settles_the_gate(first, second, count, settled):
    result = decided(among(*first), among(*second, count=count, seed=5))
    assert (result.fresh, is_settled(result, LIMITS)) == (count, settled)


def test_an_improvement_that_was_not_measured_again_is_no_reason():
    assert decision_of([operation(-0.1)]) == (PASSED, [UNCONFIRMED], [])


def test_what_fresh_trials_could_not_measure_is_not_blamed_on_their_number():
    spoiled = fresh(operation, 0.1, share=0.005)
    second = [
        *among(spoiled, count=10, seed=5)[1:],
        dataclasses.replace(spoiled, logs=(math.nan, *spoiled.logs[1:])),
    ]
    outcome, verdicts, [reason] = decision_of([operation(0.1, share=0.005)], second)
    assert (outcome, verdicts) == (INCONCLUSIVE, [UNCONFIRMED])
    assert "too few" not in reason
    assert "--budget" not in reason


def test_a_case_that_is_too_noisy_says_how_many_trials_would_settle_it():
    noisy = call(0.005, spread=0.04, case="noisy")
    result = decided(among(noisy))
    [reason] = texts(result)
    [estimate] = [estimate for estimate in result.cases if estimate.quantity == noisy]
    assert (result.outcome, result.findings) == (INCONCLUSIVE, ())
    match = re.fullmatch(
        (
            r"noisy: a slowdown of up to (\d+\.\d) % of its wall time cannot be ruled out; about "
            r"(\d+) trials would settle it"
        ),
        reason,
    )
    assert float(match[1]) == pytest.approx(100 * estimate.high, abs=0.1)
    count = int(match[2])
    assert 12 < count < 200
    # And so they do: trials of the same spread, as many of all cases.
    again = call(0.005, spread=0.04, case="noisy", count=count)
    assert decided(among(again, count=count)).outcome == PASSED


@pytest.mark.parametrize(
    ("noisy", "end"),
    [
        (call(0.0199, spread=0.05, case="noisy"), "cannot be ruled out; too noisy to judge"),
        (
            call(0.03, spread=0.05, case="noisy"),
            "cannot be ruled out; the estimate is +3.0 %; measure again",
        ),
    ],
)
def test_a_case_that_no_number_of_trials_settles_says_so(noisy, end):
    outcome, verdicts, [reason] = decision_of([noisy])
    assert (outcome, verdicts) == (INCONCLUSIVE, [])
    assert reason.startswith("noisy: a slowdown of up to ")
    assert reason.endswith(end)


def test_a_bound_that_exceeds_the_threshold_does_so_as_it_is_written():
    # "up to 2.0 % cannot be excluded" would contradict a threshold of 2 %.
    for spread in np.linspace(0.008, 0.03, 20):
        for reason in texts(decided([call(0.0, spread=spread)])):
            assert float(re.search(r"up to (\d+\.\d) %", reason)[1]) > 2.0


@pytest.mark.parametrize(
    ("clock", "title"),
    [
        ("wall", "wall time"),
        ("cpu", "CPU time"),
        ("device", "device elapsed time"),
        ("busy", "device busy time"),
    ],
)
def test_every_clock_of_a_case_has_to_exclude_a_regression(clock, title):
    outcome, _, [reason] = decision_of([call(0.005, spread=0.04, name=clock)])
    assert outcome == INCONCLUSIVE
    assert reason.startswith("case: a slowdown of up to ")
    assert f" of its {title} cannot" in reason


def test_a_case_needs_its_own_bound_where_its_only_regression_is_accepted():
    noisy = [call(0.005, spread=0.05), operation(0.1, share=0.005)]
    again = among(
        fresh(call, 0.005, spread=0.05), fresh(operation, 0.1, share=0.005), count=10, seed=5
    )
    for accept, reasons in (((), 0), (ACCEPT_ALL, 1)):
        result = decide(among(*noisy), again, LIMITS, SEED, accept, NAMES)
        assert (result.outcome, len(result.reasons)) == (REGRESSED, reasons)
        assert result.bound > LIMITS.case


def test_an_accepted_slower_median_leaves_the_bound_of_the_mean():
    slower = [call(0.04), mean(0.3, spread=0.5)]
    again = among(fresh(call, 0.04), fresh(mean, 0.3, spread=0.5), count=10, seed=5)
    result = decide(among(*slower), again, LIMITS, SEED, ACCEPT_ALL, NAMES)
    assert [finding.quantity.kind for finding in result.findings if finding.accepted] == [
        "iteration"
    ]
    [reason] = texts(result)
    assert " of its mean wall time cannot be ruled out" in reason


def test_a_regression_is_told_also_where_another_case_is_too_noisy():
    noisy = call(0.005, spread=0.05, case="noisy")
    outcome, verdicts, reasons = decision_of([call(0.1), noisy], [fresh(call, 0.1)])
    assert (outcome, verdicts, len(reasons)) == (REGRESSED, [REGRESSED], 1)


def test_what_happens_in_few_iterations_is_seen_by_the_mean():
    # Every fifth iteration takes twice as long: the median does not move.
    first = [call(0.0), mean(0.2, seed=5)]
    outcome, verdicts, _ = decision_of(
        first, among(fresh(call, 0.0), fresh(mean, 0.2), count=10, seed=5)
    )
    assert (outcome, verdicts) == (REGRESSED, [REGRESSED])
    assert decided(among(*first)).outcome == INCONCLUSIVE  # flagged, and not confirmed by anything


def test_a_slower_mean_that_is_neither_confirmed_nor_ruled_out_is_inconclusive():
    again = among(fresh(call, 0.0), fresh(mean, 0.01, spread=0.06), count=10, seed=5)
    outcome, verdicts, [reason] = decision_of([call(0.0), mean(0.05, spread=0.02, seed=5)], again)
    assert (outcome, verdicts) == (INCONCLUSIVE, [INCONCLUSIVE])
    assert reason.startswith("case: mean wall time was flagged, and 10 fresh trials neither ")


def test_a_mean_is_a_reason_unless_it_excludes_enough():
    result = decided(among(mean(0.0, spread=0.05)))
    assert result.outcome == PASSED
    assert LIMITS.case < result.bound_of_means < MEAN_FACTOR * LIMITS.case
    outcome, _, [reason] = decision_of([mean(0.0, spread=0.2)])
    assert outcome == INCONCLUSIVE
    assert " of its mean wall time cannot be ruled out" in reason


@pytest.mark.parametrize(
    ("noisy", "reasons", "named"),
    [
        (operation(0.0, spread=0.1, share=0.10), 1, 1),  # a tenth of its case has to be bounded
        (operation(0.0, spread=0.1, share=0.099), 0, 1),
        (operation(0.0, share=0.5), 0, 0),
        (operation(-0.2, spread=0.1, share=0.10), 0, 0),
        (added(0.0, spread=0.01, share=0.2), 1, 1),
        (added(0.0, spread=0.01, share=0.03), 0, 1),
    ],
)
def test_an_operation_that_is_not_bounded_is_named_and_a_large_one_is_a_reason(
    noisy, reasons, named
):
    result = decided(among(noisy))
    assert [estimate.quantity for estimate in result.unbounded] == [noisy] * named
    assert [reason.kind for reason in result.reasons] == [verdicts.NOISE] * reasons
    assert result.outcome == (INCONCLUSIVE if reasons else PASSED)


def test_of_what_is_not_bounded_the_largest_share_comes_first():
    noisy = [
        operation(0.0, spread=0.1, share=share, name=f"of {share}", seed=9)
        for share in (0.03, 0.08, 0.05)
    ]
    assert [estimate.quantity.name for estimate in decided(among(*noisy)).unbounded] == [
        "of 0.08",
        "of 0.05",
        "of 0.03",
    ]


def test_only_noise_and_the_budget_are_excusable():
    kinds = (
        verdicts.NOISE,
        verdicts.BUDGET,
        verdicts.CONTRADICTION,
        verdicts.UNMEASURED,
        verdicts.MISSING,
        verdicts.BROKEN,
        verdicts.UNCONFIRMED,
    )
    assert [kind for kind in kinds if verdicts.Reason(kind, "").is_excusable] == [
        verdicts.NOISE,
        verdicts.BUDGET,
    ]


@pytest.mark.parametrize("factor", [0.01, 30.0])
def test_differences_of_any_size_have_a_verdict(factor):
    # Seven cases in eight trials whose differences are orthogonal: the exchanges reach far beyond
    # what was observed.
    rows = factor * scipy.linalg.hadamard(8)[1:]
    quantities = [
        gate_builders.quantity(tuple(map(float, row)), case=f"case {number}")
        for number, row in enumerate(rows)
    ]
    result = decide(quantities, [], LIMITS, SEED)
    assert result.outcome == INCONCLUSIVE
    assert all(estimate.high == math.inf or estimate.high > 0 for estimate in result.cases)


@pytest.mark.parametrize("change", [0.05, 0.2])
def test_no_number_of_trials_rules_out_less_than_the_estimate(change):
    assert trials_needed(gate_builders.estimate(change, 0.0, 0.3), 0.05) == math.inf
    assert math.isfinite(trials_needed(gate_builders.estimate(change, 0.0, 0.3), change + 0.01))


# ---- properties ----------------------------------------------------------------------------------


def mirrored(quantities):
    return [
        dataclasses.replace(
            quantity,
            logs=tuple(-log for log in quantity.logs),
            base=quantity.head,
            head=quantity.base,
        )
        for quantity in quantities
    ]


SCENES = {
    "nothing": ([], []),
    "slower": ([call(0.1), operation(0.3)], [fresh(call, 0.1), fresh(operation, 0.3)]),
    "faster": ([operation(-0.1, share=0.005)], [fresh(operation, -0.1, share=0.005)]),
    "unconfirmed": ([operation(0.1, share=0.005)], [fresh(operation, 0.0, share=0.005)]),
    "noisy": ([call(0.03, spread=0.05)], []),
}


@pytest.mark.parametrize("scene", SCENES)
def test_sides_that_change_names_change_the_verdict_and_mirror_the_bounds(scene):
    first, second = SCENES[scene]
    straight = decided(among(*first), second)
    swapped = decided(mirrored(among(*first)), mirrored(second))
    turned = {REGRESSED: IMPROVED, IMPROVED: REGRESSED, UNCONFIRMED: UNCONFIRMED}
    assert [f.verdict for f in swapped.findings] == [turned[f.verdict] for f in straight.findings]
    for before, after in zip(
        (*straight.cases, *straight.operations), (*swapped.cases, *swapped.operations), strict=True
    ):
        assert after.p == before.p
        assert 1 + after.change == pytest.approx(1 / (1 + before.change))
        assert (1 + after.low, 1 + after.high) == pytest.approx(
            (1 / (1 + before.high), 1 / (1 + before.low))
        )
    if scene == "slower":
        assert (straight.outcome, swapped.outcome) == (REGRESSED, PASSED)


LOGS = st.sampled_from([0.0, 0.0, 0.01, -0.01, 0.3, 43.0, -43.0, math.nan]) | st.floats(-43, 43)


@st.composite
def any_effects(draw):
    """Whatever differences of whole nanoseconds can be.

    A trial whose times are spoiled has none.
    """
    drawn = {}
    for number in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(["iteration", "mean", "operation", "replaced", "added", "other"])
        )
        of_kind = (
            {"name": draw(st.sampled_from(["wall", "cpu", "device", "busy"]))}
            if kind in ("iteration", "mean")
            else {"name": f"{number}", "share": draw(st.floats(0, 1))}
        )
        logs = draw(st.just((draw(LOGS),) * 8) | st.tuples(*[LOGS] * 8))
        quantity = gate_builders.quantity(logs, kind=kind, **of_kind)
        drawn[quantity.key] = quantity
    return list(drawn.values())


@settings(parent=strategies.ANY_SPEED, max_examples=100)
@given(any_effects(), st.booleans())
def test_whatever_was_measured_there_is_a_verdict(quantities, again):
    result = decided(quantities, quantities if again else ())
    assert result.outcome in {PASSED, REGRESSED, INCONCLUSIVE}
    assert (result.outcome == REGRESSED) <= any(
        finding.verdict == REGRESSED for finding in result.findings
    )
    for estimate in (*result.cases, *result.operations):
        assert -1 <= estimate.low <= estimate.change <= estimate.high
        assert 0 < estimate.p <= 1
    if result.outcome == PASSED:
        assert not result.reasons
        assert all(finding.verdict != REGRESSED for finding in result.findings)
        assert result.bound <= LIMITS.case or all(
            estimate.quantity.kind != "iteration" for estimate in result.cases
        )
        assert result.bound_of_means <= 0.1 or all(
            estimate.quantity.kind != "mean" for estimate in result.cases
        )


@pytest.mark.parametrize(("build", "is_wider"), [(call, True), (operation, False)])
def test_a_slow_trial_widens_the_upper_bound_of_a_case_and_not_of_an_operation(build, is_wider):
    slow = (0.001, -0.002, 0.0, 0.002, 0.1, -0.001, 0.001, 0.0, -0.001, 0.002)
    decision = decided([dataclasses.replace(build(count=10), logs=slow)])
    [estimate] = (*decision.cases, *decision.operations)
    above, below = (
        math.log1p(bound) - math.log1p(estimate.change) for bound in (estimate.high, estimate.low)
    )
    assert (above > -1.1 * below) == is_wider


# ---- what a reader sees --------------------------------------------------------------------------


@settings(parent=strategies.ANY_SPEED, max_examples=300)
@given(
    kind=st.sampled_from(
        ["iteration", "mean", "operation", "replaced", "outside", "other", "once", "memory"]
    ),
    base=st.sampled_from([0.0, 0.4]) | st.floats(1e-3, 1e10),
    head=st.floats(1e-3, 1e10),
    logs=st.tuples(*[st.floats(-5, 5)] * 3).map(sorted),
)
def test_base_and_head_give_the_change(kind, base, head, logs):
    low, change, high = map(change_of, logs)
    shown = as_shown(gate_builders.estimate(change, low, high, kind=kind, base=base, head=head))
    quantity = shown.quantity
    assert min(quantity.base, quantity.head) >= 0
    assert -1 <= shown.low <= shown.change <= shown.high
    if quantity.base == 0:
        assert kind in ("once", "memory")
        assert shown.change == (math.inf if change > 0 else 0.0)
    else:
        assert quantity.head == pytest.approx(
            quantity.base * (1 + shown.change), rel=1e-6, abs=1e-3
        )
    if base and quantity.head:
        assert quantity.base == base
    if kind not in ("once", "memory"):
        assert (shown.change, shown.low, shown.high) == (change, low, high)


@settings(parent=strategies.ANY_SPEED, max_examples=100)
@given(
    base=st.sampled_from([0.0]) | st.floats(1, 1e6),
    head=st.sampled_from([0.0]) | st.floats(1, 1e6),
    change=st.floats(-0.9, 2),
)
def test_times_of_an_operation_that_one_side_has_differ_by_its_share_of_the_case(
    base, head, change
):
    case_ns = 1e6
    estimate = gate_builders.estimate(
        change,
        change,
        change,
        kind="added",
        base=base,
        head=head,
        share=max(base, head) / case_ns,
    )
    shown = as_shown(estimate)
    difference = shown.quantity.head - shown.quantity.base
    assert difference == pytest.approx(change * case_ns if base or head else 0.0, abs=1e-3)
    assert min(shown.quantity.base, shown.quantity.head) >= 0
    assert (shown.change, shown.quantity.share) == (estimate.change, estimate.quantity.share)


def test_a_cost_that_the_base_does_not_have_is_new():
    shown = as_shown(gate_builders.estimate(16.0, 12.0, 20.0, kind="once", base=0.0, head=80e6))
    assert (shown.quantity.base, shown.quantity.head) == (0.0, 80e6)
    assert (shown.change, shown.low, shown.high) == (math.inf,) * 3


# ---- a floor -------------------------------------------------------------------------------------


def floor(ns):
    return Thresholds(floor_ns=ns)


@pytest.mark.parametrize("change", [0.04, -0.04])
def test_a_change_below_the_floor_is_shown_and_fails_nothing(change):
    # 4 % of 4 ms are 160 us.
    first = among(call(change), call(change, name="cpu", seed=1))
    assert decided(first).findings
    decision = decided(first, thresholds=floor(300_000))
    assert (decision.outcome, decision.findings, decision.reasons) == (PASSED, (), ())
    assert {(finding.quantity.case, finding.verdict) for finding in decision.below_floor} == {
        ("case", BELOW_FLOOR)
    }
    assert decided(first, thresholds=floor(20_000)).below_floor == ()


def test_a_change_of_the_floor_is_a_regression_as_ever():
    # 20 % of 4 ms are 800 us.
    first, second = (
        among(call(0.2, seed=seed), call(0.2, name="cpu", seed=seed + 1)) for seed in (1, 3)
    )
    decision = decided(first, second, floor(300_000))
    assert (decision.outcome, decision.below_floor) == (REGRESSED, ())


def test_a_slowdown_about_the_floor_is_open():
    # 8 % of 4 ms are 320 us.
    first, second = (
        among(call(0.08, seed=seed), call(0.08, name="cpu", seed=seed + 1)) for seed in (1, 3)
    )
    decision = decided(first, second, floor(320_000))
    assert decision.outcome == INCONCLUSIVE
    [reason] = {
        reason.text.partition("CPU")[0] for reason in decision.reasons if "wall" in reason.text
    }
    assert "may be less or more than the limit of 320 us; measure again" in reason


def test_a_noisy_short_case_passes_with_a_floor():
    # Bounds of 10 % of 100 ns are 10 ns.
    first = [
        call(spread=0.1, base=100.0, name=name, seed=number)
        for number, name in enumerate(("wall", "cpu"))
    ]
    assert decided(first).outcome == INCONCLUSIVE
    decision = decided(first, thresholds=floor(1_000))
    assert (decision.outcome, decision.bound) == (PASSED, 0.0)
    # Of a long case the share counts.
    long = [*first, call(case="other case", seed=9)]
    bounds = [case.high for case in decided(long).cases if case.quantity.case == "other case"]
    decision = decided(long, thresholds=floor(1_000))
    assert decision.bound == pytest.approx(max(bounds))


def test_what_was_confirmed_below_the_floor_is_called_so():
    # Flagged, because its bound in the first stage reaches the floor of 200 us.
    first = among(call(0.045, spread=0.02), call(0.045, name="cpu", spread=0.02, seed=1))
    second = among(call(0.03, seed=3), call(0.03, name="cpu", seed=4), count=12)
    decision = decided(first, second, floor(200_000))
    assert {finding.verdict for finding in decision.findings} == {BELOW_FLOOR}
    assert decision.outcome == PASSED
