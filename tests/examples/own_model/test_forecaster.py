import pytest


@pytest.mark.parametrize("phase", ["forward", "step"])
def test_forecaster(op_benchmark, phase):
    op_benchmark(phase)
