import ops
import torch


def test_similarity(benchmark):
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 16, 64, 64, generator=generator)
    benchmark(ops.similarity, queries, keys)
