"""Which operation a kernel belongs to; the phase and the module of an operation."""

import pytest
import trace_builders as build

from mnistbench.core.compiled.names import COMPILED
from mnistbench.events import analysis


def linked(tmp_path, *events):
    return analysis.linked(build.trace_file(tmp_path, events))


def owner(tmp_path, *events):
    """The names of the operation and of the launch of the only kernel."""
    [kernel] = linked(tmp_path, *events).device
    return tuple(event and event.name for event in (kernel.operation, kernel.launch))


def test_by_external_id(tmp_path):
    names = owner(
        tmp_path,
        build.op("aten::mm", 0, 9, external=4),
        build.kernel("k", 20, 5, external=4, correlation=70),
    )
    assert names == ("aten::mm", None)


def test_by_correlation_where_the_external_id_repeats_it(tmp_path):
    """Earlier versions do so; the number may be that of another operation by chance."""
    names = owner(
        tmp_path,
        build.op("aten::other", 0, 5, external=70),
        build.op("aten::linear", 10, 30, external=1),
        build.op("aten::addmm", 12, 20, external=2),
        build.launch(15, 3, 70, external=70),
        build.kernel("k", 50, 5, external=70, correlation=70),
    )
    assert names == ("aten::addmm", "cudaLaunchKernel")


def test_an_external_id_that_is_the_correlation_by_chance_is_a_link(tmp_path):
    """Where the others of the file are not repeated, the file is no earlier version's."""
    events = [
        build.op("aten::mm", 0, 9, external=4),
        build.op("aten::add", 10, 9, external=6),
        build.kernel("k", 20, 5, external=4, correlation=4),
        build.kernel("other", 30, 5, external=6, correlation=9),
    ]
    assert [kernel.operation.name for kernel in linked(tmp_path, *events).device] == [
        "aten::mm",
        "aten::add",
    ]


def test_by_correlation_where_the_external_id_names_no_operation(tmp_path):
    events = [build.range_("all", 0, 90), build.op("aten::mm", 1, 20), build.launch(5, 3, 70)]
    assert owner(tmp_path, *events, build.kernel("k", 50, 5, external=9, correlation=70)) == (
        "aten::mm",
        "cudaLaunchKernel",
    )


def test_a_python_function_and_a_range_around_the_launch_are_passed_over(tmp_path):
    around = (
        build.op("MyFunction", 0, 90),
        build.module("Linear_0", 1, 60),
        build.range_("part", 2, 50),
    )
    names = owner(tmp_path, *around, build.launch(5, 3, 7), build.kernel("k", 95, 5, correlation=7))
    assert names == ("MyFunction", "cudaLaunchKernel")


def test_an_operation_of_another_thread_is_not_around_the_launch(tmp_path):
    events = [build.op("aten::mm", 0, 90), build.launch(5, 3, 7, thread=5)]
    assert owner(tmp_path, *events, build.kernel("k", 95, 5, correlation=7)) == (
        None,
        "cudaLaunchKernel",
    )


@pytest.mark.parametrize(
    "kernel", [{}, {"correlation": 8}, {"external": 8}, {"external": 8, "correlation": 8}]
)
def test_a_kernel_without_a_link_has_no_operation(tmp_path, kernel):
    events = [build.op("aten::mm", 0, 90, external=3), build.launch(5, 3, 7)]
    assert owner(tmp_path, *events, build.kernel("k", 50, 5, **kernel)) == (None, None)


def test_all_kernels_of_a_graph_belong_to_its_launch(tmp_path):
    events = [
        build.op("CompiledFunction", 0, 90, external=3),
        build.launch(5, 30, 7, name="cudaGraphLaunch"),
        *(build.kernel(f"k{number}", 100 + 10 * number, 5, correlation=7) for number in range(3)),
    ]
    assert [kernel.operation.name for kernel in linked(tmp_path, *events).device] == [COMPILED] * 3


def test_the_kernel_of_a_repeated_operation_belongs_to_the_one_that_is_counted(tmp_path):
    trace = linked(
        tmp_path,
        build.op("aten::to", 0, 90, external=1),
        build.op("aten::to", 1, 80, external=2),
        build.op("aten::copy_", 2, 70, external=3),
        build.kernel("k", 95, 5, external=2),
    )
    assert trace.device[0].operation is trace.host[0]


# ---- Phases and modules --------------------------------------------------------------------------


def scopes(tmp_path, *events):
    """(phase, module) by the name of the operation."""
    return {
        event.name: tuple(event.scope)
        for event in linked(tmp_path, *events).host
        if event.kind == "operation"
    }


def test_a_module_call_gives_module_and_phase(tmp_path):
    events = [
        build.module("ResNet_0", 0, 90),
        build.module("Conv2d_3", 1, 20),
        build.op("aten::conv2d", 2, 9),
        build.op("aten::relu", 40, 5),
        build.op("aten::outside", 95, 2),
    ]
    assert scopes(tmp_path, *events) == {
        "aten::conv2d": ("forward", "Conv2d_3"),
        "aten::relu": ("forward", "ResNet_0"),
        "aten::outside": ("", ""),
    }


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("Optimizer.step#SGD.step", "optimizer"),
        ("Optimizer.zero_grad#SGD.zero_grad", "optimizer"),
        ("## zero_grad ##", "optimizer"),
        ("## forward ##", "forward"),
        ("## forward:over_arch ##", "forward"),
        ("DistributedDataParallel.forward", "forward"),
        ("## backward ##", "backward"),
        ("fwd", "forward"),
        ("ProfilerStep#3", ""),
        ("forward and backward", ""),
        ("forwarding", ""),
        ("## metrics:publish ##", ""),
    ],
)
def test_a_range_names_a_phase(tmp_path, name, phase):
    assert scopes(tmp_path, build.range_(name, 0, 90), build.op("aten::mm", 2, 9)) == {
        "aten::mm": (phase, "")
    }


STEP = "Optimizer.step#SGD.step"


def closure(ts, sequence):
    """Forward of a linear layer, its loss, and backward on another thread: 100 us."""
    return [
        build.op("aten::arange", ts + 1, 3),
        build.op("aten::linear", ts + 5, 30),
        build.op("aten::addmm", ts + 8, 20, sequence=sequence),
        build.op("aten::ones_like", ts + 40, 5),
        build.backward(
            "autograd::engine::evaluate_function: AddmmBackward0", ts + 50, 40, sequence
        ),
        build.backward("AddmmBackward0", ts + 52, 30, sequence),
    ]


def phases(tmp_path, *events):
    """The phases of the operations in order."""
    return [
        (event.name.rpartition(":")[2].strip(), event.scope.phase)
        for event in linked(tmp_path, *events).host
        if event.kind == "operation"
    ]


CLOSURE_PHASES = [
    ("arange", ""),
    ("linear", "forward"),
    ("addmm", "forward"),
    ("ones_like", ""),
    ("AddmmBackward0", "backward"),
    ("AddmmBackward0", "backward"),
]


def test_a_closure_of_the_optimizer_has_the_phases_that_it_has_outside(tmp_path):
    update = build.op("aten::_foreach_add_", 150, 20)
    assert phases(tmp_path, *closure(20, 7), build.range_(STEP, 140, 50), update) == [
        *CLOSURE_PHASES,
        ("_foreach_add_", "optimizer"),
    ]
    assert phases(tmp_path, *closure(20, 7), build.range_(STEP, 10, 180), update) == [
        *CLOSURE_PHASES,
        ("_foreach_add_", "optimizer"),
    ]


def test_an_optimizer_that_calls_its_closure_twice(tmp_path):
    """LBFGS does so, and computes between the calls."""
    events = [
        build.range_(STEP, 0, 400),
        build.op("aten::first", 110, 5),
        build.op("aten::second", 310, 5),
    ]
    assert (
        phases(tmp_path, *closure(0, 7), *closure(200, 8), *events)
        == [
            *CLOSURE_PHASES,
            ("first", "optimizer"),
            ("arange", "optimizer"),  # it may be a part of the optimizer as well
            *CLOSURE_PHASES[1:],
            ("second", "optimizer"),
        ]
    )


def test_ranges_and_functions_around_and_in_a_closure(tmp_path):
    """As in a trace of Lightning with stacks."""
    events = [
        build.range_("[pl][profile][LightningModule]Net.optimizer_step", 0, 300),
        build.module("Trainer_0", 0, 300) | {"name": "trainer.py(12): run"},
        build.range_(STEP, 5, 290),
        build.event("python_function", "sgd.py(77): step", 6, 288),
        build.event("python_function", "trainer.py(99): closure", 7, 150),
        build.range_("Optimizer.zero_grad#SGD.zero_grad", 8, 10),
        build.op("aten::zero_", 10, 5),
        build.range_("[pl][profile][Strategy]SingleDeviceStrategy.training_step", 20, 100),
        *closure(20, 7),
        build.op("aten::_foreach_add_", 200, 20),
    ]
    assert phases(tmp_path, *events) == [
        ("zero_", "optimizer"),
        *CLOSURE_PHASES,
        ("_foreach_add_", "optimizer"),
    ]


def test_the_operations_of_an_optimizer_with_a_backward_are_no_closure(tmp_path):
    """Those of one with ``differentiable=True``: autograd runs their backward after the step."""
    events = [
        build.range_(STEP, 0, 40),
        build.op("aten::add", 10, 5, sequence=4),
        build.backward("AddBackward0", 60, 10, 4),
    ]
    assert phases(tmp_path, *events) == [("add", "optimizer"), ("AddBackward0", "backward")]


def test_a_closure_around_the_end_of_a_step(tmp_path):
    """Lightning calls ``prof.step()`` between the forward and the backward of a closure."""
    events = [
        build.step(1, 0, 65),
        build.step(2, 66, 234),
        build.range_(STEP, 10, 250),
        build.event("python_function", "sgd.py(77): step", 11, 248),
        *closure(20, 7),
        build.op("aten::_foreach_add_", 200, 20),
        build.op("aten::after", 270, 10),
    ]
    assert phases(tmp_path, *events) == [
        *CLOSURE_PHASES,
        ("_foreach_add_", "optimizer"),
        ("after", ""),
    ]


@pytest.mark.parametrize(
    "ranges",
    [
        # the program calls prof.step() in the range
        [build.step(1, 0, 100), build.step(2, 101, 100), build.range_("## forward ##", 50, 130)],
        # and in a function of Python in it
        [
            build.step(1, 0, 100),
            build.step(2, 101, 100),
            build.range_("## forward ##", 50, 130),
            build.event("python_function", "train.py(3): f", 60, 110),
        ],
        # the range begins before the first step
        [build.range_("## forward ##", -50, 230), build.step(1, 0, 300)],
        # it lasts for a whole step
        [
            build.step(0, 0, 10),
            build.step(1, 10, 100),
            build.step(2, 110, 100),
            build.range_("## forward ##", 5, 175),
        ],
        # another range, or a function, begins in it and ends after it
        [build.range_("## forward ##", 0, 180), build.range_("other", 140, 60)],
        [
            build.range_("## forward ##", 0, 180),
            build.event("python_function", "train.py(3): f", 140, 60),
        ],
        # both at once
        [
            build.step(1, 0, 100),
            build.step(2, 100, 100),
            build.range_("## forward ##", 50, 130),
            build.range_("other", 60, 170),
        ],
    ],
)
def test_a_range_gives_its_phase_until_it_ends(tmp_path, ranges):
    events = [build.op("aten::mm", 150, 10), build.op("aten::add", 185, 10)]
    assert scopes(tmp_path, *ranges, *events) == {
        "aten::mm": ("forward", ""),
        "aten::add": ("", ""),
    }


def training(*, with_links):
    """A linear layer in a module, its backward on another thread."""
    forward = build.op("aten::addmm", 3, 9, sequence=5)
    node = build.backward("autograd::engine::evaluate_function: AddmmBackward0", 50, 30, 5)
    inner = build.backward("AddmmBackward0", 52, 25, 5)
    events = [
        build.module("Linear_0", 0, 20),
        build.op("aten::linear", 1, 15),
        forward,
        node,
        inner,
        build.op("aten::mm", 54, 9, thread=build.BACKWARD_THREAD),
        build.op(
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
            85,
            5,
            thread=build.BACKWARD_THREAD,
        ),
        build.op("aten::detach", 86, 2, thread=build.BACKWARD_THREAD),
    ]
    return [*events, *(build.forward_backward(1, forward, inner) if with_links else [])]


@pytest.mark.parametrize("with_links", [True, False])
def test_backward_is_in_the_module_of_its_forward(tmp_path, with_links):
    scope_of = scopes(tmp_path, *training(with_links=with_links))
    assert {name: scope_of[name] for name in scope_of if "Addmm" in name or name == "aten::mm"} == {
        "autograd::engine::evaluate_function: AddmmBackward0": ("backward", "Linear_0"),
        "AddmmBackward0": ("backward", "Linear_0"),
        "aten::mm": ("backward", "Linear_0"),
    }
    assert scope_of["aten::detach"] == ("backward", "")


def test_without_modules_an_operation_is_forward_if_it_has_a_backward(tmp_path):
    forward = build.op("aten::addmm", 3, 9, sequence=5)
    node = build.backward("AddmmBackward0", 50, 30, 5)
    other_operations = [
        build.op("aten::linear", 1, 15),
        build.op("aten::t", 2, 1),
        build.op("aten::to", 30, 5, sequence=6),
    ]
    assert scopes(tmp_path, forward, node, *other_operations) == {
        "aten::linear": ("forward", ""),
        "aten::t": ("forward", ""),
        "aten::addmm": ("forward", ""),
        "aten::to": ("", ""),
        "AddmmBackward0": ("backward", ""),
    }


def test_the_last_operation_with_the_number_made_the_node(tmp_path):
    events = [
        build.module("First_0", 0, 10),
        build.op("aten::a", 1, 5, sequence=5),
        build.module("Second_0", 20, 10),
        build.op("aten::b", 21, 5, sequence=5),
        build.backward("Backward0", 50, 30, 5),
    ]
    assert scopes(tmp_path, *events)["Backward0"] == ("backward", "Second_0")


def test_a_number_of_two_threads_is_ambiguous_without_a_link(tmp_path):
    first = build.op("aten::a", 1, 5, sequence=5)
    second = build.op("aten::b", 1, 5, sequence=5, thread=300)
    node = build.backward("Backward0", 50, 30, 5)
    modules = [build.module("First_0", 0, 10)]
    assert scopes(tmp_path, *modules, first, second, node)["Backward0"] == ("backward", "")
    linked = build.forward_backward(1, first, node)
    assert scopes(tmp_path, *modules, first, second, node, *linked)["Backward0"] == (
        "backward",
        "First_0",
    )


def test_a_forward_that_is_computed_again_in_backward_is_forward(tmp_path):
    thread = build.BACKWARD_THREAD
    again = {**build.module("Linear_0", 60, 10), "tid": thread}
    events = [
        build.backward(
            "autograd::engine::evaluate_function: CheckpointFunctionBackward", 50, 40, 5
        ),
        again,
        build.op("aten::addmm", 62, 5, thread=thread),
    ]
    assert scopes(tmp_path, *events)["aten::addmm"] == ("forward", "Linear_0")


def test_the_ranges_of_mnistbench_are_used_alone(tmp_path):
    events = [
        build.range_("mnistbench.phase:forward", 0, 40),
        build.range_("mnistbench.module:fc1", 1, 20),
        build.module("Linear_0", 2, 15),
        build.op("aten::addmm", 3, 9, sequence=5),
        build.op("aten::nll_loss", 30, 5),
        build.op("aten::other", 45, 2, sequence=6),
        build.backward("OtherBackward0", 80, 2, 6),
        build.backward("autograd::engine::evaluate_function: AddmmBackward0", 50, 20, 5),
    ]
    assert scopes(tmp_path, *events) == {
        "aten::addmm": ("forward", "fc1"),
        "aten::nll_loss": ("forward", ""),
        "aten::other": ("", ""),
        "autograd::engine::evaluate_function: AddmmBackward0": ("backward", "fc1"),
        "OtherBackward0": ("backward", ""),
    }


def test_the_module_hierarchy_of_torchscript(tmp_path):
    described = build.event(
        "cpu_op", "aten::add", 1, 5, **{"Module Hierarchy": "TOP(C)::forward.A0(A)::forward"}
    )
    assert scopes(tmp_path, described)["aten::add"] == ("", "A0")


def test_the_module_hierarchy_is_not_used_once_autograd_ran_on_the_thread(tmp_path):
    """From then on torch writes the hierarchy of one operation into another."""
    script = {"Module Hierarchy": "TOP(C)::forward.A0(A)::forward"}
    events = [
        build.event("cpu_op", "aten::before", 1, 5, **script),
        build.op("MulBackward0", 10, 5, sequence=3, forward_thread=1),
        build.event("cpu_op", "aten::after", 20, 5, **script),
        build.event("cpu_op", "aten::other", 20, 5, thread=7, **script),
    ]
    scope_of = scopes(tmp_path, *events)
    assert [scope_of[name][1] for name in ("aten::before", "aten::after", "aten::other")] == [
        "A0",
        "",
        "A0",
    ]
