"""A launch of two processes, with PyTorch, as the gate starts it."""

import itertools
import json
import os
import socket
import sys
from contextlib import nullcontext
from dataclasses import replace

import gate_builders
import projects
import pytest
import torch
from bare_environments import installed_environment, linked_environment
from torch.torch_version import TorchVersion

from mnistbench.gate.launcher import LaunchError, launching
from mnistbench.gate.messages import LAUNCH, Job
from mnistbench.gate.sides import worker
from mnistbench.gate.sides.side import SideError
from mnistbench.gate.sides.survey import refuse_old_torch
from mnistbench.gate.surveying import survey_in_processes
from mnistbench.gate.words import BASE, HEAD, OLDEST_TORCH

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


@pytest.fixture
def plan(tmp_path):
    plan = gate_builders.plan(tmp_path, "test_bench.py")
    for tree in plan.trees.values():
        projects.Project(tree.root).append("conftest.py", SPY)
    return plan


@pytest.mark.versions
def test_processes_of_two_sides_take_turns(plan, tmp_path) -> None:
    case = "test_bench.py::test_forward[tiny-b4-cpu]"
    with launching(plan, 1, [case], tmp_path / "log") as launch:
        launch.ready()
        loaded = len((tmp_path / "iterations").read_text().splitlines())
        numbers = []
        result = launch.measure(numbers.append)
    assert numbers == [1]
    iterations = [
        json.loads(line) for line in (tmp_path / "iterations").read_text().splitlines()[loaded:]
    ]
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


def launch_of_base(tmp_path, seed=1, say=None):
    """A launch of the base; its socket is closed."""
    own_socket, peer_socket = socket.socketpair()
    job = Job(
        task=LAUNCH,
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
        launch = worker._Launch(job, say, None)
    launch.turns.close()
    return launch


def test_the_side_that_sends_first_is_drawn_with_the_order(tmp_path) -> None:
    launches = [launch_of_base(tmp_path, seed) for seed in range(20)]
    assert {launch.turns._first for launch in launches} == {BASE, HEAD}
    assert all(launch.turns._first == launch._order[0] for launch in launches)


def test_a_long_case_sends_a_message_every_ten_seconds(monkeypatch, tmp_path) -> None:
    now = [0.0]
    messages = []
    monkeypatch.setattr(worker.Clock, "wall_ns", lambda: now[0] * 1e9)
    launch = launch_of_base(tmp_path, say=lambda **message: messages.append((now[0], message)))
    for now[0] in range(0, 32, 4):
        launch.turns._alive()
    assert messages == [(12, {"alive": ""}), (24, {"alive": ""})]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="a process cannot choose its cores"
)
def test_processes_with_one_core_also_run_at_once(plan, tmp_path) -> None:
    case = "test_bench.py::test_forward[tiny-b4-cpu]"
    with launching(plan, 1, [case], tmp_path / "log", [min(os.sched_getaffinity(0))]) as launch:
        result = gate_builders.run_whole(launch)
    iterations = [json.loads(line) for line in (tmp_path / "iterations").read_text().splitlines()]
    assert any(later[0] < earlier[1] for earlier, later in itertools.pairwise(sorted(iterations)))
    for build in result.cases[case]:
        assert all(len(side["block_ns"]) > 4 < len(side["queued_ns"]) for side in build.values())


#: Writes the number of threads and of cores of each iteration.
COUNTING = """

import os, torch


def counted_forward(self, inputs, forward=nn.Sequential.forward):
    with open("threads", "a") as stream:
        stream.write(f"{torch.get_num_threads()} {len(os.sched_getaffinity(0))}\\n")
    return forward(self, inputs)


nn.Sequential.forward = counted_forward
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_one_side_has_more_threads(plan, tmp_path) -> None:
    for name in (BASE, HEAD):
        with (tmp_path / name / "conftest.py").open("a") as conftest:
            conftest.write(COUNTING)
    plan = replace(plan, variables={BASE: {}, HEAD: {"OMP_NUM_THREADS": "2"}})
    with launching(plan, 1, None, tmp_path / "log", sorted(os.sched_getaffinity(0))) as launch:
        launch.ready()
        for name in (BASE, HEAD):
            (tmp_path / name / "threads").unlink()
        [_] = launch.measure().cases.values()
    for name, threads in {BASE: 1, HEAD: 2}.items():
        assert set((tmp_path / name / "threads").read_text().splitlines()) == {
            f"{threads} {threads}"
        }


#: One body sets the number of threads, and does not restore it. After the measurement, the fixture
#: makes a call on all cores.
PLAIN = """
import os

import torch


def count(calls):
    calls.append((torch.get_num_threads(), len(os.sched_getaffinity(0))))


def test_two(benchmark):
    torch.set_num_threads(2)
    benchmark(count, calls := [])
    assert {*calls[:-1]} == {(2, 2)}


def test_one(benchmark):
    benchmark(count, calls := [])
    assert {*calls[:-1]} == {(1, 1)}
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_plain_test_whose_body_sets_threads_is_measured_with_as_many_cores(
    plan, tmp_path
) -> None:
    for name in (BASE, HEAD):
        (tmp_path / name / "test_bench.py").write_text(PLAIN)
    with launching(plan, 1, None, tmp_path / "log", sorted(os.sched_getaffinity(0))) as launch:
        builds_of_case = gate_builders.run_whole(launch).cases
    for name, has_one_thread in (("one", True), ("two", False)):
        for build in builds_of_case[f"test_bench.py::test_{name}"]:
            assert [bool(side["cpu_ns"]) for side in build.values()] == [has_one_thread] * 2
            assert [bool(side["block_ns"]) for side in build.values()] == [has_one_thread] * 2


def measured_with(python, plan, tmp_path):
    """Survey both sides and measure them once, the base with this interpreter.

    Return the listings and the launch.
    """
    arguments = ("test_bench.py", "--bench-model=tiny,lenet5", "--benchmark-columns=min")
    plan = replace(plan, pythons={BASE: python, HEAD: sys.executable}, arguments=arguments)
    plan, surveys = survey_in_processes(plan, 1, "", tmp_path / "log")
    with launching(plan, 1, None, tmp_path / "log") as launch:
        return surveys.listings, gate_builders.run_whole(launch)


CASES = ["test_bench.py::test_forward[lenet5-b4-cpu]", "test_bench.py::test_forward[tiny-b4-cpu]"]


def test_a_side_may_have_torch_and_pytest_alone(plan, tmp_path) -> None:
    listings, result = measured_with(
        linked_environment(tmp_path / "bare", "torch", "pytest"), plan, tmp_path
    )
    assert not listings[BASE].packages.keys() & {
        "numpy",
        "pytest-benchmark",
        "tabulate",
        "tensorboard",
        "scipy",
        "torchvision",
    }
    assert sorted(result.cases) == sorted(listings[BASE].cases) == CASES
    for builds in result.cases.values():
        for build in builds:
            base = build[BASE]
            head = build[HEAD]
            assert base["outcome"] == head["outcome"]
            assert base["keys"] == head["keys"]
            assert base["memory_bytes"] == head["memory_bytes"]


@pytest.mark.thorough
def test_a_side_may_have_the_oldest_torch(plan, tmp_path) -> None:
    python = installed_environment(tmp_path / "oldest", f"torch=={OLDEST_TORCH}.0", "pytest")
    listings, result = measured_with(python, plan, tmp_path)
    assert listings[BASE].torch.startswith(f"{OLDEST_TORCH}.0")
    assert sorted(result.cases) == CASES
    for builds in result.cases.values():
        for build in builds:
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
        refuse_old_torch(side)
    assert not option or str(refused.value) == (
        f"{side}: torch {version} of {sys.executable} is older than 2.6, the oldest that the gate "
        f"measures; install a newer one there, or name another interpreter with {option}"
    )


def test_a_test_that_fails_on_one_side_is_named(plan, tmp_path) -> None:
    bench = (
        "def test_forward(op_benchmark):\n    op_benchmark('forward')\n\n\n"
        "def test_step(op_benchmark):\n    {}\n    op_benchmark('step')\n"
    )
    for side, line in ((BASE, "pass"), (HEAD, "assert 1 == 2, 'not here'")):
        (tmp_path / side / "test_bench.py").write_text(bench.format(line))
    with launching(plan, 1, None, tmp_path / "log") as launch, pytest.raises(LaunchError) as raised:
        gate_builders.run_whole(launch)
    message = str(raised.value).partition("; ")[0]
    assert message == (
        "head: test_bench.py::test_step[tiny-b4-cpu] fails: AssertionError: not here "
        "(test_bench.py:6)"
    )
