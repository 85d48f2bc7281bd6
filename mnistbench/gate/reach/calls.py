"""The calls of functions in the text of a side, among the code that ran in the same tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from mnistbench.gate.messages import RunCode
from mnistbench.gate.reach.parts import CONSTRUCTORS
from mnistbench.gate.reach.side_code import SideCode


class Calls:
    """Follows the calls of functions in the text of a side, by the names that they use.

    Of the functions that a test has run: a method may be any of this name, and one that operators
    call is always one of them.
    """

    def __init__(self, side: SideCode, why_changed: Sequence[str]) -> None:
        self._side = side
        self._why_changed = why_changed
        self._uses: dict[int, frozenset[str] | None] = {}

    def changed(self, first: int, together: Iterable[int]) -> str:
        """Return why a function, or one that it may call, differs; "" if none does.

        Args:
            first: position of the function.
            together: positions of the code that ran in the same tests.
        """
        by_name: dict[str, list[int]] = defaultdict(list)
        for position in together:
            by_name[self._called_by(position)].append(position)
        waiting = [first]
        seen = {first}
        while waiting:
            position = waiting.pop()
            if why := self._why_changed[position]:
                return why
            names = self._names(position)
            callees = [*by_name[""], *(code for name in names for code in by_name.get(name, ()))]
            waiting += [callee for callee in callees if callee not in seen]
            seen.update(callees)
        return ""

    def _called_by(self, position: int) -> str:
        """Return the name by which code is called; "" if it needs none in the text."""
        name = self._side.followed.code[position].name
        outer, _, last = name.rpartition(".")
        if last in CONSTRUCTORS:
            return outer.rpartition(".")[2]
        if last.startswith("<"):
            return outer.removesuffix(".<locals>").rpartition(".")[2]
        return "" if last.startswith("__") else last

    def _names(self, position: int) -> frozenset[str]:
        """Return the names that code uses, with its own: lambdas and comprehensions have it."""
        if position not in self._uses:
            code = self._side.followed.code[position]
            source = self._side.files.source(code.path)
            function = source.function(code.name, code.line) if source else None
            own = {code.name.rpartition(".")[2]}
            if function:
                own |= function.uses.names | function.uses.attributes | function.uses.own_attributes
                own |= {name for _, name in function.uses.imports}
                own |= self._inner(code)
            self._uses[position] = frozenset(own)
        return self._uses[position] or frozenset()

    def _inner(self, code: RunCode) -> set[str]:
        """Return the names of the functions that a function defines."""
        inner = f"{code.name}.<locals>."
        return {
            other.name.rpartition(".")[2]
            for other in self._side.followed.code
            if other.path == code.path and other.name.startswith(inner)
        }
