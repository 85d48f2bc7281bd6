"""The pytest session of a side.

Its own modules, its cases inside their fixtures, and what ends it.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest
from inner_runs import environment_without

from mnistbench.gate.processes.sides import session
from mnistbench.gate.processes.sides.side import Side
from mnistbench.gate.processes.starting import environment, stage_home
from mnistbench.gate.words import BASE, HEAD

pytestmark = pytest.mark.usefixtures("torch")


@pytest.mark.parametrize(
    ("side", "failures"),
    [
        (HEAD, ["t.py::test_a: opgate('5'): is not a threshold; give 10%, or 'aten::addmm:5%' "]),
        (BASE, []),
    ],
)
def test_a_wrong_mark_of_thresholds_in_the_head_is_a_failure_of_its_test(side, failures, tmp_path):
    own = session._Session(
        Side(side, tmp_path, tmp_path, ""), order=lambda node_ids: node_ids, take=print
    )
    mark = SimpleNamespace(args=("5",), kwargs={})
    item = SimpleNamespace(
        nodeid="t.py::test_a",
        path=tmp_path / "t.py",
        fixturenames=("benchmark",),
        get_closest_marker={"opgate": mark}.get,
    )
    config = SimpleNamespace(pluginmanager=SimpleNamespace(hasplugin=lambda _: False))
    config.hook = SimpleNamespace(pytest_deselected=lambda items: None)
    own.pytest_collection_modifyitems(config, [item])
    assert [failure[: len(failures[0])] for failure in own.failures] == failures


INI = """
[pytest]
bench_model = tiny
bench_batch_size = 4
bench_device = cpu
filterwarnings = error
"""

CONFTEST = """
from pathlib import Path

import torch
from model import Tiny
from package.part import PART
from torch import nn

from mnistbench import Workload


# None of torch's optimizers, the first of which imports a thousand modules.
class Unchanging:
    def __init__(self, parameters):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def zero_grad(self):
        pass

    def step(self):
        pass


def make_batch(batch_size, device, generator):
    inputs = torch.randn(batch_size, 8, generator=generator)
    return inputs.to(device), (inputs.sum(dim=1) > 0).long().to(device)


def pytest_sessionfinish(session):
    Path("statistics").write_text(str(len(session.config._benchmarksession.benchmarks)))


def pytest_mnistbench_workloads(config):
    print("a side may print")
    return [
        Workload(
            name="tiny",
            make_model=Tiny,
            make_batch=make_batch,
            loss=nn.functional.cross_entropy,
            make_optimizer=Unchanging,
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


@pytest.fixture
def folder_of_a_test(tmp_path):
    Path("open").touch()
    yield tmp_path
    Path("open").unlink()


def test_with_a_fixture(op_benchmark, folder_of_a_test, capsys):
    op_benchmark("forward")
"""

OWN_PLUGIN = """
from mnistbench.pytest_plugin.plugin import *


def pytest_collection_modifyitems(items):
    items.clear()
"""

#: A tree's file -> its text, for trees that cannot be measured.
OTHERS = {
    "file": {"test_tiny.py": "import nothing_of_that_name\n"},
    "conftest": {"conftest.py": "raise RuntimeError('first line\\nsecond line')\n"},
    "syntax": {"test_tiny.py": "def test_tiny(:\n"},
    "test": {"test_tiny.py": "def test_tiny(op_benchmark):\n    assert 1 + 1 == 3, 'arithmetic'\n"},
    "workload": {"conftest.py": "def pytest_mnistbench_workloads(config):\n    return []\n"},
    "no case": {
        "test_tiny.py": "def test_plain():\n    raise RuntimeError('nobody asked to run it')\n"
    },
    "no test": {"test_tiny.py": "", "conftest.py": ""},
    "plug-in": {
        "pyproject.toml": "[project.entry-points.pytest11]\nmnistbench = 'own_plugin'\n",
        "own_plugin.py": OWN_PLUGIN,
    },
}

PROGRAM = """
import gc, json, os, sys
from pathlib import Path

home, folder, others = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
sys.path.insert(0, home)

import torch

from mnistbench_of_the_gate.gate.processes.sides.session import run_tests
from mnistbench_of_the_gate.gate.processes.sides.side import Side, SideError
from mnistbench_of_the_gate.gate.processes.sides.turns import PeerError


def in_a_process(name, body):
    child = os.fork()
    if not child:
        gc.freeze()  # pytest collects garbage at its end: not all of torch too
        try:
            (folder / f"{name}.json").write_text(json.dumps(body()))
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def side(tree):
    return Side(tree.partition(" --")[0], folder / tree, folder / tree, home)


def whole(tree):
    one, taken = side(tree), []
    assert "mnistbench" not in sys.modules

    def take(case):
        if "fixture" in case.node_id:
            taken.append([case.node_id, (folder / tree / "open").exists()])
            return
        with one.errors_named():
            made = case.make()
            made.build()
            made()
        taken.append([case.node_id, case.label, case.params.phase, os.getcwd(), sys.path[0]])

    run_tests(one, [], lambda node_ids: sorted(node_ids, reverse=True), take)
    return {
        "taken": taken,
        "ran": (folder / tree / "ran").exists(),
        "seen": sys.modules["model"].SEEN,
        "files": dict(one.imports().files),
        "own": "mnistbench" in sys.modules,
        "statistics": (folder / tree / "statistics").read_text(),
    }


def error(tree, *arguments):
    one = side(tree)
    taken = []
    try:
        failed = run_tests(one, [*arguments], lambda node_ids: node_ids, taken.append)
        if failed:
            return "; ".join(f"{tree}: {test} fails: {why}" for test, why in failed.items())
    except SideError as error:
        return str(error)
    return len(taken)


def ended(tree):
    def take(case):
        raise PeerError("the other one")

    try:
        run_tests(side(tree), [], lambda node_ids: node_ids, take)
    except PeerError as error:
        return str(error)


for tree in ("base", "head"):
    in_a_process(tree, lambda: whole(tree))
for tree in others:
    in_a_process(tree, lambda: error(tree))
in_a_process("arguments", lambda: error("base", "--nonsense"))
in_a_process("path", lambda: error("base", "nowhere.py"))
in_a_process("ended", lambda: ended("base"))
"""


def make_tree(root, version, changes=None):
    """Put a project there whose modules all have this version."""
    files = {
        "pytest.ini": INI,
        "conftest.py": CONFTEST,
        "model.py": MODEL.replace("{version}", version),
        "test_tiny.py": TESTS,
        "src/package/__init__.py": "",
        "src/package/part.py": f"PART = {version!r}\n",
        **dict.fromkeys(
            ("built.py", "called.py", "src/package/late.py"), f"VERSION = {version!r}\n"
        ),
        **(changes or {}),
    }
    eager = files.pop("eager", "")
    if eager:
        files["model.py"] = f"import {eager}\n{files['model.py']}"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Trees, and what forks of one process have found in them: torch's import takes seconds."""
    folder = tmp_path_factory.mktemp("trees")
    make_tree(folder / "base", "old")
    make_tree(folder / "head", "new")
    for name, changes in OTHERS.items():
        make_tree(folder / name, "x", changes)
    home = stage_home(folder)
    inherited = environment_without("PYTEST_", "MNISTBENCH_", "GIT_")
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(home), str(folder), *OTHERS],
        cwd=folder,
        env=environment(inherited, home, 1),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


# ---- The session ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", ["base", "head"])
def test_cases_are_taken_in_the_given_order_and_no_other_test_runs(folder, tree):
    result = read(folder, tree)
    place = [str(folder / tree)] * 2
    assert result["taken"] == [
        # Its fixtures are set up.
        ["test_tiny.py::test_with_a_fixture[tiny-b4-cpu]", True],
        *(
            [
                f"test_tiny.py::test_tiny[{phase}-tiny-b4-cpu]",
                f"{phase} tiny-b4-cpu on synthetic",
                phase,
                *place,
            ]
            for phase in ("step", "forward")
        ),
    ]
    assert not result["ran"]
    assert result["statistics"] == "3"  # a hook at the end finds those of each case


def test_a_side_imports_its_own_modules(folder):
    for tree, version in (("base", "old"), ("head", "new")):
        result = read(folder, tree)
        assert result["seen"] == [version, [version, version, version]] * 2
        assert result["own"]


def test_files_name_where_each_module_came_from(folder):
    assert read(folder, "base")["files"] == {
        "built": "built.py",
        "called": "called.py",
        "conftest": "conftest.py",
        "model": "model.py",
        "package": "src/package/__init__.py",
        "package.late": "src/package/late.py",
        "package.part": "src/package/part.py",
        "test_tiny": "test_tiny.py",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "file",
            (
                "file: test_tiny.py cannot be collected: ModuleNotFoundError: No module named "
                "'nothing_of_that_name' (test_tiny.py:1)"
            ),
        ),
        (
            "conftest",
            "conftest: conftest.py cannot be imported: RuntimeError: first line (conftest.py:1)",
        ),
        (
            "syntax",
            (
                "syntax: test_tiny.py cannot be collected: SyntaxError: invalid syntax "
                f"(test_tiny.py:1, read by Python {platform.python_version()})"
            ),
        ),
        (
            "test",
            (
                "test: test_tiny.py::test_tiny[tiny-b4-cpu] fails: AssertionError: arithmetic "
                "(test_tiny.py:2)"
            ),
        ),
        (
            "workload",
            (
                "workload: --bench-model: 'tiny' is not a workload; choose of convnet, lenet5, "
                "smallnet"
            ),
        ),
        ("arguments", "base: unrecognized arguments: --nonsense"),
        ("path", 0),  # the other side may have it
        ("ended", "the other one"),  # an error of the gate ends the session
        ("no case", 0),
        ("no test", 0),
        ("plug-in", 0),  # the one that the side's own project declares leaves out all tests
    ],
)
def test_a_side_that_cannot_be_loaded_has_one_line_of_reason_and_may_have_no_case(
    folder, name, expected
):
    assert read(folder, name) == expected


# ---- Plug-ins ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "installed", "options"),
    [
        ({}, {}, ["-p", "pytest_benchmark.plugin", "-p", "mnistbench.pytest_plugin.plugin"]),
        ({}, {"benchmark": "pytest_benchmark.plugin"}, ["-p", "mnistbench.pytest_plugin.plugin"]),
        ({}, {"benchmark": "a", "mnistbench": "b"}, []),
        ({"mnistbench": "own"}, {"benchmark": "a"}, ["-p", "own"]),
        (
            {"mnistbench": "own"},
            {"benchmark": "a", "mnistbench": "b"},
            ["-p", "no:mnistbench", "-p", "own"],
        ),
        ({"other": "own"}, {"benchmark": "a", "mnistbench": "b"}, []),
    ],
)
def test_plug_ins_that_pytest_does_not_find_are_named(
    tmp_path, monkeypatch, declared, installed, options
):
    points = [
        importlib.metadata.EntryPoint(name, module, "pytest11")
        for name, module in installed.items()
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    lines = [f"{name} = {module!r}\n" for name, module in declared.items()]
    (tmp_path / "pyproject.toml").write_text(
        f"[project.entry-points.pytest11]\n{''.join(lines)}", encoding="utf-8"
    )
    assert session._plugins(tmp_path) == options


@pytest.mark.parametrize("text", ["", "entry-points = 1", "[project.entry-points]\npytest11 = 'x'"])
def test_a_project_without_plug_ins_adds_no_option(tmp_path, monkeypatch, text):
    points = [
        importlib.metadata.EntryPoint(name, "module", "pytest11")
        for name in ("benchmark", "mnistbench")
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    (tmp_path / "pyproject.toml").write_text(f"[project]\n{text}")
    assert session._plugins(tmp_path) == []
