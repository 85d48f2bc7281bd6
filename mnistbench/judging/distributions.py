"""Quantiles and probabilities of Student's and of the binomial distribution.

Each follows from the regularized incomplete beta function. scipy has them too, in 110 MB.

References:
    [1] NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, release 1.2.4.
    [2] C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

#: In place of a denominator of 0, which the continued fraction may have on its way.
_TINY = 1e-300

#: Largest number of terms. The number that is needed grows as the square root of a + b, and is
#: below 100 for 10,000 trials.
_MAX_TERMS = 1_000


@functools.cache
def student_quantile(risk: float, freedom: int) -> float:
    """Return the value that a variable of Student's distribution exceeds with this probability.

    Args:
        risk: above 0 and up to 0.5.
        freedom: degrees of freedom, at least 1.
    """
    # P(T > t) is half of I(freedom / (freedom + t^2); freedom / 2, 1 / 2): 8.17.2 of [1].
    x = _solve(lambda x: incomplete_beta(x, freedom / 2, 0.5), 2 * risk)
    return math.sqrt(freedom * (1 - x) / x) if x else math.inf


def binomial_at_most(hits: int, trials: int, share: float) -> float:
    """Return the probability of so many hits or fewer, each trial being one with this share."""
    return 1.0 if hits >= trials else 1 - incomplete_beta(share, hits + 1, trials - hits)


@functools.cache
def binomial_interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return an exact confidence interval of the share of hits [2]."""
    tail = (1 - level) / 2
    # At the limits, so many hits or more, or so many or fewer, have the probability of the tail.
    low = _solve(lambda share: incomplete_beta(share, hits, trials - hits + 1), tail) if hits else 0
    high = (
        _solve(lambda share: incomplete_beta(share, hits + 1, trials - hits), 1 - tail)
        if hits < trials
        else 1
    )
    return float(low), float(high)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return I(x; a, b), the regularized incomplete beta function, for positive a and b."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction converges slowly
        return 1 - incomplete_beta(1 - x, b, a)  # 8.17.4 of [1]
    factor = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return factor / a / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction 8.17.22 of [1], 1 + d1/(1 + d2/(1 + ...)), by Lentz's way."""
    value = 1.0
    numerator = 1.0
    denominator = 0.0
    for term in range(1, _MAX_TERMS):
        m = term // 2
        d = (
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
            if term % 2
            else m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        )
        numerator = (1 + d / numerator) or _TINY
        denominator = 1 / ((1 + d * denominator) or _TINY)
        change = numerator * denominator
        value *= change
        if abs(change - 1) < 1e-15:
            break
    return value


def _solve(increasing: Callable[[float], float], value: float) -> float:
    """Return the x between 0 and 1 at which an increasing function has this value."""
    low = 0.0
    high = 1.0
    while low < (middle := (low + high) / 2) < high:
        if increasing(middle) < value:
            low = middle
        else:
            high = middle
    return high
