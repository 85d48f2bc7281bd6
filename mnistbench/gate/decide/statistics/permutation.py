"""Paired log ratios of two sides -> adjusted p-values and simultaneous bounds: pure and seeded.

The test is a maxT permutation test [1]. A random draw gave each trial the roles of its two sides,
so if both run the same code, exchanging the roles (the signs of all differences of that trial)
gives an equally likely result. All quantities of a trial change sign together, which keeps their
correlation. Each quantity is compared with the maximum over all quantities, so the level is the
probability of *any* false alarm. The statistic is mean / (standard error + s0), where s0 limits the
statistic of quantities whose spread is tiny by chance [2]. Medians of cases, means of cases,
operations, new operations, one-time costs and memory have one s0 each: the spread of medians
is a third of that of operations, and a common s0 would hide a 2 % slower case
(docs/evidence/gate_power.py).

[1] Westfall and Young, Resampling-Based Multiple Testing, 1993, sections 2.6 and 2.8 (step-down
maxT). [2] Tusher, Tibshirani and Chu, PNAS 98 (2001) 5116: the fudge factor of SAM. [3] Efron and
Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Family-wise level of each of the two tests.
LEVEL = 0.01

#: Confidence of the simultaneous bounds.
CONFIDENCE = 0.95

#: Largest number of exchanges: all 2^trials of them if there are no more, else a random sample.
EXCHANGES = 10_000
#: The same with ``many``: with the level of one of a hundred shards, 10,000 are too few to confirm
#: anything.
MANY = 2**16

#: Most statistics that are computed at once: exchanges times quantities.
_AT_ONCE = 5_000_000

#: Number of resampled sets of trials for bounds.
RESAMPLES = 2_000

#: Smallest s0, below the resolution of any clock; avoids a division by zero if there is no spread.
MIN_SPREAD = 1e-9

Array = NDArray[np.float64]


def directed_test(
    logs: Array, kinds: Sequence[str], signs: Array, seed: int, *, many: bool = False
) -> Array:
    """Return one-sided p-values in the expected directions, adjusted over all quantities.

    While the quantity with the largest statistic is significant, the others are tested without it.
    In a single step a large quantity would hide a small one, because it is larger even with the
    roles of one trial exchanged.

    Args:
        logs: [quantities, trials], log(head / base).
        kinds: kind of each quantity; quantities of the same kind share an s0.
        signs: [quantities], 1 if a slowdown is expected, -1 if an improvement is.
        seed: of the exchanges, if they are sampled.
        many: take up to MANY exchanges, for few quantities.
    """
    most = MANY if many else EXCHANGES
    logs = logs * signs[:, None]
    floor = _floor(logs, kinds)
    observed: Array = _statistic(np.ones((1, logs.shape[1])), logs, floor)[0]
    limits = observed - 1e-9 * np.abs(observed)  # values that are equal apart from rounding count
    sampled = 2 ** logs.shape[1] > most
    order = np.argsort(-observed, kind="stable")
    p = _p_values(limits, _null(logs, floor, seed, most, two_sided=False), sampled)
    if not (p <= LEVEL).any():
        return p
    reached = np.zeros(len(logs))
    exchanges = _exchanges(logs.shape[1], seed, most)
    for drawn in _parts(exchanges, len(logs)):
        values = _statistic(drawn, logs[order], floor[order])
        # Of each quantity and those with smaller statistics.
        null = np.maximum.accumulate(values[:, ::-1], axis=1)[:, ::-1]
        reached += (null >= limits[order]).sum(axis=0)
    steps = np.maximum.accumulate(_shares(reached, len(exchanges), sampled))
    count = int((steps <= LEVEL).sum())  # significant ones
    p[order[:count]] = steps[:count]
    if len(rest := order[count:]):
        rest_p = _p_values(
            limits[rest], _null(logs[rest], floor[rest], seed, most, two_sided=False), sampled
        )
        p[rest] = np.maximum(rest_p, steps[count - 1])
    return p


def simultaneous_bounds(
    logs: Array,
    seed: int,
    confidence: float = CONFIDENCE,
    kinds: Sequence[str] | None = None,
    *,
    skewed: bool = True,
) -> tuple[Array, Array]:
    """Return simultaneous lower and upper bounds of the mean logs.

    Args:
        logs: [quantities, trials].
        seed: of the exchanges, if they are sampled.
        confidence: probability that all bounds are correct.
        kinds: kind of each quantity; quantities of the same kind share an s0. One kind if not
            given.
        skewed: the bounds have to be correct for skewed trials, too.

    Single-step maxT of the residuals: mean -+ c (se + s0), where c is the quantile of the largest
    statistic. Residuals sum to 0, so they and their exchanges have a smaller range than errors;
    ``scale`` corrects each of the two. With normal errors the coverage is the nominal one (94 to 96
    % in simulations of 1 to 20 quantities in 8 to 12 trials; 91 to 96 % in 4).

    Exchanges make every distribution symmetric. If single processes are slow, trials are skewed,
    and the bound on that side is too small: with exponential errors, upper bounds were wrong in 7
    to 10 %. So a bound is at least that of the bootstrap-t [3]: 0 to 3 % wider with normal errors,
    and wrong in 2 to 8 % with exponential ones (docs/evidence/rare_slowdowns.py).
    """
    mean = logs.mean(axis=1)
    residuals = logs - mean[:, None]
    trials = logs.shape[1]
    scale = math.sqrt(trials / (trials - 1))  # residuals are smaller than errors by this factor
    errors = residuals * scale
    floor = _floor(errors, kinds or [""] * len(logs))
    null = _null(errors, floor, seed, EXCHANGES, two_sided=True)
    spread = residuals.std(axis=1, ddof=1) / math.sqrt(trials) + floor
    symmetric = scale * np.quantile(null, confidence)
    if not skewed:
        return mean - symmetric * spread, mean + symmetric * spread
    squares = (residuals**2).T
    largest = list[Array]()
    smallest = list[Array]()
    for drawn in _parts(_resampled(trials), len(logs)):
        statistics = _statistic_of(drawn @ residuals.T / trials, drawn @ squares, trials, floor)
        largest.append(statistics.max(axis=1))
        smallest.append(statistics.min(axis=1))
    tail = (1 - confidence) / 2
    below = np.quantile(np.concatenate(largest), 1 - tail)
    above = -np.quantile(np.concatenate(smallest), tail)
    return mean - max(symmetric, below) * spread, mean + max(symmetric, above) * spread


@functools.cache
def _resampled(trials: int) -> Array:
    """Return how often each trial is in RESAMPLES random sets of as many, with repetition."""
    drawn = (np.random.default_rng(1).random((RESAMPLES, trials)) * trials).astype(int)
    return np.asarray((drawn[:, :, None] == np.arange(trials)).sum(axis=1), dtype=np.float64)


def _floor(logs: Array, kinds: Sequence[str]) -> Array:
    """Return s0 of each quantity: the median of SD(abs(d)) / sqrt(trials) over its kind.

    abs(d) does not depend on signs, so s0 is the same for every exchange, as the test requires. It
    hardly depends on the change of a quantity, so changes of many quantities do not increase s0.
    """
    spreads = np.abs(logs).std(axis=1, ddof=1) / math.sqrt(logs.shape[1])
    medians = {
        kind: float(
            np.median([spread for spread, of in zip(spreads, kinds, strict=True) if of == kind])
        )
        for kind in set(kinds)
    }
    return np.array([max(medians[kind], MIN_SPREAD) for kind in kinds])


def _statistic(signs: Array, logs: Array, floor: Array) -> Array:
    """Return mean / (se + s0) for each exchange of signs, [exchanges, quantities]."""
    trials = logs.shape[1]
    # Squares do not depend on signs.
    return _statistic_of(signs @ logs.T / trials, np.sum(logs**2, axis=1), trials, floor)


def _statistic_of(mean: Array, squares: Array, trials: int, floor: Array) -> Array:
    """Return mean / (se + s0) from means and sums of squares, [exchanges, quantities]."""
    variance = np.maximum(squares - trials * mean**2, 0) / (trials - 1)
    below = np.sqrt(variance / trials) + floor
    statistics: Array = np.divide(mean, below, out=np.zeros_like(mean), where=below > 0)
    return statistics


def _null(logs: Array, floor: Array, seed: int, most: int, *, two_sided: bool) -> Array:
    """Return the largest statistic of every exchange."""
    parts = _parts(_exchanges(logs.shape[1], seed, most), len(logs))
    values = (_statistic(signs, logs, floor) for signs in parts)
    return np.concatenate([(np.abs(value) if two_sided else value).max(axis=1) for value in values])


def _parts(rows: Array, quantities: int) -> list[Array]:
    """Return the rows in parts, so that thousands of quantities take little memory."""
    return np.array_split(rows, math.ceil(len(rows) * quantities / _AT_ONCE))


# The tests of a gate share them, and so do those of resampled gates.
@functools.lru_cache(maxsize=16)
def _exchanges(trials: int, seed: int, most: int) -> Array:
    """Return the signs of all exchanges, or of ``most`` random ones, [exchanges, trials]."""
    if 2**trials > most:
        return np.random.default_rng(seed).choice([1.0, -1.0], (most, trials))
    return np.array(list(itertools.product((1.0, -1.0), repeat=trials)))


def _p_values(limits: Array, null: Array, sampled: bool) -> Array:
    reached = len(null) - np.searchsorted(np.sort(null), limits)
    return _shares(reached.astype(np.float64), len(null), sampled)


def _shares(reached: Array, exchanges: int, sampled: bool) -> Array:
    """Return the shares of the exchanges that reach a limit.

    The observed exchange counts, too, if the exchanges are a sample.
    """
    return np.asarray(np.maximum(reached + sampled, 1) / (exchanges + sampled), dtype=np.float64)
