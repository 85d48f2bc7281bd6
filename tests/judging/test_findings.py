"""Whether a finding is accepted, by whichever rule it was made."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.findings import Finding, unused, with_acceptance
from mnistbench.judging.verdicts import INCONCLUSIVE, REGRESSED


@dataclass(frozen=True)
class SlowerProduct(Finding):
    """A matrix product that got slower by a share."""

    change: float
    case_names = ("step convnet",)
    quantity_names = ("aten::mm", "fc1")

    @property
    def share_to_accept(self):
        return self.change


SLOWER = SlowerProduct(0.2, verdict=REGRESSED)
UP_TO_10 = Acceptance("step convnet:aten::mm", 0.1)
UP_TO_30 = Acceptance("*:fc1", 0.3)
OTHER_OPERATION = Acceptance("*:aten::add", 0.9)


def test_the_largest_limit_that_applies_decides():
    accepted = with_acceptance(SLOWER, (UP_TO_10, UP_TO_30, OTHER_OPERATION))
    assert (accepted.accepted, accepted.accept_limit, accepted.fails) == (True, 0.3, False)
    assert accepted.exceeded_limit is None
    assert accepted.verdict_text == "regressed, accepted"


def test_a_change_above_the_limit_fails_and_names_it():
    exceeding = with_acceptance(SLOWER, (UP_TO_10,))
    assert (exceeding.accepted, exceeding.exceeded_limit, exceeding.fails) == (False, 0.1, True)
    assert exceeding.verdict_text == "regressed"


@pytest.mark.parametrize("change", [0.1, 0.3])
def test_a_change_of_exactly_the_limit_is_accepted(change):
    assert with_acceptance(replace(SLOWER, change=change), (UP_TO_30,)).accepted


def test_what_has_not_regressed_uses_no_acceptance():
    open_finding = replace(SLOWER, verdict=INCONCLUSIVE)
    assert with_acceptance(open_finding, (UP_TO_30,)) == open_finding
    assert unused((UP_TO_30,), [open_finding]) == ("*:fc1:30%",)


def test_an_acceptance_that_names_no_finding_is_unused():
    assert unused((UP_TO_10, OTHER_OPERATION), [SLOWER]) == ("*:aten::add:90%",)
