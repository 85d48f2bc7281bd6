"""All options of the commands that run or judge gates, each declared once.

The classes are a line, each with what its commands need beside those before: the thresholds of a
verdict, what ``judge`` shows, what ``bisect`` runs, what ``gate`` compares. ``SideOptions`` are
also those of ``reproduce``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, Self

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mnistbench.compare.criteria import Threshold
from mnistbench.core import options, units
from mnistbench.core.errors import UsageError
from mnistbench.core.machine import usable_cpus
from mnistbench.core.operation import OpKey, is_named
from mnistbench.core.options import (
    ToolTable,
    after_dashes,
    one_of,
    option,
    path,
    path_setting,
    seconds,
    share,
    switch,
    whole,
)
from mnistbench.gate.environments.packages import requirement
from mnistbench.gate.environments.python import checked
from mnistbench.gate.listing import ListedCase, Listings
from mnistbench.gate.samples.raw_samples import Shard
from mnistbench.gate.words import BASE, HEAD, THREADS
from mnistbench.judging.acceptance import Acceptance, Waivers, accept, inconclusive
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ADDED, MEAN, MEMORY, OTHER

#: Trials of the first stage (docs/evidence/gate_power.py).
TRIALS = 10

#: Fewest trials of the first stage that can be judged: their smallest p-value is 1 / 2^8.
MIN_TRIALS = 8

#: Most shards: with more, no number of fresh trials could confirm a slowdown after
#: MIN_TRIALS.
MAX_SHARDS = 256

#: Smallest threshold of cases, as a share: three times the largest difference that remains between
#: trials of the same code whose sides have the roles that they were given
#: (docs/gate-statistics.md).
MIN_THRESHOLD = 0.001

#: Smallest threshold of cases, as a share, for which trials become longer; gates with a smaller
#: one make more trials.
FULL_CASE = 0.01

#: Threshold of means, as a multiple of the threshold of medians. On a busy machine means spread up
#: to five times as much as medians, because every disturbed iteration counts.
MEAN_FACTOR = 5

#: Smallest change of peak memory that matters, as a share; smaller ones depend on the order of
#: deallocations.
MEMORY_SHARE = 0.10


#: Value of ``--tests``: each side runs its own benchmarks.
OWN_TESTS = "own"


# ---- Kinds of options ----------------------------------------------------------------------------


def shard(text: str) -> Shard:
    """Return a part of a gate: ``3/8``."""
    numbers = re.fullmatch(r"0*([1-9]\d{0,5})/0*([1-9]\d{0,5})", text.strip(), re.ASCII)
    if not numbers or not int(numbers[1]) <= int(numbers[2]) <= MAX_SHARDS:
        raise ValueError(f"is not a shard; give K/N with K <= N <= {MAX_SHARDS}, such as 3/8")
    return Shard(int(numbers[1]), int(numbers[2]))


def threshold_of_cases(text: str) -> float:
    """Return a share that is not too small to be judged."""
    return _large_enough(share()(text))


def _large_enough(threshold: float) -> float:
    """Return a threshold of cases, as a share.

    Raises:
        ValueError: it is smaller than the difference that the same code may show.
    """
    if threshold < MIN_THRESHOLD:
        least = f"{100 * MIN_THRESHOLD:g}%"
        raise ValueError(
            f"is below {least}, three times the difference that the same code may show; give "
            f"{least} or more"
        )
    return threshold


_UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def short_time(text: str) -> float:
    """Return a time in nanoseconds: ``1us``, ``500ns``, ``2.5ms``, ``0``."""
    time = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ns|us|ms|s)", text.strip(), re.ASCII)
    if text.strip() == "0":
        return 0.0
    if not time:
        raise ValueError("is not a time with a unit; give 1us, 500ns, 2ms or 0")
    return float(time[1]) * _UNITS_NS[time[2]]


def path_of_cases(text: str) -> str:
    """Return a file, a folder or a node id."""
    if text.startswith("-"):
        raise ValueError("is an option of pytest; name files, folders or tests")
    return text


def python(text: str) -> str:
    """Return the absolute path of an interpreter that can run a side."""
    return checked(text).path


def variable(text: str) -> tuple[str, str]:
    """Return the name and the value of an environment variable."""
    name, equals, value = text.partition("=")
    if not (name and equals) or "\0" in text:
        raise ValueError("is not a variable with a value; give NAME=VALUE")
    if name == "MKL_NUM_THREADS":
        raise ValueError(f"has no effect, because cases set their threads; give {THREADS}={value}")
    if name == THREADS and not re.fullmatch(r"[1-9]\d{0,5}", value, re.ASCII):
        raise ValueError("is not a number of threads; give a whole number, at least 1")
    if name == THREADS and int(value) > usable_cpus():
        raise ValueError(
            f"is more than the number of cores, {usable_cpus()}; give a smaller number"
        )
    return name, value


# ---- What is judged and shown --------------------------------------------------------------------


class JudgedQuantity(Protocol):
    """What a threshold depends on."""

    @property
    def case(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def members(self) -> Sequence[OpKey]: ...
    @property
    def is_case(self) -> bool: ...
    @property
    def is_once(self) -> bool: ...
    @property
    def reference_ns(self) -> float: ...


@dataclass(frozen=True)
class MarkThresholds:
    """The smallest changes of one case that matter, by its test's mark ``opgate``."""

    case: float | None  # None: that of the gate
    operations: tuple[Threshold, ...]

    @classmethod
    def of(cls, listed: ListedCase) -> MarkThresholds:
        """Return those of a case that a survey found.

        Raises:
            ValueError: a text is no threshold, with the expected form.
        """
        case = Threshold.of_case(listed.case_fail).share if listed.case_fail else None
        if case is not None:
            try:
                _large_enough(case)
            except ValueError as error:
                raise ValueError(f"{listed.case_fail} {error}") from None
        return cls(case, tuple(map(Threshold.parse, listed.op_fail)))

    def of_operation(self, quantity: JudgedQuantity) -> float | None:
        """Return the threshold of an operation: one that names it, else that of all operations."""
        named = [
            threshold.share
            for threshold in self.operations
            if threshold.name
            and quantity.kind != OTHER
            and any(is_named(key, threshold.name) for key in quantity.members)
        ]
        unnamed = [threshold.share for threshold in self.operations if not threshold.name]
        return min(named, default=min(unnamed, default=None))


@dataclass(frozen=True)
class Thresholds:
    """The smallest changes that matter: as shares, and as a time that they have to reach, too."""

    case: float = option(
        "--threshold",
        threshold_of_cases,
        "2%",
        "smallest slowdown of a case that matters",
        "SHARE",
        configurable=True,
    )
    operation: float = option(
        "--op-threshold", share(), "5%", "smallest slowdown of an operation that matters", "SHARE"
    )
    once: float = option(
        "--once-threshold",
        share(),
        "20%",
        "smallest slowdown of one-time costs that matters: imports, fixtures, first calls",
        "SHARE",
    )

    floor_ns: float = option(
        "--floor",
        short_time,
        "0",
        "smallest slowdown of a call that matters, as a time: 1us; smaller ones never fail",
        "TIME",
        configurable=True,
    )
    # Node id of a case whose test has thresholds of its own -> these.
    of_marks: Mapping[str, MarkThresholds] = field(default_factory=dict)

    @property
    def is_below_full(self) -> bool:
        """Whether the threshold of cases is below FULL_CASE."""
        return self.case < FULL_CASE

    def of(self, quantity: JudgedQuantity) -> float:
        """Return the smallest change of this quantity that matters.

        That of ADDED is a share of the case.
        """
        return max(self._share_of(quantity), self._floor_of(quantity))

    def pass_limit(self, quantity: JudgedQuantity) -> float:
        """Return the slowdown of this quantity that a pass has to rule out."""
        if quantity.kind == MEAN:
            return max(MEAN_FACTOR * self._of_case(quantity), self._floor_of(quantity))
        return self.of(quantity)

    def is_by_floor(self, quantity: JudgedQuantity) -> bool:
        """Whether the floor is what limits this quantity, not the share."""
        return self._floor_of(quantity) > self._share_of(quantity)

    def limit_text(self, quantity: JudgedQuantity) -> str:
        """Return the smallest change of this quantity that matters, as texts show it."""
        if self.is_by_floor(quantity):
            return units.duration(self.floor_ns)
        return units.percent(self.of(quantity))

    def _share_of(self, quantity: JudgedQuantity) -> float:
        if quantity.is_case:
            return self._of_case(quantity)
        if quantity.is_once:
            return MEMORY_SHARE if quantity.kind == MEMORY else self.once
        operation = self._of_operation(quantity)
        return operation * LARGE_SHARE if quantity.kind == ADDED else operation

    def _floor_of(self, quantity: JudgedQuantity) -> float:
        """Return the floor as a share; 0 for what occurs once in a process."""
        if not self.floor_ns or quantity.is_once:
            return 0.0
        return self.floor_ns / quantity.reference_ns if quantity.reference_ns else math.inf

    def _of_case(self, quantity: JudgedQuantity) -> float:
        own = self.of_marks.get(quantity.case)
        return self.case if own is None or own.case is None else own.case

    def _of_operation(self, quantity: JudgedQuantity) -> float:
        mark = self.of_marks.get(quantity.case)
        own = mark.of_operation(quantity) if mark else None
        return self.operation if own is None else own

    def with_marks(self, sides: Listings) -> Self:
        """Return the thresholds with those of the tests' own marks, of the head."""
        of_marks = {}
        for node_id in sides.labels:
            listed = sides.head.cases[node_id]
            if listed.op_fail or listed.case_fail:
                try:
                    of_marks[node_id] = MarkThresholds.of(listed)
                except ValueError as error:
                    raise UsageError(f"opgate of {node_id}: {error}") from None
        return replace(self, of_marks=of_marks)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(Thresholds, Waivers):
    """The options of all commands that judge samples and report the verdict."""

    top: int = options.top()
    everything: bool = switch(
        "--verbose", "show all cases, not only those with findings if there are more than --top"
    )
    require_coverage: bool = switch(
        "--require-coverage",
        "exit code 2 if there is changed code, or a changed file, that no case uses",
        configurable=True,
    )
    report_only: bool = switch(
        "--report-only", "exit code 0 whatever the gate finds; wrong usage still fails"
    )
    accept: tuple[Acceptance, ...] = accept(configurable=True)
    inconclusive: str = inconclusive(configurable=True)
    format: str = options.output_format()
    output: Path | None = options.output()
    expired: tuple[Acceptance, ...] = ()  # of ``accept`` those that no longer hold

    def __post_init__(self) -> None:
        """Check the options, and take from ``accept`` what no longer holds."""
        super().__post_init__()
        today = datetime.now(UTC).date()
        expired = [one for one in self.accept if one.until and one.until < today]
        holding = [one for one in self.accept if one not in expired]
        object.__setattr__(self, "accept", tuple(holding))
        object.__setattr__(self, "expired", (*self.expired, *expired))


# ---- What is measured ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunOptions(JudgeOptions):
    """The options of commands that run gates."""

    trials: int = option(
        "--trials",
        whole(MIN_TRIALS),
        str(TRIALS),
        (
            "trials of the first stage (default: chosen by the gate, 10 to 20, or 30 to 60 with "
            "a threshold below 1%)"
        ),
        "N",
    )
    budget_s: float | None = option(
        "--budget",
        seconds,
        None,
        "time limit, such as 5m or 300s",
        "TIME",
        configurable=True,
    )
    paths: tuple[str, ...] = path_setting(
        "paths",
        path_of_cases,
        "files, folders or tests to measure if the command line names none",
    )
    all_cases: bool = switch(
        "--all-cases", "measure all cases, also those that run the same code on both sides"
    )
    reproducers: Path | None = option(
        "--reproducers",
        path,
        None,
        "folder for scripts that reproduce slower operations (default: beside the raw samples)",
        "DIR",
    )
    storage: Path = options.storage()
    pytest: tuple[str, ...] = after_dashes(
        "ARGUMENT", "arguments for pytest, which select the cases, such as a file or -k WORD"
    )


_PYTHON = "Python interpreter for the {}; if not given, that of the project"
_OWN = "environment variable of the {} alone"
_WITH = "version of an installed package for the {}, in a new environment that uv makes"


@dataclass(frozen=True, kw_only=True)
class SideOptions:
    """What differs between the sides beside their code."""

    base_python: str | None = option("--base-python", python, None, _PYTHON.format(BASE), "EXE")
    head_python: str | None = option("--head-python", python, None, _PYTHON.format(HEAD), "EXE")
    base_env: tuple[tuple[str, str], ...] = option(
        "--base-env", variable, None, _OWN.format(BASE), "NAME=VALUE", many=True
    )
    head_env: tuple[tuple[str, str], ...] = option(
        "--head-env", variable, None, _OWN.format(HEAD), "NAME=VALUE", many=True
    )
    base_with: tuple[Requirement, ...] = option(
        "--base-with", requirement, None, _WITH.format(BASE), "NAME==VERSION", many=True
    )
    head_with: tuple[Requirement, ...] = option(
        "--head-with", requirement, None, _WITH.format(HEAD), "NAME==VERSION", many=True
    )

    def __post_init__(self) -> None:
        """Check the options."""
        self._check_environments()

    def _check_environments(self) -> None:
        """Refuse options of one side that exclude each other."""
        for side, requirements in self.changes.items():
            flag = f"--{side}-with"
            if self.pythons[side]:
                raise UsageError(
                    f"{flag}: the new environment has its own interpreter; remove --{side}-python "
                    f"or {flag}"
                )
            names = [canonicalize_name(requirement.name) for requirement in requirements]
            for change, name in zip(requirements, names, strict=True):
                if names.count(name) > 1:
                    raise UsageError(f"{flag}: {change.name} is given twice; give one version")

    @property
    def pythons(self) -> dict[str, str | None]:
        """Side -> the interpreter that is named."""
        return {BASE: self.base_python, HEAD: self.head_python}

    @property
    def variables(self) -> dict[str, dict[str, str]]:
        """Side -> its own environment variables."""
        return {BASE: dict(self.base_env), HEAD: dict(self.head_env)}

    @property
    def changes(self) -> dict[str, tuple[Requirement, ...]]:
        """Side with a new environment -> the requirements that differ from what is installed."""
        requirements = {BASE: self.base_with, HEAD: self.head_with}
        return {side: changes for side, changes in requirements.items() if changes}

    @property
    def differ(self) -> bool:
        """Whether any of these options is given."""
        return bool(self.changes or any(self.pythons.values()) or any(self.variables.values()))


@dataclass(frozen=True, kw_only=True)
class BaseOptions:
    """What the working tree is compared with: a revision, or a folder."""

    base: str | None = option(
        "--base",
        str,
        None,
        (
            "commit, branch or tag to compare with, or the folder of another checkout; main... is "
            "the merge base with main, ./NAME always a folder (default: where HEAD left the target "
            "of the pull request or the default branch)"
        ),
        "BASE",
    )


@dataclass(frozen=True, kw_only=True)
class GateOptions(RunOptions, SideOptions, BaseOptions):
    """What a gate measures; without a base, that is the working tree on both sides.

    Help shows the options of the last base first.
    """

    shard: Shard = option(
        "--shard",
        shard,
        "1/1",
        "measure the Kth of N parts of the cases; mnistbench judge judges the files of all",
        "K/N",
    )
    tests: str | None = option(
        "--tests",
        one_of(HEAD, OWN_TESTS),
        None,
        (
            "head: the head's benchmarks measure both sides; own: each side runs its own (default: "
            "the head's where the base lacks them, or where their text alone has changed)"
        ),
        "head|own",
    )
    bisect: bool = switch("--bisect", "exit code 125 instead of 2, for git bisect run")
    format: str = options.output_format(["html"])
    base_rule: str = ""  # why the base was chosen; empty if it is given
    only: tuple[str, ...] = ()  # node ids of the cases to measure; all that pytest selects if empty
    given_fields: frozenset[str] = frozenset()  # fields that the command line gives

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        self._check_environments()
        if self.bisect and self.shard.of > 1:
            raise UsageError("--bisect: cannot be given with --shard; remove one of them")


#: What the project's file may have for the commands that run or judge gates.
TOOL_TABLE = ToolTable("gate", GateOptions)


def budget_text(seconds: float) -> str:
    """Return a budget as ``--budget`` takes it, in whole ten seconds."""
    return f"{10 * math.ceil(seconds / 10)}s"
