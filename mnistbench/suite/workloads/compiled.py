"""From PyTorch to the loops that numba compiles, and two of them at the same time.

numba and NumPy are optional: without them :func:`loops` is None, and the fast step uses operations
of PyTorch instead. A step of ConvNet then takes 1.8 times as long, of one image 3.6 times.

A loop runs in one thread, so its sums are the same in each run. Two loops, or one loop on two
halves, run at the same time where that is faster. The second thread is kept: the system starts a
new one on the core of the thread that waits for it, so that both halves run one after the other.
Keeping it made a step 0.93 times as long.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

#: Number formats of the loops; NumPy has no bfloat16.
NUMPY_FLOATS = torch.float32, torch.float64


@functools.cache
def loops() -> Any:
    """Return the compiled functions of :mod:`mnistbench.suite.workloads.loops`.

    The result is None without numba or NumPy.
    """
    try:
        from mnistbench.suite.workloads.loops import compiled

        return compiled()
    except ImportError:
        return None


def as_array(tensor: Tensor) -> Any:
    """Return the tensor as a contiguous array, which shares its memory if it can.

    bfloat16 and float16 become float32.
    """
    is_converted = tensor.is_floating_point() and tensor.dtype not in NUMPY_FLOATS
    return (tensor.float() if is_converted else tensor).detach().contiguous().numpy()


def halves(n: int) -> list[slice]:
    """Return the slices of both halves of ``n`` elements; of one element only one slice."""
    return [slice(0, n // 2), slice(n // 2, n)] if n > 1 else [slice(0, n)]


def call_all(calls: Sequence[Callable[[], object]], *, in_two_threads: bool) -> list[Any]:
    """Return the results of one or two functions that run compiled loops.

    With ``in_two_threads`` they run at the same time, unless PyTorch has one thread.
    """
    if not in_two_threads or torch.get_num_threads() == 1:
        return [call() for call in calls]
    futures = [_second_thread(os.getpid()).submit(call) for call in calls[1:]]
    return [calls[0](), *(future.result() for future in futures)]


@functools.cache
def _second_thread(process: int) -> ThreadPoolExecutor:  # noqa: ARG001  # a fork has no threads
    """Return one thread of this process, which is kept."""
    return ThreadPoolExecutor(1)
