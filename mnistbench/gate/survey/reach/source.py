"""What a Python file defines, in parts that can be compared between two trees.

A file is divided into the statements that run when it is imported (those of the module and of its
classes; an import of several names is several) and into its functions, whose bodies run later. A
part has the hash of its syntax, and the words in it: identifiers, attributes and words of texts.
Formatting, comments, docstrings and annotations of functions belong to no part.
"""

from __future__ import annotations

import ast
import copy
import enum
import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mnistbench.gate.words import MODULE

#: An identifier, in code or inside a text.
WORD = re.compile(r"[^\W\d]\w*")

#: Functions that list the names or classes of an object, so that any name may be meant.
_LISTING = frozenset(
    {"attrgetter", "dir", "getattr_static", "getmembers", "globals", "locals", "vars"}
)
_LISTING_ATTRIBUTES = frozenset({"__dict__", "__getattribute__", "__subclasses__"})

#: Decorators of the standard library, pytest and attrs that keep no list of what they decorate, and
#: change nothing else.
_TRANSPARENT = frozenset(
    {
        "abc.abstractmethod",
        "attr.attrs",
        "attr.define",
        "attr.dataclass",
        "attr.frozen",
        "attr.s",
        "attrs.define",
        "attrs.frozen",
        "classmethod",
        "contextlib.asynccontextmanager",
        "contextlib.contextmanager",
        "dataclasses.dataclass",
        "enum.unique",
        "functools.cache",
        "functools.cached_property",
        "functools.lru_cache",
        "functools.total_ordering",
        "functools.wraps",
        "property",
        "pytest.fixture",
        "staticmethod",
        "typing.final",
        "typing.overload",
        "typing.override",
        "typing.runtime_checkable",
        "typing_extensions.final",
        "typing_extensions.overload",
        "typing_extensions.override",
        "typing_extensions.runtime_checkable",
    }
)
_PYTEST_MARK = "pytest.mark."
_PROPERTY_PARTS = frozenset({"deleter", "getter", "setter"})

#: Calls whose only effect is their value. What they call of the tree is seen by the survey.
_MAKING_VALUES = frozenset(
    {
        "abs",
        "bool",
        "bytes",
        "chr",
        "collections.namedtuple",
        "complex",
        "datetime.timedelta",
        "decimal.Decimal",
        "dict",
        "float",
        "frozenset",
        "functools.partial",
        "int",
        "len",
        "list",
        "logging.getLogger",
        "max",
        "min",
        "object",
        "ord",
        "pathlib.Path",
        "pathlib.PurePath",
        "range",
        "re.compile",
        "repr",
        "round",
        "set",
        "slice",
        "sorted",
        "str",
        "sum",
        "threading.Lock",
        "threading.RLock",
        "threading.local",
        "tuple",
        "typing.NewType",
        "typing.ParamSpec",
        "typing.TypeVar",
        "typing.TypeVarTuple",
        "typing_extensions.TypeVar",
    }
)

#: Of these what goes through the items of its argument.
_TAKING_ITEMS = frozenset(
    {"dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple"}
)

#: What takes parameters in brackets.
_GENERIC_TYPES = frozenset({"dict", "frozenset", "list", "set", "tuple", "type"})
_TYPING = ("collections.abc.", "typing.", "typing_extensions.")

#: Syntax that computes a value and changes nothing, if no code of the tree runs in it.
_VALUES = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.Constant,
    ast.Dict,
    ast.DictComp,
    ast.FormattedValue,
    ast.GeneratorExp,
    ast.IfExp,
    ast.JoinedStr,
    ast.Lambda,
    ast.List,
    ast.ListComp,
    ast.Name,
    ast.Set,
    ast.SetComp,
    ast.Slice,
    ast.Starred,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
    # Parts of these.
    ast.arg,
    ast.arguments,
    ast.boolop,
    ast.cmpop,
    ast.comprehension,
    ast.expr_context,
    ast.keyword,
    ast.operator,
    ast.unaryop,
)


_Described = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


#: Words of a file that may list names.
LISTING_WORDS = _LISTING | _LISTING_ATTRIBUTES


class Kind(enum.Enum):
    """What a statement does when its file is imported."""

    FUNCTION = enum.auto()  # defines one, which nothing gets but its name
    CLASS = enum.auto()  # defines one, without decorators that may keep it and without keywords
    IMPORT = enum.auto()
    VALUE = enum.auto()  # binds names to a value, and has no other effect
    ACTION = enum.auto()  # anything else: a call, a registration, a loop


@dataclass(frozen=True)
class Words:
    """What code mentions."""

    names: frozenset[str] = frozenset()  # of its own module, its own variables among them
    # What may be a name of any object or module: attributes, keywords, words of texts.
    attributes: frozenset[str] = frozenset()
    # Those of both kinds that it does not only call.
    used: frozenset[str] = frozenset()
    lists_names: bool = False  # of objects

    def without(self, names: Collection[str]) -> Words:
        """Return the words without some."""
        return replace(
            self,
            names=self.names.difference(names),
            attributes=self.attributes.difference(names),
            used=self.used.difference(names),
        )


@dataclass(frozen=True, eq=False)
class Part:
    """A piece of code. Its content and words are computed when they are asked for."""

    node: ast.AST
    scope: str  # qualified name of the class or function that it is in; empty in the module
    line: int  # the first one, of its decorators
    last_line: int

    @functools.cached_property
    def content(self) -> str:
        """Return the hash of its syntax."""
        raise NotImplementedError

    @functools.cached_property
    def words(self) -> Words:
        """Return what it mentions."""
        return _words(self.node, self.scope)


@dataclass(frozen=True, eq=False)
class Function(Part):
    """A function of a file: its parameters and its body, without the functions in it."""

    name: str  # qualified, as in ``__qualname__``

    @functools.cached_property
    def _body(self) -> ast.Module:
        assert isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef)
        return ast.Module(_without_inner_bodies(self.node), [])

    @functools.cached_property
    def content(self) -> str:
        """Return the hash of parameters and body."""
        assert isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef)
        arguments = self.node.args
        parameters = [argument.arg for argument in _parameters(arguments)]
        counts = f"{len(arguments.posonlyargs)} {len(arguments.kwonlyargs)}"
        return _digest([type(self.node).__name__, *parameters, counts, _dump(self._body)])

    @functools.cached_property
    def words(self) -> Words:
        """Return what its body mentions."""
        return _words(self._body, self.scope)

    @functools.cached_property
    def syntax_and_lines(self) -> tuple[tuple[str, int], ...]:
        """The syntax of each decorator, of the parameters and of each statement, and its line."""
        assert isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef)
        parameters = _dump(_without_annotations(copy.deepcopy(self.node.args)))
        return (
            *((_dump(decorator), decorator.lineno) for decorator in self.node.decorator_list),
            (f"{type(self.node).__name__} {parameters}", self.node.lineno),
            *_statements_in("body", self._body.body),
        )

    def first_difference_to(self, base: Function) -> int:
        """Return the line of the first part that the base does not have in its place.

        The last line of all if the base has more parts; 0 if nothing differs.
        """
        pairs = itertools.zip_longest(base.syntax_and_lines, self.syntax_and_lines)
        for of_base, own in pairs:
            if own is None:
                return self.syntax_and_lines[-1][1]
            if of_base is None or of_base[0] != own[0]:
                return own[1]
        return 0


@dataclass(frozen=True, eq=False)
class Statement(Part):
    """A statement that runs at the import of a file.

    Of a function or a class it is what runs at its definition: decorators, defaults, bases.
    """

    kind: Kind
    names: tuple[str, ...]  # that it binds; ("*",) of a star import
    conditions: str  # for it to run
    defines: str = ""  # qualified name of the function or the class
    imported: str = ""  # the module, with leading dots
    takes: str = ""  # which name of it
    attempts: tuple[int, ...] = ()  # numbers of the ``try`` statements that it is in
    actions_before: int = 0  # statements of this kind that run before it
    # Of the names that the file binds more than once: how often it has bound them before.
    bound_before: tuple[tuple[str, int], ...] = ()

    @functools.cached_property
    def content(self) -> str:
        """Return the hash of its syntax and conditions."""
        return _digest([self.conditions, _dump(self.node)])

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def key(self) -> tuple[object, ...]:
        """Content, and what before it its effect depends on, if it uses names."""
        loaded = {
            inner.id
            for inner in ast.walk(self.node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
        }
        uses_names = bool(loaded) or self.kind is Kind.IMPORT
        versions = [pair for pair in self.bound_before if pair[0] in loaded]
        return self.content, self.actions_before if uses_names else 0, *versions

    @functools.cached_property
    def words(self) -> Words:
        """Return what it mentions beside the function or class that it defines."""
        words = _words(self.node, "")
        return words.without(self.names) if self.defines else words


@dataclass(frozen=True)
class Source:
    """A file."""

    functions: tuple[Function, ...] = ()
    statements: tuple[Statement, ...] = ()
    # What has a docstring or annotations, with its qualified name.
    descriptions: tuple[tuple[str, _Described], ...] = ()
    postpones_annotations: bool = False  # by ``from __future__ import annotations``

    def described(self, what: str) -> dict[str, list[str]]:
        """Return the docstrings, or the annotations of functions, by qualified names."""
        texts: dict[str, list[str]] = {}
        for name, node in self.descriptions:
            own = texts.setdefault(name, [])
            if what == "docstring":
                own.append(ast.get_docstring(node, clean=False) or "")
            elif isinstance(node, ast.Module):
                own += [
                    _dump(one.annotation) for one in node.body if isinstance(one, ast.AnnAssign)
                ]
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                annotations = [argument.annotation for argument in _parameters(node.args)]
                annotations = [*annotations, node.returns]
                own += map(_dump, annotations)
                own.append(f"{self.postpones_annotations and any(annotations)}")
        return texts

    def function(self, name: str, line: int) -> Function | None:
        """Return the function of a code object; that around it for a lambda or comprehension."""
        for function in self.functions:
            if function.name == name and function.line == line:
                return function
        is_named = not name.rpartition(".")[2].startswith("<")
        return None if is_named else self.function_around(line)

    def function_around(self, line: int) -> Function | None:
        """Return the innermost function that has a line; None outside of functions."""
        around = [
            function for function in self.functions if function.line <= line <= function.last_line
        ]
        return max(around, key=lambda function: function.line, default=None)

    def statements_at(self, line: int) -> list[Statement]:
        """Return the statements of a line, without the classes around the innermost ones."""
        spanning = [
            statement
            for statement in self.statements
            if statement.line <= line <= statement.last_line
        ]
        deepest = max((_depth(statement.scope) for statement in spanning), default=0)
        return [statement for statement in spanning if _depth(statement.scope) == deepest]


def _depth(scope: str) -> int:
    return scope.count(".") + 1 if scope else 0


@functools.lru_cache(maxsize=4096)  # most files are equal on both sides
def read(text: str | bytes) -> Source:
    """Return what a file defines.

    Raises:
        SyntaxError: this version of Python cannot read it.
        ValueError: the file has a null byte.
    """
    tree = ast.parse(text)
    reader = _Divider(_imported_names(tree))
    reader.described.append((MODULE, tree))
    reader.block(tree.body, "", "")
    statements = tuple(_with_versions(reader.statements))
    return Source(
        tuple(reader.functions), statements, tuple(reader.described), reader.postpones_annotations
    )


def _with_versions(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Add to statements how often names that are bound repeatedly were bound before them.

    A star import may bind any name.
    """
    bound = Counter(name for statement in statements for name in statement.names)
    repeated = {name for name, count in bound.items() if count > 1 or "*" in bound}
    before = Counter[str]()
    for statement in statements:
        pairs = tuple((name, before[name] + before["*"]) for name in sorted(repeated))
        before.update(statement.names)
        yield replace(statement, bound_before=pairs) if pairs else statement


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Return what the names of a module stand for that it imports from outside of its package."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}"
            for alias in node.names:
                names[alias.asname or alias.name] = f"{module}.{alias.name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = ""
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names[node.id] = ""
    return names


class _Divider:
    """Divides the blocks of a module and of its classes into parts."""

    def __init__(self, imported: Mapping[str, str]) -> None:
        self._imported = imported
        self._actions = 0  # before this statement
        self._attempt_count = 0
        self._in_attempts: list[int] = []
        self.postpones_annotations = "__future__.annotations" in imported.values()
        self.functions: list[Function] = []
        self.statements: list[Statement] = []
        self.described: list[tuple[str, _Described]] = []

    # ---- Statements ------------------------------------------------------------------------------

    def block(self, body: Iterable[ast.stmt], scope: str, conditions: str) -> None:
        """Add the statements of a block; the conditions for it to run belong to their content."""
        for node in body:
            if isinstance(node, ast.If):
                self._branches(node, scope, conditions)
            elif isinstance(node, ast.Try | ast.TryStar):
                self._attempts(node, scope, conditions)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    single = copy.copy(node)
                    single.names = [alias]
                    self._add(single, Kind.IMPORT, scope, conditions)
            elif isinstance(node, ast.ClassDef):
                self._class(node, scope, conditions)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._definition(node, scope, conditions)
            elif not _is_empty(node):
                kind = Kind.VALUE if self._binds_a_value(node) else Kind.ACTION
                self._add(node, kind, scope, conditions)
                self._inner_functions(node, _prefix(scope))

    def _attempts(self, node: ast.Try | ast.TryStar, scope: str, conditions: str) -> None:
        self._attempt_count += 1
        self._in_attempts.append(self._attempt_count)
        self.block(node.body, scope, f"{conditions};try")
        for caught in node.handlers:
            if caught.type:
                self._condition(caught.type, scope, conditions)
            self.block(caught.body, scope, f"{conditions};{_dump(caught.type)}")
        self.block(node.orelse, scope, f"{conditions};else")
        self.block(node.finalbody, scope, f"{conditions};finally")
        self._in_attempts.pop()

    def _branches(self, node: ast.If, scope: str, conditions: str) -> None:
        condition = f"{conditions};if {_dump(node.test)}"
        if not self._is_false_at_import(node.test):
            self._condition(node.test, scope, conditions)
            self.block(node.body, scope, condition)
        self.block(node.orelse, scope, f"{condition} else")

    def _condition(self, node: ast.expr, scope: str, conditions: str) -> None:
        """Add what decides which statements run."""
        kind = Kind.VALUE if self._is_value(node) else Kind.ACTION
        self._add(ast.Expr(node), kind, scope, conditions, place=node)
        self._inner_functions(node, _prefix(scope))

    def _is_false_at_import(self, test: ast.expr) -> bool:
        """Whether a condition is one for type checkers, or for running the file as a script."""
        return self._full_name(test) == "typing.TYPE_CHECKING" or _dump(test) in _MAIN_TESTS

    def _class(self, node: ast.ClassDef, scope: str, conditions: str) -> None:
        name = f"{_prefix(scope)}{node.name}"
        has_effects = node.keywords or not (
            all(map(self._is_transparent, node.decorator_list))
            and all(map(self._is_value, node.bases))
        )
        head = copy.copy(node)
        head.body = []
        kind = Kind.ACTION if has_effects else Kind.CLASS
        self._add(head, kind, scope, conditions, place=node, defines=name)
        self.described.append((name, node))
        self.block(node.body, name, conditions)

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: str, conditions: str
    ) -> None:
        name = f"{_prefix(scope)}{node.name}"
        is_transparent = all(map(self._is_transparent, node.decorator_list))
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        has_effects = not (is_transparent and all(map(self._is_value, defaults)))
        head = copy.copy(node)
        head.body = []
        if is_transparent:  # another decorator may read annotations
            head.returns = None
            head.args = _without_annotations(node.args)
        kind = Kind.ACTION if has_effects else Kind.FUNCTION
        is_postponed = self.postpones_annotations and not is_transparent
        own_conditions = f"{conditions};postponed" if is_postponed else conditions
        self._add(head, kind, scope, own_conditions, place=node, defines=name)
        self._function(node, name)

    def _add(
        self,
        node: ast.stmt,
        kind: Kind,
        scope: str,
        conditions: str,
        *,
        place: ast.AST | None = None,
        defines: str = "",
    ) -> None:
        place = place or node
        if self.postpones_annotations and scope and isinstance(node, ast.AnnAssign):
            conditions = f"{conditions};postponed"
        last_line = getattr(place, "end_lineno", None) or _first_line(place)
        if isinstance(place, ast.ClassDef):  # its body is statements of their own
            last_line = max(place.lineno, place.body[0].lineno - 1)
        # Annotations of a class are read by decorators and bases.
        stripped = node if scope else _without_annotation(node)
        self.statements.append(
            Statement(
                node=stripped,
                scope=scope,
                line=_first_line(place),
                last_line=last_line,
                kind=kind,
                names=(defines.rpartition(".")[2],) if defines else _bound(node),
                conditions=conditions,
                defines=defines,
                imported=_module(node),
                takes=node.names[0].name if isinstance(node, ast.ImportFrom) else "",
                attempts=tuple(self._in_attempts),
                actions_before=self._actions,
            )
        )
        self._actions += kind is Kind.ACTION

    # ---- Functions -------------------------------------------------------------------------------

    def _inner_functions(self, node: ast.AST, prefix: str) -> None:
        """Add the functions that a statement, or the body of a function, defines in it."""
        for inner, inner_prefix in _definitions_in(node, prefix):
            self._function(inner, f"{inner_prefix}{inner.name}")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
        self.described.append((name, node))
        self.functions.append(
            Function(
                node=node,
                scope=name.rpartition(".")[0],
                line=_first_line(node),
                last_line=node.end_lineno or node.lineno,
                name=name,
            )
        )
        for statement in node.body:
            self._inner_functions(statement, f"{name}.<locals>.")

    # ---- What statements do ----------------------------------------------------------------------

    def _binds_a_value(self, node: ast.stmt) -> bool:
        """Whether a statement binds names to a value and does nothing else."""
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        are_names = all(
            isinstance(inner, ast.Name | ast.Tuple | ast.List | ast.Starred | ast.expr_context)
            for target in targets
            for inner in ast.walk(target)
        )
        if node.value is None:
            return are_names
        # To unpack an object may use it up.
        is_unpacked = not all(isinstance(target, ast.Name) for target in targets)
        is_literal = isinstance(node.value, ast.Tuple | ast.List | ast.Constant)
        return are_names and (is_literal or not is_unpacked) and self._is_value(node.value)

    def _is_value(self, node: ast.expr) -> bool:
        """Whether an expression has no effect, if no code of the tree runs in it."""
        return all(map(self._is_value_node, ast.walk(node)))

    def _is_value_node(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):  # an item may be made when it is asked for
            name = self._full_name(node.value)
            return name in _GENERIC_TYPES or name.startswith(_TYPING)
        if not isinstance(node, ast.Call):
            return isinstance(node, _VALUES)
        name = self._full_name(node.func)
        # They would use up an iterator.
        takes_objects = name in _TAKING_ITEMS and any(
            isinstance(inner, ast.Name | ast.Attribute)
            for argument in node.args
            for inner in ast.walk(argument)
        )
        return name in _MAKING_VALUES and not takes_objects

    def _is_transparent(self, decorator: ast.expr) -> bool:
        """Whether a decorator only replaces or marks what it gets."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute) and called.attr in _PROPERTY_PARTS:
            return True
        name = self._full_name(called)
        arguments = list[ast.expr]()
        if isinstance(decorator, ast.Call):
            arguments = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        is_known = name in _TRANSPARENT or name.startswith(_PYTEST_MARK)
        return is_known and all(map(self._is_value, arguments))

    def _full_name(self, node: ast.expr) -> str:
        """Return the name of a builtin or an import, such as ``functools.cache``; else ""."""
        attributes = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self._imported.get(node.id, node.id)
        return ".".join([root, *reversed(attributes)]) if root else ""


# ---- Syntax --------------------------------------------------------------------------------------


def _prefix(scope: str) -> str:
    return f"{scope}." if scope else ""


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    listed = [*arguments.posonlyargs, *arguments.args, arguments.vararg]
    listed += [*arguments.kwonlyargs, arguments.kwarg]
    return [argument for argument in listed if argument is not None]


def _is_empty(node: ast.stmt) -> bool:
    """Whether a statement does nothing: a docstring, ``...``, ``pass``."""
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant or isinstance(node, ast.Pass)


def _first_line(node: ast.AST) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([getattr(node, "lineno", 0), *(decorator.lineno for decorator in decorators)])


def _module(node: ast.stmt) -> str:
    if isinstance(node, ast.Import):
        return node.names[0].name
    return f"{'.' * node.level}{node.module or ''}" if isinstance(node, ast.ImportFrom) else ""


def _bound(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a statement binds in its own scope."""
    if isinstance(node, ast.Import):
        alias = node.names[0]
        return (alias.asname or alias.name.partition(".")[0],)
    if isinstance(node, ast.ImportFrom):
        alias = node.names[0]
        return (alias.asname or alias.name,)
    names = set[str]()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
            names.add(inner.id)
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(inner.name)
        elif isinstance(inner, ast.alias):
            names.add(inner.asname or inner.name.partition(".")[0])
    return tuple(sorted(names))


def _without_annotation(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return ast.Assign([node.target], node.value)
    return node


def _without_annotations(arguments: ast.arguments) -> ast.arguments:
    def plain(parameter: ast.arg) -> ast.arg:
        return ast.arg(parameter.arg)

    stripped = copy.copy(arguments)
    stripped.posonlyargs = [*map(plain, arguments.posonlyargs)]
    stripped.args = [*map(plain, arguments.args)]
    stripped.kwonlyargs = [*map(plain, arguments.kwonlyargs)]
    stripped.vararg = plain(arguments.vararg) if arguments.vararg else None
    stripped.kwarg = plain(arguments.kwarg) if arguments.kwarg else None
    return stripped


def _definitions_in(
    node: ast.AST, prefix: str
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Yield the functions in a statement with the prefix of their names, not those in functions."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node, prefix
        return
    if isinstance(node, ast.ClassDef):
        prefix = f"{prefix}{node.name}."
    for inner in ast.iter_child_nodes(node):
        yield from _definitions_in(inner, prefix)


def _without_inner_bodies(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Return the body of a function: no docstring, bodies and annotations of functions in it."""
    stripped: list[ast.stmt] = [_InnerBodies().visit(copy.deepcopy(inner)) for inner in node.body]
    return [statement for statement in stripped if not _is_empty(statement)]


class _InnerBodies(ast.NodeTransformer):
    """Removes the bodies of functions, and what only describes the code."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._head(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._head(node)

    def _head(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.body = []
        if not node.decorator_list:
            node.returns = None
            node.args = _without_annotations(node.args)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Remove the annotation of a local variable, which is not evaluated."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Keep annotations of a class, which decorators and bases read."""
        node.body = [
            statement if isinstance(statement, ast.AnnAssign) else self.visit(statement)
            for statement in node.body
            if not _is_empty(statement)
        ]
        return node


#: Fields of a statement with statements of their own, or with its branches.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def _statements_in(block: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the syntax of each statement, without its blocks, and its line; then those in it.

    Args:
        block: that the statements are in, which begins their syntax: ``body.orelse``.
        nodes: the statements, or branches of one.
    """
    for node in nodes:
        bare = copy.copy(node)
        blocks: dict[str, list[ast.AST]] = {}
        for name in _BLOCKS:
            if hasattr(node, name):
                blocks[name] = getattr(node, name)
                setattr(bare, name, [])
        placed = node.pattern if isinstance(node, ast.match_case) else node
        yield f"{block} {_dump(bare)}", _first_line(placed)
        for name, inner in blocks.items():
            yield from _statements_in(f"{block}.{name}", inner)


def _words(node: ast.AST, scope: str) -> Words:
    """Return what code mentions; the classes and functions around it are mentioned, too."""
    names = {*WORD.findall(scope)} - {"locals"}
    used = {*names}
    attributes = set[str]()
    lists_names = False
    called: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            called.add(id(inner.func))
            lists_names |= _last_name(inner.func) in _LISTING
        elif isinstance(inner, ast.Attribute):
            # That of an object itself has its own attributes.
            is_own = isinstance(inner.value, ast.Name) and inner.value.id == "self"
            lists_names |= inner.attr in _LISTING_ATTRIBUTES and not is_own
        words = [word for text in _texts(inner) for word in WORD.findall(text)]
        (names if isinstance(inner, ast.Name | ast.arg) else attributes).update(words)
        if id(inner) not in called:
            used.update(words)
    return Words(frozenset(names), frozenset(attributes), frozenset(used), lists_names)


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the names and texts of a node itself."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, str):
            yield value
        elif isinstance(value, bytes):
            yield value.decode("latin-1")
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, str))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _dump(node: ast.AST | None) -> str:
    return ast.dump(node) if node is not None else ""


#: ``if __name__ == "__main__"``, both ways round.
_MAIN_TESTS = frozenset(
    _dump(ast.parse(text, mode="eval").body)
    for text in ('__name__ == "__main__"', '"__main__" == __name__')
)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
