"""The code of both sides, and what differs of it, compared when it is asked for."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mnistbench.gate.messages import Followed, RunCode
from mnistbench.gate.reach.differences import CHANGED, GONE, NEW, Differences, differences
from mnistbench.gate.reach.side_code import SideCode
from mnistbench.gate.sides.stray import Imports
from mnistbench.gate.trees import Tree
from mnistbench.gate.words import BASE, HEAD


@dataclass(frozen=True)
class ComparedCode:
    """The code of both sides, as their surveys have seen it."""

    trees: Mapping[str, Tree]  # of BASE and HEAD
    imports: Mapping[str, Imports]  # of each
    followed: Mapping[str, Followed]  # of each
    differing: Collection[str]  # files whose bytes differ between the trees, relative to them

    @functools.cached_property
    def sides(self) -> Mapping[str, SideCode]:
        """The files of each side, and what ran in them."""
        return {
            side: SideCode(
                self.trees[side].root,
                frozenset(path for path in self.imports[side].files.values() if _is_python(path)),
                self.followed[side],
            )
            for side in (BASE, HEAD)
        }

    @functools.cached_property
    def differences(self) -> Differences:
        """What differs."""
        return differences(self.sides, self.differing)

    def why(self, side: str, code: RunCode) -> str:
        """Return why a code object of a side may do something else; "" if it does not."""
        return self.differences.of_code(code, self.sides[side])

    def change(self, side: str, code: RunCode) -> tuple[str, bool]:
        """Return how a code object differs, and whether it does so itself.

        CHANGED, NEW or GONE, or which name that differs it uses. Empty if it does not differ.
        """
        if how := self.differences.functions.get((code.path, code.name)):
            is_own = how in (CHANGED, NEW, GONE)
            return how if is_own else f"has a definition that {how}", is_own
        reason = self.why(side, code).removeprefix(f"runs {code.path}:{code.name}")
        if reason.startswith("runs "):  # a lambda or comprehension of a function that differs
            return CHANGED, True
        return reason.removeprefix(", which ").removeprefix(", and ").strip(), False


def _is_python(path: str) -> bool:
    return path.endswith(".py")
