"""Measure all ways of some convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution.calls import backends_set, cost, kernels
from mnistbench.course.studies.convolution.onednn import Case, algorithms
from mnistbench.course.studies.convolution.result import Cost, Study
from mnistbench.course.studies.convolution.sizes import Sizes
from mnistbench.course.studies.convolution.ways import WAYS
from mnistbench.measuring.case import memory_suffices, thread_count
from mnistbench.measuring.profiling import has_device_view
from mnistbench.profile.ceilings import ceilings_of


def study(
    convolutions: Mapping[str, Sizes],
    ways: Sequence[str],
    dtypes: Sequence[str],
    *,
    device: str,
    threads: int,
    settings: Mapping[str, str],
    progress: Callable[[str], None] = lambda _: None,
) -> Study:
    """Measure each way of each convolution that it can compute.

    Args:
        convolutions: name -> sizes.
        ways: names of ways.
        dtypes: names of dtypes, of inputs and weights.
        device: of the tensors.
        threads: intra-op threads on a CPU.
        settings: of oneDNN and cuDNN, as :func:`calls.backends_set` takes them.
        progress: receives what is measured next.

    Raises:
        UsageError: no way can compute any of the convolutions, or the device runs out of memory.
        OneDnnError: the algorithms could not be read.
    """
    refused: dict[str, None] = {}  # in order, each sentence once
    cases: list[tuple[str, Case]] = []
    for (name, sizes), way, dtype in itertools.product(convolutions.items(), ways, dtypes):
        try:
            WAYS[way].check(sizes)
            WAYS[way].check_dtype(dtype)
        except UsageError as error:
            refused[f"{name}: {error}"] = None
        else:
            cases.append((name, Case(way, sizes, dtype)))
    if not cases:
        raise UsageError(next(iter(refused)))
    costs: list[Cost] = []
    with thread_count(threads), backends_set(settings):
        for name, case in cases:
            progress(f"{name} {case.way} {case.dtype}")
            with memory_suffices(f"memory of {device} does not suffice for {case.sizes}: choose smaller sizes"):
                costs.append(cost(name, WAYS[case.way], case.sizes, getattr(torch, case.dtype), device))
        with memory_suffices(f"memory of {device} does not suffice to measure its ceilings: end what else runs there"):
            ceilings = {dtype: ceilings_of(device, dtype, threads) for dtype in dict.fromkeys(case.dtype for _, case in cases)}
    of_library = {number: case for number, (_, case) in enumerate(cases) if WAYS[case.way].is_library}
    progress("algorithms of the library")
    with backends_set(settings):
        for number, algorithm in zip(
            of_library, _algorithms(list(of_library.values()), device, threads, settings), strict=True
        ):
            costs[number] = replace(costs[number], algorithm=algorithm)
    return Study(device, threads, torch.__version__, tuple(costs), tuple(refused), ceilings, dict(settings))


def _algorithms(cases: Sequence[Case], device: str, threads: int, settings: Mapping[str, str]) -> list[str]:
    """Return which algorithm the library takes for each case: as oneDNN reports it, or the names of the kernels."""
    if has_device_view(device):
        dtypes = (getattr(torch, case.dtype) for case in cases)
        return [
            ", ".join(kernels(WAYS[case.way], case.sizes, dtype, device)) for case, dtype in zip(cases, dtypes, strict=True)
        ]
    if device != "cpu" or not cases:
        return [""] * len(cases)
    return [algorithm or "PyTorch's own code" for algorithm in algorithms(cases, threads, settings)]
