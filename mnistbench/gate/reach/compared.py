"""The code of both sides, and what differs of it, compared when it is asked for."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mnistbench.gate.messages import Followed, RunCode
from mnistbench.gate.reach.differences import (
    CHANGED,
    Differences,
    changed_functions,
    changed_statements,
    differences,
    reasons_of,
)
from mnistbench.gate.reach.side_code import SideCode
from mnistbench.gate.reach.source import Kind
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

        CHANGED, NEW or GONE, the other name of it that differs, or which name that differs it uses.
        Empty if it does not differ.
        """
        function = (code.path, code.name)
        if how := self.differences.functions.get(function):
            if how != CHANGED or function in self._edited.functions:
                return how, True
            why = self.differences.definitions.why(code.name.rpartition(".")[2], code.path)
            return f"has a definition that differs ({why})" if why else how, not why
        if name := self._edited.renamed.get(function):
            return f"{name} is defined by it and differs", True
        reason = self.why(side, code).removeprefix(f"runs {code.path}:{code.name}")
        if reason.startswith("runs "):  # a lambda or comprehension of a function that differs
            return CHANGED, True
        return reason.removeprefix(", which ").removeprefix(", and ").strip(), False

    def why_affected(self, node_id: str) -> tuple[str, ...]:
        """Return why what a case runs and opens differs, without a limit of their number."""
        reasons: list[str] = []
        opened: set[str] = set()
        for name, side in self.sides.items():
            positions = side.followed.cases.get(node_id, ())
            codes = [side.followed.code[position] for position in positions]
            reasons += reasons_of(codes, {code: self.why(name, code) for code in codes})
            opened.update(side.followed.opened.get(node_id, ()))
        files = sorted(opened.intersection(self.differing))
        reasons += [f"reads {path} ({CHANGED})" for path in files]
        return tuple(dict.fromkeys([*reasons, *self.differences.everywhere]))

    def is_fixture(self, path: str, name: str) -> bool:
        """Whether a function of a file is a fixture of pytest, by its decorators."""
        return any(
            statement.defines == name
            and "fixture" in statement.words.names | statement.words.attributes
            for side in self.sides.values()
            if (source := side.source(path))
            for statement in source.statements
        )

    @functools.cached_property
    def _edited(self) -> _Edited:
        """What differs in the text of the files, and not only by what they use."""
        edited = _Edited()
        for path in filter(_is_python, self.differing):
            base, head = (self.sides[side].source(path) for side in (BASE, HEAD))
            if base is None or head is None:
                continue
            edited.functions.update((path, name) for name in changed_functions(base, head))
            for _, statement, _ in changed_statements(base, head):
                if statement.defines:
                    edited.functions.add((path, statement.defines))
                elif len(statement.names) == 1 and statement.kind is not Kind.IMPORT:
                    for used in statement.words.names:
                        edited.renamed.setdefault((path, used), statement.names[0])
        return edited


@dataclass
class _Edited:
    """What differs in the text of two trees. Functions are a path and a qualified name."""

    functions: set[tuple[str, str]] = field(default_factory=set)  # body, default or decorator
    # Function -> name that a statement such as ``f = cache(g)`` gives to what it makes of it.
    renamed: dict[tuple[str, str], str] = field(default_factory=dict)


def _is_python(path: str) -> bool:
    return path.endswith(".py")
