"""Ratios of times, and their logarithms."""

from __future__ import annotations

import math

#: Largest logarithm of a ratio; from the next one on it is infinite. A float ends at 709.78.
LARGEST_LOG = 700.0


def ratio_of(log: float) -> float:
    """Return the ratio of a logarithm; infinite if it is too large for a float."""
    return math.exp(log) if log < LARGEST_LOG else math.inf


def change_of(log: float) -> float:
    """Return the change of a log ratio as a share; infinite if it is too large for a float."""
    return math.expm1(log) if log < LARGEST_LOG else math.inf
