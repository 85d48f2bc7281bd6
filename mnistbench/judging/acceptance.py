"""Intended slowdowns, and what else a user excuses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mnistbench.core.errors import UsageError
from mnistbench.core.options import one_of, option, pytest_flag, switch

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
                f"{shlex.quote(f'{pattern}:5%')}"
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

    def case_name(self, names: Iterable[str]) -> str:
        """Return the name of a case that the pattern begins with; empty if it has a wildcard there.

        Of several the longest: both the name of a test and an operation may contain a colon.
        """
        begins_with = (name for name in names if self.pattern.startswith(f"{name}:"))
        longest = max(begins_with, key=len, default="")
        return "" if "*" in longest else longest

    @property
    def text(self) -> str:
        """The value as the user wrote it."""
        return f"{self.pattern}:{100 * self.limit:.10g}%"


def cases_written(acceptance: Acceptance, names: Mapping[str, Collection[str]]) -> list[str]:
    """Return the cases that a pattern names without a wildcard.

    Args:
        acceptance: a value of ``--accept``.
        names: name of a case that no other has -> all its names.
    """
    written = acceptance.case_name({name for of_case in names.values() for name in of_case})
    if written in names:
        return [written]
    return [case for case, of_case in names.items() if written in of_case]


def check_cases(
    acceptances: Iterable[Acceptance],
    names: Mapping[str, Collection[str]],
    flag: str = "--accept",
) -> None:
    """Check that each pattern without a wildcard in its case names one case.

    Else the name of a test that is meant in one file would accept a slowdown in another.

    Args:
        acceptances: the values of ``--accept``.
        names: as for :func:`cases_written`.
        flag: the spelling of the option.

    Raises:
        UsageError: names the cases.
    """
    for acceptance in acceptances:
        cases = cases_written(acceptance, names)
        if len(cases) > 1:
            from mnistbench.core import units  # pytest loads this module in every run

            written = acceptance.case_name({name for case in cases for name in names[case]})
            quantity = acceptance.pattern.removeprefix(written)
            specific = Acceptance(f"{cases[0]}{quantity}", acceptance.limit).text
            raise UsageError(
                f"{flag}: {acceptance.text!r} names {len(cases)} cases: "
                f"{units.and_so_on(cases)}; name one of them, {flag} {shlex.quote(specific)}, "
                "or write * for what differs to accept several"
            )


@dataclass(frozen=True, kw_only=True)
class Waivers:
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
        "--reason",
        str.strip,
        "",
        "why the accepted slowdowns are intended, shown in the report",
        "TEXT",
    )
    inconclusive: str = option(
        "--inconclusive",
        one_of("fail", "ok"),
        "fail",
        (
            "what an inconclusive result does: fail (exit code 2; 8 under pytest), or ok (exit "
            "code 0 if only noise or the budget leaves it open)"
        ),
        "WHAT",
    )

    in_pytest: bool = False  # the options are spelled as in pytest

    def flag(self, name: str) -> str:
        """Return how the user spells an option, given as the commands spell it."""
        return pytest_flag(name) if self.in_pytest else name

    def __post_init__(self) -> None:
        """Check that accepted changes have a reason."""
        if self.accept and not self.reason:
            raise UsageError(
                f"{self.flag('--accept')}: {self.accept[0].text!r} needs a reason for the "
                f"report; add {self.flag('--reason')} TEXT"
            )
        if self.reason and not self.accept:
            raise UsageError(
                f"{self.flag('--reason')}: {self.reason!r} is given without "
                f"{self.flag('--accept')}; add {self.flag('--accept')} CASE:OP:LIMIT"
            )
