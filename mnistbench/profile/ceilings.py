"""The most that this machine computes and moves per second: the best that was ever measured, kept in the user's cache.

Data sheets count what no program reaches; the roof of a roofline is what a large matrix product or convolution, and a large
copy, reached. Both, because they come from two libraries: on a CPU that MKL was not made for, its product reached 102 GFLOP/s
where oneDNN's convolution reached 153.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mnistbench.core.errors import RecordError
from mnistbench.core.files import replace_file
from mnistbench.core.json_reader import Reader
from mnistbench.core.params import Params
from mnistbench.measuring.case import synchronizer, thread_count
from mnistbench.measuring.environment import cpu_model
from mnistbench.profile.result import Ceilings

#: Of each kernel: the fewest calls, and for how long it is called again, in seconds. The best call counts: what else
#: a machine does only takes away.
LEAST_CALLS, MEASURED_S = 5, 0.5

#: Side of the square matrices, and bytes that are copied: several times a cache, and fractions of a second a call.
_SIZES = {"cpu": (1024, 128 * 2**20), "accelerator": (8192, 2**30)}
#: Samples and channels of the convolution, on images of this side.
_CONVOLUTIONS = {"cpu": (8, 64), "accelerator": (256, 256)}
_SIDE = 56


def ceilings(params: Params, cache: Path) -> Ceilings:
    """Return the ceilings for a case's device, type of numbers and threads: the best of those known and of a short measurement.

    A measurement beside a busy neighbour is too low, so none is believed for ever. One a process.

    Args:
        params: of the case.
        cache: a file; one that cannot be read is made anew, one that cannot be written is left.
    """
    device = torch.device(params.device)
    name = cpu_model() if device.type == "cpu" else _accelerator_name(device)
    precision = _precision(device, params.dtype)
    threads = params.threads if device.type == "cpu" else 1
    key = f"{name}, {threads} threads, {precision}, torch {torch.__version__}"
    known = _stored(cache)
    found = _measured(device, precision, threads)
    if before := known.get(key):
        found = Ceilings(
            max(found.flops_per_s, before.flops_per_s), max(found.bytes_per_s, before.bytes_per_s), precision
        )  # fmt: skip
    if found != before:
        _store(cache, {**known, key: found})
    return found


@functools.cache
def _measured(device: torch.device, precision: str, threads: int) -> Ceilings:
    with thread_count(threads):
        flops_per_s = max(_matmul_flops_per_s(device, precision), _convolution_flops_per_s(device, precision))
        return Ceilings(flops_per_s, _copy_bytes_per_s(device), precision)


def _accelerator_name(device: torch.device) -> str:
    return str(torch.get_device_module(device).get_device_name(device)) if device.type != "mps" else "mps"


def _precision(device: torch.device, dtype: str) -> str:
    """Return what convolutions compute in: cuDNN's do so in TF32 unless told not to, and the product must, too."""
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
        return 2 * side**3 / _best_s(lambda: torch.mm(left, right, out=out), device)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def _convolution_flops_per_s(device: torch.device, precision: str) -> float:
    """Of 3 x 3 kernels from as many channels to as many, as in the middle of most networks."""
    batch, channels = _CONVOLUTIONS["cpu" if device.type == "cpu" else "accelerator"]
    dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
    inputs = torch.rand(batch, channels, _SIDE, _SIDE, device=device).to(dtype)
    weights = torch.rand(channels, channels, 3, 3, device=device).to(dtype)
    flops = 2 * batch * (_SIDE - 2) ** 2 * channels**2 * 9
    with torch.inference_mode():
        return flops / _best_s(lambda: torch.nn.functional.conv2d(inputs, weights), device)


def _copy_bytes_per_s(device: torch.device) -> float:
    _, n_bytes = _SIZES["cpu" if device.type == "cpu" else "accelerator"]
    source = torch.ones(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * n_bytes / _best_s(lambda: target.copy_(source), device)


def _best_s(call: Callable[[], Any], device: torch.device) -> float:
    """Return the time of the quickest call, in seconds."""
    wait = synchronizer(device)
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) <= LEAST_CALLS or time.perf_counter() - begin < MEASURED_S:
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


# ---- The cache -------------------------------------------------------------------------------------------------------


def default_cache() -> Path:
    """Return where this user's ceilings are kept."""
    import platformdirs

    return platformdirs.user_cache_path("mnistbench") / "ceilings.json"


def _stored(cache: Path) -> dict[str, Ceilings]:
    try:
        return dict(Reader(json.loads(cache.read_text("utf-8"))).read(Mapping[str, Ceilings]))
    except (OSError, ValueError, RecursionError, RecordError):
        return {}


def _store(cache: Path, known: dict[str, Ceilings]) -> None:
    with contextlib.suppress(OSError):  # it is measured again next time
        cache.parent.mkdir(parents=True, exist_ok=True)
        replace_file(cache, json.dumps({key: asdict(found) for key, found in known.items()}, indent=1).encode())
