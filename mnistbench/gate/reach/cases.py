"""Which cases run code that differs between the sides, and which changed code no case runs.

What is not known counts as reached.
"""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from mnistbench.gate.listing import Listings, Reach
from mnistbench.gate.messages import RunCode
from mnistbench.gate.reach.changes import (
    CHANGED,
    GONE,
    NEW,
    changed_functions,
)
from mnistbench.gate.reach.compared import ComparedCode
from mnistbench.gate.reach.definitions import MODULE
from mnistbench.gate.reach.files import Files
from mnistbench.gate.reach.side_code import SideCode
from mnistbench.gate.trees import Tree
from mnistbench.gate.words import BASE, HEAD

#: Most reasons of a case that are kept.
_MOST_REASONS = 3

#: Ends of reasons of code that differs itself.
_ITSELF = tuple(f" ({how})" for how in (CHANGED, NEW, GONE))

#: Folders and files whose functions are not those of the project itself.
_NO_PRODUCT = frozenset(
    {
        "bench",
        "benchmark",
        "benchmarks",
        "ci",
        "doc",
        "docs",
        "examples",
        "scripts",
        "test",
        "tests",
    }
)
_NO_MODULES = ("conftest.py", "noxfile.py", "setup.py", "tasks.py")

#: Files in which pytest looks for its options, and the sections there.
_CONFIGURATIONS = {
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}


def reach(code: ComparedCode, sides: Listings, of_all: Sequence[str]) -> Reach:
    """Compare what the surveys have seen each case run.

    Args:
        code: of both sides.
        sides: their listings.
        of_all: what else differs between the sides and counts for all cases.
    """
    changed = code.changes
    everywhere = [*of_all, *_of_all(code)]
    if changed.everywhere:
        everywhere.append(changed.everywhere)
    by_code = {
        name: [code.why(name, run_code) for run_code in side.followed.code]
        for name, side in code.sides.items()
    }
    reasons = {}
    for node_id in sides.common:
        own = [
            *everywhere,
            *_of_runs(node_id, code.sides, by_code),
            *(_of_listing(node_id, sides, code) if code.differing else ()),
        ]
        if own:
            reasons[node_id] = tuple(dict.fromkeys(own))[:_MOST_REASONS]
    if not reasons and changed.imports and sides.common:
        # What occurs once in a process is measured with a case: the shortest one.
        shortest = min(sides.common, key=lambda node_id: sides.head.cases[node_id].seconds)
        reasons[shortest] = (f"stands for the import of {min(changed.imports)} ({CHANGED})",)
    return Reach(
        is_known=True,
        reasons=reasons,
        same={node_id: label for node_id, label in sides.labels.items() if node_id not in reasons},
        gap=_gap(code, sides),
    )


def _of_runs(
    node_id: str, sides: Mapping[str, SideCode], by_code: Mapping[str, Sequence[str]]
) -> Iterable[str]:
    """Yield why the code that a case runs differs."""
    ran: dict[str, dict[tuple[str, str], RunCode]] = {}
    for name, side in sides.items():
        positions = side.followed.cases.get(node_id, ())
        # What differs itself says more than what uses it.
        yield from sorted(
            (by_code[name][position] for position in positions if by_code[name][position]),
            key=lambda why: not why.endswith(_ITSELF),
        )
        ran[name] = {
            (code.path, code.name): code
            for code in (side.followed.code[position] for position in positions)
            if code.name != MODULE
        }
    for name, other_side in ((BASE, HEAD), (HEAD, BASE)):
        for path, function in ran[name].keys() - ran[other_side].keys():
            yield f"runs {path}:{function} in the {name} alone"
    for name, side in sides.items():
        if node_id not in side.followed.cases:
            yield f"was not followed in the {name}"


def _of_listing(node_id: str, sides: Listings, code: ComparedCode) -> Iterable[str]:
    """Yield what differs of a case beside its code."""
    base = sides.base.cases[node_id]
    head = sides.head.cases[node_id]
    followed = code.followed.values()
    read = {path for side in followed for path in side.read.get(node_id, ())}
    for path in sorted(read.intersection(code.differing)):
        yield f"reads {path} (changed)"
    if base.result and head.result and base.result != head.result:
        yield "returns another result"
    if base.returns != head.returns:
        yield f"returns {base.returns} in the base and {head.returns} in the head"
    if base.parameters != head.parameters:
        yield "has other parameters"
    for why in {side.unfollowed.get(node_id, "") for side in followed}:
        if why:
            yield why


def _of_all(code: ComparedCode) -> Iterable[str]:
    """Yield what differs in the trees and counts for all cases."""
    compiled = {
        path
        for side in code.imports.values()
        for path in side.files.values()
        if not path.endswith(".py")
    }
    for path in sorted(compiled.intersection(code.differing)):
        yield f"the project loads {path} (changed)"
    base = _pytest_options(code.trees[BASE])
    head = _pytest_options(code.trees[HEAD])
    if base != head:
        yield "the options of pytest in the project's configuration differ"


def _pytest_options(tree: Tree) -> list[object]:
    """Return the options of pytest in a tree's configuration, of all files that may have them."""
    options: list[object] = []
    for folder in dict.fromkeys((tree.directory, tree.root)):
        for name, sections in _CONFIGURATIONS.items():
            options.append(_sections(folder / name, sections))
        try:
            table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
            options.append(table.get("tool", {}).get("pytest"))
        except FileNotFoundError:
            options.append(None)
        except (OSError, ValueError) as error:
            options.append(str(error))
    return options


def _sections(path: Path, names: Iterable[str]) -> object:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (OSError, ValueError, configparser.Error):
        return path.read_bytes()
    return [dict(parser[name]) for name in names if name in parser]


# ---- Changed code that no case runs --------------------------------------------------------------


def _gap(code: ComparedCode, sides: Listings) -> tuple[str, ...]:
    """Return the changed functions of the head's project that no case has run."""
    files = {side: Files(tree.root, {}) for side, tree in code.trees.items()}
    head = code.followed[HEAD]
    ran = {
        (head.code[position].path, head.code[position].name)
        for node_id in sides.common
        for position in head.cases.get(node_id, ())
    }
    gap = []
    for path in code.differing:
        if not path.endswith(".py") or not _is_product(path):
            continue
        base_source = files[BASE].source(path)
        head_source = files[HEAD].source(path)
        if base_source is None or head_source is None:
            continue
        for name, how in changed_functions(base_source, head_source).items():
            if how != GONE and (path, name) not in ran:
                gap.append(f"{path}:{name}")
    return tuple(sorted(gap))


def _is_product(path: str) -> bool:
    """Whether a file belongs to the project itself, and not to its tests or its build."""
    parts = PurePosixPath(path).parts
    name = parts[-1]
    is_test = name.startswith("test_") or name.endswith("_test.py") or name in _NO_MODULES
    return not is_test and _NO_PRODUCT.isdisjoint(parts[:-1])
