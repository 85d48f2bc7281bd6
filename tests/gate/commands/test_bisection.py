"""The search for the first slower release.

Which gates are run, how it ends early, and what a gate says of its release.
"""

import math
from types import SimpleNamespace

import gate_builders
import pytest
import strategies
from gate_builders import CASE, GEMM, LABEL, MM, Measured, recorded, series
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.errors import UsageError
from mnistbench.gate.commands.bisection import (
    NOT_JUDGED,
    NOT_SLOWER,
    SLOWER,
    USED_UP,
    Bisection,
    Gate,
    bisect,
    followed,
    judged,
    largest_regressions,
)
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.processes.starting import GateError
from mnistbench.gate.samples.raw_samples import COMPLETE, INTERRUPTED, End
from mnistbench.gate.words import ALL_CASES
from mnistbench.judging.kinds import ADDED, REPLACED
from mnistbench.judging.verdicts import INCONCLUSIVE, NOISE, PASSED, REGRESSED

OTHER = "bench/test_step.py::test_step[lenet5-b1-cpu]"


def searched(results, count=None):
    """Search releases 0, 1, ... with gates of these results, by release.

    Return the search and the releases measured.
    """
    search = Bisection("torch", tuple(map(str, range(count or len(results)))))
    while (release := search.next) is not None:
        gate = Gate(release, results[int(release)])
        search = Bisection(search.package, search.releases, (*search.gates, gate))
    return search, [int(gate.release) for gate in search.gates]


# ---- The search ----------------------------------------------------------------------------------


@strategies.many(3000)
@given(count=st.integers(2, 70), data=st.data())
def test_any_first_slower_release_is_found_with_the_fewest_gates(count, data):
    first = data.draw(st.integers(1, count - 1))
    search, measured = searched(
        [SLOWER if number >= first else NOT_SLOWER for number in range(count)]
    )
    assert (search.outcome, search.candidates, search.not_slower) == (
        REGRESSED,
        (str(first),),
        str(first - 1),
    )
    assert len(measured) <= search.most_gates == 1 + math.ceil(math.log2(count - 1))
    assert len(set(measured)) == len(measured)


@strategies.many(3000)
@given(count=st.integers(2, 40), data=st.data())
def test_the_first_slower_release_is_among_the_candidates_whatever_cannot_be_judged(count, data):
    first = data.draw(st.integers(1, count - 1))
    gone = data.draw(st.sets(st.integers(1, max(1, count - 2)))) - {count - 1}
    results = [
        NOT_JUDGED if number in gone else SLOWER if number >= first else NOT_SLOWER
        for number in range(count)
    ]
    search, measured = searched(results)
    assert str(first) in search.candidates
    # Each other one is measured and could not be judged.
    assert set(map(int, search.candidates[:-1])) <= gone
    assert search.outcome == (REGRESSED if len(search.candidates) == 1 else INCONCLUSIVE)
    assert len(set(measured)) == len(measured)


def test_nothing_more_is_measured_if_the_last_release_is_not_slower():
    search, measured = searched([NOT_SLOWER] * 9)
    assert (search.outcome, search.candidates, measured) == (PASSED, (), [8])


def test_nothing_more_is_measured_if_the_last_release_cannot_be_judged():
    search, measured = searched([NOT_SLOWER] * 8 + [NOT_JUDGED])
    assert (search.outcome, search.candidates, measured) == (INCONCLUSIVE, (), [8])


def test_the_neighbors_of_a_release_that_cannot_be_judged_are_measured():
    results = [NOT_SLOWER] * 3 + [SLOWER] * 6
    results[4] = results[3] = NOT_JUDGED
    search, measured = searched(results)
    assert measured == [8, 4, 3, 5, 2]
    assert (search.outcome, search.candidates, search.not_slower) == (
        INCONCLUSIVE,
        ("3", "4", "5"),
        "2",
    )


# ---- The gates -----------------------------------------------------------------------------------


def verdict(cases=CASE, *, factor=1.0, fresh=0, end=COMPLETE, **changes):
    """The verdict on a case whose head takes so much longer.

    Of one operation with ``operation``.
    """
    operation = changes.pop("operation", 1.0)
    operations = changes.pop("operations", {**Measured().operations, MM: (1_000_000, operation)})
    once = changes.pop("once", None)
    measured = Measured(factor=factor, operations=operations, **changes)
    cases = {cases: measured} if isinstance(cases, str) else cases
    trials = [
        *series(cases, seed=3, once=once),
        *(series(cases, stage=2, seed=4, count=fresh, once=once) if fresh else []),
    ]
    return conclude(recorded(trials, end=end, labels=dict.fromkeys(cases, LABEL)), JudgeOptions())


@pytest.fixture(scope="module")
def verdicts():
    """Each verdict once; a gate takes 100 s."""
    ended = End(elapsed_s=100.0)
    return SimpleNamespace(
        same=verdict(end=ended),
        slower=verdict(factor=1.1, operation=1.4, fresh=8, end=ended),
        noisy=verdict(spread=0.05, end=ended),
        interrupted=verdict(end=End(INTERRUPTED.cut_short, broken_off=True, elapsed_s=40.0)),
        used_up=verdict(end=End("the budget allowed 3 of 10 trials", elapsed_s=40.0)),
        broken=verdict(end=End("head: RuntimeError: boom", broken_off=True, elapsed_s=40.0)),
    )


class Gates:
    """Gates with a scripted end: a verdict, or an error that is raised."""

    def __init__(self, *ends):
        self.ends = list(ends)
        self.calls = []
        self.said = []
        self.clock = 0.0

    def measure(self, release, only, budget_s):
        self.calls.append((release, only, budget_s))
        self.clock += 7.0
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return f"{release}.jsonl.gz", end

    def bisect(self, *releases, **options):
        return bisect(
            Bisection("torch", releases),
            self.measure,
            self.said.append,
            now=lambda: self.clock,
            **options,
        )


def test_the_gates_after_the_first_measure_only_the_cases_that_are_slower(verdicts):
    gates = Gates(verdicts.slower, verdicts.same, verdicts.slower)
    search = gates.bisect("1", "2", "3", "4")
    assert gates.calls == [("4", (), math.inf), ("2", (CASE,), math.inf), ("3", (CASE,), math.inf)]
    assert [(gate.release, gate.result, gate.raw, gate.seconds) for gate in search.gates] == [
        ("4", SLOWER, "4.jsonl.gz", 100.0),
        ("2", NOT_SLOWER, "2.jsonl.gz", 100.0),
        ("3", SLOWER, "3.jsonl.gz", 100.0),
    ]
    assert (search.outcome, search.candidates, search.not_slower) == (REGRESSED, ("3",), "2")
    assert gates.said == [
        "gate 1: torch 1 -> 4",
        "torch 4: slower",
        "gate 2: torch 1 -> 2",
        "torch 2: not slower",
        "gate 3: torch 1 -> 3",
        "torch 3: slower",
    ]


def test_a_release_that_cannot_be_measured_is_not_judged(verdicts):
    error = UsageError("no environment with torch==3: uv: Because of something")
    search = Gates(verdicts.slower, GateError("head: boom"), error).bisect("1", "2", "3", "4")
    assert [(gate.result, gate.reason) for gate in search.gates[1:]] == [
        (NOT_JUDGED, "head: boom"),
        (NOT_JUDGED, str(error)),
    ]
    assert (search.outcome, search.candidates, search.is_excusable) == (
        INCONCLUSIVE,
        ("2", "3", "4"),
        False,
    )
    assert [(gate.verdict, gate.seconds) for gate in search.gates[1:]] == [(None, 7.0)] * 2


@pytest.mark.parametrize(
    "error", [GateError("head: boom"), KeyboardInterrupt()], ids=["error", "interrupt"]
)
def test_what_the_first_gate_raises_is_raised(error):
    with pytest.raises(type(error)):
        Gates(error).bisect("1", "2", "3")


def test_a_gate_that_breaks_off_does_not_judge_its_release(verdicts):
    search = Gates(verdicts.slower, verdicts.broken, verdicts.same).bisect("1", "2", "3", "4")
    assert [gate.result for gate in search.gates] == [SLOWER, NOT_JUDGED, NOT_SLOWER]
    assert (search.candidates, search.stopped) == (("4",), "")


@pytest.mark.parametrize("how", ["raised", "in a trial"])
def test_an_interrupt_ends_the_search(verdicts, how):
    last = KeyboardInterrupt() if how == "raised" else verdicts.interrupted
    search = Gates(verdicts.slower, verdicts.same, last).bisect("1", "2", "3", "4", "5", "6")
    assert (search.stopped, search.outcome) == ("interrupted", INCONCLUSIVE)
    assert (search.not_slower, search.candidates) == ("3", ("4", "5", "6"))


def test_all_gates_together_take_the_budget(verdicts):
    gates = Gates(verdicts.slower, verdicts.same)
    search = gates.bisect("1", "2", "3", "4", "5", "6", budget_s=200.0)
    assert [budget_s for _, _, budget_s in gates.calls] == [200.0, 100.0]
    assert (search.stopped, search.candidates) == (USED_UP, ("4", "5", "6"))


def test_a_gate_that_the_budget_cut_short_ends_the_search(verdicts):
    search = Gates(verdicts.slower, verdicts.used_up).bisect("1", "2", "3", "4", budget_s=150.0)
    assert (search.stopped, search.candidates) == (USED_UP, ("2", "3", "4"))
    search = Gates(verdicts.used_up).bisect("1", "2", "3", "4", budget_s=150.0)
    assert (search.stopped, search.candidates, search.is_excusable) == (USED_UP, (), True)


# ---- What a gate says ----------------------------------------------------------------------------


def test_a_release_is_slower_if_its_gate_confirms_a_regression(verdicts):
    regressions = largest_regressions(verdicts.slower)
    assert list(regressions) == [CASE]
    assert judged(verdicts.slower, {}) == judged(verdicts.slower, regressions) == (SLOWER, "")


def test_the_largest_regression_of_each_case_is_found():
    measured = {CASE: Measured(factor=1.1), OTHER: Measured(factor=1.2)}
    regressions = largest_regressions(verdict(measured, fresh=8))
    assert set(regressions) == {CASE, OTHER}
    assert all(finding.quantity.is_case for finding in regressions.values())


def test_a_release_is_not_slower_if_its_gate_rules_out_what_was_found(verdicts):
    assert judged(verdicts.same, {}) == (NOT_SLOWER, "")
    assert judged(verdicts.same, largest_regressions(verdicts.slower)) == (NOT_SLOWER, "")


def test_noise_does_not_matter_if_the_gate_rules_out_what_was_found(verdicts):
    assert {reason.kind for reason in verdicts.noisy.reasons} == {NOISE}
    assert judged(verdicts.noisy, {}) == (NOT_JUDGED, verdicts.noisy.reasons[0].text)
    regressions = largest_regressions(verdicts.slower)
    assert judged(verdicts.noisy, regressions) == (NOT_SLOWER, "")


@pytest.mark.parametrize("end", ["broken", "used_up"])
def test_any_other_reason_leaves_the_release_open(verdicts, end):
    later = getattr(verdicts, end)
    assert judged(later, largest_regressions(verdicts.slower)) == (NOT_JUDGED, later.end.cut_short)


def test_a_pass_that_does_not_rule_out_the_finding_judges_no_release(verdicts):
    [finding] = largest_regressions(verdicts.slower).values()
    quantity = finding.best.quantity
    small = gate_builders.estimate(
        0.001, 0.0, 0.002, case=CASE, kind=quantity.kind, name=quantity.name
    )
    result, reason = judged(verdicts.same, {CASE: type(finding)(small, small, REGRESSED)})
    assert result == NOT_JUDGED
    assert reason.startswith(f"wall time ({LABEL}) may be up to ")
    assert reason.endswith(
        " slower, and the last release is 0.1 % slower; more --trials narrow the interval"
    )


@pytest.mark.parametrize(("change", "result"), [(0.04, NOT_JUDGED), (0.3, NOT_SLOWER)])
def test_replaced_operations_that_are_small_in_a_later_gate_have_their_bound_there(change, result):
    operations = {**Measured().operations, GEMM: (12_000, 1.0)}  # 0.3 % of the case
    later = verdict(operations=operations, only_new=[GEMM])
    [added] = [
        estimate for estimate in later.decision.operations if estimate.quantity.kind == ADDED
    ]
    assert 0.0025 < added.high < 0.005
    estimate = gate_builders.estimate(  # 5 % of the case
        change, 0.0, 1.0, case=CASE, kind=REPLACED, name=added.quantity.name, share=0.05
    )
    finding = GateFinding(estimate, estimate, verdict=REGRESSED)
    judged_result, reason = judged(later, {CASE: finding})
    assert (judged_result, "may be up to" in reason) == (result, result == NOT_JUDGED)


@pytest.mark.parametrize(("again", "result"), [(1.0, NOT_SLOWER), (1.6, SLOWER)])
def test_a_cost_of_the_process_is_searched_with_all_cases(again, result):
    costs = {factor: {("import", ALL_CASES): (50_000_000, factor)} for factor in (1.0, 1.6)}
    gates = Gates(verdict(once=costs[1.6], fresh=8), verdict(once=costs[again], fresh=8))
    search = gates.bisect("1", "2", "3")
    assert [only for _, only, _ in gates.calls] == [(), ()]
    assert [gate.result for gate in search.gates] == [SLOWER, result]
    assert list(largest_regressions(search.gates[0].verdict)) == [ALL_CASES]
    assert judged(verdict(once=costs[1.0]), largest_regressions(search.gates[0].verdict)) == (
        NOT_SLOWER,
        "",
    )


def test_resident_memory_does_not_hide_the_first_slower_release(
    verdicts,
):
    # Measured: torch 2.12.1 needed 13 % more memory than 2.9.1, and 2.14.0 seven times as long for
    # sinh.
    more = {("resident memory", ALL_CASES): (1_000_000_000, 1.3)}
    memory_verdict = verdict(once=more, fresh=8)
    assert memory_verdict.outcome == REGRESSED
    gates = Gates(
        verdict(factor=1.1, operation=1.4, once=more, fresh=8), memory_verdict, verdicts.slower
    )
    search = gates.bisect("1", "2", "3", "4")
    assert [only for _, only, _ in gates.calls] == [(), (CASE,), (CASE,)]
    assert (search.outcome, search.candidates, search.not_slower) == (REGRESSED, ("3",), "2")


def test_a_small_slowdown_of_the_same_case_is_another_one(verdicts):
    small = verdict(factor=1.05, fresh=8)
    assert small.outcome == REGRESSED
    assert judged(small, followed(verdict(factor=1.5, fresh=8))) == (NOT_SLOWER, "")
    assert judged(small, followed(verdict(factor=1.09, fresh=8))) == (SLOWER, "")


def test_a_case_that_was_not_measured_does_not_judge_its_release(verdicts):
    [finding] = largest_regressions(verdicts.slower).values()
    assert judged(verdicts.same, {OTHER: finding}) == (
        NOT_JUDGED,
        f"{OTHER} was not measured, because it is missing or has other parameters",
    )
