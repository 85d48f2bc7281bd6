"""Rows of compiled code: names, modules and phases, from traces made by hand."""

from types import SimpleNamespace

import pytest
import trace_builders as build
from kineto_builders import KinetoEvent, fields

from mnistbench.core.compiled.compilation import BACKWARD_PART, FORWARD_PART
from mnistbench.core.compiled.names import (
    COMPILED,
    COMPILING,
    LOOKUP,
    OTHER_KERNELS,
    compiled_name,
)
from mnistbench.core.operation import OUTSIDE, RUNTIME
from mnistbench.events import analysis, from_profiler
from mnistbench.events.linking.compiled import KernelCall, name_compiled
from mnistbench.events.linking.links import link
from mnistbench.events.model import steps_of
from mnistbench.events.table import host_and_device

HASH = "falNxpiah5vN2lbfmwwonu7dvevbsmlh4qNtkclrtUgcqpzea"


@pytest.mark.parametrize(
    ("event", "row"),
    [
        ("TorchDynamo Cache Lookup", LOOKUP),
        ("Torch-Compiled Region: 0/0", COMPILED),
        ("Torch-Compiled Region: 12/3", COMPILED),
        (f"## Call CompiledFxGraph {HASH} ##", COMPILED),
        ("Pregraph bytecode", COMPILED),
        ("AOTDispatcher Runtime Wrapper Prologue", COMPILED),
        ("CompiledFunction", COMPILED),
        ("CompiledFunctionBackward", COMPILED),
        ("autograd::engine::evaluate_function: CompiledFunctionBackward", COMPILED),
        ("_compile.compile_inner (dynamo_timed)", COMPILING),
        ("entire_backward_compile", COMPILING),
        ("graph_17_cpp_fused_add_mul_0", "fused add_mul"),
        ("graph_1_gemm_m64n64k64_kernel", "gemm_m64n64k64_kernel"),
        ("cpp_fused_add_mul_12", "fused add_mul"),
        ("cpp_fused_0", "fused kernel"),
        ("triton_poi_fused_add_mul_0", "fused add_mul"),
        ("triton_per_fused__softmax_3", "fused _softmax"),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_10", "fused add_mean_mul_pow_rsqrt"),
        ("triton_tem_fused_mm_4", "fused mm"),
        ("triton_poi_fused_add_0d1d2de", "fused add"),
        ("triton_poi_fused_add_0_0d1d2de", "fused add"),
        # What is not of torch.compile keeps its name.
        ("aten::addmm", "aten::addmm"),
        ("add_kernel_0d1d2d", "add_kernel_0d1d2d"),
        ("triton_attention_kernel", "triton_attention_kernel"),
        ("fused_adam_0", "fused_adam_0"),
        ("void at::native::vectorized_elementwise_kernel", None),
    ],
)
def test_the_row_of_an_event(event, row):
    assert compiled_name(event) == (row or event)


# ---- Traces of files -----------------------------------------------------------------------------


def tables(tmp_path, *events):
    return analysis.analyse(build.trace_file(tmp_path, [build.step(1, 0, 1000), *events])).tables


def host_rows(table):
    """(calls, self us, total us) by the name of the row."""
    return {
        row.name: (row.calls, sum(row.self_cpu_ns) / 1e3, sum(row.total_cpu_ns) / 1e3)
        for row in table.rows
    }


REGION = (
    build.op("TorchDynamo Cache Lookup", 10, 5),
    build.op("Torch-Compiled Region: 0/0", 20, 200),
    build.op("Pregraph bytecode", 25, 5),
    build.op("CompiledFunction", 40, 170),
    build.op(f"## Call CompiledFxGraph {HASH} ##", 50, 150),
)


def test_the_host_rows_of_compiled_code_add_up(tmp_path):
    rows = host_rows(
        tables(
            tmp_path,
            *REGION,
            build.op("graph_0_cpp_fused_add_mul_0", 60, 20),
            build.op("aten::addmm", 90, 40),
        ).host
    )
    assert rows == {
        LOOKUP: (1, 5, 5),
        COMPILED: (1, 140, 200),  # its events are in each other, so the call is one
        "fused add_mul": (1, 20, 20),
        "aten::addmm": (1, 40, 40),
        OUTSIDE: (0, 795, 795),
    }


def test_a_compilation_is_one_row_with_all_that_it_calls(tmp_path):
    rows = host_rows(
        tables(
            tmp_path,
            build.op("entire_frame_compile", 10, 100),
            build.op("compile_attempt_0 (dynamo_timed)", 20, 80),
            build.op("aten::addmm", 30, 20),
            build.range_("a range of a pass", 60, 20),
            build.op("aten::t", 65, 5),
            build.op("aten::addmm", 200, 30),
        ).host
    )
    assert rows == {
        COMPILING: (1, 100, 100),
        "aten::addmm": (1, 30, 30),
        OUTSIDE: (0, 870, 870),
    }


def test_a_compilation_in_a_compiled_region_has_its_own_row(tmp_path):
    rows = host_rows(
        tables(
            tmp_path,
            build.op("CompiledFunctionBackward", 10, 100),
            build.op("entire_backward_compile", 20, 60),
            build.op("x (dynamo_timed)", 30, 20),
        ).host
    )
    assert rows == {COMPILED: (1, 40, 100), COMPILING: (1, 60, 60), OUTSIDE: (0, 900, 900)}


def device_rows(table):
    """(calls, device us, kernels) by the name of the row, of rows with device time."""
    return {
        row.name: (row.calls, sum(row.self_device_ns) / 1e3, row.kernels)
        for row in table.rows
        if sum(row.self_device_ns)
    }


def test_a_triton_kernel_is_in_the_row_of_its_launch(tmp_path):
    both = tables(
        tmp_path,
        *REGION,
        build.op("triton_poi_fused_add_mul_0", 60, 20, external=5),
        build.launch(65, 5, 7, name="cuLaunchKernel", external=5),
        build.kernel("triton_poi_fused_add_mul_0", 300, 50, correlation=7, external=5),
    )
    assert device_rows(both.device) == {
        "fused add_mul": (1, 50, ("triton_poi_fused_add_mul_0",)),
    }
    assert host_rows(both.host)["fused add_mul"] == (1, 15, 20)


def test_a_triton_kernel_without_an_event_of_its_own_has_a_row_of_the_device(tmp_path):
    both = tables(
        tmp_path,
        *REGION,
        build.launch(65, 5, 7, name="cuLaunchKernel"),
        build.kernel("triton_poi_fused_add_mul_0", 300, 50, correlation=7),
    )
    assert device_rows(both.device) == {
        "fused add_mul": (1, 50, ("triton_poi_fused_add_mul_0",)),
    }
    assert host_rows(both.host) == {
        LOOKUP: (1, 5, 5),
        COMPILED: (1, 195, 200),
        RUNTIME: (1, 5, 5),
        OUTSIDE: (0, 795, 795),
    }


def test_the_kernels_of_a_cuda_graph(tmp_path):
    """Generated ones have rows of their own; nothing tells which calls the others are of."""
    both = tables(
        tmp_path,
        *REGION,
        build.launch(65, 5, 7, name="cudaGraphLaunch"),
        build.kernel("triton_poi_fused_add_mul_0", 300, 50, correlation=7),
        build.kernel("volta_sgemm_32x32", 350, 40, correlation=7),
        build.kernel("triton_poi_fused_add_mul_1", 400, 10, correlation=7),
        build.kernel("Memset (Device)", 420, 2, correlation=7, category="gpu_memset"),
    )
    assert device_rows(both.device) == {
        "fused add_mul": (2, 60, ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_1")),
        OTHER_KERNELS: (2, 42, ("Memset (Device)", "volta_sgemm_32x32")),
    }
    assert set(host_rows(both.host)) == {LOOKUP, COMPILED, RUNTIME, OUTSIDE}


def test_kernels_of_a_library_call_in_compiled_code_belong_to_the_call(tmp_path):
    both = tables(
        tmp_path,
        *REGION,
        build.op("aten::addmm", 60, 20, external=5),
        build.launch(65, 5, 7, external=5),
        build.kernel("volta_sgemm_32x32", 350, 40, correlation=7, external=5),
    )
    assert device_rows(both.device) == {"aten::addmm": (1, 40, ("volta_sgemm_32x32",))}


def test_kernels_that_are_launched_while_torch_compiles_are_of_the_compilation(tmp_path):
    both = tables(
        tmp_path,
        build.op("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 10, 100),
        build.op("triton_poi_fused_add_mul_0", 20, 30, external=5),
        build.launch(25, 5, 7, external=5),
        build.kernel("triton_poi_fused_add_mul_0", 300, 50, correlation=7, external=5),
    )
    assert device_rows(both.device) == {COMPILING: (1, 50, ("triton_poi_fused_add_mul_0",))}


def test_names_do_not_depend_on_hashes_and_numbers(tmp_path):
    def identities(folder, region, number, digest):
        folder.mkdir()
        both = tables(
            folder,
            build.op(f"Torch-Compiled Region: {region}", 20, 200),
            build.op(f"## Call CompiledFxGraph {digest} ##", 50, 150),
            build.op(f"graph_{number}_cpp_fused_add_mul_{number}", 60, 20),
        )
        return {row.name for row in both.host.rows}

    first = identities(tmp_path / "a", "0/0", 0, HASH)
    assert first == identities(tmp_path / "b", "3/1", 7, HASH[::-1])


# ---- Profiles with observed graphs ---------------------------------------------------------------

FORWARD_THREAD, BACKWARD_THREAD = 1, 2


def op(name, start, end, thread=FORWARD_THREAD, **values):
    return KinetoEvent(**fields(name, start, end, thread, **values))


def call(start, end, thread=FORWARD_THREAD):
    return op(f"## Call CompiledFxGraph {HASH} ##", start, end, thread)


def forward(region, start, sequence, *kernels):
    """A call of a compiled function, with a kernel or library call each ten nanoseconds."""
    return [
        op(f"Torch-Compiled Region: {region}", start, start + 100),
        op("CompiledFunction", start + 5, start + 95, sequence_nr=sequence),
        call(start + 6, start + 94),
        *(op(name, start + 10 + 10 * at, start + 18 + 10 * at) for at, name in enumerate(kernels)),
    ]


def backward(start, sequence, *kernels):
    engine = "autograd::engine::evaluate_function: CompiledFunctionBackward"
    of_forward = {"sequence_nr": sequence, "fwd_thread_id": FORWARD_THREAD}
    thread = BACKWARD_THREAD
    return [
        op(engine, start, start + 100, thread, **of_forward),
        op("CompiledFunctionBackward", start + 5, start + 95, thread, **of_forward),
        call(start + 6, start + 94, thread),
        *(
            op(name, start + 10 + 10 * at, start + 18 + 10 * at, thread)
            for at, name in enumerate(kernels)
        ),
    ]


def rows_of(events, graphs):
    """(name, module, phase) -> calls, of kernels and library calls."""
    results = SimpleNamespace(events=lambda: events)
    trace = from_profiler.read(SimpleNamespace(kineto_results=results, with_stack=False))
    link(trace)
    name_compiled(trace, graphs)
    both = host_and_device(trace, steps_of(trace), has_device=False, memory_of_host=True)
    assert sum(sum(row.self_cpu_ns) for row in both.host.rows) == sum(both.host.iteration_ns)
    return {
        (row.name, row.module, row.phase): row.calls
        for row in both.host.rows
        if row.name not in (COMPILED, OUTSIDE)
    }


GRAPHS = {
    ("0/0", FORWARD_PART): (
        KernelCall("cpp_fused_relu_0", "fused relu", "layers.0"),
        KernelCall("aten::addmm", "aten::addmm", "layers.1"),
        KernelCall("aten::addmm", "aten::addmm", "layers.2"),
    ),
    ("0/0", BACKWARD_PART): (KernelCall("aten::mm", "aten::mm", "layers.2"),),
    ("1/0", FORWARD_PART): (KernelCall("aten::addmm", "aten::addmm", "head"),),
    ("1/0", BACKWARD_PART): (KernelCall("aten::mm", "aten::mm", "head"),),
}


def test_each_call_of_a_graph_has_its_module():
    events = forward("0/0", 1000, 3, "graph_4_cpp_fused_relu_0", "aten::addmm", "aten::addmm")
    assert rows_of(events, GRAPHS) == {
        ("fused relu", "layers.0", ""): 1,
        ("aten::addmm", "layers.1", ""): 1,
        ("aten::addmm", "layers.2", ""): 1,
    }


def test_backward_calls_have_the_modules_of_the_graph_whose_node_runs():
    events = [
        *forward("0/0", 1000, 3, "graph_4_cpp_fused_relu_0", "aten::addmm", "aten::addmm"),
        *forward("1/0", 1200, 4, "aten::addmm"),
        *backward(1400, 4, "aten::mm"),
        *backward(1600, 3, "aten::mm"),
    ]
    rows = rows_of(events, GRAPHS)
    assert rows["aten::mm", "head", "backward"] == 1
    assert rows["aten::mm", "layers.2", "backward"] == 1
    assert rows["aten::addmm", "head", "forward"] == 1


def test_a_number_that_an_operation_shares_with_the_node_is_not_its():
    """An operation has the number of the next node, also while another function runs."""
    events = [
        *forward("0/0", 1000, 3, "graph_4_cpp_fused_relu_0"),
        op("aten::zeros", 1096, 1098, sequence_nr=4),
        *forward("1/0", 1200, 4, "aten::addmm"),
        *backward(1400, 4, "aten::mm"),
    ]
    assert rows_of(events, GRAPHS)["aten::mm", "head", "backward"] == 1


def test_a_repeated_call_of_a_graph_begins_with_its_first_call_again():
    events = [
        *forward("1/0", 1000, 3, "aten::addmm"),
        *forward("1/0", 1200, 4, "aten::addmm"),
    ]
    [calls] = rows_of(events, GRAPHS).values()
    assert calls == 2


def test_calls_that_no_graph_has_keep_their_names():
    events = forward("5/0", 1000, 3, "graph_4_cpp_fused_relu_0", "aten::addmm")
    assert {(name, module) for name, module, _ in rows_of(events, GRAPHS)} == {
        ("fused relu", ""),
        ("aten::addmm", ""),
    }
    events = forward("1/0", 1000, 3, "aten::addmm", "aten::bmm")
    assert {(name, module) for name, module, _ in rows_of(events, GRAPHS)} == {
        ("aten::addmm", "head"),
        ("aten::bmm", ""),
    }


def test_what_a_custom_operation_calls_has_its_module():
    """It has no event of its own."""
    calls = (
        KernelCall("aten::addmm", "aten::addmm", "fc"),
        KernelCall("my::scale", "my::scale", "scaling"),
        KernelCall("aten::mm", "aten::mm", "head"),
    )
    events = forward("0/0", 1000, 3, "aten::addmm", "aten::mul", "aten::add", "aten::mm")
    rows = rows_of(events, {("0/0", FORWARD_PART): calls})
    assert {(name, module) for name, module, _ in rows} == {
        ("aten::addmm", "fc"),
        ("aten::mul", "scaling"),
        ("aten::add", "scaling"),
        ("aten::mm", "head"),
    }


def test_kernels_of_templates_are_named_in_order():
    calls = (
        KernelCall("cpp_CppMicroGemm_0", "fused addmm, relu", "first"),
        KernelCall("cpp_CppMicroGemm_1", "fused addmm", "second"),
        KernelCall("cpp_fused_sum_2", "fused sum", "head"),
    )
    gemm = "graph_1_gemm_m64n64k64_kernel"
    events = forward("0/0", 1000, 3, gemm, gemm, "graph_1_cpp_fused_sum_2")
    rows = rows_of(events, {("0/0", FORWARD_PART): calls})
    assert {(name, module) for name, module, _ in rows} == {
        ("fused addmm, relu", "first"),
        ("fused addmm", "second"),
        ("fused sum", "head"),
    }


def test_events_that_may_be_of_several_calls_have_no_module():
    calls = tuple(KernelCall(f"my::op{n}", f"my::op{n}", f"m{n}") for n in range(2))
    events = forward("0/0", 1000, 3, "aten::mul", "aten::add", "aten::sub")
    rows = rows_of(events, {("0/0", FORWARD_PART): calls})
    assert {module for _, module, _ in rows} == {""}
