"""The 1,797 digits as numbers, and a random order that stays the same.

The file is the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak,
UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49), under the licence CC BY
4.0, in the order in which scikit-learn has it too. Only its form is ours: comma-separated and
packed.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path

#: A line for every digit: 64 levels from 0 to 16, row by row, and the label.
DIGITS_FILE = Path(__file__).with_name("digits.csv.gz")


def digit_rows() -> list[list[int]]:
    """Return a row for every digit: 64 levels and the label."""
    with gzip.open(DIGITS_FILE, "rt", encoding="ascii") as lines:
        return [[int(value) for value in line.split(",")] for line in lines]


def legacy_permutation(seed: int, size: int) -> list[int]:
    """Return ``numpy.random.RandomState(seed).permutation(size)``.

    Works without numpy, too.

    That generator's stream is frozen by numpy's compatibility policy (NEP 19); those of torch and
    of numpy's ``default_rng`` are not. Python has the same Mersenne Twister, but seeds it in
    another way.

    Args:
        seed: 0 to 2**32 - 1.
        size: number of positions, below 2**32.
    """
    words = [seed]
    for position in range(1, 624):  # init_genrand of Matsumoto and Nishimura's mt19937ar.c
        words.append((1_812_433_253 * (words[-1] ^ words[-1] >> 30) + position) % 2**32)
    twister = random.Random()  # noqa: S311  # no secret
    twister.setstate((3, (*words, len(words)), None))
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        while (chosen := twister.getrandbits(32) % 2 ** last.bit_length()) > last:
            pass
        order[last], order[chosen] = order[chosen], order[last]
    return order
