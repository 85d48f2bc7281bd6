"""A side's files, what its names mean, and what ran in them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mnistbench.gate.messages import Followed, RunCode
from mnistbench.gate.reach.definitions import Source, Statement
from mnistbench.gate.reach.files import Files


class Name(NamedTuple):
    """A name that a module or a class of it defines."""

    path: str  # of the file, relative to the tree
    scope: str  # qualified name of the class; empty of the module
    name: str


@dataclass(frozen=True)
class SideCode:
    """A side's files, and what ran in them."""

    files: Files
    followed: Followed

    def resolved(self, path: str, chain: str) -> Name | None:
        """Return the name of the tree that ``a.b.c`` in a file begins with.

        "" as name for a module itself; None if ``a`` is imported from outside of the tree.
        """
        root, *attributes = chain.split(".")
        source = self.files.source(path)
        for statement in source.statements if source else ():
            if statement.scope or root not in statement.names:
                continue
            for module, name, bound in statement.imported:
                if bound == root:
                    return self.in_module(path, module, [*filter(None, [name]), *attributes])
        return Name(path, "", root)

    def in_module(self, path: str, module: str, names: Sequence[str]) -> Name | None:
        """Return the name that an attribute of a module is, perhaps of a submodule."""
        for name in names:
            submodule = f"{module}{'' if module.endswith('.') else '.'}{name}"
            if not self.files.imported_path(path, submodule):
                target = self.files.imported_path(path, module)
                return Name(target, "", name) if target else None
            module = submodule
        return Name(self.files.imported_path(path, module), "", "")

    def is_data(self, name: Name) -> bool:
        """Whether a name of a module is neither a function nor a class nor imported."""
        source = self.files.source(name.path)
        return bool(source) and name.name in _data(source)

    def binds(self, name: Name) -> bool:
        """Whether a statement of a module binds a name."""
        source = self.files.source(name.path)
        return any(
            name.name in statement.names and statement.scope == name.scope
            for statement in (source.statements if source else ())
        )

    def run_under(self, path: str, statement: Statement) -> Iterator[RunCode]:
        """Yield the code that ran while a statement was executed at the import of a file."""
        for position, under, line in self.followed.imported:
            if under == path and statement.line <= line <= statement.last_line:
                yield self.followed.code[position]


@functools.cache
def _data(source: Source) -> frozenset[str]:
    """Return the names of a module that are neither functions nor classes nor imported."""
    definitions = {
        name
        for statement in source.statements
        if statement.defines or statement.imported
        for name in statement.names
    }
    return frozenset(
        name
        for statement in source.statements
        if not (statement.scope or statement.defines or statement.imported)
        for name in statement.names
        if not statement.is_head or name not in definitions
    )
