"""Whether a user accepts what a rule says of a quantity, by whichever rule it was made.

The rule of trials (``gate.decide.verdict.findings``) and those of saved runs (``compare.judge``)
have findings of their own, because they rest on other data: differences of two sides that were
measured together, or times of saved runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from mnistbench.judging.acceptance import Acceptance


class Acceptable(Protocol):
    """A quantity of a case with its verdict, as far as ``--accept`` has to know it."""

    @property
    def case_names(self) -> Collection[str]:
        """The names that ``--accept`` may call the case by."""

    @property
    def quantity_names(self) -> Collection[str]:
        """The names that ``--accept`` may call the quantity by."""

    @property
    def share_to_accept(self) -> float:
        """The change as the share that the limit of an ``--accept`` is compared with."""

    @property
    def may_be_accepted(self) -> bool:
        """Whether there is something to accept."""


def is_named_by(finding: Acceptable, acceptance: Acceptance) -> bool:
    """Whether an ``--accept`` names this quantity."""
    return acceptance.matches(finding.case_names, finding.quantity_names)


def acceptance_of(finding: Acceptable, acceptances: Iterable[Acceptance]) -> Acceptance | None:
    """Return the ``--accept`` with the largest limit that applies; None if none does."""
    return max(
        _matching(finding, acceptances), key=lambda acceptance: acceptance.limit, default=None
    )


def accept_limit(finding: Acceptable, acceptances: Iterable[Acceptance]) -> float | None:
    """Return the largest limit of an ``--accept`` that applies, as a share; None if none does."""
    acceptance = acceptance_of(finding, acceptances)
    return acceptance.limit if acceptance else None


def unused(acceptances: Sequence[Acceptance], findings: Iterable[Acceptable]) -> tuple[str, ...]:
    """Return the values of the option that apply to no finding."""
    used = {acceptance for finding in findings for acceptance in _matching(finding, acceptances)}
    return tuple(
        acceptance.text
        for acceptance in acceptances
        if acceptance not in used and not acceptance.is_standing
    )


def _matching(finding: Acceptable, acceptances: Iterable[Acceptance]) -> list[Acceptance]:
    if not finding.may_be_accepted:
        return []
    return [acceptance for acceptance in acceptances if is_named_by(finding, acceptance)]
