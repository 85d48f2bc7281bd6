"""The code of both sides, and what differs of it, compared when it is asked for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mnistbench.gate.messages import Followed, RunCode
from mnistbench.gate.reach.changes import CHANGED, GONE, NEW, Changes, changes
from mnistbench.gate.reach.files import Files
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
    differing: Sequence[str]  # files whose bytes differ between the trees, relative to them

    @functools.cached_property
    def sides(self) -> Mapping[str, SideCode]:
        """The files of each side, and what ran in them."""
        return {
            side: SideCode(
                Files(self.trees[side].root, _modules(self.imports[side], self.followed[side])),
                self.followed[side],
            )
            for side in (BASE, HEAD)
        }

    @functools.cached_property
    def changes(self) -> Changes:
        """What differs."""
        return changes(self.sides, self.differing)

    def why(self, side: str, code: RunCode) -> str:
        """Return why a code object of a side may do something else; "" if it does not."""
        return self.changes.of_code(code, self.sides[side].files)

    def change(self, side: str, code: RunCode) -> tuple[str, bool]:
        """Return how a code object differs, and whether it does so itself.

        CHANGED, NEW or GONE, the other name of it that differs, or how it uses what differs. Empty
        if it does not differ.
        """
        function = (code.path, code.name)
        how = self.changes.functions.get(function, "")
        if function in self.changes.redefined and how:
            return (how if how in (NEW, GONE) else CHANGED), True
        if how:
            return f"has a definition that differs ({how})", False
        if name := self.changes.bound_anew.get(function):
            return f"{name} is defined by it and differs", True
        reason = self.why(side, code).removeprefix(f"runs {code.path}:{code.name}")
        if reason.startswith(" ("):
            return f"is of a class that differs {reason.strip()}", False
        if reason.startswith(" of "):
            return f"is{reason}", False
        return reason.removeprefix(", which ").removeprefix(", and ").strip(), False


def _modules(imports: Imports, followed: Followed) -> dict[str, str]:
    """Return the Python files that a side has imported, by the name of the module.

    A file that is no module any more, such as one of several conftest.py, has its path as name.
    """
    modules = {name: path for name, path in imports.files.items() if path.endswith(".py")}
    known = {*modules.values()}
    return modules | {code.path: code.path for code in followed.code if code.path not in known}
