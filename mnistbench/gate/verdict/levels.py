"""Levels of the test of a gate, and the numbers of fresh launches at which they are judged.

See ``docs/gate-statistics.md``.
"""

from __future__ import annotations

import functools
import math

from mnistbench.gate.options import LAUNCHES, Thresholds

#: Largest p-value of the first stage for a slowdown.
SCREENING = 0.05

#: Largest p-value of the fresh launches for the confirmation of a slowdown.
CONFIRMING = 1 / 16

#: Numbers of fresh launches at which they are judged; :func:`looks` has those of a shard.
LOOKS = (4, 8, 12)
#: The same of gates with a threshold below FULL_CASE, whose first stage has more launches, too.
#: Twelve confirm 0.5 % in 84 % of the gates of a case whose launches have an SD of 0.47 %
#: (``docs/evidence/gate_power.py small``).
LOOKS_BELOW_FULL = (8, 16, 24)

#: Largest product of both p-values for a regression. If nothing is slower, two independent
#: p-values, the first at most a and the second at most b, have a product of at most c with a
#: probability of at most c (1 + ln(a b / c)). That is 3.3e-4 here, and the sum over the looks is
#: 1.0e-3. The p-values are adjusted over all quantities, so this bounds the probability of any
#: false alarm. Four fresh launches can reach the product: 2^-10 of the first stage by 2^-4.
PRODUCT = 6.9e-5

#: Fewest fresh launches that can be judged.
LEAST_FRESH = min(LOOKS)

#: Fewest fresh launches that can confirm an improvement, whose p-value has to be at most LEVEL
#: there.
LEAST_FRESH_OF_IMPROVEMENT = 8


@functools.cache
def product(shards: int) -> float:
    """Return the largest product of both p-values for a regression in one of the shards.

    It is PRODUCT for a single one.

    The probability of a false alarm, c (1 + ln(a b / c)) at a look, is divided by the number of
    shards; c follows by iteration.
    """
    largest = PRODUCT
    product_of_gate = PRODUCT * (1 + math.log(SCREENING * CONFIRMING / PRODUCT))
    for _ in range(100 if shards > 1 else 0):
        largest = product_of_gate / shards / (1 + math.log(SCREENING * CONFIRMING / largest))
    return largest


def looks(limits: Thresholds, shards: int = 1) -> tuple[int, ...]:
    """Return the numbers of fresh launches at which a gate, or one of its shards, judges them.

    The first can confirm a slowdown after LAUNCHES.
    """
    numbers = LOOKS_BELOW_FULL if limits.is_below_full else LOOKS
    later = next(
        more
        for more in range(0, 99, LOOKS[0])
        if 2.0 ** -(LAUNCHES + numbers[0] + more) <= product(shards)
    )
    return tuple(look + later for look in numbers)


def least_fresh(launches: int, limits: Thresholds, shards: int = 1) -> int:
    """Return the first look that can confirm a slowdown after ``launches`` of the first stage.

    The smallest p-value of a stage of n launches is 1 / 2^n.
    """
    numbers = looks(limits, shards)
    return next(look for look in numbers if 2.0 ** -(launches + look) <= product(shards))
