"""What a saved file carries, and that other tools still read it."""

import json

import forks
import pytest
from projects import only_record, records

from mnistbench.core.record import MAX_POINTS, CaseRecord

MIXED = """
import time

def test_step(op_benchmark):
    op_benchmark("step")

def test_forward(op_benchmark):
    op_benchmark("forward")

def test_plain(benchmark):
    benchmark.extra_info["mine"] = 1
    benchmark(time.perf_counter)
"""


@pytest.mark.versions
def test_a_record_carries_tables_scalars_and_identity(project):
    project.write("test_bench.py", MIXED)
    result, saved = project.run_saved("--bench-tensorboard=.benchmarks/tensorboard")
    result.assert_outcomes(passed=3)
    step = records(saved)["test_step[tiny-b4-cpu]"]

    assert step["schema"] == 1
    assert step["test"] == "test_bench.py::test_step"
    assert step["params"]["dataset"] == "synthetic"
    assert (step["samples"], step["parameter_count"]) == (4, 8 * 16 + 16 + 16 * 2 + 2)

    cold, warm = CaseRecord.from_json(step).tables
    assert (cold.temperature, cold.view, cold.first_of_process, cold.profiler_ns) == (
        "cold",
        "host",
        True,
        0,
    )
    assert (warm.temperature, warm.view, len(warm.iteration_ns)) == ("warm", "host", 2)
    assert 0 <= warm.profiler_ns < 1_000_000
    assert {(row.name, row.phase, row.module, row.calls) for row in warm.rows} >= {
        ("aten::addmm", "forward", "0", 1.0),
        ("aten::addmm", "forward", "2", 1.0),
        ("aten::mm", "backward", "2", 2.0),
        ("aten::mm", "backward", "0", 1.0),
    }
    assert any(row.phase == "optimizer" for row in warm.rows)
    assert step["first_call_ns"] == cold.iteration_ns[0]

    rounds = json.loads(step["rounds_ns"])
    stats = saved["benchmarks"][0]["stats"]
    assert len(rounds) == min(stats["rounds"], MAX_POINTS)
    assert stats["min"] <= (min(rounds) + 1) / 1e9
    assert (max(rounds) - 1) / 1e9 <= stats["max"]

    scalars = json.loads(step["scalars"])
    assert scalars["dataset"] == "synthetic"
    assert set(scalars["final"]) == {"train/loss", "train/accuracy"}
    assert 0 < len(json.loads(step["curves"])["train/loss"]) <= 100
    assert (project.path / scalars["directory"]).is_dir()
    result.stdout.fnmatch_lines(["TensorBoard: tensorboard --logdir .benchmarks/tensorboard/*"])

    forward = records(saved)["test_forward[tiny-b4-cpu]"]
    assert CaseRecord.from_json(forward).tables[0].first_of_process is False
    assert set(json.loads(forward["scalars"])["final"]) == {
        "timing/ms_per_iteration",
        "timing/samples_per_second",
    }
    assert json.loads(forward["scalars"])["directory"] != scalars["directory"]


def test_a_benchmark_that_is_not_ours_is_left_as_it_was_and_so_is_machine_info(project):
    project.write("test_bench.py", MIXED)
    _, saved = project.run_saved()
    assert "mnistbench" not in project.run_saved("-k", "plain")[1]
    project.write("conftest.py", "")  # its hook and its options are unknown without the plug-in
    project.write("pytest.ini", "[pytest]\n")
    _, without = project.run_saved("-p", "no:mnistbench", "-k", "plain")
    [step, _, plain] = saved["benchmarks"]
    [plain_without] = without["benchmarks"]
    assert plain["extra_info"] == {"mine": 1}
    assert {**plain, "stats": None} == {**plain_without, "stats": None}
    assert saved["machine_info"].keys() == without["machine_info"].keys()
    assert step["group"] == "step tiny on synthetic"
    assert saved["mnistbench"]["schema"] == 1
    assert saved["mnistbench"]["environment"].keys() == {
        "mnistbench",
        "python",
        "torch",
        "torchvision",
        "platform",
        "cpu_model",
        "cpu_count",
        "threads",
        "blas",
        "allocator",
        "devices",
    }
    assert "environment" not in step["extra_info"]["mnistbench"]


@pytest.mark.versions
def test_pytest_benchmarks_own_commands_read_our_files(project):
    assert (
        project.run("--benchmark-save=one", "--bench-tensorboard=.benchmarks/tensorboard").ret == 0
    )
    assert project.run("--benchmark-save=two").ret == 0

    def command(*arguments):
        return forks.run("pytest_benchmark", *arguments, cwd=project.path)

    listed = command("list").stdout
    # And nothing of TensorBoard's.
    assert [line.split("_")[-1] for line in listed.splitlines()] == ["one.json", "two.json"]
    compared = command("compare", "--histogram=plot")
    assert compared.returncode == 0, compared.stderr
    assert "test_forward[tiny-b4-cpu] (0001_one)" in compared.stdout
    assert list(project.path.glob("plot*.svg"))


@pytest.mark.versions
def test_pytest_benchmarks_options_work_on_our_cases(project):
    result = project.run(
        "--benchmark-histogram=plot", "--benchmark-cprofile=tottime", "--benchmark-cprofile-top=3"
    )
    result.assert_outcomes(passed=1)
    assert list(project.path.glob("plot*.svg"))
    result.stdout.fnmatch_lines(["*cProfile*"])


def test_the_same_seed_gives_the_same_losses_to_the_bit_in_another_process(project):
    project.measure_a_step()
    options = ("--bench-model=lenet5", "--no-op-profile", "--bench-tensorboard=runs")
    first, second = (
        json.loads(only_record(project.run_saved(*options)[1])["curves"]) for _ in range(2)
    )
    assert first == second
    assert len(first["train/loss"]) > 10
