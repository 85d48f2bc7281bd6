"""The graphs of the expression and of a workload.

And what is said where an interface is missing.
"""

import sys

import pytest
import torch

from mnistbench.core.errors import UsageError
from mnistbench.core.operation import ITERATION
from mnistbench.course.studies.graph import compiled as compiled_module
from mnistbench.course.studies.graph.compiled import (
    CompileError,
    compiled,
    graphs,
    missing_compiler,
)
from mnistbench.course.studies.graph.programs import program, workload
from mnistbench.course.studies.graph.steps import dispatched, scheduled, timed_steps
from mnistbench.course.studies.graph.study import (
    BACKWARD_PART,
    EAGER,
    FORWARD,
    FORWARD_PART,
    JOINT,
    Scheduled,
    Settings,
)
from mnistbench.events import model
from mnistbench.events.linking.links import link
from mnistbench.events.model import DeviceEvent, ThreadEvent, Trace

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

TINY = Settings(size=16)
N_BYTES = 16 * 16 * 4


@pytest.mark.versions
def test_the_expression_has_two_operations_forward_and_two_backward():
    traced, left_out = graphs(program(TINY))
    assert left_out == []
    assert [(graph.kind, graph.inputs, graph.operations, graph.outputs) for graph in traced] == [
        (FORWARD, 3, ("mul", "add"), 1),
        (JOINT, 4, ("mul", "add", "mul", "mul"), 4),
        (FORWARD_PART, 3, ("mul", "add"), 3),
        (BACKWARD_PART, 3, ("mul", "mul"), 3),
    ]
    # Forward: x, y, z, and the result. Backward: x, y, the gradient of the result, which is that of
    # z, and two gradients.
    assert [graph.moved_bytes for graph in traced[2:]] == [4 * N_BYTES, 5 * N_BYTES]
    assert "f32[16, 16]" in traced[0].text
    assert "x * y + z" in traced[0].text


@pytest.mark.versions
def test_eager_execution_of_the_expression_moves_three_tensors_for_each_operation():
    eager = dispatched(program(TINY))
    assert eager.forward == ("mul", "add")
    assert eager.backward == ("mul", "mul")
    assert eager.views == 0
    assert eager.moved_bytes == 4 * 3 * N_BYTES


def test_a_training_step_is_one_graph_with_its_loss():
    step_program = program(Settings(program="lenet5", batch_size=2))
    traced, left_out = graphs(step_program)
    assert left_out == []
    assert [graph.kind for graph in traced] == [FORWARD, JOINT, FORWARD_PART, BACKWARD_PART]
    assert (
        traced[0].operations.count("conv2d")
        == traced[1].operations.count("convolution_backward")
        == 2
    )
    assert traced[0].operations[-1] == "nll_loss"
    assert traced[0].inputs == 2 + len(list(step_program.workload.make_model().parameters()))
    eager = dispatched(step_program)
    assert eager.forward.count("convolution") == eager.backward.count("convolution_backward") == 2
    assert eager.views > 0


def test_a_version_without_the_interface_shows_the_forward_graph_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "functorch.compile", None)
    traced, left_out = graphs(program(TINY))
    assert [graph.kind for graph in traced] == [FORWARD]
    [note] = left_out
    assert note.startswith(f"the joint graph: torch {torch.__version__} lacks an interface")
    assert "functorch.compile" in note


def test_a_program_that_is_not_traced_is_said(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda compute, **_: compute)
    traced, left_out = graphs(program(TINY))
    assert traced == []
    assert "TORCH_COMPILE_DISABLE" in left_out[0]


def test_steps_take_turns_and_the_parts_add_up():
    tiny = program(TINY)
    calls = []

    def noted(name):
        def compute(*arguments):
            calls.append(name)
            return tiny.compute(*arguments)

        return compute

    steps = timed_steps(tiny, {"a": noted("a"), "b": noted("b")}, seconds=0.0)
    assert calls == ["a", "b"] * (len(calls) // 2)
    assert len(steps["a"]) == len(steps["b"]) >= 5
    assert all(
        step.total_ns == step.forward_ns + step.backward_ns + step.update_ns > 0
        for step in steps["a"]
    )


# ---- The schedule --------------------------------------------------------------------------------


def operation(name, start_us, end_us, kind=model.OPERATION):
    return ThreadEvent(name, kind, 1, round(1_000 * start_us), round(1_000 * end_us))


def profile_of(*host, device=()):
    trace = Trace(source="", host=list(host), device=list(device), flows=[], memory=[])
    link(trace)
    return trace


def two_steps():
    """A slow step and a fast one."""
    return profile_of(
        operation(ITERATION, 0, 90, model.RANGE),
        operation("aten::mul", 10, 80),
        operation(ITERATION, 100, 150, model.RANGE),
        operation("aten::conv2d", 105, 120),
        operation("aten::convolution", 106, 119),
        operation("autograd::engine::evaluate_function: MulBackward0", 121, 131),
        operation("MulBackward0", 121, 130),
        operation("aten::mul", 122, 128.5),
        operation("fused add_mul", 140, 145),
        device=[
            DeviceEvent(
                "triton_poi_fused_add_0", model.KERNEL, 147_000, 149_000, device="0", stream="0 7"
            )
        ],
    )


def test_the_schedule_is_the_outermost_operations_of_the_fastest_step():
    assert list(scheduled(two_steps(), EAGER, on_device=False)) == [
        Scheduled(EAGER, "conv2d", 5_000, 15_000),
        Scheduled(EAGER, "mul", 22_000, 6_500),
        Scheduled(EAGER, "fused add_mul", 40_000, 5_000),
    ]


def test_the_schedule_of_an_accelerator_is_its_kernels():
    assert list(scheduled(two_steps(), EAGER, on_device=True)) == [
        Scheduled(EAGER, "triton_poi_fused_add_0", 47_000, 2_000)
    ]


def test_without_a_marked_step_there_is_no_schedule():
    unmarked = profile_of(operation("aten::mul", 1, 2))
    assert list(scheduled(unmarked, EAGER, on_device=False)) == []


# ---- What cannot be compiled ---------------------------------------------------------------------


def test_the_compiler_is_the_one_that_torch_would_call(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert missing_compiler("cpu") in {"g++", "clang++"}
    monkeypatch.setenv("CXX", "my-compiler")
    assert missing_compiler("cpu") == "my-compiler"
    assert missing_compiler("cuda") == ""
    (tmp_path / "my-compiler").write_text("#!/bin/sh\n")
    (tmp_path / "my-compiler").chmod(0o755)
    assert missing_compiler("cpu") == ""


@pytest.mark.usefixtures("without_compiler")
def test_a_missing_compiler_is_one_line(tmp_path):
    with pytest.raises(CompileError, match=r"^no C\+\+ compiler: 'no-such-compiler' is not found"):
        compiled(program(TINY), tmp_path, "cpu")


def test_a_compiler_that_fails_is_one_line(monkeypatch, tmp_path):
    def failing(*_, **__):
        raise RuntimeError("first line\n\n  second line " + 500 * "x")

    monkeypatch.setattr(compiled_module, "missing_compiler", lambda _: "")
    monkeypatch.setattr(compiled_module, "_start", failing)
    with pytest.raises(CompileError) as caught:
        compiled(program(TINY), tmp_path, "cpu")
    assert "RuntimeError: first line second line x" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_version_without_an_option_is_named(monkeypatch, tmp_path):
    import torch._inductor

    monkeypatch.setattr(torch._inductor, "list_options", lambda: ["trace.enabled"])
    monkeypatch.setattr(compiled_module, "missing_compiler", lambda _: "")
    with pytest.raises(
        CompileError,
        match=rf"torch {torch.__version__.replace('+', '.')} has no option 'trace.debug_dir'",
    ):
        compiled(program(TINY), tmp_path, "cpu")


# ---- Workloads -----------------------------------------------------------------------------------

OWN = """
from mnistbench.suite.workloads.workload import builtin_workloads
ready = builtin_workloads("digits", None)[0]
number = 5

def made():
    return ready
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "graph_study_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "graph_study_own"
    sys.modules.pop("graph_study_own", None)


@pytest.mark.parametrize("attribute", ["ready", "made"])
def test_a_workload_of_ones_own_is_imported(own_module, attribute):
    assert workload(Settings(program=f"{own_module}:{attribute}")).name == "convnet"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("graph_study_own:other", "cannot be imported .*no attribute 'other'"),
        ("no_such_module:other", "cannot be imported .*No module named 'no_such_module'"),
        ("graph_study_own:number", "is int; name a Workload"),
    ],
)
def test_what_is_no_workload_is_refused(own_module, name, reason):
    with pytest.raises(UsageError, match=reason):
        workload(Settings(program=name))
