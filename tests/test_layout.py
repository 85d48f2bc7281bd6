"""Packages import only packages before them, and folders stay small.

What shows and compares never imports torch.
"""

import ast
import functools
import graphlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mnistbench

PACKAGE = Path(mnistbench.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}

#: The packages and the modules beside them, each of which may import only those before it, also
#: inside functions.
FLOORS = (
    "core",
    "showing",
    "events",
    "measuring",
    "saved_runs",
    "judging",
    "compare",
    "gate",
    "page",
    "pytest_plugin",
    "suite",
    "course",
    "cli",
    "__main__",
)

#: Packages that know fewer others than their place in FLOORS allows.
ONLY = {
    "showing": {"core"},
    "events": {"core", "showing"},
    "suite.workloads": {"core"},
    "judging": {"core", "judging"},
    "gate.words": {"gate.words"},
    "course.lab": {*FLOORS[: FLOORS.index("course")], "course.studies"},  # not course.classroom
    "cli": {"core", "showing"},  # the modules of its commands are named in COMMANDS
}

#: The chapters of the gate, and the modules beside them that all may import. A chapter imports only
#: those before it. ``flow``, ``commands`` and ``qualification`` put them together.
CHAPTERS = (
    "copies",
    "environments",
    "samples",
    "processes",
    "survey",
    "decide",
    "measure",
    "explain",
    "report",
)
BESIDE_CHAPTERS = ("words", "listing", "options")

#: Packages that import torch nowhere, not even inside a function.
WITHOUT_TORCH = (
    "core",
    "showing",
    "events",
    "saved_runs",
    "judging",
    "compare",
    "page",
    "gate",
    "measuring",
    "pytest_plugin",
    "cli",
)

TORCH = {"torch", "torchvision", "tensorboard"}
HEAVY = TORCH | {"numpy", "matplotlib", "jinja2"}

#: What the process of a side of the gate loads: its environment may have pytest and torch alone.
LOADED_IN_A_SIDE = {
    "gate.processes.sides.worker",
    "pytest_plugin.plugin",
    "suite.op_benchmark.fixture",
    "suite.workloads.workload",
}

#: Most modules in a folder.
MAX_MODULES = 12


def size():
    """Return the script that measures the size of the package."""
    path = Path(__file__).parents[1] / "docs" / "evidence" / "size.py"
    spec = importlib.util.spec_from_file_location("size", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SIZE = size()


@functools.cache
def trees():
    """Return the parsed modules of the checkout."""
    return SIZE.trees(SIZE.PACKAGE)


def imported(name, *, at_import=False):
    """Return the dotted names that a module imports.

    With ``at_import`` those at top level outside ``if TYPE_CHECKING``.
    """
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    names = set()
    for node in tree.body if at_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def ours(names):
    """Return the modules of mnistbench among dotted names.

    Of ``core.units`` and ``core``, the package, only the first.
    """
    known = {
        name.removeprefix("mnistbench.") for name in names if name.startswith("mnistbench.")
    } & set(MODULES)
    return {name for name in known if not any(longer.startswith(f"{name}.") for longer in known)}


def roots(names):
    return {name.split(".")[0] for name in names}


def within(package):
    return [name for name in MODULES if name == package or name.startswith(f"{package}.")]


# ---- Imports -------------------------------------------------------------------------------------


def test_every_module_is_in_a_package_of_the_floors():
    assert roots(MODULES) == set(FLOORS)


@pytest.mark.parametrize("package", FLOORS)
def test_a_package_imports_only_packages_before_it(package):
    allowed = {*FLOORS[: FLOORS.index(package) + 1]}
    upwards = {
        (name, imported_module)
        for name in within(package)
        for imported_module in ours(imported(name))
        if not roots([imported_module]) <= allowed
    }
    assert upwards == set()


@pytest.mark.parametrize("package", ONLY)
def test_a_package_that_knows_few_others_imports_no_more(package):
    allowed = tuple(f"{allowed_package}." for allowed_package in {package, *ONLY[package]})
    not_allowed = {
        (name, imported_module)
        for name in within(package)
        for imported_module in ours(imported(name))
        if not f"{imported_module}.".startswith(allowed)
    }
    assert not_allowed == set()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_of_the_gate_imports_only_chapters_before_it(chapter):
    before = (*BESIDE_CHAPTERS, *CHAPTERS[: CHAPTERS.index(chapter) + 1])
    allowed = tuple(f"gate.{name}." for name in before)
    not_allowed = {
        (name, imported_module)
        for name in within(f"gate.{chapter}")
        for imported_module in ours(imported(name))
        if imported_module.startswith("gate.") and not f"{imported_module}.".startswith(allowed)
    }
    assert not_allowed == set()


def test_no_module_imports_itself_through_others():
    graph = {name: ours(imported(name)) for name in MODULES}
    graphlib.TopologicalSorter(graph).prepare()


def test_importing_a_package_imports_nothing():
    for name, path in MODULES.items():
        if path.name == "__init__.py":
            assert imported(name) == set(), name


@pytest.mark.parametrize("package", WITHOUT_TORCH)
def test_what_reads_and_shows_never_imports_torch(package):
    with_torch = {name for name in within(package) if roots(imported(name)) & TORCH}
    assert with_torch == set()


def loaded_with(name):
    """Return the packages that a module imports when it is imported.

    Through other modules of mnistbench, too.
    """
    reached = set()
    waiting = {name}
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= ours(imported(module, at_import=True)) - reached
    return {root for module in reached for root in roots(imported(module, at_import=True))}


def test_commands_and_the_plug_in_load_nothing_heavy():
    for name in ("pytest_plugin.plugin", "cli"):
        assert not loaded_with(name) & (HEAVY | {"cProfile"}), name
    program = "import sys; from mnistbench import cli; cli.parser(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # The gate's permutations are arrays.
    assert not roots(done.stdout.split()) & (HEAVY - {"numpy"})


#: Packages that other distributions bring: jinja2 and pytest-benchmark require them.
BROUGHT = {"markupsafe": "jinja2", "cpuinfo": "pytest-benchmark"}

#: What needs an extra: figures, and asv suites.
WITH_EXTRAS = {"showing.drawing", "gate.processes.asv.benchmarks"}


def test_what_needs_no_torch_imports_declared_dependencies_alone():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    declared = {
        re.match(r"[\w-]+", line)[0] for line in tomllib.loads(text)["project"]["dependencies"]
    }
    undeclared = {
        (name, root)
        for package in WITHOUT_TORCH
        for name in {*within(package)} - WITH_EXTRAS
        for root in roots(imported(name)) - TORCH - sys.stdlib_module_names - {"mnistbench"}
        if BROUGHT.get(root, root) not in declared
    }
    assert undeclared == set()


def test_one_module_imports_matplotlib():
    """It sees to it that no file of the current directory has settings."""
    assert [name for name in MODULES if "matplotlib" in roots(imported(name))] == [
        "showing.drawing"
    ]


@pytest.mark.parametrize("name", sorted(LOADED_IN_A_SIDE))
def test_a_side_needs_no_package_but_pytest_and_torch(name):
    assert loaded_with(name) - sys.stdlib_module_names <= {"mnistbench", "pytest", "torch"}


def test_a_measured_process_loads_no_options_and_no_locks():
    assert not {"argparse", "fcntl"} & loaded_with("gate.processes.sides.worker")


# ---- Form ----------------------------------------------------------------------------------------


def test_no_class_name_exists_twice():
    assert SIZE.twice(trees()) == []


def test_one_module_starts_processes():
    assert SIZE.with_popen(trees()) == ["core/child.py"]


def test_a_folder_has_few_modules():
    folders = {path.parent for path in trees()}
    counted = {
        folder: len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        for folder in folders
    }
    assert {
        folder.relative_to(SIZE.PACKAGE).as_posix(): n
        for folder, n in counted.items()
        if n > MAX_MODULES
    } == {}


def test_chains_of_imports_are_short():
    assert SIZE.longest_chain(trees()) <= 20


@pytest.mark.parametrize(("command", "most"), [("list", 30), ("compare", 51), ("gate", 118)])
def test_a_command_loads_few_modules(command, most):
    assert SIZE.loaded(command) <= most


# ---- Names of modules in texts -------------------------------------------------------------------

#: A module as docstrings, comments, strings and templates name it: with dots from the package on,
#: or as a path.
NAMED_WITH_DOTS = re.compile(r"\bmnistbench((?:\.\w+)+)")
NAMED_AS_A_PATH = re.compile(r"``([a-z_]+(?:/[a-z_]+)+)``")

#: The suffixes of the files of the package that have texts.
WITH_TEXTS = (".py", ".toml", ".jinja", ".js")


def is_known(dotted):
    """Whether a name below the package is a module, or something that the text of one has."""
    parts = dotted.split(".")
    if parts[0] not in FLOORS:
        return True  # a name of the package itself, or of something else
    for end in range(len(parts), 0, -1):
        if path := MODULES.get(".".join(parts[:end])):
            text = path.read_text(encoding="utf-8")
            return parts[end:] == [] or re.search(rf"\b{parts[end]}\b", text) is not None
    return False


def unknown_modules(path, text):
    """Return the names in the text of a file that are of no module, beside it or of the package."""
    names = [name.removeprefix(".") for name in NAMED_WITH_DOTS.findall(text)]
    paths = [f"{name}.py" for name in NAMED_AS_A_PATH.findall(text)]
    if path.suffix == ".toml":
        paths += re.findall(r"\b\w+\.py\b", text)
        folder = path.parent.parent
    else:
        folder = path.parent
    return [name for name in names if not is_known(name)] + [
        name for name in paths if not ((folder / name).is_file() or (PACKAGE / name).is_file())
    ]


@pytest.mark.parametrize(
    ("name", "text", "unknown"),
    [
        ("gate/flow.py", "mnistbench.core.units and mnistbench.core.units.printable", []),
        ("gate/flow.py", "mnistbench.core.units.inches", ["core.units.inches"]),
        ("gate/flow.py", "mnistbench.gate.stream", ["gate.stream"]),
        ("gate/flow.py", "``processes/starting`` and ``core/units``", []),
        ("gate/flow.py", "``processes/startings``", ["processes/startings.py"]),
        ("course/lab/wording/en.toml", "# sentences.py and reasons.py", ["reasons.py"]),
    ],
)
def test_a_name_of_a_module_is_looked_up(name, text, unknown):
    assert unknown_modules(PACKAGE / name, text) == unknown


def test_modules_that_texts_name_exist():
    unknown = {
        path.relative_to(PACKAGE).as_posix(): names
        for path in PACKAGE.rglob("*")
        if path.suffix in WITH_TEXTS
        and (names := unknown_modules(path, path.read_text(encoding="utf-8")))
    }
    assert unknown == {}


def test_evidence_imports_what_exists():
    """Scripts run rarely, and import inside functions, too."""
    missing = {
        (path.name, f"{node.module}.{alias.name}")
        for path in (Path(__file__).parents[1] / "docs").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mnistbench.")
        for alias in node.names
        if not is_known(f"{node.module}.{alias.name}".removeprefix("mnistbench."))
    }
    assert missing == set()


# ---- Features ------------------------------------------------------------------------------------


@pytest.mark.parametrize("study", ["convolution", "graph", "locality", "memory"])
def test_a_study_is_named_outside_its_folder_only_by_the_list_of_commands(study):
    named = f"course.studies.{study}"
    elsewhere = {
        name for name in MODULES if named in MODULES[name].read_text(encoding="utf-8")
    } - set(within("course.studies"))
    assert elsewhere <= {"cli", "course.lab.studies"}
