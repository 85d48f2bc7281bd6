"""Words that the gate and the process of a side share.

This module imports nothing but the standard library, because a side loads it.
"""

BASE = "base"
HEAD = "head"

#: Environment variable of a side that sets the number of intra-op threads of all its cases.
THREADS = "OMP_NUM_THREADS"

#: Oldest version of torch that a side may have. That of other commands is in pyproject.toml.
OLDEST_TORCH = "2.6"

#: Clock of a case: wall time.
WALL = "wall"

#: Clock of a case: CPU time.
CPU = "cpu"

#: Clock of a case: between two events on an accelerator, so with the gaps between its kernels.
DEVICE = "device"

#: Clock of a case: the time in which an accelerator ran kernels or copies, of profiled iterations.
BUSY = "busy"

#: Memory has no clock.
NO_CLOCK = "none"
CLOCK_TITLES = {
    WALL: "wall time",
    CPU: "CPU time",
    DEVICE: "device elapsed time",
    BUSY: "device busy time",
}

#: Fewest pairs of usable times that a difference is computed from.
LEAST_PAIRS = 3

#: Kind of a quantity: the median of the iterations of a case.
ITERATION = "iteration"

#: Kind of a quantity: the mean of the iterations of a case.
MEAN = "mean"

#: Kind of a quantity: a single operation.
OPERATION = "operation"

#: Kind of a quantity: operations of one place that only one side has, whose sums are compared if
#: both are large.
REPLACED = "replaced"

#: Kind of a quantity: such operations that are judged by the share of the case that they add.
ADDED = "added"

#: Kind of a quantity: what is no operation (time outside operations, runtime calls, unattributed
#: kernels).
OUTSIDE_KIND = "outside"

#: Kind of a quantity: the group of small operations.
OTHER = "other"

#: Kind of a quantity: CPU time that a process spends once.
ONCE = "once"

#: Kind of a quantity: peak memory of a process.
MEMORY = "memory"

#: Name of a kind ONCE: the first iteration of a case in the process.
FIRST = "first iteration"

#: Name of a kind ONCE: what has to happen before the first iteration of a case (fixtures of the
#: test alone, its own code, the build, the setup of the first iteration).
SETUP = "setup"

#: Name of a kind ONCE: imports of conftest.py, of the tests and of their modules, with what these
#: import.
IMPORT = "import"

#: Name of a kind ONCE: fixtures that several tests share.
FIXTURES = "shared fixtures"

#: Name of a kind MEMORY: memory of the process after the first case has run.
RESIDENT = "resident memory"

#: Name of the whole process among the cases.
ALL_CASES = "all cases"
