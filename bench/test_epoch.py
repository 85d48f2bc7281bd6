"""How long do training and evaluation over the whole dataset take?

At batch size 1 over an eighth of it.

The operation tables are those of the step and forward cases.
"""

import pytest


@pytest.mark.benchmark(min_rounds=3)
def test_train(op_benchmark):
    op_benchmark("train")


@pytest.mark.benchmark(min_rounds=3)
def test_eval(op_benchmark):
    op_benchmark("eval")
