"""Intended slowdowns, and what else a user excuses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.core.options import one_of, option, pytest_flag, switch

#: The largest limit of an ``--accept``, as a share; a larger one would accept anything.
LARGEST_LIMIT = 1e4

#: A name may have any character.
_LIMITED = re.compile(r"(?P<pattern>.*\S)\s*:\s*(?P<percent>\d+(?:\.\d+)?)\s*%", re.DOTALL)

#: Keys of an acceptance in a configuration file.
_KEYS = ("case", "reason", "until")
_EXAMPLE = '{case = "CASE:OP:5%", reason = "TEXT", until = 2030-12-31}'


@dataclass(frozen=True)
class Acceptance:
    """An intended regression, as ``--accept`` names it."""

    pattern: str  # CASE:OP; * matches anything
    limit: float  # how much slower it may get, as a share of the base: 0.05 is 5 %
    reason: str = ""  # why it is intended, shown in reports
    until: date | None = None  # the last day on which it holds; None: always
    is_standing: bool = False  # in the project's file, so it need not match in each report

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

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Acceptance:
        """Read an entry of a configuration file: ``case``, ``reason`` and perhaps ``until``.

        Raises:
            ValueError: names the key that is missing, unknown or wrong.
        """
        unknown = sorted(table.keys() - _KEYS)
        if unknown:
            raise ValueError(f"has an unknown key {unknown[0]!r}; choose of {', '.join(_KEYS)}")
        for key in ("case", "reason"):
            text = table.get(key)
            if not isinstance(text, str) or not text.strip():
                needed = "a text" if key in table else "a key"
                raise ValueError(f"needs {needed} {key!r}, such as {_EXAMPLE}")
        until = table.get("until")
        # A date with a time is a date, too.
        if until is not None and (not isinstance(until, date) or isinstance(until, datetime)):
            raise ValueError(f"needs a day {'until'!r} without quotes, such as {_EXAMPLE}")
        try:
            parsed = cls.parse(table["case"])
        except ValueError as error:
            raise ValueError(f"has a key 'case' that {error}") from None
        return replace(parsed, reason=table["reason"].strip(), until=until, is_standing=True)

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
            where = "accept in pyproject.toml" if acceptance.is_standing else flag
            one = repr(specific) if acceptance.is_standing else f"{flag} {shlex.quote(specific)}"
            raise UsageError(
                f"{where}: {acceptance.text!r} names {len(cases)} cases: "
                f"{units.and_so_on(cases)}; name one of them, {one}, or write * for what differs "
                "to accept several"
            )


#: What an inconclusive result does: exit code 2, or 0 if only noise or the budget leaves it open.
FAIL = "fail"
WARN = "warn"


def inconclusive(*, configurable: bool = False) -> Any:
    """Declare what an inconclusive result does."""
    return option(
        "--inconclusive",
        one_of(FAIL, WARN),
        FAIL,
        (
            "what an inconclusive result does: fail (exit code 2; 8 under pytest), or warn (exit "
            "code 0 and a sentence, if only noise or the budget leaves it open)"
        ),
        "WHAT",
        configurable=configurable,
    )


def accept(*, configurable: bool = False) -> Any:
    """Declare the intended slowdowns."""
    return option(
        "--accept",
        Acceptance.parse,
        None,
        (
            "accept an intended slowdown up to a limit: 'step convnet-b16-cpu:aten::mm:12%'; * "
            "matches any text"
        ),
        "CASE:OP:LIMIT",
        many=True,
        configurable=configurable,
        table_kind=Acceptance.from_table,
    )


@dataclass(frozen=True, kw_only=True)
class Waivers:
    """What does not fail although it would."""

    allow_missing: bool = switch(
        "--allow-missing", "do not fail if a case or a table of the base is missing"
    )
    accept: tuple[Acceptance, ...] = accept()
    reason: str = option(
        "--reason",
        str.strip,
        "",
        "why the accepted slowdowns are intended, shown in the report",
        "TEXT",
    )
    inconclusive: str = inconclusive()

    in_pytest: bool = False  # the options are spelled as in pytest

    def flag(self, name: str) -> str:
        """Return how the user spells an option, given as the commands spell it."""
        return pytest_flag(name) if self.in_pytest else name

    def __post_init__(self) -> None:
        """Check that accepted changes have a reason, and give them that of the command line."""
        if self.reason and all(acceptance.is_standing for acceptance in self.accept):
            raise UsageError(
                f"{self.flag('--reason')}: {self.reason!r} is given without "
                f"{self.flag('--accept')}; add {self.flag('--accept')} CASE:OP:LIMIT"
            )
        accepted = tuple(
            replace(acceptance, reason=acceptance.reason or self.reason)
            for acceptance in self.accept
        )
        for acceptance in accepted:
            if not acceptance.reason:
                raise UsageError(
                    f"{self.flag('--accept')}: {acceptance.text!r} needs a reason for the "
                    f"report; add {self.flag('--reason')} TEXT"
                )
        object.__setattr__(self, "accept", accepted)
