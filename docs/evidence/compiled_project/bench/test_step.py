def test_step(op_benchmark):
    op_benchmark("step")
