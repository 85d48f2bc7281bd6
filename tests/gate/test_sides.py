"""Two trees' code in one process: each side sees its own modules, and what they cannot share is noticed."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mnistbench.gate import sides
from mnistbench.gate.launcher import environment, stage_home
from mnistbench.gate.sides import Side, SideError, stray_modules

INI = """
[pytest]
bench_model = tiny
bench_batch_size = 4
bench_device = cpu
filterwarnings = error
"""

CONFTEST = """
import torch
from model import Tiny
from package.part import PART
from torch import nn

from mnistbench import Workload


def make_batch(batch_size, device, generator):
    inputs = torch.randn(batch_size, 8, generator=generator)
    return inputs.to(device), (inputs.sum(dim=1) > 0).long().to(device)


def pytest_mnistbench_workloads(config):
    print("a side may print")
    return [
        Workload(
            name="tiny",
            make_model=Tiny,
            make_batch=make_batch,
            loss=nn.functional.cross_entropy,
            make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        )
    ]
"""

MODEL = """
from torch import nn

VERSION = "{version}"
SEEN = []


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        import built

        self.layer = nn.Linear(8, 2)
        SEEN.append(built.VERSION)

    def forward(self, inputs):
        import called
        from package import late

        SEEN.append((VERSION, called.VERSION, late.VERSION))
        return self.layer(inputs)
"""

TESTS = """
from pathlib import Path

import pytest


@pytest.mark.parametrize("phase", ["forward", "step"])
def test_tiny(op_benchmark, phase):
    op_benchmark(phase)


def test_that_is_not_ours():
    Path("ran").touch()
"""

OPERATOR = """
import torch
from torch import library


@library.custom_op("gate_test::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


VERSION = ""
"""

LIBRARY = """
from torch import library

LIBRARY = library.Library("gate_test_library", "DEF")
VERSION = ""
"""

OWN_PLUGIN = """
from mnistbench.pytest_plugin.plugin import *


def pytest_collection_modifyitems(items):
    items.clear()
"""

#: A tree's file -> its text, for trees that cannot be measured or cannot share a process.
OTHERS = {
    "test file": {"test_tiny.py": "import nothing_of_that_name\n"},
    "conftest": {"conftest.py": "raise RuntimeError('first line\\nsecond line')\n"},
    "syntax": {"test_tiny.py": "def test_tiny(:\n"},
    "test": {"test_tiny.py": "def test_tiny(op_benchmark):\n    assert 1 + 1 == 3, 'arithmetic'\n"},
    "workload": {"conftest.py": "def pytest_mnistbench_workloads(config):\n    return []\n"},
    "no case": {"test_tiny.py": "def test_plain():\n    raise RuntimeError('nobody asked to run it')\n"},
    "no test": {"test_tiny.py": "", "conftest.py": ""},
    "torch's own operators": {"built.py": "import torch.ao.quantization.fx._decomposed\nVERSION = ''\n", "eager": "built"},
    "plug-in": {
        "pyproject.toml": "[project.entry-points.pytest11]\nmnistbench = 'own_plugin'\n",
        "own_plugin.py": OWN_PLUGIN,
    },
    "operators": {"built.py": OPERATOR, "called.py": LIBRARY, "eager": "built, called"},
}

PROGRAM = """
import json
import os
import sys
from pathlib import Path

home, folder, others = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
sys.path.insert(0, home)

import torch

import mnistbench
from mnistbench.gate.worker import Launch
from mnistbench.gate.sides import Side, SideError, watch_registrations

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def side(name, directory=""):
    return Side(name, folder / name, folder / name / directory, home)


def state():
    return [sys.path[:], os.getcwd(), sorted(name for name in sys.modules if name.startswith("mnistbench"))]


base, head = side("base"), side("head")
before, ours = state(), sys.modules["mnistbench"]
for each in (base, head):
    each.load([], lambda case: True)
found = {"same": state() == before and sys.modules["mnistbench"] is ours, "ran": sorted(map(str, folder.glob("*/ran")))}
left = {"model", "conftest", "test_tiny", "built", "called", "package", "package.part", "package.late"}
for turn in range(2):  # what is imported late is found again in the next turn
    for each in (head, base):
        with each.turn():
            case = each.cases["test_tiny.py::test_tiny[forward-tiny-b4-cpu]"].build()
        with each.turn():
            case()
            found.setdefault("turns", []).append([os.getcwd(), sys.path[0]])
found["left"] = sorted(left & set(sys.modules))
found["same after turns"] = state() == before and sys.modules["mnistbench"] is ours
for each in (base, head):
    found[each.name] = {
        "cases": {node_id: [case.label, vars(case.params)["phase"]] for node_id, case in each.cases.items()},
        "seen": each._modules["model"].SEEN,
        "files": each.files,
        "native": each.native,
    }
found["errors"] = {}
for name, arguments in [*((name, []) for name in others), ("base", ["--nonsense"]), ("base", ["nowhere.py"])]:
    key = " ".join([name, *arguments])
    one = side(name)
    registered = watch_registrations([one.tree])
    try:
        one.load(arguments, lambda case: case.params.phase == "step")
        found["errors"][key] = list(one.cases)
    except SideError as error:
        found["errors"][key] = str(error)
    found.setdefault("registered", {})[name] = sorted(set(registered))
found["same after errors"] = state() == before and sys.modules["mnistbench"] is ours

job = {"seed": 1, "home": home, "repository": str(folder / "nowhere"), "arguments": ["-k", "forward"], "phases": []}


def launch(*names):
    trees = [{"name": name, "tree": str(folder / name), "directory": str(folder / name)} for name in names]
    return Launch({**job, "only": None, "peer": None, "sides": trees})


try:
    launch("lazy base", "lazy head")
except Exception as error:
    found["clash"] = f"{type(error).__name__}: {error}"
[[build, *_]] = launch("diverged").measure(lambda **_: None)["cases"].values()
found["diverged"] = build["sides"]["diverged"]["outcome"]
json.dump(found, out)
out.close()
"""


def make_tree(root, version, changes=None):
    """Put a project there whose modules all have this version."""
    files = {
        "pytest.ini": INI, "conftest.py": CONFTEST, "model.py": MODEL.replace("{version}", version), "test_tiny.py": TESTS,
        "src/package/__init__.py": "", "src/package/part.py": f"PART = {version!r}\n",
        **dict.fromkeys(("built.py", "called.py", "src/package/late.py"), f"VERSION = {version!r}\n"), **(changes or {}),
    }  # fmt: skip
    eager = files.pop("eager", "")
    if eager:
        files["model.py"] = f"import {eager}\n{files['model.py']}"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What one process saw of many trees: torch's import takes seconds, so one serves all tests."""
    folder = tmp_path_factory.mktemp("trees")
    make_tree(folder / "base", "old")
    make_tree(folder / "head", "new")
    for name, changes in OTHERS.items():
        make_tree(folder / name, "x", changes)
    for name in ("lazy base", "lazy head"):
        make_tree(folder / name, name, {"built.py": OPERATOR})
    make_tree(folder / "diverged", "x", {"model.py": MODEL.replace("self.layer(inputs)", "self.layer(inputs) * float('nan')")})
    home = stage_home(folder)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MNISTBENCH_", "GIT_"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(home), str(folder), *OTHERS],
        cwd=folder, env=environment(inherited, home, 1), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "folder": folder, "log": done.stderr}


# ---- Loading -----------------------------------------------------------------------------------------------------------


def test_a_side_has_the_cases_of_its_tests_and_runs_no_other(found):
    assert found["base"]["cases"] == found["head"]["cases"]
    assert found["base"]["cases"] == {
        f"test_tiny.py::test_tiny[{phase}-tiny-b4-cpu]": [f"{phase} tiny-b4-cpu on synthetic", phase]
        for phase in ("forward", "step")
    }
    assert found["ran"] == []


def test_each_side_sees_its_own_modules_also_by_late_imports(found):
    assert found["base"]["seen"] == ["old", ["old", "old", "old"]] * 2
    assert found["head"]["seen"] == ["new", ["new", "new", "new"]] * 2


def test_files_name_where_each_module_came_from(found):
    assert found["base"]["files"] == {
        "built": "built.py",
        "called": "called.py",
        "conftest": "conftest.py",
        "model": "model.py",
        "package": "src/package/__init__.py",
        "package.late": "src/package/late.py",
        "package.part": "src/package/part.py",
        "test_tiny": "test_tiny.py",
    }
    assert found["base"]["native"] == []


def test_a_turn_is_in_the_sides_folder_and_imports_from_it_first(found):
    turns = [[str(found["folder"] / name)] * 2 for name in ("head", "base", "head", "base")]
    assert found["turns"] == turns


def test_the_process_is_as_before_after_loading_turns_and_errors(found):
    assert found["left"] == []
    assert (found["same"], found["same after turns"], found["same after errors"]) == (True, True, True)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ("test file", "test_tiny.py cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("conftest", "conftest.py cannot be imported: RuntimeError: first line"),
        ("syntax", "test_tiny.py cannot be imported: SyntaxError: invalid syntax"),
        ("test", "test_tiny.py::test_tiny[tiny-b4-cpu] fails: AssertionError: arithmetic"),
        ("workload", "--bench-model: 'tiny' is not a workload; choose of convnet, lenet5"),
        ("base --nonsense", "unrecognized arguments: --nonsense"),
        ("base nowhere.py", "file or directory not found: nowhere.py"),
    ],
)
def test_a_side_that_cannot_be_loaded_says_why_in_one_line(found, tree, said):
    assert found["errors"][tree] == f"{tree.partition(' --')[0].partition(' no')[0]}: {said}"


def test_a_side_uses_the_plug_in_that_its_own_project_declares(found):
    assert found["errors"]["plug-in"] == []  # that plug-in leaves out all tests


@pytest.mark.parametrize("text", ["", "entry-points = 1", "[project.entry-points]\npytest11 = 'x'"])
def test_a_project_without_plug_ins_adds_no_option(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(f"[project]\n{text}")
    assert sides._moved_plugins(tmp_path) == []


@pytest.mark.parametrize("tree", ["no case", "no test"])
def test_a_side_may_have_no_case(found, tree):
    assert found["errors"][tree] == []


@pytest.mark.parametrize(
    ("tree", "registered"),
    [("workload", []), ("torch's own operators", []), ("operators", ["gate_test", "gate_test_library"])],
)
def test_operators_that_the_trees_code_registers_are_seen_and_torchs_own_are_not(found, tree, registered):
    assert found["registered"][tree] == registered


def test_only_wanted_cases_are_kept(found):
    assert found["errors"]["operators"] == ["test_tiny.py::test_tiny[step-tiny-b4-cpu]"]


def test_operators_that_are_registered_when_a_model_is_built_are_seen_too(found):
    # torch takes the second for a new version of the first, without a word: both sides would be measured with one of them.
    assert found["clash"] == "ClashError: the sides add operators registered with torch (gate_test)"


def test_a_model_that_computes_what_is_not_a_number_can_be_written_down(found):
    summary, number = found["diverged"]
    assert len(summary) == 16
    assert number is None  # JSON has no NaN


# ---- Turns -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def side(tmp_path):
    """A side that has loaded nothing yet; its import path is its own folder and the process's."""
    tree = tmp_path / "tree"
    tree.mkdir()
    return Side("base", tree, tree, "/nowhere", _path=[str(tree), *sys.path])


def process():
    return sys.path[:], Path.cwd(), dict(sys.modules)


def test_a_turn_gives_and_takes_modules_path_and_folder(side):
    (side.tree / "gate_test_module.py").write_text("import gate_test_package.inner\n")
    (side.tree / "gate_test_package").mkdir()
    (side.tree / "gate_test_package/inner.py").write_text("")
    before = process()
    with side.turn():
        import gate_test_module

        assert Path.cwd() == side.tree
        assert sys.path[0] == str(side.tree)
    assert process() == before
    assert side.files == {
        "gate_test_module": "gate_test_module.py",
        "gate_test_package": "gate_test_package",
        "gate_test_package.inner": "gate_test_package/inner.py",
    }
    with side.turn():
        assert sys.modules["gate_test_module"] is gate_test_module
    assert process() == before


def test_a_module_that_is_not_the_trees_stays_for_all(side, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "gate_test_installed.py").write_text("")
    side._path = sys.path[:]
    with side.turn():
        import gate_test_installed
    try:
        assert sys.modules["gate_test_installed"] is gate_test_installed
        assert side.files == {}
    finally:
        del sys.modules["gate_test_installed"]


def test_a_tree_whose_name_begins_like_the_sides_is_another(side, monkeypatch):
    other = side.tree.with_name("tree2")
    other.mkdir()
    (other / "gate_test_other.py").write_text("")
    side._path = [str(other), *sys.path]
    with side.turn():
        import gate_test_other
    monkeypatch.delitem(sys.modules, "gate_test_other")
    assert Path(gate_test_other.__file__).parent == other
    assert side.files == {}


def test_our_own_modules_are_the_sides_and_come_back(side):
    import mnistbench

    with side.turn():
        assert "mnistbench" not in sys.modules
        assert "mnistbench.gate.sides" not in sys.modules
        import mnistbench as theirs

        assert theirs is not mnistbench
    assert sys.modules["mnistbench"] is mnistbench
    assert sys.modules["mnistbench.gate.sides"] is sides
    with side.turn():
        assert sys.modules["mnistbench"] is theirs


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("a reason"), "base: ValueError: a reason"),
        (ValueError("\nfirst\nsecond"), "base: ValueError: first"),
        (KeyError(), "base: KeyError: no message"),
        (SideError("base: said already"), "base: said already"),
    ],
    ids=["one line", "lines", "no message", "said already"],
)
def test_what_a_sides_code_raises_is_one_line_with_its_name(side, error, said, capfd):
    before = process()
    with pytest.raises(SideError) as raised, side.turn():
        raise error
    assert str(raised.value) == said
    assert process() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_turn_goes_on(side, error):
    before = process()
    with pytest.raises(error), side.turn():
        raise error
    assert process() == before


def test_compiled_modules_are_named(side):
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    for name, file in [("plain", "plain.py"), ("fast", f"package/fast{suffix}"), ("other", f"../other{suffix}")]:
        side._modules[name] = module(name, side.tree / file)
    assert side.native == ["fast"]


# ---- Modules that neither copy holds -----------------------------------------------------------------------------------


def module(name, path):
    made = ModuleType(name)
    made.__file__ = os.path.normpath(path)
    return made


@pytest.fixture
def repository(tmp_path):
    """Where the user's own tree lies."""
    (tmp_path / "repository").mkdir()
    return tmp_path / "repository"


@pytest.mark.parametrize(
    ("file", "stray"),
    [
        ("repository/model.py", True),
        ("repository/src/package/__init__.py", True),
        ("tree/model.py", False),
        ("repository2/model.py", False),
        ("elsewhere/model.py", False),
    ],
)
def test_a_module_of_the_users_own_tree_is_stray(side, repository, tmp_path, monkeypatch, file, stray):
    monkeypatch.setitem(sys.modules, "gate_test_stray", module("gate_test_stray", tmp_path / file))
    assert stray_modules(repository, [side]) == ({"gate_test_stray": str(tmp_path / file)} if stray else {})


def test_a_package_without_a_file_is_stray_by_its_folder(side, repository, monkeypatch):
    package = ModuleType("gate_test_stray")
    package.__path__ = [str(repository / "package")]
    monkeypatch.setitem(sys.modules, "gate_test_stray", package)
    assert stray_modules(repository, [side]) == {"gate_test_stray": str(repository / "package")}


@pytest.mark.parametrize(
    ("prefix", "file", "stray"),
    [
        ("repository/.venv", "repository/.venv/lib/installed.py", False),
        ("repository/.venv", "repository/.venv-of-another/lib/installed.py", True),
        (".", "repository/src/model.py", True),  # the system's Python in a container: prefix /usr, project in /usr/src
    ],
)
def test_only_what_is_installed_may_lie_in_the_repository(side, repository, tmp_path, monkeypatch, prefix, file, stray):
    monkeypatch.setattr(sys, "prefix", os.path.normpath(tmp_path / prefix))
    monkeypatch.setitem(sys.modules, "gate_test_stray", module("gate_test_stray", tmp_path / file))
    assert bool(stray_modules(repository, [side])) is stray


def test_a_project_that_is_installed_and_not_imported_from_its_copy_is_stray(side, repository, tmp_path, monkeypatch):
    class Installed(importlib.metadata.Distribution):
        files = (importlib.metadata.PackagePath("package/part.py"),)

        def read_text(self, filename):
            return None

        def locate_file(self, path):
            return tmp_path / "site-packages" / path

    installed = {"own-project": Installed()}
    monkeypatch.setattr(importlib.metadata, "distribution", installed.__getitem__)
    (side.tree / "pyproject.toml").write_text('[project]\nname = "own-project"\n')
    path = tmp_path / "site-packages/package/part.py"
    monkeypatch.setitem(sys.modules, "gate_test_stray", module("gate_test_stray", path))
    assert stray_modules(repository, [side]) == {"gate_test_stray": str(path)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[project]\n",
        "[project]\nname = 'not-installed-anywhere'\n",
        "project = 1\n",
        "[project]\nname = 1\n",
        "no toml",
        "\xff",
    ],
)
def test_a_project_file_that_names_nothing_installed_makes_nothing_stray(side, repository, text):
    (side.tree / "pyproject.toml").write_text(text, encoding="latin-1")
    assert stray_modules(repository, [side]) == {}
