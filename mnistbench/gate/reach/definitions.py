"""What a Python file defines, in parts whose content can be compared between two trees.

A file is divided into the statements that run when it is imported (of the module and of its
classes; an import of several names is several) and into the functions, whose bodies run later. The
content of a part is its syntax without comments, docstrings, line numbers and unused annotations;
of a function without the bodies of the functions in it, which are parts of their own.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mnistbench.gate.reach.expressions import NO_VALUE, Value, called, last_name, value_of
from mnistbench.gate.reach.parts import Part, Uses, is_empty

#: Name of the code of a module.
MODULE = "<module>"

#: Names of decorators of functions whose Python code does not run at each call, because results
#: are kept or because it is compiled.
OPAQUE_DECORATORS = re.compile(
    "cache|cfunc|compile|jit|lazy|memo|once|reify|script|stencil|vectorize", re.IGNORECASE
)


@dataclass(frozen=True)
class Function:
    """A function of a file: its parameters and its body."""

    name: str  # qualified, as in ``__qualname__``
    line: int  # of its first decorator, as in ``co_firstlineno``
    last_line: int
    content: str
    uses: Uses
    is_opaque: bool = False  # a decorator keeps its results or compiles it
    # What it calls for its effects or whose items and attributes it sets: ``a.b`` of
    # ``a.b[0] = 1`` and of ``a.b.append(1)``; of a constructor without its own object.
    acts_on: frozenset[str] = frozenset()
    global_names: frozenset[str] = frozenset()  # of its ``global`` statements
    # Names whose objects it binds, passes or returns, so that they may be changed elsewhere.
    lends: frozenset[str] = frozenset()
    lends_items: frozenset[str] = (
        frozenset()
    )  # names over which it iterates, or whose items it uses
    calls: frozenset[str] = frozenset()  # names that it calls, or methods of which it calls
    # Of all these what later calls may find: objects of the module, global names, and attributes
    # that it tests before it sets them.
    keeps: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Statement:
    """A statement that runs at the import of a file.

    Of a function or a class it is what runs at its definition: decorators, defaults, bases.
    """

    scope: str  # qualified name of the class that it is in; empty in the module
    names: tuple[str, ...]  # that it binds
    line: int
    last_line: int
    content: str
    uses: Uses
    defines: str = ""  # qualified name of the function or the class
    is_class: bool = False
    # Of the names that it imports: (module, name, bound name).
    imported: tuple[tuple[str, str, str], ...] = ()
    # What it calls for its effects or whose items and attributes it sets, as of a function.
    acts_on: frozenset[str] = frozenset()
    # Objects whose methods it calls for the result, and attributes that it passes to a function.
    passes: frozenset[str] = frozenset()
    value: Value = NO_VALUE
    # Whether it is the head of an ``if`` or a ``try``, which decides what its names are.
    is_head: bool = False
    # Whether its class has bases, keywords or decorators, which may read its attributes.
    is_read_by_class: bool = False
    is_decorated: bool = False


@dataclass(frozen=True)
class Source:
    """A file."""

    functions: tuple[Function, ...]
    statements: tuple[Statement, ...]

    def function(self, name: str, line: int) -> Function | None:
        """Return the function of a code object; that around it for a lambda or comprehension."""
        exact = [
            function
            for function in self.functions
            if function.name == name and function.line == line
        ]
        if exact:
            return exact[0]
        if not name.rpartition(".")[2].startswith("<"):
            return None
        around = [
            function for function in self.functions if function.line <= line <= function.last_line
        ]
        return max(around, key=lambda function: function.line, default=None)

    def statements_at(self, line: int) -> list[Statement]:
        """Return the innermost statements of a line; of a class body those of the class."""
        spanning = [
            statement
            for statement in self.statements
            if statement.line <= line <= statement.last_line
        ]
        deepest = max((_depth(statement.scope) for statement in spanning), default=0)
        return [statement for statement in spanning if _depth(statement.scope) == deepest]


def _depth(scope: str) -> int:
    return scope.count(".") + 1 if scope else 0


def read(text: str | bytes) -> Source:
    """Return what a file defines.

    Raises:
        SyntaxError: this version of Python cannot read it.
        ValueError: the file has a null byte.
    """
    reader = _SourceReader()
    reader.block(ast.parse(text).body, "", "")
    return Source(tuple(reader.functions), tuple(_with_versions(reader.statements)))


def _with_versions(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Add to the content of a statement which of several values of a name it uses."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for statement in statements:
        totals[statement.scope].update(statement.names)
    bound: dict[str, Counter[str]] = defaultdict(Counter)
    for statement in statements:
        of_scope = bound[statement.scope]
        versions = [
            f"{name}{of_scope[name]}"
            for name in sorted(statement.uses.names)
            if totals[statement.scope][name] > 1
        ]
        of_scope.update(statement.names)
        content = _digest([statement.content, *versions]) if versions else statement.content
        yield replace(statement, content=content)


class _SourceReader:
    """Divides the blocks of a module and of its classes into parts."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.statements: list[Statement] = []

    def block(
        self,
        body: Iterable[ast.stmt],
        scope: str,
        conditions: str,
        *,
        is_read_by_class: bool = False,
    ) -> None:
        """Add the statements of a block; under conditions, which belong to their content."""
        for node in body:
            if isinstance(node, ast.If):
                self._branches(node, scope, conditions, is_read_by_class)
            elif isinstance(node, ast.Try | ast.TryStar):
                self._attempts(node, scope, conditions, is_read_by_class)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    single = copy.copy(node)
                    single.names = [alias]
                    self._statement(single, scope, conditions, is_read_by_class)
            elif not is_empty(node):
                self._statement(node, scope, conditions, is_read_by_class)

    def _branches(self, node: ast.If, scope: str, conditions: str, is_read_by_class: bool) -> None:
        test = _text(node.test)
        condition = f"{conditions};if {test}"
        first = len(self.statements)
        is_for_checkers = _is_for_checkers(node.test)
        if not is_for_checkers:
            self.block(node.body, scope, condition, is_read_by_class=is_read_by_class)
        self.block(node.orelse, scope, f"{condition} else", is_read_by_class=is_read_by_class)
        if not is_for_checkers:
            self._head([node.test], first, scope, is_read_by_class)

    def _attempts(
        self, node: ast.Try | ast.TryStar, scope: str, conditions: str, is_read_by_class: bool
    ) -> None:
        first = len(self.statements)
        blocks = [
            (node.body, "try"),
            (node.orelse, "else"),
            (node.finalbody, "finally"),
            *((caught.body, _text(caught.type)) for caught in node.handlers),
        ]
        for inner, condition in blocks:
            self.block(inner, scope, f"{conditions};{condition}", is_read_by_class=is_read_by_class)
        # Whether one of its statements raises an exception decides about the names of all.
        self._head(node.body, first, scope, is_read_by_class)

    def _head(
        self, nodes: Sequence[ast.AST], first: int, scope: str, is_read_by_class: bool
    ) -> None:
        """Add a statement for what decides which of the statements since ``first`` run."""
        part = Part("", keeps_annotations=True)
        for node in nodes:
            part.visit(node)
        names = {name for statement in self.statements[first:] for name in statement.names}
        self.statements.append(
            Statement(
                scope=scope,
                names=tuple(sorted(names)),
                line=min(getattr(node, "lineno", 0) for node in nodes),
                last_line=max(getattr(node, "end_lineno", None) or 0 for node in nodes),
                content="",  # that of the statements has it
                uses=part.uses(frozenset()),
                is_read_by_class=is_read_by_class,
                is_head=True,
            )
        )

    def _statement(
        self, node: ast.stmt, scope: str, conditions: str, is_read_by_class: bool
    ) -> None:
        prefix = f"{scope}." if scope else ""
        part = Part(prefix, keeps_annotations=bool(scope))
        if isinstance(node, ast.ClassDef):
            part.add_class_head(node)
        else:
            part.visit(node)
        defines = ""
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defines = f"{prefix}{node.name}"
        self.statements.append(
            Statement(
                scope=scope,
                names=tuple(sorted(part.bound)),
                line=_first_line(node),
                last_line=node.end_lineno or node.lineno,
                content=_digest([conditions, *part.texts]),
                uses=part.uses(frozenset()),
                defines=defines,
                is_class=isinstance(node, ast.ClassDef),
                imported=tuple(part.imported),
                acts_on=frozenset(part.acted_on | part.arguments),
                passes=frozenset(part.passed - part.acted_on),
                value=value_of(node),
                is_read_by_class=is_read_by_class,
                is_decorated=bool(getattr(node, "decorator_list", ())),
            )
        )
        if isinstance(node, ast.ClassDef):
            self.block(
                node.body,
                defines,
                conditions,
                is_read_by_class=bool(node.bases or node.keywords or node.decorator_list),
            )
        self._add_functions(part, frozenset())

    def _add_functions(self, part: Part, enclosing: frozenset[str]) -> None:
        """Add the functions that a part defines, and those in them."""
        for node, name in part.definitions:
            inner = Part(f"{name}.<locals>.", keeps_annotations=False)
            inner.add_function(node)
            own = frozenset(inner.bound - inner.declared_global)
            effects = inner.effects(node)
            self.functions.append(
                Function(
                    name=name,
                    line=_first_line(node),
                    last_line=node.end_lineno or node.lineno,
                    content=_digest(inner.texts),
                    uses=inner.uses(own | enclosing),
                    is_opaque=any(
                        OPAQUE_DECORATORS.search(last_name(called(decorator)))
                        for decorator in node.decorator_list
                    ),
                    acts_on=effects,
                    global_names=frozenset(inner.declared_global),
                    lends=frozenset(inner.lent - own - enclosing),
                    lends_items=frozenset(inner.items_lent - own - enclosing),
                    calls=frozenset(inner.called - own - enclosing),
                    keeps=inner.kept(effects, own | enclosing),
                )
            )
            self._add_functions(inner, own | enclosing)


def _is_for_checkers(test: ast.expr) -> bool:
    """Whether a condition is false when the file is imported."""
    if last_name(test) == "TYPE_CHECKING":
        return True
    is_comparison = isinstance(test, ast.Compare) and len(test.comparators) == 1
    return is_comparison and _text(test) in _MAIN_TESTS


def _text(node: ast.AST | None) -> str:
    return ast.dump(node) if node is not None else ""


#: ``if __name__ == "__main__"``, both ways round.
_MAIN_TESTS = frozenset(
    _text(ast.parse(text, mode="eval").body)
    for text in ('__name__ == "__main__"', '"__main__" == __name__')
)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
