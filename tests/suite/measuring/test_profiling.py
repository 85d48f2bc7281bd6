"""Operation tables of real cases, and the cost of the profiler."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import params
from torch import Tensor, nn
from torch.profiler import ProfilerActivity
from torch_builders import CPU, LossSpy, digit_batch, tiny_params, tiny_workload

from mnistbench.core.operation import NO_MODULE
from mnistbench.core.record import OpRow, OpTable
from mnistbench.events import from_profiler
from mnistbench.events.analysis import analyse
from mnistbench.suite.measuring import profiling
from mnistbench.suite.measuring.case import build, fork_random, thread_count
from mnistbench.suite.measuring.profiling import (
    LOSS,
    MODEL,
    has_device_view,
    profile,
    profile_first_call,
    profile_warm,
)
from mnistbench.suite.workloads.workload import ConvNet, LeNet5, Workload

pytestmark = pytest.mark.versions


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    with thread_count(1), fork_random(CPU):
        yield


def adadelta(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(parameters, lr=1.0)


def network(name: str, **changes: Any) -> Workload:
    make_model = {"convnet": ConvNet, "lenet5": LeNet5}[name]
    brought = {
        "make_model": make_model,
        "make_batch": digit_batch,
        "make_optimizer": adadelta,
        **changes,
    }
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
    return {
        row.module: row for row in table.rows if row.name == name and phase in (None, row.phase)
    }


# ---- Real cases ----------------------------------------------------------------------------------


class TestShapes:
    def test_images_and_gradients_have_the_batch_size(
        self, lenet_step: OpTable, convnet_forward: OpTable
    ) -> None:
        for table, operation, module, start in (
            (lenet_step, "aten::conv2d", "conv1", "[[64, 1, 28, 28], [6, 1, 5, 5], [6],"),
            (convnet_forward, "aten::conv2d", "conv2", "[[64, 32, 26, 26], [64, 32, 3, 3], [64],"),
            (
                lenet_step,
                "aten::convolution_backward",
                "conv2",
                "[[64, 16, 10, 10], [64, 6, 14, 14], [16, 6, 5, 5],",
            ),
        ):
            (shapes,) = rows_of(table, operation)[module].shapes
            assert shapes.startswith(start)

    def test_shapes_are_not_recorded_by_default(self, convnet_step: OpTable) -> None:
        assert {row.shapes for row in convnet_step.rows} == {()}


class TestPhasesAndModules:
    def test_inference_has_forward_only_and_no_dropout(
        self, convnet_step: OpTable, convnet_forward: OpTable
    ) -> None:
        assert rows_of(convnet_step, "aten::bernoulli_").keys() == {"dropout1", "dropout2"}
        assert rows_of(convnet_forward, "aten::bernoulli_") == {}
        assert {row.phase for row in convnet_step.rows if row.is_operation} == {
            "forward",
            "backward",
            "optimizer",
        }
        assert {row.phase for row in convnet_forward.rows if row.is_operation} == {"forward"}

    def test_backward_belongs_to_the_module_of_its_forward(self, convnet_step: OpTable) -> None:
        for operation, modules in {
            "aten::convolution_backward": {"conv1", "conv2"},
            "aten::mm": {"fc1", "fc2"},
            "aten::threshold_backward": {"relu1", "relu2", "relu3"},
            "aten::max_pool2d_with_indices_backward": {"pool"},
            "aten::_log_softmax_backward_data": {"log_softmax"},
            "aten::nll_loss_backward": {LOSS},
            "MulBackward0": {"dropout1", "dropout2"},
            "ViewBackward0": {"flatten"},
        }.items():
            assert rows_of(convnet_step, operation, "backward").keys() == modules
            assert rows_of(convnet_step, operation).keys() == modules

    def test_backward_of_each_layer_has_that_layers_shapes(self, lenet_step: OpTable) -> None:
        backward = rows_of(lenet_step, "aten::convolution_backward")
        weights = {module: row.shapes[0].split("], [")[2] for module, row in backward.items()}
        assert weights == {"conv1": "6, 1, 5, 5", "conv2": "16, 6, 5, 5"}

    def test_gradient_accumulation_and_optimizer_have_no_module(
        self, convnet_step: OpTable
    ) -> None:
        (row,) = (row for row in convnet_step.rows if row.name == "torch::autograd::AccumulateGrad")
        assert (row.phase, row.module, row.calls) == ("backward", NO_MODULE, 8)
        rows = [row for row in convnet_step.rows if row.name == "aten::addcmul_"]
        assert [(row.phase, row.module, row.calls) for row in rows] == [
            ("optimizer", NO_MODULE, 2 * 8)
        ]
        assert {row.module for row in convnet_step.rows if row.phase == "optimizer"} == {NO_MODULE}


class TestNumbers:
    def test_self_times_of_the_rows_add_up_to_each_iteration(
        self, lenet_step: OpTable, convnet_forward: OpTable
    ) -> None:
        for table in (lenet_step, convnet_forward):
            assert len(table.iteration_ns) == ITERATIONS
            sums = map(sum, zip(*(row.self_cpu_ns for row in table.rows), strict=True))
            assert list(sums) == pytest.approx(list(table.iteration_ns), abs=len(table.rows))

    def test_calls_are_per_iteration(self, lenet_step: OpTable) -> None:
        calls = {row.module: row.calls for row in lenet_step.rows if row.name == "aten::addmm"}
        assert calls == {"fc1": 1, "fc2": 1, "fc3": 1}
        assert sum(row.calls for row in lenet_step.rows if row.name == "aten::mm") == 6

    def test_memory_is_bytes_per_iteration(self, lenet_step: OpTable) -> None:
        assert rows_of(lenet_step, "aten::clamp_min")["relu1"].memory_bytes == 64 * 6 * 28 * 28 * 4
        assert rows_of(lenet_step, "aten::threshold_backward")["relu4"].memory_bytes == 64 * 84 * 4

    def test_without_a_device_there_is_no_device_time(self, convnet_step: OpTable) -> None:
        assert (convnet_step.temperature, convnet_step.view, convnet_step.first_of_process) == (
            "warm",
            "host",
            False,
        )
        assert {row.self_device_ns for row in convnet_step.rows} == {()}
        assert len({row.key for row in convnet_step.rows}) == len(convnet_step.rows)


@pytest.mark.parametrize("first", [True, False])
def test_cold_table_is_the_first_call_alone(first: bool) -> None:
    spy = LossSpy()
    table = profile_first_call(
        build(tiny_params(), tiny_workload(loss=spy)), first_of_process=first
    )
    assert (table.temperature, table.view, table.first_of_process) == ("cold", "host", first)
    assert len(table.iteration_ns) == 1
    assert len(spy.values) == 1
    assert {row.calls for row in table.rows if row.name == "aten::linear"} == {1}


def test_a_profile_does_not_import_inductor_which_can_be_imported_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    monkeypatch.delitem(vars(torch), "_inductor", raising=False)
    assert profiling.operations_of(lambda: torch.ones(1)) == (True, False)
    assert "torch._inductor" not in sys.modules
    assert hasattr(torch, "_inductor")


def test_profiling_starts_from_the_initial_state_of_the_case() -> None:
    spy = LossSpy()
    case = build(tiny_params(), tiny_workload(loss=spy, make_optimizer=adadelta))
    losses = []
    tables = []
    for calls_before in (0, 5):
        for _ in range(calls_before):
            case()
        spy.values.clear()
        tables.append(profile(case, iterations=4))
        losses.append(list(spy.values))
    assert losses[0] == losses[1]
    assert len(set(losses[0])) > 1
    first, second = (
        {row.key: (row.calls, row.memory_bytes) for row in table.rows} for table in tables
    )
    assert first == second


def test_garbage_is_collected_in_the_case_and_not_while_events_are_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collecting = []
    parsing = []
    read = from_profiler.read

    def read_and_note(profiler: Any) -> Any:
        parsing.append(gc.isenabled())
        return read(profiler)

    monkeypatch.setattr(from_profiler, "read", read_and_note)
    case = build(tiny_params(), tiny_workload())
    case.model.register_forward_hook(lambda *_: collecting.append(gc.isenabled()))
    profile(case, iterations=3)
    assert (set(collecting), parsing) == ({True}, [False])
    assert gc.isenabled()


# ---- Models that are not a chain of layers -------------------------------------------------------


class Branching(nn.Module):
    """Layers within layers, one used twice, and operations outside them.

    One is the model's own, one a block's own.
    """

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
def test_an_operation_belongs_to_the_innermost_module(
    branching_step: OpTable, operation: str, phase: str, calls: dict[str, int]
) -> None:
    assert {
        module: row.calls for module, row in rows_of(branching_step, operation, phase).items()
    } == calls


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

    workload = tiny_workload(
        loss=loss, make_optimizer=lambda parameters: Telltale(parameters, lr=0.1)
    )
    table = profile(build(tiny_params(), workload), iterations=1)
    telltales = ("aten::cos", "aten::tan", "aten::sin")
    assert {row.key for row in table.rows if row.name in telltales} == {
        ("aten::cos", "optimizer", NO_MODULE),
        ("aten::tan", "forward", LOSS),
        ("aten::sin", "optimizer", NO_MODULE),
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


def test_the_range_of_a_layer_that_raised_ends_before_the_next_one() -> None:
    case = build(tiny_params(), tiny_workload(make_model=FailsOnce))
    work = case._run

    def work_again_after_a_failure() -> None:
        try:
            work()
        except RuntimeError:
            work()

    case = replace(case, _run=work_again_after_a_failure)
    table = profile_first_call(case, first_of_process=False)
    assert {module: row.calls for module, row in rows_of(table, "aten::linear").items()} == {
        "hidden": 2,
        "out": 1,
    }
    assert rows_of(table, "aten::log_softmax").keys() == {MODEL}


@pytest.mark.parametrize(
    ("device", "watched"),
    [("cpu", False), ("cuda", True), ("cuda:1", True), ("xpu", True), ("mps", False)],
)
def test_devices_that_the_profiler_supports(device: str, watched: bool) -> None:
    assert has_device_view(device) is watched


# ---- What the profiler costs ---------------------------------------------------------------------


def fake_clock(monkeypatch: pytest.MonkeyPatch, durations: Iterable[int]) -> None:
    """Make every second reading of the clock lie one of these durations after the one before."""
    readings = iter([reading for duration in durations for reading in (0, duration)])
    monkeypatch.setattr(profiling.time, "perf_counter_ns", lambda: next(readings))


def test_the_cost_per_call_is_the_difference_of_the_fastest_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = 300_000
    warming = 9_000_000
    profiled = 420_000
    disturbed = [plain * 5, warming, profiled * 7]
    fake_clock(
        monkeypatch,
        [*disturbed, plain, warming, profiled * 2, plain * 3, warming, profiled] + disturbed * 7,
    )
    assert profiling.cost_per_call.__wrapped__((ProfilerActivity.CPU,)) == 400


def test_the_cost_per_call_is_not_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_clock(monkeypatch, [420_000, 0, 300_000] * 10)
    assert profiling.cost_per_call.__wrapped__((ProfilerActivity.CPU,)) == 0


def test_only_a_warm_table_has_the_cost_of_the_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "cost_per_call", lambda activities: 250)
    case = build(tiny_params(), tiny_workload())
    assert profile_first_call(case, first_of_process=False).profiler_ns == 0
    assert profile(case, iterations=1).profiler_ns == 250


def test_no_profiler_starts_between_a_warm_profile_and_its_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next profiler takes the events of an accelerator from the trace of the one before."""
    profiling.cost_per_call.cache_clear()
    warm = profile_warm(build(tiny_params(), tiny_workload()), iterations=1)

    def refuse(*_: object) -> None:
        raise AssertionError("another profiler starts")

    monkeypatch.setattr(torch.profiler.profile, "start", refuse)
    table = warm.table()
    warm.export_trace(tmp_path / "trace.json")
    assert analyse(tmp_path / "trace.json").tables.host.iteration_ns == table.iteration_ns


def test_the_events_of_the_cost_per_call_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch.autograd.profiler.profile, "_parse_kineto_results", parse)
    assert profiling.cost_per_call.__wrapped__((torch.profiler.ProfilerActivity.CPU,)) >= 0
