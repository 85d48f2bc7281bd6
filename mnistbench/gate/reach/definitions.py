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
from dataclasses import dataclass, field, replace

#: Name of the code of a module.
MODULE = "<module>"

#: Decorators, by their last name, that do nothing but replace or mark what they decorate.
_MARKING = """
abstractmethod abstractproperty argument asynccontextmanager cache cached_property classmethod
command contextmanager dataclass define deleter deprecated example field_validator final fixture
frozen getter given group guvectorize hookimpl inference_mode jit lru_cache model_validator mutable
njit no_grad no_type_check option overload override parametrize property runtime_checkable setter
settings singledispatch singledispatchmethod skipif staticmethod total_ordering typechecked unique
usefixtures validator vectorize wraps xfail
"""
_MARKING_DECORATORS = frozenset(_MARKING.split())

#: Names of decorators of functions whose Python code does not run at each call, because results
#: are kept or because it is compiled.
OPAQUE_DECORATORS = re.compile(
    "cache|cfunc|compile|jit|lazy|memo|once|reify|script|stencil|vectorize", re.IGNORECASE
)

#: Functions that read or set an attribute of the name in their argument.
_NAMING_FUNCTIONS = frozenset(
    ("attrgetter", "delattr", "delitem", "getattr", "hasattr", "methodcaller", "setattr", "setitem")
)
#: Functions and attributes with which code reaches names that are not in its text.
_COMPUTING_NAMES = frozenset(
    (
        "__dict__",
        "__getattribute__",
        "__import__",
        "dir",
        "eval",
        "exec",
        "getmembers",
        "getmembers_static",
        "globals",
        "import_module",
        "vars",
    )
)


#: Methods that make an object.
CONSTRUCTORS = frozenset(("__init__", "__new__", "__post_init__"))

#: Functions that return all names of an object.
_LISTING_FUNCTIONS = frozenset({"dir", "getmembers", "vars"})

#: Words of files that may use names that are not in their text.
COMPUTING = _NAMING_FUNCTIONS | _COMPUTING_NAMES


@dataclass(frozen=True)
class Uses:
    """The names that a part of a file uses, except its own local ones."""

    names: frozenset[str] = frozenset()  # of the module, of a class around it, or builtin
    attributes: frozenset[str] = frozenset()
    # (module as it is written, with leading dots; name, "" for the module itself)
    imports: frozenset[tuple[str, str]] = frozenset()
    # Whether it reaches attributes by names that are computed.
    is_computed: bool = False
    lists_names: bool = False  # of an object, so a new name counts


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
            elif not _is_empty(node):
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
        part = _Part("", keeps_annotations=True)
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
        part = _Part(prefix, keeps_annotations=bool(scope))
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

    def _add_functions(self, part: _Part, enclosing: frozenset[str]) -> None:
        """Add the functions that a part defines, and those in them."""
        for node, name in part.definitions:
            inner = _Part(f"{name}.<locals>.", keeps_annotations=False)
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
                        OPAQUE_DECORATORS.search(_last_name(_called(decorator)))
                        for decorator in node.decorator_list
                    ),
                    acts_on=effects,
                    global_names=frozenset(inner.declared_global),
                    keeps=inner.kept(effects, own | enclosing),
                )
            )
            self._add_functions(inner, own | enclosing)


@dataclass
class _Part:
    """Collects the content of a part and what it uses, without the bodies of its functions."""

    prefix: str  # of the qualified names of what is defined in it
    keeps_annotations: bool  # of variables: a class may read them
    texts: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    declared_global: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    imported: list[tuple[str, str, str]] = field(default_factory=list)
    acted_on: set[str] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)  # of calls for their effects
    passed: set[str] = field(default_factory=set)  # to functions, or to its own methods
    tested: set[str] = field(default_factory=set)  # by conditions, or read where errors are caught
    is_computed: bool = False
    lists_names: bool = False
    definitions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]] = field(
        default_factory=list
    )

    def uses(self, local: frozenset[str]) -> Uses:
        """Return what the part uses beside its local names."""
        return Uses(
            names=frozenset(self.loaded - local),
            attributes=frozenset(self.attributes),
            imports=frozenset((module, name) for module, name, _ in self.imported),
            is_computed=self.is_computed,
            lists_names=self.lists_names,
        )

    def effects(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
        """Return what a function acts on; of a constructor without its own object."""
        acted_on = frozenset(self.acted_on | self.arguments | self.declared_global)
        arguments = [*node.args.posonlyargs, *node.args.args]
        if node.name not in CONSTRUCTORS or not arguments:
            return acted_on
        own = arguments[0].arg
        return frozenset(
            chain for chain in acted_on if chain.partition(".")[0] != own or chain.count(".") != 1
        )

    def kept(self, effects: Iterable[str], local: frozenset[str]) -> frozenset[str]:
        """Return what later calls of a function may find of these effects."""
        return frozenset(
            chain
            for chain in effects
            if chain not in self.arguments - self.acted_on
            if chain.partition(".")[0] not in local or (chain in self.tested and "." in chain)
        )

    def add_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add the parameters and the body of a function."""
        self.texts.append(type(node).__name__)
        for argument in _arguments(node.args):
            self.texts.append(argument.arg)
            self.bound.add(argument.arg)
        kinds = (node.args.posonlyargs, node.args.args, node.args.kwonlyargs)
        self.texts.append(" ".join(str(len(kind)) for kind in kinds))
        self._visit_all(node.body)

    def add_class_head(self, node: ast.ClassDef) -> None:
        """Add what runs around the body of a class."""
        self.texts += ["ClassDef", node.name]
        self.bound.add(node.name)
        self._add_decorators(node.decorator_list)
        self._visit_all([*node.bases, *node.keywords, *getattr(node, "type_params", [])])

    def visit(self, node: ast.AST) -> None:
        """Add a node and what is in it."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._visit_definition(node)
        elif isinstance(node, ast.ClassDef):
            self._visit_class(node)
        elif isinstance(node, ast.AnnAssign) and not self.keeps_annotations:
            if node.value is not None:
                self.visit(ast.Assign([node.target], node.value))
            elif isinstance(node.target, ast.Name):
                self.bound.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._visit_import(node)
        elif not _is_empty(node):
            self._note(node)
            self.texts.append(type(node).__name__)
            for name, value in ast.iter_fields(node):
                self._visit_field(name, value)

    def _visit_field(self, name: str, value: object) -> None:
        if isinstance(value, ast.AST):
            self.visit(value)
        elif isinstance(value, list):
            self.texts.append(f"{name}[")
            self._visit_all(value)
            self.texts.append("]")
        elif name not in ("type_comment", "kind"):
            self.texts.append(f"{name}={value!r}")

    def _visit_all(self, nodes: Iterable[object]) -> None:
        for node in nodes:
            if isinstance(node, ast.AST):
                self.visit(node)
            else:  # a name of a global statement, a missing key of a dict
                self.texts.append(repr(node))

    def _visit_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add what runs at the definition of a function, and keep its body for later."""
        self.texts += [type(node).__name__, node.name]
        self.bound.add(node.name)
        self._add_decorators(node.decorator_list)
        arguments = node.args
        self._visit_all(
            default
            for default in (*arguments.defaults, *arguments.kw_defaults)
            if default is not None
        )
        if node.decorator_list:
            annotated = (node.returns, *(argument.annotation for argument in _arguments(arguments)))
            self._visit_all(annotation for annotation in annotated if annotation is not None)
        self.definitions.append((node, f"{self.prefix}{node.name}"))

    def _visit_class(self, node: ast.ClassDef) -> None:
        """Add a class whose body belongs to this part: one in a function, a loop or a with."""
        self.add_class_head(node)
        outer, bound = self.prefix, {*self.bound}
        self.prefix = f"{outer}{node.name}."
        self._visit_all(node.body)
        self.prefix = outer
        self.bound = bound

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                bound = alias.asname or alias.name.partition(".")[0]
                module = alias.name if alias.asname else bound
                self.texts += ["import", alias.name, bound]
                self.imported.append((module, "", bound))
                if not alias.asname and "." in alias.name:
                    self.imported.append((alias.name, "", ""))
            else:
                module = f"{'.' * node.level}{node.module or ''}"
                bound = alias.asname or alias.name
                self.texts += ["from", module, alias.name, bound]
                self.imported.append((module, alias.name, bound))
            self.bound.add(bound)

    def _add_decorators(self, decorators: Sequence[ast.expr]) -> None:
        self._visit_all(decorators)
        for decorator in decorators:
            if _last_name(_called(decorator)) not in _MARKING_DECORATORS:
                self.acted_on.add(_object_of_call(_called(decorator)))

    def _note(self, node: ast.AST) -> None:
        """Note the names that a node uses or binds."""
        if isinstance(node, ast.Name):
            (self.loaded if isinstance(node.ctx, ast.Load) else self.bound).add(node.id)
            self.is_computed |= node.id in _COMPUTING_NAMES
            self.lists_names |= node.id in _LISTING_FUNCTIONS
        elif isinstance(node, ast.Attribute):
            self.attributes.add(node.attr)
            self.is_computed |= node.attr in _COMPUTING_NAMES
            self.lists_names |= node.attr in _LISTING_FUNCTIONS
        elif isinstance(node, ast.Global):
            self.declared_global |= {*node.names}
            self.loaded |= {*node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.bound.add(node.name)
        elif isinstance(node, ast.arg):  # of a lambda
            self.bound.add(node.arg)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            self.bound.add(node.name)
        self._note_effects(node)
        self._note_tests(node)

    def _note_effects(self, node: ast.AST) -> None:
        """Note what a node acts on."""
        if isinstance(node, ast.Call):
            self._note_call(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            call = node.value.value if isinstance(node.value, ast.Await) else node.value
            function = call.func if isinstance(call, ast.Call) else call
            self.acted_on.add(_object_of_call(function))
            self.arguments |= {*_arguments_of(call)}
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            self.acted_on.add(_chain(node))

    def _note_tests(self, node: ast.AST) -> None:
        """Note what decides how a function goes on."""
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            self.tested |= _chains(node.test)
        elif isinstance(node, ast.BoolOp):
            self.tested |= _chains(node)
        elif isinstance(node, ast.Try | ast.TryStar):
            self.tested |= {chain for inner in node.body for chain in _chains(inner)}

    def _note_call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self.passed.add(_chain(node.func.value))
        self.passed |= {_chain(inner) for inner in node.args if isinstance(inner, ast.Attribute)}
        if _last_name(node.func) in _NAMING_FUNCTIONS:
            self._note_named(node)

    def _note_named(self, call: ast.Call) -> None:
        """Note the attributes that a call names by texts."""
        texts = [
            argument.value
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        self.attributes |= {name for text in texts for name in text.split(".")}
        if _last_name(call.func) == "hasattr" and texts:
            self.tested.add(f"{_chain(call.args[0])}.{texts[0]}")
        self.is_computed |= not texts


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    listed = [*arguments.posonlyargs, *arguments.args, arguments.vararg]
    listed += [*arguments.kwonlyargs, arguments.kwarg]
    return [argument for argument in listed if argument is not None]


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _arguments_of(call: ast.expr) -> Iterator[str]:
    """Yield the names among the arguments of a call, which it may change."""
    if isinstance(call, ast.Call):
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(argument, ast.Name):
                yield argument.id


def _chain(node: ast.expr) -> str:
    """Return the names of an expression: ``a.b.c`` of ``a.b[0].c()``; "" if it has none first."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Await):
        if isinstance(node, ast.Attribute):
            attributes.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    return ".".join([node.id, *reversed(attributes)]) if isinstance(node, ast.Name) else ""


def _object_of_call(function: ast.expr) -> str:
    """Return what a call acts on: the object of a method, or the function."""
    return _chain(function.value if isinstance(function, ast.Attribute) else function)


def _chains(node: ast.AST) -> set[str]:
    """Return the attributes that an expression or a statement reads."""
    return {_chain(inner) for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _last_name(node: ast.expr) -> str:
    """Return the name at the end of an expression: ``c`` of ``a.b.c``; "" if none is."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_empty(node: ast.AST) -> bool:
    """Whether a statement does nothing: a docstring, ``...``, ``pass``."""
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant or isinstance(node, ast.Pass)


def _is_for_checkers(test: ast.expr) -> bool:
    """Whether a condition is false when the file is imported."""
    if _last_name(test) == "TYPE_CHECKING":
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
