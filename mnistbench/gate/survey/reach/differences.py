"""What differs between two trees, and what of it the code that ran has to do with.

The rule rests on this: if nothing that ran outside of the tests differs, both processes are in the
same state before each test, but for functions that have not run yet and for names whose values
nothing has used. So a difference of what runs outside counts for all cases, unless it only defines
such a function or binds such a name. The functions count for the cases that run them, the names for
the cases that run code in which they occur, in any file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

from mnistbench.gate.processes.messages import OUTSIDE, RunCode
from mnistbench.gate.survey.reach.side_code import SideCode
from mnistbench.gate.survey.reach.source import Kind, Part, Source, Statement
from mnistbench.gate.words import BASE, HEAD, MODULE

_Item = TypeVar("_Item")

#: How a function or a name differs, as reports say it.
CHANGED = "changed"
NEW = "new"
GONE = "gone"

#: Names of what reads something of functions that does not run: what differs -> the names.
_READERS = {
    "docstring": ("__doc__", "docopt", "getdoc"),
    "annotation": (
        "__annotations__",
        "get_annotations",
        "get_type_hints",
        "getfullargspec",
        "signature",
    ),
}
#: Names of what reads the code of a function.
_READERS_OF_CODE = ("__code__", "Bytecode", "dis", "get_instructions", "marshal")
#: Names of what lists definitions in their order.
_READERS_OF_ORDER = ("__dict__", "__subclasses__", "globals", "locals", "vars")

#: Names that pytest looks for in modules and classes.
_NAMES_FOR_PYTEST = (
    "__test__",
    "collect_ignore",
    "collect_ignore_glob",
    "pytest_plugins",
    "pytestmark",
)

#: The file of a name that counts in all files.
ANY_FILE = ""

#: The name with which a module says what a star import of it brings.
_ALL = "__all__"


class Names:
    """Names that differ. Each belongs to the files whose modules have it."""

    def __init__(self) -> None:
        self._why: dict[str, dict[str, str]] = {}  # name -> file -> why it differs
        self._own: set[str] = set()  # those that may name what is of the tree

    def __len__(self) -> int:
        """Return the number of names of files."""
        return sum(map(len, self._why.values()))

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._why)

    def add(self, name: str, path: str, why: str, *, is_own: bool = True) -> None:
        """Add a name of a file; ANY_FILE if it is one of no certain file.

        Args:
            name: differs.
            path: of the file.
            why: it differs.
            is_own: whether what it names may be of the tree.
        """
        self._why.setdefault(name, {}).setdefault(path, why)
        if is_own and path != ANY_FILE:
            self._own.add(name)

    def first_of_files(self) -> str:
        """Return a name that a module or a class has, and not only by an import from outside.

        A name such as ``__version__`` does not count, because a list of names is not made for it.
        """
        return next((name for name in self._why if name in self._own and name[:2] != "__"), "")

    def why(self, name: str, path: str | None = None) -> str:
        """Return why a name differs, in a file or in any; "" if it does not."""
        of_files = self._why.get(name, {})
        if path is None:
            return next(iter(of_files.values()), "")
        return of_files.get(path) or of_files.get(ANY_FILE, "")


@dataclass
class Differences:
    """What differs between two trees, of the files that either side has executed."""

    # (path, qualified name) -> how
    functions: dict[tuple[str, str], str] = field(default_factory=dict)
    # Names whose values differ.
    names: Names = field(default_factory=Names)
    # Names of functions of which one side has no or another definition. A call of one is seen, so
    # it counts where the name occurs in another way: where it is tested for, or handed on.
    definitions: Names = field(default_factory=Names)
    # File -> why its import differs.
    statements: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)  # files that this Python cannot read
    everywhere: dict[str, None] = field(default_factory=dict)  # why all cases are affected

    def all_names(self) -> set[str]:
        """Return the names that differ, of functions and others."""
        return {*self.names, *self.definitions}

    def of_part(self, part: Part, path: str, side: SideCode) -> str:
        """Return which name that differs occurs in a part of a file, with the reason; else "".

        A name of another module can only be an attribute, be in a text, or be imported, which binds
        a name of this module.
        """
        words = part.words
        file = None if side.has_star_import(path) else path
        for differing, used in ((self.names, None), (self.definitions, words.used)):
            for name in sorted(differing):
                if used is not None and name not in used:
                    continue
                why = differing.why(name, file) if name in words.names else ""
                why = why or (differing.why(name) if name in words.attributes else "")
                if why:
                    return f"uses {name} ({why})"
        for names in (self.names, self.definitions) if words.lists_names else ():
            if name := names.first_of_files():
                return f"uses names that it lists, perhaps {name} ({names.why(name)})"
        return ""

    def of_fetched(self, fetched: Iterable[str]) -> str:
        """Return which of the names that code has got by ``getattr`` differs; else ""."""
        for names in (self.names, self.definitions):
            for name in fetched:
                # Wrappers of functions get all of their special attributes.
                if not _is_special(name) and (why := names.why(name)):
                    return f"gets {name} by its name ({why})"
        return ""

    def of_code(self, code: RunCode, side: SideCode) -> str:
        """Return why a code object may do something else than on the other side; else ""."""
        if not code.path.endswith(".py"):  # made by the program, perhaps of a file that it reads
            return ""
        where = f"{code.path}:{code.name}"
        if code.path in self.unread:
            return f"runs {where}, and this Python cannot read the file"
        if code.name == MODULE:
            why = self.statements.get(code.path, "")
            return f"imports {code.path} ({why})" if why else ""
        if how := self.functions.get((code.path, code.name)):
            return f"runs {where} ({how})"
        is_inner = code.name.rpartition(".")[2].startswith("<")
        if not is_inner and not side.may_mention(code.path, self.all_names()):
            return ""
        source = side.source(code.path)
        function = source.function(code.name, code.line) if source else None
        if function and (how := self.functions.get((code.path, function.name))):
            return f"runs {code.path}:{function.name} ({how})"
        if function:
            used = self.of_part(function, code.path, side)
        elif source and is_inner:
            used = self._of_lambda(code, source, side)
        else:
            used = "is not found in its file"
        return f"runs {where}, which {used}" if used else ""

    def _of_lambda(self, code: RunCode, source: Source, side: SideCode) -> str:
        """Return what a lambda of a module has to do with what differs; else ""."""
        for statement in source.statements_at(code.line):
            for name in statement.names:
                if why := self.names.why(name, code.path):
                    return f"belongs to {name} ({why})"
            if used := self.of_part(statement, code.path, side):
                return used
        return ""


def differences(sides: Mapping[str, SideCode], differing: Collection[str]) -> Differences:
    """Compare the files that the sides have executed.

    Args:
        sides: BASE and HEAD.
        differing: files whose bytes differ, relative to the trees.
    """
    comparison = _Comparison(sides)
    executed = {path for side in sides.values() for path in side.executed}
    for path in sorted(executed):
        having = [side for side in sides.values() if path in side.executed]
        if path in differing or len(having) == 1:
            comparison.compare(path)
    comparison.compare_order()
    comparison.spread()
    return comparison.result


def changed_functions(base: Source, head: Source) -> dict[str, str]:
    """Return the functions of a file that differ -> how."""
    contents: dict[str, dict[str, list[str]]] = {BASE: defaultdict(list), HEAD: defaultdict(list)}
    for side, source in ((BASE, base), (HEAD, head)):
        for function in source.functions:
            contents[side][function.name].append(function.content)
    return {
        name: NEW if name not in contents[BASE] else GONE if name not in contents[HEAD] else CHANGED
        for name in dict.fromkeys((*contents[HEAD], *contents[BASE]))
        if contents[BASE].get(name) != contents[HEAD].get(name)
    }


def changed_statements(base: Source, head: Source) -> Iterator[tuple[str, Statement, str]]:
    """Yield the statements that differ, with their side and how.

    If the sides have the same statements of a name in another order, all of them differ.
    """
    of_base = _by_name(base)
    of_head = _by_name(head)
    for key in dict.fromkeys((*of_base, *of_head)):
        statements = {BASE: of_base.get(key, []), HEAD: of_head.get(key, [])}
        keys = {
            side: [statement.key for statement in of_side] for side, of_side in statements.items()
        }
        if keys[BASE] == keys[HEAD]:
            continue
        how = CHANGED if keys[BASE] and keys[HEAD] else NEW if keys[HEAD] else GONE
        common = Counter(keys[BASE]) & Counter(keys[HEAD])
        is_moved = len(keys[BASE]) == len(keys[HEAD]) == common.total()
        for side, of_side in statements.items():
            for statement in of_side:
                if is_moved or statement.key not in common:
                    yield side, statement, how


def _by_name(source: Source) -> dict[tuple[str, str], list[Statement]]:
    """Return the statements that bind each name of a scope; those without one have the name ""."""
    statements: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for statement in source.statements:
        for name in statement.names or ("",):
            statements[statement.scope, name].append(statement)
    return statements


def _order(source: Source, other: Source) -> list[tuple[str, str]]:
    """Return the names that both files define, in the order of the first one."""
    names, other_names = (
        [(statement.scope, name) for statement in file.statements for name in statement.names]
        for file in (source, other)
    )
    return _common_order(names, other_names)


def _common_order(items: Iterable[_Item], others: Iterable[_Item]) -> list[_Item]:
    """Return what both have, in the order of the first one."""
    known = {*others}
    return [item for item in dict.fromkeys(items) if item in known]


class _Comparison:
    """Finds what differs, and which other names follow from it."""

    def __init__(self, sides: Mapping[str, SideCode]) -> None:
        self._sides = sides
        self.result = Differences()

    def compare(self, path: str) -> None:
        """Compare a file; a side that has not executed it has none of its statements."""
        sources = {
            name: side.source(path) if path in side.executed else Source()
            for name, side in self._sides.items()
        }
        base, head = sources[BASE], sources[HEAD]
        if base is None or head is None:
            self.result.unread.add(path)
            self._everywhere(f"this Python cannot read {path}")
            return
        for name, how in changed_functions(base, head).items():
            self.result.functions[path, name] = how
            self._add_readers(_READERS_OF_CODE, f"{path}:{name} {how}")
        for what in _READERS:
            self._compare_descriptions(path, base, head, what)
        self._compare_places(path, base, head)
        self._compare_module(path)
        for side, statement, how in changed_statements(base, head):
            why = f"{path}:{statement.line} {how}"
            self._differs(side, path, statement, why, how)
            self._add_attempts(side, path, statement, why)

    def _compare_descriptions(self, path: str, base: Source, head: Source, what: str) -> None:
        """Add the readers of docstrings or annotations that differ.

        Annotations are also read by packages that get the function.
        """
        of_base, of_head = (source.described(what) for source in (base, head))
        for name in sorted(of_base.keys() & of_head.keys()):
            if of_base[name] == of_head[name]:
                continue
            why = f"{path}:{name} has another {what}"
            self._add_readers(_READERS[what], why)
            *classes, function = name.split(".")
            if what == "annotation" and "<locals>" not in classes:
                for handed_on in (function, *(classes if function == "__init__" else ())):
                    self.result.definitions.add(handed_on, path, why)

    def _compare_places(self, path: str, base: Source, head: Source) -> None:
        """Compare the order of what a file and each class of it define."""
        acting = [
            [
                statement.content
                for statement in source.statements
                if side.has_effects(path, statement)
            ]
            for source, side in ((base, self._sides[BASE]), (head, self._sides[HEAD]))
        ]
        if _common_order(*acting) != _common_order(*reversed(acting)):
            self._everywhere(f"{path} has effects in another order")
        self._compare_imports(path, base, head)
        orders = [_order(base, head), _order(head, base)]
        if orders[0] == orders[1]:
            return
        self._add_readers(_READERS_OF_ORDER, f"{path} has another order")
        for scope in dict.fromkeys(scope for scope, _ in orders[0]):
            of_scope = [[name for around, name in order if around == scope] for order in orders]
            if of_scope[0] == of_scope[1]:
                continue
            why = f"{path}:{scope} has another order" if scope else f"{path} has another order"
            if scope:  # decorators, metaclasses and packages may read it
                self._add_names(scope.split("."), path, why)
                if not all(side.are_plain(path, [scope]) for side in self._sides.values()):
                    self._everywhere(why)
            elif "*" in of_scope[0]:
                self._everywhere(f"{why}, and imports all names of another file")

    def _compare_imports(self, path: str, base: Source, head: Source) -> None:
        """Add the names that imports bind, if the order of those of modules of the tree differs.

        One of the modules may change what another import takes.
        """
        imports = [
            [
                statement.content
                for statement in source.statements
                if statement.kind is Kind.IMPORT and not side.is_from_outside(statement.imported)
            ]
            for source, side in ((base, self._sides[BASE]), (head, self._sides[HEAD]))
        ]
        if _common_order(*imports) != _common_order(*reversed(imports)):
            why = f"{path} has its imports in another order"
            for statement in head.statements:
                if statement.takes and statement.content in imports[1]:
                    self._add_names(statement.names, path, why)

    def _compare_module(self, path: str) -> None:
        """Add the name of a module that one side alone has executed: it may hide another one."""
        having = [name for name, side in self._sides.items() if path in side.imported]
        if len(having) == 1:
            file = PurePosixPath(path)
            name = file.parent.name if file.stem == "__init__" else file.stem
            why = f"{path} is imported in the {having[0]} alone"
            self.result.names.add(name, ANY_FILE, why)

    def _add_readers(self, names: Iterable[str], why: str) -> None:
        """Add the names of what may read something that differs, in whatever file it is used."""
        for name in names:
            self.result.names.add(name, ANY_FILE, why)

    def compare_order(self) -> None:
        """Compare the order in which files are executed whose import has effects on others."""
        base, head = self._sides[BASE], self._sides[HEAD]
        common = base.executed & head.executed
        for path in sorted(common & (base.executed_outside ^ head.executed_outside)):
            if head.acts(path):
                name = BASE if path in base.executed_outside else HEAD
                self._everywhere(f"{path} is imported outside of tests in the {name} alone")
        orders = [
            [path for path in side.order if path in common and side.acts(path)]
            for side in (base, head)
        ]
        moved = (pair for pair in zip(*orders, strict=False) if pair[0] != pair[1])
        for of_base, of_head in moved:
            self._everywhere(f"{of_head} is imported earlier or later than {of_base}")
            break
        orders = [_common_order(base.order, head.order), _common_order(head.order, base.order)]
        moved_files = {
            path
            for of_base, of_head in zip(*orders, strict=True)
            if of_base != of_head
            for path in (of_base, of_head)
        }
        if moved_files:
            self._add_readers(_READERS_OF_ORDER, "files are imported in another order")
        for path in sorted(moved_files):
            self._compare_moved(path)
        for path in sorted(base.imported ^ head.imported):
            self._compare_module(path)

    def _compare_moved(self, path: str) -> None:
        """Add what a file takes from others at its import: these may not be complete yet."""
        source = self._sides[HEAD].source(path)
        for statement in source.statements if source else ():
            is_tried = statement.kind is Kind.IMPORT and bool(statement.attempts)
            uses_names = statement.kind is Kind.VALUE and statement.key[1:] != (0,)
            if is_tried or (uses_names and statement.names):
                why = f"{path}:{statement.line} is imported in another order"
                self._differs(HEAD, path, statement, why, CHANGED)

    def spread(self) -> None:
        """Add what uses a name that differs at an import, until nothing is added."""
        result = self.result
        size = -1
        while size != len(result.names) + len(result.definitions) + len(result.functions):
            size = len(result.names) + len(result.definitions) + len(result.functions)
            for name, side in self._sides.items():
                for path in side.executed:
                    if side.may_mention(path, result.all_names()):
                        self._add_users(name, side, path)
        for side in self._sides.values():
            for code in side.ran_outside():
                why = result.of_code(code, side)
                if why and code.name != MODULE:
                    self._everywhere(f"{why} outside of tests")
            if why := result.of_fetched(side.followed.fetched.get(OUTSIDE, ())):
                self._everywhere(f"code outside of tests {why}")

    def _add_users(self, side_name: str, side: SideCode, path: str) -> None:
        """Add the statements of a file in which a name occurs that differs."""
        source = side.source(path)
        for statement in source.statements if source else ():
            if statement.names == (_ALL,):
                continue  # its texts stay the same
            if statement.kind is Kind.IMPORT:
                self._follow_import(side_name, side, path, statement)
            elif used := self.result.of_part(statement, path, side):
                why = f"{path}:{statement.line} {used}"
                if not statement.names and statement.kind is Kind.VALUE:
                    self._acts(path, statement, why)  # decides which statements run
                else:
                    self._differs(side_name, path, statement, why, used)

    def _follow_import(
        self, side_name: str, side: SideCode, path: str, statement: Statement
    ) -> None:
        """Add the name that an import binds, if it is one that differs of a module of the tree."""
        if side.is_from_outside(statement.imported):
            return
        taken = statement.takes or statement.imported.rpartition(".")[2]
        for names in (self.result.names, self.result.definitions):
            if why := names.why(taken):
                if statement.takes:
                    names.add(statement.names[0], path, why)
                self._add_attempts(side_name, path, statement, why)

    def _add_attempts(self, side: str, path: str, statement: Statement, why: str) -> None:
        """Add what shares a ``try`` with a statement: whether that raises an exception decides."""
        source = self._sides[side].source(path)
        for other in source.statements if source and statement.attempts else ():
            if other is not statement and {*other.attempts} & {*statement.attempts}:
                self._differs(side, path, other, why, CHANGED)

    def _differs(self, side: str, path: str, statement: Statement, why: str, how: str) -> None:
        """Add a statement whose effect differs."""
        names = statement.names
        if self._has_effects(self._sides[side], path, statement):
            self._acts(path, statement, why)
        elif any(name in _NAMES_FOR_PYTEST for name in names):
            self._acts(path, statement, f"{why}, which pytest reads")
        elif names == ("*",):
            self._acts(path, statement, why)
        elif _ALL in names and any(side.star_imports for side in self._sides.values()):
            self._acts(path, statement, f"{why}, and a star import reads it")
        else:
            self.result.statements.setdefault(path, why)
        if statement.kind is Kind.FUNCTION:
            self.result.functions.setdefault((path, statement.defines), how)
            self.result.definitions.add(names[0], path, why)
        else:
            is_outside = statement.kind is Kind.IMPORT and self._sides[side].is_from_outside(
                statement.imported
            )
            self._add_names(names, path, why, is_own=not is_outside)
            if statement.scope:
                self._add_names(statement.scope.split("."), path, why)

    def _has_effects(self, side: SideCode, path: str, statement: Statement) -> bool:
        """Whether a statement that differs has another effect than to bind its names."""
        is_read_by_python = bool(statement.scope) and any(map(_is_special, statement.names))
        return is_read_by_python or side.has_effects(path, statement)

    def _acts(self, path: str, statement: Statement, why: str) -> None:
        """Add a statement with an effect that is not known."""
        self.result.statements.setdefault(path, why)
        self._add_names(statement.names, path, why)
        if any(path in side.executed_outside for side in self._sides.values()):
            self._everywhere(why)

    def _add_names(self, names: Iterable[str], path: str, why: str, *, is_own: bool = True) -> None:
        for name in names:
            if name != "*":
                self.result.names.add(name, path, why, is_own=is_own)

    def _everywhere(self, why: str) -> None:
        self.result.everywhere.setdefault(why)


def _is_special(name: str) -> bool:
    """Whether Python itself uses a name of a class."""
    return name.startswith("__") and name.endswith("__")


def reasons_of(codes: Iterable[RunCode], why: Mapping[RunCode, str]) -> Sequence[str]:
    """Return why code differs, first of what differs itself."""
    reasons = {why[code] for code in codes if why[code]}
    differs_itself = tuple(f" ({how})" for how in (CHANGED, NEW, GONE))
    return sorted(reasons, key=lambda reason: (not reason.endswith(differs_itself), reason))
