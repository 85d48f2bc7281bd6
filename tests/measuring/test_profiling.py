"""Operation tables of real cases, and the arithmetic of a table on events made by hand."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders import params
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity
from torch_builders import CPU, LossSpy, tiny_batch, tiny_model, tiny_params, tiny_workload

from mnistbench.core.record import OUTSIDE, UNTIED, OpRow, OpTable
from mnistbench.measuring import profiling
from mnistbench.measuring.case import Case, build, fork_random, thread_count
from mnistbench.measuring.profiling import LOSS, MODEL, has_device_view, marked, profile, profile_first_call, table
from mnistbench.workloads.models import ConvNet, LeNet5
from mnistbench.workloads.workload import Workload


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    with thread_count(1), fork_random(CPU):
        yield


def digit_batch(batch_size: int, device: torch.device, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(batch_size, 1, 28, 28, generator=generator, device=device)
    return inputs, torch.randint(10, (batch_size,), generator=generator, device=device)


def adadelta(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(parameters, lr=1.0)


def network(name: str, **changes: Any) -> Workload:
    make_model = {"convnet": ConvNet, "lenet5": LeNet5}[name]
    brought = {"make_model": make_model, "make_batch": digit_batch, "make_optimizer": adadelta, **changes}
    return tiny_workload(name=name, **brought)


ITERATIONS = 3


@pytest.fixture(scope="module")
def lenet_step() -> OpTable:
    """A step of LeNet at batch 64, with shapes."""
    case = build(params(workload="lenet5", batch_size=64), network("lenet5"))
    return profile(case, iterations=ITERATIONS, shapes=True)


@pytest.fixture(scope="module")
def convnet_step() -> OpTable:
    return profile(build(params(batch_size=2), network("convnet")), iterations=ITERATIONS)


@pytest.fixture(scope="module")
def convnet_forward() -> OpTable:
    case = build(params(phase="forward", batch_size=64), network("convnet"))
    return profile(case, iterations=ITERATIONS, shapes=True)


def rows_of(table: OpTable, name: str, phase: str | None = None) -> dict[str, OpRow]:
    """The rows of an operation by module."""
    return {row.module: row for row in table.rows if row.name == name and phase in (None, row.phase)}


# ---- Real cases ------------------------------------------------------------------------------------------------------


class TestShapes:
    def test_at_batch_64_the_images_have_64(self, lenet_step: OpTable, convnet_forward: OpTable) -> None:
        (shapes,) = rows_of(lenet_step, "aten::conv2d")["conv1"].shapes
        assert shapes.startswith("[[64, 1, 28, 28], [6, 1, 5, 5], [6],")
        (shapes,) = rows_of(convnet_forward, "aten::conv2d")["conv2"].shapes
        assert shapes.startswith("[[64, 32, 26, 26], [64, 32, 3, 3], [64],")

    def test_at_batch_64_the_gradients_have_64(self, lenet_step: OpTable) -> None:
        (shapes,) = rows_of(lenet_step, "aten::convolution_backward")["conv2"].shapes
        assert shapes.startswith("[[64, 16, 10, 10], [64, 6, 14, 14], [16, 6, 5, 5],")

    def test_distinct_shapes_are_kept_once(self, lenet_step: OpTable) -> None:
        assert rows_of(lenet_step, "aten::mm")["fc2"].shapes == (
            "[[64, 84], [84, 120]]",
            "[[84, 64], [64, 120]]",
        )

    def test_there_are_none_unless_asked_for(self, convnet_step: OpTable) -> None:
        assert {row.shapes for row in convnet_step.rows} == {()}


class TestPlaces:
    @pytest.mark.parametrize("table_name", ["lenet_step", "convnet_step", "convnet_forward"])
    def test_no_forward_operation_is_without_a_module(self, table_name: str, request: pytest.FixtureRequest) -> None:
        rows = [row for row in request.getfixturevalue(table_name).rows if row.phase == "forward"]
        assert [row.name for row in rows if row.module in (UNTIED, MODEL)] == [OUTSIDE]

    def test_train_mode_drops_out(self, convnet_step: OpTable) -> None:
        assert rows_of(convnet_step, "aten::bernoulli_").keys() == {"dropout1", "dropout2"}

    def test_eval_mode_drops_nothing_out(self, convnet_forward: OpTable) -> None:
        assert rows_of(convnet_forward, "aten::bernoulli_") == {}

    def test_inference_has_no_backward_and_no_optimizer(self, convnet_forward: OpTable) -> None:
        assert {row.phase for row in convnet_forward.rows if row.is_operation} == {"forward"}

    @pytest.mark.parametrize(
        ("operation", "modules"),
        [
            ("aten::convolution_backward", {"conv1", "conv2"}),
            ("aten::mm", {"fc1", "fc2"}),
            ("aten::threshold_backward", {"relu1", "relu2", "relu3"}),
            ("aten::max_pool2d_with_indices_backward", {"pool"}),
            ("aten::_log_softmax_backward_data", {"log_softmax"}),
            ("aten::nll_loss_backward", {LOSS}),
            ("MulBackward0", {"dropout1", "dropout2"}),
            ("ViewBackward0", {"flatten"}),
        ],
    )
    def test_backward_belongs_to_the_module_of_its_forward(
        self, convnet_step: OpTable, operation: str, modules: set[str]
    ) -> None:
        assert rows_of(convnet_step, operation, "backward").keys() == modules
        assert rows_of(convnet_step, operation).keys() == modules

    def test_backward_of_each_layer_has_that_layers_shapes(self, lenet_step: OpTable) -> None:
        backward = rows_of(lenet_step, "aten::convolution_backward")
        weights = {module: row.shapes[0].split("], [")[2] for module, row in backward.items()}
        assert weights == {"conv1": "6, 1, 5, 5", "conv2": "16, 6, 5, 5"}

    def test_accumulating_a_gradient_is_untied(self, convnet_step: OpTable) -> None:
        (row,) = (row for row in convnet_step.rows if row.name == "torch::autograd::AccumulateGrad")
        assert (row.phase, row.module, row.calls) == ("backward", UNTIED, 8)

    def test_optimizer_is_untied(self, convnet_step: OpTable) -> None:
        rows = [row for row in convnet_step.rows if row.name == "aten::addcmul_"]
        assert [(row.phase, row.module, row.calls) for row in rows] == [("optimizer", UNTIED, 2 * 8)]
        assert {row.module for row in convnet_step.rows if row.phase == "optimizer"} == {UNTIED}

    def test_loss_has_a_place_of_its_own(self, convnet_step: OpTable) -> None:
        assert rows_of(convnet_step, "aten::nll_loss_nd").keys() == {LOSS}

    def test_nothing_is_in_a_phase_that_is_not_known(self, convnet_step: OpTable) -> None:
        assert {row.phase for row in convnet_step.rows if row.is_operation} == {"forward", "backward", "optimizer"}


class TestNumbers:
    @pytest.mark.parametrize("table_name", ["lenet_step", "convnet_step", "convnet_forward"])
    def test_one_sample_per_iteration(self, table_name: str, request: pytest.FixtureRequest) -> None:
        found = request.getfixturevalue(table_name)
        assert len(found.iteration_ns) == ITERATIONS
        assert {len(row.self_cpu_ns) for row in found.rows} == {ITERATIONS}
        assert {len(row.total_cpu_ns) for row in found.rows} == {ITERATIONS}

    @pytest.mark.parametrize("table_name", ["lenet_step", "convnet_step", "convnet_forward"])
    @pytest.mark.parametrize("slot", range(ITERATIONS))
    def test_self_times_of_the_rows_add_up_to_the_iteration(
        self, table_name: str, slot: int, request: pytest.FixtureRequest
    ) -> None:
        found = request.getfixturevalue(table_name)
        assert abs(found.iteration_ns[slot] - sum(row.self_cpu_ns[slot] for row in found.rows)) <= len(found.rows)

    def test_calls_are_per_iteration(self, lenet_step: OpTable) -> None:
        calls = {row.module: row.calls for row in lenet_step.rows if row.name == "aten::addmm"}
        assert calls == {"fc1": 1, "fc2": 1, "fc3": 1}
        assert sum(row.calls for row in lenet_step.rows if row.name == "aten::mm") == 6

    def test_total_time_holds_the_operations_called(self, lenet_step: OpTable) -> None:
        linear, addmm = (rows_of(lenet_step, name)["fc1"] for name in ("aten::linear", "aten::addmm"))
        for slot in range(ITERATIONS):
            assert linear.total_cpu_ns[slot] >= linear.self_cpu_ns[slot] + addmm.total_cpu_ns[slot]

    def test_memory_is_bytes_per_iteration(self, lenet_step: OpTable) -> None:
        assert rows_of(lenet_step, "aten::clamp_min")["relu1"].memory_bytes == 64 * 6 * 28 * 28 * 4
        assert rows_of(lenet_step, "aten::threshold_backward")["relu4"].memory_bytes == 64 * 84 * 4

    def test_without_a_device_there_is_no_device_time(self, convnet_step: OpTable) -> None:
        assert (convnet_step.temperature, convnet_step.view, convnet_step.first_of_process) == ("warm", "host", False)
        assert {row.self_device_ns for row in convnet_step.rows} == {()}

    def test_no_two_rows_are_the_same_operation(self, convnet_step: OpTable) -> None:
        keys = [row.key for row in convnet_step.rows]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize("first", [True, False])
def test_cold_table_is_the_first_call_alone(first: bool) -> None:
    spy = LossSpy()
    found = profile_first_call(build(tiny_params(), tiny_workload(loss=spy)), first_of_process=first)
    assert (found.temperature, found.view, found.first_of_process) == ("cold", "host", first)
    assert len(found.iteration_ns) == 1
    assert len(spy.values) == 1
    assert {row.calls for row in found.rows if row.name == "aten::linear"} == {1}


def test_cold_table_of_inference_is_forward_only() -> None:
    found = profile_first_call(build(tiny_params(phase="forward"), tiny_workload()), first_of_process=False)
    assert {row.phase for row in found.rows if row.is_operation} == {"forward"}


def test_profiling_starts_from_where_the_case_began() -> None:
    spy = LossSpy()
    case = build(tiny_params(), tiny_workload(loss=spy, make_optimizer=adadelta))
    losses, tables = [], []
    for calls_before in (0, 5):
        for _ in range(calls_before):
            case()
        spy.values.clear()
        tables.append(profile(case, iterations=4))
        losses.append(list(spy.values))
    assert losses[0] == losses[1]
    assert len(set(losses[0])) > 1
    first, second = ({row.key: (row.calls, row.memory_bytes) for row in found.rows} for found in tables)
    assert first == second


def test_the_collector_runs_while_the_case_does_and_rests_while_its_events_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    collecting, parsing = [], []
    leave = torch.profiler.profile.__exit__

    def leave_and_note(*arguments: Any) -> None:
        parsing.append(gc.isenabled())
        leave(*arguments)

    profiling.cost_per_call(tuple(profiling.activities_of("cpu", "host")))  # has profiles of its own, once
    monkeypatch.setattr(torch.profiler.profile, "__exit__", leave_and_note)
    case = build(tiny_params(), tiny_workload())
    case.model.register_forward_hook(lambda *_: collecting.append(gc.isenabled()))
    profile(case, iterations=3)
    assert (set(collecting), parsing) == ({True}, [False])
    assert gc.isenabled()


def test_what_is_profiled_is_the_case_itself() -> None:
    """The same number of calls, profiled and plain, leave the same weights."""
    profiled, plain = (build(tiny_params(), tiny_workload()) for _ in range(2))
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    hook = profiled.model.register_forward_hook(count)
    profile(profiled, iterations=3)
    hook.remove()
    plain.reset()
    for _ in range(calls):
        plain()
    assert all(torch.equal(*pair) for pair in zip(profiled.model.parameters(), plain.model.parameters(), strict=True))


# ---- Models that are not a chain of layers ---------------------------------------------------------------------------


class Branching(nn.Module):
    """Layers within layers, one used twice, an operation of the model's own and one of a block's own."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.inner(x))

    def __init__(self) -> None:
        super().__init__()
        self.block = self.Block()
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.block(x.flatten(1)))
        return torch.log_softmax(self.out(x), dim=1)


@pytest.fixture(scope="module")
def branching_step() -> OpTable:
    return profile(build(tiny_params(), tiny_workload(make_model=Branching)), iterations=2)


@pytest.mark.parametrize(
    ("operation", "phase", "calls"),
    [
        ("aten::addmm", "forward", {"block.inner": 2, "out": 1}),
        ("aten::tanh", "forward", {"block": 2}),
        ("aten::tanh_backward", "backward", {"block": 2}),
        ("aten::log_softmax", "forward", {MODEL: 1}),
        ("aten::_log_softmax_backward_data", "backward", {MODEL: 1}),
        ("AddmmBackward0", "backward", {"block.inner": 2, "out": 1}),
    ],
)
def test_the_innermost_module_owns_an_operation(
    branching_step: OpTable, operation: str, phase: str, calls: dict[str, int]
) -> None:
    assert {module: row.calls for module, row in rows_of(branching_step, operation, phase).items()} == calls


class Telltale(torch.optim.SGD):
    """Runs an operation of its own in each of its parts."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        torch.ones(1).cos()
        super().zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        torch.ones(1).sin()
        super().step(closure)


def test_each_part_of_a_step_is_in_its_phase() -> None:
    def loss(output: Tensor, targets: Tensor) -> Tensor:
        torch.ones(1).tan()
        return nn.functional.nll_loss(output, targets)

    workload = tiny_workload(loss=loss, make_optimizer=lambda parameters: Telltale(parameters, lr=0.1))
    found = profile(build(tiny_params(), workload), iterations=1)
    telltales = ("aten::cos", "aten::tan", "aten::sin")
    assert {row.key for row in found.rows if row.name in telltales} == {
        ("aten::cos", "optimizer", UNTIED),
        ("aten::tan", "forward", LOSS),
        ("aten::sin", "optimizer", UNTIED),
    }


class FailsOnce(nn.Module):
    """Raises in its first forward, inside a layer."""

    class Layer(nn.Linear):
        fails = True

        def forward(self, x: Tensor) -> Tensor:
            output = super().forward(x)
            if self.fails:
                self.fails = False
                raise RuntimeError("once")
            return output

    def __init__(self) -> None:
        super().__init__()
        self.hidden = self.Layer(16, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.out(self.hidden(x.flatten(1))), dim=1)


def test_a_layer_that_raised_is_left_before_the_next_one_is_entered() -> None:
    case = build(tiny_params(), tiny_workload(make_model=FailsOnce))
    work = case._work

    def work_again_after_a_failure() -> None:
        try:
            work()
        except RuntimeError:
            work()

    case._work = work_again_after_a_failure
    found = profile_first_call(case, first_of_process=False)
    assert {module: row.calls for module, row in rows_of(found, "aten::linear").items()} == {"hidden": 2, "out": 1}
    assert rows_of(found, "aten::log_softmax").keys() == {MODEL}


# ---- Marks -----------------------------------------------------------------------------------------------------------


def traces_of_marks(case: Case) -> dict[str, object]:
    """All that marking could leave: attributes of the runner, hooks and attributes of the modules."""
    return {
        "runner": {name: id(value) for name, value in vars(case.runner).items()},
        **{
            name: {key: copy.copy(value) for key, value in vars(module).items() if "hook" in key}
            for name, module in case.model.named_modules()
        },
    }


@pytest.mark.parametrize("phase", ["forward", "step"])
def test_marks_leave_nothing_behind(phase: str) -> None:
    case = build(tiny_params(phase=phase), tiny_workload())
    before = traces_of_marks(case)
    with marked(case):
        assert traces_of_marks(case) != before
    assert traces_of_marks(case) == before
    profile(case, iterations=1)
    profile_first_call(case, first_of_process=False)
    assert traces_of_marks(case) == before


@pytest.mark.parametrize("run", ["cold", "warm"])
def test_marks_leave_nothing_behind_when_the_case_raises(run: str) -> None:
    calls = 0

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == (1 if run == "cold" else 4):  # the warm pass is marked from its third call on
            raise RuntimeError("in the loss")
        return nn.functional.nll_loss(output, targets)

    case = build(tiny_params(), tiny_workload(loss=loss))
    before = traces_of_marks(case)
    with pytest.raises(RuntimeError, match=r"^in the loss$"):
        profile_first_call(case, first_of_process=False) if run == "cold" else profile(case, iterations=3)
    assert traces_of_marks(case) == before


def test_hooks_of_others_stay() -> None:
    case = build(tiny_params(), tiny_workload())
    calls: list[int] = []
    case.model.register_forward_hook(lambda *_: calls.append(1))
    profile(case, iterations=1)
    calls.clear()
    case()
    assert calls == [1]


def test_modules_of_a_compiled_model_are_not_marked() -> None:
    case = build(tiny_params(), tiny_workload())
    case.params = tiny_params(compile=True)  # compiling takes long, and is not what is looked at
    modules = {name: trace for name, trace in traces_of_marks(case).items() if name != "runner"}
    with marked(case):
        assert {name: trace for name, trace in traces_of_marks(case).items() if name != "runner"} == modules
    found = profile(case, iterations=1)
    assert {row.module for row in found.rows} == {UNTIED, LOSS}
    assert {row.phase for row in found.rows if row.is_operation} == {"forward", "backward", "optimizer"}


def test_a_case_that_is_not_profiled_cannot_be_marked() -> None:
    case = build(tiny_params(phase="batch"), tiny_workload())
    with pytest.raises(AssertionError, match="only a case with a runner"), marked(case):
        pass


@pytest.mark.parametrize(
    ("device", "watched"), [("cpu", False), ("cuda", True), ("cuda:1", True), ("xpu", True), ("mps", False)]
)
def test_which_devices_the_profiler_can_watch(device: str, watched: bool) -> None:
    assert has_device_view(device) is watched


# ---- Events made by hand: microseconds -------------------------------------------------------------------------------

MAIN, ENGINE = 1, 2  # threads
OPERATION, RANGE = 0, 7  # scopes


def event(name: str, start: float, end: float, *children: Any, thread: int = MAIN, **fields: Any) -> Any:
    """What the profiler gives, self time and parents worked out from the children."""
    made = SimpleNamespace(
        name=name,
        scope=OPERATION,
        thread=thread,
        fwd_thread=0,
        sequence_nr=-1,
        device_type=DeviceType.CPU,
        cpu_parent=None,
        cpu_children=list(children),
        input_shapes=[],
        kernels=[],
        self_cpu_memory_usage=0,
        self_device_memory_usage=0,
        self_device_time_total=0.0,
        time_range=SimpleNamespace(start=start, end=end),
        cpu_time_total=end - start,
        self_cpu_time_total=end - start - sum(child.cpu_time_total for child in children),
    )
    vars(made).update(fields)
    for child in children:
        child.cpu_parent = made
    return made


def iteration(start: float, end: float, *children: Any) -> Any:
    return event("mnistbench.iteration", start, end, *children, scope=RANGE)


def phase(name: str, start: float, end: float, *children: Any) -> Any:
    return event(f"mnistbench.phase:{name}", start, end, *children, scope=RANGE)


def module(name: str, start: float, end: float, *children: Any) -> Any:
    return event(f"mnistbench.module:{name}", start, end, *children, scope=RANGE)


def node(name: str, start: float, end: float, *children: Any, sequence_nr: int, **fields: Any) -> Any:
    """A node of the autograd graph as the engine evaluates it."""
    applied = event(name, start, end, *children, sequence_nr=sequence_nr, fwd_thread=MAIN, **fields)
    return event(
        f"autograd::engine::evaluate_function: {name}", start, end, applied, sequence_nr=sequence_nr, fwd_thread=MAIN, **fields
    )


def everything(*roots: Any) -> list[Any]:
    """Return all the events of the trees; children last, as no order is promised."""
    return [*roots, *(below for root in roots for below in everything(*root.cpu_children))]


def table_of(*roots: Any, view: str = "host", **others: Any) -> OpTable:
    return table(everything(*roots), temperature="warm", view=view, **others)


def by_key(found: OpTable) -> dict[tuple[str, str, str], OpRow]:
    assert len({row.key for row in found.rows}) == len(found.rows)
    return {row.key: row for row in found.rows}


class TestTable:
    def test_phases_and_what_lies_outside_operations(self) -> None:
        rows = by_key(
            table_of(
                iteration(
                    0, 100,
                    phase("optimizer", 1, 5, event("aten::zero_", 2, 3)),
                    phase("forward", 10, 40, event("aten::mul", 11, 31)),
                    phase("backward", 40, 70, event("aten::ones_like", 41, 43)),
                    event("aten::empty", 80, 90),
                )
            )
        )  # fmt: skip
        assert {key: row.self_cpu_ns for key, row in rows.items()} == {
            ("aten::zero_", "optimizer", UNTIED): (1_000,),
            ("aten::mul", "forward", UNTIED): (20_000,),
            ("aten::ones_like", "backward", UNTIED): (2_000,),
            ("aten::empty", "", UNTIED): (10_000,),
            (OUTSIDE, "optimizer", UNTIED): (3_000,),
            (OUTSIDE, "forward", UNTIED): (10_000,),
            (OUTSIDE, "backward", UNTIED): (28_000,),
            (OUTSIDE, "", UNTIED): (100_000 - 4_000 - 30_000 - 30_000 - 10_000,),
        }

    def test_what_lies_outside_operations_is_never_counted_twice(self) -> None:
        found = by_key(table_of(iteration(0, 100, phase("forward", 0, 80, module("fc1", 0, 70, event("aten::mul", 0, 50))))))
        assert found[OUTSIDE, "forward", UNTIED].self_cpu_ns == (30_000,)
        assert found[OUTSIDE, "forward", UNTIED].total_cpu_ns == (30_000,)
        assert found[OUTSIDE, "", UNTIED].total_cpu_ns == (20_000,)

    def test_the_innermost_module_wins(self) -> None:
        rows = by_key(
            table_of(
                iteration(
                    0, 100,
                    phase(
                        "forward", 0, 90,
                        module(
                            MODEL, 0, 80,
                            event("aten::relu", 0, 5),
                            module(
                                "block", 10, 50,
                                event("aten::relu", 10, 20),
                                module("block.fc", 20, 40, event("aten::relu", 20, 33)),
                            ),
                            event("aten::relu", 60, 67),
                        ),
                    ),
                )
            )
        )  # fmt: skip
        assert {key[2]: row.self_cpu_ns for key, row in rows.items() if key[0] == "aten::relu"} == {
            MODEL: (12_000,),
            "block": (10_000,),
            "block.fc": (13_000,),
        }

    def test_an_operation_called_by_another_has_its_module(self) -> None:
        called = event("aten::addmm", 2, 8)
        calling = event("aten::linear", 1, 10, called)
        rows = by_key(table_of(iteration(0, 20, phase("forward", 0, 20, module("fc1", 0, 20, calling)))))
        linear, addmm = rows["aten::linear", "forward", "fc1"], rows["aten::addmm", "forward", "fc1"]
        assert (linear.self_cpu_ns, linear.total_cpu_ns) == ((3_000,), (9_000,))
        assert (addmm.self_cpu_ns, addmm.total_cpu_ns) == ((6_000,), (6_000,))

    def test_a_phase_within_a_module_is_not_the_modules(self) -> None:
        rows = by_key(table_of(iteration(0, 9, module("fc1", 0, 9, phase("optimizer", 1, 8, event("aten::add_", 2, 3))))))
        assert ("aten::add_", "optimizer", UNTIED) in rows

    def test_a_module_that_is_run_again_in_the_backward_pass_stays_in_that_phase(self) -> None:
        """As activation checkpointing does it."""
        again = module("fc1", 41, 60, event("aten::addmm", 42, 59))
        rows = by_key(table_of(iteration(0, 90, phase("backward", 40, 80, again))))
        assert ("aten::addmm", "backward", "fc1") in rows

    def test_loss_and_its_backward_are_named_for_it(self) -> None:
        loss = event("aten::nll_loss", 31, 35, sequence_nr=7)
        backward = node("NllLossBackward0", 41, 45, event("aten::nll_loss_backward", 42, 44), sequence_nr=7)
        rows = by_key(
            table_of(
                iteration(
                    0, 100,
                    phase("forward", 30, 40, module(LOSS, 30, 40, loss)),
                    phase("backward", 40, 50, backward),
                )
            )
        )  # fmt: skip
        assert {key for key in rows if key[2] == LOSS} == {
            ("aten::nll_loss", "forward", LOSS),
            ("autograd::engine::evaluate_function: NllLossBackward0", "backward", LOSS),
            ("NllLossBackward0", "backward", LOSS),
            ("aten::nll_loss_backward", "backward", LOSS),
        }

    def test_ranges_of_an_optimizer_are_not_operations(self) -> None:
        own = event("Optimizer.step#Adadelta.step", 1, 9, event("aten::add_", 2, 5), scope=RANGE)
        rows = by_key(table_of(iteration(0, 10, phase("optimizer", 0, 10, own))))
        assert set(rows) == {("aten::add_", "optimizer", UNTIED), (OUTSIDE, "optimizer", UNTIED), (OUTSIDE, "", UNTIED)}
        assert rows[OUTSIDE, "optimizer", UNTIED].self_cpu_ns == (7_000,)

    def test_events_outside_iterations_are_dropped(self) -> None:
        roots = [
            phase("forward", 0, 90, event("aten::mul", 0, 50)),
            iteration(100, 200, phase("forward", 100, 190, event("aten::mul", 110, 120))),
            event("aten::add", 210, 220),
            iteration(300, 400, phase("forward", 300, 390, event("aten::mul", 310, 340))),
            event("aten::add", 410, 420),
        ]
        found = table_of(*roots)
        rows = by_key(found)
        assert found.iteration_ns == (100_000, 100_000)
        assert rows["aten::mul", "forward", UNTIED].self_cpu_ns == (10_000, 30_000)
        assert "aten::add" not in {name for name, _, _ in rows}

    def test_iterations_in_any_order_each_have_their_slot(self) -> None:
        late = iteration(300, 400, event("aten::mul", 310, 340))
        early = iteration(100, 200, event("aten::mul", 110, 120))
        assert by_key(table_of(late, early))["aten::mul", "", UNTIED].self_cpu_ns == (10_000, 30_000)

    def test_calls_are_the_mean_over_iterations_that_differ(self) -> None:
        found = table_of(
            iteration(0, 100, event("aten::mul", 0, 10), event("aten::add", 20, 25)),
            iteration(100, 200, event("aten::mul", 100, 107), event("aten::mul", 110, 113), event("aten::neg", 120, 121)),
        )
        rows = {row.name: row for row in found.rows}
        assert {name: row.calls for name, row in rows.items() if name != OUTSIDE} == {
            "aten::mul": 1.5,
            "aten::add": 0.5,
            "aten::neg": 0.5,
        }
        assert rows["aten::mul"].self_cpu_ns == (10_000, 10_000)
        assert rows["aten::add"].self_cpu_ns == (5_000, 0)
        assert rows["aten::neg"].self_cpu_ns == (0, 1_000)

    def test_memory_is_the_median_of_the_iterations_sums(self) -> None:
        def allocating(start: float, *sizes: int) -> Any:
            calls = [event("aten::empty", start, start, self_cpu_memory_usage=size) for size in sizes]
            return iteration(start, start + 10, *calls)

        rows = by_key(table_of(allocating(0, 100, -40), allocating(100, 500), allocating(200, 90, 10)))
        assert rows["aten::empty", "", UNTIED].memory_bytes == 100

    def test_shapes_are_kept_once_and_sorted(self) -> None:
        shapes = [[[2, 3]], [[1]], [[2, 3]], []]
        shaped = [event("aten::mm", at, at + 1, input_shapes=shape) for at, shape in enumerate(shapes)]
        assert by_key(table_of(iteration(0, 10, *shaped)))["aten::mm", "", UNTIED].shapes == ("[[1]]", "[[2, 3]]")

    def test_times_are_rounded_to_nanoseconds(self) -> None:
        found = table_of(iteration(0, 10.0004, event("aten::mul", 0, 1.2346)))
        assert found.iteration_ns == (10_000,)
        assert by_key(found)["aten::mul", "", UNTIED].self_cpu_ns == (1_235,)

    def test_what_it_is_told_is_kept(self) -> None:
        found = table(everything(iteration(0, 1)), temperature="cold", view="device", first_of_process=True)
        assert (found.temperature, found.view, found.first_of_process) == ("cold", "device", True)

    def test_without_iterations_it_is_empty(self) -> None:
        assert table_of(event("aten::mul", 0, 1)) == OpTable("warm", "host", (), ())


class TestTies:
    def test_backward_belongs_to_the_module_of_the_forward_operation_with_its_number(self) -> None:
        found = table_of(
            iteration(
                0, 100,
                phase(
                    "forward", 0, 40,
                    module("conv1", 0, 9, event("aten::conv2d", 1, 8, sequence_nr=5)),
                    module("conv2", 10, 19, event("aten::conv2d", 11, 18, sequence_nr=6)),
                ),
                phase(
                    "backward", 40, 90,
                    node("ConvolutionBackward0", 41, 61, event("aten::convolution_backward", 42, 60), sequence_nr=6),
                    node("ConvolutionBackward0", 62, 82, event("aten::convolution_backward", 63, 70), sequence_nr=5),
                ),
            )
        )  # fmt: skip
        rows = by_key(found)
        assert rows["aten::convolution_backward", "backward", "conv1"].self_cpu_ns == (7_000,)
        assert rows["aten::convolution_backward", "backward", "conv2"].self_cpu_ns == (18_000,)

    def test_of_several_operations_with_one_number_the_last_begun_made_the_node(self) -> None:
        """An operation that makes no node leaves the counter where it is: the next one, elsewhere, has the same number."""
        found = table_of(
            iteration(
                0, 100,
                phase(
                    "forward", 0, 40,
                    module("flatten", 0, 9, event("aten::flatten", 1, 2, sequence_nr=5)),
                    module("fc1", 10, 30, event("aten::linear", 11, 29, event("aten::addmm", 12, 28, sequence_nr=5))),
                    module("relu", 31, 39, event("aten::relu", 32, 38, sequence_nr=6)),
                ),
                phase("backward", 40, 90, node("AddmmBackward0", 41, 61, sequence_nr=5)),
            )
        )  # fmt: skip
        assert {row.module for row in found.rows if row.name == "AddmmBackward0"} == {"fc1"}

    @pytest.mark.parametrize("sequence_nr", [-1, 99], ids=["without a number", "of nobody"])
    def test_a_node_whose_number_no_forward_operation_has_is_untied(self, sequence_nr: int) -> None:
        found = table_of(
            iteration(
                0, 100,
                phase("forward", 0, 40, module("fc1", 0, 30, event("aten::t", 1, 9), event("aten::mm", 10, 29, sequence_nr=1))),
                phase("backward", 40, 90, node("torch::autograd::AccumulateGrad", 41, 61, sequence_nr=sequence_nr)),
            )
        )  # fmt: skip
        assert {(row.phase, row.module) for row in found.rows if "AccumulateGrad" in row.name} == {("backward", UNTIED)}

    def test_only_forward_operations_lend_their_module(self) -> None:
        """The optimizer's operations come after the node's and may have its number."""
        found = table_of(
            iteration(
                0, 100,
                phase("forward", 0, 40, module("fc1", 0, 30, event("aten::addmm", 1, 29, sequence_nr=4))),
                phase("backward", 40, 60, node("AddmmBackward0", 41, 50, sequence_nr=4)),
                phase("optimizer", 60, 90, event("aten::add_", 61, 70, sequence_nr=4)),
            )
        )  # fmt: skip
        assert {row.module for row in found.rows if row.name == "AddmmBackward0"} == {"fc1"}


def with_an_engine_thread(waiting_end: float = 80) -> list[Any]:
    """A step as an accelerator has it: the caller waits in its backward phase while a thread of the engine works."""
    return [
        iteration(
            0, 100,
            phase("forward", 0, 30, module("fc1", 0, 28, event("aten::addmm", 1, 27, sequence_nr=4))),
            phase("backward", 30, waiting_end, event("aten::ones_like", 31, 33)),
        ),
        node("AddmmBackward0", 40, 70, event("aten::mm", 45, 65, thread=ENGINE), sequence_nr=4, thread=ENGINE),
    ]  # fmt: skip


class TestEngineThread:
    def test_its_operations_are_tied_by_the_forward_thread(self) -> None:
        rows = by_key(table_of(*with_an_engine_thread()))
        assert rows["aten::mm", "backward", "fc1"].self_cpu_ns == (20_000,)

    def test_a_number_of_another_forward_thread_ties_nothing(self) -> None:
        roots = with_an_engine_thread()
        for below in everything(roots[1]):
            below.fwd_thread = 77
        assert ("aten::mm", "backward", UNTIED) in by_key(table_of(*roots))

    def test_the_callers_wait_is_not_counted_twice(self) -> None:
        found = table_of(*with_an_engine_thread())
        outside = by_key(found)[OUTSIDE, "backward", UNTIED]
        assert outside.self_cpu_ns == (50_000 - 2_000 - 30_000,)
        assert outside.total_cpu_ns == outside.self_cpu_ns
        assert sum(row.self_cpu_ns[0] for row in found.rows) == found.iteration_ns[0]

    def test_the_wait_is_never_less_than_nothing(self) -> None:
        rows = by_key(table_of(*with_an_engine_thread(waiting_end=50)))
        assert rows[OUTSIDE, "backward", UNTIED].self_cpu_ns == (0,)

    def test_each_iteration_waits_for_its_own(self) -> None:
        second = [
            iteration(200, 300, phase("backward", 200, 290)),
            node("AddmmBackward0", 210, 220, sequence_nr=8, thread=ENGINE),
        ]
        rows = by_key(table_of(*with_an_engine_thread(), *second))
        assert rows[OUTSIDE, "backward", UNTIED].self_cpu_ns == (18_000, 80_000)


def on_device() -> list[Any]:
    """A product with its kernel, as Kineto shows both."""
    product = event("aten::mm", 10, 20, self_device_time_total=300.0, self_device_memory_usage=4096, self_cpu_memory_usage=16)
    kernel = event("gemm_kernel", 15, 315, device_type=DeviceType.CUDA, self_device_time_total=300.0, thread=0)
    mark = event("mnistbench.module:fc1", 15, 315, device_type=DeviceType.CUDA, self_device_time_total=300.0, scope=RANGE)
    return [iteration(0, 100, phase("forward", 0, 90, module("fc1", 0, 80, product))), kernel, mark]


class TestViews:
    def test_device_view_has_device_time_and_memory(self) -> None:
        found = table_of(*on_device(), view="device")
        row = by_key(found)["aten::mm", "forward", "fc1"]
        assert (row.self_device_ns, row.memory_bytes) == ((300_000,), 4096)
        assert (row.self_cpu_ns, row.total_cpu_ns) == ((10_000,), (10_000,))
        assert found.total_ns == 300_000

    def test_host_view_has_neither(self) -> None:
        found = table_of(*on_device())
        row = by_key(found)["aten::mm", "forward", "fc1"]
        assert (row.self_device_ns, row.memory_bytes) == ((), 16)
        assert {row.self_device_ns for row in found.rows} == {()}

    @pytest.mark.parametrize("view", ["host", "device"])
    def test_what_runs_on_the_device_has_no_row_of_its_own(self, view: str) -> None:
        found = table_of(*on_device(), view=view)
        assert {row.name for row in found.rows} == {"aten::mm", OUTSIDE}
        assert found.iteration_ns == (100_000,)

    def test_what_launched_nothing_has_no_device_time(self) -> None:
        rows = by_key(table_of(*on_device(), view="device"))
        assert rows[OUTSIDE, "forward", UNTIED].self_device_ns == (0,)


def test_real_events_have_the_fields_that_the_fakes_have() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler:
        tiny_model()(tiny_batch(2, CPU, torch.Generator())[0])
    real = next(iter(profiler.events()))
    assert [name for name in vars(event("fake", 0, 1)) if not hasattr(real, name)] == []


# ---- What the profiler costs ---------------------------------------------------------------------------------------------


def fake_clock(monkeypatch: pytest.MonkeyPatch, durations: Iterable[int]) -> None:
    """Make every second reading of the clock lie one of these durations after the one before."""
    readings = iter([reading for duration in durations for reading in (0, duration)])
    monkeypatch.setattr(profiling.time, "perf_counter_ns", lambda: next(readings))


def test_the_cost_per_call_is_the_quickest_profiled_block_less_the_quickest_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, warming, profiled = 300_000, 9_000_000, 420_000
    disturbed = [plain * 5, warming, profiled * 7]
    fake_clock(monkeypatch, [*disturbed, plain, warming, profiled * 2, plain * 3, warming, profiled] + disturbed * 7)
    assert profiling.cost_per_call.__wrapped__((ProfilerActivity.CPU,)) == 400


def test_the_cost_per_call_is_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_clock(monkeypatch, [420_000, 0, 300_000] * 10)
    assert profiling.cost_per_call.__wrapped__((ProfilerActivity.CPU,)) == 0


def test_a_warm_table_says_what_the_profiler_cost_and_a_cold_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "cost_per_call", lambda activities: 250)
    case = build(tiny_params(), tiny_workload())
    assert profile_first_call(case, first_of_process=False).profiler_ns == 0
    assert profile(case, iterations=1).profiler_ns == 250


def test_the_kernels_of_an_operation_are_kept_once_each_in_the_view_of_the_device() -> None:
    kernels = [SimpleNamespace(name="sm90_gemm"), SimpleNamespace(name="add"), SimpleNamespace(name="sm90_gemm")]
    run = [iteration(0, 10, event("aten::mm", 1, 4, kernels=kernels), event("aten::view", 5, 6))]
    found = {row.name: row.kernels for row in table(everything(*run), temperature="warm", view="device").rows}
    assert (found["aten::mm"], found["aten::view"]) == (("add", "sm90_gemm"), ())
    assert all(row.kernels == () for row in table(everything(*run), temperature="warm", view="host").rows)


# ---- How long an accelerator works -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spans", "covered"),
    [
        ([], 0),
        ([(2, 4), (5, 6)], 3),
        ([(2, 6), (3, 4), (5, 8)], 6),  # two streams at once
        ([(-5, 2), (9, 50)], 3),  # of other iterations, too
        ([(20, 30)], 0),
    ],
)
def test_time_that_spans_cover_together(spans, covered):
    assert profiling._covered(sorted(spans), 0, 10) == covered


def test_an_accelerator_is_busy_while_a_kernel_runs_and_ranges_are_no_kernels():
    def on_device(name: str, start: float, end: float, **fields: Any) -> Any:
        return event(name, start, end, device_type=DeviceType.CUDA, **fields)

    events = [
        iteration(0, 10),
        iteration(20, 30),
        on_device("sm90_gemm", 2, 5),
        on_device("Memcpy HtoD", 4, 6),
        on_device("mnistbench.iteration", 0, 10),
        on_device("Optimizer.step", 20, 30, is_user_annotation=True),
        on_device("add", 25, 26),
    ]
    recorded = SimpleNamespace(events=lambda: events)
    assert profiling.busy_ns(recorded) == (4_000, 1_000)  # type: ignore[arg-type]
