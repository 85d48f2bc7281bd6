"""The code of both sides, and what differs of it, compared when it is asked for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from mnistbench.core.compiled.compilation import CodePlace
from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.processes.messages import Followed, RunCode
from mnistbench.gate.processes.sides.stray import Imports
from mnistbench.gate.survey.reach.differences import (
    CHANGED,
    GONE,
    NEW,
    Differences,
    changed_functions,
    differences,
)
from mnistbench.gate.survey.reach.side_code import SideCode
from mnistbench.gate.survey.reach.source import Function, Kind, Source, Statement
from mnistbench.gate.words import BASE, HEAD, MODULE


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
    def loaded(self) -> frozenset[str]:
        """The compiled modules and the folders of namespace packages that a side has imported."""
        return frozenset(
            path
            for imports in self.imports.values()
            for path in imports.files.values()
            if not path.endswith(".py")
        )

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
        how = self.differences.functions.get(function, "")
        if how in (NEW, GONE) or function in self._edited.functions:
            return how or CHANGED, True
        if name := self._edited.renamed.get(function):
            return f"{name} is defined by it and differs", True
        if how:
            return self._what_is_used(side, code), False
        reason = self.why(side, code).removeprefix(f"runs {code.path}:{code.name}")
        if reason.startswith("runs "):  # a lambda or comprehension of a function
            around = reason.removeprefix(f"runs {code.path}:").removesuffix(f" ({CHANGED})")
            is_edited = (code.path, around) in self._edited.functions or around == reason
            return (CHANGED, True) if is_edited else ("", False)
        return reason.removeprefix(", which ").removeprefix(", and ").strip(), False

    def _what_is_used(self, side: str, code: RunCode) -> str:
        """Return which name that differs a function uses whose text does not differ; else "".

        It may be defined after something else has run than on the other side.
        """
        side_code = self.sides[side]
        source = side_code.source(code.path)
        for statement in source.statements if source else ():
            is_definition = statement.defines == code.name
            if is_definition and (
                used := self.differences.of_part(statement, code.path, side_code)
            ):
                return f"has a definition that differs ({used})"
        function = source.function(code.name, code.line) if source else None
        return self.differences.of_part(function, code.path, side_code) if function else ""

    def why_affected(self, node_id: str) -> tuple[str, ...]:
        """Return why what a case runs and opens differs, without a limit of their number."""
        reasons: list[str] = []
        opened: set[str] = set()
        for name, side in self.sides.items():
            for position in side.followed.cases.get(node_id, ()):
                code = side.followed.code[position]
                change, is_itself = self.change(name, code) if code.path else ("", False)
                if code.name == MODULE:
                    reasons.append(self.why(name, code))
                elif change:
                    how = f" ({change})" if is_itself else f", which {change}"
                    reasons.append(f"runs {code.path}:{code.name}{how}")
            opened.update(side.followed.opened.get(node_id, ()))
        files = sorted(opened.intersection(self.differing))
        reasons += [f"reads {path} ({CHANGED})" for path in files]
        return tuple(dict.fromkeys(filter(None, [*reasons, *self.differences.everywhere])))

    def is_edited(self, path: str, what: str) -> bool:
        """Whether the text of a function, or of the statement at a line, differs in a file."""
        return (path, what) in self._edited.functions or (path, what) in self._edited.lines

    def functions_of(self, side: str, path: str) -> set[str]:
        """Return the qualified names of the functions in a file of a side."""
        source = self.sides[side].source(path)
        return {function.name for function in source.functions} if source else set()

    def edits_only(self, path: str, is_in: Callable[[str], bool]) -> bool:
        """Whether a Python file differs in the text of functions of such names alone.

        Imports may differ as well.
        """
        base, head = (self.sides[side].source(path) for side in (BASE, HEAD))
        if base is None or head is None:
            return False
        statements = [
            statement
            for statement in _edited_statements(base, head)
            if not (statement.imported or (statement.defines and is_in(statement.defines)))
        ]
        return not statements and all(map(is_in, changed_functions(base, head)))

    def line_in_head(self, path: str, name: str) -> int:
        """Return the line of the first statement of a function that differs, in the head.

        The first line of the function if none does; 0 if the head has no such function.
        """
        of_base = self._functions(BASE, path, name)
        of_head = self._functions(HEAD, path, name)
        for base, head in itertools.zip_longest(of_base, of_head):
            if head is None:
                break
            if line := head.line if base is None else head.first_difference_to(base):
                return line
        return of_head[0].line if of_head else 0

    def _functions(self, side: str, path: str, name: str) -> list[Function]:
        """Return the functions of a name in a file of a side; those of a property are several."""
        source = self.sides[side].source(path)
        functions = source.functions if source else ()
        return [function for function in functions if function.name == name]

    def path_in_tree(self, side: str, place: CodePlace) -> str:
        """Return the file of a line of compiled code; "" if it is not known to be of the tree.

        Its path is relative to where pytest runs, or to where it is imported from.
        """
        tree = self.trees[side]
        files = self.sides[side].executed
        here = (tree.directory.relative_to(tree.root) / place.path).as_posix()
        if here in files:
            return here
        possible = [file for file in files if f"/{file}".endswith(f"/{place.path}")]
        return possible[0] if len(possible) == 1 else ""

    def is_edited_at(self, side: str, place: CodePlace) -> bool:
        """Whether the text of the function or the statement around a line differs."""
        path = self.path_in_tree(side, place)
        source = self.sides[side].source(path) if path else None
        if source is None:
            return False
        function = source.function_around(place.line)
        around = (
            [function.name]
            if function
            else [str(statement.line) for statement in source.statements_at(place.line)]
        )
        return any(self.is_edited(path, what) for what in around)

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
            for statement in _edited_statements(base, head):
                edited.lines.add((path, str(statement.line)))
                if statement.defines and not statement.is_class:
                    edited.functions.add((path, statement.defines))
                elif statement.kind in (Kind.VALUE, Kind.ACTION) and len(statement.names) == 1:
                    for used in statement.words.names:
                        edited.renamed.setdefault((path, used), statement.names[0])
        return edited


@dataclass
class _Edited:
    """What differs in the text of two trees. Functions are a path and a qualified name."""

    functions: set[tuple[str, str]] = field(default_factory=set)  # body, default or decorator
    lines: set[tuple[str, str]] = field(default_factory=set)  # of statements: path and line
    # Function -> name that a statement such as ``f = cache(g)`` gives to what it makes of it.
    renamed: dict[tuple[str, str], str] = field(default_factory=dict)


def _edited_statements(base: Source, head: Source) -> Iterator[Statement]:
    """Yield the statements of each file whose text the other one does not have in their scope."""
    texts = [
        {(statement.scope, statement.content) for statement in source.statements}
        for source in (base, head)
    ]
    for source, others in ((base, texts[1]), (head, texts[0])):
        for statement in source.statements:
            if (statement.scope, statement.content) not in others:
                yield statement


def _is_python(path: str) -> bool:
    return path.endswith(".py")
