"""Options of the plug-in: pytest's command line and configuration -> one frozen object.

An error names the option.
"""

from __future__ import annotations

from dataclasses import dataclass

from mnistbench.core import options
from mnistbench.core.options import switch


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options for the tables of a session."""

    op_top: int = options.top(
        "--op-top", "number of operations to show per table; all are saved", configurable=True
    )
    op_iterations: int = options.iterations("--op-iterations", configurable=True)
    no_op_profile: bool = switch(
        "--no-op-profile", "do not profile: times only, no operation tables", configurable=True
    )
    op_shapes: bool = switch(
        "--op-shapes", "record the input shapes of operations", configurable=True
    )
    op_benchmarks: bool = switch(
        "--op-benchmarks",
        "attach tables of operations or functions to tests of pytest-benchmark's own fixture, too",
        configurable=True,
    )
