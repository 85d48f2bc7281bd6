"""How long does one training step take, and in which operations?

Forward, loss, backward, update.
"""


def test_step(op_benchmark):
    op_benchmark("step")
