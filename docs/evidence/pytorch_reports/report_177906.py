"""pytorch/pytorch#177906: CPU time doubled, and no wall time gained. Run it with torch 2.8.0 and 2.9.1; it needs nothing else."""

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
torch.set_num_threads(2)
print(torch.__version__, torch.backends.cpu.get_cpu_capability())
a = torch.rand(512, 512)
report("gelu-512x512-float32-contiguous-2t-forward", lambda: F.gelu(a))
a.requires_grad_()
report("gelu-512x512-float32-contiguous-2t-backward", gradient(F.gelu(a), a))
a = torch.rand(512, 512)
report("softmax-512x512-float32-contiguous-2t-forward", lambda: a.softmax(1))
a.requires_grad_()
report("softmax-512x512-float32-contiguous-2t-backward", gradient(a.softmax(1), a))
a = torch.rand(256, 256)
b = torch.rand(256, 256)
report("mm-256x256-float32-contiguous-2t-forward", lambda: a @ b)
a.requires_grad_()
b.requires_grad_()
report("mm-256x256-float32-contiguous-2t-backward", gradient(a @ b, a, b))
a = torch.rand(8, 32, 28, 28)
w = torch.rand(64, 32, 3, 3)
b = torch.rand(64)
report("conv2d-8x32x28x28-float32-contiguous-2t-forward", lambda: F.conv2d(a, w, b))
a.requires_grad_()
w.requires_grad_()
b.requires_grad_()
report("conv2d-8x32x28x28-float32-contiguous-2t-backward", gradient(F.conv2d(a, w, b), a, w, b))
