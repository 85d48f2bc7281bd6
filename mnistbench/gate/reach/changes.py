"""What differs between two trees, down to the functions and names of their Python files.

A statement that differs and runs when its file is imported changes the names that it binds and the
objects that it acts on. So does a statement that uses a changed name, or that ran a function that
differs: the surveys say what ran at an import. The names are those of both sides together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mnistbench.gate.messages import Followed, RunCode
from mnistbench.gate.reach.definitions import (
    MODULE,
    OPAQUE_DECORATORS,
    Function,
    Source,
    Statement,
    Uses,
)
from mnistbench.gate.reach.files import Files
from mnistbench.gate.words import BASE, HEAD

#: How a function or a name differs, as reports say it.
CHANGED = "changed"
NEW = "new"
GONE = "gone"

#: Attributes of builtin types. A function with such a name is not taken for what an attribute
#: means; whether it runs is seen.
_BUILTIN_ATTRIBUTES = frozenset(
    name
    for kind in (object, type, str, bytes, bytearray, int, float, complex, list, tuple, dict, set)
    for name in dir(kind)
) | {"close", "flush", "read", "readline", "readlines", "seek", "tell", "write"}

#: Builtin functions that change an object by a name or a text.
_CHANGING_BUILTINS = frozenset({"delattr", "eval", "exec", "setattr"})


class Name(NamedTuple):
    """A name that a module or a class of it defines."""

    path: str  # of the file, relative to the tree
    scope: str  # qualified name of the class; empty of the module
    name: str


class Used(NamedTuple):
    """A changed name that code uses."""

    name: str
    why: str  # it has changed


@dataclass
class Changes:
    """What differs between the trees, and what follows from it."""

    # (path, qualified name) -> how
    functions: dict[tuple[str, str], str] = field(default_factory=dict)
    names: dict[Name, str] = field(default_factory=dict)  # -> why
    # Of the names those of functions that an attribute of this name does not mean.
    not_attributes: set[Name] = field(default_factory=set)
    classes: dict[tuple[str, str], str] = field(default_factory=dict)  # -> why
    # Files of which a statement that runs at the import differs.
    files: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)  # files that this Python cannot read
    everywhere: str = ""  # why any case may do something else

    def of_code(self, code: RunCode, files: Files) -> str:
        """Return why a code object may do something else than on the other side; "" if not."""
        where = f"{code.path}:{code.name}"
        if code.path in self.unread:
            return f"runs {where}, and this Python cannot read the file"
        if code.name == MODULE:
            return f"imports {code.path} ({CHANGED})" if code.path in self.files else ""
        if how := self.functions.get((code.path, code.name)):
            return f"runs {where} ({how})"
        for class_name in _classes_of(code.name):
            if why := self.classes.get((code.path, class_name)):
                return f"runs {where} ({why})"
        is_inner = code.name.rpartition(".")[2].startswith("<")
        if not is_inner and not self._may_use(files.words(code.path)):
            return ""
        source = files.source(code.path)
        function = source.function(code.name, code.line) if source else None
        if source and function is None:  # a lambda of the module
            return self._of_statements(code, source, files)
        if source is None or function is None:
            return f"runs {where}, which is not found in its file"
        if how := self.functions.get((code.path, function.name)):
            return f"runs {code.path}:{function.name} ({how})"
        used = self.used(code.path, "", function.uses, files)
        return f"runs {where}, which uses {used.name} ({used.why})" if used else ""

    def _of_statements(self, code: RunCode, source: Source, files: Files) -> str:
        """Return why the statement of a lambda differs; "" if it does not."""
        for statement in source.statements_at(code.line):
            for name in statement.names:
                if why := self.names.get(Name(code.path, statement.scope, name)):
                    return f"runs {code.path}:{code.name} of {name} ({why})"
            if used := self.used(code.path, statement.scope, statement.uses, files):
                return f"runs {code.path}:{code.name}, which uses {used.name} ({used.why})"
        return ""

    def _may_use(self, words: frozenset[str]) -> bool:
        return any(name.name in words for name in self.names)

    def used(self, path: str, scope: str, uses: Uses, files: Files) -> Used | None:
        """Return a changed name that is used; None if there is none.

        Args:
            path: of the file with the code.
            scope: class whose body the code belongs to; empty for a function or a module.
            uses: of the code.
            files: of its side.
        """
        for name in sorted(uses.names):
            for inner in dict.fromkeys((scope, "")):
                if why := self.names.get(Name(path, inner, name)):
                    return Used(name, why)
        for module, name in sorted(uses.imports):
            if why := self._of_import(path, module, name, files):
                return Used(name, why)
        for changed, why in self.names.items():
            is_named = changed.name in uses.attributes and changed not in self.not_attributes
            if is_named or uses.is_computed:
                return Used(changed.name if is_named else "computed names", why)
        return None

    def _of_import(self, path: str, module: str, name: str, files: Files) -> str:
        """Return why what is imported differs; "" if it does not."""
        target = files.imported_path(path, module)
        if not name or not target:
            return ""
        if why := self.names.get(Name(target, "", name)):
            return why
        source = files.source(target)
        if source and any(name in statement.names for statement in source.statements):
            return ""
        # The module makes the name when it is asked for it.
        return next((why for changed, why in self.names.items() if changed.name == name), "")


def _classes_of(name: str) -> Iterator[str]:
    """Yield the classes around a function: ``A.B`` and ``A`` of ``A.B.f``."""
    outer = name.partition(".<locals>")[0]
    while "." in outer:
        outer = outer.rpartition(".")[0]
        yield outer


@dataclass(frozen=True)
class SideCode:
    """A side's files, and what ran in them."""

    files: Files
    followed: Followed

    def run_under(self, path: str, statement: Statement) -> Iterator[RunCode]:
        """Yield the code that ran while a statement was executed at the import of a file."""
        for position, under, line in self.followed.imported:
            if under == path and statement.line <= line <= statement.last_line:
                yield self.followed.code[position]


def changes(sides: Mapping[str, SideCode], differing: Iterable[str]) -> Changes:
    """Compare the imported files of both sides.

    Args:
        sides: BASE and HEAD.
        differing: files whose bytes differ, relative to the trees.
    """
    result = Changes()
    spreading = _Spreading(sides, result)
    imported = {path for side in sides.values() for path in side.files.paths}
    for path in sorted(imported.intersection(differing)):
        base = sides[BASE].files.source(path)
        head = sides[HEAD].files.source(path)
        if base is None or head is None:
            result.unread.add(path)
            result.everywhere = result.everywhere or f"this Python cannot read {path}"
        else:
            _compare_functions(path, base, head, result)
            spreading.compare(path, base, head)
    for path in sorted(imported.difference(differing)):
        spreading.load(path)
    spreading.run()
    return result


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


def _compare_functions(path: str, base: Source, head: Source, result: Changes) -> None:
    for name, how in changed_functions(base, head).items():
        result.functions[path, name] = how


class _Spreading:
    """Finds all statements whose effect differs."""

    def __init__(self, sides: Mapping[str, SideCode], result: Changes) -> None:
        self._sides = sides
        self._result = result
        self._done: set[tuple[str, str, int, str]] = set()  # side, path, line, content

    def compare(self, path: str, base: Source, head: Source) -> None:
        """Add the statements of a file that differ between the sides."""
        statements = {BASE: _by_name(base), HEAD: _by_name(head)}
        for name in dict.fromkeys((*statements[BASE], *statements[HEAD])):
            of_base = statements[BASE].get(name, [])
            of_head = statements[HEAD].get(name, [])
            contents = [[statement.content for statement in of] for of in (of_base, of_head)]
            if contents[0] != contents[1]:
                how = CHANGED if of_base and of_head else NEW if of_head else GONE
                for side, listed in ((BASE, of_base), (HEAD, of_head)):
                    for statement in listed:
                        self._add(side, path, statement, f"{path}:{statement.line} {how}", how)

    def load(self, path: str) -> None:
        """Add the statements of a file that one side alone has imported."""
        having = [side for side in (BASE, HEAD) if path in self._sides[side].files.paths]
        if len(having) == 1:
            source = self._sides[having[0]].files.source(path)
            for statement in source.statements if source else ():
                if statement.acts_on:
                    why = f"{path} is imported in the {having[0]} alone"
                    self._add(having[0], path, statement, why)

    def run(self) -> None:
        """Add the statements that use what has changed, until there are no more."""
        self._add_runs()
        known = -1
        while known != self._size():
            known = self._size()
            for side_name, side in self._sides.items():
                for path in side.files.paths:
                    self._add_users(side_name, side, path)
            self._add_runs()
            for side in self._sides.values():
                self._add_opaque(side)

    def _size(self) -> int:
        return len(self._done) + len(self._result.names) + len(self._result.functions)

    def _add_users(self, side_name: str, side: SideCode, path: str) -> None:
        """Add the statements of a file that use a changed name."""
        words = side.files.words(path)
        if "*" not in words and not any(name.name in words for name in self._result.names):
            return
        source = side.files.source(path)
        for statement in source.statements if source else ():
            if statement.names == ("*",):
                self._add_star(side, path, statement)
            elif self._key(side_name, path, statement) not in self._done:
                used = self._result.used(path, statement.scope, statement.uses, side.files)
                if used:
                    self._add(side_name, path, statement, used.why)

    def _add_star(self, side: SideCode, path: str, statement: Statement) -> None:
        """Add the changed names of a module to a file that imports all of them."""
        (module, _, _) = statement.imported[0]
        target = side.files.imported_path(path, module)
        names = self._result.names
        for name, why in [(name, why) for name, why in names.items() if name.path == target]:
            if not name.scope:
                names.setdefault(Name(path, "", name.name), why)

    def _add_opaque(self, side: SideCode) -> None:
        """Add the names of functions whose calls may use code that differs and is not seen to run.

        It has run in an earlier test, or compiled.
        """
        calls = _Calls(side.files, self._result.functions)
        for path in side.files.paths:
            source = side.files.source(path) if calls.may_be_opaque(path) else None
            for function in source.functions if source else ():
                if function.is_opaque and (why := calls.changed(path, function)):
                    scope, _, name = function.name.rpartition(".")
                    self._result.names.setdefault(Name(path, scope, name), why)

    def _add_runs(self) -> None:
        """Add the statements that have run functions that differ, and what ran elsewhere."""
        for side_name, side in self._sides.items():
            for position, under, line in side.followed.imported:
                code = side.followed.code[position]
                why = self._result.of_code(code, side.files)
                if not why or code.name == MODULE:
                    continue
                if not under:
                    self._everywhere(f"{why} outside of tests")
                    continue
                source = side.files.source(under)
                for statement in source.statements_at(line) if source else ():
                    self._add(side_name, under, statement, f"{under}:{line} {why}")

    def _key(self, side: str, path: str, statement: Statement) -> tuple[str, str, int, str]:
        return side, path, statement.line, statement.content

    def _add(
        self, side: str, path: str, statement: Statement, why: str, how: str = CHANGED
    ) -> None:
        """Add a statement whose effect differs, with what it binds and acts on."""
        key = self._key(side, path, statement)
        if key in self._done:
            return
        self._done.add(key)
        result = self._result
        result.files.add(path)
        is_function = bool(statement.defines) and not statement.is_class
        for name in statement.names:
            changed = Name(path, statement.scope, name)
            result.names.setdefault(changed, why)
            is_called_alone = how == CHANGED and not statement.is_decorated
            if is_function and (is_called_alone or name in _BUILTIN_ATTRIBUTES):
                result.not_attributes.add(changed)
        if is_function:
            result.functions.setdefault((path, statement.defines), why)
        if statement.is_class:
            result.classes.setdefault((path, statement.defines), why)
            if how != CHANGED:
                result.names.setdefault(Name(path, statement.defines, "__subclasses__"), why)
        is_of_class = statement.scope and not is_function
        if is_of_class and (statement.is_read_by_class or not statement.names):
            outer, _, name = statement.scope.rpartition(".")
            result.classes.setdefault((path, statement.scope), why)
            result.names.setdefault(Name(path, outer, name), why)
        self._add_effects(self._sides[side], path, statement, why)

    def _add_effects(self, side: SideCode, path: str, statement: Statement, why: str) -> None:
        """Add the objects that a statement may change beside what it binds."""
        for root in statement.acts_on:
            for data in self._objects(side, path, root):
                if data is None:
                    self._everywhere(f"{why}, and acts on {root or 'an object'} at its import")
                else:
                    self._result.names.setdefault(data, why)
        for code in side.run_under(path, statement):
            source = side.files.source(code.path)
            function = source.function(code.name, code.line) if source else None
            if source and function:
                for name in _data(source).intersection(function.uses.names):
                    self._result.names.setdefault(Name(code.path, "", name), why)

    def _objects(self, side: SideCode, path: str, root: str) -> Iterator[Name | None]:
        """Yield the data that a name means, None if it can be anything outside of the tree."""
        if root in _CHANGING_BUILTINS or not root:
            yield None
            return
        source = side.files.source(path)
        for statement in source.statements if source else ():
            if root not in statement.names or statement.scope:
                continue
            imports = [
                (module, name) for module, name, bound in statement.imported if bound == root
            ]
            if not imports:
                if not statement.defines:
                    yield Name(path, "", root)
                continue
            for module, name in imports:
                target = side.files.imported_path(path, module)
                submodule = side.files.imported_path(path, f"{module.rstrip('.')}.{name}")
                if not target and not submodule:
                    yield None
                elif name and not submodule and name in _data_of(side.files, target):
                    yield Name(target, "", name)

    def _everywhere(self, why: str) -> None:
        self._result.everywhere = self._result.everywhere or why


class _Calls:
    """Follows the calls of functions in the text of a side: by the names that can be resolved."""

    def __init__(self, files: Files, functions: Mapping[tuple[str, str], str]) -> None:
        self._files = files
        self._functions = functions

    def may_be_opaque(self, path: str) -> bool:
        """Whether a file may have an opaque function: parsing it takes longer."""
        return any(OPAQUE_DECORATORS.search(word) for word in self._files.words(path))

    def changed(self, path: str, function: Function) -> str:
        """Return why a function, or one that it may call, differs; "" if none does."""
        waiting = [(path, function)]
        seen = {(path, function.name)}
        while waiting and self._functions:
            place, called = waiting.pop()
            if how := self._functions.get((place, called.name)):
                return f"{place}:{called.name} {how}"
            for callee in self._callees(place, called):
                if (callee[0], callee[1].name) not in seen:
                    seen.add((callee[0], callee[1].name))
                    waiting.append(callee)
        return ""

    def _callees(self, path: str, function: Function) -> Iterator[tuple[str, Function]]:
        """Yield the functions that a function may call."""
        uses = function.uses
        scope = function.name.rpartition(".")[0]
        yield from self._named(
            path, {*uses.names, *(f"{scope}.{name}" for name in uses.attributes)}
        )
        inner = f"{function.name}.<locals>."
        source = self._files.source(path)
        for local in source.functions if source else ():
            if local.name.startswith(inner):
                yield path, local
        imports = [
            (module, name)
            for statement in (source.statements if source else ())
            for module, name, bound in statement.imported
            if bound in uses.names
        ]
        for module, name in (*imports, *uses.imports):
            target = self._files.imported_path(path, module)
            submodule = self._files.imported_path(path, f"{module.rstrip('.')}.{name}")
            if submodule or (target and not name):
                yield from self._named(submodule or target, uses.attributes)
            elif target:
                yield from self._named(target, {name})

    def _named(self, path: str, names: Collection[str]) -> Iterator[tuple[str, Function]]:
        """Yield the functions of a file with these names, and the methods of classes with them."""
        source = self._files.source(path)
        for function in source.functions if source else ():
            scope, _, name = function.name.rpartition(".")
            is_made = scope in names and name in ("__init__", "__new__", "__post_init__")
            if function.name in names or is_made:
                yield path, function


def _by_name(source: Source) -> dict[tuple[str, str], list[Statement]]:
    """Return the statements of each name of a scope; those without one have the name ""."""
    statements: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for statement in source.statements:
        for name in statement.names or ("",):
            statements[statement.scope, name].append(statement)
    return statements


def _data(source: Source) -> frozenset[str]:
    """Return the names of a module that are neither functions nor classes nor imported."""
    return frozenset(
        name
        for statement in source.statements
        if not (statement.scope or statement.defines or statement.imported)
        for name in statement.names
    )


def _data_of(files: Files, path: str) -> frozenset[str]:
    source = files.source(path)
    return _data(source) if source else frozenset()
