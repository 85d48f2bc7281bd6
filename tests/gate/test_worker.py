"""A launch of two processes, with PyTorch, as the gate starts it."""

import itertools
import json
import os
import sys
from dataclasses import replace

import projects
import pytest

from mnistbench.gate.launcher import LaunchError, Plan, launching, stage_home
from mnistbench.gate.samples import BASE, NEW
from mnistbench.gate.snapshot import Tree

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
    trees = {}
    for name in (BASE, NEW):
        folder = tmp_path / name
        folder.mkdir()
        projects.Project(folder).append("conftest.py", SPY)
        trees[name] = Tree(folder, folder, name)
    return Plan(
        trees=trees,
        pythons=dict.fromkeys(trees, sys.executable),
        variables={BASE: {}, NEW: {}},
        home=stage_home(tmp_path),
        repository=tmp_path / "nowhere",
        arguments=("test_bench.py",),
        phases=(),
    )


def whole(launch):
    launch.ready()
    return launch.measure()


@pytest.mark.versions
def test_processes_of_two_sides_take_turns(plan, tmp_path) -> None:
    case = "test_bench.py::test_forward[tiny-b4-cpu]"
    with launching(plan, 1, [case], tmp_path / "log") as launch:
        launch.ready()
        loaded = len((tmp_path / "iterations").read_text().splitlines())
        found = launch.measure()
    iterations = [json.loads(line) for line in (tmp_path / "iterations").read_text().splitlines()[loaded:]]
    assert len(iterations) > 100
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(iterations))  # one at a time
    assert set(found["order"]) == {BASE, NEW}
    first, second = found["cases"][case]
    assert (first["first"], second["first"]) == (*found["order"],)
    for build in (first, second):
        base, head = build["sides"][BASE], build["sides"][NEW]
        assert base["outcome"] == head["outcome"]  # the same code on the same numbers
        assert base["keys"] == head["keys"]
        for times in ("wall_ns", "cpu_ns", "iteration_ns"):
            assert len(base[times]) == len(head[times]) > 4


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
@pytest.mark.parametrize("side", [BASE, NEW])
def test_one_side_has_more_threads(plan, side, tmp_path) -> None:
    for name in (BASE, NEW):
        with (tmp_path / name / "conftest.py").open("a") as conftest:
            conftest.write(COUNTING)
    plan = replace(plan, variables={**plan.variables, side: {"OMP_NUM_THREADS": "2"}})
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        for name in (BASE, NEW):
            (tmp_path / name / "threads").unlink()
        [builds] = launch.measure()["cases"].values()
    for name, threads in {BASE: 1, NEW: 1, side: 2}.items():
        assert set((tmp_path / name / "threads").read_text().splitlines()) == {f"{threads} {threads}"}
        assert all(bool(build["sides"][name]["cpu_ns"]) == (threads == 1) for build in builds)


def test_a_side_that_fails_in_an_iteration_is_named(plan, tmp_path) -> None:
    raising = "\n\nnn.Sequential.forward = lambda self, inputs: 1 / 0\n"
    with (tmp_path / NEW / "conftest.py").open("a") as conftest:
        conftest.write(raising)
    with launching(plan, 1, None, tmp_path / "log") as launch, pytest.raises(LaunchError) as raised:
        launch.ready()
    assert str(raised.value) == "head: ZeroDivisionError: division by zero"


def test_a_test_that_fails_on_one_side_is_named(plan, tmp_path) -> None:
    bench = (
        "def test_forward(op_benchmark):\n    op_benchmark('forward')\n\n\n"
        "def test_step(op_benchmark):\n    {}\n    op_benchmark('step')\n"
    )
    for side, line in ((BASE, "pass"), (NEW, "assert 1 == 2, 'not here'")):
        (tmp_path / side / "test_bench.py").write_text(bench.format(line))
    with launching(plan, 1, None, tmp_path / "log") as launch, pytest.raises(LaunchError) as raised:
        whole(launch)
    assert str(raised.value) == "head: test_bench.py::test_step[tiny-b4-cpu] fails: AssertionError: not here"
