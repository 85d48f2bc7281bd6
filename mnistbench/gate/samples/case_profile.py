"""The call paths of a case: of one side as its process sends them, of both as the file has them.

They say which function made a case slower or faster, and are measured for such cases alone. Times
are those of iterations with a profiler, and are not tested.

The process of a side loads this module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from mnistbench.core.operation import OpKey

_Time = TypeVar("_Time", int, float)


# ---- Of one side ---------------------------------------------------------------------------------


class SideFunction(NamedTuple):
    """A function that a side has called."""

    path: str  # of its file, relative to the tree; empty if it is of another one
    name: str  # qualified; with the module if it is of another file: json.loads
    line: int  # its first one; 0 if it is of another file


class CalledOperation(NamedTuple):
    """An operation of torch that the same functions call."""

    operation: OpKey
    callers: Sequence[int]  # positions in ``functions``, of the tree, the innermost first
    self_ns: int  # of all its calls in one iteration


@dataclass(frozen=True)
class SidePaths:
    """The call paths of a case, in columns; a path follows the one that it continues."""

    functions: Sequence[SideFunction]
    parents: Sequence[int]  # positions of the paths that they continue; -1 of the first one
    last_functions: Sequence[int]  # positions in ``functions``
    calls: Sequence[float]  # in one iteration
    self_ns: Sequence[float]  # in one iteration
    operations: Sequence[CalledOperation] = ()
    varying: Sequence[int] = ()  # positions in ``functions`` whose numbers of calls are averages


# ---- Of both sides -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProfiledFunction:
    """A function of a call path."""

    # Of a file of the tree ``pkg/parse.py:Parser.read``, else ``json.loads`` or ``len``.
    name: str
    # How it differs between the sides: ``changed``, ``new``, ``gone``, or ``f is defined by it and
    # differs``; or how it uses what differs: ``uses LIMIT (pkg/parse.py:12 changed)``. Empty if it
    # does not differ, as far as is known.
    change: str = ""
    differs_itself: bool = False  # and does not only use what differs
    is_of_tree: bool = False
    calls_vary: bool = False  # between iterations of a side, so its numbers are no exact ones
    # In the head, of the first statement that differs; 0 if there is none or it is not known.
    line: int = 0

    @property
    def path(self) -> str:
        """Its file in the tree; empty if it is of no such file."""
        return self.name.rpartition(":")[0]


#: Kinds of ``OtherChange``.
FUNCTION = "function"
FIXTURE = "fixture"
FILE = "file"
STATEMENT = "statement"  # of a module or a class, runs at import
IMPORT = "import"  # of a module, in a test
COMPILED = "compiled module"
GRAPH = "line of a compiled graph"
PACKAGE = "package"
VARIABLE = "environment variable"
SETTING = "setting"


@dataclass(frozen=True)
class OtherChange:
    """Something that differs, that a case depends on, and that its profiled iterations do not call.

    What it hands to unchanged functions may make these slower.
    """

    kind: str
    # ``tests/conftest.py:data``, ``tests/data.json``, ``pkg/parse.py:6``, ``numpy``.
    name: str
    # How it differs, as of a ``ProfiledFunction``; of a package and a variable the values of both
    # sides: ``2.0 -> 2.1``. Empty if the name says it.
    change: str
    differs_itself: bool = True  # and does not only use what differs
    # In the head; of a function that of the first statement that differs; 0 if it is not known.
    line: int = 0

    @property
    def path(self) -> str:
        """Its file in the tree; empty if it is of no such file."""
        if self.kind in (FILE, IMPORT, COMPILED):
            return self.name
        has_line = self.kind in (FUNCTION, FIXTURE, STATEMENT, GRAPH)
        return self.name.rpartition(":")[0] if has_line else ""


@dataclass(frozen=True)
class CallPath:
    """A function that is called on one path, in one iteration."""

    parent: int  # position of the path that it continues; -1 of the first, which is the case
    function: int  # position of the last function
    base_calls: float
    head_calls: float
    # Without the functions that it calls.
    base_self_ns: int
    head_self_ns: int


@dataclass(frozen=True)
class CalledBy:
    """The calls of an operation that the same function causes."""

    operation: OpKey
    # Position of the innermost function around them that differs between the sides; None if there
    # is none. Of the backward pass it is one of the forward pass.
    function: int | None
    # Self time in an iteration with a profiler, in nanoseconds.
    base_ns: int
    head_ns: int


@dataclass(frozen=True)
class CaseProfile:
    """The call paths of a case; a path follows the one that it continues.

    Those of little time are left out, and count for the path that they continue.
    """

    functions: tuple[ProfiledFunction, ...] = ()  # the first one stands for the case
    paths: tuple[CallPath, ...] = ()
    operations: tuple[CalledBy, ...] = ()
    others: tuple[OtherChange, ...] = ()  # the most probable cause first
    why_not: str = ""  # why there are no call paths

    def __post_init__(self) -> None:
        """Check positions and times, which a file may have of any size.

        Raises:
            ValueError: names the path or the operation.
        """
        known = range(len(self.functions))
        for position, path in enumerate(self.paths):
            has_parent = 0 <= path.parent < position or (path.parent == -1 and not position)
            sizes = (path.base_calls, path.head_calls, path.base_self_ns, path.head_self_ns)
            if not has_parent or path.function not in known or min(sizes) < 0:
                raise ValueError(f"paths[{position}] has a position or a time that is none")
        for position, called in enumerate(self.operations):
            is_known = called.function is None or called.function in known
            if not is_known or min(called.base_ns, called.head_ns) < 0:
                raise ValueError(f"operations[{position}] has a position or a time that is none")


# ---- Times of paths ------------------------------------------------------------------------------


def total_times(self_ns: Sequence[_Time], parents: Sequence[int]) -> list[_Time]:
    """Return the time of each path with those that continue it.

    Args:
        self_ns: of each path; a path follows the one that it continues.
        parents: positions of the paths continued.
    """
    totals_ns = list(self_ns)
    for path in range(len(parents) - 1, 0, -1):
        totals_ns[parents[path]] += totals_ns[path]
    return totals_ns


def folded_times(
    self_ns: Sequence[_Time], parents: Sequence[int], kept: Collection[int]
) -> list[_Time]:
    """Return the self times with those of other paths added to the kept path that they continue.

    Args:
        self_ns: of each path; a path follows the one that it continues.
        parents: positions of the paths continued.
        kept: positions of paths; none is kept without the one that it continues.
    """
    folded_ns = list(self_ns)
    for path in range(len(parents) - 1, 0, -1):
        if path not in kept:
            folded_ns[parents[path]] += folded_ns[path]
    return folded_ns
