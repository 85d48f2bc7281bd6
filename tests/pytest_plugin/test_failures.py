"""After a failure the other cases and the timing are kept."""

import json
import os
import signal
import time

import pytest
from forks import Fork
from projects import only_record, records


@pytest.mark.versions
def test_a_case_that_runs_out_of_memory_fails_alone_and_frees_its_memory(
    project,
):
    project.append(
        "conftest.py",
        """

        import weakref

        class Greedy(nn.Linear):
            held = None

            def forward(self, inputs):
                if len(inputs) == 8:
                    activations = torch.zeros(1000)
                    Greedy.held = weakref.ref(activations)
                    raise torch.OutOfMemoryError("CUDA out of memory")
                assert Greedy.held() is None
                return super().forward(inputs)


        nn.Linear = Greedy
        """,
    )
    result, saved = project.run_saved("--bench-batch-size=8,4")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*CUDA out of memory*"])
    assert list(records(saved)) == ["test_forward[tiny-b4-cpu]"]


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("raise KeyError('my\\nkey')", "not attached: KeyError: 'my\\nkey'"),
        ("return {'model': case.model}", "not attached: RecordError: model: not JSON"),
    ],
)
def test_a_record_is_kept_with_a_note_if_the_attach_hook_fails(project, body, note):
    project.append(
        "conftest.py", f"\n\ndef pytest_mnistbench_attach(config, case, record):\n    {body}\n"
    )
    result, saved = project.run_saved()
    assert result.ret == 0
    assert only_record(saved)["notes"][0].startswith(note)
    assert saved["benchmarks"][0]["stats"]["rounds"] >= 3
    printed = note.replace("\\", "?")
    result.stdout.fnmatch_lines(
        ["*mnistbench: not recorded*", f"test_bench.py::test_forward?tiny-b4-cpu?: {printed}*"]
    )


def test_the_text_of_an_exception_does_not_reach_the_terminal_as_it_is(project):
    project.append(
        "conftest.py",
        "\n\ndef pytest_mnistbench_attach(config, case, record):\n"
        "    raise ValueError('\\x1b[31m red \\u202e')\n",
    )
    result = project.run()
    assert not {"\x1b", "\u202e"}.intersection(result.stdout.str())
    result.stdout.fnmatch_lines(["*: not attached: ValueError: ?x1b?31m red ?u202e"])


def test_a_graph_that_cannot_be_traced_costs_a_line_and_not_the_curve(project):
    project.measure_a_step()
    project.append(
        "conftest.py",
        """

        class Untraceable(nn.Linear):
            def forward(self, inputs):
                if torch.jit.is_tracing():
                    raise ValueError("not while tracing")
                return super().forward(inputs)


        nn.Linear = Untraceable
        """,
    )
    result, saved = project.run_saved("--bench-tensorboard=runs")
    assert result.ret == 0  # although every warning is an error here
    record = only_record(saved)
    assert record["notes"] == ["no model graph: ValueError: not while tracing"]
    assert json.loads(record["scalars"])["final"]
    assert len(record["tables"]) == 2
    result.stdout.fnmatch_lines(
        ["*not recorded*", "*no model graph: ValueError: not while tracing"]
    )


def test_a_disk_that_fills_up_costs_the_scalars_and_not_the_tables(project):
    project.append(
        "conftest.py",
        """

        import torch.utils.tensorboard

        class Full(torch.utils.tensorboard.SummaryWriter):
            def add_scalar(self, *arguments):
                raise OSError(28, "No space left on device")

        torch.utils.tensorboard.SummaryWriter = Full
        """,
    )
    result, saved = project.run_saved("--bench-tensorboard=runs")
    assert result.ret == 0
    record = only_record(saved)
    assert record["scalars"] is None
    assert len(record["tables"]) == 2
    result.stdout.fnmatch_lines(["*not attached: OSError: *No space left on device*"])


def test_a_phase_that_cannot_be_measured_fails_with_the_reason(project):
    project.write("test_bench.py", "def test_x(op_benchmark):\n    op_benchmark('eval')\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*workload 'tiny' has no whole set, which the phase 'eval' needs*"]
    )


@pytest.mark.versions
def test_interrupted_the_finished_cases_are_saved_and_the_interrupted_one_is_not(project):
    project.write(
        "test_bench.py",
        """
        from pathlib import Path

        def test_forward(op_benchmark):
            op_benchmark("forward")

        def test_endless(op_benchmark, benchmark):
            benchmark._max_time = 1e9
            Path("reached").touch()
            op_benchmark("forward")
        """,
    )
    arguments = (
        "--benchmark-save=run",
        "--bench-tensorboard=runs",
        "--benchmark-max-time=0.01",
        "-p",
        "no:cacheprovider",
    )
    process = Fork("pytest", *arguments, cwd=project.path)
    try:
        deadline = time.monotonic() + 120
        while (
            not (project.path / "reached").exists()
            and process.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.1)
        time.sleep(1)  # into the rounds
        process.send_signal(signal.SIGINT)
        done = process.wait(timeout=60)
    finally:
        process.kill()
    assert done.returncode == 2, done.stdout
    [saved] = project.path.glob(".benchmarks/*/*.json")
    assert list(records(json.loads(saved.read_text(encoding="utf-8")))) == [
        "test_forward[tiny-b4-cpu]"
    ]
    assert "TensorBoard:" in done.stdout
    assert [
        name
        for _, _, names in os.walk(project.path)
        for name in names
        if name.endswith((".tmp", ".part"))
    ] == []
