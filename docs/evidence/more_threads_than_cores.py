"""Time the calls of three reports of factors from 70 to 700 with more threads than processors.

    python docs/evidence/more_threads_than_cores.py [THREADS ...]

Prints the median time of a call, in us, for each number of threads, and how many times that of as
many threads as processors it is. Imports torch alone. Set ``LD_PRELOAD``, ``KMP_AFFINITY`` and
``KMP_BLOCKTIME`` to measure with another OpenMP library.
"""

import os
import statistics
import sys
import time

import torch


def gradient(make, *shapes):
    """Return a function that adds gradients to those of the last call.

    PyTorch's operator benchmark does so.
    """
    tensors = [torch.rand(*shape, requires_grad=True) for shape in shapes]
    mean = make(*tensors).mean()
    return lambda: mean.backward(retain_graph=True)


def calls():
    """Return name -> function."""
    indices = torch.randint(2300, (8,))
    zero_points = torch.zeros(3, dtype=torch.int32)
    image = torch.rand(1, 3, 512, 512)
    return {
        "#189282 add, 64x64x64, gradient": gradient(torch.add, (64, 64, 64), (64, 64, 64)),
        "#189282 add, 64x64x128, gradient": gradient(torch.add, (64, 64, 128), (64, 64, 128)),
        "#189281 embedding, 2300x64, gradient": gradient(
            lambda w: torch.nn.functional.embedding(indices, w), (2300, 64)
        ),
        "#189280 fake_quantize per tensor, 1x3x512x512": lambda: (
            torch.fake_quantize_per_tensor_affine(image, 1.0, 0, 0, 255)
        ),
        "#189280 fake_quantize per channel, 1x3x512x512": lambda: (
            torch.fake_quantize_per_channel_affine(image, torch.ones(3), zero_points, 1, 0, 255)
        ),
        "sin, 512x512": torch.rand(512, 512).sin,
    }


def microseconds(function):
    """Return the median time of a call."""
    function()
    times = []
    ends = time.monotonic() + 2
    while len(times) < 20 or (time.monotonic() < ends and len(times) < 2000):
        began = time.perf_counter()
        function()
        times.append(1e6 * (time.perf_counter() - began))
    return statistics.median(times)


def main():
    processors = len(os.sched_getaffinity(0))
    counts = [int(word) for word in sys.argv[1:]] or [4 * processors, 16 * processors]
    print(f"torch {torch.__version__}, {processors} processors")
    for name, function in calls().items():
        torch.set_num_threads(processors)
        base = microseconds(function)
        texts = [f"{processors} threads {base:,.0f} us"]
        for count in counts:
            torch.set_num_threads(count)
            more_threads_us = microseconds(function)
            texts.append(
                f"{count} threads {more_threads_us:,.0f} us ({more_threads_us / base:.1f} times)"
            )
        print(f"{name}: {', '.join(texts)}", flush=True)


if __name__ == "__main__":
    main()
