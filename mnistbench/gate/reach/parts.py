"""What a part of a file contains and uses: a statement that runs at the import, or a function."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mnistbench.gate.reach.expressions import (
    arguments_of,
    called,
    chain,
    chains,
    is_new_object,
    last_name,
    names_of,
    object_of_call,
    operands,
    parameters,
)

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

#: Functions that read an attribute of the name in their argument, or set it.
_READING_FUNCTIONS = frozenset(("attrgetter", "getattr", "hasattr", "methodcaller"))
_SETTING_FUNCTIONS = frozenset(("delattr", "delitem", "setattr", "setitem"))
_NAMING_FUNCTIONS = _READING_FUNCTIONS | _SETTING_FUNCTIONS
#: Functions and attributes with which code reaches names that are not in its text.
_COMPUTING_NAMES = frozenset(
    (
        "__dict__",
        "__getattribute__",
        "dir",
        "eval",
        "exec",
        "getmembers",
        "getmembers_static",
        "globals",
        "vars",
    )
)
#: Functions that import a module of a computed name. What is used of it is in the text.
_IMPORTING_FUNCTIONS = frozenset(("__import__", "import_module"))

#: What methods call the object or the class that they belong to.
OWN_OBJECT = ("self", "cls")

#: Methods that make an object.
CONSTRUCTORS = frozenset(("__init__", "__new__", "__post_init__"))

#: Functions that return all names of an object.
_LISTING_FUNCTIONS = frozenset({"dir", "getmembers", "vars"})

#: Words of files that may use names that are not in their text.
COMPUTING = _NAMING_FUNCTIONS | _COMPUTING_NAMES | _IMPORTING_FUNCTIONS

#: Functions that read their arguments and keep nothing of them.
_INSPECTING_NAMES = """
all any bool bytes float frozenset hash id int isinstance issubclass len repr str sum type
"""
_INSPECTING_FUNCTIONS = frozenset(_INSPECTING_NAMES.split())


@dataclass(frozen=True)
class Uses:
    """The names that a part of a file uses, except its own local ones."""

    names: frozenset[str] = frozenset()  # of the module, of a class around it, or builtin
    attributes: frozenset[str] = frozenset()
    own_attributes: frozenset[str] = frozenset()  # of self or cls, which is no module
    # (module as it is written, with leading dots; name, "" for the module itself)
    imports: frozenset[tuple[str, str]] = frozenset()
    # Of these names, and of these imports, it reaches attributes by names that are computed.
    computed_of: frozenset[str] = frozenset()
    computed_of_imports: frozenset[tuple[str, str]] = frozenset()
    is_computed: bool = False  # it reaches those of anything else so
    lists_names: bool = False  # of an object, so a new name counts


@dataclass
class Part:
    """Collects the content of a part and what it uses, without the bodies of its functions."""

    prefix: str  # of the qualified names of what is defined in it
    keeps_annotations: bool  # of variables: a class may read them
    texts: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    declared_global: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    own_attributes: set[str] = field(default_factory=set)
    imported: list[tuple[str, str, str]] = field(default_factory=list)
    acted_on: set[str] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)  # of calls for their effects
    passed: set[str] = field(default_factory=set)  # to functions, or to its own methods
    tested: set[str] = field(default_factory=set)  # by conditions, or read where errors are caught
    lent: set[str] = field(default_factory=set)  # loaded where more than a look is possible
    items_lent: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)  # they, or methods of them
    looked_at: set[int] = field(default_factory=set)  # ids of nodes that are only looked at
    stored: Counter[str] = field(default_factory=Counter)  # how often each name is bound
    stored_new: Counter[str] = field(default_factory=Counter)  # and to an object just made
    computed_of: set[str] = field(default_factory=set)
    is_computed: bool = False
    lists_names: bool = False
    definitions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]] = field(
        default_factory=list
    )

    def uses(self, local: frozenset[str]) -> Uses:
        """Return what the part uses beside its local names."""
        own_imports = {bound: (module, name) for module, name, bound in self.imported}
        computed_of_local = self.computed_of & local
        return Uses(
            names=frozenset(self.loaded - local),
            attributes=frozenset(self.attributes),
            own_attributes=frozenset(self.own_attributes),
            imports=frozenset((module, name) for module, name, _ in self.imported),
            computed_of=frozenset(self.computed_of - local),
            computed_of_imports=frozenset(
                own_imports[name] for name in computed_of_local & own_imports.keys()
            ),
            is_computed=self.is_computed or bool(computed_of_local - own_imports.keys()),
            lists_names=self.lists_names,
        )

    def effects(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
        """Return what a function acts on, without attributes of an object that it makes."""
        acted_on = frozenset(self.acted_on | self.arguments | self.declared_global)
        names = [argument.arg for argument in parameters(node.args)]
        new_objects = {*names[:1]} if node.name in CONSTRUCTORS else set[str]()
        new_objects |= {
            name
            for name, count in self.stored_new.items()
            if count == self.stored[name] and name not in names
        }
        return frozenset(
            effect
            for effect in acted_on
            if effect.partition(".")[0] not in new_objects or effect.count(".") != 1
        )

    def kept(self, effects: Iterable[str], local: frozenset[str]) -> frozenset[str]:
        """Return what later calls of a function may find of these effects."""
        return frozenset(
            effect
            for effect in effects
            if effect not in self.arguments - self.acted_on
            if effect.partition(".")[0] not in local or (effect in self.tested and "." in effect)
        )

    def add_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add the parameters and the body of a function."""
        self.texts.append(type(node).__name__)
        for argument in parameters(node.args):
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
        elif not is_empty(node):
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
            annotated = (node.returns, *(argument.annotation for argument in parameters(arguments)))
            self._visit_all(annotation for annotation in annotated if annotation is not None)
        self.definitions.append((node, f"{self.prefix}{node.name}"))

    def _visit_class(self, node: ast.ClassDef) -> None:
        """Add a class whose body belongs to this part: one in a function, a loop or a with."""
        self.add_class_head(node)
        outer = self.prefix
        bound = {*self.bound}
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
            if last_name(called(decorator)) not in _MARKING_DECORATORS:
                self.acted_on.add(object_of_call(called(decorator)))

    def _note(self, node: ast.AST) -> None:
        """Note the names that a node uses or binds."""
        if isinstance(node, ast.Name):
            self._note_name(node)
            self.is_computed |= node.id in _COMPUTING_NAMES
            self.lists_names |= node.id in _LISTING_FUNCTIONS
        elif isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in OWN_OBJECT
            (self.own_attributes if is_own else self.attributes).add(node.attr)
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
        self._note_looks(node)

    def _note_name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)
            self.stored[node.id] += 1
            return
        self.loaded.add(node.id)
        if id(node) not in self.looked_at:
            self.lent.add(node.id)

    def _note_looks(self, node: ast.AST) -> None:
        """Note the nodes in this one whose objects cannot be changed by way of it."""
        if isinstance(node, ast.Call):
            looked_at = self._looks_of_call(node)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            looked_at = [node.iter]
            self.items_lent |= names_of(looked_at)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            looked_at = [node.value]
            self.items_lent |= names_of(looked_at)
        else:
            looked_at = operands(node)
        self.looked_at |= {id(inner) for inner in looked_at}

    def _looks_of_call(self, node: ast.Call) -> list[ast.expr]:
        """Return what a call looks at: the function, its object, arguments that it inspects."""
        functions = [node.func]
        if isinstance(node.func, ast.Attribute):
            functions.append(node.func.value)
        self.called |= names_of(functions)
        is_inspection = last_name(node.func) in _INSPECTING_FUNCTIONS
        return [*functions, *node.args] if is_inspection else functions

    def _note_effects(self, node: ast.AST) -> None:
        """Note what a node acts on."""
        if isinstance(node, ast.Call):
            self._note_call(node)
        elif isinstance(node, ast.Assign) and is_new_object(node.value):
            self.stored_new.update(names_of(node.targets))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            call = node.value.value if isinstance(node.value, ast.Await) else node.value
            function = call.func if isinstance(call, ast.Call) else call
            self.acted_on.add(object_of_call(function))
            self.arguments |= {*arguments_of(call)}
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            self.acted_on.add(chain(node))

    def _note_tests(self, node: ast.AST) -> None:
        """Note what decides how a function goes on."""
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            self.tested |= chains(node.test)
        elif isinstance(node, ast.BoolOp):
            self.tested |= chains(node)
        elif isinstance(node, ast.Try | ast.TryStar):
            self.tested.update(*map(chains, node.body))

    def _note_call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self.passed.add(chain(node.func.value))
        self.passed |= {chain(inner) for inner in node.args if isinstance(inner, ast.Attribute)}
        if last_name(node.func) in _NAMING_FUNCTIONS:
            self._note_named(node)

    def _note_named(self, call: ast.Call) -> None:
        """Note the attributes that a call names by texts."""
        texts = [
            argument.value
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        self.attributes |= {name for text in texts for name in text.split(".")}
        if last_name(call.func) == "hasattr" and texts:
            self.tested.add(f"{chain(call.args[0])}.{texts[0]}")
        if not texts and last_name(call.func) in _READING_FUNCTIONS:
            has_object = last_name(call.func) in ("getattr", "hasattr")
            objects = names_of(call.args[:1]) if has_object else set[str]()
            self.computed_of |= objects
            self.is_computed |= not objects


def is_empty(node: ast.AST) -> bool:
    """Whether a statement does nothing: a docstring, ``...``, ``pass``."""
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant or isinstance(node, ast.Pass)
