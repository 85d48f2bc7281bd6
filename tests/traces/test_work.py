"""FLOPs, bytes and the roofline in the report of ``mnistbench trace``."""

import csv
import io
import json

import pytest
import real_traces
import trace_builders as build
from real_traces import needs_traces
from trace_builders import Of, op

from mnistbench.cli import main

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"

#: A product of 4096 x 4096 matrices of bfloat16: 137.4 GFLOP, 100.7 MB.
LARGE = (Of((4096, 4096)), Of((4096, 4096)))


def training(tmp_path, *, devices=(build.H100,), name="trace.json.gz"):
    """Products in two number formats, attention with a causal mask, copies, and what has no place on a roofline."""
    heads = Of((4, 512, 16, 64))
    floats = (Of((1024,), "float32"), Of((1024, 1024), "float32"), Of((1024, 1024), "float32"), 1, 1)
    calls = [
        ("aten::mm", LARGE, "sm90_xmma_gemm_bf16bf16_bf16f32", 200),
        ("aten::addmm", floats, "ampere_sgemm_128x64_nn", 60),
        ("aten::addmm", floats, "sm80_xmma_gemm_f32f32_tf32f32_f32", 20),
        ("aten::_flash_attention_forward", (heads, heads, heads, None, None, 512, 512, 0.0, True), "flash_fwd_kernel", 60),
        ("aten::silu", (Of((4096, 4096)),), "vectorized_elementwise_kernel", 30),
        ("aten::cat", ([Of((8, 8)), Of((8, 8))], 0), "CatArrayBatchedCopy", 25),
        ("record_param_comms", (Of((1024,)),), NCCL, 40),
        ("fast_softmax", (), "softmax", 10),
    ]
    events = [build.kernel("left_over", 900, 15)]
    for number, (operation, arguments, kernel, dur) in enumerate(calls, 1):
        start = 1000.0 * number
        events += [
            op(operation, start, 500, *arguments, external=number), build.launch(start + 10, 5, number),
            build.kernel(kernel, start + 20, dur, correlation=number, external=number),
        ]  # fmt: skip
    events += [
        op("aten::copy_", 9000, 50, Of((512, 512)), Of((512, 512)), False, external=9), build.launch(9010, 5, 9),
        build.kernel("Memcpy HtoD (Pinned -> Device)", 9020, 20, correlation=9, external=9, category="gpu_memcpy"),
    ]  # fmt: skip
    return build.trace_file(tmp_path, events, name=name, devices=devices)


def run(capsys, *arguments):
    code = main(["trace", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_report(tmp_path, capsys, golden):
    code, out, err = run(capsys, training(tmp_path))
    assert (code, err) == (0, "")
    golden(out, "trace_work.txt")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("by_op", ["--by", "op", "--top", "3"]),
        ("by_module", ["--by", "module"]),
        ("given", ["--peak-tflops", "100", "--peak-gbs", "1000"]),
    ],
)
def test_the_block_about_work(tmp_path, capsys, golden, name, options):
    out = run(capsys, training(tmp_path), *options)[1]
    golden(out[out.index("work by device time") :], f"trace_work_{name}.txt")


def of_roof(out):
    return {row["operation"]: row["of_roof"] for row in csv.DictReader(io.StringIO(out))}


def test_csv_and_json_have_every_operation(tmp_path, capsys):
    path = training(tmp_path)
    _, out, _ = run(capsys, path, "--format", "csv")
    rows = {row["operation"]: row for row in csv.DictReader(io.StringIO(out))}
    large = rows["aten::mm"]
    assert (int(large["flops"]), int(large["bytes"])) == (2 * 4096**3, 3 * 2 * 4096**2)
    assert float(large["of_roof"]) == pytest.approx(2 * 4096**3 / 200e-6 / 989.4e12, abs=1e-4)
    mixed = rows["aten::addmm"]  # as many FLOPs in float32 as in TF32: the peak of one after the other
    assert (mixed["precision"], float(mixed["peak_flops_per_s"])) == (
        "float32 and tf32", pytest.approx(2 / (1 / 66.9e12 + 1 / 494.7e12)),
    )  # fmt: skip
    assert float(rows["aten::silu"]["of_roof"]) == pytest.approx(2 * 2 * 4096**2 / 30e-6 / 3350e9, abs=1e-4)
    assert (rows["aten::silu"]["flops"], rows["aten::silu"]["peak_flops_per_s"]) == ("", "")
    assert (rows["aten::cat"]["of_roof"], bool(rows["aten::cat"]["not_counted"])) == ("", True)
    _, out, _ = run(capsys, path, "--format", "json")
    [found] = json.loads(out)["traces"]
    assert [one["operation"] for one in found["operations"]] == list(rows)
    assert found["peaks"]["bytes_per_s"] == 3350e9
    assert found["machine"] == [[build.H100, 80 * 1024**3]]


def test_peaks_that_the_user_gives_take_the_place_of_the_cited_ones(tmp_path, capsys):
    path = training(tmp_path)
    cited, tflops, gbs = (
        of_roof(run(capsys, path, "--format", "csv", *options)[1])
        for options in ([], ["--peak-tflops", "1978.8"], ["--peak-gbs", "33500"])
    )
    assert float(tflops["aten::mm"]) == pytest.approx(float(cited["aten::mm"]) / 2, abs=1e-4)
    assert tflops["aten::silu"] == cited["aten::silu"]
    assert float(gbs["aten::silu"]) == pytest.approx(float(cited["aten::silu"]) / 10, abs=1e-4)


def test_an_unknown_accelerator_needs_peaks(tmp_path, capsys):
    path = training(tmp_path, devices=("AMD Radeon Graphics",))
    _, out, _ = run(capsys, path)
    assert "--peak-tflops and --peak-gbs" in out
    assert "'AMD Radeon Graphics'" in out
    assert "Roofline" not in out
    assert set(of_roof(run(capsys, path, "--format", "csv")[1]).values()) == {""}
    _, out, _ = run(capsys, path, "--peak-tflops", "10")
    assert "give --peak-gbs." in out
    _, out, _ = run(capsys, path, "--peak-tflops", "10", "--peak-gbs", "100")
    assert "Roofline" in out


def test_a_sum_has_a_place_only_if_each_of_its_operations_has_one(tmp_path, capsys):
    by_module = run(capsys, training(tmp_path), "--by", "module", "--format", "csv")[1]
    row = next(row for row in csv.DictReader(io.StringIO(by_module)) if not row["operation"])
    assert (row["flops"], row["bytes"], row["of_roof"]) == ("", "", "")
    assert row["not_counted"]


def test_a_trace_without_shapes_is_told_so_in_one_sentence(tmp_path, capsys):
    _, out, _ = run(capsys, build.trace_file(tmp_path, build.network()))
    assert "record_shapes=True" in out
    assert "Peaks" not in out


def test_a_trace_without_an_accelerator_is_held_against_given_peaks(tmp_path, capsys):
    path = build.trace_file(tmp_path, [op("aten::mm", 0, 1000, *LARGE)])
    _, out, _ = run(capsys, path, "--peak-tflops", "1000", "--peak-gbs", "1000", "--format", "csv")
    assert float(of_roof(out)["aten::mm"]) == pytest.approx(2 * 4096**3 / 1e-3 / 1000e12, abs=1e-4)


# ---- Real traces ------------------------------------------------------------------------------------------------------


@needs_traces
@pytest.mark.parametrize("name", real_traces.ALL)
def test_no_operation_of_a_real_trace_is_faster_than_its_machine(name, capsys):
    """Small tensors come from a cache, so an operation may move more than memory allows; none may compute more."""
    _, out, _ = run(capsys, real_traces.path(name), "--format", "csv")
    for row in csv.DictReader(io.StringIO(out)):
        if row["peak_flops_per_s"] and row["of_roof"]:
            assert int(row["flops"]) / int(row["self_device_ns"]) * 1e9 < float(row["peak_flops_per_s"])


@needs_traces
@pytest.mark.parametrize(
    ("name", "share"),
    [("h100_qwen_0.5b", 0.655), ("mi300_bert_small", 0.983), ("a100_alexnet_training", 0.0), ("torch_compile_triton", 0.933)],
)
def test_the_share_of_the_time_with_a_place(name, share, capsys):
    _, out, _ = run(capsys, real_traces.path(name), "--format", "json")
    rows = json.loads(out)["traces"][0]["operations"]
    placed = sum(row["self_device_ns"] for row in rows if row["of_roof"] is not None)
    _, out, _ = run(capsys, real_traces.path(name))
    if share:
        assert f"{share * 100:.1f} % of the device time has a place" in out
    assert (placed > 0) == (share > 0)
