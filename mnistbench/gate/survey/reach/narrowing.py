"""Narrow a gate to the cases that the differences affect, also those in which a survey hides it.

What an affected test has computed, loaded or started may be used by the tests after it, in which
then nothing that differs is seen to run. So the cases that are left out are surveyed again without
the affected ones, until none of them is affected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from mnistbench.core import units
from mnistbench.gate.listing import Listings, Reach
from mnistbench.gate.processes.messages import Surveys
from mnistbench.gate.samples.raw_samples import Trial
from mnistbench.gate.survey.reach.cases import affected, not_followed, outside, uncovered, unused
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.reach.dependencies import differing_dependencies
from mnistbench.gate.survey.reach.look import (
    is_confirmed,
    is_process_confirmed,
    is_process_repeated,
    is_repeated,
    look,
    look_ratio,
    process_look,
    trial_ratio,
)
from mnistbench.gate.words import BASE, HEAD

#: Most surveys of the cases that are left out, without the affected ones.
_MAX_SURVEYS = 4

_NEEDS_OTHERS = "cannot be run without the tests before it"
_TOO_MANY = "runs other code each time that other tests are left out"


class Narrowing:
    """Finds the affected cases of both sides."""

    def __init__(
        self,
        sides: Listings,
        code: ComparedCode,
        of_all: Sequence[str],
        survey_again: Callable[[Sequence[str]], Surveys],
        trial: Callable[[Sequence[str]], Trial | None],
        say: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            sides: of the first survey.
            code: of both sides, as this survey has seen it.
            of_all: what differs between the sides beside their trees, and counts for all cases.
            survey_again: surveys some cases alone, in new processes.
            trial: measures some cases for a short time, in this order; None if that fails.
            say: shows what is done.
        """
        self._sides = sides
        self._code = code
        self._of_all = of_all
        self._survey_again = survey_again
        self._trial = trial
        self._say = say
        self._reasons: dict[str, tuple[str, ...]] = {}
        # Case that is left out although a look differed -> the ratio of the last look.
        self._second_looks: dict[str, float] = {}

    def reach(self) -> Reach:
        """Return the affected cases, and what is known of the others."""
        sides = self._sides
        self._reasons = affected(self._code, sides, self._of_all)
        self._survey_alone(self._after_others())
        self._look()
        reasons = {case: self._reasons[case] for case in sides.common if case in self._reasons}
        same = {case: label for case, label in sides.labels.items() if case not in reasons}
        looks = {case: look_ratio(sides, case) for case in same} | self._second_looks
        return Reach(
            is_known=True,
            reasons=reasons,
            same=same,
            looks={case: ratio for case, ratio in looks.items() if ratio},
            uncovered=uncovered(self._code, sides),
            not_followed=not_followed(self._code, sides),
            outside=outside(self._code),
            unused=unused(self._code),
            dependencies=differing_dependencies(self._code.differing, self._code.trees),
        )

    def _left_out(self) -> list[str]:
        return [case for case in self._sides.common if case not in self._reasons]

    def _after_others(self) -> set[str]:
        """Return the cases that are left out and run after a test that is not, on either side.

        An affected test may leave what it has computed, loaded or started for those after it, and
        so may a test of one side, or one that cannot be measured.
        """
        left_out = {*self._left_out()}
        late = set[str]()
        for listing in (self._sides.base, self._sides.head):
            is_late = bool(listing.not_measured)
            for case in listing.cases:
                is_late |= case not in left_out
                if is_late:
                    late.add(case)
        return late & left_out

    def _survey_alone(self, late: Collection[str]) -> None:
        """Survey cases that are left out without those that are not, until none is affected.

        Then nothing that differs has run before any of them.
        """
        left_out = [case for case in self._left_out() if case in late]
        for _ in range(_MAX_SURVEYS):
            if not left_out:
                return
            self._say(f"surveying {units.counted(len(left_out), 'case')} without the affected ones")
            reasons = self._affected_among(left_out)
            if not reasons:
                return
            self._reasons.update(reasons)
            left_out = [case for case in left_out if case not in reasons]
        self._reasons.update(dict.fromkeys(left_out, (_TOO_MANY,)))

    def _affected_among(self, cases: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Survey some cases alone; return those that are affected."""
        surveys = self._survey_again(cases)
        code = replace(self._code, imports=surveys.imports, followed=surveys.followed)
        reasons = affected(code, surveys.listings, self._of_all)
        for case in cases:
            of_sides = [surveys.listings[side].cases.get(case) for side in (BASE, HEAD)]
            if None in of_sides:
                reasons[case] = (_NEEDS_OTHERS,)
        return reasons

    # ---- The quick look --------------------------------------------------------------------------

    def _look(self) -> None:
        """Add the cases whose time or memory differs, although they run the same code.

        If no other case shows that the processes themselves differ, it also adds the shortest one.
        """
        left_out = self._left_out()
        seen = {case: what for case in left_out if (what := look(self._sides, case))}
        process = process_look(self._sides) if left_out and not self._reasons else ""
        if not (seen or process):
            return
        shortest = min(left_out, key=lambda case: self._sides.head.cases[case].seconds)
        self._say(f"looking again at {units.counted(len(seen) or 1, 'case')}, in fresh processes")
        again = self._survey_again(self._not_same(seen) or [shortest]).listings
        repeated = {
            case: what for case, what in seen.items() if is_repeated(self._sides, again, case)
        }
        process = process if is_process_repeated(self._sides, again) else ""
        self._second_looks |= {case: look_ratio(again, case) for case in seen.keys() - repeated}
        if not (repeated or process):
            return
        measured = [
            case for case in self._sides.common if case in repeated or case in self._reasons
        ]
        trial = self._trial(measured or [shortest])
        self._reasons |= {
            case: (what,)
            for case, what in repeated.items()
            if trial is None or self._has_others or is_confirmed(trial, self._sides, case)
        }
        if trial is not None:
            refuted = repeated.keys() - self._reasons
            self._second_looks |= {case: trial_ratio(trial, case) for case in refuted}
        is_process = trial is None or is_process_confirmed(trial, self._sides)
        if process and not self._reasons and is_process:
            self._reasons[shortest] = (process,)

    @property
    def _has_others(self) -> bool:
        """Whether there are tests that a trial does not run, and that may leave something."""
        sides = self._sides
        return bool(sides.only_base or sides.only_head or sides.unmeasurable)

    def _not_same(self, seen: Collection[str]) -> list[str]:
        """Return these cases, and all tests that may leave something else for them."""
        sides = self._sides
        same = {*self._left_out()}.difference(seen)
        tests = dict.fromkeys((*sides.base.cases, *sides.head.cases, *sides.unmeasurable))
        return [test for test in tests if test not in same]
