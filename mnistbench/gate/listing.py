"""What the surveys of both sides have found, and what follows from the pair.

A fact of a case is recorded in one place, the process of a side (``sides.survey``), and shown in
one, the report. Between them it is a field of :class:`ListedCase`, in messages and in files; what
depends on both sides is a property of :class:`Listings`.

The process of a side loads this module.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mnistbench.core import units
from mnistbench.gate.words import BASE, HEAD


@dataclass
class ListedCase:
    """A case that a survey found."""

    label: str
    params: Mapping[str, Any]
    # Peak memory of tensors in an iteration, bytes; None if it is not known.
    memory: int | None = None
    note: str = ""  # what a reader of the report has to know
    uncompared: str = ""  # why its results cannot be compared between the sides
    parallel: bool = False  # a plain test that uses more than one core
    parameters: str = ""  # hash of what the test is parametrized with
    sources: tuple[str, ...] = ()  # files of the tree: of the test, its fixtures and its data
    returns: str = ""  # types of the result
    result: str = ""  # hash of it; empty if it cannot be compared
    seconds: float = 0.0  # of its calls in the survey, without what only the first one does
    setup_s: float = 0.0  # CPU time of its own fixtures and of what its test does before the case
    # The quick look: shortest time of a few calls, ns; median of their times, each divided by that
    # of a loop which is the same on both sides and ran beside it; and resident memory that a call
    # needs at its peak, bytes. Each is 0 if it is not known.
    look_ns: int = 0
    look_loops: float = 0.0
    peak_bytes: int = 0
    # Time of its first compilation, in the survey, whose cache was empty; 0 if nothing is compiled,
    # or if later calls may find the work of the first one done.
    compile_ns: int = 0
    # What decides which code it runs: name -> value.
    facts: Mapping[str, str] = field(default_factory=dict)
    # Implementation of a library of its framework -> how often its iteration runs it.
    implementations: Mapping[str, int] = field(default_factory=dict)
    outlives: str = ""  # threads, processes and tasks that go on after its call returns
    # Thresholds of the test's own opgate mark, as written there: those of operations, and that of
    # the case.
    op_fail: tuple[str, ...] = ()
    case_fail: str = ""


@dataclass(frozen=True)
class Listing:
    """The cases of a side, as found by a survey of that side alone."""

    cases: Mapping[str, ListedCase]  # by node id
    # Installed distribution, and PYTHON -> version.
    packages: Mapping[str, str] = field(default_factory=dict)
    # Framework that the tests import, such as torch -> version.
    frameworks: Mapping[str, str] = field(default_factory=dict)
    # Of all its cases, by OMP_NUM_THREADS of this side alone; 0: each case has its own number.
    threads: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)  # node id -> why the test is no case
    # Node id -> why the case cannot be measured as it is.
    unmeasurable: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)  # node id of a test that fails -> why
    # Node id of a test, or a file, of the head's benchmarks that the base cannot run -> why.
    cannot_run: Mapping[str, str] = field(default_factory=dict)
    resident: int = 0  # peak resident memory of the process, bytes
    growth_bytes: int = 0  # resident memory from the first case to the peak; 0 if unknown
    loading_s: float = 0.0  # CPU time of the process until it had collected its tests
    importing_s: float = 0.0  # of it that of the import of the project's modules
    framework_s: float = 0.0  # of that the imports of frameworks
    loaded_bytes: int = 0  # resident memory before the first case; 0 if unknown
    # What decides which code computes the operations of a framework: name -> value.
    cpu: Mapping[str, str] = field(default_factory=dict)
    loaded: tuple[str, ...] = ()  # installed distributions that the tests import
    missing: tuple[str, ...] = ()  # arguments of pytest that name nothing on this side

    @property
    def parameters(self) -> dict[str, str]:
        """Node id -> hash of what the test is parametrized with."""
        return {node_id: case.parameters for node_id, case in self.cases.items()}

    @property
    def not_measured(self) -> dict[str, str]:
        """Node id -> why the case cannot be measured: as it is, or because its test fails."""
        return {**self.unmeasurable, **{test: f"fails: {why}" for test, why in self.failed.items()}}

    def without(self, node_ids: Collection[str]) -> Listing:
        """Return the listing of the other cases."""
        cases = {node_id: case for node_id, case in self.cases.items() if node_id not in node_ids}
        return replace(self, cases=cases)


@dataclass(frozen=True)
class Reach:
    """Which cases are affected by the differences of the sides; the others are not measured."""

    # Whether it was asked for; without it all cases are measured.
    is_known: bool = False
    # Node id of a measured case -> why it is affected, or what a quick look has shown.
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Node id of a case that runs the same code on both sides -> its label.
    same: Mapping[str, str] = field(default_factory=dict)
    # Of these node id -> time of the head / that of the base in the quick look, if both are known.
    looks: Mapping[str, float] = field(default_factory=dict)
    # Functions and names of the project that differ and that no case runs or uses: ``path:name``.
    uncovered: tuple[str, ...] = ()
    # Those of which it is not known, or not compared, which cases run them -> why.
    not_followed: Mapping[str, str] = field(default_factory=dict)
    # What differs and runs or is read outside of tests, such as at the import, as a reason says it.
    outside: tuple[str, ...] = ()
    # Files of the project that differ, and that neither side was seen to use.
    unused: tuple[str, ...] = ()
    # Files with the project's dependencies that differ, which the gate does not install.
    dependencies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that each measured case has a reason.

        Raises:
            ValueError: one has none.
        """
        for case, reasons in self.reasons.items():
            if not reasons:
                raise ValueError(f"the case {case!r} has no reason")

    @property
    def is_empty(self) -> bool:
        """Whether all cases run the same code on both sides, so that none is measured."""
        return bool(self.same) and not self.reasons


@dataclass(frozen=True)
class Listings:
    """Both sides. Mappings by case have the order of the base."""

    base: Listing
    head: Listing

    def __getitem__(self, side: str) -> Listing:
        """Return a side by its name."""
        return {BASE: self.base, HEAD: self.head}[side]

    def without(self, node_ids: Collection[str]) -> Listings:
        """Return the listings of the other cases."""
        return Listings(self.base.without(node_ids), self.head.without(node_ids))

    # ---- Which cases are measured ----------------------------------------------------------------

    @functools.cached_property
    def unmeasurable(self) -> dict[str, str]:
        """Node id -> why the case cannot be measured, on a side or because ids have moved."""
        base = self.base.not_measured
        head = self.head.not_measured
        return {
            node_id: _said_of_sides(base.get(node_id, ""), head.get(node_id, ""))
            for node_id in dict.fromkeys((*base, *head))
        } | dict.fromkeys(sorted(moved(self.base.parameters, self.head.parameters)), REORDERED)

    @property
    def fails_in_head(self) -> dict[str, str]:
        """Node id of a test that fails in the head alone -> why."""
        return {test: why for test, why in self.head.failed.items() if test not in self.base.failed}

    @functools.cached_property
    def common(self) -> tuple[str, ...]:
        """The cases that are measured: both sides have them, with the same parameters."""
        return tuple(
            node_id
            for node_id in self.base.cases
            if node_id in self.head.cases
            and node_id not in self.unmeasurable
            and self._params(BASE, node_id) == self._params(HEAD, node_id)
        )

    def _params(self, side: str, node_id: str) -> dict[str, Any]:
        """Return what has to be equal; the threads of a plain test may be those of its side."""
        ignored = {"threads": 0} if self.base.threads or self.head.threads else {}
        return {**self[side].cases[node_id].params, **ignored}

    @property
    def only_base(self) -> tuple[str, ...]:
        return self._only(self.base, self.head)

    @property
    def only_head(self) -> tuple[str, ...]:
        return self._only(self.head, self.base)

    def _only(self, side: Listing, other_side: Listing) -> tuple[str, ...]:
        return tuple(
            node_id
            for node_id in side.cases
            if node_id not in other_side.cases and node_id not in self.unmeasurable
        )

    @property
    def changed(self) -> tuple[str, ...]:
        """The cases whose parameters differ between the sides."""
        return tuple(
            node_id
            for node_id in self.base.cases
            if node_id in self.head.cases
            and node_id not in self.common
            and node_id not in self.unmeasurable
        )

    @property
    def are_all_new(self) -> bool:
        """Whether the base has no case, not even one that cannot be measured."""
        return not self.base.cases and not self.base.not_measured

    # ---- Facts of the measured cases -------------------------------------------------------------

    @functools.cached_property
    def labels(self) -> dict[str, str]:
        """Node id -> label of the case."""
        return {node_id: self.head.cases[node_id].label for node_id in self.common}

    def threads_of(self, node_id: str) -> set[int]:
        """Return the numbers of threads of a case on the sides."""
        params = self.head.cases[node_id].params
        return {side.threads or params["threads"] for side in (self.base, self.head)}

    def is_exact(self, node_id: str) -> bool:
        """Whether the same code computes the same bits: on one thread of a CPU."""
        params = self.head.cases[node_id].params
        return params["device"] == "cpu" and self.threads_of(node_id) == {1}

    @property
    def implementations(self) -> dict[str, dict[str, Mapping[str, int]]]:
        """Node id -> side -> implementation of a library -> how often an iteration runs it."""
        runs = {node_id: self.of_sides(node_id, "implementations") for node_id in self.common}
        return {node_id: both for node_id, both in runs.items() if any(both.values())}

    @property
    def memory(self) -> dict[str, dict[str, int]]:
        """Node id -> side -> peak memory of tensors, bytes, where both are known."""
        sizes = {node_id: self.of_sides(node_id, "memory") for node_id in self.common}
        return {node_id: both for node_id, both in sizes.items() if None not in both.values()}

    def of_sides(self, node_id: str, name: str) -> dict[str, Any]:
        """Return a fact of a case on each side."""
        return {side: getattr(self[side].cases[node_id], name) for side in (BASE, HEAD)}

    @property
    def returned(self) -> dict[str, tuple[str, str]]:
        """Node id -> types of the results of both sides, where they differ."""
        types = {
            node_id: (self.base.cases[node_id].returns, self.head.cases[node_id].returns)
            for node_id in self.common
        }
        return {node_id: (base, head) for node_id, (base, head) in types.items() if base != head}

    @property
    def compile_times(self) -> dict[str, tuple[int, int]]:
        """Node id -> time of the first compilation on both sides, where one was compiled, ns."""
        times = {
            node_id: (self.base.cases[node_id].compile_ns, self.head.cases[node_id].compile_ns)
            for node_id in self.common
        }
        return {node_id: both for node_id, both in times.items() if any(both)}

    def slower_to_compile(self, threshold: float) -> frozenset[str]:
        """Return the cases whose first compilation took longer in the head, by at least a share."""
        return frozenset(
            node_id
            for node_id, (base_ns, head_ns) in self.compile_times.items()
            if head_ns >= (1 + threshold) * base_ns > 0
        )

    @property
    def notes(self) -> dict[str, str]:
        """Node id -> what a reader has to know of it."""
        return self._said("note", self.common)

    @property
    def uncompared(self) -> dict[str, str]:
        """Node id -> why the results of the sides are not compared."""
        returned = self.returned
        return self._said("uncompared", [case for case in self.common if case not in returned])

    @property
    def outlives(self) -> dict[str, str]:
        """Node id -> which threads and processes go on after the call returns."""
        return self._said("outlives", self.common)

    def _said(self, name: str, node_ids: Iterable[str]) -> dict[str, str]:
        texts = {
            node_id: _said_of_sides(
                getattr(self.base.cases[node_id], name), getattr(self.head.cases[node_id], name)
            )
            for node_id in node_ids
        }
        return {node_id: text for node_id, text in texts.items() if text}

    def sources(self, differing: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the files of each test, its fixtures and its data among those that differ."""
        sources = {
            node_id: {*self.base.cases[node_id].sources, *self.head.cases[node_id].sources}
            for node_id in self.common
        }
        return {
            node_id: tuple(sorted(names.intersection(differing)))
            for node_id, names in sources.items()
            if names.intersection(differing)
        }

    # ---- Facts of the sides ----------------------------------------------------------------------

    @property
    def frameworks(self) -> dict[str, str]:
        """Framework -> versions of both sides: ``2.13.0 -> 2.15.0``, or one if they are equal."""
        names = {**self.base.frameworks, **self.head.frameworks}
        versions = {
            name: filter(None, (self[side].frameworks.get(name) for side in (BASE, HEAD)))
            for name in names
        }
        return {name: " -> ".join(dict.fromkeys(texts)) for name, texts in versions.items()}

    @property
    def cpu(self) -> dict[str, Mapping[str, str]]:
        """Side -> what decides which code runs on a CPU."""
        return {BASE: self.base.cpu, HEAD: self.head.cpu}

    @property
    def resident(self) -> dict[str, int]:
        """Side -> peak memory of its process, bytes."""
        return {BASE: self.base.resident, HEAD: self.head.resident}

    @property
    def left_out(self) -> dict[str, Mapping[str, str]]:
        """Side -> node id -> why the test is no case."""
        return {BASE: self.base.left_out, HEAD: self.head.left_out}

    @functools.cached_property
    def versions(self) -> dict[str, tuple[str, str]]:
        """Installed package -> version of each side, or ""."""
        names = sorted({*self.base.packages, *self.head.packages}, key=str.lower)
        return {
            name: (self.base.packages.get(name, ""), self.head.packages.get(name, ""))
            for name in names
        }

    @property
    def packages(self) -> dict[str, tuple[str, str]]:
        """Package whose versions differ -> version of each side, or ""."""
        return {name: (base, head) for name, (base, head) in self.versions.items() if base != head}


def change_of_versions(base: str, head: str) -> str:
    """Return the versions of both sides: ``1.0 -> not installed``, or one if they are equal."""
    return " -> ".join(dict.fromkeys(version or "not installed" for version in (base, head)))


def _said_of_sides(base: str, head: str) -> str:
    """Return what the surveys say about a case: once if both say the same, else with the sides."""
    if base == head:
        return base
    return "; ".join(
        f"in the {side}: {text}" for side, text in ((BASE, base), (HEAD, head)) if text
    )


def reasons_with_cases(unmeasurable: Mapping[str, str]) -> Iterator[str]:
    """Yield a text for each reason why cases cannot be measured.

    The text names the first of these cases and the number of the others.
    """
    for why in dict.fromkeys(unmeasurable.values()):
        cases = [case for case, reason in unmeasurable.items() if reason == why]
        yield f"{units.and_more(cases)}: {why}"


# ---- Ids that another process does not find again ------------------------------------------------

# The gate cannot tell which tests belong together if their ids are not the same in each process.
# The text of an id may contain the order of a set, an address, the time or a random number. An id
# such as ``test_a[value0]`` is the position of a parameter: if the parameters come from a set, it
# belongs to another one in another process.

#: Why a case with such an id cannot be measured.
OTHER_ID = (
    "its id differs between processes, as it contains the order of a set, an address, the time or "
    "a random number; "
    'sort what it is made of, or name it: pytest.param(..., id="...")'
)
NOT_AGAIN = (
    "another process of its side does not find it: a test has removed or changed its file, or what "
    "pytest collects depends on what earlier tests have left, or on chance"
)
OTHER_PARAMETERS = (
    "its id belongs to other parameters in another process, as their order is that of a set, or "
    "random; "
    'sort them, or name each: pytest.param(..., id="...")'
)
REORDERED = (
    "its id belongs to other parameters in the head, as their order has changed; "
    'name each of them on both sides: pytest.param(..., id="...")'
)


def name_of_test(node_id: str) -> str:
    """Return the id of a test without its parameters.

    A folder may have a bracket in its name, and a parameter two colons.
    """
    file, colons, test = node_id.partition("::")
    return f"{file}{colons}{test.partition('[')[0]}"


def is_of_file(node_id: str, name: str) -> bool:
    """Whether a test is one of a file.

    The file is relative to the tree, and node ids are relative to the folder in which pytest runs.
    """
    return f"/{name}".endswith(f"/{node_id.partition('::')[0]}")


def moved(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Return the ids whose parameters belonged to another id of the same test before.

    Args:
        before: node id -> hash of its parameters.
        now: the same, of another process or of the other side.
    """
    known: dict[str, set[str]] = defaultdict(set)
    for node_id, digest in before.items():
        known[name_of_test(node_id)].add(digest)
    return {
        node_id
        for node_id, digest in now.items()
        if digest
        and before.get(node_id, digest) != digest
        and digest in known[name_of_test(node_id)]
    }


def unstable(
    expected: Collection[str], before: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, str]:
    """Return the expected ids that are missing now or belong to other parameters, with the reason.

    Args:
        expected: node ids.
        before: node id -> hash of its parameters, in the process that found them.
        now: the same, of this process.
    """
    elsewhere = moved(before, now)
    reasons = {node_id: OTHER_PARAMETERS for node_id in expected if node_id in elsewhere}
    for node_id in expected:
        if node_id not in now:
            reasons[node_id] = OTHER_ID if node_id.endswith("]") else NOT_AGAIN
    return reasons


def without_counterpart(of_base: Iterable[str], of_head: Iterable[str]) -> set[str]:
    """Return the parametrized ids that one side alone has.

    A test counts only if both sides have parametrized ids of it.
    """
    only_base = {*of_base} - {*of_head}
    only_head = {*of_head} - {*of_base}
    tests = {name_of_test(node_id) for node_id in only_base if node_id.endswith("]")}
    tests &= {name_of_test(node_id) for node_id in only_head if node_id.endswith("]")}
    return {node_id for node_id in only_base | only_head if name_of_test(node_id) in tests}
