"""Measure how many FLOPs and bytes per second this machine reaches: the ceilings of a roofline.

Programs do not reach the peak rates of data sheets, so the ceilings are measured: the compute
ceiling by a large matrix product and a large convolution, the memory ceiling by a large copy. Both
are needed because two libraries compute them: on a CPU for which MKL is not optimised, its matrix
product reached 102 GFLOP/s and oneDNN's convolution 153.

A kernel's rate is its work divided by the lower quartile of its times in this process. The quartile
ignores disturbed iterations, and unlike the minimum it does not depend on a single one. Nothing is
kept between processes: a ceiling belongs to the same conditions as the operations that are compared
with it.

On an accelerator each kernel takes at most half of the memory that the case leaves free: the case
has to fit into the device, and its ceilings must not be the reason why it does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from mnistbench.core.record import quartiles_ns
from mnistbench.events.work.roofline import Ceilings
from mnistbench.measuring.timing import times_ns
from mnistbench.suite.measuring.case import synchronizer, thread_count

#: Fewest timed iterations of each kernel.
MIN_ITERATIONS = 5
#: Least time of the timed iterations of each kernel together, in seconds.
MEASURED_S = 0.5

#: Side of the images of the convolution.
_SIDE = 56

#: Largest share of the free memory of an accelerator that a kernel takes.
_SHARE_OF_FREE = 0.5


class Sizes(NamedTuple):
    """Sizes of the kernels: several times the size of a cache, and well below a second each."""

    side: int  # of the square matrices
    copied_bytes: int
    batch: int  # images of the convolution
    channels: int


CPU_SIZES = Sizes(1024, 128 * 2**20, 8, 64)
ACCELERATOR_SIZES = Sizes(8192, 2**30, 256, 256)
#: The smallest sizes, of 150 MB: below them, a kernel measures a launch or a cache.
MIN_SIZES = Sizes(2048, 64 * 2**20, 8, 256)


def ceilings_of(device: str, dtype: str, threads: int) -> Ceilings:
    """Return the ceilings for a device, a number type and a number of intra-op threads.

    They are measured once per process.

    Raises:
        torch.OutOfMemoryError: the free memory does not suffice for the smallest kernels.
    """
    torch_device = torch.device(device)
    precision = dtype
    # Convolutions compute in TF32 by default in cuDNN, and then the matrix product does so, too.
    if (
        dtype == "float32"
        and torch_device.type == "cuda"
        and torch.backends.cudnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]
    ):
        precision = "tf32"
    return measured_ceilings(torch_device, precision, threads if torch_device.type == "cpu" else 1)


@functools.cache
def measured_ceilings(device: torch.device, precision: str, threads: int) -> Ceilings:
    """Measure the ceilings, or return those that this process has measured before."""
    with thread_count(threads):
        sizes = kernel_sizes(device)
        flops_per_s = max(
            _matmul_flops_per_s(sizes, device, precision),
            _convolution_flops_per_s(sizes, device, precision),
        )
        return Ceilings(flops_per_s, _copy_bytes_per_s(sizes, device), precision)


def kernel_sizes(device: torch.device) -> Sizes:
    """Halve each size until its kernel fits into its share of the free memory.

    Down to ``MIN_SIZES``.
    """
    if device.type == "cpu":
        return CPU_SIZES
    module = torch.get_device_module(device)
    if device.type == "mps":
        free_bytes = int(module.recommended_max_memory() - module.current_allocated_memory())
    else:
        try:
            free_bytes, _ = module.mem_get_info(device)
        except RuntimeError:  # some XPU devices do not tell
            return ACCELERATOR_SIZES
        # torch's allocator keeps it unused.
        free_bytes += module.memory_reserved(device) - module.memory_allocated(device)
    most = _SHARE_OF_FREE * free_bytes
    side, copied_bytes, batch, channels = ACCELERATOR_SIZES
    while 3 * 4 * side**2 > most and side > MIN_SIZES.side:  # two operands and the product, float32
        side //= 2
    while 2 * copied_bytes > most and copied_bytes > MIN_SIZES.copied_bytes:
        copied_bytes //= 2
    # Inputs, outputs and cuDNN's workspace.
    while 3 * 4 * batch * channels * _SIDE**2 > most and batch > MIN_SIZES.batch:
        batch //= 2
    return Sizes(side, copied_bytes, batch, channels)


def _matmul_flops_per_s(sizes: Sizes, device: torch.device, precision: str) -> float:
    side = sizes.side
    dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
    left, right = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    before = torch.backends.cuda.matmul.fp32_precision
    if precision == "tf32":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        return 2 * side**3 / typical_s(lambda: torch.mm(left, right, out=out), device)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def _convolution_flops_per_s(sizes: Sizes, device: torch.device, precision: str) -> float:
    """Measure 3 x 3 kernels with as many input as output channels.

    These are in the middle of most networks.
    """
    batch = sizes.batch
    channels = sizes.channels
    dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
    inputs = torch.rand(batch, channels, _SIDE, _SIDE, device=device).to(dtype)
    weights = torch.rand(channels, channels, 3, 3, device=device).to(dtype)
    flops = 2 * batch * (_SIDE - 2) ** 2 * channels**2 * 9
    with torch.inference_mode():
        return flops / typical_s(lambda: torch.nn.functional.conv2d(inputs, weights), device)


def _copy_bytes_per_s(sizes: Sizes, device: torch.device) -> float:
    n_bytes = sizes.copied_bytes
    source = torch.ones(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * n_bytes / typical_s(lambda: target.copy_(source), device)


def typical_s(call: Callable[[], object], device: torch.device) -> float:
    """Return the lower quartile of a kernel's times after one untimed iteration, in seconds."""
    wait = synchronizer(device)

    def work() -> None:
        call()
        wait()

    return (
        quartiles_ns(times_ns(work, seconds=MEASURED_S, least=MIN_ITERATIONS, untimed=1))[0] / 1e9
    )
