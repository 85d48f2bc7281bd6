"""Which rows of a trace have work, how much, and why the others have none."""

from collections import defaultdict

import pytest
import real_traces
import torch
import trace_builders as build
from real_traces import analysed, needs_traces
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from trace_builders import Of, op

from mnistbench.core.compiled.names import compiled_name
from mnistbench.core.operation import UNATTRIBUTED
from mnistbench.events.analysis import analyse
from mnistbench.events.work import costs as reasons
from mnistbench.events.work.arguments import NO_RULE, NOT_RECORDED
from mnistbench.events.work.costs import Peaks, peaks_of
from mnistbench.events.work.flops import Work


def costs(tmp_path, *events):
    return analyse(build.trace_file(tmp_path, events), counts_work=True).costs


def by_name(rows):
    return {name: value for (name, _, _), value in rows.items()}


def test_the_operation_that_launched_the_kernel_has_the_work(tmp_path):
    result = costs(
        tmp_path,
        op("aten::linear", 0, 100, Of((4, 8)), Of((2, 8)), Of((2,)), external=1),
        op("aten::addmm", 10, 80, Of((2,)), Of((4, 8)), Of((8, 2)), 1, 1, external=2),
        *build.run(20, 2, "gemm", "splitKreduce"),  # several kernels of a call are one call
    )
    assert by_name(result.work) == {
        "aten::addmm": Work({"bfloat16": 2 * 4 * 8 * 2}, 2 * (2 + 32 + 16 + 8))
    }
    assert result.uncounted == {}


def test_calls_of_different_shapes_are_added(tmp_path):
    result = costs(
        tmp_path,
        op("aten::mm", 0, 80, Of((4, 8)), Of((8, 2)), external=1),
        *build.run(20, 1, "gemm"),
        op("aten::mm", 100, 80, Of((3, 5)), Of((5, 7)), external=2),
        *build.run(120, 2, "gemm"),
    )
    expected = Work({"bfloat16": 2 * (4 * 8 * 2 + 3 * 5 * 7)}, 2 * (32 + 16 + 8 + 15 + 35 + 21))
    assert by_name(result.work) == {"aten::mm": expected}


def test_one_call_that_cannot_be_counted_leaves_the_row_without_work(tmp_path):
    counted = [op("aten::mm", 0, 80, Of((4, 8)), Of((8, 2)), external=1), *build.run(20, 1, "gemm")]
    result = costs(
        tmp_path, *counted, op("aten::mm", 100, 80, external=2), *build.run(120, 2, "gemm")
    )
    assert (result.work, by_name(result.uncounted)) == ({}, {"aten::mm": NOT_RECORDED})
    # Which has no kernel.
    result = costs(tmp_path, *counted, op("aten::mm", 100, 80, Of((4, 8)), Of((8, 2)), external=2))
    assert by_name(result.work)["aten::mm"].flops == {"bfloat16": 2 * 4 * 8 * 2}


def test_a_product_within_a_product_counts_once(tmp_path):
    query = Of((2, 4, 16, 8))
    transposed = Of((2, 16, 4, 8))
    result = costs(
        tmp_path,
        op(
            "aten::_scaled_dot_product_flash_attention",
            0,
            100,
            query,
            query,
            query,
            0.0,
            False,
            external=1,
        ),
        *build.run(2, 1, "pad"),
        op(
            "aten::_flash_attention_forward",
            20,
            50,
            transposed,
            transposed,
            transposed,
            None,
            None,
            16,
            16,
            0.0,
            True,
            external=2,
        ),
        *build.run(30, 2, "flash_fwd"),
    )
    assert by_name(result.work)["aten::_flash_attention_forward"].flops == {
        "bfloat16": 4 * 2 * 4 * 16 * 16 * 8
    }
    assert by_name(result.uncounted) == {
        "aten::_scaled_dot_product_flash_attention": reasons.OTHERS_WORK
    }
    assert [name for (name, _, _), work in result.work.items() if work.is_bound] == [
        "aten::_flash_attention_forward"
    ]


def test_work_is_that_of_all_steps(tmp_path):
    events = []
    for number, rows in enumerate((4, 4, 400)):
        start = 1000 * number
        events += [
            build.step(number, start, 900),
            op("aten::mm", start + 10, 80, Of((rows, 8)), Of((8, 2)), external=number + 1),
            *build.run(start + 20, number + 1, "gemm"),
        ]
    result = costs(tmp_path, *events)
    assert by_name(result.work)["aten::mm"] == Work(
        {"bfloat16": 2 * 408 * 8 * 2}, 2 * (408 * 8 + 3 * 16 + 408 * 2)
    )


@pytest.mark.parametrize(
    ("factor_dtype", "kernel", "dtype"),
    [
        ("float32", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn", "tf32"),
        (
            "float32",
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x5_nt_align4>",
            "tf32",
        ),
        ("float32", "ampere_sgemm_128x64_nn", "float32"),
        ("float32", "Cijk_Alik_Bljk_SB_MT64x16x32", "float32"),
        ("float16", "turing_s1688gemm", "float16"),  # whatever the kernel is called
    ],
)
def test_the_name_of_the_kernel_tells_tf32_from_float32(tmp_path, factor_dtype, kernel, dtype):
    factors = (Of((4, 8), factor_dtype), Of((8, 2), factor_dtype))
    result = costs(tmp_path, op("aten::mm", 0, 80, *factors, external=1), *build.run(20, 1, kernel))
    assert list(by_name(result.work)["aten::mm"].flops) == [dtype]


def test_copies_within_the_accelerator_have_bytes_and_others_have_none(tmp_path):
    copy = op("aten::copy_", 0, 80, Of((4, 8)), Of((4, 8)), False, external=1)
    result = costs(
        tmp_path, copy, *build.run(20, 1, "Memcpy DtoD (Device -> Device)", category="gpu_memcpy")
    )
    assert by_name(result.work) == {"aten::copy_": Work({}, 2 * 2 * 32)}
    result = costs(
        tmp_path, copy, *build.run(20, 1, "Memcpy HtoD (Pinned -> Device)", category="gpu_memcpy")
    )
    assert by_name(result.uncounted) == {"aten::copy_": reasons.FOREIGN_COPY}


@pytest.mark.parametrize(
    ("name", "kernel", "arguments", "reason"),
    [
        ("aten::cat", "CatArrayBatchedCopy", ([Of((4, 8)), Of((4, 8))], 0), NO_RULE),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0", (Of((4, 8)), Of((4, 8)), 32), NO_RULE),
        (
            "record_param_comms",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            (Of((4, 8)),),
            reasons.COMMUNICATION,
        ),
        ("aten::relu", "relu", (), NOT_RECORDED),
        # Larger than all machines.
        ("aten::mm", "gemm", (Of((2**62, 2**62)), Of((2**62, 2**62))), NO_RULE),
    ],
)
def test_why_an_operation_is_not_counted(tmp_path, name, kernel, arguments, reason):
    result = costs(tmp_path, op(name, 0, 80, *arguments, external=1), *build.run(20, 1, kernel))
    assert by_name(result.uncounted) == {compiled_name(name): reason}


def test_kernels_of_no_operation(tmp_path):
    result = costs(tmp_path, *build.network(linked=False))
    assert by_name(result.uncounted) == {UNATTRIBUTED: reasons.NO_OPERATION}


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.out = nn.Linear(8, 5)

    def forward(self, images):
        features = self.norm(self.convolution(images)).relu().flatten(2).transpose(1, 2)
        features = nn.functional.scaled_dot_product_attention(
            features[:, None], features[:, None], features[:, None]
        )[:, 0]
        return self.out(features).log_softmax(-1)


def test_a_trace_of_torch_without_an_accelerator_has_the_flops_that_torch_counts(tmp_path):
    model = Attending()
    images = torch.ones(2, 3, 8, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        model(images).sum().backward()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    result = analyse(path, counts_work=True).costs
    assert (
        sum(sum(work.flops.values()) for work in result.work.values()) == counter.get_total_flops()
    )


# ---- Real traces: counted by hand from the sizes of the models -----------------------------------


def work_of(name):
    flops = defaultdict(int)
    for (operation, _, _), work in analysed(name).costs.work.items():
        flops[operation] += sum(work.flops.values())
    return flops


@needs_traces
@pytest.mark.parametrize("machine", ["h100", "mi300"])
def test_a_small_bert(machine):
    tokens = 141
    hidden = 512
    inner = 2048
    vocabulary = 30522
    layers = 4
    heads = 8
    # Query, key, value, output; two of the feed-forward network.
    layer_flops = 4 * hidden * hidden + 2 * hidden * inner
    head = hidden * hidden + hidden * vocabulary
    flops = work_of(f"{machine}_bert_small")
    assert flops["aten::addmm"] == 2 * tokens * (layers * layer_flops + head)
    assert flops["aten::_flash_attention_forward"] == layers * 4 * tokens * tokens * heads * (
        hidden // heads
    )


@needs_traces
@pytest.mark.parametrize("machine", ["h100", "mi300"])
def test_a_qwen_of_half_a_billion_parameters(machine):
    batch = 16
    length = 559
    hidden = 1024
    inner = 2816
    layers = 24
    tokens = batch * length
    flops = work_of(f"{machine}_qwen_0.5b")
    # Query, key and value, which have a bias.
    assert flops["aten::addmm"] == layers * 3 * 2 * tokens * hidden * hidden
    # Output; gate, up and down.
    assert flops["aten::mm"] == layers * 2 * tokens * (hidden * hidden + 3 * hidden * inner)
    assert flops["aten::_flash_attention_forward"] == layers * 4 * batch * length * length * hidden


@needs_traces
@pytest.mark.parametrize("name", real_traces.ALL)
def test_every_row_with_device_time_has_work_or_a_reason(name):
    result = analysed(name).costs
    assert not result.work.keys() & result.uncounted.keys()
    timed = {row.key for row in analysed(name).tables.shown.rows if row.self_ns("device") > 0}
    assert timed <= result.work.keys() | result.uncounted.keys()


# ---- Peaks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gigabytes", "dtype", "teraflops", "bandwidth"),
    [
        ("Tesla V100-SXM2-16GB", 16.9, "float16", 125, 900),
        ("NVIDIA A100-PG509-200", 42.3, "tf32", 156, 1555),
        ("A100-SXM4-40GB", 42.5, "bfloat16", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 85.2, "float32", 19.5, 2039),
        ("NVIDIA H100 80GB HBM3", 85.0, "bfloat16", 989.4, 3350),
        ("NVIDIA H200", 150.1, "float32", 66.9, 4800),
        ("NVIDIA B200", 191.5, "bfloat16", 2250, 7700),
        ("AMD Instinct MI250X / MI250", 68.7, "float16", 191.5, 1600),
        ("AMD Instinct MI300X", 206.1, "float32", 163.4, 5300),
        ("AMD Instinct MI300X VF", 205.6, "bfloat16", 1307.4, 5300),
    ],
)
def test_peaks_by_name_and_memory(name, gigabytes, dtype, teraflops, bandwidth):
    peaks = peaks_of([(name, int(gigabytes * 1e9))])
    assert (peaks.of(dtype), peaks.bytes_per_s) == (teraflops * 1e12, bandwidth * 1e9)
    assert peaks.source
    assert peaks.of("float8") is None


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("AMD Radeon Graphics", 68.7),
        ("", 80),
        ("NVIDIA H100 PCIe", 85),
        ("NVIDIA H100 NVL", 100),
        ("NVIDIA A100 80GB PCIe", 85),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5),
        ("AMD Instinct MI300X VF", 24),
        ("NVIDIA H100 80GB HBM3", 0),
    ],
)
def test_other_accelerators_and_parts_of_them_have_no_peaks(name, gigabytes):
    assert peaks_of([(name, int(gigabytes * 1e9))]) == Peaks()


def test_unequal_accelerators_have_no_common_peaks():
    h100 = ("NVIDIA H100 80GB HBM3", 85 * 10**9)
    h200 = ("NVIDIA H200", 150 * 10**9)
    assert peaks_of([h100, h100]) == peaks_of([h100])
    assert peaks_of([h100, h200]) == peaks_of([]) == Peaks()
