"""The call paths of a case -> the functions that probably made it slower or faster.

The self time of a path is the product of its time in one call and, for each function above it, of
how often that function is called by the one above. Its change is divided among these factors, each
in proportion to the logarithm of its own change, so that the parts add up (logarithmic mean Divisia
index; Ang, Energy Policy 32, 2004, doi:10.1016/S0301-4215(03)00076-4).

A part is counted for a function that differs between the sides, if there is one: time in one call
for the function itself or the nearest caller that differs, more calls for the caller. So a changed
function that calls an unchanged one twice has the time of the second call.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mnistbench.core.operation import BACKWARD
from mnistbench.gate.causes.case_profile import CallPath, CaseProfile, ProfiledFunction

#: The function that runs the backward pass. Those whose operations it differentiates are not around
#: it.
ENGINE = "torch._C._EngineBase.run_backward"

#: Share of a change that one function has to explain to be called its cause.
ENOUGH = 0.5
#: Least share of a change of a function that is named.
LEAST_SHARE = 0.05


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
    """A function, and the part of a case's change that it explains."""

    profiled: ProfiledFunction
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
    """The functions that explain the change of a case, the most probable cause first."""

    change_ns: float  # of an iteration with a profiler
    functions: tuple[Cause, ...]

    @property
    def are_enough(self) -> bool:
        """Whether the first one explains the change."""
        return bool(self.functions) and self.functions[0].share >= ENOUGH


def causes(profile: CaseProfile, *, only_tree: bool = False) -> Causes:
    """Return what the call paths of a case say.

    Functions that explain at least ENOUGH of the change come first; then those that differ
    themselves, those that use what differs, and those that are called more or less often.

    Args:
        profile: of the case.
        only_tree: nothing but the trees differs between the sides, so what is not of the tree is no
            cause: its time counts for the function of the tree that calls it.
    """
    attribution = _Attribution(profile, only_tree=only_tree)
    change_ns = sum(path.head_self_ns - path.base_self_ns for path in profile.paths)
    if not change_ns:
        return Causes(0, ())
    named = [
        attribution.cause(function, part_ns, change_ns)
        for function, part_ns in attribution.parts_ns.items()
        if function and part_ns / change_ns >= LEAST_SHARE
    ]
    return Causes(change_ns, tuple(sorted(named, key=_rank)))


def _rank(cause: Cause) -> tuple[bool, int, float]:
    if cause.profiled.differs_itself:
        kind = 0
    elif cause.profiled.change:
        kind = 1
    else:
        kind = 2 if cause.calls.base != cause.calls.head else 3
    return cause.share < ENOUGH, kind, -cause.share


class _Attribution:
    """Divides the change of each path among functions."""

    def __init__(self, profile: CaseProfile, *, only_tree: bool) -> None:
        self._profile = profile
        self._only_tree = only_tree
        self._paths = profile.paths
        self._around = _functions_around(profile)
        self.parts_ns: dict[int, float] = defaultdict(float)  # by function
        # Of the parts those of calls, by the function to blame and the called one.
        self._by_calls_ns: dict[tuple[int, int], float] = defaultdict(float)
        self._by_calls: dict[tuple[int, int], set[int]] = defaultdict(set)  # their paths
        # The other parts, by the function to blame and that which takes the time.
        self._inside_ns: dict[tuple[int, int], float] = defaultdict(float)
        for path in range(len(self._paths)):
            self._divide(path)

    def cause(self, function: int, part_ns: float, change_ns: float) -> Cause:
        """Return what is said of a function that explains a part."""
        called_ns = {
            called: ns for (caller, called), ns in self._by_calls_ns.items() if caller == function
        }
        most = max(called_ns, key=lambda called: called_ns[called] / change_ns, default=None)
        makes = None
        if most is not None and called_ns[most] / part_ns >= ENOUGH:
            makes = self._counts(most, self._by_calls[function, most])
        inside_ns = {
            inner: ns for (caller, inner), ns in self._inside_ns.items() if caller == function
        }
        longest = max(inside_ns, key=lambda inner: inside_ns[inner] / change_ns, default=function)
        is_inside = longest != function and inside_ns[longest] / part_ns >= ENOUGH
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
