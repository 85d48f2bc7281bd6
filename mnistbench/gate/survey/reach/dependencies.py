"""Which files with the dependencies of a project differ. The gate does not install them."""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.words import BASE, HEAD

#: Files with the dependencies of a project.
_DEPENDENCY_FILES = (
    "*.lock Pipfile constraints*.txt environment*.y*ml *requirements*.txt *requirements*.in "
    "pylock*.toml"
)
_DEPENDENCY_FOLDERS = frozenset({"requirements"})
#: Tables and keys of pyproject.toml with dependencies.
_DEPENDENCY_KEYS = (
    ("project", "dependencies"),
    ("project", "optional-dependencies"),
    ("project", "requires-python"),
    ("dependency-groups",),
    ("build-system", "requires"),
    ("tool", "poetry", "dependencies"),
    ("tool", "poetry", "group"),
)


def differing_dependencies(
    differing: Collection[str], trees: Mapping[str, Tree]
) -> tuple[str, ...]:
    """Return those of the differing files whose dependencies differ between the trees."""
    return tuple(path for path in differing if _has_other_dependencies(path, trees))


def _has_other_dependencies(path: str, trees: Mapping[str, Tree]) -> bool:
    name = PurePosixPath(path)
    if name.name in ("pyproject.toml", "setup.cfg", "setup.py"):
        base, head = (_dependencies(trees[side].root / path) for side in (BASE, HEAD))
        return base != head
    is_listed = name.suffix in (".txt", ".in") and not _DEPENDENCY_FOLDERS.isdisjoint(
        name.parts[:-1]
    )
    return is_listed or any(fnmatch(name.name, pattern) for pattern in _DEPENDENCY_FILES.split())


def _dependencies(path: Path) -> object:
    """Return what a file of a project says of its dependencies; its text if it cannot be read."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    try:
        if path.name == "setup.py":
            return [line for line in text.splitlines() if "version" not in line]
        if path.name == "setup.cfg":
            parser = configparser.RawConfigParser()
            parser.read_string(text)
            return [
                (section, key, value)
                for section in parser.sections()
                for key, value in parser[section].items()
                if section.startswith("options") and "require" in f"{section} {key}"
            ]
        document = tomllib.loads(text)
    except (ValueError, configparser.Error):
        return text
    return [_value_at(document, keys) for keys in _DEPENDENCY_KEYS]


def _value_at(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document
