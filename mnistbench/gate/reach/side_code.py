"""A side's files, what their names hold, and what ran in them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from mnistbench.gate.messages import Followed, RunCode
from mnistbench.gate.reach.definitions import Source, Statement
from mnistbench.gate.reach.files import Files, Name


@dataclass(frozen=True)
class SideCode:
    """A side's files, and what ran in them."""

    files: Files
    followed: Followed

    def is_data(self, name: Name) -> bool:
        """Whether a name of a module is neither a function nor a class nor imported."""
        source = self.files.source(name.path)
        return bool(source) and name.name in _data(source)

    def binding(self, name: Name) -> list[Statement]:
        """Return the statements that bind a name of a module."""
        source = self.files.source(name.path)
        return [
            statement
            for statement in (source.statements if source else ())
            if name.name in statement.names and not (statement.scope or statement.is_head)
        ]

    def is_fixed(self, name: Name) -> bool:
        """Whether nothing changes the value of a name of a module, such as a text."""
        return self._is_fixed(name, frozenset())

    def _is_fixed(self, name: Name, seen: frozenset[Name]) -> bool:
        """Whether a value is fixed; that of a function, a class or an import is.

        What acts on one of these names it.
        """
        return name in seen or all(
            bool(statement.defines)
            or bool(statement.imported)
            or (statement.value.is_fixed and self._rest_is_fixed(name, statement, seen))
            for statement in self.binding(name)
        )

    def _rest_is_fixed(self, name: Name, statement: Statement, seen: frozenset[Name]) -> bool:
        resolved = (self.files.resolved(name.path, used) for used in statement.value.fixed_if)
        return all(used is None or self._is_fixed(used, seen | {name}) for used in resolved)

    def has_fixed_items(self, name: Name) -> bool:
        """Whether the value of a name of a module is a list, a dict or a set of fixed values."""
        return all(
            statement.value.has_fixed_items and self._rest_is_fixed(name, statement, frozenset())
            for statement in self.binding(name)
        )

    def is_object(self, name: Name) -> bool:
        """Whether the value of a name of a module is an object of a class of the tree."""
        return all(self._makes_object(name.path, statement) for statement in self.binding(name))

    def _makes_object(self, path: str, statement: Statement) -> bool:
        made_by = (
            self.files.resolved(path, statement.value.made_by) if statement.value.made_by else None
        )
        return made_by is not None and self._is_class(made_by, frozenset())

    def _is_class(self, name: Name, seen: frozenset[Name]) -> bool:
        """Whether a name is that of a class of the tree, perhaps imported from another module."""
        targets = (
            self.files.in_module(name.path, module, [imported])
            for statement in self.binding(name)
            for module, imported, _ in statement.imported
            if imported
        )
        return any(statement.is_class for statement in self.binding(name)) or any(
            target is not None and target not in seen and self._is_class(target, seen | {name})
            for target in targets
        )

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
