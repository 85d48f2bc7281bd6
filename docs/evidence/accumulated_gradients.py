"""Time backward passes that are repeated without zeroing gradients, as a benchmark of operations may do.

    python docs/evidence/accumulated_gradients.py

Without ``zero_grad`` each pass adds its gradient to the sum of all passes before. The question is whether a pass takes longer
the more there were, in particular with sparse gradients. Prints the time of a pass in microseconds, with the gradient zeroed
before it and without, after numbers of passes.
"""

import statistics
import time

import torch

PASSES = (1, 10, 100, 1_000, 3_000)


def seconds(function, before, repetitions=20):
    """Return the median time of a call in seconds."""
    found = []
    for _ in range(repetitions):
        before()
        began = time.perf_counter()
        function()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, sparse in (("embedding_bag, dense gradient", False), ("embedding_bag, sparse gradient", True)):
        layer = torch.nn.EmbeddingBag(1_000, 64, mode="sum", sparse=sparse)
        output = layer(torch.randint(1_000, (8,)), torch.tensor([0])).mean()

        def step(output=output):
            output.backward(retain_graph=True)

        zeroed, times, done = seconds(step, layer.zero_grad), [], 0
        layer.zero_grad()
        for number in PASSES:
            while done < number:
                step()
                done += 1
            times.append(seconds(step, lambda: None, 3))
            done += 3
        shown = ", ".join(f"{1e6 * each:,.0f} after {number:,}" for number, each in zip(PASSES, times, strict=True))
        print(f"{name}: zeroed {1e6 * zeroed:,.0f} us; accumulated {shown}")


if __name__ == "__main__":
    main()
