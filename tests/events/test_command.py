"""``mnistbench trace``.

What it prints, FLOPs, bytes and the roofline with it, and one line for each mistake.
"""

import csv
import io
import json

import pytest
import real_traces
import trace_builders as build
from real_traces import needs_traces
from trace_builders import Of, op

from mnistbench.cli import main
from mnistbench.events import command


def training_step(tmp_path, *, name="trace.json", scale=1.0, **top):
    """Two steps with forward, backward, optimizer, and a copy.

    With a kernel without a link and one of another time.
    """
    events = [build.kernel("left_over", -100, 40)]
    for number in range(2):
        start = 1000.0 * number
        ids = 10 * number
        at = lambda us, start=start: start + us  # noqa: E731
        forward = build.op(
            "aten::addmm", at(50), 60, external=ids + 1, sequence=ids, shapes=[[4, 8], [8, 2]]
        )
        node = build.op(
            "autograd::engine::evaluate_function: AddmmBackward0",
            at(200),
            90,
            sequence=ids,
            forward_thread=1,
            thread=build.BACKWARD_THREAD,
        )
        events += [
            build.step(number, at(0), 990),
            build.module("Linear_0", at(40), 90),
            forward,
            build.launch(at(80), 10, ids + 1),
            build.kernel("gemm", at(100), 100 * scale, external=ids + 1, correlation=ids + 1),
            node,
            build.op("aten::mm", at(210), 50, external=ids + 2, thread=build.BACKWARD_THREAD),
            build.launch(at(220), 10, ids + 2, thread=build.BACKWARD_THREAD),
            build.kernel(
                "gemm_backward", at(300), 200 * scale, external=ids + 2, correlation=ids + 2
            ),
            build.range_("Optimizer.step#SGD.step", at(600), 50),
            build.op("aten::_foreach_add_", at(610), 30, external=ids + 3),
            build.launch(at(620), 5, ids + 3),
            build.kernel("multi_tensor", at(640), 30, external=ids + 3, correlation=ids + 3),
            build.kernel("Memcpy HtoD (Pageable -> Device)", at(700), 20, category="gpu_memcpy"),
            build.kernel(build.NCCL, at(450), 100, stream=20),
            *build.forward_backward(number, forward, node),
        ]
    return build.trace_file(tmp_path, events, name=name, **top)


@pytest.fixture
def shown(capsys):
    """Return what the command prints."""

    def run(*arguments):
        assert main(["trace", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def rows(shown):
    """Return the rows of the CSV."""
    return lambda *arguments: list(
        csv.DictReader(io.StringIO(shown(*arguments, "--format", "csv")))
    )


@pytest.mark.parametrize(("form", "ending"), [("terminal", "txt"), ("markdown", "md")])
def test_the_report(tmp_path, shown, golden, form, ending):
    golden(
        shown(training_step(tmp_path, cuda_runtime_version=12040), "--format", form),
        f"trace.{ending}",
    )


def test_of_many_steps_the_longest_are_shown(tmp_path, shown):
    events = []
    for number, length in enumerate((10, 40, 20, 50, 30)):
        events += [
            build.step(number, 100 * number, length),
            build.op("aten::mm", 100 * number + 1, 5),
        ]
    out = shown(build.trace_file(tmp_path, events), "--top", 2)
    assert [line.split()[0] for line in out.splitlines() if line.startswith("ProfilerStep#")] == [
        "ProfilerStep#1",
        "ProfilerStep#3",
    ]
    assert "median of 5" in out
    assert "3 shorter steps" in out


def test_the_report_of_ranks(tmp_path, shown, golden):
    for rank in range(3):
        training_step(
            tmp_path,
            name=f"rank{rank}.json",
            scale=1 + rank / 10,
            distributedInfo={"rank": rank, "world_size": 4},
        )
    golden(shown(tmp_path, "--top", 4).replace(str(tmp_path), "run"), "trace_ranks.txt")
    report = json.loads(shown(tmp_path, "--format", "json"))
    assert not any("costs" in trace for trace in report["traces"])  # they are in the operations
    assert (report["slowest_rank"], len(report["traces"]), report["missing_ranks"]) == (0, 3, [3])


def test_a_trace_of_the_host(tmp_path, shown, golden):
    path = build.trace_file(
        tmp_path, [build.op("aten::mm", 10, 50), build.op("aten::add", 80, 20)], devices=[]
    )
    golden(shown(path), "trace_host.txt")


def test_time_that_the_host_column_has_above_the_steps_is_stated(tmp_path, shown):
    """A backend for the CPU communicates beside the operations."""
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 10, 20),
        build.range_("gloo:all_reduce", 5, 73),
    ]
    assert "73.0 us more than a step" in shown(build.trace_file(tmp_path, events, devices=[]))
    assert "more than a step" not in shown(build.trace_file(tmp_path, events[:2], devices=[]))


@pytest.mark.parametrize(("steps", "is_stated"), [((2, 3), True), ((3, 3), False)])
def test_ranks_with_different_numbers_of_steps_are_pointed_out(tmp_path, shown, steps, is_stated):
    for rank, number in enumerate(steps):
        events = build.network(steps=number)
        distributed = {"rank": rank, "world_size": 2}
        build.trace_file(tmp_path, events, name=f"{rank}.json", distributedInfo=distributed)
    assert ("different numbers of steps" in shown(tmp_path)) == is_stated


def test_a_file_that_ranks_are_merged_into_is_shown_as_a_folder_of_them_is(tmp_path, shown, rows):
    events = []
    for rank in range(2):
        events += [
            {**event, "pid": f"[TP{rank:02d}] {event['pid']}"}
            for event in build.network(scale=rank + 1)
        ]
    path = build.trace_file(
        tmp_path, events, name="merged.json", distributedInfo={"rank": 0, "world_size": 2}
    )
    out = shown(path)
    assert "merged.json: 2 ranks" in out
    assert "slowest" in out.splitlines()[4]
    gemm = {
        row["trace"]: row["self_device_ns"]
        for row in rows(path)
        if row["operation"] == "aten::addmm"
    }
    assert gemm == {f"{path} (TP00)": "100000", f"{path} (TP01)": "200000"}
    alone = build.trace_file(tmp_path, build.network())
    assert {row["trace"] for row in rows(alone, path)} == {str(alone), *gemm}


def test_a_range_with_kernels_has_no_host_time_of_its_own(tmp_path, shown, rows):
    events = [
        *build.network(),
        build.range_("Optimizer.step#FusedAdam.step", 1800, 100),
        build.launch(1810, 10, 7),
        build.kernel("adam", 1850, 30, correlation=7),
    ]
    path = build.trace_file(tmp_path, events)
    assert "Ranges with kernels of their own are rows" in shown(path)
    [row] = [row for row in rows(path) if row["operation"].startswith("Optimizer")]
    named = (
        "phase",
        "calls",
        "self_cpu_ns",
        "total_cpu_ns",
        "self_device_ns",
        "kernels",
        "not_counted",
    )
    assert [row[name] for name in named] == ["optimizer", "1", "", "100000", "30000", "1", ""]
    assert "are rows" not in shown(build.trace_file(tmp_path, build.network()))


def test_launches_without_kernels_are_stated(tmp_path, shown):
    """In a trace of the host, of some steps, and of one rank of a folder.

    A complete trace has no such line.
    """
    lost = [build.step(3, 0, 900), build.op("aten::mm", 10, 90), build.launch(20, 10, 1)]
    assert "1 of 1 kernel launch has no kernel" in shown(build.trace_file(tmp_path, lost))
    some = [
        *lost,
        build.step(4, 1000, 900),
        build.op("aten::mm", 1010, 90),
        build.launch(1020, 10, 2),
    ]
    some.append(build.kernel("gemm", 1100, 50, correlation=2))
    out = shown(build.trace_file(tmp_path, some, name="some.json"))
    assert (
        "1 of 2 kernel launches has no kernel in the trace (ProfilerStep#3: 1 of 1); its time is "
        "missing in"
    ) in out
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank, events in enumerate((some, build.network())):
        build.trace_file(
            folder, events, name=f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2}
        )
    assert "Rank 0: 1 of 2 kernel launches" in (out := shown(folder))
    assert "Rank 1: " not in out
    assert "kernel launches" not in shown(training_step(tmp_path))


def test_launches_during_a_capture_are_stated(tmp_path, shown):
    begin = build.launch(5, 2, 8, name="cudaStreamBeginCapture")
    out = shown(
        build.trace_file(tmp_path, [begin, build.op("aten::mm", 10, 90), build.launch(20, 10, 1)])
    )
    assert "1 of 1 kernel launch ran while a graph was captured" in out
    assert "no kernel" not in out


def test_csv_has_sums_over_all_steps(tmp_path, rows):
    table = rows(training_step(tmp_path))
    assert (
        sum(int(row["self_device_ns"] or 0) for row in table)
        == 2 * (100 + 200 + 30 + 20 + 100) * 1000 + 40_000
    )
    assert sum(int(row["self_cpu_ns"] or 0) for row in table) == 2 * 990_000
    [addmm] = [row for row in table if row["operation"] == "aten::addmm"]
    assert {key: value for key, value in addmm.items() if key != "trace" and value} == {
        "operation": "aten::addmm",
        "phase": "forward",
        "module": "Linear_0",
        "calls": "2",
        "self_cpu_ns": "100000",
        "total_cpu_ns": "120000",
        "self_device_ns": "200000",
        "kernels": "2",
        "memory_bytes": "0",
    }


@pytest.mark.parametrize("by", ["op,module", "op", "module"])
def test_csv_has_the_memory_of_all_steps(tmp_path, rows, by):
    """The step with the median, here none, has 4096 bytes."""
    events = []
    for number, n_bytes in enumerate((1000, 4096, 9000)):
        start = 100 * number
        events += [
            build.step(number, start, 90),
            build.op("aten::mm", start + 10, 50),
            build.memory(start + 20, n_bytes),
        ]
    path = build.trace_file(tmp_path, [*events, build.kernel("gemm", 30, 5)])
    [row] = [row for row in rows(path, "--by", by) if row["operation"] in ("aten::mm", "")]
    assert (row["calls"], row["memory_bytes"]) == ("3", str(1000 + 4096 + 9000))


def test_the_host_time_of_the_launch_of_a_graph_is_that_of_the_runtime(tmp_path, rows, shown):
    events = [
        build.launch(10, 20, 8, name="cudaGraphLaunch"),
        build.kernel("k", 50, 10, correlation=8),
        build.op("aten::mm", 80, 5),
    ]
    path = build.trace_file(tmp_path, events)
    row_of = {row["operation"]: row for row in rows(path)}
    assert (row_of["cudaGraphLaunch"]["calls"], row_of["cudaGraphLaunch"]["self_cpu_ns"]) == (
        "1",
        "",
    )
    assert row_of["(runtime)"]["self_cpu_ns"] == "20000"


@pytest.mark.parametrize(
    ("ranks", "world_size", "text"),
    [
        ([0], 1024, "rank 1 to 1023."),
        ([0, 2, 5], 8, "rank 1, 3 to 4, 6 to 7."),
        ([1], 3, "rank 0, 2."),
    ],
)
def test_missing_ranks_are_listed_as_spans(tmp_path, shown, ranks, world_size, text):
    for rank in ranks:
        training_step(
            tmp_path,
            name=f"rank{rank}.json",
            distributedInfo={"rank": rank, "world_size": world_size},
        )
    assert f"Without a file: {text}" in shown(tmp_path)


def test_other_files_beside_the_ranks_are_named(tmp_path, shown):
    for name in "abcde":
        (tmp_path / f"{name}\n.json").write_text("[]")
    training_step(tmp_path, name="rank0.json", distributedInfo={"rank": 0, "world_size": 1})
    line = (
        r"Left out, because nothing of PyTorch is in them: a\n.json, b\n.json, c\n.json and 2 more."
    )
    assert line in shown(tmp_path)
    assert len(json.loads(shown(tmp_path, "--format", "json"))["left_out_files"]) == 5


def test_a_merged_file_beside_its_ranks_is_named(tmp_path, shown):
    for rank in range(2):
        training_step(
            tmp_path, name=f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2}
        )
    events = [
        {**event, "pid": f"[TP0{rank}] {event['pid']}"}
        for rank in range(2)
        for event in json.loads((tmp_path / f"rank{rank}.json").read_text())["traceEvents"]
    ]
    build.trace_file(
        tmp_path, events, name="merged.json", distributedInfo={"rank": 0, "world_size": 2}
    )
    (tmp_path / "config.json").write_text("{")
    out = shown(tmp_path)
    assert "Left out: merged.json: several ranks are merged into one file." in out
    assert "Left out, because nothing of PyTorch is in it: config.json." in out
    assert json.loads(shown(tmp_path, "--format", "json"))["left_out_files"] == [
        "merged.json",
        "config.json",
    ]


def test_a_device_without_a_name_is_called_so(tmp_path, shown):
    path = training_step(tmp_path, devices=("",))
    assert shown(path).splitlines()[1].startswith("an accelerator without a name (80.0 GiB)")
    assert "peaks of an accelerator without a name are not known" in shown(
        training(tmp_path, devices=("",))
    )


def test_what_was_left_out_and_repaired_is_stated(tmp_path, shown):
    unknown = build.event("mtia_ccp_events", "kernel", 1, 2)
    path = build.trace_file(tmp_path, [unknown, unknown, build.op("bad name", 1, 9)])
    path.write_bytes(path.read_bytes().replace(b"bad name", b"bad\xff\\dir"))
    out = shown(path)
    assert (
        "Left out: events that mnistbench does not know, 2 of the category mtia_ccp_events." in out
    )
    assert (
        "The file is not valid JSON and was repaired: bytes that are not UTF-8 were replaced; "
        "quotes and backslashes that are not escaped were read as they are."
    ) in out


@pytest.mark.parametrize(
    ("length", "is_longer"),
    [(90, False), (500, True)],
)
def test_a_step_that_is_busy_for_longer_than_it_lasts_is_explained(
    tmp_path, shown, length, is_longer
):
    events = [
        build.step(1, 0, 100),
        build.op("aten::mm", 10, 50, external=1),
        build.launch(20, 5, 1),
    ]
    path = build.trace_file(tmp_path, [*events, build.kernel("gemm", 30, length, correlation=1)])
    assert ("for longer than the step lasts" in shown(path)) == is_longer
    assert "Impossible" not in shown(path)


def test_csv_of_several_traces_names_them(tmp_path, rows):
    paths = [training_step(tmp_path, name=f"{name}.json") for name in "ab"]
    assert {row["trace"] for row in rows(*paths)} == set(map(str, paths))


def test_grouped_by_module(tmp_path, rows):
    module_rows = rows(training_step(tmp_path), "--by", "module")
    row_of = {(row["operation"], row["phase"], row["module"]): row for row in module_rows}
    backward = row_of["", "backward", "Linear_0"]
    assert (backward["calls"], backward["self_device_ns"]) == ("4", "400000")
    assert row_of["(unattributed kernels)", "", ""]["kernels"] == "5"


def test_json_has_the_samples_of_each_step(tmp_path, shown):
    [trace] = json.loads(shown(training_step(tmp_path), "--format", "json"))["traces"]
    [mm] = [row for row in trace["device"]["rows"] if row["name"] == "aten::mm"]
    assert trace["steps"] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert (mm["self_device_ns"], mm["phase"]) == ([200_000] * 2, "backward")
    assert trace["timelines"][0]["idle_ns"] > 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.json"], "missing.json: cannot be read (No such file or directory)"),
        (
            ["trace.json", "--peak-gbs", "fast"],
            "--peak-gbs: 'fast' cannot be used; give a number from 1e-06 to 1e+15",
        ),
        (
            ["trace.json", "--output", "no/such/folder/x"],
            "--output: no/such/folder/x cannot be written",
        ),
        (["trace.json", "folder"], "folder: is a folder of ranks, which is one run; name it alone"),
        (["folder"], "folder: has no file that ends in .json or .json.gz"),
    ],
)
def test_mistakes_have_one_line(tmp_path, capsys, monkeypatch, arguments, complaint):
    training_step(tmp_path)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    code = main(["trace", *arguments])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


# ---- Work ----------------------------------------------------------------------------------------

#: A product of 4096 x 4096 matrices of bfloat16: 137.4 GFLOP, 100.7 MB.
LARGE = (Of((4096, 4096)), Of((4096, 4096)))


def training(tmp_path, *, devices=(build.H100,), name="trace.json.gz"):
    """Products in two number formats, attention with a causal mask, and copies.

    With what has no place on a roofline.
    """
    heads = Of((4, 512, 16, 64))
    floats = (
        Of((1024,), "float32"),
        Of((1024, 1024), "float32"),
        Of((1024, 1024), "float32"),
        1,
        1,
    )
    calls = [
        ("aten::mm", LARGE, "sm90_xmma_gemm_bf16bf16_bf16f32", 200),
        ("aten::addmm", floats, "ampere_sgemm_128x64_nn", 60),
        ("aten::addmm", floats, "sm80_xmma_gemm_f32f32_tf32f32_f32", 20),
        (
            "aten::_flash_attention_forward",
            (heads, heads, heads, None, None, 512, 512, 0.0, True),
            "flash_fwd_kernel",
            60,
        ),
        ("aten::silu", (Of((4096, 4096)),), "vectorized_elementwise_kernel", 30),
        ("aten::cat", ([Of((8, 8)), Of((8, 8))], 0), "CatArrayBatchedCopy", 25),
        ("record_param_comms", (Of((1024,)),), build.NCCL, 40),
        ("fast_softmax", (), "softmax", 10),
    ]
    events = [build.kernel("left_over", 900, 15)]
    for number, (operation, arguments, kernel, dur) in enumerate(calls, 1):
        start = 1000.0 * number
        events += [
            op(operation, start, 500, *arguments, external=number),
            build.launch(start + 10, 5, number),
            build.kernel(kernel, start + 20, dur, correlation=number, external=number),
        ]
    events += [
        op("aten::copy_", 9000, 50, Of((512, 512)), Of((512, 512)), False, external=9),
        build.launch(9010, 5, 9),
        build.kernel(
            "Memcpy HtoD (Pinned -> Device)",
            9020,
            20,
            correlation=9,
            external=9,
            category="gpu_memcpy",
        ),
    ]
    return build.trace_file(tmp_path, events, name=name, devices=devices)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("", []),
        ("_by_op", ["--by", "op", "--top", "3"]),
        ("_by_module", ["--by", "module"]),
        ("_given", ["--peak-tflops", "100", "--peak-gbs", "1000"]),
    ],
)
def test_the_block_about_work(tmp_path, shown, golden, name, options):
    out = shown(training(tmp_path), *options)
    golden(out[out.index("work by device time") :] if name else out, f"trace_work{name}.txt")


def by_operation(table):
    return {row["operation"]: row for row in table}


def test_csv_and_json_have_every_operation(tmp_path, shown, rows):
    path = training(tmp_path)
    row_of = by_operation(rows(path))
    large, mixed, silu = (row_of[name] for name in ("aten::mm", "aten::addmm", "aten::silu"))
    assert (int(large["flops"]), int(large["bytes"])) == (2 * 4096**3, 3 * 2 * 4096**2)
    assert float(large["of_roof"]) == pytest.approx(2 * 4096**3 / 200e-6 / 989.4e12, abs=1e-4)
    # As many FLOPs in both: the peak of one after the other.
    assert mixed["precision"] == "float32 and tf32"
    assert float(mixed["peak_flops_per_s"]) == pytest.approx(2 / (1 / 66.9e12 + 1 / 494.7e12))
    assert float(silu["of_roof"]) == pytest.approx(2 * 2 * 4096**2 / 30e-6 / 3350e9, abs=1e-4)
    assert (silu["flops"], silu["peak_flops_per_s"]) == ("", "")
    assert (row_of["aten::cat"]["of_roof"], bool(row_of["aten::cat"]["not_counted"])) == ("", True)
    [trace] = json.loads(shown(path, "--format", "json"))["traces"]
    assert [row["operation"] for row in trace["operations"]] == list(row_of)
    assert trace["peaks"]["bytes_per_s"] == 3350e9
    assert trace["machine"] == [[build.H100, 80 * 1024**3]]


def test_peaks_that_the_user_gives_take_the_place_of_the_cited_ones(tmp_path, rows):
    path = training(tmp_path)
    peak_options = ([], ["--peak-tflops", "1978.8"], ["--peak-gbs", "33500"])
    cited, tflops, gbs = (
        {name: row["of_roof"] for name, row in by_operation(rows(path, *options)).items()}
        for options in peak_options
    )
    assert float(tflops["aten::mm"]) == pytest.approx(float(cited["aten::mm"]) / 2, abs=1e-4)
    assert tflops["aten::silu"] == cited["aten::silu"]
    assert float(gbs["aten::silu"]) == pytest.approx(float(cited["aten::silu"]) / 10, abs=1e-4)


def test_an_unknown_accelerator_needs_peaks(tmp_path, shown, rows):
    path = training(tmp_path, devices=("AMD Radeon Graphics",))
    out = shown(path)
    assert "--peak-tflops and --peak-gbs" in out
    assert "'AMD Radeon Graphics'" in out
    assert "Roofline" not in out
    assert {row["of_roof"] for row in rows(path)} == {""}
    assert "give --peak-gbs." in shown(path, "--peak-tflops", "10")
    assert "Roofline" in shown(path, "--peak-tflops", "10", "--peak-gbs", "100")


def test_a_sum_has_a_place_only_if_each_of_its_operations_has_one(tmp_path, rows):
    row = next(row for row in rows(training(tmp_path), "--by", "module") if not row["operation"])
    assert (row["flops"], row["bytes"], row["of_roof"]) == ("", "", "")
    assert row["not_counted"]


def test_a_trace_without_shapes_is_told_so_in_one_sentence(tmp_path, shown):
    out = shown(build.trace_file(tmp_path, build.network()))
    assert "record_shapes=True" in out
    assert "Peaks" not in out


def test_a_trace_without_an_accelerator_is_compared_with_given_peaks(tmp_path, rows):
    path = build.trace_file(tmp_path, [op("aten::mm", 0, 1000, *LARGE)])
    row_of = by_operation(rows(path, "--peak-tflops", "1000", "--peak-gbs", "1000"))
    assert float(row_of["aten::mm"]["of_roof"]) == pytest.approx(
        2 * 4096**3 / 1e-3 / 1000e12, abs=1e-4
    )


# ---- Real traces ---------------------------------------------------------------------------------


@needs_traces
@pytest.mark.parametrize("name", real_traces.ALL)
def test_no_operation_of_a_real_trace_is_faster_than_its_machine(name, rows, monkeypatch):
    """Small tensors come from a cache, so an operation may move more than memory allows.

    None may compute more.
    """
    monkeypatch.setattr(
        command, "analyse_processes", lambda *_, **__: (real_traces.analysed(name),)
    )
    for row in rows(real_traces.path(name)):
        if row["peak_flops_per_s"] and row["of_roof"]:
            assert int(row["flops"]) / int(row["self_device_ns"]) * 1e9 < float(
                row["peak_flops_per_s"]
            )


@needs_traces
@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("h100_qwen_0.5b", 0.655),
        ("mi300_bert_small", 0.983),
        ("a100_alexnet_training", 0.0),
        ("torch_compile_triton", 0.933),
    ],
)
def test_the_share_of_the_time_with_a_place(name, share, shown, rows):
    placed = sum(
        int(row["self_device_ns"]) for row in rows(real_traces.path(name)) if row["of_roof"]
    )
    assert (placed > 0) == (share > 0)
    if share:
        assert f"{share * 100:.1f} % of the device time has a place" in shown(
            real_traces.path(name)
        )
