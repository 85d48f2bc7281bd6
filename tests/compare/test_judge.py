"""Verdicts and outcome of a comparison, from summaries of runs and criteria."""

import dataclasses
import itertools
import math
from pathlib import Path

import builders
import numpy as np
import pytest
import scipy.stats
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import (
    ITSELF,
    NOTHING,
    OUTCOME,
    Finding,
    Noise,
    Ruling,
    acceptance_for,
    decide,
    judge,
    rule_of_runs,
)
from mnistbench.compare.prediction_interval import FALSE_ALARM, prediction_interval
from mnistbench.compare.quantities import Measurement
from mnistbench.compare.report import verdict_lines
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.operation import OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.core.options import GROUPINGS
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.saved_runs.run import Run

row = builders.op_row
COMPARING = Path(__file__).parents[2] / "docs" / "comparing.md"
NODE = builders.case_record().node_id
LABEL = "step convnet-b16-cpu on digits"
MM = "aten::mm, forward fc1"
CONV = "aten::conv, forward conv2"

#: A case takes 7.5 ms: an operation of this time is judged by itself.
LARGE = 1_000_000


def case(*rows, profiler_ns=0, **changes):
    return builders.case_record(
        tables=(builders.op_table(*rows, profiler_ns=profiler_ns),), **changes
    )


def run(*rows, **changes):
    """A saved run of one case whose table has these rows."""
    return builders.summary(case(*rows, **changes))


def limits(*texts, iteration="", **changes):
    """Criteria as a command line gives them."""
    changes["accept"] = tuple(map(Acceptance.parse, changes.get("accept", ())))
    case_fail = Threshold.parse(iteration) if iteration else None
    return Criteria(op_fail=tuple(map(Threshold.parse, texts)), case_fail=case_fail, **changes)


def judged(bases, head, criteria=None, **changes):
    """The judgement of one run against another, or against several."""
    criteria = criteria or Criteria()
    return judge(
        compare(bases if isinstance(bases, list) else [bases], head, by=criteria.by, **changes),
        criteria,
    )


def verdicts(judgement):
    """What every table row would say, by the name it has."""
    return {
        finding.measured.name: finding.text
        for case_judgement in judgement.cases
        for finding in case_judgement.findings
    }


def named(judgement, name):
    [finding] = [
        finding
        for case_judgement in judgement.cases
        for finding in case_judgement.findings
        if finding.measured.name == name
    ]
    return finding


def texts(judgement):
    return [problem.text for problem in judgement.problems]


def functions(**times_ns):
    """A saved run of a case of 300 us with these functions, which take more time in cProfile."""
    rows = [
        builders.function_row(name, ns, module="b" if name == "other" else "a", calls=100)
        for name, ns in times_ns.items()
    ]
    return of_functions(300_000, *rows)


def of_functions(wall_ns, *rows):
    """A saved run of a case with these functions and this time without cProfile."""
    return builders.summary(
        builders.case_record(
            tables=(builders.op_table(*rows, view="functions"),),
            timing=builders.timing(median_ns=wall_ns),
        )
    )


def test_a_function_is_judged_by_its_share_however_short_its_calls_are():
    base = functions(read=400_000, small=15_000, tiny=500)
    judgement = judged(base, functions(read=480_000, small=15_000, tiny=900), limits("10%"))
    assert verdicts(judgement)["read, a"] == "regressed"
    assert verdicts(judgement)["small, a"].startswith("within")
    [pooled] = [finding for finding in judgement.findings if finding.measured.kind == "other"]
    assert (pooled.measured.name, [change.name for change in pooled.measured.members]) == (
        "other functions",
        ["tiny"],
    )


@pytest.mark.parametrize("name", ["read", "a", "read, a"])
def test_a_threshold_names_a_function_or_its_module(name):
    judgement = judged(
        functions(read=400_000, other=400_000),
        functions(read=480_000, other=480_000),
        limits(f"{name}:10%"),
    )
    assert [finding.measured.name for finding in judgement.regressions] == ["read, a"]


def test_a_function_that_took_over_in_its_module_is_judged_as_a_replacement():
    judgement = judged(
        functions(read=400_000, other=90_000), functions(parse=401_000, other=90_000), limits("5%")
    )
    assert judgement.outcome == "passed"
    assert "read -> parse, a" in verdicts(judgement)


def test_a_threshold_for_operations_needs_a_table_of_each_side():
    plain = builders.plain_summary("bench/test_step.py::test_step[convnet-b16-cpu]", 300e-6)
    judgement = judged(plain, functions(read=400_000), limits("10%"))
    reasons = [reason.text for reason in judgement.problems]
    assert f"no operation table of {NODE} in the base" in reasons


def mm(ns, spread=0, **changes):
    """A run whose one operation took about that time.

    With this interquartile range over its iterations.
    """
    return run(row("aten::mm", (ns - spread, ns, ns + spread)), **changes)


def eight(*times, **changes):
    return builders.base_runs(8, *times, **changes)


# ---- fewer than eight base runs: the threshold alone ---------------------------------------------


@pytest.mark.parametrize(
    ("base", "head", "criteria", "expected"),
    [
        # Without a threshold ten percent words the verdict, and nothing fails.
        (mm(LARGE), mm(1_300_000), limits(), ("regressed", False)),
        (mm(LARGE), mm(950_000), limits(), ("within 10.0 %", False)),
        (mm(LARGE), mm(600_000), limits(), ("improved", False)),
        # What the runs' own spread could have moved is no more than suspect, or inconclusive.
        (mm(LARGE), mm(1_300_000, 300_000), limits(), ("suspect", False)),
        (mm(LARGE, 300_000), mm(1_300_000), limits(), ("suspect", False)),
        (mm(LARGE), mm(600_000, 400_000), limits(), ("inconclusive", False)),
        (mm(LARGE, 150_000), mm(1_050_000, 200_000), limits(), ("within 25.0 %", False)),
        # Where the user gave the threshold it decides: a change that may be noise fails.
        (mm(LARGE), mm(1_300_000, 300_000), limits("10%"), ("regressed", True)),
        (mm(LARGE), mm(1_300_000), limits("50%"), ("within 50.0 %", False)),
        (mm(LARGE), mm(600_000, 400_000), limits("10%"), ("improved", False)),
        (mm(LARGE), mm(600_000), limits("50%"), ("within 50.0 %", False)),
    ],
)
def test_with_few_base_runs_a_change_is_judged_against_the_threshold(
    base, head, criteria, expected
):
    finding = named(judged(base, head, criteria), MM)
    assert (finding.text, finding.fails) == expected
    assert not finding.ruling.by_runs


@pytest.mark.parametrize(
    ("percent", "head"),
    [
        ("0.7%", 1_007_000),
        ("7%", 1_070_000),
        ("10%", 1_100_000),
        ("10.1%", 1_101_000),
        ("28.9%", 1_289_000),
    ],
)
def test_a_change_of_exactly_the_threshold_is_within_it(percent, head):
    assert named(judged(mm(LARGE), mm(head), limits(percent)), MM).verdict == "within"
    assert named(judged(mm(LARGE), mm(head + 1), limits(percent)), MM).fails
    assert named(judged(mm(LARGE), mm(2 * LARGE - head), limits(percent)), MM).verdict == "within"
    assert (
        named(judged(mm(LARGE), mm(2 * LARGE - head - 1), limits(percent)), MM).verdict
        == "improved"
    )


def test_a_spread_of_exactly_the_excess_leaves_it_suspect():
    base = mm(LARGE)
    assert named(judged(base, mm(1_600_000, 500_000)), MM).text == "suspect"  # 60 % - 10 % = 50 %
    assert named(judged(base, mm(1_600_000, 499_998)), MM).text == "regressed"


def test_the_range_over_base_runs_counts_as_spread_and_adds_as_independent_errors_do():
    bases = [mm(ns, 40_000) for ns in (LARGE - 40_000, LARGE, LARGE + 40_000)]
    finding = named(judged(bases, mm(1_050_000, 80_000)), MM)
    assert finding.measured.base_runs == (960_000, 1_000_000, 1_040_000)
    assert finding.measured.spread_ns == pytest.approx(math.hypot(40_000, 80_000, 80_000))
    assert finding.text == "within 12.0 %"


def test_a_spread_of_more_than_the_time_itself_is_a_factor():
    bases = [mm(ns) for ns in (LARGE // 2, LARGE, 5 * LARGE)]
    finding = named(judged(bases, mm(LARGE)), MM)
    assert finding.text.startswith("within a factor of ")


@pytest.mark.parametrize(
    ("base", "head", "iqr_ns", "criteria", "verdict"),
    [
        # The threshold of operations does not apply.
        (7_500_000, 8_000_000, 0, limits("1%"), "within 10.0 %"),
        (7_500_000, 8_000_000, 0, limits(iteration="5%"), "regressed"),
        (1_000, 1_300, 250, limits(), "suspect"),  # the spread of its rounds
        (1_000, 1_300, 250, limits(iteration="10%"), "regressed"),
    ],
)
def test_the_iteration_is_judged_by_its_own_threshold_and_the_spread_of_its_rounds(
    base, head, iqr_ns, criteria, verdict
):
    sides = [
        mm(LARGE, timing=builders.timing(median_ns=ns, iqr_ns=iqr))
        for ns, iqr in ((base, 0), (head, iqr_ns))
    ]
    judgement = judged(*sides, criteria)
    assert verdicts(judgement)["iteration"] == verdict
    assert [finding.measured.name for finding in judgement.regressions] == (
        ["iteration"] if criteria.case_fail else []
    )


# ---- eight and more: the prediction interval -----------------------------------------------------

STEADY = (1_000_000, 1_020_000, 1_010_000, 990_000)
UNSTEADY = (1_000_000, 1_500_000, 800_000, 1_200_000)


@pytest.mark.parametrize(
    ("times", "head", "criteria", "expected"),
    [
        (STEADY, 1_400_000, limits(), ("regressed", False)),
        (STEADY, 1_400_000, limits("10%"), ("regressed", True)),
        (STEADY, 1_400_000, limits("50%"), ("within 50.0 %", False)),
        (STEADY, 600_000, limits("10%"), ("improved", False)),
        # Above the threshold and no other than base runs were among themselves: the runs cannot
        # tell, and say so.
        (
            UNSTEADY,
            1_400_000,
            limits("10%"),
            ("inconclusive (minimum detectable change 85.2 %)", False),
        ),
        (
            UNSTEADY,
            800_000,
            limits("10%"),
            ("inconclusive (minimum detectable change 85.2 %)", False),
        ),
        # A limit that the runs cannot rule out is not passed, whatever the change.
        (
            UNSTEADY,
            1_100_000,
            limits("10%"),
            ("inconclusive (minimum detectable change 85.2 %)", False),
        ),
        (UNSTEADY, 1_100_000, limits("90%"), ("within 90.0 %", False)),
        (UNSTEADY, 1_100_000, limits(), ("within 85.2 %", False)),
        (UNSTEADY, 9_000_000, limits("10%"), ("regressed", True)),
        (UNSTEADY, 100_000, limits("10%"), ("improved", False)),
        # Beyond the interval, and yet no more than the threshold allows.
        ((1_000_000,), 1_050_000, limits("10%"), ("within 10.0 %", False)),
    ],
)
def test_with_eight_base_runs_a_change_is_judged_against_what_runs_differ_by(
    times, head, criteria, expected
):
    finding = named(judged(eight(*times), builders.base_runs(1, head)[0], criteria), MM)
    assert (finding.text, finding.fails) == expected
    assert finding.ruling.by_runs
    assert len(finding.measured.base_runs) == 8


NOISY = builders.base_runs(1, 1_400_000)[0]


def test_noise_above_a_given_threshold_is_not_judged_unless_that_is_allowed():
    judgement = judged(eight(*UNSTEADY), NOISY, limits("10%"))
    [finding] = judgement.noise
    assert (
        finding.measured.name,
        judgement.outcome,
        judgement.open_questions,
        judgement.regressions,
    ) == (
        MM,
        "inconclusive",
        1,
        (),
    )
    allowed = judged(eight(*UNSTEADY), NOISY, limits("10%", inconclusive="warn"))
    assert (allowed.noise, allowed.outcome, allowed.open_questions) == (
        judgement.noise,
        "passed",
        0,
    )


def test_allowing_noise_excuses_neither_a_regression_nor_what_is_missing():
    regressed = builders.base_runs(1, 9_000_000)[0]
    assert (
        judged(eight(*UNSTEADY), regressed, limits("10%", inconclusive="warn")).outcome
        == "regressed"
    )
    more = builders.summary(
        builders.case_record(batch_size=1), saved_at="2026-11-20T09:00:00+00:00"
    )
    assert (
        judged([more, *eight(*UNSTEADY)], NOISY, limits("10%", inconclusive="warn")).outcome
        == "inconclusive"
    )


def test_noise_without_a_threshold_is_no_reason():
    judgement = judged(eight(*UNSTEADY), NOISY, limits())
    assert (judgement.noise, judgement.regressions, judgement.outcome) == ((), (), "none")


def steady_and(*times):
    """Eight runs with a steady operation and another one, whose times vary.

    Both sides have the same.
    """
    rows = [
        [row("aten::mm", steady), row("aten::conv", ns, module="conv2")]
        for steady, ns in zip(STEADY * 2, times * 2)  # noqa: B905
    ]
    return [run(*base) for base in rows]


@pytest.mark.parametrize(
    ("share", "criteria", "open_", "outcome"),
    [
        (0.10, limits("10%"), [], "inconclusive"),  # of a case of 7.5 ms
        (0.10, limits("10%", inconclusive="warn"), [], "passed"),
        (0.10, limits("150%"), [], "passed"),
        (0.10, limits("aten::mm:10%"), [], "passed"),  # no limit for it
        (0.09, limits("10%"), [CONV], "passed"),
        (0.09, limits("10%", "conv2:5%"), [CONV], "passed"),  # its module is no operation
        (0.09, limits("10%", "aten::conv:5%"), [], "inconclusive"),
        (0.09, limits("10%", f"{CONV}:5%"), [], "inconclusive"),
    ],
)
def test_an_operation_that_cannot_be_judged_prevents_a_pass_if_large_or_named(
    share, criteria, open_, outcome
):
    bases = steady_and(
        *(round(factor / 1e6 * share * 7_500_000) for factor in (1e6, 1.5e6, 0.8e6, 1e6))
    )
    judgement = judged(bases, bases[0], criteria)
    assert [finding.measured.name for finding in judgement.open_operations] == open_
    assert judgement.outcome == outcome
    assert [finding.measured.name for finding in judgement.noise] == (
        [CONV] if "inconclusive" in outcome or criteria.inconclusive == "warn" else []
    )
    assert judgement.open_questions == (outcome == "inconclusive")


@pytest.mark.parametrize("count", [1, 2, 7, 8, 20])
def test_a_limit_below_the_uncertainty_is_no_pass_however_many_runs_there_are(count):
    bases = [mm(ns, 150_000) for ns in UNSTEADY * 5][:count]
    finding = named(judged(bases, mm(LARGE, 150_000), limits("10%")), MM)
    assert (finding.verdict, finding.is_noise, finding.ruling.by_runs) == (
        "inconclusive",
        True,
        count >= 8,
    )
    assert finding.ruling.uncertainty > 0.2
    quiet = judged([mm(LARGE, 10_000)] * count, mm(LARGE, 10_000), limits("10%"))
    assert (named(quiet, MM).text, quiet.outcome) == ("within 10.0 %", "passed")


@pytest.mark.parametrize(
    ("iqr_ns", "criteria", "outcome"),
    [
        (1_000_000, limits(iteration="10%"), "inconclusive"),
        (1_000_000, limits("10%"), "passed"),  # no limit for cases
        (1_000_000, limits(iteration="20%"), "passed"),
        (100_000, limits(iteration="10%"), "passed"),
    ],
)
def test_a_case_that_the_runs_cannot_judge_is_no_pass(iqr_ns, criteria, outcome):
    side = mm(LARGE, timing=builders.timing(median_ns=7_500_000, iqr_ns=iqr_ns))
    judgement = judged(side, side, criteria)
    assert judgement.outcome == outcome
    assert [finding.measured.name for finding in judgement.noise] == (
        ["iteration"] if outcome == "inconclusive" else []
    )


@pytest.mark.parametrize(
    ("spread", "word", "outcome"),
    [
        (60_000, "improved", "passed"),
        (150_000, "improved", "passed"),
        (260_000, "inconclusive", "inconclusive"),
    ],
)
def test_a_faster_operation_passes_if_a_slowdown_of_its_limit_is_ruled_out(spread, word, outcome):
    judgement = judged(mm(LARGE, 20_000), mm(850_000, spread), limits("10%"))
    assert (named(judgement, MM).verdict, judgement.outcome) == (word, outcome)


@pytest.mark.parametrize("excess", [1_000, 10_000, 200_000])
@pytest.mark.parametrize("spread", [0, 13_000, 80_000])
@pytest.mark.parametrize("criteria", [limits("10%"), limits(iteration="10%"), limits()])
def test_an_improvement_is_judged_as_a_regression_of_the_same_size(criteria, spread, excess):
    """The same change in the other direction has the mirrored verdict.

    For operations and for cases.
    """
    iteration = builders.timing(median_ns=LARGE, iqr_ns=spread)
    words = {}
    for sign in (1, -1):
        ns = LARGE + sign * (100_000 + excess)
        head = mm(ns, spread, timing=dataclasses.replace(iteration, median_ns=ns))
        judgement = judged(mm(LARGE, spread, timing=iteration), head, criteria)
        words[sign] = [named(judgement, name).verdict for name in (MM, "iteration")]
    mirrored = {"regressed": "improved", "suspect": "inconclusive"}
    assert words[-1] == [mirrored[word] for word in words[1]]


def test_base_runs_of_another_machine_do_not_count_towards_eight():
    elsewhere = [
        dataclasses.replace(run, environment={**run.environment, "cpu_count": 4})
        for run in eight(*STEADY)
    ]
    finding = named(
        judged([*elsewhere, *builders.base_runs(7, *STEADY)], builders.base_runs(1, LARGE)[0]), MM
    )
    assert (len(finding.measured.base_runs), finding.ruling.by_runs) == (7, False)


def upper_limit(finding, times, risk):
    """The upper limit of the prediction interval as a share of the base."""
    return prediction_interval(times, risk)[1] / finding.measured.base_ns - 1


def test_the_risk_is_shared_among_all_that_is_judged_by_runs():
    """The limit of each is that of FALSE_ALARM divided by their number."""
    times = (1_000_000, 1_020_000, 1_010_000, 990_000)
    rows = [[row(f"aten::op{name}", ns) for name in range(3)] for ns in times * 2]
    finding = named(judged([run(*base) for base in rows], run(*rows[0])), "aten::op0, forward fc1")
    # three operations and the iteration
    assert finding.ruling.uncertainty == upper_limit(finding, times * 2, FALSE_ALARM / 4)
    alone = named(judged(eight(*times), builders.base_runs(1, LARGE)[0]), MM)
    assert alone.ruling.uncertainty == upper_limit(alone, times * 2, FALSE_ALARM / 2)
    assert alone.ruling.uncertainty < finding.ruling.uncertainty


def test_cases_that_cannot_be_compared_take_no_share_of_the_risk():
    cuda = {"tables": (), "device": "cuda", "device_ns": (1_000,)}
    accelerators = [builders.environment(devices=({"name": name},)) for name in ("old", "new")]

    def runs(*, with_incomparable):
        more = [builders.case_record(**cuda)] if with_incomparable else []
        bases = [
            builders.summary(case(row("aten::mm", ns)), *more, environment=accelerators[0])
            for ns in STEADY * 2
        ]
        return judged(
            bases,
            builders.summary(case(row("aten::mm", LARGE)), *more, environment=accelerators[1]),
        )

    judgement = runs(with_incomparable=True)
    assert [case_judgement.iteration.verdict for case_judgement in judgement.cases] == [
        "within",
        "incomparable",
    ]
    alone = named(runs(with_incomparable=False), MM)
    assert named(judgement, MM).ruling.uncertainty == alone.ruling.uncertainty


def test_a_new_operation_is_judged_by_threshold_beside_others_by_runs():
    head = run(row("aten::mm", LARGE), row("aten::clone", LARGE, module="fc2"))
    judgement = judged(eight(LARGE), head, limits("10%"))
    finding = named(judgement, "nothing -> aten::clone, forward fc2")
    assert (finding.ruling.by_runs, finding.verdict, finding.measured.base_runs) == (
        False,
        "regressed",
        (),
    )
    assert named(judgement, MM).ruling.by_runs


# ---- what is judged ------------------------------------------------------------------------------

WALL = {"timing": builders.timing(median_ns=1_000_000, iqr_ns=0)}


def names_of(base_ns, head_ns, *, profiler_ns=0, calls=1, criteria=None):
    """Return what is judged beside an iteration of 1 ms.

    An operation takes these times and the profiler's overhead there.
    """
    cost = profiler_ns * calls
    base, head = (
        run(row(self_cpu_ns=ns + cost, calls=calls), profiler_ns=profiler_ns, **WALL)
        for ns in (base_ns, head_ns)
    )
    return [finding.measured.name for finding in judged(base, head, criteria).cases[0].operations]


@pytest.mark.parametrize(
    ("base", "head", "alone"),
    [
        (20_000, 20_000, True),  # 2 % exactly
        (19_999, 19_999, False),
        (1_000, 20_000, True),  # large in one of the two runs: what grew is not hidden
        (20_000, 1_000, True),
        (0, 0, False),
    ],
)
def test_an_operation_is_judged_by_itself_from_two_percent_of_its_case_in_either_run(
    base, head, alone
):
    assert names_of(base, head) == (["aten::addmm, forward fc1"] if alone else ["other"])


@pytest.mark.parametrize(("share", "alone"), [(0.001, True), (0.5, False)])
def test_the_share_can_be_set(share, alone):
    assert (
        names_of(1_000, 1_000, criteria=Criteria(min_share=share)) == ["aten::addmm, forward fc1"]
    ) is alone


@pytest.mark.parametrize(
    ("base", "head", "alone"),
    [(40_000, 40_000, True), (39_999, 39_999, False), (1_000, 40_000, True), (40_000, 1_000, True)],
)
def test_an_operation_is_judged_from_twenty_times_the_overhead_of_the_profiler(base, head, alone):
    assert names_of(base, head, profiler_ns=400, calls=5) == (
        ["aten::addmm, forward fc1"] if alone else ["other"]
    )


def test_on_the_devices_clock_there_is_no_overhead():
    kernel = row("aten::mm", 900_000, self_device_ns=500, calls=9)
    record = builders.case_record(
        device="cuda",
        device_ns=(1_000,),
        tables=(builders.op_table(kernel, view="device", profiler_ns=400),),
    )
    judgement = judged(builders.summary(record), builders.summary(record))
    assert list(verdicts(judgement)) == ["iteration", MM]
    assert judgement.cases[0].iteration.measured.head_ns == 1_000


def launch_bound(kernel_ns, *more_rows):
    """An iteration of 1.5 ms in which the accelerator works for some tens of microseconds."""
    kernel = row("aten::mm", 900_000, self_device_ns=kernel_ns)
    table = builders.op_table(kernel, *more_rows, view="device", busy_ns=kernel_ns + 40_000)
    return builders.summary(
        builders.case_record(device="cuda", device_ns=(1_500_000,), tables=(table,))
    )


def test_a_kernel_that_grows_in_a_launch_bound_iteration_has_a_verdict_of_its_own():
    judgement = judged(launch_bound(20_000), launch_bound(29_000), limits("10%"))
    finding = named(judgement, MM)
    assert (finding.measured.kind, finding.verdict, finding.measured.change) == (
        "operation",
        "regressed",
        0.45,
    )
    assert judgement.outcome == "regressed"


def test_time_outside_operations_has_its_own_names_on_each_clock():
    other_rows = [
        row(OUTSIDE, 500, module="", calls=0, self_device_ns=0),
        row(RUNTIME, 700, module="", phase="", self_device_ns=0),
        row(UNATTRIBUTED, 0, module="", phase="", self_device_ns=40_000),
    ]
    [device_case] = judged(
        launch_bound(20_000, *other_rows), launch_bound(20_000, *other_rows)
    ).cases
    assert [
        (finding.measured.name, finding.measured.head_ns)
        for finding in device_case.operations
        if finding.measured.kind == "outside"
    ] == [("unattributed kernels", 40_000)]
    [host_case] = judged(run(*other_rows[:2]), run(*other_rows[:2])).cases
    assert [
        (finding.measured.name, finding.measured.head_ns)
        for finding in host_case.operations
        if finding.measured.kind == "outside"
    ] == [
        ("outside operations", 500),
        ("runtime calls", 700),
    ]


def test_small_operations_are_pooled_and_named_modules_have_pools_of_their_own():
    rows = [
        row("aten::mm", LARGE),
        row("aten::t", 100, module="fc1"),
        row("aten::relu", 200, module=""),
        row("aten::bias", 300, module="conv2"),
        row("aten::pad", 400, module="conv2"),
        row(OUTSIDE, 500, module="", calls=0),
        row(OUTSIDE, 600, module="", calls=0, phase=""),
    ]
    judgement = judged(run(*rows), run(*rows), limits("10%", "conv2:20%"))
    assert [
        (finding.measured.name, finding.measured.kind, finding.measured.head_ns, finding.text)
        for finding in judgement.cases[0].operations
    ] == [
        (MM, "operation", LARGE, "within 10.0 %"),
        ("outside operations", "outside", 1_100, "within 10.0 %"),
        ("other in conv2", "other", 700, "within 20.0 %"),
        ("other", "other", 300, "within 10.0 %"),
    ]
    assert judgement.outcome == "passed"


def test_changes_of_the_quantities_add_up_to_the_change_of_the_operations():
    base = run(
        row("aten::mm", LARGE),
        row("aten::t", 100),
        row("aten::old", LARGE),
        row(OUTSIDE, 70, calls=0),
    )
    head = run(row("aten::mm", 2 * LARGE), row("aten::relu", 300), row(OUTSIDE, 50, calls=0))
    [case_judgement] = judged(base, head, limits("10%", "aten::t:1%")).cases
    assert (
        sum(finding.measured.change_ns for finding in case_judgement.operations)
        == case_judgement.case.operations.change_ns - case_judgement.case.operations.remainder_ns
        == 180
    )


def test_operations_are_sorted_by_size_of_change_and_then_by_name():
    rows = {"aten::a": (0, 0), "aten::b": (5, 0), "aten::c": (0, 9), "aten::d": (0, 0)}
    base, head = (
        run(*(row(name, LARGE + change[side]) for name, change in rows.items())) for side in (0, 1)
    )
    judgement = judged(base, head)
    assert [finding.measured.name[:7] for finding in judgement.cases[0].operations] == [
        "aten::c",
        "aten::b",
        "aten::a",
        "aten::d",
    ]


@pytest.mark.parametrize("name", ["aten::t", "aten::t, forward fc1"])
def test_an_operation_that_a_threshold_names_is_judged_however_small_it_is(name):
    base, head = (
        run(row("aten::mm", LARGE), row("aten::t", ns), profiler_ns=1) for ns in (100, 150)
    )
    judgement = judged(base, head, limits(f"{name}:20%"))
    assert [
        (finding.measured.name, finding.fails) for finding in judgement.cases[0].operations
    ] == [
        ("aten::t, forward fc1", True),
        (MM, False),
    ]


def test_pooled_operations_regress_together():
    base, head = (
        run(*(row(f"aten::t{number}", ns) for number in range(9)), row("aten::mm", LARGE))
        for ns in (100, 120)
    )
    judgement = judged(base, head, limits("10%"))
    [finding] = judgement.regressions
    assert (
        finding.measured.name,
        finding.measured.base_ns,
        finding.measured.head_ns,
        len(finding.measured.members),
    ) == (
        "other",
        900,
        1_080,
        9,
    )


def test_pools_are_summed_run_by_run_so_that_their_spread_is_that_of_the_sum():
    # One is quick when the other is slow: each differs by half from run to run, and their sum by
    # nothing.
    bases = [
        run(row("aten::mm", LARGE), row("aten::a", 100 + swing), row("aten::b", 100 - swing))
        for swing in (50, -50) * 4
    ]
    finding = named(judged(bases, bases[0]), "other")
    assert finding.measured.base_runs == (200,) * 8
    assert finding.text == "within 10.0 %"


def test_time_outside_operations_is_judged_by_the_general_threshold_only():
    base, head = (
        run(row("aten::mm", LARGE), row(OUTSIDE, ns, calls=0)) for ns in (500_000, 700_000)
    )
    assert [
        finding.measured.name
        for finding in judged(base, head, limits("10%", "fc1:90%")).regressions
    ] == ["outside operations"]
    assert judged(base, head, limits("fc1:1%")).outcome == "passed"


# ---- new and vanished operations -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ({"aten::new": 1_050_000}, "within 10.0 %"),
        ({"aten::new": 1_500_000}, "regressed"),
        ({"aten::new": 500_000}, "improved"),
        ({"aten::new": 400_000, "aten::newer": 650_000}, "within 10.0 %"),
        ({"aten::new": 500_000, "aten::newer": 650_000}, "regressed"),
    ],
)
def test_operations_that_replace_others_of_their_module_are_judged_with_them(head, text):
    judgement = judged(
        run(row("aten::old", LARGE)),
        run(*(row(name, ns) for name, ns in head.items())),
        limits("10%"),
    )
    [finding] = judgement.cases[0].operations
    assert (finding.measured.name, finding.measured.kind) == (
        f"aten::old -> {' + '.join(sorted(head, key=head.get, reverse=True))}, forward fc1",
        "replaced",
    )
    assert finding.text == text


def test_operations_of_another_module_replace_nothing():
    rest = [row("aten::mm", LARGE, module=module) for module in ("fc1", "fc2")]
    base = run(row("aten::old", LARGE), *rest)
    head = run(row("aten::new", LARGE, module="fc2"), *rest)
    assert verdicts(judged(base, head, limits("10%"))) == {
        "iteration": "within 10.0 %",
        MM: "within 10.0 %",
        "aten::mm, forward fc2": "within 10.0 %",
        "aten::old -> nothing, forward fc1": "improved",
        "nothing -> aten::new, forward fc2": "regressed",
    }


@pytest.mark.parametrize(
    ("wall_ns", "slow_ns", "text"),
    [
        (150_000, 100_000, "no regression, case faster"),
        (310_000, 100_000, "regressed"),  # the case got slower
        (150_000, 800_000, "regressed"),  # the sum of its functions got slower
    ],
)
def test_a_new_function_is_no_regression_where_the_case_and_its_functions_are_faster(
    wall_ns, slow_ns, text
):
    base = of_functions(
        300_000,
        builders.function_row("is_word", 600_000, calls=1600, module="slow"),
        builders.function_row("old", 1_000, calls=1, module="fast"),
    )
    head = of_functions(
        wall_ns,
        builders.function_row("is_word", slow_ns, calls=400, module="slow"),
        builders.function_row("is_word_fast", 300_000, calls=1600, module="fast"),
    )
    new = named(judged(base, head, limits("25%")), "old -> is_word_fast, fast")
    assert (new.text, new.fails) == (text, text == "regressed")
    gone = named(judged(head, base, limits("25%")), "is_word_fast -> old, fast")
    assert gone.text == ("improved" if text == "regressed" else "no gain, case slower")


def test_a_pass_does_not_name_the_spread_of_what_no_rule_judges():
    base, head = (
        of_functions(
            wall_ns,
            builders.function_row("is_word", slow_ns, calls=1600, module="slow"),
            builders.function_row("is_word_fast", fast_ns, calls=calls, module="fast"),
        )
        for wall_ns, slow_ns, fast_ns, calls in (
            (300_000, 600_000, 400, 2),
            (150_000, 100_000, (200_000, 300_000, 400_000), 1600),  # a spread of 250 times its base
        )
    )
    judgement = judged(base, head, limits("25%"))
    assert named(judgement, "is_word_fast, fast").text == "no regression, case faster"
    *_, outcome = verdict_lines(judgement)
    assert outcome == "thresholds: passed"


@pytest.mark.parametrize(
    ("base_calls", "option", "text"),
    [
        (2, "25%", "no regression, case faster"),
        (1600, "25%", "regressed"),  # each of its calls got slower
        (2, "fast:25%", "regressed"),  # the threshold names its module
    ],
)
def test_a_function_that_many_calls_moved_to_is_no_regression_where_the_case_is_faster(
    base_calls, option, text
):
    base, head = (
        of_functions(
            wall_ns,
            builders.function_row("is_word", slow_ns, calls=1600, module="slow"),
            builders.function_row("is_word_fast", fast_ns, calls=calls, module="fast"),
        )
        for wall_ns, slow_ns, fast_ns, calls in (
            (300_000, 600_000, 400, base_calls),
            (150_000, 100_000, 300_000, 1600),
        )
    )
    assert named(judged(base, head, limits(option)), "is_word_fast, fast").text == text


def test_a_new_operation_regresses_whatever_the_threshold():
    head = run(row("aten::mm", LARGE), row("aten::copy_", LARGE, module=""))
    finding = named(
        judged(run(row("aten::mm", LARGE)), head, limits("900%")), "nothing -> aten::copy_, forward"
    )
    assert (finding.verdict, finding.fails, finding.measured.change, finding.measured.base_ns) == (
        "regressed",
        True,
        math.inf,
        0,
    )


def test_a_new_module_has_its_name_where_operations_are_summed_by_module():
    head = run(row("aten::mm", LARGE), row("aten::mm", LARGE, module="conv3"))
    assert "nothing -> conv3 forward" in verdicts(
        judged(run(row("aten::mm", LARGE)), head, Criteria(by="module"))
    )


def test_a_new_operation_that_is_small_counts_with_the_other_small_ones():
    base = run(row("aten::mm", LARGE), row("aten::t", 1_000))
    head = run(row("aten::mm", LARGE), row("aten::t", 1_000), row("aten::copy_", 50))
    assert verdicts(judged(base, head, limits("10%"))) == {
        "iteration": "within 10.0 %",
        MM: "within 10.0 %",
        "other": "within 10.0 %",
    }


# ---- which threshold -----------------------------------------------------------------------------


def limit_of(name, *options, mark=(), case_mark="", iteration=""):
    rows = [
        row("aten::mm", LARGE),
        row("aten::conv", LARGE, module="conv2"),
        row("aten::t", 10, module="conv2"),
    ]
    record = case(*rows, op_fail=mark, case_fail=case_mark)
    finding = named(
        judged(run(*rows), builders.summary(record), limits(*options, iteration=iteration)), name
    )
    return finding.measured.threshold if finding.measured.has_limit else None


@pytest.mark.parametrize(
    ("name", "options", "mark", "expected"),
    [
        (CONV, (), (), None),
        (CONV, ("conv2:20%", "10%"), (), 0.2),
        (CONV, ("10%", "aten::conv, forward conv2:40%"), (), 0.4),
        (CONV, ("aten::conv:30%", "conv2:20%"), (), 0.3),  # two names: the first
        (CONV, ("conv2:20%", "aten::conv:30%"), (), 0.2),
        (CONV, ("10%",), ("50%",), 0.5),  # a test's own before the command line's
        (CONV, ("conv2:20%",), ("conv2:60%",), 0.6),
        (CONV, ("conv2:20%",), ("50%",), 0.2),  # a name before none, whoever gave it
        (CONV, ("10%",), ("conv2:60%",), 0.6),
        (MM, ("10%", "conv2:20%"), ("conv2:60%",), 0.1),
        (MM, ("conv2:20%",), (), None),
        ("other in conv2", ("10%", "conv2:20%"), (), 0.2),
        ("other in conv2", ("10%",), ("conv2:60%",), 0.6),
        ("other", ("10%", "aten::conv:30%"), (), 0.1),
    ],
)
def test_the_narrowest_threshold_applies(name, options, mark, expected):
    assert limit_of(name, *options, mark=mark) == expected


@pytest.mark.parametrize(
    ("threshold", "case_mark", "expected"), [("", "", None), ("4%", "", 0.04), ("4%", "5%", 0.05)]
)
def test_the_mark_of_a_test_overrides_the_command_line_for_the_iteration(
    threshold, case_mark, expected
):
    assert limit_of("iteration", "10%", iteration=threshold, case_mark=case_mark) == expected


def test_a_mark_of_the_base_does_not_count():
    base, head = (run(row("aten::mm", LARGE), op_fail=mark) for mark in (("1%",), ()))
    assert not judged(base, head).asked


def test_a_threshold_names_a_module_where_modules_are_summed():
    base, head = (
        run(row("aten::conv", ns, module="conv2"), row("aten::mm", LARGE))
        for ns in (LARGE, 1_500_000)
    )
    judgement = judged(base, head, limits("conv2:20%", by="module"))
    assert [
        (finding.measured.name, finding.measured.threshold) for finding in judgement.regressions
    ] == [("conv2 forward", 0.2)]
    judgement = judged(base, head, limits("aten::conv:20%", by="op"))
    assert [
        (finding.measured.name, finding.measured.threshold) for finding in judgement.regressions
    ] == [("aten::conv", 0.2)]


# ---- never silently green ------------------------------------------------------------------------

GATE = limits("10%")
LAST = "last saved 2026-11-20 10:31 UTC, commit 1a2b3c4"
EXCUSES = {"allow_missing": True, "allow_incomparable": True}


def problem_of(bases, head, criteria=GATE, **changes):
    """The only problem, whose outcome is that nothing could be judged unless it is excused."""
    judgement = judged(bases, head, criteria, **changes)
    [problem] = judgement.problems
    assert judgement.outcome == ("passed" if problem.excused else "inconclusive")
    return problem


def excused_by(bases, head):
    """Which of the two excuses each lets the only problem pass."""
    return [
        name
        for name in EXCUSES
        if problem_of(bases, head, dataclasses.replace(GATE, **{name: True})).excused
    ]


def empty(**changes):
    """A run without a benchmark of ours or anybody's."""
    return Run(environment=builders.summary().environment, cases=(), **changes)


STEP = case(row("aten::mm", LARGE))
OTHER = case(row("aten::mm", LARGE), batch_size=1)
WITHOUT = builders.case_record(tables=())
IN_ANOTHER = {"tables": (), "tables_in": "step convnet-b1-cpu"}
TRAIN_ALONE = builders.summary(builders.case_record(phase="train", **IN_ANOTHER))


def beside(*cases, **changes):
    """A run of these cases and another one, which has operations."""
    return builders.summary(OTHER, *cases, **changes)


def on_device(kernel_ns, *views):
    """A case with tables by these views; its kernel took that time."""
    operation = row("aten::mm", LARGE, self_device_ns=kernel_ns)
    tables = tuple(builders.op_table(operation, view=view) for view in views)
    return builders.case_record(device="cuda", device_ns=(1_000,), node_id=NODE, tables=tables)


NO_KERNEL = on_device(0, "device", "host")
NO_TABLE = (
    "no case has an operation table that --op-fail could apply to; give --case-fail 10%, or save "
    "runs with --op-benchmarks"
)
CHANGED = "threads 1 -> 4, seed 1 -> 2"


@pytest.mark.parametrize(
    ("bases", "head", "text", "excuse"),
    [
        (
            mm(LARGE),
            empty(),
            "no benchmark ran: the new run has no benchmark in it; name another",
            None,
        ),
        ([], empty(), "no benchmark ran: the new run has no benchmark in it; name another", None),
        (
            [],
            mm(LARGE),
            "no saved run to compare with; save one with: pytest bench --benchmark-autosave",
            None,
        ),
        (
            empty(),
            mm(LARGE),
            "no case in common with the base; save a run of these cases first",
            None,
        ),
        (TRAIN_ALONE, TRAIN_ALONE, NO_TABLE, None),
        (
            beside(STEP),
            beside(),
            f"in the base but not in this run: {NODE}, {LAST}",
            "allow_missing",
        ),
        (
            beside(WITHOUT),
            beside(STEP),
            f"no operation table of {NODE} in the base",
            "allow_missing",
        ),
        (
            beside(STEP),
            beside(WITHOUT),
            f"no operation table of {NODE} in this run",
            "allow_missing",
        ),
        (
            beside(WITHOUT),
            beside(WITHOUT),
            f"no operation table of {NODE} in the base and in this run",
            "allow_missing",
        ),
        # Also where its operations are now in another case.
        (
            beside(STEP),
            beside(builders.case_record(**IN_ANOTHER)),
            f"no operation table of {NODE} in this run",
            "allow_missing",
        ),
        (
            beside(on_device(5, "device", "host")),
            beside(NO_KERNEL),
            (
                f"no device time in the operation table of {NODE} in this run: the profiler "
                "recorded no kernel"
            ),
            "allow_missing",
        ),
        (
            beside(NO_KERNEL),
            beside(NO_KERNEL),
            (
                f"no device time in the operation table of {NODE} in the base and in this run: "
                "the profiler recorded no kernel"
            ),
            "allow_missing",
        ),
        (
            beside(dataclasses.replace(on_device(5, "host"), device_ns=())),
            beside(on_device(5, "device")),
            f"no operation table of {NODE} in both by the same view",
            "allow_missing",
        ),
        (
            beside(environment=builders.environment(cpu_model="Intel Xeon 8488C")),
            beside(),
            (
                "1 case: cpu model Intel Xeon 8488C -> AMD EPYC 9R14; measure both sides on one "
                "machine, or add --across-machines"
            ),
            "allow_incomparable",
        ),
        # Once for all cases.
        (
            beside(STEP, environment=builders.environment(cpu_count=8)),
            beside(STEP),
            "2 cases: cpu count 8 -> 2; give both sides the same CPUs, or add --across-machines",
            "allow_incomparable",
        ),
        (
            beside(STEP),
            beside(case(row("aten::mm", LARGE), threads=4, seed=2, node_id=NODE)),
            (
                f"in the base but not in this run: {NODE}, {LAST}; this run has it with "
                f"other settings ({CHANGED}): measure both sides alike"
            ),
            "allow_missing",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_judged_is_named_and_may_be_excused(bases, head, text, excuse):
    verdict = "incomparable" if excuse == "allow_incomparable" else "missing"
    assert problem_of(bases, head) == (verdict, text, False)
    assert excused_by(bases, head) == ([excuse] if excuse else [])


def test_a_missing_table_matters_only_with_a_threshold_for_operations():
    for tables in (WITHOUT, NO_KERNEL):
        judgement = judged(
            builders.summary(tables), builders.summary(tables), limits(iteration="10%")
        )
        assert (judgement.outcome, judgement.problems) == ("passed", ())
    marked = builders.summary(builders.case_record(**IN_ANOTHER, op_fail=("5%",)))
    problem = problem_of(builders.summary(WITHOUT), marked, Criteria())
    assert problem.text == f"no operation table of {NODE} in the base and in this run"


def test_a_case_with_operations_in_another_case_and_a_new_case_are_no_problem():
    train = builders.case_record(phase="train", **IN_ANOTHER)
    assert judged(beside(train), beside(train, STEP), GATE).outcome == "passed"


def test_a_case_of_another_torch_is_judged_only_when_asked():
    base = builders.summary(STEP, environment=builders.environment(torch="2.13.0"))
    judgement = judged(base, mm(9 * LARGE), GATE)
    assert (set(verdicts(judgement).values()), judgement.regressions) == ({"incomparable"}, ())
    assert texts(judgement) == [
        (
            "1 case: torch 2.13.0 -> 2.15.0; measure both sides with one version, or add "
            "--across-versions"
        )
    ]
    assert judged(base, mm(9 * LARGE), GATE, across_versions=True).outcome == "regressed"


# ---- names of nothing ----------------------------------------------------------------------------


def test_a_threshold_for_an_unknown_name_cannot_be_excused():
    criteria = limits("10%", "conv9:5%", "aten::mmm:5%", "fc1:5%", **EXCUSES)
    assert problem_list(judged(mm(LARGE), mm(LARGE), criteria)) == [
        ("missing", "--op-fail 'aten::mmm' is no operation or module of any case", False),
        ("missing", "--op-fail 'conv9' is no operation or module of any case", False),
    ]


def problem_list(judgement):
    return [tuple(problem) for problem in judgement.problems]


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (run(row("aten::mm", LARGE)), run(row("aten::mm", LARGE), row("aten::t", 10))),
        (run(row("aten::mm", LARGE), row("aten::t", 10)), run(row("aten::mm", LARGE))),
        [builders.summary(case(row("aten::mm", LARGE)), case(row("aten::t", LARGE), batch_size=1))]
        * 2,
    ],
    ids=["in the new run", "in the base", "in one case of both"],
)
def test_a_name_of_any_side_or_case_is_known(base, head):
    assert judged(base, head, limits("aten::t:5%")).problems == ()


@pytest.mark.parametrize("name", [OUTSIDE, "forward", "iteration", "other", "fc"])
def test_a_threshold_names_an_operation_or_a_module(name):
    head = run(row("aten::mm", LARGE), row(OUTSIDE, 10, module="", calls=0))
    assert texts(judged(head, head, limits(f"{name}:5%"))) == [
        f"--op-fail {name!r} is no operation or module of any case"
    ]


def test_a_mark_applies_to_its_own_case():
    other_case = case(row("aten::conv", LARGE, module="conv2"), batch_size=1)
    base = builders.summary(other_case, case(row("aten::mm", LARGE)))
    head = builders.summary(other_case, case(row("aten::mm", LARGE), op_fail=("10%", "conv2:5%")))
    for criteria in (Criteria(), limits("conv2:5%", **EXCUSES)):
        judgement = judged(base, head, criteria)
        assert problem_list(judgement) == [
            ("missing", f"opgate 'conv2' is no operation or module of {NODE}", False)
        ]
        assert judgement.outcome == "inconclusive"


def test_a_name_is_not_called_unknown_where_operations_could_not_be_compared():
    base = builders.summary(
        case(row("aten::mm", LARGE)), environment=builders.environment(torch="2.13.0")
    )
    judgement = judged(base, mm(LARGE), limits("aten::nothing:5%", **EXCUSES))
    assert [problem.kind for problem in judgement.problems] == ["incomparable"]


# ---- intended regressions ------------------------------------------------------------------------


def accepting(*patterns, base=None, head=None, limit=10.0, **changes):
    """The judgement of a run whose one operation, or whatever is given, regressed."""
    accept = tuple(Acceptance(pattern, limit) for pattern in patterns)
    excused = {"accept": accept, "reason": "the exact kernel is slower"} if accept else {}
    criteria = dataclasses.replace(limits("10%", iteration="10%", **changes), **excused)
    return judged(base or mm(LARGE), head or mm(2 * LARGE), criteria)


@pytest.mark.parametrize(
    "pattern",
    [
        f"{LABEL}:{MM}",
        f"{LABEL}:fc1",
        "step convnet-b16-cpu:aten::mm",
        f"{NODE}:aten::mm",  # brackets are those of the name
        "test_step[convnet-b16-cpu]:aten::*",  # also where something else is a pattern
        "*:*",
    ],
)
def test_an_intended_regression_is_accepted_by_case_and_operation_or_module(pattern):
    judgement = accepting(pattern)
    [finding] = judgement.accepted
    assert (finding.measured.name, finding.text, finding.fails) == (
        MM,
        "regressed, accepted",
        False,
    )
    assert (judgement.outcome, judgement.unused, judgement.regressions) == ("passed", (), ())


@pytest.mark.parametrize(
    "pattern",
    [
        "*:aten::m",
        "*:iteration",
        "*:other",
        "*:operation",  # no name that a table shows
        "convnet:aten::mm",
        "test_step[a-z]:aten::mm",
        "aten::mm",
    ],
)
def test_what_matches_no_regression_excuses_nothing_and_is_said_to_be_unused(pattern):
    judgement = accepting(pattern)
    assert judgement.accepted == ()
    assert judgement.unused == (f"{pattern}:1000%",)
    assert judgement.outcome == "regressed"


def test_the_iteration_sums_and_replacements_can_be_accepted():
    base = run(
        row("aten::mm", LARGE),
        row("aten::t", 10),
        row("aten::old", LARGE),
        row(OUTSIDE, 10, calls=0),
        **WALL,
    )
    slow = {"timing": builders.timing(median_ns=2_000_000, iqr_ns=0)}
    head = run(
        row("aten::mm", LARGE),
        row("aten::t", 90),
        row("aten::new", 2 * LARGE),
        row(OUTSIDE, 90, calls=0),
        **slow,
    )
    replaced = "aten::old -> aten::new, forward fc1"

    def accepted(*patterns):
        return sorted(
            finding.measured.name for finding in accepting(*patterns, base=base, head=head).accepted
        )

    assert accepted("*:iteration") == ["iteration"]
    assert accepted("*:other") == ["other"]
    assert accepted("*:outside operations") == ["outside operations"]
    assert (
        accepted("*:aten::old")
        == accepted("*:aten::new")
        == accepted(f"*:{replaced}")
        == [replaced]
    )
    judgement = accepting(
        "*:iteration", "*:other", "*:outside operations", "*:aten::new", base=base, head=head
    )
    assert (judgement.outcome, judgement.unused) == ("passed", ())


def test_nothing_is_accepted_that_did_not_regress():
    judgement = accepting("*:aten::mm", head=mm(LARGE))
    assert (judgement.accepted, judgement.unused, judgement.outcome) == (
        (),
        ("*:aten::mm:1000%",),
        "passed",
    )


@pytest.mark.parametrize(("head", "accepted"), [(1_500_000, True), (1_500_001, False)])
def test_a_regression_is_accepted_up_to_its_limit(head, accepted):
    judgement = accepting("*:aten::mm", head=mm(head), limit=0.5)
    finding = named(judgement, MM)
    assert (finding.accepted, finding.accept_limit, finding.fails) == (accepted, 0.5, not accepted)
    assert (judgement.outcome, judgement.unused) == ("passed" if accepted else "regressed", ())


def test_of_several_accepted_limits_the_largest_applies():
    patterns = ("*:aten::mm:20%", "*:fc1:60%", "*:aten::*:5%")
    criteria = limits("10%", accept=patterns, reason="x")
    judgement = judged(mm(LARGE), mm(1_500_000), criteria)
    assert (judgement.outcome, named(judgement, MM).accept_limit, judgement.unused) == (
        "passed",
        0.6,
        (),
    )


def test_noise_above_a_threshold_is_accepted_in_the_same_way():
    def outcome(limit, **changes):
        judgement = accepting(
            "*:aten::mm", base=eight(*UNSTEADY), head=NOISY, limit=limit, **changes
        )
        return (
            judgement.outcome,
            named(judgement, MM).text.partition(", ")[2],
            judgement.unused,
        )

    assert outcome(0.5) == ("passed", "accepted", ())
    assert outcome(0.2) == ("inconclusive", "", ())
    assert outcome(0.2, inconclusive="warn") == ("passed", "", ())


def test_the_limit_of_a_new_operation_is_a_share_of_the_iteration():
    base = run(row("aten::mm", LARGE), **WALL)
    head = run(row("aten::mm", LARGE), row("aten::copy_", 300_000), **WALL)
    assert accepting("*:aten::copy_", base=base, head=head, limit=0.3).outcome == "passed"
    assert accepting("*:aten::copy_", base=base, head=head, limit=0.29).outcome == "regressed"
    judgement = accepting(base=base, head=head)
    [finding] = judgement.regressions
    assert acceptance_for(judgement, finding).endswith(":nothing -> aten::copy_, forward fc1:30%")


SLOWER = st.integers(1_100_001, 90_000_000)


@given(
    SLOWER,
    st.sampled_from([LARGE, 1, 0]),
    st.sampled_from(["aten::mm", "a * [b] ?c", "a\nb", "50%:5%"]),
)
@strategies.ANY_SPEED
def test_the_suggested_option_accepts_that_regression_and_no_other(ns, base_ns, name):
    base = [run(row(name, base_ns), row("aten::conv", LARGE, module="conv2"), **WALL)]
    head = run(row(name, ns), row("aten::conv", 2 * LARGE, module="conv2"), **WALL)
    judgement = judged(base, head, limits("10%"))
    [regression] = [finding for finding in judgement.regressions if finding.measured.name != CONV]
    suggested = acceptance_for(judgement, regression)
    after = judged(base, head, limits("10%", accept=(suggested,), reason="x"))
    assert [finding.measured.name for finding in after.accepted] == [regression.measured.name]
    assert [finding.measured.name for finding in after.regressions] == [CONV]


def two_files(*patterns):
    """The judgement of an operation that regressed in one of two files, whose tests have one name.

    The other file has other operations.
    """
    first, second = ({"node_id": f"{name}.py::test[x]", "test": name} for name in "ab")
    base, head = (
        builders.summary(
            case(row("aten::mm", ns), **first), case(row("aten::conv", LARGE), **second)
        )
        for ns in (LARGE, 2 * LARGE)
    )
    accept = tuple(Acceptance(pattern, 10.0) for pattern in patterns)
    excused = {"accept": accept, "reason": "x"} if accept else {}
    return judged(base, head, dataclasses.replace(limits("10%"), **excused))


@pytest.mark.parametrize("name", [LABEL, "step convnet-b16-cpu", "test[x]"])
def test_a_name_of_two_cases_without_a_wildcard_is_refused(name):
    with pytest.raises(UsageError) as raised:
        two_files(f"{name}:{MM}")
    message = str(raised.value)
    assert "names 2 cases: a.py::test[x], b.py::test[x]; name one of them, " in message
    assert f"--accept 'a.py::test[x]:{MM}:1000%'" in message
    for accepted in ("a.py::test[x]", "*"):
        assert two_files(f"{accepted}:{MM}").outcome == "passed"
    assert two_files(f"b.py::test[x]:{MM}").outcome == "regressed"


def test_a_suggestion_is_not_refused_although_one_case_alone_has_the_operation():
    judgement = two_files()
    [regression] = judgement.regressions
    assert acceptance_for(judgement, regression).startswith("a.py::test[x]:")


def test_a_suggestion_names_the_dataset_or_the_test_where_two_cases_would_be_meant():
    def suggested(*cases):
        base, head = (
            builders.summary(*(case(row("aten::mm", ns), **changes) for changes in cases))
            for ns in (LARGE, 2 * LARGE)
        )
        judgement = judged(base, head, limits("10%"))
        return [
            acceptance_for(judgement, finding).partition(":aten")[0]
            for finding in judgement.regressions
        ]

    mnist = {"dataset": "mnist", "node_id": "b.py::test[x]"}
    assert suggested({}, mnist) == [LABEL, "step convnet-b16-cpu on mnist"]
    assert suggested({}, {"test": "a.py::test", "node_id": "a.py::test[x]"}) == [
        NODE,
        "a.py::test[x]",
    ]


# ---- the outcome ---------------------------------------------------------------------------------

MORE = builders.case_record(batch_size=1)


@pytest.mark.parametrize(
    ("head", "missing", "criteria", "outcome"),
    [
        (LARGE, False, Criteria(), "none"),
        (2 * LARGE, True, Criteria(), "none"),
        (LARGE, False, GATE, "passed"),
        (2 * LARGE, False, GATE, "regressed"),
        (LARGE, True, GATE, "inconclusive"),
        (2 * LARGE, True, GATE, "regressed"),  # what is known weighs more than what is not
        (LARGE, True, limits("10%", allow_missing=True), "passed"),
        (2 * LARGE, True, limits("10%", accept=("*:aten::mm:100%",), reason="x"), "inconclusive"),
        (2 * LARGE, False, limits("10%", accept=("*:aten::mm:100%",), reason="x"), "passed"),
        (2 * LARGE, False, limits(iteration="10%"), "passed"),  # operations were not asked for
        (2 * LARGE, True, limits(iteration="10%"), "inconclusive"),
    ],
)
def test_the_outcome(head, missing, criteria, outcome):
    base = builders.summary(case(row("aten::mm", LARGE)), *([MORE] if missing else []))
    judgement = judged(base, mm(head), criteria)
    assert judgement.outcome == outcome
    assert judgement.asked is (criteria != Criteria())
    # Problems are found in any case; nobody who did not ask is told that something could not be
    # judged.
    assert len(judgement.problems) == missing
    assert judgement.open_questions == (missing and judgement.asked and not criteria.allow_missing)


def test_a_mark_applies_to_its_own_test_only():
    rows = [(row("aten::mm", LARGE),), (row("aten::mm", 2 * LARGE),)]
    base = builders.summary(case(*rows[0]), case(*rows[0], batch_size=1))
    head = builders.summary(case(*rows[1], op_fail=("10%",)), case(*rows[1], batch_size=1))
    judgement = judged(base, head)
    assert (
        [finding.measured.case.head.params.batch_size for finding in judgement.regressions],
        judgement.outcome,
    ) == ([16], "regressed")
    assert judged(mm(LARGE), mm(2 * LARGE, case_fail="90%")).outcome == "passed"


def test_plain_benchmarks_are_judged_by_their_iteration():
    quick, slow = (builders.plain_summary("test_x", seconds) for seconds in (0.5, 0.75))
    assert judged(quick, slow, limits(iteration="10%")).outcome == "regressed"
    assert judged(quick, quick, limits(iteration="10%")).outcome == "passed"
    assert texts(judged(quick, quick, limits("10%"))) == [NO_TABLE]


def test_a_plain_benchmark_beside_cases_with_operations_has_no_table_to_miss():
    plain = builders.plain_summary("test_x").cases
    base = mm(LARGE)
    mixed = dataclasses.replace(base, cases=(*base.cases, *plain))
    assert judged(mixed, mixed, limits("10%")).outcome == "passed"


@pytest.mark.parametrize(
    ("base", "head", "change", "verdict"),
    [
        (41.4e-9, 42.6e-9, 0.029, "within 4.0 %"),  # 41 ns and 43 ns are 4.9 % apart
        (0.40e-9, 0.49e-9, 0.225, "regressed"),  # both are 0 in whole nanoseconds
        (0.49e-9, 0.40e-9, -0.184, "improved"),
        (1.4e-9, 1.6e-9, 0.143, "regressed"),
        (0.0, 0.4e-9, math.inf, "regressed"),
    ],
)
def test_times_of_a_few_nanoseconds_are_compared_with_their_fractions(base, head, change, verdict):
    quick, slow = (builders.plain_summary("test_x", seconds) for seconds in (base, head))
    [finding] = judged(quick, slow, limits(iteration="4%")).findings
    assert finding.measured.change == pytest.approx(change, abs=5e-4)
    assert finding.text == verdict


def test_the_median_of_base_runs_is_not_rounded():
    bases = [builders.plain_summary("test_x", seconds) for seconds in (0.40e-9, 0.46e-9)]
    comparison = compare(bases, builders.plain_summary("test_x", 0.49e-9), pool_commits=True)
    [finding] = judge(comparison, limits(iteration="20%")).findings
    assert (finding.measured.base_ns, finding.measured.change) == (
        pytest.approx(0.43),
        pytest.approx(0.1395, abs=1e-4),
    )
    assert finding.ruling.uncertainty == pytest.approx(0.06 / 0.43)


def test_runs_of_a_call_below_a_nanosecond_are_replicates():
    bases = [
        builders.plain_summary("test_x", (0.400 + 0.001 * (number % 3)) * 1e-9)
        for number in range(8)
    ]
    for seconds, text in ((0.401e-9, "within 4.0 %"), (0.42e-9, "regressed")):
        comparison = compare(bases, builders.plain_summary("test_x", seconds), pool_commits=True)
        [finding] = judge(comparison, limits(iteration="4%")).findings
        assert (finding.ruling.by_runs, finding.text) == (True, text)


def test_the_acceptance_that_is_advised_for_a_short_call_accepts_it():
    quick, slow = (builders.plain_summary("test_x", seconds) for seconds in (0.40e-9, 0.49e-9))
    before = judged(quick, slow, limits(iteration="4%"))
    [regression] = before.regressions
    text = acceptance_for(before, regression)
    assert text == "test_x:iteration:23%"
    criteria = Criteria(
        case_fail=Threshold("", 0.04), accept=(Acceptance.parse(text),), reason="meant"
    )
    assert judged(quick, slow, criteria).outcome == "passed"


# ---- One quantity --------------------------------------------------------------------------------


def measurement(base_runs, head_ns, limit=Threshold("", 0.1)):  # noqa: B008 (it is frozen)
    return Measurement(
        case=None,
        whole=None,
        name="x",
        kind="operation",
        members=(),
        base_runs=tuple(base_runs),
        head_runs=(head_ns,),
        spread_ns=0.0,
        limit=limit,
    )


@pytest.mark.parametrize(
    ("base_runs", "head", "expected"),
    [
        ((100, 201), 100, (150.5, -50.5, -50.5 / 150.5)),
        ((), 5, (0, 5, math.inf)),
        ((), 0, (0, 0, 0.0)),
        ((-3,), 5, (-3, 8, math.inf)),  # the profiler's cost may be more than what was measured
        ((-3,), -9, (-3, -6, 0.0)),
        ((10,), -5, (10, -15, -1.5)),
    ],
)
def test_a_change_is_a_share_of_the_median_base_run(base_runs, head, expected):
    measured = measurement(base_runs, head)
    assert (measured.base_ns, measured.change_ns, measured.change) == expected


@pytest.mark.parametrize(
    ("ruling", "accept_limit", "text", "fails"),
    [
        (Ruling("within", within=0.125), None, "within 12.5 %", False),
        (Ruling("regressed"), None, "regressed", True),
        (Ruling("regressed"), 0.3, "regressed, accepted", False),
        (Ruling("regressed"), 0.2, "regressed, accepted", False),  # exactly the limit
        (Ruling("regressed"), 0.1, "regressed", True),
        (Ruling("inconclusive", 0.25), None, "inconclusive", False),
        (
            Ruling("inconclusive", 0.25, by_runs=True),
            0.3,
            "inconclusive (minimum detectable change 25.0 %), accepted",
            False,
        ),
        (Ruling("suspect", 0.25, by_runs=True), None, "suspect", False),
    ],
)
def test_a_verdict_in_a_table_and_whether_it_fails(ruling, accept_limit, text, fails):
    finding = Finding(measurement((10,), 12), ruling, accept_limit)
    assert (finding.text, finding.fails) == (text, fails)


def test_a_regression_above_the_default_threshold_fails_nothing():
    assert not Finding(measurement((10,), 12, limit=None), Ruling("regressed")).fails


# ---- The table of verdicts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "is_clear", "uncertainty", "by_runs", "is_given", "is_decisive", "expected"),
    [
        # Above the threshold of 10 %.
        (0.11, True, 0.0, False, False, False, ("regressed", NOTHING)),
        (0.11, True, 0.5, True, True, True, ("regressed", NOTHING)),
        (0.11, False, 0.5, False, False, True, ("suspect", NOTHING)),
        (0.11, False, 0.5, True, False, True, ("inconclusive", NOTHING)),
        (0.11, False, 0.5, True, True, True, ("inconclusive", OUTCOME)),
        (0.11, False, 0.5, True, True, False, ("inconclusive", OUTCOME)),
        # Below minus 10 %.
        (-0.11, True, 0.5, True, True, True, ("improved", NOTHING)),
        (-0.11, False, 0.5, False, False, True, ("inconclusive", NOTHING)),
        (-0.11, False, 0.1, True, True, True, ("inconclusive", NOTHING)),
        (-0.11, False, 0.5, False, True, True, ("inconclusive", OUTCOME)),
        (-0.11, False, 0.5, False, True, False, ("inconclusive", ITSELF)),
        # Between, the thresholds themselves included.
        (0.1, True, 0.5, True, False, True, ("within", NOTHING)),
        (-0.1, True, 0.1, True, True, True, ("within", NOTHING)),
        (0.0, False, 0.11, True, True, True, ("inconclusive", OUTCOME)),
        (0.0, False, 0.11, False, True, False, ("within", ITSELF)),
    ],
)
def test_the_table_of_verdicts(
    change, is_clear, uncertainty, by_runs, is_given, is_decisive, expected
):
    noise = Noise(is_clear, uncertainty, by_runs)
    decided = decide(change, 0.1, noise, is_given=is_given, is_decisive=is_decisive)
    assert decided == expected


# What the cells of the table in docs/comparing.md stand for.
CHANGES = {"above the threshold": 0.11, "below minus the threshold": -0.11, "between": 0.0}
CLEAR = {"yes": [True], "no": [False], "any": [True, False]}
IS_GIVEN = {"given": [True], "any": [True, False]}  # of the other cells: default
BY_RUNS = {"default, fewer than 8 base runs": [False], "default, rule of runs": [True]}
UNCERTAINTY = {"yes": [0.1], "no": [0.11], "any": [0.1, 0.11]}  # ruled out
LEAVES_OPEN = {  # of a quantity that is decisive, and of another one
    "nothing": [NOTHING, NOTHING],
    "the outcome": [OUTCOME, OUTCOME],
    "the outcome (1)": [OUTCOME, ITSELF],
}


def rows_of_the_documentation():
    section = COMPARING.read_text(encoding="utf-8").partition("### How a verdict is made")[2]
    table = section.partition("\n### ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("cells", rows_of_the_documentation(), ids=" ".join)
def test_the_table_of_verdicts_in_the_documentation_is_that_of_the_code(cells):
    change, clear, threshold, ruled_out, word, leaves_open = cells
    for is_clear, uncertainty, by_runs, is_given in itertools.product(
        CLEAR[clear],
        UNCERTAINTY[ruled_out],
        BY_RUNS.get(threshold, [True, False]),
        IS_GIVEN.get(threshold, [False]),
    ):
        noise = Noise(is_clear, uncertainty, by_runs)
        (decisive_word, *of_decisive), (_, *of_small) = (
            decide(CHANGES[change], 0.1, noise, is_given=is_given, is_decisive=is_decisive)
            for is_decisive in (True, False)
        )
        assert (decisive_word, [*of_decisive, *of_small]) == (word, LEAVES_OPEN[leaves_open])


# ---- statistics ----------------------------------------------------------------------------------


def test_an_interval_that_is_too_wide_for_a_number_explains_every_change():
    noise = rule_of_runs(measurement([1, 2**62] * 4, 2**63), FALSE_ALARM / 10**6)
    assert not noise.is_clear
    assert noise.uncertainty > 1e6


def is_alarm(measured, risk):
    """Whether it is a regression without a threshold: only the runs' differences prevent it."""
    return measured.change > 0 and rule_of_runs(measured, risk).is_clear


@pytest.mark.parametrize("runs", [8, pytest.param(15, marks=pytest.mark.thorough)])
def test_false_alarms_of_a_report_are_as_rare_as_promised(runs):
    reports = 600
    quantities = 40
    times = np.random.default_rng(runs).lognormal(
        mean=14, sigma=0.06, size=(reports, quantities, runs + 1)
    )
    alarms = sum(
        any(is_alarm(measurement(base, head), FALSE_ALARM / quantities) for *base, head in report)
        for report in times.round().astype(int).tolist()
    )
    expected = 1 - (1 - FALSE_ALARM / quantities) ** quantities
    assert expected <= FALSE_ALARM
    low, high = scipy.stats.binom.interval(1 - 1e-6, reports, expected)
    assert low <= alarms <= high


def test_the_minimum_detectable_change_is_the_smallest_that_regresses():
    bases = eight(*STEADY)
    finding = named(judged(bases, bases[0], limits("1%")), MM)
    least = math.ceil(finding.measured.base_ns * (1 + finding.ruling.uncertainty))
    for head, text in ((least + 1, "regressed"), (least - 2, "inconclusive")):
        assert (
            named(judged(bases, builders.base_runs(1, head)[0], limits("1%")), MM).verdict == text
        )


# ---- properties ----------------------------------------------------------------------------------

TIMES = st.integers(min_value=400_000, max_value=4_000_000)
BASES = st.lists(TIMES, min_size=1, max_size=10)


def outcome_of(bases, head, *, scale=1, criteria=GATE):
    timing = builders.timing(median_ns=7_500_000 * scale, iqr_ns=300_000 * scale)
    summaries = [
        builders.summary(
            case(row("aten::mm", ns * scale), row("aten::t", 900 * scale), timing=timing)
        )
        for ns in (*bases, head)
    ]
    judgement = judge(compare(summaries[:-1], summaries[-1]), criteria)
    return judgement.outcome, verdicts(judgement)


@strategies.ANY_SPEED
@given(BASES, TIMES, st.randoms(use_true_random=False), st.sampled_from([GATE, Criteria()]))
def test_the_order_of_base_runs_does_not_matter(bases, head, random, criteria):
    shuffled = random.sample(bases, len(bases))
    assert outcome_of(bases, head, criteria=criteria) == outcome_of(
        shuffled, head, criteria=criteria
    )


@strategies.ANY_SPEED
@given(BASES, TIMES, st.sampled_from([2, 8, 64]), st.sampled_from([GATE, Criteria()]))
def test_a_clock_of_another_unit_leaves_the_verdicts(bases, head, scale, criteria):
    outcome, texts = outcome_of(bases, head, criteria=criteria)
    scaled_outcome, scaled_texts = outcome_of(bases, head, scale=scale, criteria=criteria)
    assert outcome == scaled_outcome
    # The words without their figures, which may be rounded the other way.
    assert [text.split()[0] for text in texts.values()] == [
        text.split()[0] for text in scaled_texts.values()
    ]


@strategies.ANY_SPEED
@given(BASES, TIMES, st.integers(1, 10_000_000))
def test_a_slower_head_never_gets_a_milder_verdict(bases, head, more):
    before, after = (outcome_of(bases, time)[1][MM].split()[0] for time in (head, head + more))
    if before == "regressed":
        assert after == "regressed"
    if before == "within":
        assert after != "improved"


@strategies.ANY_SPEED
@given(BASES, TIMES, st.sampled_from([5, 10, 80]))
def test_no_change_above_a_given_threshold_passes(bases, head, percent):
    judgement = judged([mm(ns) for ns in bases], mm(head), limits(f"{percent}%"))
    finding = named(judgement, MM)
    limit = percent / 100
    if judgement.outcome == "passed":
        assert finding.measured.change <= limit
        is_large = (
            finding.measured.base_ns >= LARGE_SHARE * finding.measured.case.operations.base_ns
        )
        assert finding.verdict == "improved" or not is_large or finding.ruling.uncertainty <= limit
    else:
        assert max(finding.measured.change, finding.ruling.uncertainty) > limit


@strategies.ANY_SPEED
@given(
    st.lists(st.lists(strategies.case_records(), max_size=2), max_size=3),
    st.lists(strategies.case_records(), max_size=2),
    st.lists(strategies.environments(), min_size=2, max_size=2),
    st.sampled_from(GROUPINGS),
    st.sampled_from(
        [
            Criteria(),
            limits("10%", "conv2:5%", iteration="5%", accept=("*:*:50%", "*:*mm*:5%"), reason="x"),
        ]
    ),
    st.booleans(),
    st.booleans(),
)
def test_any_runs_are_judged(
    bases, head, environments, by, criteria, across_versions, across_machines
):
    """Whatever files contain.

    There is a judgement, and it passes only where something was judged.
    """
    summaries = []
    for number, records in enumerate(bases):
        # Each base run has the new run's first case too, so that something is compared.
        same = [
            dataclasses.replace(record, test=head[0].test, params=head[0].params)
            for record in records[:1]
            if head
        ]
        cases = map(builders.with_timing, [*records, *same])
        summaries.append(builders.summary(*cases, environment=environments[number % 2]))
    new = (
        builders.summary(*map(builders.with_timing, head), environment=environments[0])
        if head
        else empty()
    )
    criteria = dataclasses.replace(criteria, by=by)
    across = {"across_versions": across_versions, "across_machines": across_machines}
    judgement = judge(compare(summaries, new, by=by, **across), criteria)
    words = {"regressed", "improved", "within", "suspect", "inconclusive", "incomparable"}
    assert {
        finding.verdict for case_judgement in judgement.cases for finding in case_judgement.findings
    } <= words
    assert judgement.outcome in {"none", "passed", "regressed", "inconclusive"}
    if judgement.outcome == "passed":
        assert judgement.cases
        assert not any(finding.fails or finding.is_noise for finding in judgement.findings)
    for first, second in itertools.combinations(judgement.cases, 2):
        assert first.case.head is not second.case.head


# ---- several rules together ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [7, 8])
def test_operations_that_took_nothing_or_are_gone_have_verdicts_by_either_rule(count):
    judgement = judged([mm(0)] * count, mm(LARGE), limits("10%"))
    assert (judgement.outcome, named(judgement, MM).verdict) == ("regressed", "regressed")
    bases = [
        run(row("aten::mm", LARGE), row("aten::conv", LARGE, module="conv2")) for _ in range(count)
    ]
    assert verdicts(judged(bases, mm(LARGE)))["aten::conv -> nothing, forward conv2"] == "improved"


def test_what_replaces_a_named_operation_is_judged_by_its_threshold():
    base = run(row("aten::addmm", LARGE))
    head = run(row("aten::_scaled_mm", 3 * LARGE))
    for texts_of_limits in (
        ("10%", "aten::addmm:5%"),
        ("aten::_scaled_mm:5%",),
        ("aten::_scaled_mm:5%", "aten::addmm:9%"),
    ):
        [finding] = judged(base, head, limits(*texts_of_limits)).regressions
        assert (finding.measured.name, finding.measured.threshold) == (
            "aten::addmm -> aten::_scaled_mm, forward fc1",
            0.05,
        )


def test_accepting_one_operation_does_not_excuse_those_pooled_with_it():
    base, head = (
        run(row("aten::mm", LARGE), row("aten::t", 100), row("aten::add", ns))
        for ns in (100, 5_000)
    )
    judgement = accepting("*:aten::t", "*:fc1", base=base, head=head)
    assert [finding.measured.name for finding in judgement.regressions] == ["other"]
    assert judgement.unused == ("*:aten::t:1000%", "*:fc1:1000%")


@pytest.mark.parametrize(
    "name",
    ["evaluate_function: AddmmBackward0", "autograd::engine::evaluate_function: AddmmBackward0"],
)
def test_an_operation_is_named_as_tables_show_it_or_as_torch_calls_it(name):
    engine = "autograd::engine::evaluate_function: AddmmBackward0"
    base, head = (run(row(engine, ns, phase="backward")) for ns in (LARGE, 2 * LARGE))
    judgement = judged(base, head, limits(f"{name}:5%"))
    assert (judgement.outcome, judgement.problems) == ("regressed", ())
    assert accepting(f"*:{name}", base=base, head=head).outcome == "passed"


def test_the_order_of_base_runs_does_not_decide_which_operations_are_judged():
    bases = [run(row("aten::mm", ns), **WALL) for ns in (15_000, 16_000, 21_000)]
    for order in itertools.permutations(bases):
        assert list(verdicts(judged(list(order), bases[0]))) == ["iteration", "other"]


def test_a_marked_case_of_the_base_that_is_missing_now_is_undecided():
    base = builders.summary(
        builders.case_record(), builders.case_record(batch_size=1, op_fail=("5%",))
    )
    judgement = judge(compare([base], builders.summary()), Criteria())
    assert judgement.asked
    assert judgement.outcome == "inconclusive"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"op_fail": ("5%", "")},
            "'' is not a threshold; give 10%, or 'aten::addmm:5%' for one operation or module",
        ),
        ({"case_fail": "mm:5%"}, "'mm:5%' is not a threshold for an iteration; give 10%"),
    ],
)
def test_an_unreadable_threshold_of_the_new_run_is_refused_with_its_file(changes, complaint):
    base = builders.summary()
    head = builders.summary(builders.case_record(**changes), source="0002_now.json")
    with pytest.raises(RecordError) as error:
        judge(compare([base], head), Criteria())
    where = f"0002_now.json: opgate of {head.cases[0].node_id}"
    assert str(error.value) == f"{where}: {complaint}; save the run again or leave the file out"
    assert judge(compare([head], base), Criteria()).cases  # thresholds of a base run are not used


def test_the_spread_of_elapsed_time_on_a_device_is_that_of_its_own_clock():
    table = builders.op_table(row("aten::mm", 5, self_device_ns=500), view="device", busy_ns=600)
    base, head = (
        builders.summary(
            builders.case_record(device="cuda", device_ns=(ns - 40, ns, ns + 40), tables=(table,))
        )
        for ns in (1_000, 1_000)
    )
    # Not the 300 us of the rounds.
    assert judged(base, head).cases[0].iteration.measured.spread_ns == pytest.approx(40 * 2**0.5)
