"""mnistbench tells you which PyTorch operation got slower.

A pytest-benchmark suite with operation tables for every case.

The public names are imported when they are first used. Importing this package imports neither torch
nor pytest: pytest loads the plug-in of every installed package.

PYTEST_DONT_REWRITE: without this word pytest warns if a conftest.py imports mnistbench before it
loads the plug-in.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mnistbench.saved_runs.run import Run
    from mnistbench.suite.workloads.workload import Workload

__all__ = ["Run", "Workload", "__version__"]

__version__ = "0.1.0"

#: Public name -> the module that defines it.
_DEFINED_IN = {
    "Run": "mnistbench.saved_runs.run",
    "Workload": "mnistbench.suite.workloads.workload",
}

if not TYPE_CHECKING:  # otherwise mypy accepts any misspelt name

    def __getattr__(name: str) -> object:
        if name not in _DEFINED_IN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_DEFINED_IN[name]), name)
