"""The call of a way of a convolution, and what it costs: work, time and error."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from mnistbench.core.record import median_ns
from mnistbench.course.studies.convolution.errors import reference
from mnistbench.course.studies.convolution.result import Cost
from mnistbench.course.studies.convolution.sizes import Sizes
from mnistbench.course.studies.convolution.ways import Way, by_definition
from mnistbench.measuring.calls import PROFILED_NS, Call
from mnistbench.measuring.case import synchronizer
from mnistbench.measuring.profiling import profile_call
from mnistbench.measuring.timing import clocked
from mnistbench.profile.costs import moved_bytes

#: Timed calls: at least this many, and for at least this many seconds.
_CALLS, _MEASURED_S = 5, 0.1


def call_of(way: Way, sizes: Sizes, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Callable[[], object]:
    """Return the call of a way on normally distributed tensors.

    Raises:
        UsageError: the way cannot compute it.
    """
    way.check(sizes)
    inputs, weights = (tensor.to(device) for tensor in sizes.tensors(dtype))
    if way.backward:
        gradient = torch.randn(sizes.output_shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        return lambda: way.compute(gradient, inputs, weights, sizes)
    return lambda: way.compute(inputs, weights, sizes)


@contextlib.contextmanager
def backends_set(settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of oneDNN and cuDNN while the body runs.

    Args:
        settings: ``mkldnn``, ``cudnn_benchmark`` and ``deterministic`` are ``on`` or ``off``; ``fp32_precision`` is ``ieee``,
            ``tf32`` or ``bf16``, of the convolutions of both libraries.
    """
    on = {name: value == "on" for name, value in settings.items()}
    with contextlib.ExitStack() as stack:
        if "mkldnn" in on:
            stack.enter_context(torch.backends.mkldnn.flags(enabled=on["mkldnn"]))
        cudnn = {"benchmark": on.get("cudnn_benchmark", False), "deterministic": on.get("deterministic", False)}
        if any(cudnn.values()):
            stack.enter_context(torch.backends.cudnn.flags(**cudnn))
        if "fp32_precision" in settings:
            for convolutions in (torch.backends.mkldnn.conv, torch.backends.cudnn.conv):  # type: ignore[attr-defined]
                stack.callback(setattr, convolutions, "fp32_precision", convolutions.fp32_precision)
                convolutions.fp32_precision = settings["fp32_precision"]
        yield


def cost(
    name: str,
    way: Way,
    sizes: Sizes,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    *,
    seconds: float | None = None,
) -> Cost:
    """Return the cost of a call.

    Args:
        name: of the sizes.
        way: of the convolution.
        sizes: of the convolution.
        dtype: of inputs and weights.
        device: of both.
        seconds: of a call, if it has been timed.

    Raises:
        UsageError: the way cannot compute it.
    """
    call = call_of(way, sizes, dtype, device)
    with torch.inference_mode():
        if seconds is None:
            seconds = _typical_s(call, device)
        error, bound = (None, None) if way.backward else _error(way, sizes, dtype, device)
        n_bytes = max(moved_bytes(call), _least_bytes(way, sizes, dtype))
    definition = way.flops if way.backward else by_definition
    return Cost(
        convolution=name, sizes=str(sizes), way=way.name, dtype=str(dtype).removeprefix("torch."), flops=way.flops(sizes),
        flops_by_definition=definition(sizes), n_bytes=n_bytes, seconds=seconds, error=error,
        bound=bound,
    )  # fmt: skip


def kernels(way: Way, sizes: Sizes, dtype: torch.dtype, device: str) -> tuple[str, ...]:
    """Return the names of the kernels that a call runs on an accelerator, each once, in the order of its operations."""
    call = call_of(way, sizes, dtype, device)
    tables = profile_call(Call(call), iterations=1, duration_ns=PROFILED_NS, device=device)
    return tuple(dict.fromkeys(name for table in tables for row in table.rows for name in row.kernels))


def _error(way: Way, sizes: Sizes, dtype: torch.dtype, device: str) -> tuple[float, float]:
    """Return the largest error of an output, and the largest bound."""
    inputs, weights = sizes.tensors(dtype)
    output: Tensor = way.compute(inputs.to(device), weights.to(device), sizes)
    error = (output.cpu().double() - reference(inputs, weights, sizes)).abs()
    return float(error.max()), float(way.bound(inputs, weights, sizes).max())


def _least_bytes(way: Way, sizes: Sizes, dtype: torch.dtype) -> int:
    """Return the bytes of all images, kernels and outputs; for gradients, of these and of their gradients."""
    tensors = sum(math.prod(shape) for shape in (sizes.input_shape, sizes.weight_shape, sizes.output_shape))
    return tensors * dtype.itemsize * (2 if way.backward else 1)


def _typical_s(call: Callable[[], object], device: str) -> float:
    """Return the median time of a call after one untimed call, in seconds."""
    wait = synchronizer(torch.device(device))

    def run() -> None:
        call()
        wait()

    run()
    times: list[int] = []
    while len(times) < _CALLS or sum(times) < _MEASURED_S * 1e9:
        times.append(clocked(run).wall_ns)
    return median_ns(times) / 1e9
