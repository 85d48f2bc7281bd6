"""Intended slowdowns, and what else a user excuses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mnistbench.core.errors import UsageError
from mnistbench.core.options import one_of, option, switch

#: The largest limit of an ``--accept``, as a share; a larger one would accept anything.
LARGEST_LIMIT = 1e4

#: A name may have any character.
_LIMITED = re.compile(r"(?P<pattern>.*\S)\s*:\s*(?P<percent>\d+(?:\.\d+)?)\s*%", re.DOTALL)


@dataclass(frozen=True)
class Acceptance:
    """An intended regression, as ``--accept`` names it."""

    pattern: str  # CASE:OP; * matches anything
    limit: float  # how much slower it may get, as a share of the base: 0.05 is 5 %

    @classmethod
    def parse(cls, text: str) -> Acceptance:
        """Read ``CASE:OP:5%``.

        Raises:
            ValueError: with the expected form.
        """
        limited = _LIMITED.fullmatch(text.strip())
        pattern = limited["pattern"] if limited else text.strip()
        if ":" not in pattern.strip(":"):
            raise ValueError("needs a case, an operation and a limit: CASE:OP:5%")
        if not limited:
            raise ValueError(
                "has no limit; give the largest slowdown that is intended: "
                f"--accept {shlex.quote(f'{pattern}:5%')}"
            )
        limit = float(f"{limited['percent']}e-2")
        if not 0 < limit <= LARGEST_LIMIT:
            raise ValueError("has a limit that allows nothing or everything; give CASE:OP:5%")
        return cls(pattern, limit)

    def matches(self, case_names: Iterable[str], quantity_names: Collection[str]) -> bool:
        """Whether the pattern matches a name of a case and a name of one of its quantities.

        ``*`` is the only wildcard: the ids of tests contain brackets.
        """
        literal = self.pattern.replace("[", "[[]").replace("?", "[?]")
        return any(
            fnmatchcase(f"{case}:{quantity}", literal)
            for case in case_names
            for quantity in quantity_names
        )

    @property
    def text(self) -> str:
        """The value as the user wrote it."""
        return f"{self.pattern}:{100 * self.limit:.10g}%"


@dataclass(frozen=True, kw_only=True)
class Excuses:
    """What does not fail although it would.

    Never in a configuration file: each is a decision about one change.
    """

    allow_missing: bool = switch(
        "--allow-missing", "do not fail if a case or a table of the base is missing"
    )
    accept: tuple[Acceptance, ...] = option(
        "--accept",
        Acceptance.parse,
        None,
        (
            "accept an intended slowdown up to a limit: 'step convnet-b16-cpu:aten::mm:12%'; * "
            "matches any text"
        ),
        "CASE:OP:LIMIT",
        many=True,
    )
    reason: str = option(
        "--reason", str.strip, "", "reason for --accept, shown in the report", "TEXT"
    )
    inconclusive: str = option(
        "--inconclusive",
        one_of("fail", "ok"),
        "fail",
        (
            "fail: exit code 2, under pytest 8, if noise or the budget leaves the result open; "
            "ok: exit code 0"
        ),
        "WHAT",
    )

    def __post_init__(self) -> None:
        """Check that accepted changes have a reason."""
        if self.accept and not self.reason:
            raise UsageError(
                f"--accept: {self.accept[0].text!r} needs a reason for the report; add --reason "
                "TEXT"
            )
        if self.reason and not self.accept:
            raise UsageError(
                f"--reason: {self.reason!r} is given without --accept; add --accept CASE:OP:LIMIT"
            )
