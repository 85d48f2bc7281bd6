"""Profiled cases made by hand.

A network of a convolution and a matrix product, on a CPU and on an accelerator.
"""

from __future__ import annotations

from typing import Any

from builders import op_row, op_table, params

from mnistbench.core.operation import OUTSIDE
from mnistbench.core.record import OpTable
from mnistbench.events.work.roofline import Ceilings, Cost
from mnistbench.suite.profile.result import ColdCall, Layer, OperationCosts, Profiled, RankTimes

CONV = ("aten::mkldnn_convolution", "forward", "conv2")
RELU = ("aten::clamp_min", "forward", "relu2")
FC = ("aten::addmm", "forward", "fc1")

#: 100 GFLOP/s and 20 GB/s: the ridge lies at 5 FLOP/byte.
CEILINGS = Ceilings(flops_per_s=100e9, bytes_per_s=20e9, precision="float32")

LAYERS = (
    Layer(
        "conv2",
        "Conv2d",
        (64, 24, 24),
        parameters=18_496,
        parameter_bytes=73_984,
        flops=21_233_664,
        output_bytes=147_456,
    ),
    Layer(
        "relu2",
        "ReLU",
        (64, 24, 24),
        parameters=0,
        parameter_bytes=0,
        flops=None,
        output_bytes=147_456,
    ),
    Layer(
        "fc1",
        "Linear",
        (128,),
        parameters=1_179_776,
        parameter_bytes=4_719_104,
        flops=2_359_296,
        output_bytes=512,
    ),
)


def table(batch_size: int = 1, **changes: Any) -> OpTable:
    """Three operations and what lies outside them.

    They take as many times as long as there are samples.
    """
    rows = [
        op_row(
            CONV[0],
            800_000 * batch_size,
            phase="forward",
            module="conv2",
            total_cpu_ns=820_000 * batch_size,
        ),
        op_row(
            RELU[0],
            50_000 * batch_size,
            phase="forward",
            module="relu2",
            memory_bytes=147_456 * batch_size,
        ),
        op_row(FC[0], 125_000 * batch_size, phase="forward", module="fc1"),
        op_row("aten::view", 500, phase="forward", module="flatten", calls=2.0),
        op_row(OUTSIDE, 24_500, phase="forward", module="", calls=0.0),
    ]
    return op_table(*rows, **{"iteration_ns": 1_000_000 * batch_size, **changes})


def profiled(batch_size: int = 1, **changes: Any) -> Profiled:
    """A forward pass on one thread of a CPU: 24 MFLOP and 5.3 MB a sample, 950 us."""
    fields: dict[str, Any] = {
        "params": params(phase="forward", batch_size=batch_size),
        "parameter_count": 1_198_272,
        "samples": batch_size,
        "calls_ns": tuple((950_000 + step) * batch_size for step in (0, 1_000, 2_000, 40_000)),
        "tables": (table(batch_size),),
        "costs": OperationCosts(
            {
                CONV: Cost(21_233_664 * batch_size, 240_000 * batch_size),
                RELU: Cost(None, 294_912 * batch_size),
                FC: Cost(2_359_296 * batch_size, 4_719_000 + 37_000 * batch_size),
            }
        ),
        "ceilings": CEILINGS,
        "layers": LAYERS,
    }
    return Profiled(**{**fields, **changes})


def on_accelerator(
    batch_size: int = 1, *, busy_ns: tuple[int, ...] = (80_000, 81_000, 80_000), **changes: Any
) -> Profiled:
    """The same on an accelerator, which works for a tenth of the call."""
    rows = (
        op_row(CONV[0], 20_000, phase="forward", module="conv2", self_device_ns=60_000),
        op_row(FC[0], 15_000, phase="forward", module="fc1", self_device_ns=20_000),
        op_row(OUTSIDE, 5_000, phase="forward", module="", calls=0.0, self_device_ns=0),
    )
    host = op_table(*rows, view="host", iteration_ns=900_000)
    device = op_table(*rows, view="device", iteration_ns=950_000, busy_ns=busy_ns)
    fields = {
        "params": params(phase="forward", batch_size=batch_size, device="cuda"),
        "calls_ns": (800_000,) * 5,
        "tables": (host, device),
        "ceilings": Ceilings(50e12, 2e12, "tf32"),
    }
    return profiled(batch_size, **{**fields, **changes})


def of_two_ranks() -> Profiled:
    """Rank 0 of two, which has half of 16 samples; the steps of rank 1 take longer."""
    rows = (
        op_row(CONV[0], 8_000_000, phase="forward", module="conv2"),
        op_row("c10d::allreduce_", 1_500_000, phase="backward", module=""),
        op_row("gloo:all_reduce", 2_000_000, phase="", module="", calls=2.0),
        op_row(OUTSIDE, 500_000, phase="forward", module="", calls=0.0),
    )
    return profiled(
        16,
        params=params(batch_size=16),
        samples=8,
        calls_ns=(10_000_000, 10_400_000, 10_000_000),
        tables=(op_table(*rows, iteration_ns=10_500_000),),
        ranks=RankTimes(
            step_ns=((10_000_000, 10_400_000, 10_000_000), (10_500_000, 10_300_000, 10_200_000)),
            no_sync_ns=((8_000_000, 8_000_000, 8_000_000), (8_500_000, 8_300_000, 8_200_000)),
        ),
    )


def cold_calls() -> tuple[ColdCall, ...]:
    """A first call of 20 ms, untrained and trained; 1 ms in the same process after training."""
    return tuple(
        ColdCall(
            trained, first, table(20 if first else 1, temperature="cold", first_of_process=first)
        )
        for trained, first in ((False, True), (True, False), (True, True))
    )
