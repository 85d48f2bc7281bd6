"""The arrows between modules run one way; what compares and reports never imports torch."""

import ast
from pathlib import Path

import pytest

import mnistbench

PACKAGE = Path(mnistbench.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") or "__init__": path
    for path in PACKAGE.rglob("*.py")
}

BASE = {
    "errors", "units", "arguments", "params", "reader", "record", "allocator", "settings", "criteria", "files", "garbage",
}  # fmt: skip
TORCH_SIDE = {
    "environment", "data", "models", "workload", "training", "case", "profiling", "tracking", "measurement",
}  # fmt: skip
#: Where pytest and the torch side meet: reached only when a test asks for our fixture.
PLUGIN_SIDE = {"hookspec", "options", "session", "plugin", "fixture", "attachments"}
COMPARING = {
    "digest", "comparable", "compare", "witnesses", "verdict", "saved", "prune", "report", "report.rows", "report.comparison",
    "report.runs", "report.terminal", "report.markdown", "report.data", "report.output", "report.environment",
    "report.charts", "report.page",
}  # fmt: skip
#: What judges launches of the gate: arrays of numbers, but no torch.
JUDGING = {
    "gate", "gate.samples", "gate.decision", "gate.verdict", "gate.snapshot", "gate.launcher", "gate.run", "gate.fingerprint",
    "report.gate",
}  # fmt: skip
#: What runs inside a launch.
MEASURING = {"gate.sides", "gate.clocks", "gate.launch", "gate.process_state", "gate.survey"}
#: What the lab knows and how it is told: no torch.
LAB_READING = {
    "lab", "lab.trained", "lab.profiled", "report.profile", "lab.findings", "lab.sheets", "lab.explain", "lab.claims",
    "lab.texts", "lab.document", "lab.chapters", "lab.merged", "lab.progress",
}  # fmt: skip
#: What the lab draws with matplotlib, which is imported only when figures are drawn.
LAB_DRAWING = {"lab.figures"}
#: What the lab measures.
LAB_MEASURING = {"lab.train", "lab.costs", "lab.ceilings", "lab.profile", "lab.measures"}
#: Processes, flows and commands: torch and matplotlib inside functions alone.
LAB_STARTING = {"lab.cold", "lab.run", "lab.train_command", "lab.profile_command", "lab.lab_command"}
PRINTING = {"report.summary", "gate.command", "cli", "__main__"}

#: Module group -> the groups that it may import when it is imported.
MAY_IMPORT = [
    (BASE, BASE),
    (TORCH_SIDE, BASE | TORCH_SIDE),
    (COMPARING, BASE | COMPARING),
    ({"hookspec", "options", "session", "plugin"}, BASE | PLUGIN_SIDE - {"fixture", "attachments"}),
    ({"fixture", "attachments"}, BASE | TORCH_SIDE | PLUGIN_SIDE),
    (JUDGING, BASE | COMPARING | JUDGING),
    (MEASURING, BASE | TORCH_SIDE | MEASURING | {"gate", "gate.fingerprint"}),
    (LAB_READING, BASE | COMPARING | LAB_READING),
    (LAB_DRAWING, BASE | LAB_READING),
    (LAB_MEASURING, BASE | TORCH_SIDE | LAB_READING | LAB_MEASURING | {"lab.cold"}),
    (LAB_STARTING, BASE | COMPARING | LAB_READING | {"session", "lab.run"}),
    (PRINTING, BASE | COMPARING | JUDGING | PRINTING | {"session"}),
]


def imported_at_import(path, *, everywhere=False):
    """Absolute names that a module imports at top level, outside ``if TYPE_CHECKING``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else tree.body
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(names):
    known = {name.removeprefix("mnistbench.") for name in names if name.startswith("mnistbench.")}
    return {name for name in known if name in MODULES}


def test_every_module_has_a_place():
    placed = BASE | TORCH_SIDE | PLUGIN_SIDE | COMPARING | JUDGING | MEASURING | PRINTING | {"__init__"}
    placed |= LAB_READING | LAB_DRAWING | LAB_MEASURING | LAB_STARTING
    assert set(MODULES) == placed


@pytest.mark.parametrize(("group", "allowed"), MAY_IMPORT, ids=lambda group: "+".join(sorted(group))[:40])
def test_modules_import_only_what_lies_below_them(group, allowed):
    for name in group:
        assert ours(imported_at_import(MODULES[name])) <= allowed, name


@pytest.mark.parametrize("name", sorted(BASE | COMPARING | LAB_READING))
def test_torch_free_modules_never_import_torch_not_even_inside_a_function(name):
    roots = {imported.split(".")[0] for imported in imported_at_import(MODULES[name], everywhere=True)}
    assert not roots & {"torch", "torchvision", "tensorboard", "sklearn", "numpy", "matplotlib"}
    assert not ours(imported_at_import(MODULES[name], everywhere=True)) & TORCH_SIDE


@pytest.mark.parametrize("name", sorted(JUDGING))
def test_what_judges_launches_never_imports_torch(name):
    roots = {imported.split(".")[0] for imported in imported_at_import(MODULES[name], everywhere=True)}
    assert not roots & {"torch", "torchvision", "tensorboard", "sklearn"}
    assert not ours(imported_at_import(MODULES[name], everywhere=True)) & (TORCH_SIDE | MEASURING)


@pytest.mark.parametrize("name", ["plugin", "session", "options", "hookspec", "cli", "report.summary", *sorted(LAB_STARTING)])
def test_what_every_pytest_run_loads_imports_torch_only_inside_functions(name):
    roots = {imported.split(".")[0] for imported in imported_at_import(MODULES[name])}
    assert not roots & {"torch", "torchvision", "tensorboard", "sklearn", "numpy", "matplotlib", "jinja2"}
