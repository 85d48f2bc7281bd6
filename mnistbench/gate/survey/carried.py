"""Benchmarks of the head that measure the base as well.

A benchmark that the base lacks, or whose text has changed, compares nothing if each side runs its
own. So files of the head are carried to the copy of the base: those that the base lacks, and those
that differ in nothing but the text of their benchmarks. A file whose other functions differ stays
as it is, because these may be what is measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.listing import Listings, name_of_test
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.words import BASE, HEAD


def benchmark_files(sides: Listings, differing: Collection[str]) -> tuple[str, ...]:
    """Return the files of the head's benchmarks, their fixtures and their data that differ."""
    sources = {name for case in sides.head.cases.values() for name in case.sources}
    return tuple(sorted(sources.intersection(differing)))


def changed_benchmarks(sides: Listings, code: ComparedCode) -> tuple[str, ...]:
    """Return the files of benchmarks that the base lacks, or that differ in benchmarks alone.

    With them go the files that their benchmarks use and the base lacks.
    """
    base = code.trees[BASE].root
    lacking = {name for name in code.differing if not (base / name).exists()}
    names = set[str]()
    for node_id, case in sides.head.cases.items():
        sources = {name for name in case.sources if name in code.differing}
        own = {name for name in sources if any(cases_of(name, [node_id]))}
        carried = {
            name for name in own if name in lacking or _differs_in_benchmarks(name, sides, code)
        }
        if carried:  # with what a new benchmark needs
            names |= carried | (sources & lacking)
    return tuple(sorted(names))


def cases_of(name: str, node_ids: Collection[str]) -> Iterator[str]:
    """Yield the cases of a file.

    The file is relative to the tree, and node ids are relative to the folder in which pytest runs.
    """
    for node_id in node_ids:
        if f"/{name}".endswith(f"/{node_id.partition('::')[0]}"):
            yield node_id


def _differs_in_benchmarks(name: str, sides: Listings, code: ComparedCode) -> bool:
    """Whether a file has the same benchmarks on both sides, and nothing but their text differs."""
    base, head = (set(cases_of(name, sides[side].cases)) for side in (BASE, HEAD))
    if not head or base - head:
        return False
    tests = {name_of_test(node_id).partition("::")[2].replace("::", ".") for node_id in base | head}
    return code.edits_only(name, tests)


class CarriedFiles:
    """Files of the head that replace those of the base in its copy."""

    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._base = trees[BASE].root
        self._head = trees[HEAD].root
        self._own = self._base.parent / "replaced"  # the base's files of the same names
        self.names: tuple[str, ...] = ()

    def carry(self, names: Collection[str]) -> None:
        """Copy files of the head to the base, if they are not there already."""
        for name in set(names).difference(self.names):
            if (self._base / name).exists():
                _move(self._base / name, self._own / name)
            _copy(self._head / name, self._base / name)
        self.names = tuple(sorted({*self.names, *names}))

    def take_back(self, names: Collection[str]) -> None:
        """Give the base its own files back."""
        for name in names:
            (self._base / name).unlink()
            if (self._own / name).exists():
                _move(self._own / name, self._base / name)
        self.names = tuple(name for name in self.names if name not in names)

    def replaced(self) -> list[str]:
        """Return the carried files of which the base has its own."""
        return [name for name in self.names if (self._own / name).exists()]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
