"""Whether a finding is accepted, by whichever rule it was made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.findings import accept_limit, unused


@dataclass(frozen=True)
class SlowerProduct:
    """A matrix product that got slower by a share."""

    may_be_accepted: bool = True
    share_to_accept: float = 0.2
    case_names: tuple[str, ...] = ("step convnet",)
    quantity_names: tuple[str, ...] = ("aten::mm", "fc1")


SLOWER = SlowerProduct()
UP_TO_10 = Acceptance("step convnet:aten::mm", 0.1)
UP_TO_30 = Acceptance("*:fc1", 0.3)
OTHER_OPERATION = Acceptance("*:aten::add", 0.9)


def test_the_largest_limit_that_applies_decides():
    assert accept_limit(SLOWER, (UP_TO_10, UP_TO_30, OTHER_OPERATION)) == 0.3
    assert accept_limit(SLOWER, (UP_TO_10,)) == 0.1


def test_what_has_not_regressed_uses_no_acceptance():
    open_finding = replace(SLOWER, may_be_accepted=False)
    assert accept_limit(open_finding, (UP_TO_30,)) is None
    assert unused((UP_TO_30,), [open_finding]) == ("*:fc1:30%",)


def test_an_acceptance_that_names_no_finding_is_unused():
    assert accept_limit(SLOWER, (OTHER_OPERATION,)) is None
    assert unused((UP_TO_10, OTHER_OPERATION), [SLOWER]) == ("*:aten::add:90%",)
