"""Time backward passes that are repeated without zeroing gradients.

A benchmark of operations may do that.

    python docs/evidence/accumulated_gradients.py

Without ``zero_grad`` each pass adds its gradient to the sum of all passes before. The first
question is whether a pass takes longer the more there were, in particular with sparse gradients.
Prints the time of a pass in microseconds, with the gradient zeroed before it and without, after
numbers of passes. The second is how much a benchmark is wrong that measures the gradients of both
inputs where its name says one, as PyTorch's operator benchmark did.
"""

import statistics
import time

import torch

PASSES = (1, 10, 100, 1_000, 3_000)


def seconds(function, before, repetitions=20):
    """Return the median time of a call in seconds."""
    times = []
    for _ in range(repetitions):
        before()
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, sparse in (
        ("embedding_bag, dense gradient", False),
        ("embedding_bag, sparse gradient", True),
    ):
        layer = torch.nn.EmbeddingBag(1_000, 64, mode="sum", sparse=sparse)
        output = layer(torch.randint(1_000, (8,)), torch.tensor([0])).mean()

        def step(output=output):
            output.backward(retain_graph=True)

        zeroed = seconds(step, layer.zero_grad)
        times = []
        done = 0
        layer.zero_grad()
        for number in PASSES:
            while done < number:
                step()
                done += 1
            times.append(seconds(step, lambda: None, 3))
            done += 3
        shown = ", ".join(
            f"{1e6 * seconds_of_pass:,.0f} after {number:,}"
            for number, seconds_of_pass in zip(PASSES, times, strict=True)
        )
        print(f"{name}: zeroed {1e6 * zeroed:,.0f} us; accumulated {shown}")
    for name, function, shapes in (
        ("add", torch.add, ((64, 64, 128), (64, 64, 128))),
        ("mm", torch.mm, ((256, 64), (64, 256))),
        ("linear", torch.nn.functional.linear, ((16, 512), (512, 512))),
    ):
        times = []
        for of in ((True, False), (False, True), (True, True)):
            inputs = [
                torch.rand(shape, requires_grad=has_gradient)
                for shape, has_gradient in zip(shapes, of, strict=True)
            ]
            output = function(*inputs).mean()
            times.append(
                seconds(lambda output=output: output.backward(retain_graph=True), lambda: None, 300)
            )
        first, second, both_inputs = (
            f"{1e6 * seconds_of_call:,.0f} us" for seconds_of_call in times
        )
        print(
            f"gradient of {name}: of the first input {first}, of the second {second}, of both "
            f"{both_inputs}"
        )


if __name__ == "__main__":
    main()
