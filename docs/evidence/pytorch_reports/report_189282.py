"""pytorch/pytorch#189282: gradient of add 229 to 424 times. Run it with torch 2.9.1 and 2.14.0; it needs nothing else."""

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
a = torch.rand(64, 64, 64)
b = torch.rand(64, 64, 64)
a.requires_grad_()
b.requires_grad_()
report("add-64x64x64-float32-contiguous-1t-backward", gradient(a + b, a, b))
a = torch.rand(64, 64, 128)
b = torch.rand(64, 64, 128)
a.requires_grad_()
b.requires_grad_()
report("add-64x64x128-float32-contiguous-1t-backward", gradient(a + b, a, b))
