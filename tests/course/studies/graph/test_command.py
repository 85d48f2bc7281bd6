"""``mnistbench study graph``: one real run and its report."""

import csv
import gzip
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mnistbench import cli
from mnistbench.course.studies.graph import measurement
from mnistbench.course.studies.graph.compiled import missing_compiler
from mnistbench.course.studies.graph.measurement import study
from mnistbench.course.studies.graph.study import (
    BACKWARD_PART,
    COMPILED,
    EAGER,
    FORWARD,
    FORWARD_PART,
    JOINT,
    CalledKernel,
    Dispatched,
    Graph,
    GraphStudy,
    Loading,
    Scheduled,
    Settings,
    StepTimes,
    empty_caches,
    report_of,
)
from mnistbench.showing.output import render

MB = 1_000_000


def expression():
    """x*y + z, eager and compiled."""
    text = (
        'class GraphModule(torch.nn.Module):\n    def forward(self, x: "f32[8, 8]"):\n        '
        "return (x,)\n"
    )
    return GraphStudy(
        settings=Settings(size=8),
        torch="2.15.0",
        source="x*y + z, float32 [8, 8], and the gradients of x, y and z",
        graphs=(
            Graph(FORWARD, 3, ("mul", "add"), 1, None, text),
            Graph(JOINT, 4, ("mul", "add", "mul", "mul"), 4, 7 * MB, text),
            Graph(FORWARD_PART, 3, ("mul", "add"), 3, 4 * MB, text),
            Graph(BACKWARD_PART, 3, ("mul", "mul"), 3, 5 * MB, text),
        ),
        kernels=(
            CalledKernel(
                "forward",
                "cpp_fused_add_mul_0",
                1,
                ("add", "mul"),
                generated=True,
                code="void kernel();\n",
            ),
            CalledKernel(
                "backward", "cpp_fused_mul_0", 1, ("mul",), generated=True, code="void kernel();\n"
            ),
        ),
        code=(("forward", "# module\n"), ("backward", "# module\n")),
        dispatched=Dispatched(("mul", "add"), ("mul", "mul"), 0, 12 * MB),
        start_ns=10_000_000_000,
        first_compiled=StepTimes(1_500_000_000, 500_000_000, 0),
        eager=(
            StepTimes(6_000_000, 6_000_000, 0),
            StepTimes(6_200_000, 6_200_000, 0),
            StepTimes(6_600_000, 6_600_000, 0),
        ),
        compiled=(
            StepTimes(4_000_000, 5_000_000, 0),
            StepTimes(4_000_000, 5_000_000, 0),
            StepTimes(4_400_000, 5_500_000, 0),
        ),
        schedule=(
            Scheduled(EAGER, "mul", 11_000, 3_000_000),
            Scheduled(EAGER, "add", 3_020_000, 3_100_000),
            Scheduled(COMPILED, "cpp_fused_add_mul_0", 300_000, 4_000_000),
        ),
        loading=(),
    )


def training_step():
    """A workload with a graph break, without a compiler, whose batches two workers load."""
    graph = Graph(FORWARD, 4, ("relu",) * 3 + tuple("abcdefg"), 1, None, "")
    return replace(
        expression(),
        settings=Settings(program="convnet"),
        source="training step of convnet, batch 64",
        graphs=(graph, graph),
        kernels=(),
        code=(),
        first_compiled=None,
        start_ns=None,
        eager=(StepTimes(2_000_000, 3_000_000, 400_000),),
        compiled=(),
        schedule=(),
        loading=(
            Loading(None, (100_000,), (5_000_000,)),
            Loading(0, (2_000_000,), (5_100_000,)),
            Loading(2, (500_000,), (5_500_000,)),
        ),
        left_out=("no C++ compiler: 'g++' is not found",),
    )


def shown(result, form="terminal", **settings):
    return render(report_of(replace(result, settings=replace(result.settings, **settings))), form)


def test_the_report(golden):
    golden(shown(expression()), "study_graph.txt")
    golden(shown(training_step()), "study_graph_workload.txt")
    golden(shown(expression(), "json"), "study_graph.json")


def test_texts_are_shown_where_they_are_asked_for():
    assert "Forward graph" in shown(training_step(), show=("forward",))
    assert "Forward graph" not in shown(training_step())
    assert "void kernel" not in shown(expression(), show=("joint",))


def test_compile_time_ratios_and_overlap():
    result = expression()
    assert result.compile_ns == 2_000_000_000 - 9_000_000
    assert result.ratio_quartiles()[1] == pytest.approx(12 / 9)
    assert result.ratio_quartiles("update") is None
    assert result.least_bytes == 9 * MB
    assert training_step().overlap == pytest.approx(0.75)
    assert replace(training_step(), settings=Settings(program="convnet", workers=0)).overlap is None
    slower = Loading(2, (9_000_000,), (5_000_000,))
    assert replace(training_step(), loading=(*training_step().loading[:2], slower)).overlap == 0.0


def test_a_slower_compiled_step_does_not_make_up_for_the_compile_time():
    result = expression()
    text = shown(replace(result, eager=result.compiled, compiled=result.eager))
    assert "A compiled step takes 3.40 ms more than an eager one." in text
    assert "after" not in text.partition("more than an eager one")[2].partition("\n")[0]


def test_the_csv_has_a_row_for_each_part():
    rows = list(csv.DictReader(io.StringIO(shown(training_step(), "csv"))))
    assert [row["part"] for row in rows] == ["forward", "backward", "update", "step"]
    assert [row["eager_operations"] for row in rows] == ["2", "2", "", "4"]
    assert rows[-1]["eager_ns"] == "5400000"


# ---- Real runs: one compiles, one has no compiler ------------------------------------------------


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.thorough  # it compiles for a minute
@pytest.mark.versions
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`")  # of torch 2.11 itself
@pytest.mark.skipif(bool(missing_compiler("cpu")), reason="there is no C++ compiler")
def test_the_expression_is_compiled_and_written(tmp_path, monkeypatch, capsys):
    # Do not test the vector instructions: nine compilations, half the time.
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
    monkeypatch.setattr(
        measurement,
        "study",
        lambda settings, progress: study(replace(settings, seconds=0.2), progress),
    )
    folder = tmp_path / "new" / "files"
    output = tmp_path / "study.json"
    words = [
        "study",
        "graph",
        "--size",
        "64",
        "--write",
        str(folder),
        "--format",
        "json",
        "-o",
        str(output),
    ]
    assert cli.main(words) == 0, capsys.readouterr().err
    report = json.loads(output.read_text(encoding="utf-8"))
    assert report["left_out"] == []
    assert [
        (kernel["part"], kernel["operations"], kernel["launches"]) for kernel in report["kernels"]
    ] == [
        ("forward", ["add", "mul"], 1),
        ("backward", ["mul"], 1),
    ]
    assert "kernel(" in report["kernels"][0]["code"]
    assert report["compile_ns"] > 0
    step = report["parts"][-1]
    assert step["ratio_first_quartile"] <= step["ratio"] <= step["ratio_third_quartile"]
    names_of_way = {
        way: [call["name"] for call in report["schedule"] if call["way"] == way]
        for way in (EAGER, COMPILED)
    }
    assert names_of_way[EAGER] == ["mul", "add", "mul", "mul"]
    assert names_of_way[COMPILED] == ["fused add_mul", "fused mul"]
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.suffix in (".txt", ".py")
    }
    assert set(texts) == {
        "forward.txt",
        "joint.txt",
        "forward_part.txt",
        "backward_part.txt",
        "code_forward.py",
        "code_backward.py",
    }
    assert "aten.mul" in texts["joint.txt"]
    assert "cpp_fused_add_mul_0" in texts["code_forward.py"]
    for name in ("eager", "compiled"):
        assert json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))["traceEvents"]


@pytest.mark.usefixtures("fresh_dynamo", "without_compiler")
@pytest.mark.versions
def test_without_a_compiler_the_graphs_and_the_loading_are_shown(tmp_path):
    steps = []
    result = study(
        Settings(program="lenet5", batch_size=8, workers=1, seconds=0.1, write=tmp_path),
        steps.append,
    )
    [note] = result.left_out
    assert note.startswith("no C++ compiler: 'no-such-compiler' is not found")
    assert result.compiled == result.code == result.kernels == ()
    assert result.ratio_quartiles() is None
    assert {graph.kind for graph in result.graphs} == {FORWARD, JOINT, FORWARD_PART, BACKWARD_PART}
    assert [loading.name for loading in result.loading] == [
        "resident data",
        "0 workers",
        "1 worker",
    ]
    assert all(
        len(loading.wait_ns) == len(loading.compute_ns) > 0 and min(loading.compute_ns) > 0
        for loading in result.loading
    )
    assert {call.name for call in result.schedule} >= {"conv2d", "convolution_backward"}
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".txt"} == {
        "eager.json.gz",
        "workers.json.gz",
    }
    assert "compile" in steps
    assert "no C++ compiler" in shown(result)


def test_the_compiler_has_empty_caches_during_the_study(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with empty_caches():
        folders = [os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
    assert len({"/mine", *folders}) == 3
    assert not any(Path(folder).exists() for folder in folders)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/mine"
    assert "TRITON_CACHE_DIR" not in os.environ
