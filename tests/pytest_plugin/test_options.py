"""Every option: what it does, and what a wrong value ends in.

One line, exit code 4, no case run.
"""

import shutil

import pytest
from projects import CONFTEST, only_record, records

from mnistbench.core.compiled.names import COMPILED, FUSED, LOOKUP
from mnistbench.core.options import options_of
from mnistbench.core.record import CaseRecord
from mnistbench.pytest_plugin.options import Options


@pytest.mark.versions
@pytest.mark.parametrize(
    ("argument", "line"),
    [
        (
            "--bench-model=tiny,resnet",
            "--bench-model: 'resnet' is not a workload; choose of convnet, lenet5, smallnet, tiny",
        ),
        ("--bench-device=cpu,cuda:99", "device 'cuda:99' is not available: torch * sees cpu*"),
    ],
)
def test_a_wrong_value_is_one_line_before_any_case_runs(project, argument, line):
    project.assert_refused(line, argument)


def test_a_wrong_value_in_the_configuration_names_the_file(project):
    project.append("pytest.ini", "op_top = many\n")
    project.assert_refused(
        f"op_top in {project.path / 'pytest.ini'}: 'many' cannot be used; give a whole number, at "
        "least 1"
    )


def test_a_tensorboard_directory_that_cannot_be_made_is_one_line(project):
    project.write("file", "")
    line = (
        f"--bench-tensorboard: {project.path / 'file'} is not a directory; name another "
        "directory, or off"
    )
    project.assert_refused(line, "--bench-tensorboard=file/below")


def test_missing_mnist_is_one_line_with_the_three_ways_out(project):
    (project.path / "data" / "MNIST" / "raw").mkdir(parents=True)
    project.write("data/MNIST/raw/train-images-idx3-ubyte", "truncated")
    line = "*train-images-idx3-ubyte*MNISTBENCH_DATA*--bench-data-dir*--bench-dataset*"
    project.assert_refused(
        line, "--bench-dataset=mnist", "--bench-data-dir=data", "--bench-model=convnet"
    )


def test_options_decide_what_is_measured(project):
    _, saved = project.run_saved(
        "--bench-batch-size=2,3",
        "--bench-dtype=bfloat16",
        "--bench-threads=2",
        "--bench-seed=5",
        "--op-iterations=3",
        "--op-shapes",
    )
    first, second = records(saved).values()
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
        "compile_with": "",
    }
    assert second["params"]["batch_size"] == 3
    warm = CaseRecord.from_json(second).table("warm")
    assert len(warm.iteration_ns) == 3
    assert "[[3, 8], " in str([row.shapes for row in warm.rows if row.name == "aten::linear"])


@pytest.mark.versions
def test_one_case_can_be_selected_by_its_id_which_has_what_is_not_the_default(project):
    options = (
        "--bench-batch-size=1,16",
        "--bench-model=tiny,convnet",
        "--bench-dtype=bfloat16",
        "--bench-compile",
    )
    result = project.run(*options, "-k", "tiny-b1-cpu", "--collect-only", "-q")
    assert [line for line in result.stdout.lines if "::" in line] == [
        "test_bench.py::test_forward[tiny-b1-cpu-bfloat16-compiled]"
    ]


@pytest.mark.versions
@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["--bench-compile", "bench"], "cpu-compiled"),
        (["bench", "--bench-compile"], "cpu-compiled"),
        (["--bench-compile=fullgraph,static", "bench"], "cpu-compiled-static-fullgraph"),
        (["--bench-compile=false", "bench"], "cpu"),
    ],
)
def test_a_path_after_the_switch_is_no_settings_of_it(project, arguments, label):
    # Its options are known if pytest has found the path before it reads the options.
    project.write("bench/conftest.py", "def pytest_addoption(parser): parser.addoption('--mine')")
    project.write("bench/test_in.py", "def test_in(op_benchmark): op_benchmark('forward')")
    result = project.run("--bench-batch-size=1", *arguments, "--mine=3", "--collect-only", "-q")
    assert [line for line in result.stdout.lines if "::" in line] == [
        f"bench/test_in.py::test_in[tiny-b1-{label}]"
    ]


def test_settings_of_the_option_replace_those_of_the_workload(project):
    own = "Workload(compile={'backend': 'eager', 'dynamic': True}, "
    project.write("conftest.py", CONFTEST.replace("Workload(", own))
    project.write("test_bench.py", "def test_batch(op_benchmark): op_benchmark('batch')")
    for option, settings in (
        ("--bench-compile", "dynamic,backend=eager"),
        ("--bench-compile=fullgraph", "fullgraph"),
        ("--bench-compile=default", ""),
    ):
        record = only_record(project.run_saved(option)[1])
        assert (record["params"]["compile"], record["params"]["compile_with"]) == (True, settings)


@pytest.mark.versions
def test_what_torch_warns_of_while_it_compiles_is_no_error_where_warnings_are(project):
    """torch 2.11 warns of deprecated code of its own.

    On devices with TF32, of products of float32.
    """
    project.write(
        "test_bench.py",
        """
        import warnings

        def test_compiles():
            advice = (
                "TensorFloat32 tensor cores for float32 matrix multiplication "
                "available but not enabled."
            )
            module = "torch._inductor.compile_fx"
            warnings.warn_explicit(advice, UserWarning, "compile_fx.py", 320, module=module)

        def test_warns():
            warnings.warn("of the project")
        """,
    )
    assert project.run("-k", "test_compiles").ret == pytest.ExitCode.TESTS_FAILED
    project.run("--bench-compile").assert_outcomes(passed=1, failed=1, warnings=1)


@pytest.mark.versions
@pytest.mark.skipif(not shutil.which("c++"), reason="torch compiles with a C++ compiler")
def test_a_model_is_compiled(project):
    record = only_record(project.run_saved("--bench-compile")[1])
    assert record["params"]["compile"] is True
    saved = CaseRecord.from_json(record)
    names = {row.name for row in saved.table("warm").rows}
    assert names >= {COMPILED, LOOKUP}
    assert any(name.startswith(FUSED) for name in names)
    assert saved.compilation.n_graphs == 1
    assert not saved.compilation.notes
    assert saved.compilation.cold.build_ns > 0
    assert saved.compilation.cache_hits > 0


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
    saved_records = records(project.run_saved("--bench-batch-size=1")[1]).values()
    assert {
        (record["params"]["phase"], record["params"]["batch_size"], record["test"])
        for record in saved_records
    } == {
        (phase, size, "test_bench.py::test_mine")
        for phase in ("forward", "batch")
        for size in (5, 6)
    }


def test_without_profiling_and_tensorboard_there_are_timings_alone(project):
    result, saved = project.run_saved("--no-op-profile")
    record = only_record(saved)
    assert (record["tables"], record["first_call_ns"]) == ([], None)
    assert record["scalars"] is None
    assert not (project.path / ".benchmarks" / "tensorboard").exists()
    for absent in ("*mnistbench: operations*", "TensorBoard:*"):
        result.stdout.no_fnmatch_line(absent)


def test_op_top_limits_what_is_shown_and_not_what_is_saved(project):
    result, saved = project.run_saved("--op-top=2")
    table = result.stdout.lines[
        result.stdout.lines.index(
            "forward tiny on synthetic, cpu, float32: self CPU time per iteration"
        ) :
    ]
    shown = table[3 : table.index(table[2], 3)]
    assert len(shown) == 2
    assert len(CaseRecord.from_json(only_record(saved)).table("warm").rows) > 10


@pytest.mark.versions
def test_help_shows_a_group_with_every_option(project):
    text = project.run("--help").stdout.str()
    group = text[text.index("mnistbench: operation tables") :]
    for option in options_of(Options).values():
        assert option.name in group
        assert f"  {option.key} (" in text, "not settable in the configuration file"
