"""Names of compiled code: the rows of its operations, and the events of a profile."""

from __future__ import annotations

import functools
import re

from mnistbench.core.operation import ENGINE_NODE

#: Name of the row with the time of compiled code outside its kernels and library calls.
COMPILED = "compiled graph: outside kernels"
#: Name of the row with the kernels of compiled code that nothing else names: those of libraries in
#: a CUDA graph.
OTHER_KERNELS = "compiled graph: other kernels"
#: Name of the row with the time in which compiled code is looked up, and its guards are checked.
LOOKUP = "guards and cache lookup"
#: Name of the row with the time in which torch.compile compiles, with all that it calls.
COMPILING = "compilation by torch.compile"
#: Begins the name of the row of a generated kernel; the operations that it computes follow.
FUSED = "fused "

#: Begins the name of the event in which Dynamo runs compiled code; the compilation follows.
COMPILED_REGION = "Torch-Compiled Region:"
#: Begins the name of the event in which Inductor calls a graph; a hash follows.
COMPILED_CALL = "## Call CompiledFxGraph"
#: Begins the name of the event of a generated kernel on a CPU.
GRAPH_PREFIX = re.compile(r"^graph_\d+_")

#: Begin the names of other events around the kernels of compiled code.
_AROUND_KERNELS = (
    COMPILED_REGION,
    COMPILED_CALL,
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
    "CompiledFunction",
    f"{ENGINE_NODE} CompiledFunctionBackward",
)
_LOOKUP_EVENT = "TorchDynamo Cache Lookup"

#: Ends the names of most events of a compilation.
_COMPILING_END = " (dynamo_timed)"
#: The events around these, which torch 2.11 does not have.
_COMPILING_EVENTS = frozenset(("dynamo", "entire_frame_compile", "entire_backward_compile"))

#: The name of a generated kernel: ``cpp_fused_add_mul_0``, ``triton_poi_fused_add_mul_0``. Earlier
#: versions of Triton append the types of arguments: ``triton_poi_fused_add_mul_0d1d2de``.
_GENERATED = re.compile(
    r"(?:cpp|triton_[a-z]+)_fused(?:_(?P<operations>.*?))?_\d+(?:_?\d+d\w*|d\w*)?"
)


@functools.lru_cache(maxsize=4096)  # a profile has few names and many events
def compiled_name(name: str) -> str:
    """Return the row of an event of compiled code; the name itself for other events.

    Operations of a generated kernel are not separated where only its name tells them, because names
    of operations contain underscores, too.
    """
    if name == _LOOKUP_EVENT:
        return LOOKUP
    name = GRAPH_PREFIX.sub("", name)
    if name.startswith(_AROUND_KERNELS):
        return COMPILED
    if name.endswith(_COMPILING_END) or name in _COMPILING_EVENTS:
        return COMPILING
    if generated := _GENERATED.fullmatch(name):
        return f"{FUSED}{generated['operations'] or 'kernel'}".rstrip("_")
    return name


def is_compiled_name(name: str) -> bool:
    """Whether compiled code alone has a row of this name, also in runs of earlier versions."""
    row = compiled_name(name)
    return row in (COMPILED, LOOKUP) or row.startswith(FUSED)
