"""The timed passes of a case outside pytest: iterations of one process, and steps of ranks.

Nothing else runs inside a timed region. In pytest the fixture ``op_benchmark`` times a case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch

from mnistbench.measuring.timing import WARMUP_ITERATIONS, clocked, times_ns
from mnistbench.suite.measuring.case import Case, seed
from mnistbench.suite.workloads.ranks import Ranks, seed_of_masks
from mnistbench.suite.workloads.step import Step

#: Seconds to fill with timed iterations.
CALLS_S = 1.0
#: Fewest timed iterations, even if they take longer.
MIN_CALLS = 10
#: Most timed iterations, even if they do not fill the time.
MAX_CALLS = 1_000

#: Timed steps of a block of steps of ranks.
BLOCK_STEPS = 10
#: Warm-up iterations of ranks, before each block.
WARMUP_ITERATIONS_OF_RANKS = 3


def time_calls(case: Case) -> tuple[int, ...]:
    """Return the wall time of single warm iterations, in nanoseconds.

    They begin with the case's initial state.
    """
    for _ in range(WARMUP_ITERATIONS):
        case()
    case.reset()
    return times_ns(case, seconds=CALLS_S, least=MIN_CALLS, most=MAX_CALLS)


def time_steps(
    case: Case, work: Sequence[Callable[[], object]], ranks: Ranks, steps: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the wall times of ``steps`` steps on this rank, in nanoseconds.

    The first times are those of steps with communication, the second ones without (``no_sync``).

    A process by itself communicates nothing: it has no steps of the second kind.

    Steps run in blocks of both kinds in turn. Without communication the weights of the ranks drift
    apart, and operation times depend on the data, so each block starts from the case's initial
    state and runs on the same batches. All ranks begin a step together, so the slowest rank's time
    is the time of the step.

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
            with nullcontext() if synced else ranks.no_sync(case.runner.model):
                for number in range(-WARMUP_ITERATIONS_OF_RANKS, min(left, BLOCK_STEPS)):
                    ranks.barrier()
                    ns = clocked(work[number % len(work)]).wall_ns
                    if number >= 0:
                        times[synced].append(ns)
        kinds.reverse()  # a drift of the machine adds to both kinds alike
    return tuple(times[True]), tuple(times[False])
