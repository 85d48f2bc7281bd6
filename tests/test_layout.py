"""Packages import only packages that come before them, and what compares and reports never imports torch."""

import ast
import graphlib
import sys
from pathlib import Path

import pytest

import mnistbench

PACKAGE = Path(mnistbench.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}

#: Package (or module beside the packages) -> the packages that its modules may import, also inside functions.
ARROWS = {
    "core": set(),
    "workloads": {"core"},
    "saved_runs": {"core"},
    "traces": {"core", "saved_runs"},
    "measuring": {"core", "workloads"},
    "compare": {"core", "saved_runs"},
    "profile": {"core", "workloads", "measuring"},
    "operators": {"core", "workloads", "measuring", "profile"},
    "train": {"core", "workloads", "measuring"},
    "scale": {"core", "workloads", "measuring"},
    "reproducers": {"core", "measuring"},
    "gate": {"core", "measuring", "compare", "reproducers"},
    "environments": {"core"},
    "report": {"core", "saved_runs", "traces", "compare", "profile", "operators", "scale", "gate"},
    "lab": {"core", "workloads", "measuring", "profile", "train"},
    "pytest_plugin": {"core", "workloads", "saved_runs", "measuring", "compare", "report"},
    "commands": {
        "core",
        "workloads",
        "saved_runs",
        "traces",
        "measuring",
        "compare",
        "profile",
        "operators",
        "train",
        "scale",
        "reproducers",
        "gate",
        "environments",
        "report",
        "lab",
    },
    "cli": {"core", "commands"},
    "__main__": {"cli"},
}

TORCH = {"torch", "torchvision", "tensorboard", "sklearn"}
NUMBERS = {"numpy", "matplotlib"}

#: The part of the gate that runs inside a launch.
IN_A_LAUNCH = {"gate.profiled", "gate.workload_case"}

#: Modules that import torch nowhere, not even inside a function.
TORCH_FREE = {
    name
    for name in MODULES
    if name.split(".")[0] in {"core", "saved_runs", "traces", "compare", "report", "gate", "environments"}
    or name.startswith("lab.report")
} - IN_A_LAUNCH
TORCH_FREE |= {
    "measuring.calls",
    "measuring.clocks",
    "profile",
    "profile.result",
    "operators",
    "operators.convolution",
    "operators.convolution.result",
    "operators.locality",
    "operators.locality.caches",
    "operators.locality.measured",
    "operators.locality.ranking",
    "operators.locality.result",
    "operators.memory",
    "operators.memory.largest",
    "operators.memory.ledger",
    "operators.memory.result",
    "operators.graph",
    "operators.graph.kernels",
    "operators.graph.result",
    "operators.graph.run",
    "train",
    "train.result",
    "scale",
    "scale.result",
    "reproducers",
    "reproducers.run",
    "reproducers.script",
    "lab",
    "lab.findings",
    "lab.progress",
}

#: Of these, the modules that import numpy or matplotlib nowhere either.
PLAIN = {name for name in TORCH_FREE if not name.startswith("gate")} - {"lab.report.figures"}

#: What the process of a side of the gate loads: its environment may have pytest and torch alone.
LOADED_IN_A_SIDE = {"gate.worker", "pytest_plugin.plugin", "pytest_plugin.fixture", "workloads.workload"}

#: What every pytest run and every command loads.
LOADED_ALWAYS = {"pytest_plugin.plugin", "cli"}

#: What imports torch, numpy, matplotlib and jinja2 inside functions only.
LATE = {
    "pytest_plugin.plugin", "pytest_plugin.session", "pytest_plugin.options", "pytest_plugin.hookspec",
    "pytest_plugin.terminal_summary", "cli", "profile.first_call", "lab.run", "scale.run",
    "measuring.torch_import",
} | {name for name in MODULES if name.startswith("commands")}  # fmt: skip


def imported(name, *, at_import=False):
    """Return the dotted names that a module imports, with ``at_import`` those at top level outside ``if TYPE_CHECKING``."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    found = set()
    for node in tree.body if at_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(names):
    """Return the modules of mnistbench among dotted names: of ``core.units`` and ``core``, the package, only the first."""
    known = {name.removeprefix("mnistbench.") for name in names if name.startswith("mnistbench.")} & set(MODULES)
    return {name for name in known if not any(other.startswith(f"{name}.") for other in known)}


def roots(names):
    return {name.split(".")[0] for name in names}


def test_every_module_is_in_a_package_of_the_table():
    assert roots(MODULES) == set(ARROWS)


def test_the_table_has_no_arrow_upwards():
    order = list(ARROWS)
    for package, allowed in ARROWS.items():
        assert allowed <= set(order[: order.index(package)]), package


@pytest.mark.parametrize("package", ARROWS)
def test_a_package_imports_only_those_that_the_table_allows(package):
    found = {(name, other) for name in MODULES if roots([name]) == {package} for other in ours(imported(name))}
    beyond = {(name, other) for name, other in found if not roots([other]) <= ARROWS[package] | {package}}
    assert beyond == set()


@pytest.mark.parametrize("package", ARROWS)
def test_the_table_has_no_arrow_that_nothing_needs(package):
    assert ARROWS[package] <= roots(other for name in MODULES if roots([name]) == {package} for other in ours(imported(name)))


def test_no_module_imports_itself_through_others():
    graph = {name: ours(imported(name)) for name in MODULES}
    graphlib.TopologicalSorter(graph).prepare()


def test_importing_a_package_imports_nothing():
    for name, path in MODULES.items():
        if path.name == "__init__.py":
            assert imported(name) == set(), name


@pytest.mark.parametrize("name", sorted(TORCH_FREE))
def test_torch_free_modules_never_import_torch_nor_a_module_that_does(name):
    assert not roots(imported(name)) & TORCH
    assert ours(imported(name)) <= TORCH_FREE


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_what_reads_and_shows_never_imports_numpy_or_matplotlib(name):
    assert not roots(imported(name)) & NUMBERS


@pytest.mark.parametrize("name", sorted(LATE))
def test_commands_and_plugin_import_what_is_heavy_inside_functions(name):
    assert not roots(imported(name, at_import=True)) & (TORCH | NUMBERS | {"scipy", "jinja2"})


@pytest.mark.parametrize("name", sorted(LOADED_ALWAYS))
def test_what_is_always_loaded_imports_nothing_heavy_through_other_modules_either(name):
    assert not loaded_with(name) & (TORCH | NUMBERS | {"scipy", "jinja2"})


def loaded_with(name):
    """Return the packages that a module imports when it is imported, through other modules of mnistbench, too."""
    reached, waiting = set(), {name}
    while waiting:
        now = waiting.pop()
        reached.add(now)
        waiting |= ours(imported(now, at_import=True)) - reached
    return {root for each in reached for root in roots(imported(each, at_import=True))}


@pytest.mark.parametrize("name", sorted(LOADED_IN_A_SIDE))
def test_a_side_needs_no_package_but_pytest_and_torch(name):
    assert loaded_with(name) - sys.stdlib_module_names <= {"mnistbench", "pytest", "torch"}
