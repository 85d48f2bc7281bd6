"""Compare what the fast step and the reference step learn at batch size 1: test accuracy after 6,000 steps on MNIST.

    python docs/evidence/batch_of_one.py [SEEDS]

For each seed both steps start with the same weights and train on the same images in the same order; their dropout masks
differ. Prints the accuracy of each run, and the difference of the pairs with its 95 % interval (Student's t).
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace

import torch
from scipy import stats

from mnistbench.core.params import STEPS
from mnistbench.train.result import Settings
from mnistbench.train.run import run
from mnistbench.workloads.data import Split, load
from mnistbench.workloads.workload import builtin_workloads

SAMPLES = 6_000


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    whole = load("mnist")
    drawn = torch.randperm(len(whole.train), generator=torch.Generator().manual_seed(0))[:SAMPLES]
    part = replace(whole, train=Split(whole.train.images[drawn], whole.train.labels[drawn]))
    workload = replace(builtin_workloads("mnist", None)[0], load=lambda _: part)
    found = {step: [] for step in STEPS}
    for seed in range(seeds):
        for step in STEPS:
            settings = Settings(device="cpu", step=step, batch_size=1, epochs=1, seed=seed, threads=1)
            found[step].append(run(settings, workload=workload).epochs[-1].test_accuracy)
        print(f"seed {seed}: " + ", ".join(f"{step} {found[step][-1]:.2f} %" for step in STEPS), flush=True)
    for step, accuracies in found.items():
        print(f"{step}: mean {statistics.fmean(accuracies):.2f} %, SD {statistics.stdev(accuracies):.2f}")
    reference, fast = (found[step] for step in STEPS)
    pairs = [one - other for one, other in zip(fast, reference, strict=True)]
    interval = stats.ttest_1samp(pairs, 0).confidence_interval()
    print(f"fast - reference: {statistics.fmean(pairs):+.2f} points ({interval.low:+.2f} to {interval.high:+.2f})")


if __name__ == "__main__":
    main()
