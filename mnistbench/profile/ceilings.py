"""Measure how many FLOPs and bytes per second this machine reaches: the ceilings of a roofline.

Programs do not reach the peak rates of data sheets, so the ceilings are measured: the compute ceiling by a large matrix
product and a large convolution, the memory ceiling by a large copy. Both are needed because two libraries
compute them: on a CPU for which MKL is not optimised, its matrix product reached 102 GFLOP/s and oneDNN's convolution 153.

A kernel's rate is its work divided by the lower quartile of its times in this process. The quartile ignores disturbed
iterations, and unlike the minimum it does not depend on a single one. Nothing is kept between processes: a ceiling
belongs to the same conditions as the operations that are compared with it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from mnistbench.core.params import Params
from mnistbench.core.record import quartiles_ns
from mnistbench.measuring.case import synchronizer, thread_count
from mnistbench.profile.result import Ceilings

#: Timed iterations of each kernel: at least this many, and for at least this many seconds.
LEAST_ITERATIONS, MEASURED_S = 5, 0.5

#: Side of the square matrices, and bytes copied: several times the size of a cache, and well below a second each.
_SIZES = {"cpu": (1024, 128 * 2**20), "accelerator": (8192, 2**30)}
#: Samples and channels of the convolution, on images of this side.
_CONVOLUTIONS = {"cpu": (8, 64), "accelerator": (256, 256)}
_SIDE = 56


def ceilings(params: Params) -> Ceilings:
    """Return the ceilings for a case's device, number type and number of threads, measured once per process."""
    return ceilings_of(params.device, params.dtype, params.threads)


def ceilings_of(device: str, dtype: str, threads: int) -> Ceilings:
    """Return the ceilings for a device, a number type and a number of intra-op threads, measured once per process."""
    found = torch.device(device)
    return _measured(found, _precision(found, dtype), threads if found.type == "cpu" else 1)


@functools.cache
def _measured(device: torch.device, precision: str, threads: int) -> Ceilings:
    with thread_count(threads):
        flops_per_s = max(_matmul_flops_per_s(device, precision), _convolution_flops_per_s(device, precision))
        return Ceilings(flops_per_s, _copy_bytes_per_s(device), precision)


def _precision(device: torch.device, dtype: str) -> str:
    """Return the number format that convolutions compute in: TF32 by default in cuDNN, and then in the matrix product, too."""
    if dtype == "float32" and device.type == "cuda" and torch.backends.cudnn.conv.fp32_precision == "tf32":  # type: ignore[attr-defined]
        return "tf32"
    return dtype


def _matmul_flops_per_s(device: torch.device, precision: str) -> float:
    side, _ = _SIZES["cpu" if device.type == "cpu" else "accelerator"]
    dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
    left, right = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    before = torch.backends.cuda.matmul.fp32_precision
    if precision == "tf32":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        return 2 * side**3 / _typical_s(lambda: torch.mm(left, right, out=out), device)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def _convolution_flops_per_s(device: torch.device, precision: str) -> float:
    """Measure 3 x 3 kernels with as many input as output channels, as in the middle of most networks."""
    batch, channels = _CONVOLUTIONS["cpu" if device.type == "cpu" else "accelerator"]
    dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
    inputs = torch.rand(batch, channels, _SIDE, _SIDE, device=device).to(dtype)
    weights = torch.rand(channels, channels, 3, 3, device=device).to(dtype)
    flops = 2 * batch * (_SIDE - 2) ** 2 * channels**2 * 9
    with torch.inference_mode():
        return flops / _typical_s(lambda: torch.nn.functional.conv2d(inputs, weights), device)


def _copy_bytes_per_s(device: torch.device) -> float:
    _, n_bytes = _SIZES["cpu" if device.type == "cpu" else "accelerator"]
    source = torch.ones(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * n_bytes / _typical_s(lambda: target.copy_(source), device)


def _typical_s(call: Callable[[], object], device: torch.device) -> float:
    """Return the lower quartile of a kernel's times after one untimed iteration, in seconds."""
    wait = synchronizer(device)
    call()
    wait()
    times: list[int] = []
    while len(times) < LEAST_ITERATIONS or sum(times) < MEASURED_S * 1e9:
        start = time.perf_counter_ns()
        call()
        wait()
        times.append(time.perf_counter_ns() - start)
    return quartiles_ns(times)[0] / 1e9
