"""Names that other features import until they use ``criteria``."""

from __future__ import annotations

from collections.abc import Sequence

from mnistbench.compare.criteria import Acceptance, Criteria, Threshold, case_threshold
from mnistbench.core.errors import UsageError

__all__ = ["Acceptance", "Criteria", "Threshold", "acceptances", "plain_threshold"]

plain_threshold = case_threshold


def acceptances(texts: Sequence[str], reason: str) -> tuple[Acceptance, ...]:
    """Read all ``--accept`` values. They need a reason, and a reason needs at least one of them.

    Raises:
        UsageError: with the value.
    """
    if texts and not reason.strip():
        raise UsageError(f"--accept: {texts[0]!r} needs a reason for the report; add --reason TEXT")
    if reason and not texts:
        raise UsageError(f"--reason: {reason!r} is given without --accept; add --accept CASE:OP:LIMIT")
    found = []
    for text in texts:
        try:
            found.append(Acceptance.parse(text))
        except ValueError as error:
            raise UsageError(f"--accept: {text!r} {error}") from None
    return tuple(found)
