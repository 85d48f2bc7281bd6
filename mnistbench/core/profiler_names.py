"""Names in a profile: the ranges of mnistbench, what autograd's engine adds, and what torch itself leaves out."""

from __future__ import annotations

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
