"""Samples -> Verdict, the content of a report.

Samples just measured and those of a file are treated alike.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mnistbench.core.compiled.compilation import CompilationDifference
from mnistbench.gate.decide.statistics import shards
from mnistbench.gate.decide.statistics.quantities import quantities_of_stages
from mnistbench.gate.decide.verdict.decision import Decision, decide, decision_as_shown, united
from mnistbench.gate.decide.verdict.exact_differences import (
    compilations_of_cases,
    differences_of_cases,
)
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.reasons import measurement_reasons
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.samples import raw_samples
from mnistbench.gate.samples.case_names import CaseNames, process_of_shard
from mnistbench.gate.samples.raw_samples import End, GateHeader, Recorded
from mnistbench.gate.words import ALL_CASES, BASE, HEAD
from mnistbench.judging.acceptance import Acceptance, check_cases
from mnistbench.judging.exact import TOLERANCE
from mnistbench.judging.findings import unused
from mnistbench.judging.kinds import ITERATION
from mnistbench.judging.verdicts import (
    BROKEN,
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
    Reason,
)


@dataclass(frozen=True)
class Verdict:
    """The decision and everything else in a report."""

    recorded: Recorded
    options: JudgeOptions
    decision: Decision  # with the changes that were tested
    # Cases are node ids, of a whole process ALL_CASES or that of its shard.
    exact_differences: Mapping[str, tuple[str, ...]]  # case -> exact differences
    # Case -> those of them that torch.compile made, the causes first.
    compilations: Mapping[str, tuple[CompilationDifference, ...]]
    # Cases in which the sides compute different numbers, or results of other types.
    different: tuple[str, ...]
    not_finite: Mapping[str, tuple[str, ...]]  # case -> sides that compute NaN or infinity
    unmeasurable: Mapping[str, str]  # case -> why it cannot be measured as it is
    unmeasured: tuple[str, ...]  # cases without a time in every trial
    unprofiled: tuple[str, ...]  # cases with operations in some trials, and none in others
    are_all_new: bool = False  # the base has none of the cases

    @property
    def header(self) -> GateHeader:
        """The first line of the samples."""
        return self.recorded.header

    @property
    def end(self) -> End:
        return self.recorded.end

    @property
    def reach(self) -> Reach:
        """Which cases run code that differs, by node id."""
        return self.header.reach

    @property
    def measured_nothing(self) -> bool:
        """Whether all cases run the same code on both sides, so that none was measured."""
        return _measured_nothing(self.header)

    @property
    def names(self) -> CaseNames:
        """The names of the cases in reports."""
        return self.header.names

    @property
    def returned(self) -> dict[str, tuple[str, str]]:
        """Case -> the types of the results of both sides, which differ."""
        return self.header.sides.returned

    @property
    def outlives(self) -> dict[str, str]:
        """Case -> what goes on after its call returns in the head, so that it is not timed."""
        cases = self.header.sides.head.cases
        return {case: cases[case].outlives for case in self.header.labels if cases[case].outlives}

    @functools.cached_property  # every part of a report asks for it
    def shown(self) -> Decision:
        """Return the decision with the changes that a reader sees."""
        return decision_as_shown(self.decision)

    @property
    def regressions(self) -> tuple[GateFinding, ...]:
        """Regressions that fail the gate."""
        return tuple(finding for finding in self.shown.findings if finding.fails)

    @property
    def accepted(self) -> tuple[GateFinding, ...]:
        """Regressions within the limit of their ``--accept``."""
        return tuple(finding for finding in self.shown.findings if finding.accepted)

    @property
    def unused(self) -> tuple[str, ...]:
        """The ``--accept`` values that match no regression."""
        return unused(self.options.accept, self.decision.findings)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why the gate is inconclusive; first what ``--inconclusive warn`` does not excuse."""
        of_measurement = measurement_reasons(
            self.recorded,
            self.options,
            are_all_new=self.are_all_new,
            unmeasurable=self.unmeasurable,
            unmeasured=self.unmeasured,
            unprofiled=self.unprofiled,
        )
        reasons = (*of_measurement, *self.decision.reasons)
        return tuple(sorted(reasons, key=lambda reason: reason.is_excusable))

    @property
    def outcome(self) -> str:
        """PASSED, REGRESSED or INCONCLUSIVE.

        What a gate that was broken off has confirmed is a finding, but not its outcome: its fresh
        trials are not judged at one of the numbers for which the rate of false alarms holds.
        """
        end = self.recorded.end
        is_complete = not end.broken_off or end.is_unsaved
        if self.decision.outcome == REGRESSED and self.regressions and is_complete:
            return REGRESSED
        return INCONCLUSIVE if self.reasons else PASSED

    @property
    def is_excusable(self) -> bool:
        """Whether ``--inconclusive warn`` applies: noise and the budget are the only reasons."""
        return all(reason.is_excusable for reason in self.reasons)

    @property
    def was_broken_off(self) -> bool:
        """Whether an error or the user has ended the gate, or a part of it."""
        return any(reason.kind == BROKEN for reason in self.reasons)


def conclude(recorded: Recorded, options: JudgeOptions) -> Verdict:
    """Judge the samples of a gate.

    Raises:
        UsageError: an ``--accept`` names several cases without a wildcard, or a threshold of a mark
            is wrong.
    """
    unmeasurable = recorded.unmeasurable
    are_all_new = recorded.are_all_new
    recorded = recorded.measurable()
    header = recorded.header
    options = options.with_marks(header.sides)
    check_accepted_cases(options.accept, header)
    parts = [
        shard
        for shard in recorded.shards
        if shards.is_judged(shard) and not _measured_nothing(shard.header)
    ]
    judged = [
        _judged(part, recorded, options, compares_nothing=are_all_new)
        for part in (parts if recorded.shards else [recorded])
    ]
    decisions = [part.decision for part in judged]
    for number, part in enumerate(parts):
        if part.end.broken_off and decisions[number].outcome == REGRESSED:
            decisions[number] = replace(decisions[number], outcome=INCONCLUSIVE)
    builds: dict[str, list[raw_samples.Build]] = {case: [] for case in header.labels}
    for trial in recorded.trials:
        for case, trial_builds in trial.cases.items():
            builds[case] += trial_builds
    first_stage = [trial for trial in recorded.trials if trial.stage == raw_samples.FIRST_STAGE]
    compilations = compilations_of_cases(first_stage)
    return Verdict(
        recorded=recorded,
        options=options,
        decision=united(decisions) if recorded.shards else decisions[0],
        exact_differences=differences_of_cases(header, first_stage, compilations),
        compilations=compilations,
        different=tuple(case for case in header.labels if _differ(case, builds[case], header)),
        not_finite={
            case: sides
            for case, case_builds in builds.items()
            if (sides := _not_finite_sides(case_builds))
        },
        unmeasurable=unmeasurable,
        unmeasured=tuple(case for part in judged for case in part.unmeasured),
        unprofiled=tuple(
            case for case in header.labels if _is_profiled_at_times(case, first_stage)
        ),
        are_all_new=are_all_new,
    )


def _measured_nothing(header: GateHeader) -> bool:
    # A file that was edited or put together may have samples although its reach is empty. They
    # count: a slowdown in them must not pass.
    return header.reach.is_empty and not header.labels


class _Judged(NamedTuple):
    """What a gate, or one of its shards, has decided."""

    decision: Decision
    unmeasured: tuple[str, ...]  # node ids of cases without a time in every trial


def _judged(
    part: Recorded, whole: Recorded, options: JudgeOptions, *, compares_nothing: bool
) -> _Judged:
    """Judge the samples of a gate, or of one of its shards.

    Args:
        part: the samples.
        whole: the samples of the gate, whose header has the names of all cases.
        options: of the command.
        compares_nothing: the base has none of the cases.
    """
    if compares_nothing or _measured_nothing(part.header):
        return _Judged(Decision(PASSED, (), (), (), (), (), trials=0, fresh=0), ())
    header = whole.header
    process = process_of_shard(part.header.shard) if whole.shards else ALL_CASES
    first, of_fresh = (
        [
            replace(quantity, case=process) if quantity.case == ALL_CASES else quantity
            for quantity in quantities
        ]
        for quantities in quantities_of_stages(part.trials)
    )
    measured = {quantity.case for quantity in first if quantity.kind == ITERATION}
    decision = decide(
        first,
        of_fresh,
        options,
        part.header.seed,
        options.accept,
        {**header.names.for_accept(header.labels), process: (process, ALL_CASES)},
        header.names,
        header.shard.of,
    )
    unmeasured = tuple(case for case in part.header.labels if first and case not in measured)
    return _Judged(decision, unmeasured)


def _differ(case: str, builds: Sequence[raw_samples.Build], header: GateHeader) -> bool:
    """Return whether the sides compute different numbers, or results of other types."""
    sides = header.sides
    if case in sides.returned:
        return True
    is_exact = sides.is_exact(case)
    return case not in sides.uncompared and any(
        _numbers_differ(build, is_exact=is_exact) for build in builds
    )


def _numbers_differ(build: raw_samples.Build, *, is_exact: bool) -> bool:
    base_bits, base_number = build[BASE].outcome
    head_bits, head_number = build[HEAD].outcome
    # One side had no time to read its result.
    if base_bits == head_bits or not base_bits or not head_bits:
        return False
    if is_exact or base_number is None or head_number is None:
        return True
    return abs(head_number - base_number) > TOLERANCE * max(abs(base_number), abs(head_number))


def _not_finite_sides(builds: Sequence[raw_samples.Build]) -> tuple[str, ...]:
    """Return the sides that compute NaN or infinity."""
    return tuple(
        side for side in (BASE, HEAD) if any(build[side].outcome[1] is None for build in builds)
    )


def _is_profiled_at_times(case: str, trials: Sequence[raw_samples.Trial]) -> bool:
    """Return whether some builds of a case have operations, and others none."""
    has_operations = {
        bool(side.operations)
        for trial in trials
        for build in trial.cases.get(case, ())
        for side in build.values()
    }
    return len(has_operations) > 1


def check_accepted_cases(accept: Sequence[Acceptance], header: GateHeader) -> None:
    """Check that no ``--accept`` without a wildcard names several cases.

    Raises:
        UsageError: names the cases.
    """
    names = header.names
    accept_names = names.for_accept(header.labels)
    check_cases(accept, {names[case]: of_case for case, of_case in accept_names.items()})
