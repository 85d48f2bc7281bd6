"""``mnistbench trace``: what it prints, and one line for each mistake."""

import csv
import io
import json
import subprocess
import sys

import pytest
import trace_builders as build

from mnistbench.cli import main

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def training_step(tmp_path, *, name="trace.json", scale=1.0, **top):
    """Two steps with forward, backward, optimizer, a copy, a kernel without a link and one of another time."""
    events = [build.kernel("left_over", -100, 40)]
    for number in range(2):
        start, ids = 1000.0 * number, 10 * number
        at = lambda us, start=start: start + us  # noqa: E731
        forward = build.op("aten::addmm", at(50), 60, external=ids + 1, sequence=ids, shapes=[[4, 8], [8, 2]])
        node = build.op("autograd::engine::evaluate_function: AddmmBackward0", at(200), 90, sequence=ids, forward_thread=1,
                        thread=build.BACKWARD_THREAD)  # fmt: skip
        events += [
            build.step(number, at(0), 990), build.module("Linear_0", at(40), 90), forward, build.launch(at(80), 10, ids + 1),
            build.kernel("gemm", at(100), 100 * scale, external=ids + 1, correlation=ids + 1), node,
            build.op("aten::mm", at(210), 50, external=ids + 2, thread=build.BACKWARD_THREAD),
            build.launch(at(220), 10, ids + 2, thread=build.BACKWARD_THREAD),
            build.kernel("gemm_backward", at(300), 200 * scale, external=ids + 2, correlation=ids + 2),
            build.range_("Optimizer.step#SGD.step", at(600), 50),
            build.op("aten::_foreach_add_", at(610), 30, external=ids + 3),
            build.launch(at(620), 5, ids + 3), build.kernel("multi_tensor", at(640), 30, external=ids + 3, correlation=ids + 3),
            build.kernel("Memcpy HtoD (Pageable -> Device)", at(700), 20, category="gpu_memcpy"),
            build.kernel(NCCL, at(450), 100, stream=20),
            *build.forward_backward(number, forward, node),
        ]  # fmt: skip
    return build.trace_file(tmp_path, events, name=name, **top)


def run(capsys, *arguments):
    code = main(["trace", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize(("form", "ending"), [("terminal", "txt"), ("markdown", "md")])
def test_the_report(tmp_path, capsys, golden, form, ending):
    code, out, _ = run(capsys, training_step(tmp_path, cuda_runtime_version=12040), "--format", form)
    assert code == 0
    golden(out, f"trace.{ending}")


def test_of_many_steps_the_longest_are_shown(tmp_path, capsys):
    events = []
    for number, length in enumerate((10, 40, 20, 50, 30)):
        events += [build.step(number, 100 * number, length), build.op("aten::mm", 100 * number + 1, 5)]
    _, out, _ = run(capsys, build.trace_file(tmp_path, events), "--top", 2)
    assert [line.split()[0] for line in out.splitlines() if line.startswith("ProfilerStep#")] == [
        "ProfilerStep#1",
        "ProfilerStep#3",
    ]
    assert "median of 5" in out
    assert "3 shorter steps" in out


def test_the_report_of_ranks(tmp_path, capsys, golden):
    for rank in range(3):
        training_step(tmp_path, name=f"rank{rank}.json", scale=1 + rank / 10, distributedInfo={"rank": rank, "world_size": 4})
    code, out, _ = run(capsys, tmp_path, "--top", 4)
    assert code == 0
    golden(out.replace(str(tmp_path), "run"), "trace_ranks.txt")


def test_a_trace_of_the_host(tmp_path, capsys, golden):
    path = build.trace_file(tmp_path, [build.op("aten::mm", 10, 50), build.op("aten::add", 80, 20)], devices=[])
    code, out, _ = run(capsys, path)
    assert code == 0
    golden(out, "trace_host.txt")


def test_time_that_the_host_column_has_above_the_steps_is_stated(tmp_path, capsys):
    """A backend for the CPU communicates beside the operations."""
    events = [build.step(1, 0, 100), build.op("aten::mm", 10, 20), build.range_("gloo:all_reduce", 5, 73)]
    _, out, _ = run(capsys, build.trace_file(tmp_path, events, devices=[]))
    assert "73.0 us more than a step" in out
    _, out, _ = run(capsys, build.trace_file(tmp_path, events[:2], devices=[]))
    assert "more than a step" not in out


def test_ranks_with_different_numbers_of_steps_are_pointed_out(tmp_path, capsys):
    for rank, steps in ((0, 2), (1, 3)):
        build.trace_file(
            tmp_path, build.network(steps=steps), name=f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2}
        )
    assert "different numbers of steps" in run(capsys, tmp_path)[1]
    build.trace_file(tmp_path, build.network(steps=3), name="0.json", distributedInfo={"rank": 0, "world_size": 2})
    assert "different numbers of steps" not in run(capsys, tmp_path)[1]


def test_csv_has_sums_over_all_steps(tmp_path, capsys):
    code, out, _ = run(capsys, training_step(tmp_path), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert sum(int(row["self_device_ns"] or 0) for row in rows) == 2 * (100 + 200 + 30 + 20 + 100) * 1000 + 40_000
    assert sum(int(row["self_cpu_ns"] or 0) for row in rows) == 2 * 990_000
    [addmm] = [row for row in rows if row["operation"] == "aten::addmm"]
    assert {key: value for key, value in addmm.items() if key != "trace" and value} == {
        "operation": "aten::addmm", "phase": "forward", "module": "Linear_0", "calls": "2", "self_cpu_ns": "100000",
        "total_cpu_ns": "120000", "self_device_ns": "200000", "kernels": "2", "memory_bytes": "0",
    }  # fmt: skip


def test_csv_of_several_traces_names_them(tmp_path, capsys):
    paths = [training_step(tmp_path, name=f"{name}.json") for name in "ab"]
    _, out, _ = run(capsys, *paths, "--format", "csv")
    assert {row["trace"] for row in csv.DictReader(io.StringIO(out))} == set(map(str, paths))


def test_grouped_by_module(tmp_path, capsys):
    _, out, _ = run(capsys, training_step(tmp_path), "--format", "csv", "--by", "module")
    found = {(row["operation"], row["phase"], row["module"]): row for row in csv.DictReader(io.StringIO(out))}
    backward = found["", "backward", "Linear_0"]
    assert (backward["calls"], backward["self_device_ns"]) == ("4", "400000")
    assert found["(unattributed kernels)", "", ""]["kernels"] == "5"


def test_json_has_the_samples_of_each_step(tmp_path, capsys):
    _, out, _ = run(capsys, training_step(tmp_path), "--format", "json")
    [trace] = json.loads(out)["traces"]
    [mm] = [row for row in trace["device"]["rows"] if row["name"] == "aten::mm"]
    assert (trace["steps"], mm["self_device_ns"], mm["phase"]) == (
        ["ProfilerStep#0", "ProfilerStep#1"],
        [200_000] * 2,
        "backward",
    )
    assert trace["timelines"][0]["idle_ns"] > 0


def test_json_of_ranks_names_the_slowest(tmp_path, capsys):
    for rank in range(2):
        training_step(tmp_path, name=f"{rank}.json", scale=2 - rank, distributedInfo={"rank": rank, "world_size": 2})
    _, out, _ = run(capsys, tmp_path, "--format", "json")
    found = json.loads(out)
    assert (found["slowest_rank"], len(found["traces"]), found["missing_ranks"]) == (0, 2, [])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.json"], "missing.json: cannot be read (No such file or directory)"),
        (["empty.json"], "empty.json: is empty"),
        (["trace.json", "--peak-gbs", "fast"], "--peak-gbs: 'fast' cannot be used; give a number from 1e-06 to 1e+15"),
        (["trace.json", "--output", "no/such/folder/x"], "--output: no/such/folder/x cannot be written"),
        (["trace.json", "folder"], "folder: is a folder of ranks, which is one run; name it alone"),
        (["folder"], "folder: has no file that ends in .json or .json.gz"),
    ],
)
def test_mistakes_have_one_line(tmp_path, capsys, monkeypatch, arguments, complaint):
    training_step(tmp_path)
    (tmp_path / "empty.json").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


def test_torch_is_not_imported(tmp_path):
    code = (
        "import sys; from mnistbench.cli import main; main(['trace', sys.argv[1]]); "
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(training_step(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
