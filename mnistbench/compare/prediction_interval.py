"""The interval that a new run falls into if its code is that of the base runs.

Times are modelled as log-normal, because effects on them multiply. One future observation lies
below exp(mean + t s sqrt(1 + 1/n)) with the chosen probability: mean and s are those of the
logarithms, t is the quantile of Student's distribution with n - 1 degrees of freedom [1].

[1] Hahn and Meeker, Statistical Intervals, 1991, section 4.7: prediction interval for one future
observation.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mnistbench.judging.distributions import student_quantile
from mnistbench.judging.ratios import ratio_of

#: Fewest base runs whose spread is trusted: the relative error of a standard deviation of 8 values
#: is about a quarter.
RUNS_NEEDED = 8

#: Probability that a report over runs of the same code contains any regression.
FALSE_ALARM = 0.05


def prediction_interval(values: Sequence[float], risk: float) -> tuple[float, float]:
    """Return the lower and the upper limit of one more value of the same log-normal population.

    Args:
        values: at least two positive times, in any unit.
        risk: probability that the next value is below the lower limit, and that it is above the
            upper limit.

    Returns:
        Both limits in the unit of the values; the upper one is infinite where it is too large for a
        float.
    """
    logs = [math.log(value) for value in values]
    n = len(logs)
    reach = student_quantile(risk, n - 1) * statistics.stdev(logs) * math.sqrt(1 + 1 / n)
    mean = statistics.fmean(logs)
    return ratio_of(mean - reach), ratio_of(mean + reach)
