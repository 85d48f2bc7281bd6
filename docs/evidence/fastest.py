"""Measure ``mnistbench train --recipe fastest``.

The steps from pytorch/examples to it, and whole commands over 30 seeds.

    python docs/evidence/fastest.py path [SEEDS]  # seconds and accuracy of each step
    python docs/evidence/fastest.py seeds [SEEDS]  # whole commands of the recipe, one for each seed

``MNISTBENCH_DATA`` names MNIST. Seconds are those of training and test, without imports and without
files; of whole commands also those of the command. Compare the rows of one run: the seconds are
those of one machine. Nothing else may run.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from mnistbench.core.params import FAST, REFERENCE
from mnistbench.suite.train.recipe import RECIPES
from mnistbench.suite.train.result import FASTEST, Settings
from mnistbench.suite.train.run import run
from mnistbench.suite.workloads.workload import SmallNet, Workload, builtin_workloads

CONVNET, LENET5, SMALL = builtin_workloads("mnist", None)
PLAIN = Settings(model="", dataset="mnist", device="cpu", step=REFERENCE, epochs=1)


def without_norms(*, pools_last: bool) -> nn.Sequential:
    """Return SmallNet without normalisation, with its second ReLU after pooling or before it."""
    layers = [
        (name, module)
        for name, module in SmallNet().named_children()
        if not name.startswith("norm")
    ]
    names = [name for name, _ in layers]
    if pools_last:
        pool = names.index("pool")
        relu = names.index("relu2")
        layers[pool], layers[relu] = layers[relu], layers[pool]
    return nn.Sequential(*(module for _, module in layers))


def path() -> list[tuple[str, Workload, Settings]]:
    """Return the steps of the path: what is new, and what is trained.

    Each has all of the steps before.
    """
    steps: list[tuple[str, Workload, Settings]] = []

    def step(text: str, workload: Workload, settings: Settings) -> tuple[Workload, Settings]:
        steps.append((text, workload, replace(settings, model=workload.name)))
        return workload, settings

    last, settings = step("one epoch of pytorch/examples", CONVNET, PLAIN)
    step("its fast step: the same training in other operations", CONVNET, replace(PLAIN, step=FAST))
    last, settings = step("LeNet5 instead of its network: a 29th of the arithmetic", LENET5, PLAIN)
    small: Callable[..., Workload] = functools.partial(
        replace, last, name="small", loss=nn.functional.cross_entropy
    )
    last, settings = step(
        "a wider network that skips pixels, with one linear layer: twice the arithmetic",
        small(make_model=functools.partial(without_norms, pools_last=True)),
        settings,
    )
    last, settings = step(
        "ReLU after pooling",
        small(make_model=functools.partial(without_norms, pools_last=False)),
        settings,
    )
    last, settings = step(
        "batch normalisation after the second pooling", replace(last, make_model=SmallNet), settings
    )
    last, settings = step(
        "Adam, with a learning rate that rises and falls",
        replace(last, make_optimizer=SMALL.make_optimizer),
        replace(settings, recipe=FASTEST, lr=RECIPES[FASTEST].values["lr"]),
    )
    last, settings = step("smoothed labels", replace(last, loss=SMALL.loss), settings)
    last, settings = step("batches of 128", last, replace(settings, batch_size=128))
    last, settings = step(
        "channels last in memory",
        replace(last, make_fast_model=SMALL.make_fast_model, make_fast_optimizer=None),
        replace(settings, step=FAST),
    )
    step("bfloat16 (the recipe)", last, replace(settings, dtype="bfloat16"))
    return steps


def walk(seeds: int) -> None:
    """Print a row of Markdown for each step of the path. The seeds of all steps take turns."""
    steps = path()
    runs_of_step = {}
    for seed in range(seeds):
        for text, workload, settings in steps:
            if seed > 1 and settings.model == CONVNET.name:
                continue  # 98.4 % +- 0.1 % in docs/evidence/training.md
            result = run(replace(settings, seed=seed), workload=workload)
            seconds = (result.epochs[-1].train_ns / 1e9, (result.epochs[-1].test_ns or 0) / 1e9)
            runs_of_step.setdefault(text, []).append((*seconds, result.epochs[-1].test_accuracy))
            print(f"{text}, seed {seed}: {runs_of_step[text][-1]}", file=sys.stderr, flush=True)
    print("| step | training | test | accuracy | spread |\n|---|---|---|---|---|")
    for text, rows in runs_of_step.items():
        train_s, test_s, accuracy = zip(*rows, strict=True)
        spread = f"{statistics.stdev(accuracy):.2f}" if len(rows) > 1 else ""
        print(
            f"| {text} | {statistics.median(train_s):.2f} s | {statistics.median(test_s):.2f} s | "
            f"{statistics.fmean(accuracy):.2f} % | {spread} |"
        )


def commands(seeds: int) -> None:
    """Run whole commands and print what they reached."""
    runs = []
    environ = dict(os.environ)
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                "train",
                "--recipe",
                FASTEST,
                "--no-accel",
                "--seed",
                str(seed),
                "--output",
                f"{folder}/run",
            ]
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-P", "-m", "mnistbench", *command],
                check=True,
                capture_output=True,
                env=environ,
            )
            command_s = time.perf_counter() - began
            result = json.loads(Path(folder, "run", "result.json").read_text())
        (epoch,) = result["epochs"]
        runs.append(
            (
                epoch["train_ns"] / 1e9,
                epoch["test_ns"] / 1e9,
                result["wall_ns"] / 1e9,
                command_s,
                epoch["test_accuracy"],
            )
        )
        print(seed, *(f"{value:.2f}" for value in runs[-1]), flush=True)
    names = ("training s", "test s", "training with its files s", "command s", "accuracy %")
    for name, values in zip(names, zip(*runs, strict=True), strict=True):
        print(
            f"{name}: mean {statistics.fmean(values):.3f}, median {statistics.median(values):.3f}, "
            f"{min(values):.2f} to {max(values):.2f}, SD {statistics.stdev(values):.3f}"
        )


if __name__ == "__main__":
    what, *number = sys.argv[1:]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    {"path": walk, "seeds": commands}[what](
        int(number[0]) if number else {"path": 5, "seeds": 30}[what]
    )
