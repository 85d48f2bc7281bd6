"""The options of a comparison: thresholds, what is compared, and what a user excuses.

``pytest``, ``mnistbench compare`` and ``mnistbench report`` have these options, so all of them
judge by the same rules. Every pytest session imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.core.options import by, one_of, option, share, switch

#: Threshold for verdicts if the user gives none; nothing fails by it.
DEFAULT_SHARE = 0.10

#: Share of its case from which on an operation is large. A pass has to rule out the limit of all
#: large operations, in saved runs as in the gate. There, new operations may add as much to their
#: case as an operation of this share may grow.
LARGE_SHARE = 0.10

#: Shortest operation that is judged by itself, as a multiple of the profiler's overhead on its
#: calls.
MIN_COST = 20

#: The largest limit of an ``--accept``, as a share; a larger one would accept anything.
LARGEST_LIMIT = 1e4

#: A name may have any character.
_LIMITED = re.compile(r"(?P<pattern>.*\S)\s*:\s*(?P<percent>\d+(?:\.\d+)?)\s*%", re.DOTALL)


# ---- Values --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threshold:
    """The largest slowdown that passes."""

    name: str  # an operation (aten::addmm) or a module (conv2); empty: every operation
    share: float  # of the base: 0.05 is 5 %

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Read ``10%``, ``aten::addmm:5%`` or ``conv2:5%``.

        Raises:
            ValueError: with the expected form.
        """
        name, colon, percent = text.strip().rpartition(":")  # names have colons, too
        try:
            if (colon and not name.strip()) or "\n" in name:
                # A name was meant and is missing: that is not every operation.
                raise ValueError  # noqa: TRY301
            return cls(name.strip(), share()(percent))
        except ValueError:
            raise ValueError(
                "is not a threshold; give 10%, or 'aten::addmm:5%' for one operation or module"
            ) from None

    @classmethod
    def of_case(cls, text: str) -> Threshold:
        """Read the threshold of an iteration: ``10%``.

        Raises:
            ValueError: with the expected form.
        """
        try:
            return cls("", share()(text))
        except ValueError:
            raise ValueError("is not a threshold for an iteration; give 10%") from None


@dataclass(frozen=True)
class Acceptance:
    """An intended regression, as ``--accept`` names it."""

    pattern: str  # CASE:OP; * matches anything
    # How much slower it may get, as a share of the base: 0.05 is 5 %; None where no limit was
    # given.
    limit: float | None

    @classmethod
    def parse(cls, text: str) -> Acceptance:
        """Read ``CASE:OP:5%``, or ``CASE:OP`` without a limit.

        Raises:
            ValueError: with the expected form.
        """
        found = _LIMITED.fullmatch(text.strip())
        pattern, limit = (
            (found["pattern"], float(f"{found['percent']}e-2")) if found else (text.strip(), None)
        )
        if ":" not in pattern.strip(":"):
            raise ValueError("needs a case, an operation and a limit: CASE:OP:5%")
        if limit is not None and not 0 < limit <= LARGEST_LIMIT:
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
        return self.pattern if self.limit is None else f"{self.pattern}:{100 * self.limit:.10g}%"


# ---- Options -------------------------------------------------------------------------------------


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


@dataclass(frozen=True, kw_only=True)
class Criteria(Excuses):
    """What a comparison is judged by."""

    op_fail: tuple[Threshold, ...] = option(
        "--op-fail",
        Threshold.parse,
        None,
        "largest slowdown of an operation that passes: 10%, 'aten::addmm:5%', 'conv2:5%'",
        "LIMIT",
        many=True,
        configurable=True,
    )
    case_fail: Threshold | None = option(
        "--case-fail",
        Threshold.of_case,
        None,
        "largest slowdown of a case that passes: 5%",
        "LIMIT",
        configurable=True,
    )
    min_share: float = option(
        "--op-min-share",
        share(1.0, zero=True),
        "2%",
        "group operations below this share of their case",
        "SHARE",
        configurable=True,
    )
    by: str = by(configurable=True)
    across_versions: bool = switch(
        "--across-versions", "also compare operations of different torch versions"
    )
    across_machines: bool = switch(
        "--across-machines",
        "also compare runs of different machines; every table names both machines",
    )
    pool_commits: bool = switch(
        "--pool-commits", "use base runs of several commits as samples of one base"
    )
    allow_incomparable: bool = switch(
        "--allow-incomparable",
        "do not fail if a case was measured on another machine or with other software",
    )

    def matters(self, ns: float, whole_ns: float, calls: float = 0, profiler_ns: int = 0) -> bool:
        """Return whether an operation is judged by itself; the others are judged together.

        A saved run is judged by the operations that matter in either run: one that grows from a
        small time is a regression. ``mnistbench gate`` gives the sums over both sides, and no
        overhead: its permutation test requires groups that stay the same when the sides are
        exchanged, and both of its sides have the overhead.

        Args:
            ns: self time of the operation.
            whole_ns: time of its case.
            calls: calls of the operation in that time.
            profiler_ns: overhead of the profiler per call.
        """
        return ns >= self.min_share * whole_ns and ns >= MIN_COST * profiler_ns * calls

    @property
    def of_comparison(self) -> dict[str, Any]:
        """The keywords of ``compare.compare``."""
        names = ("by", "across_versions", "across_machines", "pool_commits")
        return {name: getattr(self, name) for name in names}


def mark_thresholds(
    arguments: Iterable[Any], options: Mapping[str, Any]
) -> tuple[tuple[str, ...], str]:
    """Check ``@pytest.mark.opgate("5%", "aten::addmm:3%", case="5%")``.

    Return the thresholds of operations and of the case.
    """
    texts = tuple(map(str, arguments))
    case = str(options.get("case", ""))
    shown = ", ".join(
        [*map(repr, texts), *(f"{name}={value!r}" for name, value in options.items())]
    )
    if any(name != "case" for name in options) or not (texts or case):
        raise UsageError(
            f'opgate({shown}): needs thresholds: @pytest.mark.opgate("10%", "aten::addmm:5%", '
            'case="5%")'
        )
    try:
        for text in texts:
            Threshold.parse(text)
        if case:
            Threshold.of_case(case)
    except ValueError as error:
        raise UsageError(f"opgate({shown}): {error}") from None
    return texts, case
