"""A trial of two processes, with PyTorch, as the gate starts it."""

import itertools
import json
import os
import socket
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import gate_builders
import projects
import pytest
import torch
from bare_environments import installed_environment, linked_environment
from torch.torch_version import TorchVersion

from mnistbench.gate.listing import Listings
from mnistbench.gate.processes.messages import Efforts, TrialJob
from mnistbench.gate.processes.sides import worker
from mnistbench.gate.processes.sides.session import TakenCase
from mnistbench.gate.processes.sides.side import SideError
from mnistbench.gate.processes.sides.steps import Measured as MeasuredBuild
from mnistbench.gate.processes.sides.survey import refuse_old_framework
from mnistbench.gate.processes.starting import TrialPlan, TrialResult, running_trial
from mnistbench.gate.words import BASE, HEAD, MIN_PAIRS
from mnistbench.measuring.calls import params_of_test
from mnistbench.measuring.provider import PROVIDERS

#: Writes when each iteration begins and ends.
SPY = """

import json, time


def spied_forward(self, inputs, forward=nn.Sequential.forward):
    began = time.perf_counter_ns()
    time.sleep(0.002)  # the other side would run now if it did not wait
    output = forward(self, inputs)
    with open("../iterations", "a") as stream:
        stream.write(json.dumps([began, time.perf_counter_ns()]) + "\\n")
    return output


nn.Sequential.forward = spied_forward
"""


#: Iterations of a trial: with two builds of each case, and with one.
TWO_BUILDS = Efforts(timed=0.6, profiled=0.1)
ONE_BUILD = Efforts(timed=0.1, profiled=0.1)


def planned(folder, *arguments):
    """The plan of a gate of a small model whose iterations are noted."""
    plan = gate_builders.plan(folder, *arguments)
    for tree in plan.setup.trees.values():
        projects.Project(tree.root).append("conftest.py", SPY)
    return plan


@pytest.fixture
def plan(tmp_path):
    return planned(tmp_path, "test_bench.py")


def noted_iterations(folder):
    """Return when each iteration began and ended."""
    return [json.loads(line) for line in (folder / "iterations").read_text().splitlines()]


@pytest.mark.versions
def test_processes_of_two_sides_take_turns(plan, tmp_path) -> None:
    case = "test_bench.py::test_forward[tiny-b4-cpu]"
    with running_trial(plan, 1, [case], tmp_path / "log", efforts=TWO_BUILDS) as trial:
        trial.ready()
        (tmp_path / "iterations").unlink()
        numbers = []
        result = trial.measure(lambda *case_numbers: numbers.append(case_numbers))
    assert numbers == [(1, 1)]
    iterations = noted_iterations(tmp_path)
    assert len(iterations) > 100
    # One at a time.
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(iterations))
    first, second = result.cases[case]
    for build in (first, second):
        base = build[BASE]
        head = build[HEAD]
        assert base["outcome"] == head["outcome"]  # the same code on the same numbers
        assert base["keys"] == head["keys"]
        for times in ("wall_ns", "cpu_ns"):
            assert len(base[times]) == len(head[times]) > 4


def trial_of_base(tmp_path, seed=1, say=None):
    """A trial of the base; its socket is closed."""
    own_socket, peer_socket = socket.socketpair()
    job = TrialJob(
        side=BASE,
        tree=str(tmp_path),
        directory=str(tmp_path),
        home="",
        repository="nowhere",
        arguments=(),
        phases=(),
        threads=0,
        seed=seed,
        peer=own_socket.detach(),
        patience_s=1.0,
    )
    with peer_socket:
        trial = worker._Trial(job, say, None)
    trial.turns.close()
    return trial


def test_the_side_that_sends_first_is_drawn_with_the_order(tmp_path) -> None:
    trials = [trial_of_base(tmp_path, seed) for seed in range(20)]
    assert {trial.turns._first for trial in trials} == {BASE, HEAD}
    assert all(trial.turns._first == trial._order[0] for trial in trials)


def test_a_long_case_sends_a_message_every_ten_seconds(monkeypatch, tmp_path) -> None:
    now = [0.0]
    messages = []
    monkeypatch.setattr(worker.Clock, "wall_ns", lambda: now[0] * 1e9)
    trial = trial_of_base(tmp_path, say=lambda **message: messages.append((now[0], message)))
    for now[0] in range(0, 32, 4):
        trial.turns._alive()
    assert messages == [(12, {"alive": ""}), (24, {"alive": ""})]


def test_a_case_counts_with_the_fixtures_before_it(monkeypatch, tmp_path) -> None:
    now_s = 0.0
    builds = [MeasuredBuild({}, Efforts(1, 1), 2.0, 0.0)]
    trial = trial_of_base(tmp_path, say=lambda **_: None)

    def measured(case, *, parallel):
        nonlocal now_s
        now_s += 3.0
        return builds

    monkeypatch.setattr(worker, "_now_s", lambda: now_s)
    monkeypatch.setattr(trial, "_measure_builds", measured)
    monkeypatch.setattr(trial, "_begin", lambda case, cores: now_s)
    monkeypatch.setattr(trial.turns, "agree", lambda node_id: None)
    for node_id in ("a", "b", "c"):
        now_s += 10.0  # those of the first case are a part of the trial's start
        trial._take(TakenCase(node_id, node_id, params_of_test(node_id, "cpu", 1), None))
    assert {case: spent.seconds for case, spent in trial._spent.items()} == {
        "a": 3.0,
        "b": 13.0,
        "c": 13.0,
    }


#: Writes the number of threads and of cores of each iteration.
COUNTING = """

import os, torch


def counted_forward(self, inputs, forward=nn.Sequential.forward):
    with open("threads", "a") as stream:
        stream.write(f"{torch.get_num_threads()} {len(os.sched_getaffinity(0))}\\n")
    return forward(self, inputs)


nn.Sequential.forward = counted_forward
"""


#: Calls of a plain test with this plug-in's mark and of one without it.
MARKED = """
import pytest
import torch


def test_unmarked(benchmark):
    benchmark(torch.mm, torch.rand(8, 8), torch.ones(8, 8))


@pytest.mark.op_benchmark
def test_marked(benchmark):
    benchmark(torch.mm, torch.rand(8, 8), torch.ones(8, 8))
"""


@pytest.fixture(scope="module")
def trial_with_threads(tmp_path_factory):
    """The folder and the result of a trial whose head has two threads."""
    folder = tmp_path_factory.mktemp("threads")
    plan = planned(folder, "test_bench.py", "test_marked.py")
    for tree in plan.setup.trees.values():
        (tree.root / "test_marked.py").write_text(MARKED)
        with (tree.root / "conftest.py").open("a") as conftest:
            conftest.write(COUNTING)
    plan = gate_builders.with_setup(plan, variables={BASE: {}, HEAD: {"OMP_NUM_THREADS": "2"}})
    cores = sorted(os.sched_getaffinity(0))
    with running_trial(plan, 1, None, folder / "log", cores, efforts=ONE_BUILD) as trial:
        trial.ready()
        for name in (BASE, HEAD):
            (folder / name / "threads").unlink(missing_ok=True)
        return folder, trial.measure()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_one_side_has_more_threads(trial_with_threads) -> None:
    folder, _ = trial_with_threads
    for name, threads in {BASE: 1, HEAD: 2}.items():
        counted = (folder / name / "threads").read_text().splitlines()
        assert set(counted) == {f"{threads} {threads}"}


def test_a_mark_of_this_plug_in_changes_no_operation(trial_with_threads) -> None:
    _, trial = trial_with_threads
    keys = {
        case.partition("::")[2]: [build[side]["keys"] for side in (BASE, HEAD)]
        for case, [build] in trial.cases.items()
    }
    assert ["aten::mm", "forward", ""] in keys["test_marked"][0]
    assert keys["test_marked"] == keys["test_unmarked"]


#: Writes the number of threads and of cores of each call. One body sets the number of threads, and
#: does not restore it. After the measurement, the fixture makes a call on all cores.
THREADS = """
import os

import torch


def count(name):
    with open(name, "a") as stream:
        stream.write(f"{torch.get_num_threads()} {len(os.sched_getaffinity(0))}\\n")


def test_two(benchmark):
    torch.set_num_threads(2)
    benchmark(count, "threads_of_two")


def test_one(benchmark):
    benchmark(count, "threads_of_one")
"""

TORCH = """
import torch


def test_model(benchmark):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    inputs = torch.ones(4, 16)
    benchmark(lambda: model(inputs).sum().backward())


def test_function(benchmark):
    benchmark(torch.mm, torch.rand(8, 8), torch.ones(8, 8))


def test_without_torch(benchmark):
    benchmark(sum, [1, 2])
"""

#: Files with plain tests.
PLAIN = {"test_threads.py": THREADS, "test_torch.py": TORCH}

#: Cases of workloads.
FORWARD = tuple(f"test_bench.py::test_forward[{model}-b4-cpu]" for model in ("lenet5", "tiny"))


@dataclass(frozen=True)
class Measured:
    """A project on both sides, its survey and a trial of it."""

    folder: Path
    plan: TrialPlan
    listings: Listings
    trial: TrialResult


def measured_with(python, folder):
    """Survey and measure workloads and plain tests, the base with this interpreter.

    A case with one thread has one core, the same on both sides.
    """
    options = ("--bench-model=tiny,lenet5", "--benchmark-columns=min")
    plan = planned(folder, "test_bench.py", *PLAIN, *options)
    for tree, (name, text) in itertools.product(plan.setup.trees.values(), PLAIN.items()):
        (tree.root / name).write_text(text)
    for tree in plan.setup.trees.values():  # torch warns where numpy is not installed
        with (tree.root / "pytest.ini").open("a") as stream:
            stream.write("    ignore:Failed to initialize NumPy\n")
    plan = gate_builders.with_setup(plan, pythons={BASE: python, HEAD: sys.executable})
    result = gate_builders.surveyed(plan, folder)
    plan, surveys = result.trial_plan(), result.surveys
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else ()
    with running_trial(plan, 1, None, folder / "log", cores, efforts=ONE_BUILD) as trial:
        trial.ready()
        for written in (folder / "iterations", *folder.glob("*/threads_of_*")):
            written.unlink()
        return Measured(folder, plan, surveys.listings, trial.measure())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What is measured if the base has an environment of torch and pytest alone."""
    folder = tmp_path_factory.mktemp("measured")
    return measured_with(linked_environment(folder / "bare", "torch", "pytest"), folder)


def test_a_side_may_have_torch_and_pytest_alone(measured) -> None:
    assert not measured.listings[BASE].packages.keys() & {
        "numpy",
        "pytest-benchmark",
        "tabulate",
        "tensorboard",
        "scipy",
        "torchvision",
    }
    assert sorted(measured.trial.cases) == sorted(measured.listings[BASE].cases)
    assert measured.trial.cases.keys() > {*FORWARD}
    for case, [build] in measured.trial.cases.items():
        assert build[BASE]["outcome"] == build[HEAD]["outcome"], case
    for case in FORWARD:
        [build] = measured.trial.cases[case]
        for column in ("keys", "memory_bytes"):
            assert build[BASE][column] == build[HEAD][column]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="a process cannot choose its cores"
)
def test_processes_with_one_core_also_run_at_once(measured) -> None:
    iterations = sorted(noted_iterations(measured.folder))
    assert any(later[0] < earlier[1] for earlier, later in itertools.pairwise(iterations))
    for case in FORWARD:
        [build] = measured.trial.cases[case]
        for columns in build.values():
            assert len(columns["block_ns"]) >= MIN_PAIRS <= len(columns["queued_ns"])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_plain_test_whose_body_sets_threads_is_measured_with_as_many_cores(measured) -> None:
    for name, threads in (("one", 1), ("two", 2)):
        [build] = measured.trial.cases[f"test_threads.py::test_{name}"]
        for side, columns in build.items():
            counted = (measured.folder / side / f"threads_of_{name}").read_text().splitlines()
            assert {*counted[:-1]} == {f"{threads} {threads}"}
            assert bool(columns["cpu_ns"]) == bool(columns["block_ns"]) == (threads == 1)


def test_a_call_of_torch_has_operations_by_phase_and_module(measured) -> None:
    assert measured.plan.frameworks == ("torch",)
    builds = {
        case.removeprefix("test_torch.py::test_"): build
        for case, [build] in measured.trial.cases.items()
        if case.startswith("test_torch.py")
    }
    for name in builds:
        listed = measured.listings[HEAD].cases[f"test_torch.py::test_{name}"]
        assert listed.uncompared == ""
    keys = {name: build[HEAD].get("keys", []) for name, build in builds.items()}
    assert ["aten::addmm", "forward", "Sequential.0"] in keys["model"]
    assert ["aten::clamp_min", "forward", "Sequential.1"] in keys["model"]
    assert ["aten::sum", "forward", ""] in keys["model"]
    assert ["aten::mm", "backward", "Sequential.0"] in keys["model"]
    assert ["aten::mm", "forward", ""] in keys["function"]
    assert keys["without_torch"] == []
    for name in ("model", "function"):
        base = builds[name][BASE]
        head = builds[name][HEAD]
        assert base["keys"] == head["keys"]
        assert json.dumps(base["calls"]) == json.dumps(head["calls"])
        assert all(calls == round(calls) for calls in base["calls"])


@pytest.mark.thorough
def test_a_side_may_have_the_oldest_torch(tmp_path) -> None:
    python = installed_environment(
        tmp_path / "oldest", f"torch=={PROVIDERS['torch'].oldest}.0", "pytest"
    )
    measured = measured_with(python, tmp_path)
    assert measured.listings[BASE].frameworks["torch"].startswith(f"{PROVIDERS['torch'].oldest}.0")
    for case in FORWARD:
        [build] = measured.trial.cases[case]
        base = build[BASE]
        head = build[HEAD]
        assert base["outcome"][1] == pytest.approx(head["outcome"][1], rel=1e-4)
        assert base["parameters"] == head["parameters"]
        assert {"aten::addmm"} <= {key[0] for key in base["keys"]} & {
            key[0] for key in head["keys"]
        }
        assert len({len(times) for times in base["self_ns"]}) == 1


@pytest.mark.parametrize(
    ("side", "version", "option"),
    [
        (BASE, "2.5.1+cu124", "--base-python"),
        (HEAD, "1.13.1", "--head-python"),
        (BASE, "2.6.0", None),
        (BASE, "2.10.0+cpu", None),
    ],
)
def test_a_torch_that_is_too_old_is_refused(monkeypatch, side, version, option) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    with pytest.raises(SideError) if option else nullcontext() as refused:
        refuse_old_framework(side)
    assert not option or str(refused.value) == (
        f"{side}: torch {version} of {sys.executable} is older than 2.6, the oldest that the gate "
        f"measures; install a newer one there, or name another interpreter with {option}"
    )
