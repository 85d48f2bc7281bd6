"""The timed passes of a case.

The first iteration, pytest-benchmark's rounds, iterations by events, steps of ranks.

Nothing else runs inside a timed region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from mnistbench.core.record import OpTable, nanoseconds
from mnistbench.measuring.case import Case, on_device, seed
from mnistbench.measuring.profiling import profile_first_call
from mnistbench.measuring.timing import WARMUP_ITERATIONS, clocked, event_ns, times_ns
from mnistbench.workloads.ranks import Ranks, seed_of_masks
from mnistbench.workloads.step import Step

#: Iterations timed by events on an accelerator, after the rounds; fewer for a whole epoch.
EVENT_CALLS = 20
EVENT_CALLS_OF_AN_EPOCH = 3

#: Outside pytest: seconds to fill with timed iterations.
CALLS_S = 1.0
#: Fewest timed iterations, even if they take longer.
LEAST_CALLS = 10
#: Most timed iterations, even if they do not fill the time.
MOST_CALLS = 1_000

#: Timed steps of a block of steps of ranks.
BLOCK_STEPS = 10
#: Warm-up iterations of ranks, before each block.
WARMUP_ITERATIONS_OF_RANKS = 3


@dataclass(frozen=True)
class Timed:
    """Results of the timed passes of a case."""

    rounds_ns: tuple[float, ...] = ()  # wall time per iteration of each round
    device_ns: tuple[int, ...] = ()  # single iterations on the accelerator's clock; empty on a CPU
    # Operations of the first iteration.
    first_call: OpTable | None = field(default=None, repr=False)


def measure(case: Case, benchmark: Any, *, cold: bool, first_of_process: bool) -> Timed:
    """Run a case through a pytest-benchmark fixture.

    If the fixture is disabled, the case runs once and nothing is measured. ``cold`` profiles the
    first iteration; ``first_of_process`` means that no case has run in this process before.
    """
    if not benchmark.enabled:
        benchmark(case)
        return Timed()
    first_call = None
    if case.runner is not None:
        if cold:
            first_call = profile_first_call(case, first_of_process=first_of_process)
        for _ in range(WARMUP_ITERATIONS):
            case()
        case.reset()
    try:
        benchmark(case)
    # pytest-benchmark sets this for an Exception only: it would save what Ctrl-C interrupted.
    except BaseException:
        benchmark.has_error = True
        raise
    rounds_ns = tuple(map(nanoseconds, benchmark.stats.stats.data))
    return Timed(rounds_ns, device_times(case), first_call)


def time_calls(case: Case) -> tuple[int, ...]:
    """Return the wall time of single warm iterations, in nanoseconds.

    They begin with the case's initial state.
    """
    for _ in range(WARMUP_ITERATIONS):
        case()
    case.reset()
    return times_ns(case, seconds=CALLS_S, least=LEAST_CALLS, most=MOST_CALLS)


def device_times(case: Case) -> tuple[int, ...]:
    """Return the elapsed time of single iterations on the accelerator's clock, in nanoseconds.

    Empty on a CPU.

    An iteration ends with the host's wait for the device, so these times have the gaps between
    kernels. They begin at the initial state of the case: after more rounds, other weights give
    other times.
    """
    device = torch.device(case.params.device)
    if device.type == "cpu":
        return ()
    case.reset()
    with on_device(device):
        return tuple(
            event_ns(case, device)
            for _ in range(EVENT_CALLS if case.runner else EVENT_CALLS_OF_AN_EPOCH)
        )


def time_steps(
    case: Case, work: Sequence[Callable[[], object]], ranks: Ranks, steps: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the wall times of ``steps`` steps on this rank, in nanoseconds.

    With communication, and without (``no_sync``).

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
