"""How many iterations a trial makes of a case, and how long its calls take.

The processes of both sides choose equal numbers. The flow of a gate expects them, to make trials
that fit into a budget.
"""

from __future__ import annotations

import math

from mnistbench.gate.processes.messages import Efforts
from mnistbench.gate.words import MIN_PAIRS
from mnistbench.measuring.timing import WARMUP_ITERATIONS

#: Builds of each case of a workload in a trial with the effort 1. The second has the reverse order
#: of the first, so that quantities of the order cancel. With half of the effort there is one, whose
#: order is drawn. A plain test has one, because its fixtures have made all objects before.
BUILDS = 2


def builds_of(*, is_plain: bool, is_compiled: bool) -> int:
    """Return in how many builds a trial measures a case; one of compiled code compiles anew."""
    return 1 if is_plain or is_compiled else BUILDS


#: Pairs of iterations of a build: (factor, fewest, most); effort * factor / sqrt(seconds of an
#: iteration) are made. For cases whose pairs have the same variance, this minimizes the sum of the
#: variances of the means (Neyman's allocation).
TIMED_PAIRS = (5.0, 6, 64)
PROFILED_PAIRS = (2.6, 5, 16)

#: The same if CPU time is also measured while both sides run at once: pairs, which then only show
#: how much longer the wall time is, and blocks of iterations.
FEW_PAIRS = (1.5, 5, 12)
BLOCKS = (3.5, 5, 16)

#: Shortest sample of a short function, in nanoseconds: its calls are repeated. Passing the turn to
#: the other process takes some microseconds, after which the first calls are slower.
SAMPLE_NS = 5_000_000
#: Length of a block, in nanoseconds of CPU time of a side: several times the few milliseconds for
#: which the kernel lets one of two processes run.
BLOCK_NS = 60_000_000
#: The fewest blocks are shorter with a small effort, down to this, which is two such times, in
#: nanoseconds.
MIN_BLOCK_NS = 6_000_000
#: With less than this effort, samples of short functions are shorter, too.
FULL_SAMPLES = 1 / 4
#: Shortest samples of short functions, as a share of those with a large effort.
MIN_SAMPLE = 0.4


def number_of(
    duration_ns: int, factor: float, fewest: int, most: int, *, effort: float = 1.0
) -> int:
    """Return the number of pairs or blocks whose iterations take this time.

    The same for all sides.
    """
    return max(
        MIN_PAIRS,
        round(effort * max(fewest, min(most, round(factor / math.sqrt(duration_ns / 1e9))))),
    )


def timed_pairs(iteration_ns: int, effort: float, *, in_blocks: bool) -> int:
    """Return the number of pairs of iterations whose times are measured in turn."""
    return number_of(iteration_ns, *(FEW_PAIRS if in_blocks else TIMED_PAIRS), effort=effort)


def sample_ns(effort: float) -> float:
    """Return how long a sample of a short function is, in nanoseconds."""
    return SAMPLE_NS * max(MIN_SAMPLE, min(1.0, effort / FULL_SAMPLES))


def blocks_of(iteration_ns: int, effort: float) -> tuple[int, int, int]:
    """Return the number of blocks, the iterations of each, and all of those with the effort 1."""
    full_size = max(1, round(BLOCK_NS / iteration_ns))
    full_number = number_of(full_size * iteration_ns, *BLOCKS)
    blocks = number_of(full_size * iteration_ns, *BLOCKS, effort=effort)
    block_ns = max(MIN_BLOCK_NS, BLOCK_NS * min(1.0, full_number * effort / blocks))
    return blocks, max(1, round(block_ns / iteration_ns)), full_number * full_size


def profiled_pairs(iteration_ns: int, effort: float) -> int:
    """Return the number of pairs of profiled iterations."""
    _, fewest, _ = PROFILED_PAIRS
    return max(fewest, number_of(iteration_ns, *PROFILED_PAIRS, effort=effort))


def calls_s(call_s: float, efforts: Efforts, *, in_blocks: bool, is_profiled: bool) -> float:
    """Return how long the calls of a build take on a side, in seconds.

    Args:
        call_s: how long a call takes.
        efforts: of the build.
        in_blocks: CPU time is also measured in blocks, as of a case with one thread.
        is_profiled: the case has operations.
    """
    call_ns = max(1, round(1e9 * call_s))
    iteration_ns = max(call_ns, round(sample_ns(efforts.timed)))
    iterations = timed_pairs(iteration_ns, efforts.timed, in_blocks=in_blocks)
    if in_blocks:
        blocks, size, _ = blocks_of(iteration_ns, efforts.timed)
        iterations += blocks * size
    if is_profiled:
        iterations += profiled_pairs(iteration_ns, efforts.profiled)
    others = WARMUP_ITERATIONS + 1  # whose result is compared
    return (others * call_ns + iterations * iteration_ns) / 1e9
