"""Benchmarks of the head that measure the base as well.

A benchmark that the base lacks, or whose text has changed, compares nothing if each side runs its
own. So files of the head are carried to the copy of the base: those that the base lacks, and those
that differ in nothing but the text of their benchmarks. A file whose other functions differ stays
as it is, because these may be what is measured, and so does each file of the product.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from mnistbench.gate.listing import is_of_file
from mnistbench.gate.survey.reach.cases import is_product
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.words import BASE, HEAD

#: Qualified name of a test, and of what is in it, by pytest's own rule.
_TEST = re.compile(r"(Test\w*\.)*test\w*(\.|$)")


def head_benchmarks(code: ComparedCode) -> tuple[str, ...]:
    """Return the files of the head's tests, fixtures and data that differ."""
    return tuple(name for name in code.differing if _may_be_carried(name, code))


def changed_benchmarks(code: ComparedCode, cases: Collection[str]) -> tuple[str, ...]:
    """Return the files of these cases that the base lacks, or that differ in tests alone."""
    return tuple(
        name
        for name in code.differing
        if _may_be_carried(name, code)
        and any(cases_of(name, cases))
        and (not _is_in(BASE, name, code) or _differs_in_tests(name, code))
    )


def cases_of(name: str, node_ids: Collection[str]) -> Iterator[str]:
    """Yield the cases of a file of the tree."""
    return (node_id for node_id in node_ids if is_of_file(node_id, name))


def _may_be_carried(name: str, code: ComparedCode) -> bool:
    """Whether the head has a file of this name that belongs to its tests."""
    return _is_in(HEAD, name, code) and not is_product(name)


def _is_in(side: str, name: str, code: ComparedCode) -> bool:
    return (code.trees[side].root / name).is_file()


def _differs_in_tests(name: str, code: ComparedCode) -> bool:
    """Whether a file has all tests of the base, and nothing but the text of tests differs."""
    of_base, of_head = (code.functions_of(side, name) for side in (BASE, HEAD))
    gone = {function for function in of_base - of_head if _TEST.match(function)}
    return not gone and code.edits_only(name, lambda function: bool(_TEST.match(function)))


class CarriedFiles:
    """Files of the head that replace those of the base in its copy.

    With a file goes what the base lacks in its folder, if that is not the root: modules that it
    imports, fixtures and data.
    """

    def __init__(self, code: ComparedCode) -> None:
        self._code = code
        self._base = code.trees[BASE].root
        self._head = code.trees[HEAD].root
        self._own = self._base.parent / "replaced"  # the base's files of the same names
        self.names: tuple[str, ...] = ()

    def carry(self, names: Collection[str]) -> None:
        """Copy files of the head to the base, and what it lacks beside them."""
        root = PurePosixPath()
        folders = {PurePosixPath(name).parent for name in names}
        beside = [
            name
            for name in self._code.differing
            if not (folders - {root}).isdisjoint(PurePosixPath(name).parents)
            and _may_be_carried(name, self._code)
            and not _is_in(BASE, name, self._code)
        ]
        self.names = tuple(sorted({*names, *beside}))
        for name in self.names:
            if (self._base / name).exists():
                _move(self._base / name, self._own / name)
            _copy(self._head / name, self._base / name)

    def take_back(self, names: Collection[str] | None = None) -> None:
        """Give the base its own files back; all if no names are given."""
        taken = self.names if names is None else names
        for name in taken:
            (self._base / name).unlink(missing_ok=True)
            if (self._own / name).exists():
                _move(self._own / name, self._base / name)
        self.names = tuple(name for name in self.names if name not in taken)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
