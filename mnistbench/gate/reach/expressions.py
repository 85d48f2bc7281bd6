"""What expressions name, and what they may change."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: Calls that return an object that nothing else has.
_MAKING_OBJECTS = frozenset(("object.__new__", "super().__new__"))

#: Functions, by their last name, that return a value that nothing changes.
_FIXING_NAMES = """
NewType ParamSpec TypeVar TypeVarTuple bool bytes complex decode encode float format frozenset
getLogger hash int isinstance join len lower object round str strip upper
"""
_FIXING_FUNCTIONS = frozenset(_FIXING_NAMES.split())


@dataclass(frozen=True)
class Value:
    """What a statement binds to its names."""

    is_fixed: bool = False  # nothing changes it, if nothing changes the values of fixed_if
    has_fixed_items: bool = False  # it is a list, a dict or a set of such values
    fixed_if: frozenset[str] = frozenset()
    made_by: str = ""  # name of the function or class that it calls for the value


#: Of a statement that is no assignment.
NO_VALUE = Value()


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a function."""
    listed = [*arguments.posonlyargs, *arguments.args, arguments.vararg]
    listed += [*arguments.kwonlyargs, arguments.kwarg]
    return [argument for argument in listed if argument is not None]


def called(decorator: ast.expr) -> ast.expr:
    """Return a decorator without its arguments."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def is_new_object(node: ast.expr) -> bool:
    """Whether an expression makes an object: ``object.__new__(cls)``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in _MAKING_OBJECTS


def operands(node: ast.AST) -> list[ast.expr]:
    """Return what a node reads for a value of another object."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return [node.test]
    return [node.value] if isinstance(node, ast.FormattedValue) else []


def names_of(nodes: Iterable[ast.expr]) -> set[str]:
    """Return those of these expressions that are names."""
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def value_of(node: ast.stmt) -> Value:
    """Return what a statement binds, as far as its text says."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return NO_VALUE
    value = node.value
    items: list[ast.expr | None] | None = None
    if isinstance(value, ast.List | ast.Set):
        items = [*value.elts]
    elif isinstance(value, ast.Dict):
        items = [*value.values]
    fixed_if = _fixed_if(value) if items is None else _all_fixed_if(items)
    return Value(
        is_fixed=items is None and fixed_if is not None,
        has_fixed_items=items is not None and fixed_if is not None,
        fixed_if=frozenset(fixed_if or ()),
        made_by=chain(value.func) if isinstance(value, ast.Call) else "",
    )


def _all_fixed_if(nodes: Iterable[ast.expr | None]) -> set[str] | None:
    """Return what _fixed_if says of several expressions together."""
    names = [_fixed_if(node) for node in nodes]
    return None if None in names else set[str]().union(*filter(None, names))


def _fixed_if(node: ast.expr | None) -> set[str] | None:
    """Return the names whose values must not change for that of an expression not to.

    None if it may change anyway, such as a list.
    """
    parts: list[ast.expr]
    if node is None or isinstance(node, ast.Constant | ast.JoinedStr | ast.Compare | ast.Lambda):
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Call):
        is_pattern = chain(node.func) == "re.compile"
        return set() if is_pattern or last_name(node.func) in _FIXING_FUNCTIONS else None
    if isinstance(node, ast.Tuple):
        parts = node.elts
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    else:
        return None
    return _all_fixed_if(parts)


def arguments_of(call: ast.expr) -> Iterator[str]:
    """Yield the names among the arguments of a call, which it may change."""
    if isinstance(call, ast.Call):
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(argument, ast.Name):
                yield argument.id


def chain(node: ast.expr) -> str:
    """Return the names of an expression: ``a.b.c`` of ``a.b[0].c()``; "" if it has none first."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Await):
        if isinstance(node, ast.Attribute):
            attributes.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    return ".".join([node.id, *reversed(attributes)]) if isinstance(node, ast.Name) else ""


def object_of_call(function: ast.expr) -> str:
    """Return what a call acts on: the object of a method, or the function."""
    return chain(function.value if isinstance(function, ast.Attribute) else function)


def chains(node: ast.AST) -> set[str]:
    """Return the attributes that an expression or a statement reads."""
    return {chain(inner) for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def last_name(node: ast.expr) -> str:
    """Return the name at the end of an expression: ``c`` of ``a.b.c``; "" if none is."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
