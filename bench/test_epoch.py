"""How long do training and evaluation over the whole set take? At batch 1 over an eighth of it.

Operation tables are those of the step and the forward case.
"""

import pytest


@pytest.mark.benchmark(min_rounds=3)
def test_train(op_benchmark):
    op_benchmark("train")


@pytest.mark.benchmark(min_rounds=3)
def test_eval(op_benchmark):
    op_benchmark("eval")
