"""The Python files of a side that its survey has imported, read when they are asked for."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mnistbench.gate.reach.definitions import Source, read

_WORD = re.compile(r"[^\W\d]\w*")


class Name(NamedTuple):
    """A name that a module or a class of it defines."""

    path: str  # of the file, relative to the tree
    scope: str  # qualified name of the class; empty of the module
    name: str


class Files:
    """The imported Python files of a tree."""

    def __init__(self, root: Path, modules: Mapping[str, str]) -> None:
        self._root = root
        self._modules = modules  # name -> file, relative to the tree
        self._names = {path: name for name, path in modules.items()}
        self._sources: dict[str, Source | None] = {}
        self._words: dict[str, frozenset[str]] = {}

    @property
    def paths(self) -> Collection[str]:
        """Of the imported files, relative to the tree."""
        return self._names.keys()

    def source(self, path: str) -> Source | None:
        """Return what a file defines: nothing if it does not exist, None if it cannot be read."""
        if path not in self._sources:
            self._sources[path] = self._read(path)
        return self._sources[path]

    def _read(self, path: str) -> Source | None:
        try:
            return read((self._root / path).read_bytes())
        except FileNotFoundError:
            return Source((), ())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None

    def words(self, path: str) -> frozenset[str]:
        """Return the words of a file, among them all names that it uses; * of a star import."""
        if path not in self._words:
            try:
                text = (self._root / path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = ""
            stars = ("*",) if "import *" in text else ()
            self._words[path] = frozenset((*_WORD.findall(text), *stars))
        return self._words[path]

    def imported_path(self, path: str, module: str) -> str:
        """Return the file of a module, named as in the file ``path``; "" if it is not in the tree.

        Leading dots are those of a relative import.
        """
        relative = module.lstrip(".")
        level = len(module) - len(relative)
        if not level:
            return self._modules.get(module, "")
        parts = self._names.get(path, "").split(".")
        kept = len(parts) - level + path.endswith("__init__.py")
        return self._modules.get(".".join([*parts[: max(0, kept)], *filter(None, [relative])]), "")

    def resolved(self, path: str, chain: str) -> Name | None:
        """Return the name of the tree that ``a.b.c`` in a file begins with.

        "" as name for a module itself; None if ``a`` is imported from outside of the tree.
        """
        root, *attributes = chain.split(".")
        source = self.source(path)
        for statement in source.statements if source else ():
            if statement.scope or root not in statement.names:
                continue
            for module, name, bound in statement.imported:
                if bound == root:
                    return self.in_module(path, module, [*filter(None, [name]), *attributes])
        return Name(path, "", root)

    def in_module(self, path: str, module: str, names: Sequence[str]) -> Name | None:
        """Return the name that an attribute of a module is, perhaps of a submodule."""
        for name in names:
            submodule = f"{module}{'' if module.endswith('.') else '.'}{name}"
            if not self.imported_path(path, submodule):
                target = self.imported_path(path, module)
                return Name(target, "", name) if target else None
            module = submodule
        return Name(self.imported_path(path, module), "", "")
