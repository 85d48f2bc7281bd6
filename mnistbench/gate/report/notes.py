"""What a reader has to know of single cases, without an effect on the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from mnistbench.core import units
from mnistbench.gate.causes.texts import function_differences
from mnistbench.gate.report.selection import limited, notable_cases, said_once
from mnistbench.gate.report.texts import signed
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.kinds import MEAN
from mnistbench.judging.ratios import change_of
from mnistbench.judging.verdicts import UNCONFIRMED


def exact_differences(verdict: Verdict) -> list[str]:
    """Return the first differences of each case, those of cases with a finding before others.

    Of a profiled case also those of functions.
    """
    notable = notable_cases(verdict)
    differences = united_differences(verdict)
    ranked = sorted(differences.items(), key=lambda item: item[0] not in notable)
    return said_once(
        (
            (verdict.names[case], text)
            for case, texts in ranked
            for text in limited(texts, verdict, always=True)
        ),
        verdict,
    )


def united_differences(verdict: Verdict) -> dict[str, tuple[str, ...]]:
    """Return the exact differences of each case, those of its functions last."""
    differences_of_functions = function_differences(verdict)
    return {
        case: (*verdict.exact_differences.get(case, ()), *differences_of_functions.get(case, ()))
        for case in dict.fromkeys((*verdict.exact_differences, *differences_of_functions))
    }


def reach_lines(verdict: Verdict) -> Iterable[str]:
    """Yield why each measured case is affected, and which differences no case shows."""
    reach = verdict.reach
    names = verdict.names
    yield from said_once(
        ((names[case], reasons[0]) for case, reasons in reach.reasons.items()), verdict
    )
    yield from limited((f"{name}: run or used by no case" for name in reach.uncovered), verdict)
    yield from limited((f"{name}: {why}" for name, why in reach.not_followed.items()), verdict)
    yield from limited((f"{path}: changed, and not seen in use" for path in reach.unused), verdict)


def note_lines(verdict: Verdict) -> Iterable[str]:
    """Yield which tests are not judged, what differs beside the code, and the notes about cases."""
    header = verdict.header
    names = verdict.names
    most = verdict.options.top
    fresh = units.counted(verdict.shown.fresh, "fresh launch", "fresh launches")
    for what, tests in (
        ("only in the base", header.sides.only_base),
        ("only in the head", header.sides.only_head),
        ("other parameters in the head, so not compared", header.sides.changed),
        ("ignored by git, and copied from the working tree", header.generated),
    ):
        if tests:
            yield f"{what}: {units.counted_names(tests, most)}"
    yield from header.remarks
    base, head = (header.sides.left_out.get(side, {}) for side in (BASE, HEAD))
    left_out = {
        case: base[case]
        if base.get(case) == head.get(case)
        else "; ".join(
            f"{texts[case]} in the {side}"
            for side, texts in ((BASE, base), (HEAD, head))
            if case in texts
        )
        for case in (*base, *head)
    }
    types = units.counted_names(dict.fromkeys(header.sides.uncompared.values()), most, "types")
    sources = "other tests or data, from which a difference in time may come"
    not_finite = "NaN or infinity in the {}; times may depend on it"
    result, data = (
        f"so a difference in time may come from the {what}" for what in ("result", "data")
    )
    unconfirmed = [
        finding.quantity
        for finding in verdict.shown.findings
        if finding.verdict == UNCONFIRMED and finding.could_be_confirmed
    ]
    left_out |= verdict.unmeasurable
    yield from said_once(
        ((names[case], f"left out: {why}") for case, why in left_out.items()), verdict, "tests"
    )
    for case_notes in (
        ((names[case], f"{sources}: {', '.join(files)}") for case, files in header.sources.items()),
        ((names[case], note) for case, note in header.sides.notes.items()),
        ((names[case], what) for case, what in header.sides.outlives.items()),
        (
            (names[case], f"{types}, so the results of the sides are not compared")
            for case in header.sides.uncompared
        ),
        (
            (names[case], f"the base returns {base_result} and the head {head_result}, {result}")
            for case, (base_result, head_result) in verdict.returned.items()
        ),
        (
            (names[case], f"the sides compute different numbers, {data}")
            for case in verdict.different
            if case not in verdict.returned
        ),
        (
            (names[case], not_finite.format(" and in the ".join(sides)))
            for case, sides in verdict.not_finite.items()
        ),
        (
            (names[quantity.case], f"{quantity.title} was flagged, and {fresh} did not confirm it")
            for quantity in unconfirmed
        ),
    ):
        yield from said_once(case_notes, verdict)
    yield from (f"--accept {pattern!r} matched no regression" for pattern in verdict.unused)
    yield from _far_launches_of_cases(verdict)


#: A launch is far from the others if its distance from their median is larger than this many robust
#: standard deviations.
FAR = 4.0


@dataclass(frozen=True)
class FarLaunches:
    """The launches of a case that are far from the others."""

    case: str  # its name
    title: str  # of the clock
    far_logs: tuple[float, ...]  # log(head / base) of each, the farthest first
    median_log: float  # of all launches
    launches: int

    @property
    def distance(self) -> float:
        """Distance of the farthest one from the median, as a logarithm."""
        return abs(self.far_logs[0] - self.median_log)

    @property
    def text(self) -> str:
        """The sentence about the case."""
        shown = units.and_so_on([signed(change_of(log)) for log in self.far_logs])
        return (
            f"{self.case}: {len(self.far_logs)} of {self.launches} launches far from the others "
            f"by {self.title} ({shown}; median {signed(change_of(self.median_log))}), so single "
            "processes may be slower or faster"
        )


def _far_launches_of_cases(verdict: Verdict) -> list[str]:
    """Return the sentence about a case; of several the worst, and their number; with --all all."""
    cases = far_launches(verdict)
    if len(cases) < 2 or verdict.options.everything:
        return [case.text for case in cases]
    worst = max(cases, key=lambda case: case.distance)
    return [f"launches far from the others in {len(cases)} cases; the worst is {worst.text}"]


def far_launches(verdict: Verdict) -> list[FarLaunches]:
    """Return launches whose median differs from that of the others by the threshold or more.

    Single processes may be slow. Of several clocks of a case the first one that shows it counts.

    Source of the factor of the median absolute deviation: that of a normal distribution, 1 /
    0.6745.
    """
    cases: dict[str, FarLaunches] = {}
    for estimate in verdict.shown.cases:
        quantity = estimate.quantity
        middle = statistics.median(quantity.logs)
        deviation = statistics.median(abs(log - middle) for log in quantity.logs) / 0.6745
        limit = max(FAR * deviation, math.log1p(verdict.options.case))
        far_logs = [log for log in quantity.logs if abs(log - middle) > limit]
        if not far_logs or quantity.kind == MEAN or quantity.case in cases:
            continue
        far_logs.sort(key=lambda log: -abs(log - middle))
        cases[quantity.case] = FarLaunches(
            verdict.names[quantity.case],
            quantity.title,
            tuple(far_logs),
            middle,
            len(quantity.logs),
        )
    return list(cases.values())
