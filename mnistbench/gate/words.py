"""Words that the gate and the process of a side share.

This module imports nothing but the standard library, because a side loads it.
"""

BASE = "base"
HEAD = "head"

#: Environment variable of a side that sets the number of intra-op threads of all its cases.
THREADS = "OMP_NUM_THREADS"

#: Environment variable with the number of threads and processes in which torch.compile builds
#: kernels.
COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"

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
MIN_PAIRS = 3

#: Name of a one-time cost: the first iteration of a case in the process.
FIRST = "first iteration"

#: Name of a one-time cost: the first call of a compiled case with an empty cache of the compiler.
COLD = "first call with empty cache"

#: Name of a one-time cost: what has to happen before the first iteration of a case
#: (fixtures of the test alone, its own code, the build, the setup of the first iteration).
SETUP = "setup"

#: Name of a one-time cost: imports of conftest.py, of the tests and of their modules, with
#: what these import.
IMPORT = "import"

#: Name of a one-time cost: fixtures that several tests share.
FIXTURES = "shared fixtures"

#: Name of a size of memory: memory of the process after the first case has run.
RESIDENT = "resident memory"

#: Name of the whole process among the cases.
ALL_CASES = "all cases"

#: Name of Python among the packages of a side.
PYTHON = "Python"

#: Name of the code of a module, as Python has it.
MODULE = "<module>"

#: Names of files with options of pytest and of its plug-ins alone.
PYTEST_FILES = (".pytest.ini", ".pytest.toml", "pytest.ini", "pytest.toml")
#: Names of files with options of pytest and of other tools.
TOOL_FILES = ("pyproject.toml", "setup.cfg", "tox.ini")
#: Names of the files that pytest reads its options from.
CONFIGURATION_FILES = frozenset({*PYTEST_FILES, *TOOL_FILES})
#: Names of asv's configuration, which says in which folder the benchmarks of a suite are.
ASV_FILES = frozenset({"asv.conf.json", "asv.conf.jsonc"})

#: Folders whose cases are measured if nobody names any: those of them that have cases.
DEFAULT_FOLDERS = ("bench", "benchmarks", "tests/benchmarks")
