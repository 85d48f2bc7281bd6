"""Names of operations: in tables, in a profile and as people read them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from mnistbench.core import units

#: Name of the row with the time of a phase outside any operation: Python, and the profiler itself.
OUTSIDE = "(outside operations)"

#: Name of the row with the host time of the accelerator's runtime: launches, copies, waiting for
#: the device.
RUNTIME = "(runtime)"

#: Name of the row with the kernels and copies that belong to no operation.
UNATTRIBUTED = "(unattributed kernels)"

#: Name of the row with the time inside torch's functions of C in a table of Python functions: its
#: operations, and what calls them.
IN_TORCH = "(in torch)"

#: Phases of operations.
FORWARD = "forward"
BACKWARD = "backward"
OPTIMIZER = "optimizer"

#: Rows that are no operations.
NOT_OPERATIONS = frozenset((OUTSIDE, RUNTIME, UNATTRIBUTED, IN_TORCH))

#: What the changes of tensors' layouts are counted as, among the implementations of oneDNN that
#: run.
REORDER = "reorder"

#: What is counted of an operation: a count that is not the same in every profiled iteration is an
#: average, and no exact one.
CALLS = "calls"
BYTES = "bytes"

#: Module of an operation that cannot be attributed to a module; see ``events/linking/links``.
NO_MODULE = ""

#: Module of operations in the outermost module's own forward, outside its children.
MODEL = "(model)"

#: (operation, phase, module)
OpKey = tuple[str, str, str]


class PythonFunction(NamedTuple):
    """A function of Python as the profiler of a framework names it."""

    path: str  # of its file, relative to the folder that it is imported from
    line: int  # the first one
    name: str  # without its class


#: The functions that call an operation, the innermost first.
Callers = tuple[PythonFunction, ...]


class Scope(NamedTuple):
    """Where an operation was called: its phase, and the qualified name of its module."""

    phase: str = ""
    module: str = ""


#: An operation whose self time is at least this share of its range does the work itself:
#: max-pooling's backward also calls one that fills a tensor with zeros.
OWN_SHARE = 0.25

_ENGINE = "autograd::engine::"

#: Rows that are no operations, as people read them.
_REST = {
    OUTSIDE: "outside operations",
    RUNTIME: "runtime calls",
    UNATTRIBUTED: "unattributed kernels",
    IN_TORCH: "in torch's functions of C",
}

#: Functions of the CUDA runtime and driver, of HIP, of Unified Runtime and of Level Zero:
#: cudaLaunchKernel, cuLaunchKernelEx, hipMalloc, urEnqueueKernelLaunch,
#: zeCommandListAppendLaunchKernel. Operations of torch contain "::" or begin with a capital.
_RUNTIME_CALL = re.compile(r"(?:cuda|cu|hip|ur|ze)[A-Z]\w*")

#: Prefixes of what torch.distributed's backends give the profiler.
_BACKENDS = ("gloo:", "nccl:", "mpi:", "ucc:", "xccl:")


def is_communication(name: str) -> bool:
    """Whether an operation is a backend's communication between ranks: ``gloo:all_reduce``.

    It runs beside the operations of its rank, and its time includes the wait for the other ranks.
    """
    return name.startswith(_BACKENDS)


def runs_beside(name: str) -> bool:
    """Whether communication runs beside its thread, on others of its backend.

    A call of NCCL is over when it has launched.
    """
    return is_communication(name) and not name.startswith("nccl:")


@functools.lru_cache(maxsize=4096)  # a profile has few names and many events
def is_runtime_call(name: str) -> bool:
    """Whether a host event is a call of a runtime or driver: ``cudaLaunchKernel``."""
    return _RUNTIME_CALL.fullmatch(name) is not None


def shortened(name: str) -> str:
    """Return an operation's name without the prefix that autograd's engine gives its nodes."""
    return name.removeprefix(_ENGINE)


def place_name(phase: str, module: str) -> str:
    """Return where an operation runs: ``backward fc1``; empty where neither is known."""
    return f"{phase} {module}".strip()


def operation_name(name: str, phase: str, module: str) -> str:
    """Return the name of an operation, or of operations that are summed.

    Args:
        name: the operation as torch names it; empty for all operations of a module.
        phase: empty for all phases.
        module: empty for all modules, or where none can be named.

    Returns:
        ``aten::mm, backward fc1``; for all operations of a module ``conv2 backward``; for rows that
        are no operations ``outside operations (forward)``, ``runtime calls``, ``unattributed
        kernels``.
    """
    if name in _REST:
        return f"{_REST[name]} ({phase})" if phase else _REST[name]
    if not name:
        return f"{module or 'no module'} {phase}".strip()
    return ", ".join(filter(None, (shortened(name), place_name(phase, module))))


def names_of(key: OpKey) -> tuple[str, ...]:
    """Return the names of an operation: of torch, as tables shorten it, and with its place."""
    return (key[0], shortened(key[0]), operation_name(*key))


def is_named(key: OpKey, name: str) -> bool:
    """Return whether a user's name is that of an operation or of its module."""
    return name in (*names_of(key), key[2])


def operation_cells(name: str, phase: str, module: str) -> tuple[str, str, str]:
    """Return operation, phase and module as tables show them."""
    return (shortened(name) or "(all)", phase or units.MISSING, module or units.MISSING)


#: Most operations of each side in the title of a replacement. The number of others counts as one.
NAMED = 3


def replacement_title(members: Iterable[tuple[OpKey, float | None, float | None]]) -> str:
    """Return the largest operations of each side and their place.

    For example ``aten::addmm -> aten::mm + aten::add_, forward fc1``.

    Of several places, it names the places: ``fc1 forward -> classifier forward``. An operation that
    replaces none is ``nothing -> aten::copy_, optimizer``. Where both sides have the same names,
    they do not call them in every trial: ``aten::copy_ (not in every trial), optimizer``.

    Args:
        members: key of each operation, and its time in the base and in the head; None where a side
            does not have it.
    """
    operations = list(members)
    places = {key[1:] for key, _, _ in operations}
    shows_places = len(places) > 1 or not all(name for (name, _, _), _, _ in operations)
    gone: dict[str, float] = {}
    new: dict[str, float] = {}
    for key, base_ns, head_ns in operations:
        name = operation_name("", *key[1:]) if shows_places else shortened(key[0])
        for side, ns in ((gone, base_ns), (new, head_ns)):
            if ns is not None:
                side[name] = side.get(name, 0.0) + ns
    place = "" if shows_places else place_name(*places.pop())
    if gone.keys() == new.keys():
        names_shown = f"{' + '.join(_largest(gone))} (not in every trial)"
    else:
        names_shown = names_of_sides(gone, new)
    return ", ".join(filter(None, (names_shown, place)))


def names_of_sides(base: Mapping[str, float], head: Mapping[str, float]) -> str:
    """Return the largest operations of each side: ``aten::mm + aten::add_ -> aten::addmm``.

    Args:
        base: the time of each name.
        head: likewise; ``nothing`` stands for an empty side.
    """
    return " -> ".join(" + ".join(_largest(side)) or "nothing" for side in (base, head))


def _largest(times: Mapping[str, float]) -> list[str]:
    """Return the names, the largest first; if they are many, the number of the others."""
    return units.and_others(sorted(times, key=lambda name: (-times[name], name)), NAMED)


def grouped(key: OpKey, by: str) -> OpKey:
    """Return the key by which operations are summed: ``op``, ``module`` or ``op,module``."""
    name, phase, module = key
    if by == "op":
        return (name, "", "")
    if by == "module":
        return (name if name in NOT_OPERATIONS else "", phase, module)
    return key


# ---- Names in a profile: ranges of mnistbench, autograd's engine, and what torch leaves out ------


#: Names of ranges begin with these prefixes, which no operation has.
ITERATION = "mnistbench.iteration"
PHASE = "mnistbench.phase:"
MODULE = "mnistbench.module:"

#: Begins the name of the range in which autograd's engine runs a node of the backward graph.
ENGINE_NODE = "autograd::engine::evaluate_function:"

#: A record of memory that was allocated or freed, not an event.
MEMORY = "[memory]"

#: What ``torch.profiler.profile.events()`` leaves out.
LEFT_OUT = frozenset(
    (
        MEMORY,
        "[OutOfMemory]",
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    )
)


# ---- Spans of time -------------------------------------------------------------------------------


_Time = TypeVar("_Time", int, float)


def covered(spans: Iterable[tuple[_Time, _Time]]) -> _Time | int:
    """Return the length of the union of spans (start, end).

    A span that ends before it starts is empty.
    """
    length: _Time | int = 0
    until: _Time | None = None
    for start, end in sorted(spans):
        begin = start if until is None else max(start, until)
        if end > begin:
            length += end - begin
            until = end
    return length
