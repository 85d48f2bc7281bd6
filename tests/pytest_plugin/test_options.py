"""Every option: what it does, and what a wrong value ends in: one line, exit code 4, no case run."""

import json

import pytest

from mnistbench.core.record import CaseRecord

pytestmark = pytest.mark.versions

USAGE_ERROR = 4


def records(saved):
    return [benchmark["extra_info"]["mnistbench"] for benchmark in saved["benchmarks"]]


def assert_one_line(result, line):
    assert result.ret == USAGE_ERROR
    assert [text for text in result.stderr.lines if text.strip()] == [f"ERROR: {line}"]
    assert "passed" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("--bench-threads=0", "--bench-threads: '0' cannot be used; give a whole number, 1 to 1024"),
        ("--bench-step=fast,quick", "--bench-step: 'fast,quick' is not known; choose reference or fast"),
        ("--bench-model=tiny,resnet", "--bench-model: 'resnet' is not a workload; choose of convnet, lenet5, tiny"),
        ("--bench-device=gpu", "device 'gpu' is not known: use auto, cpu, cuda, cuda:1 or mps"),
    ],
)
def test_a_wrong_value_is_one_line_before_any_case_runs(project, argument, line):
    assert_one_line(project.run(argument), line)


def test_a_wrong_value_in_the_configuration_names_the_file(project):
    project.append("pytest.ini", "op_top = many\n")
    line = f"op_top in {project.path / 'pytest.ini'}: 'many' cannot be used; give a whole number, at least 1"
    assert_one_line(project.run(), line)


def test_a_device_that_is_not_here_is_one_line(project):
    result = project.run("--bench-device=cpu,cuda:99")
    assert result.ret == USAGE_ERROR
    [line] = [text for text in result.stderr.lines if text.strip()]
    assert line.startswith("ERROR: device 'cuda:99' is not available: torch ")
    assert "sees cpu" in line


@pytest.mark.parametrize("root", ["file", "file/below"])
def test_a_tensorboard_directory_that_cannot_be_made_is_one_line(project, root):
    project.write("file", "")
    line = f"--bench-tensorboard: {project.path / 'file'} is not a directory; name another directory, or off"
    assert_one_line(project.run(f"--bench-tensorboard={root}"), line)


def test_missing_mnist_is_one_line_with_the_three_ways_out(project):
    (project.path / "data" / "MNIST" / "raw").mkdir(parents=True)
    project.write("data/MNIST/raw/train-images-idx3-ubyte", "truncated")
    result = project.run("--bench-dataset=mnist", "--bench-data-dir=data", "--bench-model=convnet")
    assert result.ret == USAGE_ERROR
    [line] = [text for text in result.stderr.lines if text.strip()]
    assert "train-images-idx3-ubyte" in line
    assert all(way in line for way in ("--bench-data-dir", "MNISTBENCH_DATA", "--bench-dataset"))


def test_options_decide_what_is_measured(project):
    _, saved = project.run_saved(
        "--bench-batch-size=2,3",
        "--bench-dtype=bfloat16",
        "--bench-threads=2",
        "--bench-seed=5",
        "--op-iterations=3",
        "--op-shapes",
    )
    first, second = records(saved)
    assert first["params"] == {
        "workload": "tiny",
        "phase": "forward",
        "batch_size": 2,
        "device": "cpu",
        "dtype": "bfloat16",
        "threads": 2,
        "compile": False,
        "seed": 5,
        "dataset": "synthetic",
        "step": "reference",
    }
    assert second["params"]["batch_size"] == 3
    warm = CaseRecord.from_json(second).table("warm")
    assert len(warm.iteration_ns) == 3
    assert "[[3, 8], " in str([row.shapes for row in warm.rows if row.name == "aten::linear"])


def test_the_command_line_wins_over_the_configuration(project):
    result = project.run("--bench-batch-size=7,8", "--collect-only", "-q")
    assert [line for line in result.stdout.lines if "::" in line] == [
        "test_bench.py::test_forward[tiny-b7-cpu]",
        "test_bench.py::test_forward[tiny-b8-cpu]",
    ]


def test_ids_have_the_options_that_are_not_the_default(project):
    result = project.run("--bench-dtype=bfloat16", "--bench-compile", "--collect-only", "-q")
    assert "test_bench.py::test_forward[tiny-b4-cpu-bfloat16-compiled]" in result.stdout.lines


def test_one_case_can_be_selected_by_its_id(project):
    result = project.run(
        "--bench-batch-size=1,16,64", "--bench-model=tiny,convnet", "-k", "tiny-b1-cpu", "--collect-only", "-q"
    )
    assert [line for line in result.stdout.lines if "::" in line] == ["test_bench.py::test_forward[tiny-b1-cpu]"]


def test_a_parametrize_mark_of_the_users_own_replaces_the_option(project):
    project.write(
        "test_bench.py",
        """
        import pytest

        @pytest.mark.parametrize("bench_batch_size", [5, 6])
        @pytest.mark.parametrize("phase", ["forward", "batch"])
        def test_mine(op_benchmark, phase):
            op_benchmark(phase)
        """,
    )
    _, saved = project.run_saved("--bench-batch-size=1")
    assert {(record["params"]["phase"], record["params"]["batch_size"], record["test"]) for record in records(saved)} == {
        (phase, size, "test_bench.py::test_mine") for phase in ("forward", "batch") for size in (5, 6)
    }


def test_without_profiling_there_are_timings_and_scalars_but_no_tables(project):
    result, saved = project.run_saved("--no-op-profile")
    [record] = records(saved)
    assert record["tables"] == []
    assert record["first_call_ns"] is None
    assert record["scalars"]
    result.stdout.no_fnmatch_line("*mnistbench: operations*")


def test_op_top_limits_what_is_shown_and_not_what_is_saved(project):
    result, saved = project.run_saved("--op-top=2")
    [record] = records(saved)
    table = result.stdout.lines[
        result.stdout.lines.index("forward tiny on synthetic, cpu, float32: self CPU time per iteration") :
    ]
    shown = table[3 : table.index(table[2], 3)]
    assert len(shown) == 2
    assert len(CaseRecord.from_json(record).table("warm").rows) > 10


def test_tensorboard_off_writes_nothing(project):
    result, saved = project.run_saved("--bench-tensorboard=off")
    assert json.loads(records(saved)[0]["scalars"])["directory"] == ""
    assert not (project.path / ".benchmarks" / "tensorboard").exists()
    result.stdout.no_fnmatch_line("TensorBoard:*")


def test_help_shows_a_group_with_every_option(project):
    text = project.run("--help").stdout.str()
    group = text[text.index("mnistbench: operation tables") :]
    for option in (
        "--bench-device", "--bench-batch-size", "--bench-model", "--bench-dtype", "--bench-threads", "--bench-compile",
        "--bench-dataset", "--bench-data-dir", "--bench-seed", "--op-top", "--op-iterations", "--no-op-profile",
        "--op-shapes", "--bench-tensorboard",
    ):  # fmt: skip
        assert option in group
        assert f"  {option.removeprefix('--').replace('-', '_')} (" in text, "not settable in the configuration file"
