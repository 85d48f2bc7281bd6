"""The words of all verdicts, which docs/comparing.md explains, and why something was not judged."""

from __future__ import annotations

from typing import NamedTuple

#: Outcome of a report: no threshold was given, so nothing can fail.
NONE = "none"
#: Outcome of a report: nothing that was judged is slower than allowed.
PASSED = "passed"
#: Outcome of a report, and verdict: slower than the threshold.
REGRESSED = "regressed"
#: Outcome of a report, and verdict: neither shown nor ruled out.
INCONCLUSIVE = "inconclusive"
#: Verdict of a gate: it got slower; whether by less or by more than the limit is open. Kind of a
#: reason: the same, and the estimate is not below the limit.
SLOWER = "slower"
#: Verdict: faster by the threshold or more.
IMPROVED = "improved"
#: Verdict: the change is below the threshold.
WITHIN = "within"
#: Verdict of a gate: it changed by the threshold or more, but by less time than the floor.
BELOW_FLOOR = "below the floor"
#: Verdict: above the default threshold, but within the spread of the runs.
SUSPECT = "suspect"
#: Verdict: the first stage of a gate flagged it, and fresh trials did not confirm it. Kind of a
#: reason: it looks slower, and there were too few trials to confirm that.
UNCONFIRMED = "unconfirmed"
#: Verdict: an operation got slower by more than the time of its case shows.
CONTRADICTED = "contradicted"
#: Kind of a reason, and verdict: the times cannot be compared.
INCOMPARABLE = "incomparable"

#: All verdicts of a quantity in the order in which reports name them.
GRAVITY = (
    REGRESSED,
    SLOWER,
    SUSPECT,
    INCONCLUSIVE,
    CONTRADICTED,
    IMPROVED,
    BELOW_FLOOR,
    WITHIN,
    UNCONFIRMED,
    INCOMPARABLE,
)

#: Kind of a reason: one side does not have it.
MISSING = "missing"
#: Kind of a reason: the samples vary too much.
NOISE = "noise"
#: Kind of a reason: the budget allowed for too few trials.
BUDGET = "budget"
#: Kind of a reason: an operation and the time of its case disagree.
CONTRADICTION = "contradiction"
#: Kind of a reason: there are no usable times.
UNMEASURED = "unmeasured"
#: Kind of a reason: a crash or an interrupt.
BROKEN = "broken"


class Reason(NamedTuple):
    """Why a report is inconclusive: something was not judged."""

    kind: str
    text: str
    excused: bool = False  # by --allow-missing or --allow-incomparable

    @property
    def is_excusable(self) -> bool:
        """Whether ``--inconclusive warn`` lets a gate pass in spite of it."""
        return self.kind in (NOISE, BUDGET)
