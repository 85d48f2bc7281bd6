"""The options of a comparison: thresholds, and what is compared.

``pytest`` and ``mnistbench compare`` have these options, and ``mnistbench report`` reads them from
``[tool.mnistbench]``, so all of them judge by the same rules. Every pytest session imports this
module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.core.options import by, option, share, switch
from mnistbench.judging.acceptance import Waivers
from mnistbench.judging.grouping import MIN_SHARE

#: Threshold for verdicts if the user gives none; nothing fails by it.
DEFAULT_SHARE = 0.10

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


# ---- Options -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Criteria(Waivers):
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
        f"{100 * MIN_SHARE:g}%",
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

    @property
    def of_comparison(self) -> dict[str, Any]:
        """The keywords of ``diff.compare``."""
        names = ("by", "across_versions", "across_machines", "pool_commits")
        return {name: getattr(self, name) for name in names}


def mark_thresholds(
    arguments: Iterable[Any], options: Mapping[str, Any]
) -> tuple[tuple[str, ...], str]:
    """Check a mark; return the thresholds of its operations and that of its case.

    For example ``@pytest.mark.opgate("5%", "aten::addmm:3%", case="5%")``.
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


def thresholds_of(item: Any) -> tuple[tuple[str, ...], str]:
    """Return the thresholds of a test's closest ``opgate`` mark.

    The first ones are for operations, the second one is for the whole iteration.
    """
    mark = item.get_closest_marker("opgate")
    return mark_thresholds(mark.args, mark.kwargs) if mark else ((), "")
