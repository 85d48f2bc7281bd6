"""Shards.

Who measures which test, files that are judged as one gate, and the level that all shards have
together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gate_builders import Measured, header, quantity, recorded, series, write
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.gate.decide.statistics.permutation import MANY, simultaneous_bounds
from mnistbench.gate.decide.statistics.shards import gather
from mnistbench.gate.decide.verdict.decision import decide
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.findings import (
    CHECKPOINTS,
    CONFIRMING,
    PRODUCT,
    SCREENING,
    checkpoints,
    is_confirmed,
    least_fresh,
    product,
)
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import MAX_SHARDS, MIN_TRIALS, TRIALS, JudgeOptions, Thresholds
from mnistbench.gate.report.outcome import last_line
from mnistbench.gate.report.report import report
from mnistbench.gate.samples.raw_samples import COMPLETE, INTERRUPTED, Shard, load
from mnistbench.gate.words import ALL_CASES, IMPORT
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.verdicts import BROKEN, INCONCLUSIVE, MISSING, PASSED, REGRESSED

TESTS = tuple(f"bench/test_x.py::test_{number}" for number in range(7))

INSTALLED = {"numpy": ("2.0", "2.0"), "tqdm": ("4", "5")}

QUIET = {"operations": {}, "ns": 4_000_000}


def file_of(
    folder: Path,
    number: int,
    of: int = 3,
    *,
    name: str = "",
    trials=None,
    tests=TESTS,
    end=COMPLETE,
    **changes,
) -> Path:
    """Write the samples of a shard; of its tests ``slower`` are so much slower in the head."""
    shard = Shard(number, of, tests)
    changes.setdefault("packages", INSTALLED)
    slower = changes.pop("slower", {})
    once = changes.pop("once", None)
    cases = {test: Measured(**QUIET, factor=slower.get(test, 1.0)) for test in shard.own()}
    count = changes.pop("count", TRIALS)
    if trials is None:
        trials = series(cases, count=count, seed=number, once=once)
        flagged = {test: measured for test, measured in cases.items() if test in slower}
        trials += (
            series(flagged, count=changes.pop("fresh", 8), seed=10 + number, stage=2)
            if flagged
            else []
        )
    labels = {test: test.rpartition("::")[2] for test in shard.own()}
    own = {
        "labels": labels,
        "shard": shard,
        "seed": number,
        "machine": f"CPU {number % 2}",
        **changes,
    }
    return write(folder / (name or f"shard-{number}-of-{of}_x.jsonl.gz"), trials, end=end, **own)


def judged(*paths: Path, **options):
    return conclude(gather(paths), JudgeOptions(**options))


# ---- Who measures which test ---------------------------------------------------------------------


@given(st.sets(st.text(max_size=5), max_size=40), st.integers(1, 12), st.randoms())
def test_every_test_is_in_one_shard_and_sizes_differ_by_at_most_one(tests, of, coin):
    def own(number):
        order = sorted(tests)
        coin.shuffle(order)  # another machine may collect them in another order
        return Shard(number, of, tuple(order)).own()

    shards = [own(number) for number in range(1, of + 1)]
    assert sorted(test for shard in shards for test in shard) == sorted(tests)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_parameters_of_a_test_are_not_dealt_out_in_their_order():
    tests = tuple(f"t.py::test_{test}[{size}]" for test in range(50) for size in "abcd")
    largest = [
        sum(test.endswith("d]") for test in Shard(number, 4, tests).own())
        for number in (1, 2, 3, 4)
    ]
    assert sum(largest) == 50
    assert max(largest) < 25  # in the order of names one shard has all 50


def test_cases_of_the_functions_that_a_change_reaches_are_dealt_out_evenly():
    tests = tuple(f"t.py::test_{test}[{size}]" for test in range(20) for size in range(9))
    reached = ("t.py::test_4[", "t.py::test_11[")
    cases = [
        sum(test.startswith(reached) for test in Shard(number, 4, tests).own())
        for number in (1, 2, 3, 4)
    ]
    assert sum(cases) == 18
    assert max(cases) - min(cases) <= 2  # a function's cases differ by one at most


def test_a_header_keeps_the_shard(tmp_path):
    path = file_of(tmp_path, 2)
    assert load(path).header.shard == Shard(2, 3, TESTS)
    assert (str(Shard(2, 3)), Shard(2, 3).prefix, Shard(1, 1).prefix) == (
        "2/3",
        "shard-2-of-3_",
        "",
    )
    whole = write(tmp_path / "whole.jsonl.gz", series())
    assert load(whole).header.shard == Shard(1, 1)


@pytest.mark.parametrize(
    "stored", [{"number": 0, "of": 3}, {"number": 1}, {"number": 1, "of": "3"}, 3]
)
def test_a_header_with_no_shard_is_refused(tmp_path, stored):
    line = {**header().line(), "shard": stored}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mnistbench.gate.samples.raw_samples.GateHeader.line", lambda _: line)
        path = write(tmp_path / "x.jsonl.gz", series())
    with pytest.raises(RecordError, match=rf"^{path}: shard"):
        load(path)


# ---- One gate ------------------------------------------------------------------------------------


def test_all_shards_are_judged_as_one_gate(tmp_path):
    paths = [file_of(tmp_path, number) for number in (2, 3, 1)]
    verdict = judged(*paths)
    assert verdict.outcome == PASSED, verdict.reasons
    assert {estimate.quantity.case for estimate in verdict.decision.cases} == {*TESTS}
    assert set(verdict.header.labels) == set(TESTS)
    lines = [line for block in report(verdict).blocks for line in block.lines]
    assert "measured: 7 cases, 10 trials, 600 s" in lines[1]
    assert "shards 1, 3 of 3: CPU 1" in lines
    assert "shard 2 of 3: CPU 0" in lines
    assert lines[-1].startswith("passed: no regression of ")
    assert "shard" not in lines[-1]


def test_empty_trials_of_a_shard_without_changed_code_do_not_count(tmp_path):
    # Of a file that was edited.
    own = Shard(2, 3, TESTS).own()
    reach = Reach(is_known=True, same={test: test for test in own})
    empty = [replace(trial, cases={}) for trial in series({}, count=MIN_TRIALS)]
    unchanged = file_of(tmp_path, 2, trials=empty, labels={}, reach=reach)
    verdict = judged(file_of(tmp_path, 1), unchanged, file_of(tmp_path, 3))
    assert (verdict.outcome, verdict.decision.trials) == (PASSED, TRIALS)
    assert report(verdict).json


def test_a_single_shard_says_that_it_is_one():
    shard = Shard(1, 3, TESTS)
    verdict = conclude(recorded(series(), shard=shard), JudgeOptions())
    assert last_line(verdict).endswith(
        "; only shard 1/3, so judge the files of all shards with mnistbench judge"
    )
    assert report(verdict).json.count('"shard": "1/3"') == 1


def test_what_a_shard_confirms_is_reported_with_its_own_name(tmp_path):
    test = Shard(3, 3, TESTS).own()[0]
    costs = {(IMPORT, ALL_CASES): (50_000_000, 1.0)}
    paths = [
        file_of(tmp_path, number, slower={test: 1.2} if number == 3 else {}, once=costs)
        for number in (1, 2, 3)
    ]
    alone = conclude(load(paths[2]), JudgeOptions())
    together = judged(*paths)
    assert (alone.outcome, together.outcome) == (REGRESSED, REGRESSED)
    assert [finding.quantity.key for finding in together.regressions] == [
        finding.quantity.key for finding in alone.regressions
    ]
    assert "1 case (test_2, +" in last_line(together)
    assert [estimate.quantity.case for estimate in together.decision.once] == [
        f"{ALL_CASES} of shard {number}/3" for number in (1, 2, 3)
    ]
    assert (together.decision.trials, together.decision.fresh, together.decision.shards) == (
        10,
        8,
        3,
    )


def test_an_import_that_regressed_in_a_shard_can_be_accepted(tmp_path):
    paths = [file_of(tmp_path, number) for number in (1, 2)]
    slower = {(IMPORT, ALL_CASES): (50_000_000, 1.6)}
    cases = {test: Measured(**QUIET) for test in Shard(3, 3, TESTS).own()}
    trials = [
        *series(cases, count=10, once=slower),
        *series(cases, count=8, seed=5, stage=2, once=slower),
    ]
    paths.append(file_of(tmp_path, 3, trials=trials))
    assert judged(*paths).outcome == REGRESSED
    assert (
        judged(*paths, accept=(Acceptance.parse("all cases:import:90%"),), reason="a cache").outcome
        == PASSED
    )


def test_the_bounds_of_a_shard_have_its_share_of_the_confidence():
    generator = np.random.default_rng(1)
    part = [
        quantity(tuple(generator.normal(0, 0.01, TRIALS)), case=f"test_{case}")
        for case in range(20)
    ]
    logs = np.array([measured.logs for measured in part])
    _, high = simultaneous_bounds(logs, 1, 0.95 ** (1 / 4), [measured.kind for measured in part])
    decisions = [decide(part, [], Thresholds(), 1, shards=shards) for shards in (1, 4)]
    assert decisions[1].bound == pytest.approx(math.expm1(high.max()))
    assert decisions[1].bound > decisions[0].bound


def test_bounds_of_a_gate_are_those_of_its_shards(tmp_path):
    paths = [file_of(tmp_path, number, count=11 - number) for number in (1, 2, 3)]
    together = judged(*paths).decision
    alone = [conclude(load(path), JudgeOptions()).decision for path in paths]
    assert [(case.high, case.trials) for case in together.cases] == [
        (case.high, case.trials) for part in alone for case in part.cases
    ]
    assert together.bound == max(part.bound for part in alone)
    assert together.trials == MIN_TRIALS


# ---- Coverage ------------------------------------------------------------------------------------


def test_a_missing_shard_is_named_and_the_others_are_judged(tmp_path):
    test = Shard(1, 3, TESTS).own()[0]
    first = file_of(tmp_path, 1)
    third = file_of(tmp_path, 3)
    verdict = judged(first, third)
    [reason] = verdict.reasons
    own = Shard(2, 3, TESTS).own()
    assert reason.kind == MISSING
    assert reason.text == (
        f"shard 2/3 is missing, so its tests are not judged: {len(own)} ({', '.join(own)}); run "
        "it, or add its file"
    )
    assert (verdict.outcome, verdict.is_excusable) == (INCONCLUSIVE, False)
    # It is about cases that the head lacks.
    assert judged(first, third, allow_missing=True).outcome == INCONCLUSIVE
    assert judged(file_of(tmp_path, 1, slower={test: 1.2}), third).outcome == REGRESSED


def test_a_shard_alone_lacks_all_others(tmp_path):
    assert [reason.text[:20] for reason in judged(file_of(tmp_path, 2)).reasons] == [
        "shard 1/3 is missing",
        "shard 3/3 is missing",
    ]


@pytest.mark.parametrize(
    ("count", "end", "reason_text"),
    [
        (
            3,
            None,
            (
                "shard 2/3: the run that was measured did not come to its end; measure again, so "
                "its tests are not judged: 2 ("
            ),
        ),
        (
            0,
            None,
            (
                "shard 2/3: the run that was measured did not come to its end; measure again, so "
                "its tests are not judged: 2 ("
            ),
        ),
        (10, INTERRUPTED, "shard 2/3: interrupted"),
    ],
)
def test_a_shard_that_died_loses_its_own_tests_only(tmp_path, count, end, reason_text):
    paths = [file_of(tmp_path, 1), file_of(tmp_path, 2, count=count, end=end), file_of(tmp_path, 3)]
    verdict = judged(*paths)
    [reason] = verdict.reasons
    assert (reason.kind, reason.text[: len(reason_text)]) == (BROKEN, reason_text)
    assert len(verdict.decision.cases) == 4 * (len(TESTS) - 2 * (count < MIN_TRIALS))
    assert verdict.unmeasured == ()


@pytest.mark.parametrize("other_regressed", [False, True])
def test_what_a_shard_that_died_has_confirmed_is_no_outcome(tmp_path, other_regressed):
    slower = [{Shard(number, 3, TESTS).own()[0]: 1.2} for number in (1, 2)]
    verdict = judged(
        file_of(tmp_path, 1, slower=slower[0] if other_regressed else {}),
        file_of(tmp_path, 2, slower=slower[1], end=None),
        file_of(tmp_path, 3),
    )
    assert verdict.outcome == (REGRESSED if other_regressed else INCONCLUSIVE)
    assert {finding.quantity.case for finding in verdict.regressions} >= {*slower[1]}


def test_no_shard_can_be_judged(tmp_path):
    verdict = judged(file_of(tmp_path, 1, 1 + 1, count=2, end=None))
    assert verdict.outcome == INCONCLUSIVE
    assert [reason.kind for reason in verdict.reasons] == [BROKEN, MISSING]
    assert "inconclusive: shard 1/2: " in last_line(verdict)


def test_two_files_of_one_shard_are_refused(tmp_path):
    paths = [
        file_of(tmp_path, 1),
        file_of(tmp_path, 2),
        file_of(tmp_path, 2, name="again.jsonl.gz"),
    ]
    with pytest.raises(UsageError) as raised:
        gather(paths)
    assert str(raised.value) == f"{paths[2]}: is of shard 2/3, as {paths[1]} is; remove one of them"


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"of": 4}, "number of shards is 4 instead of 3"),
        ({"base": "other"}, "base is other instead of origin/main (1a2b3c4)"),
        ({"head": "5d6e7f8"}, "head is 5d6e7f8 instead of 5d6e7f8 with changes"),
        ({"arguments": ("bench", "-x")}, "arguments is bench -x instead of bench"),
        ({"variables": {"head": {"A": "1"}}}, "variables is head A=1 instead of none"),
        ({"thresholds": {"case": 0.05}}, "--threshold is 5% instead of none"),
        (
            {"packages": {**INSTALLED, "numpy": ("2.0", "2.1")}},
            "version of numpy is 2.0 2.1 instead of 2.0",
        ),
        ({"packages": {"numpy": ("2.0", "2.0")}}, "version of tqdm is none instead of 4 5"),
        ({"tests": (*TESTS, "t.py::new")}, "it has the test t.py::new"),
        ({"tests": TESTS[1:]}, f"it lacks the test {TESTS[0]}"),
    ],
)
def test_a_shard_of_another_gate_is_refused_with_the_difference(tmp_path, changes, difference):
    first = file_of(tmp_path, 1)
    other_file = file_of(tmp_path, 2, name="other.jsonl.gz", **changes)
    with pytest.raises(UsageError) as raised:
        gather([other_file, first])
    assert (
        str(raised.value) == f"{other_file}: is of another gate than {first}: {difference}; "
        "judge the shards of one gate"
    )


def test_shards_whose_ids_differ_between_machines_are_refused_with_the_reason(tmp_path):
    paths = [
        file_of(
            tmp_path, number, name=f"{number}.jsonl.gz", tests=(*TESTS, f"t.py::test_set[{order}]")
        )
        for number, order in ((1, "{'a', 'b'}"), (2, "{'b', 'a'}"))
    ]
    with pytest.raises(
        UsageError,
        match=(
            r"it has the test t\.py::test_set\[.*\]: its id differs between processes, "
            r".*PYTHONHASHSEED=0"
        ),
    ):
        gather(paths)


def test_gates_that_are_no_shards_are_judged_alone(tmp_path):
    whole = write(tmp_path / "whole.jsonl.gz", series())
    assert gather([whole]) == load(whole)
    with pytest.raises(UsageError, match="number of shards is 3 instead of 1"):
        gather([whole, file_of(tmp_path, 2)])
    with pytest.raises(UsageError, match="is of shard 1/1, as"):
        gather([whole, write(tmp_path / "second.jsonl.gz", series())])


# ---- The level -----------------------------------------------------------------------------------


LIMITS = Thresholds()
SMALL_LIMITS = Thresholds(case=0.005)


@pytest.mark.parametrize("shards", [1, 2, 8, 40, MAX_SHARDS])
def test_a_false_alarm_of_all_shards_has_a_probability_below_1_in_1_000(shards):
    # p-values of unchanged code are uniform; small ones matter most.
    first = np.exp(np.linspace(math.log(1e-12), math.log(SCREENING), 2_000_001))
    look_risk = np.trapezoid(np.minimum(product(shards) / first, CONFIRMING), first)
    assert shards * len(checkpoints(LIMITS, shards)) * look_risk == pytest.approx(6.6e-4, rel=0.02)


def test_the_product_of_a_single_machine_is_unchanged():
    assert (product(1), checkpoints(LIMITS)) == (PRODUCT, CHECKPOINTS)


@pytest.mark.parametrize(("shards", "first"), [(1, 4), (2, 8), (8, 8), (40, 12), (MAX_SHARDS, 16)])
def test_the_first_look_can_confirm(shards, first):
    assert checkpoints(LIMITS, shards) == (first, first + 8)
    small = max(8, first)
    assert checkpoints(SMALL_LIMITS, shards) == (small, small + 16)
    for trials in (MIN_TRIALS, 9, TRIALS, 13):
        fresh = least_fresh(trials, LIMITS, shards)
        assert 2.0**-trials * max(2.0**-fresh, 1 / (MANY + 1)) <= product(shards)


def test_a_slowdown_that_a_gate_of_one_machine_confirms_needs_more_of_a_shard():
    first, fresh = (Estimate(quantity((0.1,) * 10), 0.1, 0.1, 0.1, p, 10) for p in (2**-10, 2**-4))
    assert is_confirmed(first, fresh)
    assert not is_confirmed(first, fresh, 8)
    assert is_confirmed(first, replace(fresh, p=2**-8), 8)


@given(st.integers(2, MAX_SHARDS))
def test_more_shards_need_more_evidence(shards):
    assert product(shards) < product(shards - 1)
    assert checkpoints(LIMITS, shards) >= checkpoints(LIMITS, shards - 1)
