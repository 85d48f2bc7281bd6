"""What a rule says of one quantity of a case, and whether a user accepts it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.verdicts import INCONCLUSIVE, REGRESSED


@dataclass(frozen=True, kw_only=True)
class Finding(ABC):
    """A quantity of a case with its verdict.

    The rule of launches (``gate.verdict.findings``) and the rule of runs (``compare.judge``) each
    add what they measured, because they rest on other data: differences of two sides that were
    measured together, or times of saved runs.
    """

    verdict: str = INCONCLUSIVE  # one of judging.verdicts
    accepted: bool = False  # it is within the limit of an --accept
    accept_limit: float | None = None  # largest limit of a matching --accept, as a share

    @property
    @abstractmethod
    def case_names(self) -> Collection[str]:
        """The names that ``--accept`` may call the case by."""

    @property
    @abstractmethod
    def quantity_names(self) -> Collection[str]:
        """The names that ``--accept`` may call the quantity by."""

    @property
    @abstractmethod
    def share_to_accept(self) -> float:
        """The change as the share that the limit of an ``--accept`` is compared with."""

    @property
    def may_be_accepted(self) -> bool:
        """Whether an ``--accept`` applies."""
        return self.verdict == REGRESSED

    @property
    def fails(self) -> bool:
        """Whether it is a regression that nobody accepts."""
        return self.verdict == REGRESSED and not self.accepted

    @property
    def exceeded_limit(self) -> float | None:
        """The limit of ``--accept`` that the change is larger than, as a share; None if none."""
        return None if self.accepted else self.accept_limit

    @property
    def verdict_text(self) -> str:
        """The verdict, and that it is accepted."""
        return f"{self.verdict}{', accepted' if self.accepted else ''}"

    def is_named_by(self, acceptance: Acceptance) -> bool:
        """Whether an ``--accept`` names this quantity."""
        return acceptance.matches(self.case_names, self.quantity_names)

    def matching(self, acceptances: Iterable[Acceptance]) -> list[Acceptance]:
        """Return those that apply: they name the quantity, and there is something to accept."""
        if not self.may_be_accepted:
            return []
        return [acceptance for acceptance in acceptances if self.is_named_by(acceptance)]


#: A finding of one of the two rules.
AnyFinding = TypeVar("AnyFinding", bound=Finding)


def with_acceptance(finding: AnyFinding, acceptances: Iterable[Acceptance]) -> AnyFinding:
    """Return a finding with the largest limit that applies, and whether its change is within it."""
    limits = [acceptance.limit for acceptance in finding.matching(acceptances)]
    if not limits:
        return finding
    limit = max(limits)
    return replace(finding, accept_limit=limit, accepted=finding.share_to_accept <= limit)


def unused(acceptances: Sequence[Acceptance], findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the ``--accept`` values that apply to no finding."""
    used = {acceptance for finding in findings for acceptance in finding.matching(acceptances)}
    return tuple(acceptance.text for acceptance in acceptances if acceptance not in used)
