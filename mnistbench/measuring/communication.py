"""Time training steps of ranks with and without communication (DDP's ``no_sync``).

Steps run in blocks of both kinds in turn. Without communication the weights of the ranks drift apart, and operation times
depend on the data, so each block starts from the case's initial state and runs on the same batches. All ranks begin a step
together, so the slowest rank's time is the time of the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from mnistbench.measuring.case import Case, seed
from mnistbench.workloads.ranks import Alone, seed_of_masks
from mnistbench.workloads.step import Step

#: Timed steps of a block, and untimed ones before them: the first step creates the optimizer's state.
BLOCK_STEPS, WARMUP_STEPS = 10, 3


def time_steps(
    case: Case, work: Sequence[Callable[[], object]], ranks: Alone, steps: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the wall times of ``steps`` steps on this rank, in nanoseconds: with communication, and without.

    A process by itself communicates nothing: it has no steps of the second kind.

    Args:
        case: a training step; the model of its runner is what ``ranks.model`` returned.
        work: steps of the case, one for each batch, which wait for the device.
        ranks: of which this process is one. All call this function with the same number of steps.
        steps: at least 1.
    """
    assert isinstance(case.runner, Step), "a training step"
    times: dict[bool, list[int]] = {True: [], False: []}  # with communication, without
    kinds = [True] if ranks.world_size == 1 else [True, False]
    while (left := steps - len(times[True])) > 0:
        for synced in kinds:
            case.reset()
            seed(torch.device(case.params.device), seed_of_masks(case.params.seed, ranks.rank))
            count = min(left, BLOCK_STEPS)
            if synced:
                times[synced] += _timed(work, ranks, count)
            else:
                with ranks.no_sync(case.runner.model):
                    times[synced] += _timed(work, ranks, count)
        kinds.reverse()  # a drift of the machine adds to both kinds alike
    return tuple(times[True]), tuple(times[False])


def _timed(work: Sequence[Callable[[], object]], ranks: Alone, count: int) -> list[int]:
    """Return the wall time of ``count`` steps after untimed ones, in nanoseconds."""
    found = []
    for number in range(-WARMUP_STEPS, count):
        step = work[number % len(work)]
        ranks.barrier()
        start = time.perf_counter_ns()
        step()
        ns = time.perf_counter_ns() - start
        if number >= 0:
            found.append(ns)
    return found
