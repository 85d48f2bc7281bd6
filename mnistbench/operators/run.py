"""Measure all ways of some convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from mnistbench.core.errors import UsageError
from mnistbench.measuring.case import memory_suffices, thread_count
from mnistbench.operators.calls import cost, library_set
from mnistbench.operators.onednn import Case, algorithms
from mnistbench.operators.result import Cost, Study
from mnistbench.operators.sizes import Sizes
from mnistbench.operators.ways import WAYS
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
        settings: of the library, as :func:`calls.library_set` takes them.
        progress: receives what is measured next.

    Raises:
        UsageError: no way can compute any of the convolutions, or the device runs out of memory.
        OneDnnError: the algorithms could not be read.
    """
    cases: list[Case] = []
    refused: list[str] = []
    for name, sizes in convolutions.items():
        for way in ways:
            for dtype in dtypes:
                try:
                    WAYS[way].check(sizes)
                    WAYS[way].check_dtype(dtype)
                except UsageError as error:
                    refused.append(f"{name}: {error}")
                else:
                    cases.append(Case(way, sizes, dtype))
    if not cases:
        raise UsageError(refused[0])
    names = {sizes: name for name, sizes in convolutions.items()}
    costs: list[Cost] = []
    with thread_count(threads), library_set(settings):
        for case in cases:
            progress(f"{names[case.sizes]} {case.way} {case.dtype}")
            with memory_suffices(f"memory of {device} does not suffice for {case.sizes}: choose smaller sizes"):
                costs.append(cost(names[case.sizes], WAYS[case.way], case.sizes, getattr(torch, case.dtype), device))
        ceilings = {dtype: ceilings_of(device, dtype, threads) for dtype in dict.fromkeys(case.dtype for case in cases)}
    of_library = [number for number, case in enumerate(cases) if WAYS[case.way].is_library and device == "cpu"]
    progress("algorithms of oneDNN")
    for number, algorithm in zip(
        of_library, algorithms([cases[number] for number in of_library], threads, settings), strict=True
    ):
        costs[number] = replace(costs[number], algorithm=algorithm or "PyTorch's own code")
    return Study(device, threads, torch.__version__, tuple(costs), tuple(dict.fromkeys(refused)), ceilings, dict(settings))
