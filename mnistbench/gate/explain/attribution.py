"""The call paths of a case -> the functions that probably made it slower or faster.

The self time of a path is the product of its time in one call and, for each function above it, of
how often that function is called by the one above. Its change is divided among these factors, each
in proportion to the logarithm of its own change, so that the parts add up (logarithmic mean Divisia
index; Ang, Energy Policy 32, 2004, doi:10.1016/S0301-4215(03)00076-4).

A part is counted for a function that differs between the sides, if there is one: time in one call
for the function itself or the nearest caller that differs, more calls for the caller. So a changed
function that calls an unchanged one twice has the time of the second call.

A function that does not differ is no cause. If most of the change is in such functions, what
differs has handed them other values: a longer list, keys with another hash. Then the suspects are
what differs and runs on the call paths, and what else differs that the case depends on.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from mnistbench.core.operation import BACKWARD
from mnistbench.gate.samples.case_profile import (
    COMPILED,
    FIXTURE,
    FUNCTION,
    PACKAGE,
    CallPath,
    CaseProfile,
    OtherChange,
    ProfiledFunction,
    total_times,
)

#: The function that runs the backward pass. Those whose operations it differentiates are not around
#: it.
ENGINE = "torch._C._EngineBase.run_backward"

#: Share of a change that one function has to explain to be called its cause.
ENOUGH = 0.5
#: Least share of a change of a function that is named.
MIN_SHARE = 0.05

#: What makes other values for an unchanged function takes another time itself: its total time has
#: changed by a factor whose logarithm is at least this share of that of the case.
OTHER_TIME = 0.25
#: Added to the total times of functions, so that noise of short ones does not count; nanoseconds.
_FLOOR_NS = 1_000


@dataclass(frozen=True)
class CallCounts:
    """How often a function is called in one iteration."""

    function: str
    base: float
    head: float

    @property
    def sides(self) -> tuple[float, float]:
        """The number of the base and that of the head."""
        return self.base, self.head


@dataclass(frozen=True)
class Cause:
    """A function or another change, and the part of a case's change that it explains itself."""

    profiled: ProfiledFunction | OtherChange
    change_ns: float
    share: float  # of the change of the case
    calls: CallCounts  # of the function
    # The function whose calls by it explain most of its part; None if those of none do.
    makes: CallCounts | None
    inside: str  # the function whose time in one call is most of its part, if it is another one

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.profiled.name


@dataclass(frozen=True)
class Causes:
    """What explains the change of a case, the most probable cause first."""

    change_ns: float  # of an iteration with a profiler
    functions: tuple[Cause, ...]
    # The function with most of the change if it does not differ, and if those that do explain less
    # than half of the change.
    spent: Cause | None = None
    suspects: tuple[Cause, ...] = ()  # what may then be the cause

    def within_the_change(self) -> Causes:
        """Return the same, and no part is larger than the change.

        One may be, because others have changed the other way. It then explains all of the change.
        """
        return Causes(
            self.change_ns,
            tuple(map(self._within, self.functions)),
            self.spent and self._within(self.spent),
            tuple(map(self._within, self.suspects)),
        )

    def _within(self, cause: Cause) -> Cause:
        return replace(cause, change_ns=self.change_ns, share=1.0) if cause.share > 1 else cause

    @property
    def are_enough(self) -> bool:
        """Whether the first one explains the change."""
        return bool(self.functions) and self.functions[0].share >= ENOUGH


def causes(profile: CaseProfile, *, only_tree: bool = False) -> Causes:
    """Return what the call paths of a case say.

    What differs comes first: functions that explain at least ENOUGH of the change; then those that
    differ themselves, and those that use what differs. Of the others, those that are called more or
    less often come first.

    Args:
        profile: of the case.
        only_tree: nothing but the trees differs between the sides, so what is not of the tree is no
            cause: its time counts for the function of the tree that calls it.
    """
    attribution = _Attribution(profile, only_tree=only_tree)
    change_ns = attribution.change_ns
    if not change_ns:
        return Causes(0, ())
    named = [
        attribution.cause(function, part_ns)
        for function, part_ns in attribution.parts_ns.items()
        if function and part_ns / change_ns >= MIN_SHARE
    ]
    ranked = sorted(named, key=_rank)
    largest = max(named, key=lambda cause: cause.share, default=None)
    explained_ns = [
        part_ns
        for function, part_ns in attribution.parts_ns.items()
        if profile.functions[function].change
    ]
    # Some may go against the change.
    explained = max([sum(explained_ns) / change_ns, *(part / change_ns for part in explained_ns)])
    if largest is None or largest.profiled.change or explained >= ENOUGH:
        return Causes(change_ns, tuple(ranked))
    spent = next(cause for cause in ranked if not cause.profiled.change)
    suspects = _suspects(profile, attribution, spent)
    names = {suspect.cause.function for suspect in suspects}
    likely = [one.cause for one in suspects if one.evidence is _Hint.SAME_CHANGE]
    in_order = [one.cause for one in suspects]
    others = (cause for cause in ranked if cause.function not in names)
    return Causes(change_ns, (*in_order, *others), spent, tuple(likely or in_order))


def _rank(cause: Cause) -> tuple[bool, bool, int, float]:
    if cause.profiled.differs_itself:
        kind = 0
    elif cause.profiled.change:
        kind = 1
    else:
        kind = 2 if cause.calls.base != cause.calls.head else 3
    return not cause.profiled.change, cause.share < ENOUGH, kind, -cause.share


class _Hint(enum.IntEnum):
    """What speaks for a suspect, the strongest first."""

    SAME_CHANGE = enum.auto()  # its time has changed as that of the case, or the time is in it
    OTHER_CHANGE = enum.auto()  # its time has changed the other way
    NOT_TIMED = enum.auto()  # a function that differs itself and does not run in the iterations
    SAME_TIME = enum.auto()  # a function that differs itself
    USES = enum.auto()  # a function that only uses what differs
    NO_FUNCTION = enum.auto()


@dataclass(frozen=True)
class _Suspect:
    """What may have handed other values to an unchanged function."""

    cause: Cause
    evidence: _Hint
    growth: float = 0.0  # logarithm of the change of its total time, in the direction of the case

    @property
    def rank(self) -> tuple[_Hint, bool, float]:
        """The most probable cause has the lowest one."""
        return self.evidence, not self.cause.profiled.differs_itself, -self.growth


def _suspects(profile: CaseProfile, attribution: _Attribution, spent: Cause) -> list[_Suspect]:
    """Return the functions that differ and what else differs, the most probable cause first."""
    growths = _growths(profile)
    suspects = []
    for position, function in enumerate(profile.functions):
        if not function.change:
            continue
        growth = growths[position]
        if growth >= OTHER_TIME * growths[0]:
            evidence = _Hint.SAME_CHANGE
        elif not function.differs_itself:
            evidence = _Hint.USES
        else:
            is_same = abs(growth) < OTHER_TIME * growths[0]
            evidence = _Hint.SAME_TIME if is_same else _Hint.OTHER_CHANGE
        cause = attribution.cause(position, attribution.parts_ns.get(position, 0.0))
        suspects.append(_Suspect(cause, evidence, growth))
    for other in profile.others:
        if _contains(other, spent.inside or spent.function):
            evidence = _Hint.SAME_CHANGE
        elif other.kind not in (FUNCTION, FIXTURE):
            evidence = _Hint.NO_FUNCTION
        else:
            evidence = _Hint.NOT_TIMED if other.differs_itself else _Hint.USES
        calls = CallCounts(other.name, 0, 0)
        suspects.append(_Suspect(Cause(other, 0.0, 0.0, calls, None, ""), evidence))
    return sorted(suspects, key=lambda suspect: suspect.rank)


def _growths(profile: CaseProfile) -> list[float]:
    """Return the logarithm of the change of each function's total time; the first is the case.

    They are positive for functions that changed in the direction of the case.
    """
    paths = profile.paths
    parents = [path.parent for path in paths]
    base_ns, head_ns = (
        total_times(self_ns, parents)
        for self_ns in ([p.base_self_ns for p in paths], [p.head_self_ns for p in paths])
    )
    totals_ns = [[_FLOOR_NS, _FLOOR_NS] for _ in profile.functions]
    above: list[frozenset[int]] = []  # the functions of each path
    for path, row in enumerate(paths):
        functions = above[row.parent] if row.parent >= 0 else frozenset[int]()
        if row.function not in functions:  # the time of recursive calls is that of the first one
            totals_ns[row.function][0] += base_ns[path]
            totals_ns[row.function][1] += head_ns[path]
            functions |= {row.function}
        above.append(functions)
    sign = 1 if head_ns[0] > base_ns[0] else -1
    return [sign * math.log(head / base) for base, head in totals_ns]


def _contains(other: OtherChange, function: str) -> bool:
    """Whether a function that is not of the tree belongs to a compiled module or a package."""
    if ":" in function:
        return False
    module = function.rpartition(".")[0]
    if other.kind == COMPILED:
        # ``src/pkg/_speed.cpython-313-x86_64-linux-gnu.so`` is ``pkg._speed``.
        folders, _, file = other.name.rpartition("/")
        dotted = f"{folders.replace('/', '.')}.{file.partition('.')[0]}"
        return bool(module) and f".{dotted}.".endswith(f".{module}.")
    name = other.name.lower().replace("-", "_")
    return other.kind == PACKAGE and module.partition(".")[0].lower() == name


class _Attribution:
    """Divides the change of each path among functions."""

    def __init__(self, profile: CaseProfile, *, only_tree: bool) -> None:
        self._profile = profile
        self._only_tree = only_tree
        self._paths = profile.paths
        self.change_ns = sum(path.head_self_ns - path.base_self_ns for path in profile.paths)
        self._around = _functions_around(profile)
        self.parts_ns: dict[int, float] = defaultdict(float)  # by function
        # Of the parts those of calls, by the function to blame and the called one.
        self._by_calls_ns: dict[tuple[int, int], float] = defaultdict(float)
        self._by_calls: dict[tuple[int, int], set[int]] = defaultdict(set)  # their paths
        # The other parts, by the function to blame and that which takes the time.
        self._inside_ns: dict[tuple[int, int], float] = defaultdict(float)
        for path in range(len(self._paths)):
            self._divide(path)

    def cause(self, function: int, part_ns: float) -> Cause:
        """Return what is said of a function that explains a part."""
        change_ns = self.change_ns
        called_ns = {
            called: ns for (caller, called), ns in self._by_calls_ns.items() if caller == function
        }
        most = max(called_ns, key=lambda called: called_ns[called] / change_ns, default=None)
        makes = None
        if part_ns and most is not None and called_ns[most] / part_ns >= ENOUGH:
            makes = self._counts(most, self._by_calls[function, most])
        inside_ns = {
            inner: ns for (caller, inner), ns in self._inside_ns.items() if caller == function
        }
        longest = max(inside_ns, key=lambda inner: inside_ns[inner] / change_ns, default=function)
        is_inside = part_ns and longest != function and inside_ns[longest] / part_ns >= ENOUGH
        paths = (path for path, row in enumerate(self._paths) if row.function == function)
        return Cause(
            profiled=self._profile.functions[function],
            change_ns=part_ns,
            share=part_ns / change_ns,
            calls=self._counts(function, paths),
            makes=makes,
            inside=self._profile.functions[longest].name if is_inside else "",
        )

    def _counts(self, function: int, paths: Iterable[int]) -> CallCounts:
        rows = [self._paths[path] for path in paths]
        return CallCounts(
            self._profile.functions[function].name,
            sum(row.base_calls for row in rows),
            sum(row.head_calls for row in rows),
        )

    def _divide(self, path: int) -> None:
        row = self._paths[path]
        base_ns = row.base_self_ns
        head_ns = row.head_self_ns
        if base_ns == head_ns:
            return
        chain = list(self._chain(path))
        if one_sided := self._first_one_sided(chain):
            self._add_one_sided(chain, one_sided, head_ns - base_ns)
            return
        if not base_ns or not head_ns:  # rounded
            self._add_own(path, head_ns - base_ns)
            return
        logarithms = [self._growth(called) for called in chain]
        total = math.log(head_ns / base_ns)
        own = total - sum(logarithms)
        mean_ns = (head_ns - base_ns) / total
        self._add_own(path, mean_ns * own)
        for called, logarithm in zip(chain, logarithms, strict=True):
            if logarithm:
                self._add_calls(called, mean_ns * logarithm)

    def _add_own(self, path: int, part_ns: float) -> None:
        """Count time in one call; of the backward pass for the functions of its operations."""
        function = self._function_to_blame(path)
        weights: dict[int, int] = defaultdict(int)
        if self._profile.functions[self._paths[path].function].name == ENGINE:
            for called in self._profile.operations:
                change_ns = called.head_ns - called.base_ns
                if called.operation[1] == BACKWARD and change_ns * part_ns > 0:
                    caller = function if called.function is None else called.function
                    weights[caller] += change_ns
        if not weights:
            weights[function] = 1
        for blamed, weight in weights.items():
            share_ns = part_ns * weight / sum(weights.values())
            self.parts_ns[blamed] += share_ns
            self._inside_ns[blamed, self._function(path)] += share_ns

    def _chain(self, path: int) -> Iterator[int]:
        """Yield a path and those that it continues, without the first one, which is the case."""
        while path > 0:
            yield path
            path = self._paths[path].parent

    def _first_one_sided(self, chain: list[int]) -> int | None:
        """Return the shortest path that one side does not have."""
        for path in reversed(chain):
            row = self._paths[path]
            if not (row.base_calls and row.head_calls):
                return path
        return None

    def _growth(self, path: int) -> float:
        """Return the logarithm of the change of a path's calls by the one that it continues."""
        row = self._paths[path]
        above = self._paths[row.parent]
        return _log_ratio(row) - _log_ratio(above)

    def _add_one_sided(self, chain: list[int], first: int, part_ns: float) -> None:
        """Count a path of one side: for what differs on it, else for who calls it."""
        for path in chain[: chain.index(first) + 1]:
            function = self._function(path)
            if self._profile.functions[function].differs_itself:
                self.parts_ns[function] += part_ns
                return
        self._add_calls(first, part_ns)

    def _add_calls(self, path: int, part_ns: float) -> None:
        """Count calls: for the caller if it differs, else for what it calls, if that does."""
        functions = self._profile.functions
        parent = self._paths[path].parent
        caller = self._function(parent)
        called = self._function(path)
        if functions[caller].differs_itself:
            blamed = caller
        elif functions[called].differs_itself:
            blamed = called
        else:
            blamed = self._function_to_blame(parent)
            if not functions[blamed].change:
                blamed = self._without_change(path)
        self.parts_ns[blamed] += part_ns
        if blamed != called:
            pair = (blamed, self._paths[path].function)
            self._by_calls_ns[pair] += part_ns
            self._by_calls[pair].add(path)

    def _function_to_blame(self, path: int) -> int:
        """Return the last function of a path that differs, else one that does not."""
        for above in self._chain(path):
            function = self._function(above)
            if self._profile.functions[function].change:
                return function
        return self._without_change(path)

    def _without_change(self, path: int) -> int:
        """Return the last function of a path, of the tree if the others cannot be a cause."""
        for above in self._chain(path) if self._only_tree else ():
            function = self._function(above)
            if self._profile.functions[function].is_of_tree:
                return function
        return self._function(path)

    def _function(self, path: int) -> int:
        """Return the last function of a path; of a comprehension or a lambda that around it."""
        return self._around.get(self._paths[path].function, self._paths[path].function)


def _log_ratio(row: CallPath) -> float:
    return math.log(row.head_calls / row.base_calls)


def _functions_around(profile: CaseProfile) -> dict[int, int]:
    """Return the function around each comprehension and lambda, if it runs, too.

    ``a.py:f`` of ``a.py:f.<locals>.<genexpr>``.
    """
    positions = {function.name: position for position, function in enumerate(profile.functions)}
    around = {}
    for name, position in positions.items():
        outer, separator, _ = name.rpartition(".<locals>.<")
        while separator and outer in positions:
            around[position] = positions[outer]
            outer, separator, _ = outer.rpartition(".<locals>.<")
    return around
