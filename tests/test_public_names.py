"""The names that users import from mnistbench itself."""

import subprocess
import sys

import pytest

import mnistbench
from mnistbench.saved_runs.run import Run
from mnistbench.suite.workloads.workload import Workload


def test_the_public_names_are_what_their_modules_define():
    assert (mnistbench.Run, mnistbench.Workload) == (Run, Workload)
    assert all(hasattr(mnistbench, name) for name in mnistbench.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'mnistbench' has no attribute 'Wrokload'$"):
        _ = mnistbench.Wrokload


def test_the_package_imports_no_module_and_a_name_imports_its_own():
    code = """
import sys, mnistbench
assert [name for name in sys.modules if name.startswith("mnistbench.")] == []
mnistbench.Run
assert not {"torch", "numpy", "pytest"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
