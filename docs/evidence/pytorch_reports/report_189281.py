"""pytorch/pytorch#189281: embedding 90 times, embedding_bag 74 times. Run it with torch 2.9.1 and 2.14.0; it needs nothing else."""

import time

import torch
import torch.nn.functional as F


def report(name, function):
    """Print the median time of a call."""
    times, ends = [], time.perf_counter() + 1
    while len(times) < 3 or time.perf_counter() < ends:
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    print(f"{name}: {1e6 * sorted(times)[len(times) // 2]:,.1f} us")


def gradient(result, *inputs):
    """Return a function that computes the gradients of the inputs."""
    ones = torch.ones_like(result)
    return lambda: torch.autograd.grad(result, inputs, ones, retain_graph=True)


torch.manual_seed(0)
torch.set_num_threads(1)
print(torch.__version__, torch.backends.cpu.get_cpu_capability())
w = torch.rand(2300, 64)
i = torch.randint(2300, [8])
report("embedding-2300x64-float32-contiguous-1t-forward", lambda: F.embedding(i, w))
w.requires_grad_()
report("embedding-2300x64-float32-contiguous-1t-backward", gradient(F.embedding(i, w), w))
w = torch.rand(1000, 64)
i = torch.randint(1000, [64])
report("embedding_bag-1000x64-float32-contiguous-1t-forward", lambda: F.embedding_bag(i.view(8, 8), w, mode='sum'))
w.requires_grad_()
report("embedding_bag-1000x64-float32-contiguous-1t-backward", gradient(F.embedding_bag(i.view(8, 8), w, mode='sum'), w))
w = torch.rand(1000, 64)
i = torch.randint(1000, [64])
report("embedding_bag_sparse-1000x64-float32-contiguous-1t-forward", lambda: F.embedding_bag(i.view(8, 8), w, mode='sum', sparse=True))
w.requires_grad_()
report("embedding_bag_sparse-1000x64-float32-contiguous-1t-backward", gradient(F.embedding_bag(i.view(8, 8), w, mode='sum', sparse=True), w))
