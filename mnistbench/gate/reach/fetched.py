"""See which attributes the code of a tree gets by names that its text may not show."""

from __future__ import annotations

import builtins
import os
import sys
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

#: Folder of the standard library, and that of installed packages in it.
_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_PYTEST = f"{os.sep}_pytest{os.sep}"

_GETATTR = builtins.getattr
_HASATTR = builtins.hasattr


class FetchedNames:
    """Names that ``getattr`` and ``hasattr`` got.

    From code of a tree or for a module of it, and names in code that was made.

    While it is started, other functions stand in the place of the builtin ones.
    """

    def __init__(self, prefix: str) -> None:
        """Prepare.

        Args:
            prefix: how the paths of files of the tree begin.
        """
        self._prefix = prefix
        self._names: set[str] = set()
        self._getattr, self._hasattr = self._functions()

    def _functions(self) -> tuple[Any, Any]:
        """Return what stands in the place of ``getattr`` and ``hasattr``; it runs very often."""
        frame = sys._getframe  # noqa: SLF001
        add = self._names.add
        is_by_tree = self._is_by_tree
        is_of_tree = self._is_of_tree

        def fetch(thing: object, name: str, *default: object) -> Any:
            if is_by_tree(frame(1)) or is_of_tree(thing, frame(1)):
                add(name)
            return _GETATTR(thing, name, *default)

        def has(thing: object, name: str) -> bool:
            if is_by_tree(frame(1)) or is_of_tree(thing, frame(1)):
                add(name)
            return _HASATTR(thing, name)

        for function, original in ((fetch, _GETATTR), (has, _HASATTR)):
            for attribute in ("__name__", "__qualname__", "__module__"):  # pickle looks for these
                setattr(function, attribute, _GETATTR(original, attribute))
        return fetch, has

    def _is_of_tree(self, thing: object, caller: FrameType) -> bool:
        """Whether an object is a module of the tree, whoever gets its attributes but pytest.

        That looks at all names of the modules of tests.
        """
        if type(thing) is not ModuleType or _PYTEST in caller.f_code.co_filename:
            return False
        file = vars(thing).get("__file__")
        return type(file) is str and file.startswith(self._prefix)

    def _is_by_tree(self, caller: FrameType | None) -> bool:
        """Whether code of the tree calls, perhaps by the standard library."""
        while caller is not None:
            path = caller.f_code.co_filename
            if path.startswith(self._prefix):
                return True
            if not path.startswith(_STANDARD_LIBRARY) or _INSTALLED in path:
                return False
            caller = caller.f_back
        return False

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
