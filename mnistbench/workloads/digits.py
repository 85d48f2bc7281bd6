"""scikit-learn's digits as numbers, and a random order that stays the same.

Does not import torch, because the gate tells its launches where the file is.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import random
from pathlib import Path

from mnistbench.core.errors import DataError

#: Names the file for a process whose environment lacks scikit-learn; the gate sets it for its
#: launches.
DIGITS_VARIABLE = "MNISTBENCH_DIGITS"


def digits_file() -> Path | None:
    """Return the path of ``digits.csv.gz``.

    Of the installed scikit-learn, else the one that the variable names.

    None if there is no such file.
    """
    package = importlib.util.find_spec("sklearn")
    folders = (package.submodule_search_locations if package else None) or ()
    files = [Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders]
    if named := os.environ.get(DIGITS_VARIABLE):
        files.append(Path(named))
    return next((file for file in files if file.is_file()), None)


def digit_rows() -> list[list[int]]:
    """Return a row for every digit: 64 levels and the label.

    The file of scikit-learn is read directly, because importing scikit-learn takes seconds. If the
    file has another path in some version, scikit-learn reads it.

    Raises:
        DataError: there is no scikit-learn.
    """
    if file := digits_file():
        with gzip.open(file, "rt", encoding="ascii") as lines:
            return [[int(float(value)) for value in line.split(",")] for line in lines]
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise DataError(
            "the digits are a file of scikit-learn, which is not installed: pip install "
            "scikit-learn"
        ) from None

    return [
        [*map(int, levels), int(target)]
        for levels, target in zip(*load_digits(return_X_y=True), strict=True)
    ]


def legacy_permutation(seed: int, size: int) -> list[int]:
    """Return ``numpy.random.RandomState(seed).permutation(size)``.

    In an environment without numpy too.

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
