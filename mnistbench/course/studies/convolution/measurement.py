"""Measure all ways of some convolutions.

Work, time and error of a call, and the algorithm of the library.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mnistbench.core.errors import UsageError
from mnistbench.core.operation import REORDER
from mnistbench.core.record import median_ns
from mnistbench.course.studies.convolution.sizes import ConvolutionSizes
from mnistbench.course.studies.convolution.study import (
    ConvolutionStudy,
    Settings,
    WayCase,
    WayCost,
)
from mnistbench.course.studies.convolution.ways import (
    WAYS,
    Way,
    bound_of_sum,
    by_definition,
    reference,
)
from mnistbench.events.work.roofline import Ceilings
from mnistbench.measuring.calls import PROFILED_NS, Call
from mnistbench.measuring.timing import times_ns
from mnistbench.suite.measuring.case import memory_suffices, synchronizer, thread_count
from mnistbench.suite.measuring.environment import onednn_report, onednn_runs, resolve_devices
from mnistbench.suite.measuring.profiling import has_device_view, profile_call
from mnistbench.suite.profile.ceilings import ceilings_of
from mnistbench.suite.profile.counting import moved_bytes

#: Fewest timed calls.
_CALLS = 5
#: Least time of the timed calls together, in seconds.
_MEASURED_S = 0.1


def study(settings: Settings, progress: Callable[[str], None] = lambda _: None) -> ConvolutionStudy:
    """Measure each way of each convolution that it can compute."""
    device = resolve_devices([settings.device])[-1]  # auto: the accelerator, if there is one
    refused: dict[str, None] = {}  # in order, each sentence once
    cases: list[WayCase] = []
    for (name, sizes), way, dtype in itertools.product(
        settings.convolutions.items(), settings.ways or WAYS, settings.dtypes
    ):
        if why := WAYS[way].refusal(sizes, dtype):
            refused[f"{name}: {why}"] = None
        else:
            cases.append(WayCase(name, sizes, way, dtype))
    if not cases:
        raise UsageError(next(iter(refused)))
    costs: list[WayCost] = []
    with thread_count(settings.threads):
        with memory_suffices(
            f"memory of {device} does not suffice to measure its ceilings: end what else runs there"
        ):
            ceilings = {
                case.dtype: ceilings_of(device, case.dtype, settings.threads) for case in cases
            }
        for case in cases:
            progress(f"{case.convolution} {case.way} {case.dtype}")
            with memory_suffices(
                f"memory of {device} does not suffice for {case.sizes}: choose smaller sizes"
            ):
                algorithm = _algorithm(case, device) if WAYS[case.way].is_library else ""
                costs.append(replace(cost(case, ceilings[case.dtype], device), algorithm=algorithm))
    return ConvolutionStudy(
        replace(settings, device=device), torch.__version__, tuple(costs), tuple(refused)
    )


def call_of(
    way: Way, sizes: ConvolutionSizes, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Callable[[], object]:
    """Return the call of a way, which can compute these sizes, on normally distributed tensors."""
    inputs, weights = (tensor.to(device) for tensor in sizes.tensors(dtype))
    if way.backward:
        gradient = torch.randn(sizes.output_shape, generator=torch.Generator().manual_seed(1)).to(
            device, dtype
        )
        return lambda: way.compute(gradient, inputs, weights, sizes)
    return lambda: way.compute(inputs, weights, sizes)


def cost(
    case: WayCase, ceilings: Ceilings, device: str = "cpu", *, seconds: float | None = None
) -> WayCost:
    """Return the cost of a call, with its time in ``seconds`` if it has been timed."""
    way = WAYS[case.way]
    sizes = case.sizes
    dtype = getattr(torch, case.dtype)
    call = call_of(way, sizes, dtype, device)
    wait = synchronizer(torch.device(device))

    def run() -> None:
        call()
        wait()

    # All images, kernels and outputs; for gradients, these and their gradients.
    tensors = sum(
        math.prod(shape) for shape in (sizes.input_shape, sizes.weight_shape, sizes.output_shape)
    )
    least_bytes = tensors * dtype.itemsize * (2 if way.backward else 1)
    with torch.inference_mode():
        if seconds is None:
            seconds = median_ns(times_ns(run, seconds=_MEASURED_S, least=_CALLS, untimed=1)) / 1e9
        error, bound = (None, None) if way.backward else _error(way, sizes, dtype, device)
        n_bytes = max(moved_bytes(call), least_bytes)
    definition = (way.flops if way.backward else by_definition)(sizes)
    return WayCost(case, ceilings, way.flops(sizes), definition, n_bytes, seconds, error, bound)


def _error(
    way: Way, sizes: ConvolutionSizes, dtype: torch.dtype, device: str
) -> tuple[float, float | None]:
    """Return the largest error of an output, and the largest bound of a sum."""
    inputs, weights = sizes.tensors(dtype)
    output: Tensor = way.compute(inputs.to(device), weights.to(device), sizes)
    error = (output.cpu().double() - reference(inputs, weights, sizes)).abs()
    bound = float(bound_of_sum(inputs, weights, sizes).max()) if way.adds_products else None
    return float(error.max()), bound


# ---- The algorithm of the library ----------------------------------------------------------------


def _algorithm(case: WayCase, device: str) -> str:
    """Return which algorithm the library takes: as oneDNN reports it, or the names of the kernels.

    The result is empty if it is not known.
    """
    if has_device_view(device):
        return ", ".join(kernels(case, device))
    if device != "cpu":
        return ""
    call = call_of(WAYS[case.way], case.sizes, getattr(torch, case.dtype))
    with torch.inference_mode():
        call()  # weights may be packed once
        return summary(onednn_runs(onednn_report(call))) or "PyTorch's own code"


def kernels(case: WayCase, device: str) -> tuple[str, ...]:
    """Return the names of the kernels that a call runs on an accelerator.

    Each name comes once, in the order of the operations.
    """
    call = Call(call_of(WAYS[case.way], case.sizes, getattr(torch, case.dtype), device))
    profile = profile_call(call, iterations=1, duration_ns=PROFILED_NS, device=device)
    return tuple(
        dict.fromkeys(
            name for table in profile.tables for row in table.rows for name in row.kernels
        )
    )


def summary(runs: Mapping[str, int]) -> str:
    """Return the algorithms that oneDNN ran, and how many tensors were brought into another layout.

    The result is empty if it ran none.
    """
    names = " + ".join(name.partition(" ")[2] for name in runs if name != REORDER)
    reorders = runs.get(REORDER, 0)
    return (
        f"{names}, {reorders} reorder{'s' if reorders > 1 else ''}" if names and reorders else names
    )
