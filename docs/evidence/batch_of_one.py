"""Compare what the fast step and the reference step learn at batch size 1.

Test accuracy after 6,000 or more steps on MNIST.

    python docs/evidence/batch_of_one.py [SEEDS [STEPS]]
    python docs/evidence/batch_of_one.py floor [THREADS]

For each seed both steps start with the same weights and train on the same images in the same order;
their dropout masks differ. Prints the accuracy of each run, and the difference of the pairs with
its 95 % interval (Student's t).

``floor`` prints the time of a step of one image of MNIST beside a lower bound. The bound is the sum
of its calls, each as long as the shortest call of an operation, its bytes at the speed of a copy,
and its arithmetic at that of a convolution.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from mnistbench.core.params import STEPS
from mnistbench.suite.measuring.case import in_step, optimizer_maker, seeded_model
from mnistbench.suite.profile.ceilings import ceilings_of
from mnistbench.suite.train.result import Settings
from mnistbench.suite.train.run import run
from mnistbench.suite.workloads import compiled
from mnistbench.suite.workloads.data import Split, load
from mnistbench.suite.workloads.step import Step
from mnistbench.suite.workloads.workload import builtin_workloads, params_of


class Counted(TorchDispatchMode):
    """Counts calls of operations, without those that return a view, and of compiled loops."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += not func.is_view
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Self:
        self._loops = dict(vars(compiled.loops()))
        for name, function in self._loops.items():
            setattr(compiled.loops(), name, functools.partial(self._call, function))
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        vars(compiled.loops()).update(self._loops)
        super().__exit__(*error)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        return function(*arguments)


def seconds(calls: Iterable[Callable[[], object]]) -> float:
    """Return the median time of 2,000 calls after 1,000."""
    times = []
    for call in itertools.islice(calls, 3_000):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1_000:])


def floor(threads: int) -> None:
    torch.set_num_threads(threads)
    workload = builtin_workloads("mnist", None)[0]
    whole = load("mnist")
    values = torch.zeros(1)
    ceilings = ceilings_of("cpu", "float32", threads)
    call_s = seconds(itertools.repeat(lambda: values.add_(1)))
    for kind in STEPS:
        params = params_of(workload, "step", 1, "cpu", threads=threads, seed=0, step=kind)
        model = in_step(params, workload, seeded_model(params, workload))
        step = Step(model, workload.loss, optimizer_maker(params, workload)(model.parameters()))
        batches = whole.epoch(whole.train, 1, torch.Generator().manual_seed(0))
        step_s = seconds(functools.partial(step, *batch) for batch in batches)
        with Counted() as counted:
            step(*next(batches))
        with FlopCounterMode(display=False) as flops:
            step(*next(batches))
        used = sum(
            parameter.grad._nnz() if parameter.grad.is_sparse else parameter.numel()  # noqa: SLF001
            for parameter in model.parameters()
        )
        # The forward pass reads a weight; an update reads two averages and writes them and the
        # weight.
        n_bytes = 4 * 6 * used
        least = (
            call_s * counted.calls,
            n_bytes / ceilings.bytes_per_s,
            flops.get_total_flops() / ceilings.flops_per_s,
        )
        print(
            f"{kind}: {1e3 * step_s:.2f} ms; at least {1e3 * sum(least):.2f} ms: {counted.calls} "
            f"calls {1e3 * least[0]:.2f}, {n_bytes / 1e6:.1f} MB {1e3 * least[1]:.2f}, "
            f"{flops.get_total_flops() / 1e6:.0f} MFLOP {1e3 * least[2]:.2f} ms"
        )


def accuracy(seeds: int = 5, steps: int = 6_000) -> None:
    whole = load("mnist")
    drawn = torch.randperm(len(whole.train), generator=torch.Generator().manual_seed(0))[:steps]
    part = replace(whole, train=Split(whole.train.images[drawn], whole.train.labels[drawn]))
    workload = replace(builtin_workloads("mnist", None)[0], load=lambda _: part)
    accuracies_of_step = {step: [] for step in STEPS}
    for seed in range(seeds):
        for step in STEPS:
            settings = Settings(
                device="cpu", step=step, batch_size=1, epochs=1, seed=seed, threads=1
            )
            accuracies_of_step[step].append(
                run(settings, workload=workload).epochs[-1].test_accuracy
            )
        print(
            f"seed {seed}: "
            + ", ".join(f"{step} {accuracies_of_step[step][-1]:.2f} %" for step in STEPS),
            flush=True,
        )
    for step, accuracies in accuracies_of_step.items():
        print(
            f"{step}: mean {statistics.fmean(accuracies):.2f} %, SD "
            f"{statistics.stdev(accuracies):.2f}"
        )
    reference, fast = (accuracies_of_step[step] for step in STEPS)
    pairs = [
        fast_accuracy - reference_accuracy
        for fast_accuracy, reference_accuracy in zip(fast, reference, strict=True)
    ]
    interval = stats.ttest_1samp(pairs, 0).confidence_interval()
    print(
        f"fast - reference: {statistics.fmean(pairs):+.2f} points ({interval.low:+.2f} to "
        f"{interval.high:+.2f})"
    )


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["floor"]:
        floor(int(words[1]) if len(words) > 1 else torch.get_num_threads())
    else:
        accuracy(*map(int, words))


if __name__ == "__main__":
    main()
