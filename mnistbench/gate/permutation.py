"""Paired log ratios of two sides -> adjusted p-values and simultaneous bounds: pure and seeded.

The test is a maxT permutation test [1]: in every launch the roles of the two sides were given by a coin, so if both run
the same code, exchanging them (the sign of every difference of that launch) changes nothing but chance. All quantities
change sign together, so whatever correlates them is kept; each is compared with the largest of all of them, so that the
probability of *any* false alarm is the level. The statistic is mean / (standard error + s0): s0 keeps quantities that
happen to have a tiny spread from deciding alone [2]. Medians of cases, means of cases, operations and new operations have an
s0 each: medians vary by a third of what operations do, and one s0 for all would hide a 2 % slower case
(docs/studies/gate_power.py).

[1] Westfall and Young, Resampling-Based Multiple Testing, 1993, sections 2.6 and 2.8 (step-down maxT).
[2] Tusher, Tibshirani and Chu, PNAS 98 (2001) 5116: the fudge factor of SAM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Family-wise level of each of the two tests.
LEVEL = 0.01

#: Of the simultaneous bounds.
CONFIDENCE = 0.95

#: All 2^L exchanges up to this number, else so many at random.
EXCHANGES = 10_000

#: No clock tells smaller differences apart; without a spread at all there would be nothing to divide by.
LEAST_SPREAD = 1e-9

Array = NDArray[np.float64]


def family_test(logs: Array, kinds: Sequence[str], seed: int) -> Array:
    """Return the p-value of each quantity, adjusted over all, two-sided.

    Args:
        logs: [quantities, launches], log(new / base).
        kinds: of each quantity; those of one kind share an s0.
        seed: of the exchanges, where there are too many to try all.
    """
    return _step_down(logs, kinds, seed, two_sided=True)


def directed_test(logs: Array, kinds: Sequence[str], signs: Array, seed: int) -> Array:
    """Return the adjusted one-sided p-value of each quantity in the direction that is expected of it.

    Args:
        logs: [quantities, launches].
        kinds: of each quantity.
        signs: [quantities], 1 where a slowdown is expected, -1 where an improvement is.
        seed: of the exchanges.
    """
    return _step_down(logs * signs[:, None], kinds, seed, two_sided=False)


def _step_down(logs: Array, kinds: Sequence[str], seed: int, *, two_sided: bool) -> Array:
    """Return adjusted p-values: what is found at LEVEL leaves, and the others are held against what is left.

    Without these steps a large effect hides a small one: with the roles of one launch exchanged it is still the larger.
    """
    floor = _floor(logs, kinds)
    observed: Array = _statistic(np.ones((1, logs.shape[1])), logs, floor)[0]
    if two_sided:
        observed = np.abs(observed)
    same = 2 if two_sided else 1  # exchanges that give what was observed, whatever rounding makes of them
    p, left, least = np.ones(len(logs)), np.arange(len(logs)), 0.0
    while len(left):
        null = _null(logs[left], floor[left], seed, two_sided=two_sided)
        p[left] = np.maximum(_p_values(observed[left], null, logs.shape[1], same), least)
        found = p[left] <= LEVEL
        if not found.any():
            break
        least, left = float(p[left][found].max()), left[~found]
    return p


def simultaneous_bounds(
    logs: Array, seed: int, confidence: float = CONFIDENCE, kinds: Sequence[str] | None = None
) -> tuple[Array, Array]:
    """Return lower and upper bounds of the mean logs, all of which hold together with this confidence.

    Args:
        logs: [quantities, launches].
        seed: of the exchanges.
        confidence: that all bounds hold.
        kinds: of each quantity; those of one kind share an s0. One kind if not given.

    Single-step maxT of the residuals: mean -+ c (se + s0), c the quantile of the largest statistic. Residuals add up to 0,
    so exchanges of them reach less far than errors do; ``scale``, once for their size and once for that, brings the
    coverage of normal errors to the nominal one (94 to 96 % in simulations of 1 to 20 quantities in 8 to 12 launches).
    """
    mean = logs.mean(axis=1)
    residuals = logs - mean[:, None]
    launches = logs.shape[1]
    scale = math.sqrt(launches / (launches - 1))  # residuals are smaller than errors by this factor
    errors = residuals * scale
    floor = _floor(errors, kinds or [""] * len(logs))
    null = _null(errors, floor, seed, two_sided=True)
    reach = scale * np.quantile(null, confidence) * (residuals.std(axis=1, ddof=1) / math.sqrt(launches) + floor)
    return mean - reach, mean + reach


def _floor(logs: Array, kinds: Sequence[str]) -> Array:
    """Return s0 of each quantity: the median over those of its kind of SD(abs(d)) / sqrt(launches).

    abs(d) has no sign, so every exchange has the same s0, as the test needs; and a change of the quantity itself hardly moves
    its spread, so that a change of most quantities does not hide itself behind a large s0.
    """
    spreads = np.abs(logs).std(axis=1, ddof=1) / math.sqrt(logs.shape[1])
    medians = {
        kind: float(np.median([spread for spread, of in zip(spreads, kinds, strict=True) if of == kind])) for kind in set(kinds)
    }
    return np.array([max(medians[kind], LEAST_SPREAD) for kind in kinds])


def _statistic(signs: Array, logs: Array, floor: Array) -> Array:
    """Return [exchanges, quantities] of mean / (se + s0), with the launches' signs exchanged."""
    launches = logs.shape[1]
    mean = signs @ logs.T / launches
    variance = np.maximum(np.sum(logs**2, axis=1) - launches * mean**2, 0) / (launches - 1)  # squares keep no sign
    below = np.sqrt(variance / launches) + floor
    found: Array = np.divide(mean, below, out=np.zeros_like(mean), where=below > 0)
    return found


def _null(logs: Array, floor: Array, seed: int, *, two_sided: bool) -> Array:
    """Return the largest statistic under every exchange."""
    from scipy.stats import permutation_test  # a second to import, so only when there is something to test

    def largest(signs: Array, axis: int = -1) -> Array:
        values = _statistic(np.atleast_2d(signs), logs, floor)
        found: Array = (np.abs(values) if two_sided else values).max(axis=1)
        return found.reshape(signs.shape[:axis] or ())

    result = permutation_test(
        (np.ones(logs.shape[1]),), largest, permutation_type="samples", vectorized=True, n_resamples=EXCHANGES,
        batch=2_000, alternative="greater", rng=np.random.default_rng(seed),
    )  # fmt: skip
    return np.asarray(result.null_distribution, dtype=np.float64)


def _p_values(observed: Array, null: Array, launches: int, same: int) -> Array:
    limits = observed - 1e-9 * np.abs(observed)  # equal but for rounding counts
    reached = (null[None, :] >= limits[:, None]).sum(axis=1)
    sampled = int(2**launches > EXCHANGES)  # then what was observed is one exchange more
    least = 1 if sampled else same
    return np.asarray(np.maximum(reached + sampled, least) / (len(null) + sampled), dtype=np.float64)
