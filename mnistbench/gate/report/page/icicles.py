"""The call paths of a case on both sides, for ``icicle.js``.

The picture is a differential flame graph with the case on top (an icicle). Its rules are those of
Brendan Gregg's pictures, which readers know
(https://www.brendangregg.com/blog/2014-11-09/differential-flame-graphs.html):

- A box is as wide as the total time of its path in the head, the newer side. The widths of the base
  can be chosen, because a path that got much faster is narrow in the head.
- Its color is the change of its self time, which is the greatest at the cause. By the total time,
  all paths from the case down to the cause are red. This can be chosen for a change that is spread
  over many paths.

One rule differs. In those pictures a path that only the other side has is not drawn. Here it is as
wide as on that side, has a pattern and a word, and makes the paths above it wider, so that one
picture shows everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mnistbench.core import units
from mnistbench.gate.report.page.forest import six_digits
from mnistbench.gate.samples.case_profile import (
    CallPath,
    CaseProfile,
    folded_times,
    total_times,
)

#: Characters for call paths and tables of operations, so that a page of 500 cases has less than
#: 3 MB. What operations do not need is for call paths.
MAX_CHARACTERS = 2_050_000

#: Characters of a row of a table of operations.
ROW_CHARACTERS = 120

#: Characters of a case with call paths, besides these.
CASE_CHARACTERS = 500

#: Characters of a call path.
PATH_CHARACTERS = 20

#: Paths that a case may have, however little room there is.
MIN_PATHS = 100

#: Digits of the time of a whole case, so that a path with a thousandth of it has three: fewer
#: characters, and no less than the page shows.
DIGITS = 6

#: Place of a function in ``Icicles.names``: its name, how it differs, whether it differs itself.
FunctionNames = tuple[str, str, bool]


class Icicles:
    """The call paths of the cases that were profiled.

    Args:
        profiles: by the node id of the case.
        operation_rows: rows of operations that the page has, too.
    """

    def __init__(self, profiles: Mapping[str, CaseProfile], operation_rows: int) -> None:
        self._profiles = profiles
        profiled = max(1, sum(bool(profile.paths) for profile in profiles.values()))
        characters = MAX_CHARACTERS - ROW_CHARACTERS * operation_rows
        characters_of_a_case = characters // profiled - CASE_CHARACTERS
        self._most_of_a_case = max(MIN_PATHS, characters_of_a_case // PATH_CHARACTERS)
        self._positions: dict[FunctionNames, int] = {}

    @property
    def names(self) -> list[FunctionNames]:
        """The functions of the paths so far, which have a position in it."""
        return list(self._positions)

    def why_not(self, case: str) -> str:
        """Return why the paths of a case (a node id) are not known; empty if there is no reason."""
        profile = self._profiles.get(case)
        return profile.why_not if profile else ""

    def data(self, case: str, name: str) -> dict[str, Any] | None:
        """Return the paths of a case in columns; None if there are none.

        Depth first: a path follows the one that it continues, and of those that continue the same
        one, the longest is the first. If there is no room for all, the shortest paths count for
        those that they continue.

        Args:
            case: its node id.
            name: what the page calls it, instead of its first function.
        """
        profile = self._profiles.get(case)
        if profile is None or not profile.paths:
            return None
        paths = profile.paths
        parents = [path.parent for path in paths]
        base_self_ns = [path.base_self_ns for path in paths]
        head_self_ns = [path.head_self_ns for path in paths]
        larger_ns = [
            max(totals_ns)
            for totals_ns in zip(
                total_times(base_self_ns, parents), total_times(head_self_ns, parents), strict=True
            )
        ]
        # No path takes longer than the one that it continues, so what is kept is a whole tree.
        by_time = sorted(range(len(paths)), key=lambda position: -larger_ns[position])
        kept = by_time[: self._most_of_a_case]
        base_self_ns, head_self_ns = (
            folded_times(self_ns, parents, set(kept)) for self_ns in (base_self_ns, head_self_ns)
        )
        depths = _depth_first(paths, kept)
        unit_ns = 10 ** max(len(str(larger_ns[0])) - DIGITS, 0)
        functions = [
            (
                units.printable(function.name),
                units.printable(function.change),
                function.differs_itself,
            )
            for function in profile.functions
        ]
        functions[0] = (units.printable(name), "", False)
        return {
            "unit_ns": unit_ns,
            "depths": [*depths.values()],
            "functions": [self._number(functions[paths[path].function]) for path in depths],
            "base_calls": [_short(paths[path].base_calls) for path in depths],
            "head_calls": [_short(paths[path].head_calls) for path in depths],
            "base_self": [round(base_self_ns[path] / unit_ns) for path in depths],
            "head_self": [round(head_self_ns[path] / unit_ns) for path in depths],
        }

    def _number(self, names: FunctionNames) -> int:
        return self._positions.setdefault(names, len(self._positions))


def _depth_first(paths: Sequence[CallPath], by_time: Sequence[int]) -> dict[int, int]:
    """Return path -> number of functions on it; below each path those that continue it, in order.

    ``by_time`` has the first path first.
    """
    continued_by: dict[int, list[int]] = {}
    for position in by_time:
        continued_by.setdefault(paths[position].parent, []).append(position)
    depths: dict[int, int] = {}
    waiting = [by_time[0]]
    while waiting:
        position = waiting.pop()
        depths[position] = depths.get(paths[position].parent, -1) + 1
        waiting += reversed(continued_by.get(position, ()))
    return depths


def _short(calls: float) -> float | None:
    """Return a number of calls with as few characters of JSON as it needs."""
    return int(calls) if float(calls).is_integer() else six_digits(calls)
