"""What one long launch shows: a slower mean, growth, rare slow iterations.

It leaves a gate inconclusive, never regressed.
"""

import dataclasses

import pytest
from gate_builders import (
    CASE,
    LABEL,
    Measured,
    build,
    launch,
    recorded,
    rendered,
    series,
    side,
    soaked,
    write,
)

from mnistbench.compare.criteria import Acceptance
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.statistics.decision import INCONCLUSIVE, PASSED, REGRESSED
from mnistbench.gate.statistics.raw_samples import SOAK, Launch, load
from mnistbench.gate.statistics.result import conclude
from mnistbench.gate.statistics.soak import soaks
from mnistbench.gate.words import PARTS

SLOWER = "mean wall time in the soak"
GROWS = "wall time grows during the"


def concluded(*soak, measured=None, **options):
    stages = [*series(measured, seed=3), *(series(measured, stage=2, seed=4) if measured else [])]
    return conclude(recorded([*stages, *soak]), JudgeOptions(**options))


def said(verdict):
    """The subject of each reason."""
    return [
        reason.text.removeprefix(f"{LABEL}: ")[:26].rstrip()
        for reason in verdict.reasons
        if reason.kind == "soak"
    ]


def test_the_same_code_passes_with_a_line_that_says_what_was_seen():
    verdict = concluded(soaked())
    assert (verdict.outcome, verdict.reasons) == (PASSED, ())
    [line] = [
        line
        for line in rendered(verdict, "text").splitlines()
        if line.startswith(f"{LABEL}: 4,000 iterations on each")
    ]
    assert line == (
        f"{LABEL}: 4,000 iterations on each side, mean +0.1 % (-0.2 % to +0.4 %), 5.00 ms -> 5.00 "
        "ms; from the first tenth to the last +49.6 % in the base, +49.4 % in the head; mean of "
        "the slowest 5.50 ms -> 5.50 ms"
    )


@pytest.mark.parametrize(
    ("soak", "outcome", "reasons"),
    [
        # Less than five times the threshold: the process may be slow by itself.
        ({"factor": 1.08}, PASSED, []),
        ({"factor": 1.13}, INCONCLUSIVE, [SLOWER]),
        ({"factor": 1.13, "spread": 0.1}, PASSED, []),
        ({"factor": 0.7}, PASSED, []),
        ({"rare": 2}, INCONCLUSIVE, [SLOWER]),
        ({"grows": (1.0, 1.08)}, INCONCLUSIVE, [GROWS]),
        ({"grows": (1.0, 1.01)}, PASSED, []),
        ({"grows": (1.08, 1.08)}, PASSED, []),  # the machine got slower, or both have the leak
        ({"grows": (1.08, 1.0)}, PASSED, []),
        ({"grows": (1.0, 1.08), "spread": 0.1}, PASSED, []),
        ({"grows": (1.0, 2.0)}, INCONCLUSIVE, [SLOWER, GROWS]),
    ],
)
def test_what_is_slower_or_grows_by_more_than_its_interval_is_inconclusive(soak, outcome, reasons):
    verdict = concluded(soaked(**soak))
    assert verdict.outcome == outcome
    assert said(verdict) == reasons
    assert verdict.is_excusable == (not reasons)


def test_the_means_of_both_sides_give_the_change():
    parts = [*soaked(1.13).cases[CASE][:5], *soaked(0.4).cases[CASE][5:]]
    [found] = soaks([Launch(SOAK, {CASE: parts}, 60.0)])
    base_ns, head_ns = found.means_ns
    assert head_ns == pytest.approx(base_ns * (1 + found.change))


def test_reasons_say_what_to_do():
    first, second = (reason.text for reason in concluded(soaked(1.3, grows=(1.0, 1.5))).reasons)
    advice = (
        "one launch cannot confirm it; run the gate again with the same --soak, and profile the "
        "head if it comes again"
    )
    assert first == f"{LABEL}: mean wall time in the soak +61.3 % (+46.3 % to +77.9 %); {advice}"
    assert second == (
        f"{LABEL}: wall time grows during the soak, +124.1 % in the head and +49.6 % in the base; "
        f"{advice}"
    )


def test_the_threshold_is_that_of_the_case():
    assert concluded(soaked(1.13), case=0.03).outcome == PASSED
    assert concluded(soaked(grows=(1.0, 1.08)), case=0.1).outcome == PASSED


def test_a_slowdown_that_is_accepted_is_not_judged_again_but_its_growth_is():
    accept = {"accept": (Acceptance.parse("*:*:40%"),), "reason": "it is exact now"}
    slower = Measured(factor=1.3)
    assert concluded(soaked(1.3), measured=slower).outcome == REGRESSED
    assert concluded(soaked(1.3), measured=slower, **accept).outcome == PASSED
    assert (
        concluded(soaked(1.3, grows=(1.0, 1.5)), measured=slower, **accept).outcome == INCONCLUSIVE
    )


def test_the_stages_do_not_see_the_soak():
    slower = Measured(factor=1.3)
    found = concluded(soaked(2.0), measured=slower)
    alone = concluded(measured=slower)
    assert found.decision == alone.decision


def test_a_file_gives_the_same_verdict(tmp_path):
    launches = [*series(seed=3), soaked(1.2, grows=(1.0, 1.3), rare=1)]
    read = load(write(tmp_path / "raw.jsonl.gz", launches))
    [soak] = soaks(launches)
    [again] = soaks(read.launches)
    assert soak == again
    assert soak.slowest_ns[1] > 5 * soak.slowest_ns[0]


@pytest.mark.parametrize("parts", [PARTS - 1, PARTS])
def test_a_soak_without_usable_times_shows_nothing(parts):
    broken = [
        build(side(), side(0 if part == 5 and parts == PARTS else 4_000_000))
        for part in range(parts)
    ]
    verdict = concluded(dataclasses.replace(launch(*broken), stage=SOAK))
    assert (verdict.soaks, verdict.outcome) == ((), PASSED)
    assert list(soaks([Launch(SOAK, {CASE: [build()] * parts}, 1.0)])) != [] or parts < PARTS
