"""The paths and tests among pytest's arguments, of which a side may lack some.

The other one may have added or renamed them.

pytest refuses arguments that name nothing. Does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest


class Requested:
    """What of the arguments a side has."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory  # where pytest runs
        self._lacking: list[str] = []  # arguments whose file or folder does not exist
        self._tests: dict[Path, dict[str, str]] = {}  # file -> name of a test in it -> the argument
        self._collected: set[str] = set()  # arguments that name a test which was collected

    @property
    def missing(self) -> tuple[str, ...]:
        """The arguments that name nothing on this side, known after collection."""
        named = [argument for tests in self._tests.values() for argument in tests.values()]
        return (
            *self._lacking,
            *(argument for argument in named if argument not in self._collected),
        )

    def existing(self, arguments: Sequence[str]) -> list[str]:
        """Return the files and folders of arguments that exist, of a test in a file the file.

        ``selects`` chooses the test.
        """
        existing: dict[str, None] = {}
        whole = set()
        for argument in arguments:
            path, name = _divided(argument)
            if not (self._directory / path).exists():
                self._lacking.append(argument)
                continue
            existing[path] = None
            if name:
                self._tests.setdefault(self._file(path), {})[name] = argument
            else:
                whole.add(self._file(path))
        for file in list(self._tests):
            if whole.intersection((file, *file.parents)):
                del self._tests[file]
        return list(existing)

    def note(self, item: pytest.Item) -> None:
        """Note that a test was collected."""
        self._collected.update(self._arguments_of(item))

    def selects(self, item: pytest.Item) -> bool:
        """Whether the arguments select a test of a file that they name."""
        return item.path not in self._tests or bool(self._arguments_of(item))

    def _arguments_of(self, item: pytest.Item) -> list[str]:
        own = item.nodeid.partition("::")[2]
        tests = self._tests.get(item.path, {})
        return [
            argument
            for name, argument in tests.items()
            # A point separates the class of an asv benchmark from its method.
            if own == name or own.startswith((f"{name}::", f"{name}[", f"{name}."))
        ]

    def _file(self, path: str) -> Path:
        return Path(os.path.normpath(self._directory / path))


def _divided(argument: str) -> tuple[str, str]:
    """Return the path of an argument and the name of a test, whose parameters may contain a path.

    The name is empty without a test.
    """
    node, bracket, parameters = argument.partition("[")
    path, separator, name = node.partition("::")
    return (path, f"{name}{bracket}{parameters}") if separator else (argument, "")
