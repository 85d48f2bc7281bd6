"""What differs between two trees, down to the functions and names of their Python files.

A statement that differs and runs when its file is imported changes the names that it binds and the
objects that it acts on. So does a statement that uses a changed name, or that ran a function that
differs: the surveys say what ran at an import. The names are those of both sides together.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mnistbench.gate.messages import RunCode
from mnistbench.gate.reach.calls import Calls
from mnistbench.gate.reach.definitions import MODULE, Function, Source, Statement
from mnistbench.gate.reach.files import Files, Name
from mnistbench.gate.reach.parts import COMPUTING, OWN_OBJECT, Uses
from mnistbench.gate.reach.side_code import SideCode
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

#: Builtin functions that change an object by a name or a text, or return the names of one.
_CHANGING_BUILTINS = frozenset({"delattr", "eval", "exec", "globals", "locals", "setattr", "vars"})

#: Names that a function calls without a statement of the module that binds them.
_BUILTINS = frozenset(dir(builtins))

#: Scope of an attribute of an object that the text does not show.
_ANY_OBJECT = "*"

#: The name with which a module says what a star import of it brings.
_ALL = "__all__"


class Used(NamedTuple):
    """A changed name that code uses."""

    name: str
    why: str  # it has changed


@dataclass
class Changes:
    """What differs between the trees, and what follows from it."""

    # (path, qualified name) -> how
    functions: dict[tuple[str, str], str] = field(default_factory=dict)
    # Functions whose statement differs itself: their code, a default or a decorator.
    redefined: set[tuple[str, str]] = field(default_factory=set)
    # Path and name of what a statement uses that differs itself -> the other name that it binds.
    bound_anew: dict[tuple[str, str], str] = field(default_factory=dict)
    names: dict[Name, str] = field(default_factory=dict)  # -> why
    # Of the names those of functions that an attribute of this name does not mean.
    not_attributes: set[Name] = field(default_factory=set)
    classes: dict[tuple[str, str], str] = field(default_factory=dict)  # -> why
    # Files of which a statement that runs at the import differs.
    files: set[str] = field(default_factory=set)
    # Those of them whose import may take another time.
    imports: set[str] = field(default_factory=set)
    # Files that one side alone has imported -> why that counts.
    one_sided: dict[str, str] = field(default_factory=dict)
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
        if not is_inner and not self.may_use(files.words(code.path)):
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

    def may_use(self, words: frozenset[str]) -> bool:
        """Whether a file with these words may use what has changed."""
        if self.one_sided or not words.isdisjoint(COMPUTING):
            return bool(self.names or self.one_sided)
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
        computed_in = self._computed_in(path, uses, files)
        for changed, why in self.names.items():
            is_of_module = not changed.scope
            is_attribute = changed.name in uses.attributes or (
                changed.name in uses.own_attributes and not is_of_module
            )
            if is_attribute and changed not in self.not_attributes:
                return Used(changed.name, why)
            is_computed = changed.path in computed_in and not self._is_function(changed)
            if uses.lists_names or is_computed:
                return Used("computed names", why)
        return None

    def _computed_in(self, path: str, uses: Uses, files: Files) -> set[str]:
        """Return the files of which code may use data by names that it computes.

        Its own, if it is not said of which object; of others too much would count: nearly all code
        has a getattr somewhere.
        """
        computed_in = {path} if uses.is_computed else set[str]()
        # Nothing in the tree has the names of a module from outside.
        computed_in |= {
            target.path
            for target in (
                *(files.resolved(path, name) for name in uses.computed_of),
                *(
                    files.in_module(path, module, [*filter(None, [name])])
                    for module, name in uses.computed_of_imports
                ),
            )
            if target
        }
        return computed_in

    def _is_function(self, name: Name) -> bool:
        """Whether a changed name is that of a function, which is seen if it runs."""
        return (name.path, f"{name.scope}.{name.name}".lstrip(".")) in self.functions

    def _of_import(self, path: str, module: str, name: str, files: Files) -> str:
        """Return why what is imported differs; "" if it does not."""
        target = files.imported_path(path, module)
        submodule = files.imported_path(path, f"{module.rstrip('.')}.{name}") if name else ""
        for imported in (target, submodule):
            if one_sided := self.one_sided.get(imported, ""):
                return one_sided
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
            for name, how in changed_functions(base, head).items():
                result.functions[path, name] = how
                result.redefined.add((path, name))
            spreading.compare(path, base, head)
    for path in sorted(imported):
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


class _Spreading:
    """Finds all statements whose effect differs."""

    def __init__(self, sides: Mapping[str, SideCode], result: Changes) -> None:
        self._sides = sides
        self._result = result
        self._done: set[tuple[str, str, int, str]] = set()  # side, path, line, content

    def compare(self, path: str, base: Source, head: Source) -> None:
        """Add the statements of a file that differ between the sides, or whose order does."""
        statements = {BASE: _by_name(base), HEAD: _by_name(head)}
        for name in dict.fromkeys((*statements[BASE], *statements[HEAD])):
            of_base = statements[BASE].get(name, [])
            of_head = statements[HEAD].get(name, [])
            contents = [[statement.content for statement in of] for of in (of_base, of_head)]
            if contents[0] != contents[1]:
                how = CHANGED if of_base and of_head else NEW if of_head else GONE
                for side, listed in ((BASE, of_base), (HEAD, of_head)):
                    for statement in listed:
                        self._result.redefined.add((path, statement.defines))
                        self._bind_anew(path, statement)
                        self._add(side, path, statement, f"{path}:{statement.line} {how}", how)
        for moved in (_moved(_orders(base), _orders(head)), self._moved_runs(path, base, head)):
            for side, statements_of_side in zip((BASE, HEAD), moved, strict=True):
                for statement in statements_of_side:
                    why = f"{path}:{statement.line} in another order"
                    self._add(side, path, statement, why)

    def _bind_anew(self, path: str, statement: Statement) -> None:
        """Note what a statement such as ``f = cache(g)`` binds to another name."""
        if not statement.defines and not statement.imported and len(statement.names) == 1:
            for used in statement.uses.names:
                self._result.bound_anew.setdefault((path, used), statement.names[0])

    def _moved_runs(
        self, path: str, base: Source, head: Source
    ) -> tuple[list[Statement], list[Statement]]:
        """Return the statements of each side that run a function, if their order differs."""
        orders = []
        for side, source in ((self._sides[BASE], base), (self._sides[HEAD], head)):
            order: dict[str, list[Statement]] = defaultdict(list)
            for statement in source.statements:
                if not statement.is_head:
                    for code in {*side.run_under(path, statement)}:
                        order[f"{code.path}:{code.name}"].append(statement)
            orders.append(order)
        return _moved(orders[0], orders[1])

    def load(self, path: str) -> None:
        """Add the statements of a file that one side alone has imported."""
        having = [side for side in (BASE, HEAD) if path in self._sides[side].files.paths]
        if len(having) == 1:
            why = f"{path} is imported in the {having[0]} alone"
            self._result.one_sided[path] = why
            source = self._sides[having[0]].files.source(path)
            for statement in source.statements if source else ():
                if statement.acts_on:
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
                self._add_kept(side)

    def _size(self) -> int:
        return len(self._done) + len(self._result.names) + len(self._result.functions)

    def _add_users(self, side_name: str, side: SideCode, path: str) -> None:
        """Add the statements of a file that use a changed name."""
        words = side.files.words(path)
        if "*" not in words and not self._result.may_use(words):
            return
        source = side.files.source(path)
        for statement in source.statements if source else ():
            is_done = self._key(side_name, path, statement) in self._done
            if statement.names == ("*",):
                self._add_star(side, path, statement, is_changed=is_done)
            elif not is_done:
                used = self._result.used(path, statement.scope, statement.uses, side.files)
                if used:
                    self._add(side_name, path, statement, used.why)

    def _add_star(
        self, side: SideCode, path: str, statement: Statement, *, is_changed: bool
    ) -> None:
        """Add the changed names of a module to a file that imports all of them.

        All of its names if the import or the list of what it brings has changed.
        """
        (module, _, _) = statement.imported[0]
        target = side.files.imported_path(path, module)
        names = self._result.names
        for name, why in [(name, why) for name, why in names.items() if name.path == target]:
            if not name.scope:
                names.setdefault(Name(path, "", name.name), why)
        why_all = names.get(Name(target, "", _ALL), "")
        if is_changed:
            why_all = f"{path}:{statement.line} {CHANGED}"
        if why_all:
            for bound in _names_of_module(side.files, target, set()):
                names.setdefault(Name(path, "", bound), why_all)

    def _add_kept(self, side: SideCode) -> None:
        """Add what functions keep for later calls if they may have used code that differs.

        Their results if they are cached or compiled, objects of the module, attributes that they
        fill once: in a later test nothing of that code is seen to run.
        """
        followed = side.followed
        why_changed = [self._result.of_code(code, side.files) for code in followed.code]
        changed = {position for position, why in enumerate(why_changed) if why}
        companions: dict[int, set[int]] = defaultdict(set)
        for positions in {*map(frozenset, followed.cases.values())}:
            if positions.isdisjoint(changed):
                continue
            for position in positions:
                companions[position] |= positions
        calls = Calls(side, why_changed)
        for position, together in companions.items():
            code = followed.code[position]
            source = side.files.source(code.path)
            function = source.function(code.name, code.line) if source else None
            if function is None or not (function.is_opaque or function.keeps):
                continue
            kept = [*self._kept(side, code.path, function)]
            if all(name in self._result.names for name in kept):
                continue
            if why := calls.changed(position, together):
                self._add_names(kept, why)

    def _kept(self, side: SideCode, path: str, function: Function) -> Iterator[Name]:
        """Yield the names of what a function keeps."""
        scope, _, name = function.name.rpartition(".")
        if function.is_opaque:
            yield Name(path, scope, name)
        for chain in function.keeps:
            yield from self._acted(side, path, function, chain)

    def _acted(self, side: SideCode, path: str, function: Function, chain: str) -> Iterator[Name]:
        """Yield the names of what a function changes as ``a.b``, or sets."""
        root, _, attributes = chain.partition(".")
        if root in function.global_names:
            yield Name(path, "", root)
        elif root in function.uses.names:
            yield from self._objects(side, path, chain)
        else:
            yield from _attributes(path, chain)
            for module, name in function.uses.imports:
                names = [*filter(None, [name]), *attributes.split(".")]
                data = side.files.in_module(path, module, names)
                if data and data.name:
                    yield data

    def _objects(self, side: SideCode, path: str, chain: str) -> Iterator[Name]:
        """Yield the names of a file, or of what it imports, that ``a.b`` may change."""
        data = side.files.resolved(path, chain)
        if data and data.name and (side.is_data(data) or not side.binds(data)):
            is_fixed = "." not in chain and side.is_data(data) and side.is_fixed(data)
            if chain not in _BUILTINS and not is_fixed:
                yield data
                yield from self._other_names(side, path, chain, data)
        else:
            yield from _attributes(path, chain)

    def _other_names(self, side: SideCode, path: str, chain: str, data: Name) -> Iterator[Name]:
        """Yield other names of the object ``a`` of ``a.b``: ``a`` may be a variable of a loop."""
        for statement in side.binding(data):
            if not statement.value.made_by:
                yield from self._data(side, data.path, statement.uses.names)
                yield from _attributes(path, chain)

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
        return side, path, statement.line, f"{statement.is_head}{statement.content}"

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
        does_work = statement.imported or statement.uses.names or statement.acts_on
        if statement.is_class or (does_work and not is_function) or statement.is_decorated:
            result.imports.add(path)
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
        is_protocol = any(name.startswith("__") for name in statement.names)
        if is_of_class and (statement.is_read_by_class or is_protocol or not statement.names):
            outer, _, name = statement.scope.rpartition(".")
            result.classes.setdefault((path, statement.scope), why)
            result.names.setdefault(Name(path, outer, name), why)
        self._add_effects(self._sides[side], path, statement, why)

    def _add_effects(self, side: SideCode, path: str, statement: Statement, why: str) -> None:
        """Add the objects that a statement may change beside what it binds."""
        for chain in statement.acts_on:
            is_unknown = not chain or chain.partition(".")[0] in _CHANGING_BUILTINS
            if is_unknown or side.files.resolved(path, chain) is None:
                self._everywhere(f"{why}, and acts on {chain or 'an object'} at its import")
            else:
                self._add_names(self._objects(side, path, chain), why)
        self._add_names(self._data(side, path, filter(None, statement.passes)), why)
        if statement.uses.lists_names and statement.acts_on:
            self._everywhere(f"{why}, and acts on objects that it lists at its import")
        functions = [*_functions_run(side, path, statement)]
        # The object of a method is acted on where the method is called.
        changes_own = any(map(_acts_on_own_object, (function for _, function in functions)))
        for function_path, function in functions:
            self._add_names(_lent(side, function_path, function, changes_own=changes_own), why)
            if function.uses.lists_names and function.acts_on:
                self._everywhere(f"{why}, and acts on objects that {function.name} lists")
            for chain in function.acts_on:
                if chain.partition(".")[0] not in OWN_OBJECT:
                    self._add_names(self._acted(side, function_path, function, chain), why)

    def _data(self, side: SideCode, path: str, chains: Iterable[str]) -> Iterator[Name]:
        """Yield the data of modules among what a file names so, if it can be changed."""
        for chain in chains:
            name = side.files.resolved(path, chain)
            if name and side.is_data(name) and not side.is_fixed(name):
                yield name

    def _add_names(self, names: Iterable[Name], why: str) -> None:
        for name in names:
            self._result.names.setdefault(name, why)

    def _everywhere(self, why: str) -> None:
        self._result.everywhere = self._result.everywhere or why


def _functions_run(
    side: SideCode, path: str, statement: Statement
) -> Iterator[tuple[str, Function]]:
    """Yield the functions that a statement ran at the import of its file, with their files."""
    for code in side.run_under(path, statement):
        source = side.files.source(code.path)
        function = source.function(code.name, code.line) if source else None
        if function:
            yield code.path, function


def _lent(side: SideCode, path: str, function: Function, *, changes_own: bool) -> Iterator[Name]:
    """Yield the data that a function may change by another name.

    Args:
        side: of the function.
        path: of its file.
        function: has run.
        changes_own: whether a method has run beside it that changes its own object.
    """
    for used in function.lends | function.lends_items | function.calls:
        name = side.files.resolved(path, used)
        if name is None or not side.is_data(name) or side.is_fixed(name):
            continue
        if (
            used in function.lends
            or (used in function.lends_items and not side.has_fixed_items(name))
            or (used in function.calls and (changes_own or not side.is_object(name)))
        ):
            yield name


def _acts_on_own_object(function: Function) -> bool:
    return any(chain.partition(".")[0] in OWN_OBJECT for chain in function.acts_on)


def _attributes(path: str, chain: str) -> Iterator[Name]:
    """Yield the attributes of ``a.b.c``, whatever ``a`` is."""
    for attribute in chain.split(".")[1:]:
        if attribute not in _BUILTIN_ATTRIBUTES:
            yield Name(path, _ANY_OBJECT, attribute)


def _by_name(source: Source) -> dict[tuple[str, str], list[Statement]]:
    """Return the statements of each name of a scope; those without one have the name ""."""
    statements: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for statement in source.statements:
        for name in statement.names or ("",):
            statements[statement.scope, name].append(statement)
    return statements


def _orders(source: Source) -> dict[str, list[Statement]]:
    """Return, by the first name of what statements act on, all that act on it or use it."""
    roots = {root for statement in source.statements for root in _roots_of_effects(statement)}
    return {
        root: [
            statement
            for statement in source.statements
            if not statement.is_head
            and (
                root in _roots_of_effects(statement)
                or root in statement.uses.names
                or root in statement.names
            )
        ]
        for root in roots
    }


def _moved(
    base: Mapping[str, Sequence[Statement]], head: Mapping[str, Sequence[Statement]]
) -> tuple[list[Statement], list[Statement]]:
    """Return the statements of each side whose order is not that of the other side."""
    moved: tuple[list[Statement], list[Statement]] = ([], [])
    for name in base.keys() & head.keys():
        common = {statement.content for statement in base[name]}
        common &= {statement.content for statement in head[name]}
        orders = [
            [statement for statement in side[name] if statement.content in common]
            for side in (base, head)
        ]
        contents = [[statement.content for statement in order] for order in orders]
        if contents[0] != contents[1]:
            moved[0].extend(orders[0])
            moved[1].extend(orders[1])
    return moved


def _roots_of_effects(statement: Statement) -> set[str]:
    return {chain.partition(".")[0] for chain in statement.acts_on}


def _names_of_module(files: Files, path: str, seen: set[str]) -> set[str]:
    """Return the names that a module binds, also by its own star imports."""
    seen.add(path)
    source = files.source(path)
    names = set[str]()
    for statement in source.statements if source else ():
        if statement.names == ("*",):
            target = files.imported_path(path, statement.imported[0][0])
            if target not in seen:
                names |= _names_of_module(files, target, seen)
        elif not statement.scope:
            names |= {*statement.names}
    return names
