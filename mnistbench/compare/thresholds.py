"""Thresholds and limits as a user writes them -> numbers.

The same settings serve ``pytest`` (options and the pytest configuration) and ``mnistbench compare`` (options and
``[tool.mnistbench]`` in pyproject.toml), so that both judge by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mnistbench.compare.settings import MIN_COST, MIN_SHARE, SETTINGS
from mnistbench.core.errors import UsageError

#: Threshold for verdicts if the user gives none; nothing fails by it.
DEFAULT_SHARE = 0.10

#: Ways to sum operations: by name, by module, or by both.
GROUPINGS = ("op", "module", "op,module")

#: The largest limit of an ``--accept``, as a share; a larger one would accept anything.
LARGEST_LIMIT = 1e4

_LIMITED = re.compile(r"(?P<pattern>.*\S)\s*:\s*(?P<percent>\d+(?:\.\d+)?)\s*%", re.DOTALL)  # a name may have any character

_THRESHOLD = re.compile(r"(?:(?P<name>.*\S)\s*:)?\s*(?P<percent>\d+(?:\.\d+)?)\s*%")


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
        found = _THRESHOLD.fullmatch(text.strip())
        if not found or not 0 < float(found["percent"]) <= 1e6:  # more would let anything pass
            raise ValueError("not a threshold; give 10%, or 'aten::addmm:5%' for one operation or module")
        return cls(found["name"] or "", float(f"{found['percent']}e-2"))  # dividing by 100 would round a second time


@dataclass(frozen=True)
class Acceptance:
    """An intended regression, as ``--accept`` names it."""

    pattern: str  # CASE:OP; * matches anything
    limit: float | None  # how much slower it may get, as a share of the base: 0.05 is 5 %; None where no limit was given

    @classmethod
    def parse(cls, text: str) -> Acceptance:
        """Read ``CASE:OP:5%``, or ``CASE:OP`` without a limit.

        Raises:
            UsageError: with the value.
        """
        found = _LIMITED.fullmatch(text.strip())
        pattern, limit = (found["pattern"], float(f"{found['percent']}e-2")) if found else (text.strip(), None)
        if ":" not in pattern.strip(":"):
            raise UsageError(f"--accept: {text!r} needs a case, an operation and a limit: CASE:OP:5%")
        if limit is not None and not 0 < limit <= LARGEST_LIMIT:
            raise UsageError(f"--accept: {text!r} has a limit that allows nothing or everything; give CASE:OP:5%")
        return cls(pattern, limit)

    def matches(self, case_names: Iterable[str], quantity_names: Collection[str]) -> bool:
        """Whether the pattern matches one of these names of a case, with one of these names of a quantity of that case.

        ``*`` is the only wildcard: the ids of tests contain brackets.
        """
        literal = self.pattern.replace("[", "[[]").replace("?", "[?]")
        return any(fnmatchcase(f"{case}:{quantity}", literal) for case in case_names for quantity in quantity_names)

    @property
    def text(self) -> str:
        """The value as the user wrote it."""
        return self.pattern if self.limit is None else f"{self.pattern}:{100 * self.limit:.10g}%"


@dataclass(frozen=True)
class Criteria:
    """The settings by which a comparison is judged."""

    op_fail: tuple[Threshold, ...] = ()
    case_fail: Threshold | None = None
    min_share: float = MIN_SHARE  # of its case: smaller operations are pooled
    min_cost: float = MIN_COST  # times the profiler's overhead per call: shorter operations are pooled
    by: str = "op,module"  # one of GROUPINGS
    across_versions: bool = False  # compare operations of different torch versions
    across_machines: bool = False  # compare runs of different machines
    allow_missing: bool = False
    allow_incomparable: bool = False
    pool_commits: bool = False  # take runs of several commits as samples of one base
    noise_passes: bool = False  # a change within the differences of the base runs does not fail
    accept: tuple[Acceptance, ...] = ()  # intended regressions
    reason: str = ""

    def matters(self, ns: float, whole_ns: float, calls: float = 0, profiler_ns: int = 0) -> bool:
        """Return whether an operation is judged by itself; the others are judged together.

        A saved run is judged by the operations that matter in either run: one that grows from a small time is a regression.
        ``mnistbench gate`` gives the sums over both sides, and no overhead: its permutation test requires groups that stay
        the same when the sides are exchanged, and both of its sides have the overhead.

        Args:
            ns: self time of the operation.
            whole_ns: time of its case.
            calls: calls of the operation in that time.
            profiler_ns: overhead of the profiler per call.
        """
        return ns >= self.min_share * whole_ns and ns >= self.min_cost * profiler_ns * calls

    @property
    def of_comparison(self) -> dict[str, Any]:
        """The keywords of ``compare.compare``."""
        names = ("by", "across_versions", "across_machines", "pool_commits")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_texts(cls, texts: Mapping[str, Any], origin: Callable[[str], str]) -> Criteria:
        """Read settings by their names in ``settings.SETTINGS``.

        Args:
            texts: setting -> text, list of texts or flag.
            origin: setting -> how an error names it: ``--op-fail``, ``op_fail in pyproject.toml``.

        Raises:
            UsageError: with the setting and the value.
        """

        def parsed(name: str, text: str, parse: Callable[[str], Any]) -> Any:
            try:
                return parse(text)
            except ValueError as error:
                raise UsageError(f"{origin(name)}: {text!r} is {error}") from None

        reason = texts["reason"].strip()
        accept = acceptances(texts["accept"], reason)
        return cls(
            op_fail=tuple(parsed("op_fail", text, Threshold.parse) for text in texts["op_fail"]),
            case_fail=parsed("case_fail", texts["case_fail"], plain_threshold) if texts["case_fail"] else None,
            min_share=parsed("op_min_share", texts["op_min_share"], _share),
            min_cost=parsed("op_min_cost", texts["op_min_cost"], _times),
            by=parsed("by", texts["by"], _grouping),
            across_versions=texts["across_versions"],
            across_machines=texts["across_machines"],
            allow_missing=texts["allow_missing"],
            allow_incomparable=texts["allow_incomparable"],
            pool_commits=texts["pool_commits"],
            noise_passes=parsed("inconclusive", texts["inconclusive"], _passes),
            accept=accept,
            reason=reason,
        )


def criteria_of(given: Mapping[str, Any], configured: Mapping[str, Any], file: object) -> Criteria:
    """Return what a comparison is judged by; an option overrides the configuration file.

    Args:
        given: setting -> the option's value, None or False if it was not given.
        configured: setting -> its value in the configuration file.
        file: the configuration file, for errors.

    Raises:
        UsageError: names the option, or the key and its file, and the value.
    """
    texts, origins = {}, {}
    for setting in SETTINGS:
        value = given.get(setting.name)
        if value == "":  # an unset variable of a script must not disable a threshold
            raise UsageError(f"{setting.flag}: '' is no value; give one, or leave the option out")
        from_file = not value and setting.name in configured
        texts[setting.name] = value or configured.get(setting.name, setting.empty)
        origins[setting.name] = f"{setting.name} in {file}" if from_file else setting.flag
    return Criteria.from_texts(texts, origins.__getitem__)


def acceptances(texts: Sequence[str], reason: str) -> tuple[Acceptance, ...]:
    """Read all ``--accept`` values. They need a reason, and a reason needs at least one of them.

    Raises:
        UsageError: with the value.
    """
    if texts and not reason.strip():
        raise UsageError(f"--accept: {texts[0]!r} needs a reason for the report; add --reason TEXT")
    if reason and not texts:
        raise UsageError(f"--reason: {reason!r} is given without --accept; add --accept CASE:OP:LIMIT")
    return tuple(map(Acceptance.parse, texts))


def plain_threshold(text: str) -> Threshold:
    """Read a threshold for an iteration: ``10%``.

    Raises:
        ValueError: with the expected form.
    """
    try:
        threshold = Threshold.parse(text)
    except ValueError:
        threshold = None
    if threshold is None or threshold.name:
        raise ValueError("not a threshold for an iteration; give 10%")
    return threshold


def mark_thresholds(arguments: Iterable[Any], options: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Check ``@pytest.mark.opgate("5%", "aten::addmm:3%", case="5%")``; return the thresholds of operations and of the case.

    Raises:
        UsageError: with the value.
    """
    texts, case = tuple(map(str, arguments)), str(options.get("case", ""))
    shown = ", ".join([*map(repr, texts), *(f"{name}={value!r}" for name, value in options.items())])
    if any(name != "case" for name in options) or not (texts or case):
        raise UsageError(f'opgate({shown}): needs thresholds: @pytest.mark.opgate("10%", "aten::addmm:5%", case="5%")')
    try:
        for text in texts:
            Threshold.parse(text)
        if case:
            plain_threshold(case)
    except ValueError as error:
        raise UsageError(f"opgate({shown}): is {error}") from None
    return texts, case


def _share(text: str) -> float:
    try:
        share = 0.0 if re.fullmatch(r"0+(\.0*)?\s*%", text.strip()) else plain_threshold(text).share
    except ValueError:
        share = 2.0
    if share > 1:
        raise ValueError("not a share of a case; give 2%")
    return share


def _times(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text.strip()):
        raise ValueError("not a number of times; give 20")
    return float(text)


def _grouping(text: str) -> str:
    grouping = {"module,op": "op,module"}.get(text.replace(" ", ""), text.replace(" ", ""))
    if grouping not in GROUPINGS:
        raise ValueError(f"not known; choose {' or '.join(GROUPINGS)}")
    return grouping


def _passes(text: str) -> bool:
    if text not in ("fail", "ok"):
        raise ValueError("not known; choose fail or ok")
    return text == "ok"
