"""A side alone in a process: which tests are measured, and what its cases take."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import projects
import pytest
from inner_runs import environment_without

from mnistbench import __version__
from mnistbench.core.reading import member
from mnistbench.gate.listing import ListedCase, Listing
from mnistbench.gate.measure.budget import longest_first_call_s
from mnistbench.gate.processes.following.follower import Follower
from mnistbench.gate.processes.sides import survey
from mnistbench.gate.processes.sides.fingerprint import fingerprint
from mnistbench.gate.processes.sides.session import TakenCase
from mnistbench.gate.processes.sides.side import Side
from mnistbench.gate.processes.starting import environment, stage_home
from mnistbench.measuring.provider import Provider

CONFTEST = (
    projects.CONFTEST
    + """

def pytest_addoption(parser):
    parser.addoption("--my-switch", action="store_true")
"""
)

FILES = {
    "pytest.ini": projects.CONFIG,
    "bench/conftest.py": CONFTEST,
    "bench/test_step.py": projects.STEP,
    "bench/test_forward.py": projects.BENCH,
    "bench/test_epoch.py": "def test_epoch(op_benchmark):\n    op_benchmark('eval')\n",
}

#: torch refuses a second one.
OPERATORS = (
    "\n\nfrom torch import library\n\nOPERATORS = library.Library('gate_survey_test', 'DEF')\n"
)

#: Plain tests that oneDNN computes, or whose body sets the number of threads.
PLAIN = """
import torch
from torch.nn.functional import conv2d

torch.set_num_threads(3)


def test_conv(benchmark):
    benchmark(conv2d, torch.ones(2, 8, 16, 16), torch.ones(8, 8, 3, 3))


def test_threads(benchmark):
    torch.set_num_threads(2)
    assert benchmark(torch.get_num_threads) == 2


def test_others(benchmark):
    assert benchmark(torch.get_num_threads) == 1
"""

#: Tree -> what its code does beyond the plain one's.
HEADS = {
    "operators": {"bench/conftest.py": CONFTEST + OPERATORS},
    "a larger layer": {
        "bench/conftest.py": CONFTEST.replace("nn.ReLU()", "nn.Linear(16, 99), nn.Linear(99, 16)")
    },
    "a case that fails": {"bench/conftest.py": CONFTEST.replace("nn.ReLU()", "boom()")},
    "convolutions": {
        "bench/conftest.py": CONFTEST.replace(
            "nn.ReLU()", "nn.Unflatten(1, (4, 2, 2)), nn.Conv2d(4, 16, 2), nn.Flatten()"
        ),
        "bench/test_step.py": projects.STEP + PLAIN,
    },
}

#: pytest's arguments of a user -> those that are used and the phases that are measured, in a
#: project with options of its own.
SELECTIONS = [
    ("", "bench", "step"),
    ("-k bench", "bench -k bench", "step"),
    ("--bench-compile", "bench --bench-compile", "step"),
    ("--ignore bench/test_step.py", "bench --ignore bench/test_step.py", "step"),
    ("--nonsense", "bench --nonsense", "step"),
    ("bench", "bench", ""),
    ("bench/test_step.py::test_step[a/b] -x", "bench/test_step.py::test_step[a/b] -x", ""),
    ("--bench-compile bench/test_forward.py", "--bench-compile bench/test_forward.py", ""),
    ("--my-switch bench/test_forward.py", "--my-switch bench/test_forward.py", ""),
    ("nowhere.py", "nowhere.py", ""),
]

PROGRAM = """
import gc, json, os, sys
from pathlib import Path

home = sys.argv[1]
folder = Path(sys.argv[2])
trees = json.loads(sys.argv[3])
selections = json.loads(sys.argv[4])
sys.path.insert(0, home)

import torch
import torch._dynamo  # as each optimizer does, in seconds: once for all trees
from _pytest.config import get_config

from mnistbench.gate.processes.messages import SurveyJob
from mnistbench.gate.processes.sides.worker import survey
from mnistbench.gate.processes.sides.side import Side, SideError
from mnistbench.gate.processes.sides.survey import selection

get_config()  # imports pytest's own plug-ins, for all forks
gc.freeze()  # pytest collects garbage at its end: not all of torch too


def in_a_process(body, *arguments):
    child = os.fork()
    if not child:
        try:
            body(*arguments)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def surveyed(tree, arguments, default, only=None):
    said = {}
    job = SurveyJob(
        side="head",
        tree=str(folder / tree),
        directory=str(folder / tree),
        home=home,
        repository=str(folder / "nowhere"),
        arguments=arguments,
        phases=["step"],
        threads=0,
        seed=1,
        only=only,
        selects=default is not None,
        paths=[default] if default else [],
    )
    try:
        survey(job, lambda **message: said.update(message), sys.stdin)
    except SideError as error:
        said["error"] = str(error)
    (folder / f"{tree} {' '.join(arguments)}.json".replace("/", "-")).write_text(json.dumps(said))


for tree in ("plain", "the same", *trees):
    in_a_process(surveyed, tree, ["bench"], None)
in_a_process(surveyed, "operators", ["nowhere.py"], "bench")
in_a_process(surveyed, "operators", [], "bench")
only = ["bench/test_step.py::test_step[tiny-b4-cpu]", "t.py::gone"]
in_a_process(surveyed, "plain", ["bench", "-v"], None, only)
in_a_process(surveyed, "plain", ["bench", "-vv"], None, ["t.py::gone"])
in_a_process(surveyed, "operators", ["--my-switch", "bench/test_forward.py"], "bench")
side = Side("head", folder / "plain", folder / "plain", home)
found = {text: selection(side, text.split(), ["bench"]) for text in selections}
broken = Side("head", folder / "broken", folder / "broken", home)
found["broken"] = selection(broken, ["tests/test_own.py"], ["bench"])
found["no folder"] = selection(side, ["-x"], [])
found["named"] = selection(side, ["-x"], ["tests/test_own.py"])
found["modules"] = [name for name in sys.modules if name in ("conftest",)]
Path(folder, "selections").write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, torch):
    """Trees, and what one process and its forks have found in them.

    Torch's import takes seconds.
    """
    folder = tmp_path_factory.mktemp("trees")
    broken = {
        "bench/conftest.py": "raise RuntimeError\n",
        "tests/test_own.py": FILES["bench/test_step.py"],
    }
    trees = {"plain": {}, "the same": {}, "broken": broken, **HEADS}
    for name, changes in trees.items():
        for path, text in {**FILES, **changes}.items():
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_text(text, encoding="utf-8")
    home = stage_home(folder)
    inherited = environment_without("PYTEST_", "MNISTBENCH_", "GIT_")
    selected = [arguments for arguments, _, _ in SELECTIONS]
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            PROGRAM,
            str(home),
            str(folder),
            json.dumps([*HEADS]),
            json.dumps(selected),
        ],
        cwd=folder,
        env=environment(inherited, home, 1),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def read(folder, tree, arguments="bench"):
    return json.loads(
        (folder / f"{tree} {arguments}.json".replace("/", "-")).read_text(encoding="utf-8")
    )


def listing(folder, tree):
    return member(read(folder, tree)["surveyed"], "listing", Listing)


def cases_of(messages):
    return list(messages["surveyed"]["listing"]["cases"])


# ---- Which tests are measured --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments", "phase"),
    SELECTIONS,
    ids=[text or "nothing" for text, _, _ in SELECTIONS],
)
def test_a_path_is_what_pytest_takes_for_one(folder, text, arguments, phase):
    selections = json.loads((folder / "selections").read_text(encoding="utf-8"))
    assert selections[text] == [arguments.split(), [phase] if phase else []]


def test_a_default_folder_that_cannot_be_imported_does_not_hide_a_path(folder):
    selections = json.loads((folder / "selections").read_text(encoding="utf-8"))
    assert selections["broken"] == [["tests/test_own.py"], []]
    assert selections["no folder"] == [["-x"], ["step"]]


def test_of_paths_that_the_project_names_all_phases_are_measured(folder):
    selections = json.loads((folder / "selections").read_text(encoding="utf-8"))
    assert selections["named"] == [["tests/test_own.py", "-x"], []]


def test_selecting_leaves_the_process_as_it_was(folder):
    selections = json.loads((folder / "selections").read_text(encoding="utf-8"))
    assert selections["modules"] == []
    messages = read(folder, "operators", "--my-switch bench/test_forward.py")
    assert messages["selected"] == {
        "arguments": ["--my-switch", "bench/test_forward.py"],
        "phases": [],
    }
    assert list(messages["surveyed"]["listing"]["cases"]) == [
        "bench/test_forward.py::test_forward[tiny-b4-cpu]"
    ]


def test_without_arguments_the_steps_of_the_default_folder_are_measured(folder):
    messages = read(folder, "operators", "")
    assert messages["selected"] == {"arguments": ["bench"], "phases": ["step"]}
    assert list(messages["surveyed"]["listing"]["cases"]) == [
        "bench/test_step.py::test_step[tiny-b4-cpu]"
    ]


def test_single_cases_are_surveyed_if_they_are_named(folder):
    assert cases_of(read(folder, "plain", "bench -v")) == [
        "bench/test_step.py::test_step[tiny-b4-cpu]"
    ]
    assert cases_of(read(folder, "plain", "bench -vv")) == []


def test_a_path_that_does_not_exist_is_named(folder):
    messages = read(folder, "operators", "nowhere.py")
    assert messages["surveyed"]["listing"]["missing"] == ["nowhere.py"]


def test_packages_are_those_that_python_imports_and_the_copy_of_mnistbench(tmp_path, monkeypatch):
    for place, version in (("first", "2"), ("second", "1")):
        folder = tmp_path / place / "a.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: a\nVersion: {version}\n")
    (tmp_path / "first" / "broken.dist-info").mkdir()  # without metadata
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    python = platform.python_version()
    assert survey.packages() == {"Python": python, "mnistbench": __version__, "a": "2"}


# ---- What its cases take -------------------------------------------------------------------------


def test_the_same_code_takes_the_same_memory(folder):
    def memory(tree):
        return {case: listed.memory for case, listed in listing(folder, tree).cases.items()}

    assert memory("plain") == memory("the same")
    assert min(memory("plain").values()) > 0
    assert 0 < listing(folder, "plain").growth_bytes < listing(folder, "plain").resident
    assert memory("a larger layer") != memory("plain")


def test_a_case_has_the_implementations_of_onednn_that_its_iteration_runs(folder):
    convolutions = listing(folder, "convolutions")
    cases = {node_id.partition("::")[2]: case for node_id, case in convolutions.cases.items()}
    for name in ("test_conv", "test_step[tiny-b4-cpu]"):
        assert any(path.startswith("convolution ") for path in cases[name].implementations), cases[
            name
        ]
    assert cases["test_others"].implementations == {}
    assert {"instruction set", "oneDNN"} <= convolutions.cpu.keys()
    assert listing(folder, "plain").cpu == convolutions.cpu


def test_a_plain_test_has_the_threads_that_its_body_sets(folder):
    cases = listing(folder, "convolutions").cases
    threads = {
        node_id.partition("::test_")[2]: case.params["threads"] for node_id, case in cases.items()
    }
    assert threads == {"step[tiny-b4-cpu]": 1, "conv": 1, "threads": 2, "others": 1}


def test_a_case_that_fails_is_none_and_has_a_reason(folder):
    failing = listing(folder, "a case that fails")
    assert failing.cases == {}
    [why] = failing.failed.values()
    assert why.startswith("NameError: name 'boom' is not defined (")


def test_a_plain_test_before_it_leaves_the_first_case_of_a_workload_the_first(monkeypatch):
    rehearsed = []
    side_case = SimpleNamespace(
        peak_memory=lambda: 1_000,
        result=lambda: None,
        device="cuda",
        has_operations=False,
        facts=dict,
    )
    side = Side("head", Path(), Path(), "")
    surveyed = survey._Survey(side, [], Follower(side.tree, side.case_id), lambda **_: None)
    monkeypatch.setattr(Provider, "allocated_bytes", lambda _: 24)
    monkeypatch.setattr(survey, "imported_provider", Provider)
    monkeypatch.setattr(survey, "rehearse", lambda _: rehearsed.append(list(surveyed.cases)))
    monkeypatch.setattr(survey.gc, "freeze", lambda: None)
    monkeypatch.setattr(surveyed, "_call", lambda *_: None)
    for node_id, phase, device in (
        ("plain", "call", "cpu"),
        ("one", "step", "cpu"),
        ("two", "step", "cuda"),
    ):
        surveyed.take(
            TakenCase(
                node_id, node_id, SimpleNamespace(phase=phase, device=device), lambda: side_case
            )
        )
    assert rehearsed == [["plain", "one"]]
    assert [case.memory for case in surveyed.cases.values()] == [None, 1_024, 1_000]


class _Call:
    """A plain test whose call takes two seconds."""

    once = False
    can_loop = True
    outlives = ""
    took_ns = 2_000_000_000

    def __init__(self):
        self.calls = 0

    def build(self):
        pass

    def arguments(self):
        return fingerprint()

    def result(self, _watch=None):
        self.calls += 1
        return 3


@pytest.mark.parametrize(("longest_s", "calls"), [(1.0, 1), (3.0, 2), (math.inf, 2)])
def test_a_call_that_no_trial_can_afford_is_made_once(longest_s, calls):
    side = Side("head", Path(), Path(), "")
    surveyed = survey._Survey(
        side, [], Follower(side.tree, side.case_id), lambda **_: None, longest_s
    )
    case = _Call()
    listed = ListedCase("t", {"device": "cpu"})
    assert surveyed._call(case, listed) == ""
    assert case.calls == calls
    assert listed.seconds == 4.0
    assert bool(listed.look_ns) is (calls == 2)


@pytest.mark.parametrize(("budget_s", "longest_s"), [(None, 0.0), (math.inf, 0.0), (180.0, 22.5)])
def test_the_first_call_of_a_case_fits_into_the_fewest_trials(budget_s, longest_s):
    assert longest_first_call_s(budget_s) == longest_s
