"""Events of a profile that are made by hand -> its operation table; times are microseconds.

And the same numbers of profiles of torch, and of the traces that torch exports of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kineto_builders import RANGE, KinetoEvent, fields, profiled
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function
from torch_builders import CPU, tiny_batch, tiny_model

from mnistbench.core.operation import ITERATION, NO_MODULE, OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.core.record import OpRow, OpTable
from mnistbench.events import from_file, from_profiler, model
from mnistbench.events.linking.links import link
from mnistbench.events.model import Trace, steps_of
from mnistbench.events.table import host_and_device
from mnistbench.suite.measuring.profiling import MODEL, started

#: Thread of the forward pass.
MAIN = 1
#: Thread of autograd's engine.
ENGINE = 2

NUMBERS = itertools.count(1)


def event(
    name: str, start: float, end: float, *children: Any, thread: int = MAIN, **values: Any
) -> Any:
    """What the profiler gives, and the events that it calls."""
    number = {"correlation_id": next(NUMBERS)}
    kineto = fields(name, round(1_000 * start), round(1_000 * end), thread, **{**number, **values})
    return SimpleNamespace(kineto=kineto, children=children)


def memory(at: float, n_bytes: int, device_type: DeviceType = DeviceType.CPU) -> Any:
    return event("[memory]", at, at, nbytes=n_bytes, device_type=device_type)


def iteration(start: float, end: float, *children: Any) -> Any:
    return event("mnistbench.iteration", start, end, *children, scope=RANGE)


def phase(name: str, start: float, end: float, *children: Any) -> Any:
    return event(f"mnistbench.phase:{name}", start, end, *children, scope=RANGE)


def module(name: str, start: float, end: float, *children: Any) -> Any:
    return event(f"mnistbench.module:{name}", start, end, *children, scope=RANGE)


def node(
    name: str, start: float, end: float, *children: Any, sequence_nr: int, **fields: Any
) -> Any:
    """A node of the autograd graph as the engine evaluates it."""
    applied = event(
        name, start, end, *children, sequence_nr=sequence_nr, fwd_thread_id=MAIN, **fields
    )
    return event(
        f"autograd::engine::evaluate_function: {name}",
        start,
        end,
        applied,
        sequence_nr=sequence_nr,
        fwd_thread_id=MAIN,
        **fields,
    )


def everything(*roots: Any) -> list[Any]:
    """Return all the events of the trees, callers first."""
    return [*roots, *(below for root in roots for below in everything(*root.children))]


def table_of(*roots: Any, view: str = "host", device: str = "cpu") -> OpTable:
    trace = profiled([KinetoEvent(**root.kineto) for root in everything(*roots)])
    both = host_and_device(
        trace, steps_of(trace), has_device=view == "device", memory_of_host=device == "cpu"
    )
    return both.device or both.host


def by_key(table: OpTable) -> dict[tuple[str, str, str], OpRow]:
    assert len({row.key for row in table.rows}) == len(table.rows)
    return {row.key: row for row in table.rows}


class TestTable:
    def test_phases_and_time_outside_operations(self) -> None:
        rows = by_key(
            table_of(
                iteration(
                    0,
                    100,
                    phase("optimizer", 1, 5, event("aten::zero_", 2, 3)),
                    phase("forward", 10, 40, event("aten::mul", 11, 31)),
                    phase("backward", 40, 70, event("aten::ones_like", 41, 43)),
                    event("aten::empty", 80, 90),
                )
            )
        )
        assert {key: row.self_cpu_ns for key, row in rows.items()} == {
            ("aten::zero_", "optimizer", NO_MODULE): (1_000,),
            ("aten::mul", "forward", NO_MODULE): (20_000,),
            ("aten::ones_like", "backward", NO_MODULE): (2_000,),
            ("aten::empty", "", NO_MODULE): (10_000,),
            (OUTSIDE, "optimizer", NO_MODULE): (3_000,),
            (OUTSIDE, "forward", NO_MODULE): (10_000,),
            (OUTSIDE, "backward", NO_MODULE): (28_000,),
            (OUTSIDE, "", NO_MODULE): (100_000 - 4_000 - 30_000 - 30_000 - 10_000,),
        }

    def test_communication_is_an_operation_beside_the_others(self) -> None:
        # As torch.distributed records it: a range on another thread, which ends there and has no
        # self time.
        reduced = event("gloo:all_reduce", 50, 90, scope=RANGE, thread=3, is_async=True)
        rows = by_key(
            table_of(
                iteration(0, 100, phase("backward", 40, 95, event("c10d::allreduce_", 48, 51))),
                reduced,
            )
        )
        row = rows["gloo:all_reduce", "", NO_MODULE]
        assert (row.calls, row.self_cpu_ns, row.total_cpu_ns) == (1, (40_000,), (40_000,))
        assert rows["c10d::allreduce_", "backward", NO_MODULE].self_cpu_ns == (3_000,)
        assert rows[OUTSIDE, "backward", NO_MODULE].self_cpu_ns == (52_000,)
        assert rows[OUTSIDE, "", NO_MODULE].self_cpu_ns == (45_000,)

    def test_time_outside_operations_is_counted_once(self) -> None:
        rows = by_key(
            table_of(
                iteration(
                    0, 100, phase("forward", 0, 80, module("fc1", 0, 70, event("aten::mul", 0, 50)))
                )
            )
        )
        assert rows[OUTSIDE, "forward", NO_MODULE].self_cpu_ns == (30_000,)
        assert rows[OUTSIDE, "forward", NO_MODULE].total_cpu_ns == (30_000,)
        assert rows[OUTSIDE, "", NO_MODULE].total_cpu_ns == (20_000,)

    def test_an_operation_has_the_innermost_module(self) -> None:
        rows = by_key(
            table_of(
                iteration(
                    0,
                    100,
                    phase(
                        "forward",
                        0,
                        90,
                        module(
                            MODEL,
                            0,
                            80,
                            event("aten::relu", 0, 5),
                            module(
                                "block",
                                10,
                                50,
                                event("aten::relu", 10, 20),
                                module("block.fc", 20, 40, event("aten::relu", 20, 33)),
                            ),
                            event("aten::relu", 60, 67),
                        ),
                    ),
                )
            )
        )
        assert {key[2]: row.self_cpu_ns for key, row in rows.items() if key[0] == "aten::relu"} == {
            MODEL: (12_000,),
            "block": (10_000,),
            "block.fc": (13_000,),
        }

    def test_an_operation_called_by_another_has_its_module(self) -> None:
        called = event("aten::addmm", 2, 8)
        calling = event("aten::linear", 1, 10, called)
        rows = by_key(
            table_of(iteration(0, 20, phase("forward", 0, 20, module("fc1", 0, 20, calling))))
        )
        linear = rows["aten::linear", "forward", "fc1"]
        addmm = rows["aten::addmm", "forward", "fc1"]
        assert (linear.self_cpu_ns, linear.total_cpu_ns) == ((3_000,), (9_000,))
        assert (addmm.self_cpu_ns, addmm.total_cpu_ns) == ((6_000,), (6_000,))

    def test_a_phase_within_a_module_has_no_module(self) -> None:
        rows = by_key(
            table_of(
                iteration(
                    0, 9, module("fc1", 0, 9, phase("optimizer", 1, 8, event("aten::add_", 2, 3)))
                )
            )
        )
        assert ("aten::add_", "optimizer", NO_MODULE) in rows

    def test_a_module_that_runs_in_the_backward_pass_has_its_phase(self) -> None:
        """As activation checkpointing does it."""
        again = module("fc1", 41, 60, event("aten::addmm", 42, 59))
        rows = by_key(table_of(iteration(0, 90, phase("backward", 40, 80, again))))
        assert ("aten::addmm", "backward", "fc1") in rows

    def test_ranges_of_an_optimizer_are_not_operations(self) -> None:
        own = event("Optimizer.step#Adadelta.step", 1, 9, event("aten::add_", 2, 5), scope=RANGE)
        rows = by_key(table_of(iteration(0, 10, phase("optimizer", 0, 10, own))))
        assert set(rows) == {
            ("aten::add_", "optimizer", NO_MODULE),
            (OUTSIDE, "optimizer", NO_MODULE),
            (OUTSIDE, "", NO_MODULE),
        }
        assert rows[OUTSIDE, "optimizer", NO_MODULE].self_cpu_ns == (7_000,)

    def test_events_outside_iterations_are_dropped(self) -> None:
        roots = [
            phase("forward", 0, 90, event("aten::mul", 0, 50)),
            iteration(100, 200, phase("forward", 100, 190, event("aten::mul", 110, 120))),
            event("aten::add", 210, 220),
            iteration(300, 400, phase("forward", 300, 390, event("aten::mul", 310, 340))),
            event("aten::add", 410, 420),
        ]
        table = table_of(*roots)
        rows = by_key(table)
        assert table.iteration_ns == (100_000, 100_000)
        assert rows["aten::mul", "forward", NO_MODULE].self_cpu_ns == (10_000, 30_000)
        assert "aten::add" not in {name for name, _, _ in rows}

    def test_iterations_in_any_order_each_have_their_slot(self) -> None:
        late = iteration(300, 400, event("aten::mul", 310, 340))
        early = iteration(100, 200, event("aten::mul", 110, 120))
        assert by_key(table_of(late, early))["aten::mul", "", NO_MODULE].self_cpu_ns == (
            10_000,
            30_000,
        )

    def test_calls_are_the_mean_over_iterations_that_differ(self) -> None:
        table = table_of(
            iteration(0, 100, event("aten::mul", 0, 10), event("aten::add", 20, 25)),
            iteration(
                100,
                200,
                event("aten::mul", 100, 107),
                event("aten::mul", 110, 113),
                event("aten::neg", 120, 121),
            ),
        )
        rows = {row.name: row for row in table.rows}
        assert {name: row.calls for name, row in rows.items() if name != OUTSIDE} == {
            "aten::mul": 1.5,
            "aten::add": 0.5,
            "aten::neg": 0.5,
        }
        assert rows["aten::mul"].self_cpu_ns == (10_000, 10_000)
        assert rows["aten::add"].self_cpu_ns == (5_000, 0)
        assert rows["aten::neg"].self_cpu_ns == (0, 1_000)

    def test_memory_is_the_median_of_the_iterations_sums(self) -> None:
        def allocating(start: float, *sizes: int) -> list[Any]:
            calls = [event("aten::empty", start + at, start + at + 1) for at in range(len(sizes))]
            records = [memory(start + at + 0.5, size) for at, size in enumerate(sizes)]
            return [iteration(start, start + 10, *calls), *records]

        rows = by_key(
            table_of(*allocating(0, 100, -40), *allocating(100, 500), *allocating(200, 90, 10))
        )
        assert rows["aten::empty", "", NO_MODULE].memory_bytes == 100

    def test_shapes_are_kept_once_and_sorted(self) -> None:
        shapes = [[[2, 3]], [[1]], [[2, 3]], []]
        shaped = [event("aten::mm", at, at + 1, shapes=shape) for at, shape in enumerate(shapes)]
        assert by_key(table_of(iteration(0, 10, *shaped)))["aten::mm", "", NO_MODULE].shapes == (
            "[[1]]",
            "[[2, 3]]",
        )


class TestModuleOfBackward:
    def test_backward_belongs_to_the_module_of_the_forward_operation_with_its_number(self) -> None:
        table = table_of(
            iteration(
                0,
                100,
                phase(
                    "forward",
                    0,
                    40,
                    module("conv1", 0, 9, event("aten::conv2d", 1, 8, sequence_nr=5)),
                    module("conv2", 10, 19, event("aten::conv2d", 11, 18, sequence_nr=6)),
                ),
                phase(
                    "backward",
                    40,
                    90,
                    node(
                        "ConvolutionBackward0",
                        41,
                        61,
                        event("aten::convolution_backward", 42, 60),
                        sequence_nr=6,
                    ),
                    node(
                        "ConvolutionBackward0",
                        62,
                        82,
                        event("aten::convolution_backward", 63, 70),
                        sequence_nr=5,
                    ),
                ),
            )
        )
        rows = by_key(table)
        assert rows["aten::convolution_backward", "backward", "conv1"].self_cpu_ns == (7_000,)
        assert rows["aten::convolution_backward", "backward", "conv2"].self_cpu_ns == (18_000,)

    def test_backward_belongs_to_the_last_forward_operation_with_its_number(self) -> None:
        """An operation that makes no node leaves the counter where it is.

        The next one, elsewhere, has the same number.
        """
        table = table_of(
            iteration(
                0,
                100,
                phase(
                    "forward",
                    0,
                    40,
                    module("flatten", 0, 9, event("aten::flatten", 1, 2, sequence_nr=5)),
                    module(
                        "fc1",
                        10,
                        30,
                        event("aten::linear", 11, 29, event("aten::addmm", 12, 28, sequence_nr=5)),
                    ),
                    module("relu", 31, 39, event("aten::relu", 32, 38, sequence_nr=6)),
                ),
                phase("backward", 40, 90, node("AddmmBackward0", 41, 61, sequence_nr=5)),
            )
        )
        assert {row.module for row in table.rows if row.name == "AddmmBackward0"} == {"fc1"}

    @pytest.mark.parametrize("sequence_nr", [-1, 99], ids=["without a number", "of nobody"])
    def test_backward_without_a_forward_operation_has_no_module(self, sequence_nr: int) -> None:
        table = table_of(
            iteration(
                0,
                100,
                phase(
                    "forward",
                    0,
                    40,
                    module(
                        "fc1",
                        0,
                        30,
                        event("aten::t", 1, 9),
                        event("aten::mm", 10, 29, sequence_nr=1),
                    ),
                ),
                phase(
                    "backward",
                    40,
                    90,
                    node("torch::autograd::AccumulateGrad", 41, 61, sequence_nr=sequence_nr),
                ),
            )
        )
        assert {(row.phase, row.module) for row in table.rows if "AccumulateGrad" in row.name} == {
            ("backward", NO_MODULE)
        }

    def test_backward_belongs_to_forward_operations_only(self) -> None:
        """The optimizer's operations come after the node's and may have its number."""
        table = table_of(
            iteration(
                0,
                100,
                phase(
                    "forward",
                    0,
                    40,
                    module("fc1", 0, 30, event("aten::addmm", 1, 29, sequence_nr=4)),
                ),
                phase("backward", 40, 60, node("AddmmBackward0", 41, 50, sequence_nr=4)),
                phase("optimizer", 60, 90, event("aten::add_", 61, 70, sequence_nr=4)),
            )
        )
        assert {row.module for row in table.rows if row.name == "AddmmBackward0"} == {"fc1"}


def with_an_engine_thread(waiting_end: float = 80) -> list[Any]:
    """A step as an accelerator has it.

    The caller waits in its backward phase while a thread of the engine works.
    """
    return [
        iteration(
            0,
            100,
            phase(
                "forward", 0, 30, module("fc1", 0, 28, event("aten::addmm", 1, 27, sequence_nr=4))
            ),
            phase("backward", 30, waiting_end, event("aten::ones_like", 31, 33)),
        ),
        node(
            "AddmmBackward0",
            40,
            70,
            event("aten::mm", 45, 65, thread=ENGINE),
            sequence_nr=4,
            thread=ENGINE,
        ),
    ]


class TestEngineThread:
    def test_its_operations_have_the_module_of_the_forward_operation(self) -> None:
        rows = by_key(table_of(*with_an_engine_thread()))
        assert rows["aten::mm", "backward", "fc1"].self_cpu_ns == (20_000,)

    def test_the_wait_of_the_calling_thread_is_not_counted_twice(self) -> None:
        table = table_of(*with_an_engine_thread())
        outside = by_key(table)[OUTSIDE, "backward", NO_MODULE]
        assert outside.self_cpu_ns == (50_000 - 2_000 - 30_000,)
        assert outside.total_cpu_ns == outside.self_cpu_ns
        assert sum(row.self_cpu_ns[0] for row in table.rows) == table.iteration_ns[0]

    def test_the_wait_is_not_negative(self) -> None:
        rows = by_key(table_of(*with_an_engine_thread(waiting_end=50)))
        assert rows[OUTSIDE, "backward", NO_MODULE].self_cpu_ns == (0,)

    def test_a_range_on_the_engines_thread_is_not_counted_twice(self) -> None:
        roots = with_an_engine_thread()
        roots.append(
            node(
                "CheckpointBackward",
                71,
                79,
                event("recompute", 72, 78, scope=RANGE, thread=ENGINE),
                thread=ENGINE,
                sequence_nr=5,
            )
        )
        table = table_of(*roots)
        assert sum(row.self_cpu_ns[0] for row in table.rows) == table.iteration_ns[0]

    def test_the_wait_is_that_of_each_iteration(self) -> None:
        second = [
            iteration(200, 300, phase("backward", 200, 290)),
            node("AddmmBackward0", 210, 220, sequence_nr=8, thread=ENGINE),
        ]
        rows = by_key(table_of(*with_an_engine_thread(), *second))
        assert rows[OUTSIDE, "backward", NO_MODULE].self_cpu_ns == (18_000, 80_000)


def device_event(name: str, start: float, end: float, **values: Any) -> Any:
    return event(name, start, end, **{"device_type": DeviceType.CUDA, "thread": 7, **values})


def launching(name: str, start: float, end: float, *launched: Any, **values: Any) -> Any:
    """An operation that is linked to these device events."""
    operation = event(name, start, end, **values)
    for device_event in launched:
        device_event.kineto["linked_correlation_id"] = operation.kineto["correlation_id"]
    return operation


def on_device() -> list[Any]:
    """A product with its kernel and its memory on the host and on the device."""
    kernel = device_event("gemm_kernel", 15, 315)
    product = launching("aten::mm", 10, 20, kernel)
    copy = device_event("mnistbench.module:fc1", 15, 315, is_user_annotation=True)
    return [
        iteration(0, 100, phase("forward", 0, 90, module("fc1", 0, 80, product))),
        kernel,
        copy,
        memory(12, 16),
        memory(13, 4096, DeviceType.CUDA),
    ]


class TestViews:
    def test_device_view_has_device_time_and_memory(self) -> None:
        table = table_of(*on_device(), view="device", device="cuda")
        row = by_key(table)["aten::mm", "forward", "fc1"]
        assert (row.self_device_ns, row.memory_bytes) == ((300_000,), 4096)
        assert (row.self_cpu_ns, row.total_cpu_ns) == ((10_000,), (10_000,))
        assert table.total_ns == 300_000

    @pytest.mark.parametrize(("device", "n_bytes"), [("cpu", 16), ("cuda:1", 4096)])
    def test_host_view_has_no_device_time_and_the_memory_of_the_cases_device(
        self, device: str, n_bytes: int
    ) -> None:
        table = table_of(*on_device(), device=device)
        row = by_key(table)["aten::mm", "forward", "fc1"]
        assert (row.self_device_ns, row.memory_bytes, table.busy_ns) == ((), n_bytes, ())
        assert {row.self_device_ns for row in table.rows} == {()}

    @pytest.mark.parametrize("view", ["host", "device"])
    def test_device_events_have_no_row(self, view: str) -> None:
        table = table_of(*on_device(), view=view)
        assert {row.name for row in table.rows} == {"aten::mm", OUTSIDE}
        assert table.iteration_ns == (100_000,)

    def test_time_outside_operations_has_no_device_time(self) -> None:
        rows = by_key(table_of(*on_device(), view="device"))
        assert rows[OUTSIDE, "forward", NO_MODULE].self_device_ns == (0,)


@pytest.mark.versions
def test_real_events_have_the_methods_that_the_fakes_have() -> None:
    profiler = torch.profiler.profile(activities=[ProfilerActivity.CPU])
    with started(profiler):
        tiny_model()(tiny_batch(2, CPU, torch.Generator())[0])
    real = profiler.profiler.kineto_results.events()[0]
    fake = KinetoEvent(**event("fake", 0, 1).kineto)
    assert [name for name in vars(fake) if not callable(getattr(real, name, None))] == []


def test_the_kernels_of_an_operation_are_kept_once_each_in_the_view_of_the_device() -> None:
    kernels = [
        device_event("sm90_gemm", 2, 4),
        device_event("add", 4, 5),
        device_event("sm90_gemm", 5, 6),
    ]
    run = [iteration(0, 10, launching("aten::mm", 1, 4, *kernels), event("aten::view", 5, 6))]
    operations = {row.name: row for row in table_of(*run, *kernels, view="device").rows}
    assert operations["aten::mm"].kernels == ("add", "sm90_gemm")
    assert operations["aten::view"].kernels == ()
    assert all(row.kernels == () for row in table_of(*run, *kernels, view="host").rows)


# ---- How long an accelerator works ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("spans", "covered"),
    [
        ([], 0),
        ([(2, 4), (5, 6)], 3),
        ([(2, 6), (3, 4), (5, 8)], 6),  # two streams at once
        ([(20, 30)], 0),
    ],
)
def test_time_that_spans_cover_together(spans: list[tuple[float, float]], covered: int) -> None:
    work = [
        device_event("kernel", start, end, device_resource_id=stream)
        for stream, (start, end) in enumerate(spans)
    ]
    assert table_of(iteration(0, 10), *work, view="device").busy_ns == (covered * 1_000,)


def test_an_accelerator_is_busy_while_a_kernel_runs_and_ranges_are_no_kernels() -> None:
    events = [
        iteration(0, 10),
        iteration(20, 30),
        device_event("sm90_gemm", 2, 5, activity_type="kernel"),
        device_event("Memcpy HtoD", 4, 6, activity_type="gpu_memcpy"),
        device_event(ITERATION, 0, 10, is_user_annotation=True),
        device_event("Optimizer.step", 20, 30, activity_type="gpu_user_annotation"),
        device_event("Stream Sync", 20, 30, activity_type="cuda_sync"),
        device_event("add", 25, 26),
    ]
    assert table_of(*events, view="device").busy_ns == (4_000, 1_000)
    assert table_of(*events, view="host").busy_ns == ()


def test_a_profile_in_which_no_kernel_ran_has_a_table_of_the_device() -> None:
    operations = table_of(iteration(0, 10, event("aten::view", 1, 2)), view="device")
    assert (operations.view, operations.busy_ns) == ("device", (0,))
    assert {row.self_device_ns for row in operations.rows} == {(0,)}


# ---- What belongs to no operation ----------------------------------------------------------------


def device_sum(operations: OpTable) -> list[int]:
    return list(map(sum, zip(*(row.self_device_ns for row in operations.rows), strict=True)))


def test_the_device_column_adds_up_to_all_kernels_and_copies_of_the_iterations() -> None:
    linked = device_event("gemm", 12, 15)
    alone = device_event("flash", 16, 21)
    copied = device_event("Memcpy DtoH", 30, 32)
    twin = device_event("gemm", 40, 43)  # of the same name and duration, but linked to nothing
    before = device_event("gemm", -9, -6)
    after = device_event("flash", 201, 209)
    product = launching("aten::mm", 10, 20, linked)
    events = [
        iteration(0, 50, product),
        iteration(100, 200),
        linked,
        alone,
        copied,
        twin,
        before,
        after,
    ]
    operations = table_of(*events, view="device")
    row = by_key(operations)[UNATTRIBUTED, "", NO_MODULE]
    assert row.self_device_ns == (10_000, 0)
    assert row.calls == 1.5
    assert row.kernels == ("Memcpy DtoH", "flash", "gemm")
    assert (row.self_cpu_ns, row.memory_bytes, row.is_operation) == ((0, 0), 0, False)
    assert by_key(operations)["aten::mm", "", NO_MODULE].self_device_ns == (3_000, 0)
    assert device_sum(operations) == [13_000, 0]
    assert operations.busy_ns == (13_000, 0)


def test_a_kernel_that_runs_after_the_iteration_of_its_launch_counts_to_it() -> None:
    late = device_event("gemm", 60, 70, correlation_id=5)
    launch = event("cudaLaunchKernel", 11, 12, correlation_id=5)
    operations = table_of(
        iteration(0, 50, launching("aten::mm", 10, 20, late, launch)),
        launch,
        iteration(55, 90),
        late,
        view="device",
    )
    assert UNATTRIBUTED not in {row.name for row in operations.rows}
    assert device_sum(operations) == [10_000, 0]


def test_the_kernels_of_a_range_outside_operations_have_its_name() -> None:
    """As in a trace; the copy of the range on the device is no kernel."""
    copy = device_event("step", 10, 40, is_user_annotation=True)
    kernel = device_event("triton_add", 12, 15, correlation_id=5)
    launch = event("cudaLaunchKernel", 6, 7, correlation_id=5)
    own = event("step", 5, 20, launch, scope=RANGE)
    operations = table_of(iteration(0, 50, own), copy, kernel, view="device")
    assert by_key(operations)["step", "", NO_MODULE].self_device_ns == (3_000,)
    assert device_sum(operations) == [3_000]


RUNTIME_CALLS = [
    "cudaLaunchKernel",
    "cuLaunchKernelEx",
    "cudaMemcpyAsync",
    "hipExtModuleLaunchKernel",
    "hipMalloc",
    "urEnqueueKernelLaunch",
    "zeCommandListAppendLaunchKernel",
]


@pytest.mark.parametrize("view", ["host", "device"])
def test_calls_of_the_runtime_are_one_row_and_no_operation(view: str) -> None:
    calls = [event(name, 12 + at, 12.5 + at) for at, name in enumerate(RUNTIME_CALLS)]
    product = event("aten::mm", 10, 30, *calls)
    waiting = event("cudaDeviceSynchronize", 50, 60)
    rows = by_key(
        table_of(
            iteration(0, 100, phase("forward", 0, 40, module("fc1", 5, 35, product)), waiting),
            view=view,
        )
    )
    runtime = rows[RUNTIME, "", NO_MODULE]
    assert {key[0] for key in rows} == {"aten::mm", OUTSIDE, RUNTIME}
    assert (runtime.calls, runtime.self_cpu_ns, runtime.total_cpu_ns) == (8, (13_500,), (13_500,))
    assert rows["aten::mm", "forward", "fc1"].self_cpu_ns == (16_500,)
    assert rows["aten::mm", "forward", "fc1"].total_cpu_ns == (20_000,)
    assert sum(row.self_cpu_ns[0] for row in rows.values()) == 100_000


@pytest.mark.parametrize("has_types", [True, False])
def test_overhead_of_the_profiler_counts_on_threads_with_operations_alone(has_types: bool) -> None:
    """Its buffers have a thread of their own in the profile, for which no caller waits.

    torch 2.11 has no types of events.
    """
    overhead = {"activity_type": "overhead"} if has_types else {}
    operation = {"activity_type": "cpu_op"} if has_types else {}
    operations = table_of(
        iteration(
            0,
            100,
            event("aten::mm", 30, 34, **operation),
            event("Lazy Function Loading", 20, 23, **overhead),
        ),
        event("Activity Buffer Request", 40, 60, thread=99, **overhead),
    )
    rows = by_key(operations)
    assert {key[0] for key in rows} == {RUNTIME, "aten::mm", OUTSIDE}
    assert rows[RUNTIME, "", NO_MODULE].self_cpu_ns == (3_000,)
    assert sum(row.self_cpu_ns[0] for row in operations.rows) == operations.iteration_ns[0]


def test_where_torch_tells_the_type_of_an_event_its_name_does_not_matter() -> None:
    events = [
        event("INVALID", 10, 12, activity_type="cuda_runtime"),
        event("a call", 20, 23, activity_type="xpu_driver"),
        event("cudaMalloc", 30, 34, activity_type="cpu_op"),
        event("a mark", 40, 45, activity_type="cpu_instant_event"),
    ]
    rows = by_key(table_of(iteration(0, 100, *events)))
    assert {key[0] for key in rows} == {RUNTIME, "cudaMalloc", OUTSIDE}
    assert rows[RUNTIME, "", NO_MODULE].self_cpu_ns == (5_000,)


def test_a_runtime_call_has_no_kernels_even_if_its_number_is_that_of_an_operation() -> None:
    kernel = device_event("gemm", 15, 25)
    launch = launching("cudaLaunchKernel", 11, 12, kernel)
    rows = by_key(
        table_of(iteration(0, 50, event("aten::mm", 10, 20, launch)), kernel, view="device")
    )
    assert rows[RUNTIME, "", NO_MODULE].self_device_ns == (0,)
    assert rows[UNATTRIBUTED, "", NO_MODULE].self_device_ns == (10_000,)


# ---- Profiles of torch, beside the traces that torch exports of them -----------------------------


def names_in_names() -> None:
    """Ranges of one name are one event where each contains nothing else."""
    with record_function("a"), record_function("a"), record_function("a"):
        torch.ones(3)
    with record_function("a"):
        with record_function("a"):
            torch.ones(3)
        torch.ones(3)


def allocations_outside_operations() -> None:
    kept = [torch.UntypedStorage(64)]
    torch.ones(3)
    kept.append(torch.UntypedStorage(128))
    kept.clear()
    with record_function("range"):
        torch.UntypedStorage(256)


def backward_with_a_checkpoint() -> None:
    layer = nn.Linear(4, 4)
    inputs = torch.ones(2, 4, requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, inputs, use_reentrant=True).sum().backward()


def ranges_across_each_other() -> None:
    first = record_function("first")
    second = record_function("second")
    first.__enter__()
    second.__enter__()
    torch.ones(3)
    first.__exit__(None, None, None)
    torch.ones(3)
    second.__exit__(None, None, None)


@pytest.mark.versions
@pytest.mark.parametrize(
    "body",
    [
        names_in_names,
        allocations_outside_operations,
        backward_with_a_checkpoint,
        ranges_across_each_other,
    ],
)
def test_a_profile_has_the_events_of_its_trace(body: Callable[[], None], tmp_path: Path) -> None:
    activities = [ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities, record_shapes=True, profile_memory=True
    ) as profiler:
        body()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    own = from_profiler.read(profiler.profiler)
    exported = from_file.read(tmp_path / "trace.json")
    for trace in (own, exported):
        link(trace)
    assert len(own.host) > 2
    assert relative(own) == relative(exported)


def relative(trace: Trace) -> tuple[list[Any], list[Any]]:
    """Events and memory of a trace, whose times begin with its first event."""
    begin = trace.host[0].start
    events = [
        (
            event.name,
            event.kind,
            event.start - begin,
            event.end - begin,
            event.external if event.kind == model.OPERATION else None,
            event.sequence,
            event.scope,
            event.self_ns,
            event.caller and (event.caller.name, event.caller.start - begin),
            str(event.args.get(model.SHAPES, [])),
        )
        for event in trace.host
    ]
    records = [(record.ns - begin, record.n_bytes, record.of_host) for record in trace.memory]
    return events, sorted(records)


def test_a_range_that_ends_on_another_thread_is_around_nothing() -> None:
    ranges = event("future", 5, 15, event("aten::mm", 8, 20), scope=RANGE, end_thread_id=ENGINE)
    rows = by_key(table_of(iteration(0, 30, ranges)))
    assert rows["aten::mm", "", NO_MODULE].self_cpu_ns == (12_000,)
    assert rows[OUTSIDE, "", NO_MODULE].self_cpu_ns == (18_000,)


def test_the_profilers_own_events_are_left_out() -> None:
    hidden = event("aten::mm", 5, 6, is_hidden_event=True)
    rows = by_key(table_of(iteration(0, 30, hidden, event("aten::is_leaf", 8, 9))))
    assert {key[0] for key in rows} == {OUTSIDE}
