"""How long does inference take, and in which operations? Eval mode, no autograd."""


def test_forward(op_benchmark):
    op_benchmark("forward")
