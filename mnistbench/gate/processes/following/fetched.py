"""See which attributes the code of a tree gets by names that its text may not show."""

from __future__ import annotations

import builtins
import sys
from types import CodeType, FrameType, ModuleType
from typing import Any

from mnistbench.gate.processes.following.callers import calling_file, is_collector

_GETATTR = builtins.getattr
_HASATTR = builtins.hasattr


class FetchedNames:
    """Names that ``getattr`` and ``hasattr`` got, and names in code that was made.

    They are noted if code of the tree asks, perhaps by the standard library, or if anybody but
    pytest asks a module of the tree. While it is started, other functions stand in the place of the
    builtin ones.
    """

    def __init__(self, prefix: str) -> None:
        """Prepare.

        Args:
            prefix: how the paths of files of the tree begin.
        """
        self._prefix = prefix
        self._names: set[str] = set()
        self._of_pytest: set[str] = set()  # files
        self._getattr, self._hasattr = self._functions()

    def _functions(self) -> tuple[Any, Any]:
        """Return what stands in the place of ``getattr`` and ``hasattr``; it runs very often."""
        frame = sys._getframe  # noqa: SLF001
        add = self._names.add
        counts = self._counts

        def fetch(thing: object, name: str, *default: object) -> Any:
            if counts(thing, frame(1)):
                add(name)
            return _GETATTR(thing, name, *default)

        def has(thing: object, name: str) -> bool:
            if counts(thing, frame(1)):
                add(name)
            return _HASATTR(thing, name)

        for function, original in ((fetch, _GETATTR), (has, _HASATTR)):
            for attribute in ("__name__", "__qualname__", "__module__"):  # pickle looks for these
                setattr(function, attribute, _GETATTR(original, attribute))
        return fetch, has

    def _counts(self, thing: object, caller: FrameType) -> bool:
        """Whether a name counts that this caller gets of an object."""
        file = caller.f_globals.get("__file__")
        if type(file) is str and file in self._of_pytest:  # it asks most of all
            return False
        path = calling_file(caller)
        if path.startswith(self._prefix):
            return True
        if is_collector(path):
            if path == file:
                self._of_pytest.add(path)
            return False
        module_file = vars(thing).get("__file__") if type(thing) is ModuleType else None
        return type(module_file) is str and module_file.startswith(self._prefix)

    def start(self) -> None:
        """Begin to note names."""
        builtins.getattr, builtins.hasattr = self._getattr, self._hasattr

    def stop(self) -> None:
        """Give the builtin functions back."""
        builtins.getattr, builtins.hasattr = _GETATTR, _HASATTR

    def note_code(self, code: CodeType) -> None:
        """Note the names in code that ``exec`` or ``eval`` run."""
        self._names.update(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.note_code(constant)

    def drain(self) -> set[str]:
        """Return the names since the last call."""
        names = {name for name in self._names if type(name) is str}
        self._names.clear()
        return names
