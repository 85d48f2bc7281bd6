"""Operations: names of their rows, their names as people read them, names in a profile, and spans of time."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from mnistbench.core import units

#: Name of the row with the time of a phase outside any operation: Python, and the profiler itself.
OUTSIDE = "(outside operations)"

#: Name of the row with the host time of the accelerator's runtime: launches, copies, waiting for the device.
RUNTIME = "(runtime)"

#: Name of the row with the kernels and copies that belong to no operation.
UNATTRIBUTED = "(unattributed kernels)"

#: Rows that are no operations.
NOT_OPERATIONS = frozenset((OUTSIDE, RUNTIME, UNATTRIBUTED))

#: What the changes of tensors' layouts are counted as, among the implementations of oneDNN that run.
REORDER = "reorder"

#: Module of an operation that cannot be attributed to a module; ``measuring/profiling`` explains why.
NO_MODULE = ""

#: (operation, phase, module)
OpKey = tuple[str, str, str]


class Scope(NamedTuple):
    """Where an operation was called: forward, backward or optimizer, and the qualified name of the module."""

    phase: str = ""
    module: str = ""


#: An operation whose self time is at least this share of its range does the work itself: max-pooling's backward also
#: calls one that fills a tensor with zeros.
OWN_SHARE = 0.25

_ENGINE = "autograd::engine::"

#: Rows that are no operations, as people read them.
_REST = {OUTSIDE: "outside operations", RUNTIME: "runtime calls", UNATTRIBUTED: "unattributed kernels"}

#: Functions of the CUDA runtime and driver, of HIP, of Unified Runtime and of Level Zero: cudaLaunchKernel, cuLaunchKernelEx,
#: hipMalloc, urEnqueueKernelLaunch, zeCommandListAppendLaunchKernel. Operations of torch contain "::" or begin with a capital.
_RUNTIME_CALL = re.compile(r"(?:cuda|cu|hip|ur|ze)[A-Z]\w*")

#: Prefixes of what torch.distributed's backends give the profiler.
_BACKENDS = ("gloo:", "nccl:", "mpi:", "ucc:", "xccl:")


def is_communication(name: str) -> bool:
    """Whether an operation is a backend's communication between ranks: ``gloo:all_reduce``.

    It runs beside the operations of its rank, and its time includes the wait for the other ranks.
    """
    return name.startswith(_BACKENDS)


def runs_beside(name: str) -> bool:
    """Whether communication runs beside its thread, on others of its backend; a call of NCCL is over when it has launched."""
    return is_communication(name) and not name.startswith("nccl:")


@functools.lru_cache(maxsize=4096)  # a profile has few names and many events
def is_runtime_call(name: str) -> bool:
    """Whether a host event is a call of the accelerator's runtime or driver: ``cudaLaunchKernel``, no operation."""
    return _RUNTIME_CALL.fullmatch(name) is not None


def shortened(name: str) -> str:
    """Return an operation's name without the prefix that torch's autograd engine gives its nodes."""
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
        ``aten::mm, backward fc1``; for all operations of a module ``conv2 backward``; for rows that are no operations
        ``outside operations (forward)``, ``runtime calls``, ``unattributed kernels``.
    """
    if name in _REST:
        return f"{_REST[name]} ({phase})" if phase else _REST[name]
    if not name:
        return f"{module or 'no module'} {phase}".strip()
    return ", ".join(filter(None, (shortened(name), place_name(phase, module))))


def operation_cells(name: str, phase: str, module: str) -> tuple[str, str, str]:
    """Return operation, phase and module as tables show them."""
    return (shortened(name) or "(all)", phase or units.MISSING, module or units.MISSING)


def replacement_name(gone: Sequence[str], new: Sequence[str], place: str) -> str:
    """Return ``aten::addmm -> aten::mm + aten::add_, forward fc1``; for an operation that replaces none ``nothing -> ...``.

    ``place`` is that of all of them, as :func:`place_name` returns it; empty if the names contain their places.
    """
    arrow = " -> ".join(" + ".join(names) or "nothing" for names in (gone, new))
    return f"{arrow}{f', {place}' if place else ''}"


def grouped(key: OpKey, by: str) -> OpKey:
    """Return the key of an operation when operations are summed by ``op``, ``module`` or ``op,module``."""
    name, phase, module = key
    if by == "op":
        return (name, "", "")
    if by == "module":
        return (name if name in NOT_OPERATIONS else "", phase, module)
    return key


# ---- Names in a profile: ranges of mnistbench, autograd's engine, and what torch leaves out --------------------------


#: Names of ranges begin with these prefixes, which no operation has.
ITERATION = "mnistbench.iteration"
PHASE = "mnistbench.phase:"
MODULE = "mnistbench.module:"

#: Begins the name of the range in which autograd's engine runs a node of the backward graph.
ENGINE_NODE = "autograd::engine::evaluate_function:"

#: A record of memory that was allocated or freed, not an event.
MEMORY = "[memory]"

#: What ``torch.profiler.profile.events()`` leaves out.
LEFT_OUT = frozenset((
    MEMORY, "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new",
    "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version",
))  # fmt: skip


# ---- Spans of time ---------------------------------------------------------------------------------------------------


_Time = TypeVar("_Time", int, float)


def covered(spans: Iterable[tuple[_Time, _Time]]) -> _Time | int:
    """Return the length of the union of spans (start, end); a span that ends before it starts is empty."""
    length: _Time | int = 0
    until: _Time | None = None
    for start, end in sorted(spans):
        begin = start if until is None else max(start, until)
        if end > begin:
            length += end - begin
            until = end
    return length
