"""The files of a side that its survey has executed, and what ran in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mnistbench.gate.processes.messages import Followed, RunCode
from mnistbench.gate.survey.reach.source import LISTING_WORDS, WORD, Kind, Source, Statement, read
from mnistbench.gate.words import MODULE

_STAR_IMPORT = re.compile(r"\bimport\s*\*")


@dataclass(frozen=True, eq=False)
class SideCode:
    """A side's files, read when they are asked for."""

    root: Path  # of the tree
    # Python files that the process has imported, relative to the tree.
    imported: frozenset[str]
    followed: Followed

    @functools.cached_property
    def _in_tests(self) -> frozenset[str]:
        """The files that tests have executed."""
        return frozenset(
            self.followed.code[position].path
            for positions in self.followed.cases.values()
            for position in positions
            if self.followed.code[position].name == MODULE
        )

    @functools.cached_property
    def executed(self) -> frozenset[str]:
        """The files that were executed, relative to the tree."""
        # Code of other files, such as templates, counts as what is read.
        return self.imported | {
            code.path for code in self.followed.code if code.path.endswith(".py")
        }

    @functools.cached_property
    def order(self) -> tuple[str, ...]:
        """The files that were executed outside of tests, in this order."""
        return tuple(
            code.path
            for code in map(self.followed.code.__getitem__, self.followed.outside)
            if code.name == MODULE
        )

    @functools.cached_property
    def executed_outside(self) -> frozenset[str]:
        """The files that were executed outside of tests, some before calls were followed."""
        return frozenset((*self.order, *(self.executed - self._in_tests)))

    def ran_outside(self) -> Iterator[RunCode]:
        """Yield the code that ran outside of tests."""
        return map(self.followed.code.__getitem__, self.followed.outside)

    # ---- Files -----------------------------------------------------------------------------------

    @functools.cached_property
    def _sources(self) -> dict[str, Source | None]:
        return {}

    @functools.cached_property
    def _classes_of_files(self) -> dict[str, Mapping[str, Statement]]:
        return {}

    @functools.cached_property
    def _words(self) -> dict[str, frozenset[str]]:
        return {}

    def source(self, path: str) -> Source | None:
        """Return what a file defines: nothing if it does not exist, None if it cannot be read."""
        if path not in self._sources:
            self._sources[path] = self._read(path)
        return self._sources[path]

    def _read(self, path: str) -> Source | None:
        try:
            return read((self.root / path).read_bytes())
        except FileNotFoundError:
            return Source()
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None

    def words(self, path: str) -> frozenset[str]:
        """Return all words of a file, of which its parts have some; * of a star import."""
        if path not in self._words:
            try:
                text = (self.root / path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = ""
            star = ("*",) if _STAR_IMPORT.search(text) else ()
            self._words[path] = frozenset((*WORD.findall(text), *star))
        return self._words[path]

    def may_mention(self, path: str, names: Collection[str]) -> bool:
        """Whether one of these names may occur in a file, so that its parts have to be read."""
        words = self.words(path)
        return bool(names) and not (words.isdisjoint(names) and words.isdisjoint(LISTING_WORDS))

    # ---- What statements do ----------------------------------------------------------------------

    @functools.cached_property
    def _acting_lines(self) -> Mapping[str, frozenset[int]]:
        lines: dict[str, set[int]] = {}
        for path, line in self.followed.acting:
            lines.setdefault(path, set()).add(line)
        return {path: frozenset(own) for path, own in lines.items()}

    def has_run_code_at(self, path: str, statement: Statement) -> bool:
        """Whether functions of the tree ran while a statement was executed."""
        lines = range(statement.line, statement.last_line + 1)
        return any(line in lines for line in self._acting_lines.get(path, ()))

    def are_plain(self, path: str, classes: Iterable[str]) -> bool:
        """Whether classes of a differing file are made by ``type`` alone."""
        plain = self.followed.plain_classes.get(path, ())
        return all(name in plain for name in classes)

    def has_effects(self, path: str, statement: Statement) -> bool:
        """Whether a statement may have another effect than to bind its names."""
        if statement.kind is Kind.ACTION or self.has_run_code_at(path, statement):
            return True
        classes = [*classes_around(statement.scope)]
        definitions = filter(None, map(self._classes(path).get, classes))
        if any(
            definition.kind is Kind.ACTION or self.has_run_code_at(path, definition)
            for definition in definitions
        ):
            return True  # a decorator, or an object of the class, may read it
        if statement.kind is Kind.CLASS:
            classes.append(statement.defines)
        # Else the metaclass or a base class may read it.
        return not self.are_plain(path, classes)

    def _classes(self, path: str) -> Mapping[str, Statement]:
        """Return the definitions of the classes of a file, by qualified names."""
        if path not in self._classes_of_files:
            source = self.source(path)
            self._classes_of_files[path] = {
                statement.defines: statement
                for statement in (source.statements if source else ())
                if statement.is_class
            }
        return self._classes_of_files[path]

    def acts(self, path: str) -> bool:
        """Whether the import of a file may have an effect on other files."""
        source = self.source(path)
        return source is None or any(
            self.has_effects(path, statement) for statement in source.statements
        )

    @functools.cached_property
    def star_imports(self) -> frozenset[str]:
        """The files that import all names of another one, and so have them as their own."""
        return frozenset(path for path in self.executed if "*" in self.words(path))

    def has_star_import(self, path: str) -> bool:
        """Whether a file may have names of other files as its own."""
        return path in self.star_imports

    def is_from_outside(self, module: str) -> bool:
        """Whether a module, as an import names it, is not one of the tree."""
        return module.partition(".")[0] in self.followed.outside_packages


def classes_around(scope: str) -> Iterator[str]:
    """Yield the qualified names of a class and of those around it: ``A.B`` and ``A``."""
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]
