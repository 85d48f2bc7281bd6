"""Which cases are affected by the differences between the sides. What is not known affects them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from mnistbench.gate.listing import Listings
from mnistbench.gate.processes.messages import OUTSIDE, RunCode
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.reach.configuration import differing_configuration, is_configuration
from mnistbench.gate.survey.reach.differences import (
    GONE,
    changed_functions,
    changed_statements,
    reasons_of,
)
from mnistbench.gate.survey.reach.side_code import SideCode
from mnistbench.gate.survey.reach.source import Kind
from mnistbench.gate.words import BASE, HEAD, MODULE

#: Shortest name that is looked for in a compiled module, whose bytes may have any shorter one.
_MIN_NAME = 4

#: Most reasons of a case that are kept.
_MAX_REASONS = 3

#: Most differences outside of tests that are kept.
_MAX_OUTSIDE = 20


def affected(
    code: ComparedCode, sides: Listings, of_all: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Return the cases that the differences affect -> why.

    Args:
        code: of both sides, as their surveys have seen it.
        sides: their listings.
        of_all: what else differs between the sides and counts for all cases.
    """
    everywhere = [*of_all, *_of_all(code), *code.differences.everywhere]
    why = {
        name: {run_code: code.why(name, run_code) for run_code in side.followed.code}
        for name, side in code.sides.items()
    }
    everywhere += _hidden_by_compilers(code, sides)
    moved = _moved(sides)
    reasons = {}
    for node_id in sides.common:
        of_case = [
            *(["runs after other tests than in the base"] if node_id in moved else []),
            *_of_code(node_id, code, why),
            *_of_case(node_id, sides, code),
            *everywhere,
        ]
        if of_case:
            reasons[node_id] = tuple(dict.fromkeys(of_case))[:_MAX_REASONS]
    return reasons


def _moved(sides: Listings) -> set[str]:
    """Return the cases from the first one on whose order differs between the sides."""
    base, head = (
        [node_id for node_id in side.cases if node_id in sides.labels]
        for side in (sides.base, sides.head)
    )
    pairs = enumerate(zip(base, head, strict=True))
    first = next((at for at, (of_base, of_head) in pairs if of_base != of_head), len(base))
    return {*base[first:]}


def _of_code(
    node_id: str, code: ComparedCode, why: Mapping[str, Mapping[RunCode, str]]
) -> Iterator[str]:
    """Yield why the code that a case runs differs."""
    ran: dict[str, set[tuple[str, str]]] = {}  # file and name of functions
    for name, side in code.sides.items():
        codes = [side.followed.code[at] for at in side.followed.cases.get(node_id, ())]
        yield from reasons_of(codes, why[name])
        ran[name] = {
            (ran_code.path, ran_code.name) for ran_code in codes if ran_code.name != MODULE
        }
        if node_id not in side.followed.cases:
            yield f"was not followed in the {name}"
        if fetched := code.differences.of_fetched(side.followed.fetched.get(node_id, ())):
            yield fetched
    for name, other in ((BASE, HEAD), (HEAD, BASE)):
        for path, function in sorted(ran[name] - ran[other]):
            if path:
                yield f"runs {path}:{function} in the {name} alone"
            else:
                made = function.rpartition(" ")[0]
                yield f"runs a function {made} that the program makes, in the {name} alone"


def _of_case(node_id: str, sides: Listings, code: ComparedCode) -> Iterator[str]:
    """Yield what differs of a case beside its code."""
    base = sides.base.cases[node_id]
    head = sides.head.cases[node_id]
    if base.parameters != head.parameters:
        yield "has other parameters"
    if not code.differing:  # so it is not the trees that make a difference
        return
    followed = code.followed.values()
    for path in _differing_among((side.opened.get(node_id, ()) for side in followed), code):
        yield f"reads {path} (changed)"
    if base.result and head.result and base.result != head.result:
        yield "returns another result"
    if base.returns != head.returns:
        yield f"returns {base.returns} in the base and {head.returns} in the head"
    yield from {side.unfollowed[node_id]: None for side in followed if node_id in side.unfollowed}


def _differing_among(opened: Iterable[Collection[str]], code: ComparedCode) -> list[str]:
    # The system opens compiled modules to load them, which counts for all cases anyway.
    differing = {*code.differing}.difference(code.loaded)
    return sorted({path for paths in opened for path in paths}.intersection(differing))


def _of_all(code: ComparedCode) -> Iterator[str]:
    """Yield what differs in the trees and counts for all cases."""
    for path in sorted(code.loaded.intersection(code.differing)):
        yield f"the project loads {path} (changed)"
    for path in sorted(code.loaded.difference(code.differing)):
        if used := _used_by_compiled(path, code):
            yield f"the project loads {path}, which {used}"
    opened = _differing_among(
        (side.opened.get(OUTSIDE, ()) for side in code.followed.values()), code
    )
    for path in opened:
        yield f"{path} (changed) is read outside of tests"
    yield from differing_configuration(code.trees, code.differing, code.followed.values())
    if not code.differing:
        return
    for side in code.followed.values():
        if OUTSIDE in side.unfollowed:
            yield side.unfollowed[OUTSIDE]
    if not all(side.sees_all_files for side in code.followed.values()):
        for path in unused(code):
            yield f"{path} differs, and this system does not tell who reads it"


def _used_by_compiled(path: str, code: ComparedCode) -> str:
    """Return which name that differs a compiled module may use: one that its bytes have."""
    try:
        content = (code.trees[HEAD].root / path).read_bytes()
    except OSError:
        return ""
    names = (name for name in code.differences.names if len(name) >= _MIN_NAME)
    used = next((name for name in names if name.encode() in content), "")
    return f"uses {used} ({code.differences.names.why(used)})" if used else ""


def _hidden_by_compilers(code: ComparedCode, sides: Listings) -> Iterator[str]:
    """Yield functions that differ and that a compiler of bytecode may run unseen."""
    if not any(side.compiles for side in code.followed.values()):
        return
    ran = {
        (side.code[position].path, side.code[position].name)
        for side in code.followed.values()
        for node_id in sides.common
        for position in side.cases.get(node_id, ())
    }
    for (path, name), how in code.differences.functions.items():
        if (path, name) not in ran:
            yield f"{path}:{name} ({how}) may be compiled, so that it is not seen to run"
    for side in code.sides.values():
        for path in side.executed:
            source = side.source(path)
            for function in source.functions if source else ():
                used = code.differences.of_part(function, path, side)
                if used and (path, function.name) not in ran:
                    yield f"{path}:{function.name}, which {used}, may be compiled"


# ---- What no case runs ---------------------------------------------------------------------------

#: Folders and names of files that do not belong to the project itself.
_NO_PRODUCT = frozenset(
    {"bench", "benchmark", "benchmarks", "ci", "doc", "docs", "examples", "test", "tests"}
)
_NO_MODULES = ("conftest.py", "noxfile.py", "setup.py")
#: Ends of names of files that a program does not read.
_NO_DATA = (".md", ".rst", ".pyi")
_NO_FILES = ("AUTHORS", "CHANGELOG", "CHANGES", "COPYING", "LICENSE", "MANIFEST", "NEWS", "README")


#: Why a changed function that no compared case was seen to run may be in use all the same.
IN_COMPILED = "in a compiled module, so it is not known which cases run it"
BY_NEW_CASES = "run only by cases that one side lacks, which are not compared"


def not_followed(code: ComparedCode, sides: Listings) -> dict[str, str]:
    """Return the functions and names that no compared case was seen to use, but others are -> why.

    Functions of a compiled module are not seen to run. What a case of one side runs is not
    compared.
    """
    compiled = _compiled_sources(code)
    used = {
        side: [node_id for node_id in one.followed.cases if node_id != OUTSIDE]
        for side, one in code.sides.items()
    }
    unseen_by_any = {*_unseen(code, used)}
    why = {}
    for name in _unseen(code, dict.fromkeys(code.sides, sides.common)):
        if name.partition(":")[0] in compiled:
            why[name] = IN_COMPILED
        elif name not in unseen_by_any:
            why[name] = BY_NEW_CASES
    return why


def uncovered(code: ComparedCode, sides: Listings) -> tuple[str, ...]:
    """Return the functions and names of the project that differ and that no case runs or uses."""
    known = not_followed(code, sides)
    names = _unseen(code, dict.fromkeys(code.sides, sides.common))
    return tuple(name for name in names if name not in known)


def outside(code: ComparedCode) -> tuple[str, ...]:
    """Return what differs and runs or is read outside of tests, as reasons say it."""
    texts = [*_of_all(code), *code.differences.everywhere]
    base, head = code.sides.values()
    for path in sorted(head.executed_outside.intersection(code.differing)):
        sources = (base.source(path), head.source(path))
        if sources[0] is not None and sources[1] is not None:
            texts += (
                f"{path}:{statement.line} {how}"
                for _, statement, how in changed_statements(sources[0], sources[1])
                if how != GONE and statement.kind in (Kind.VALUE, Kind.ACTION)
            )
    return tuple(dict.fromkeys(texts))[:_MAX_OUTSIDE]


def _compiled_sources(code: ComparedCode) -> set[str]:
    """Return the files of Python beside which a side has loaded the compiled module."""
    loaded = (PurePosixPath(path) for side in code.imports.values() for path in side.files.values())
    return {
        (path.parent / f"{path.name.partition('.')[0]}.py").as_posix()
        for path in loaded
        if path.suffix != ".py"
    }


def _unseen(code: ComparedCode, cases: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the functions and names that differ and that these cases of each side do not use."""
    ran = {
        side.followed.code[position]: side
        for name, side in code.sides.items()
        for node_id in cases[name]
        for position in side.followed.cases.get(node_id, ())
    }
    functions = {(ran_code.path, ran_code.name) for ran_code in ran}
    words = _words_of(ran)
    for side in code.sides.values():
        functions |= {(ran_code.path, ran_code.name) for ran_code in side.ran_outside()}
        for path in side.executed_outside.intersection(code.differing):
            source = side.source(path)
            for statement in source.statements if source else ():
                used = statement.words.names | statement.words.attributes
                words |= used.difference(statement.names)
    return tuple(
        sorted(
            f"{path}:{name}"
            for path in code.differing
            if path.endswith(".py") and is_product(path)
            for name, is_function in _changed_in(path, code).items()
            if ((path, name) not in functions if is_function else name not in words)
        )
    )


def _words_of(ran: Mapping[RunCode, SideCode]) -> set[str]:
    """Return what the functions mention that ran."""
    words = set[str]()
    for ran_code, side in ran.items():
        source = side.source(ran_code.path) if ran_code.path else None
        if function := source and source.function(ran_code.name, ran_code.line):
            words |= function.words.names | function.words.attributes
    return words


def _changed_in(path: str, code: ComparedCode) -> dict[str, bool]:
    """Return the changed functions and names of a file -> whether it is a function."""
    base, head = (code.sides[side].source(path) for side in (BASE, HEAD))
    if base is None or head is None:
        return {}
    changed = {name: True for name, how in changed_functions(base, head).items() if how != GONE}
    for _, statement, how in changed_statements(base, head):
        if how != GONE and statement.kind is Kind.VALUE:
            changed.update(dict.fromkeys(statement.names, False))
        elif how != GONE and statement.defines and not statement.is_class:
            changed[statement.defines] = True
    return changed


def unused(code: ComparedCode) -> tuple[str, ...]:
    """Return the files that differ and that neither side was seen to open, import or run."""
    used = _compiled_sources(code) | {
        path for side in code.followed.values() for paths in side.opened.values() for path in paths
    }
    for side in code.sides.values():
        used |= side.executed
    for imports in code.imports.values():
        used |= {*imports.files.values()}
    return tuple(
        path
        for path in code.differing
        if path not in used
        and str(PurePosixPath(path).parent) not in used  # its folder is listed
        and is_product(path)
        and not is_configuration(path)
        and not path.endswith(_NO_DATA)
        and not PurePosixPath(path).name.startswith((".", *_NO_FILES))
        and any((tree.root / path).is_file() for tree in code.trees.values())
    )


def is_product(path: str) -> bool:
    """Whether a file belongs to the project itself, and not to its tests or its build."""
    parts = PurePosixPath(path).parts or (path,)
    name = parts[-1]
    is_test = name.startswith("test_") or name.endswith("_test.py") or name in _NO_MODULES
    is_hidden = any(part.startswith(".") for part in parts[:-1])
    return not is_test and not is_hidden and _NO_PRODUCT.isdisjoint(parts[:-1])
