"""The file of the digits, its rows, and their order."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mnistbench.suite.workloads.digits import digit_rows, legacy_permutation


def test_the_file_has_the_digits_of_the_test_set_of_uci() -> None:
    rows = digit_rows()
    # Of the rows of scikit-learn 1.7's load_digits, whose file has them as decimal fractions.
    text = "".join(f"{','.join(map(str, row))}\n" for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
    )
    assert len(rows) == 1797
    assert {len(row) for row in rows} == {65}
    assert {level for row in rows for level in row[:64]} == {*range(17)}
    assert {row[64] for row in rows} == {*range(10)}


@pytest.mark.versions
def test_the_order_is_that_of_numpys_legacy_generator() -> None:
    for seed, size in ((0, 1797), (0, 1), (1, 2), (2**32 - 1, 1024), (7, 1025)):
        assert (
            legacy_permutation(seed, size) == np.random.RandomState(seed).permutation(size).tolist()
        )
