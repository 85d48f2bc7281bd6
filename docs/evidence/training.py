"""Measure ``mnistbench train`` beside pytorch/examples ``mnist/main.py``.

Whole commands in turns, one epoch each.

    python docs/evidence/training.py ~/examples/mnist/main.py --rounds 3
    python docs/evidence/training.py ~/examples/mnist/main.py --seeds 5 --arms shuffled,fast
    python docs/evidence/training.py ~/examples/mnist/main.py --batch-size 1 --arms peer,fast
    python docs/evidence/training.py ~/examples/mnist/main.py --accelerator --arms peer,reference
    python docs/evidence/training.py --dataset digits --arms reference,fast

Run it in an environment with mnistbench. ``MNISTBENCH_DATA`` names MNIST, unpacked. Compare the
ratios: seconds are those of one machine and one hour. "step" is the time of an epoch's training
divided by its steps, and "of the ceiling" is the arithmetic of a step over the rate of the
machine's matrix products, divided by the step. On an accelerator the ceiling is that of
``mnistbench profile``, and only the arms ``peer`` and ``reference`` exist: the peer shuffles there
by itself, and the fast step is for a CPU.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: A training step of ConvNet: multiply-adds of two convolutions (the first without a gradient of
#: its input) and two linear layers, forward and backward, as FLOP per sample.
FLOP_PER_SAMPLE = 2 * (
    2 * 26 * 26 * 32 * 9 + 3 * 24 * 24 * 64 * 32 * 9 + 3 * 9216 * 128 + 3 * 128 * 10
)

#: Training samples of a dataset. The peer has MNIST alone.
TRAIN_SAMPLES = {"mnist": 60_000, "digits": 1_437}

#: Arms that run the peer's program.
OF_THE_PEER = {"peer", "shuffled", "pinned"}

#: Arms on a CPU, unless others are named.
ARMS = ("peer", "shuffled", "pinned", "reference", "fast")

#: All arms on an accelerator.
ARMS_OF_ACCELERATOR = ("peer", "reference")

#: Prints the FLOP/s of a matrix product on the CPU.
_CEILING = """
import time, torch
a, best = torch.rand(1024, 1024), 1e9
for _ in range(40):
    start = time.perf_counter(); a @ a; best = min(best, time.perf_counter() - start)
print(2 * 1024**3 / best)
"""

#: The same of the accelerator.
_CEILING_OF_ACCELERATOR = """
from mnistbench.suite.measuring.environment import accelerators
from mnistbench.suite.profile.ceilings import ceilings_of
print(ceilings_of(accelerators()[0], "float32", 1).flops_per_s)
"""


def arms(peer, folder, dataset, options):
    """Return a command and additions to the environment by the name of the arm.

    Without a peer only those of ours.

    ``options`` are those that the peer and ours have in common.
    """
    from mnistbench.core.machine import PINNED

    ours = [
        sys.executable,
        "-m",
        "mnistbench",
        "train",
        *options,
        "--dataset",
        dataset,
        "--output",
        "run",
    ]
    commands = {
        "reference": ([*ours, "--step", "reference"], {}),
        "fast": ([*ours, "--step", "fast"], {}),
        "bfloat16": ([*ours, "--step", "fast", "--dtype", "bfloat16"], {}),
    }
    if peer:
        shuffled = folder / "shuffled.py"
        plain = "{'batch_size': args.batch_size}"
        shuffled.write_text(
            peer.read_text().replace(plain, plain.replace("}", ", 'shuffle': True}"))
        )
        assert "'shuffle': True}\n    test_kwargs" in shuffled.read_text(), (
            "main.py is another version than 77f55b9"
        )
        commands["peer"] = ([sys.executable, str(peer), *options], {})
        commands["shuffled"] = ([sys.executable, str(shuffled), *options], {})
        commands["pinned"] = ([sys.executable, str(shuffled), *options], PINNED)
    return commands


def measure(command, additions, seed, scratch):
    """Run a command in a fresh folder.

    Return its seconds, the test accuracy in percent and, of ours, seconds of training.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        start = time.perf_counter()
        command = [*command, "--seed", str(seed)]
        environ = {**environ, **additions}
        done = subprocess.run(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=True
        )
        seconds = time.perf_counter() - start
        if accuracy := re.search(r"Accuracy: (\d+)/(\d+)", done.stdout):
            return seconds, 100 * int(accuracy[1]) / int(accuracy[2]), None
        [epoch] = json.loads(Path(folder, "run", "result.json").read_text())["epochs"]
        return seconds, epoch["test_accuracy"], epoch["train_ns"] / 1e9


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "peer",
        type=Path,
        nargs="?",
        help="mnist/main.py of a checkout of pytorch/examples at 77f55b9",
    )
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--arms", help="comma list of arms")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each arm with seed 1")
    parser.add_argument(
        "--seeds",
        type=int,
        help="one run of each arm with each of so many seeds, in place of --rounds",
    )
    parser.add_argument(
        "--accelerator", action="store_true", help="train on the accelerator, not on the CPU"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="one step in place of an epoch, to try the commands"
    )
    parser.add_argument("--dataset", choices=TRAIN_SAMPLES, default="mnist", help="of our arms")
    options = parser.parse_args()
    default = ARMS_OF_ACCELERATOR if options.accelerator else ARMS
    wanted = options.arms.split(",") if options.arms else default
    if options.accelerator and not set(wanted) <= set(ARMS_OF_ACCELERATOR):
        parser.error(f"--arms: on an accelerator there are {', '.join(ARMS_OF_ACCELERATOR)}")
    if OF_THE_PEER.intersection(wanted) and (options.peer is None or options.dataset != "mnist"):
        parser.error(f"the arms {', '.join(sorted(OF_THE_PEER))} need the peer's main.py and MNIST")
    data = os.environ.get("MNISTBENCH_DATA", "")
    if options.dataset == "mnist" and not data:
        parser.error("MNISTBENCH_DATA names no folder with MNIST/raw")
    program = _CEILING_OF_ACCELERATOR if options.accelerator else _CEILING
    ceiling = float(subprocess.check_output([sys.executable, "-c", program], text=True))
    seeds = range(1, options.seeds + 1) if options.seeds else [1] * options.rounds
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "data").symlink_to(Path(data).resolve())  # main.py reads ../data
        peer = options.peer.resolve() if options.peer else None
        switches = [
            *([] if options.accelerator else ["--no-accel"]),
            *(["--dry-run"] if options.dry_run else []),
        ]
        common = ["--epochs", "1", "--batch-size", str(options.batch_size), *switches]
        known = arms(peer, scratch, options.dataset, common)
        results = {arm: [] for arm in wanted}
        try:
            for seed in seeds:
                for arm, runs in results.items():
                    runs.append(measure(*known[arm], seed, scratch))
                    print(
                        f"seed {seed} {arm}: {runs[-1][0]:.1f} s, accuracy {runs[-1][1]:.2f} %",
                        file=sys.stderr,
                        flush=True,
                    )
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr, flush=True)
    measured = {arm: runs for arm, runs in results.items() if runs}
    if measured:
        samples = options.batch_size if options.dry_run else TRAIN_SAMPLES[options.dataset]
        report(measured, options.batch_size, samples, ceiling)
    return 0 if len(measured) == len(results) else 1


def report(results, batch_size, samples, ceiling):
    floor = FLOP_PER_SAMPLE * batch_size / ceiling
    print(
        f"ceiling {ceiling / 1e9:.0f} GFLOP/s, floor of a step {1e3 * floor:.3g} ms, batch size "
        f"{batch_size}\n"
    )
    print(
        "| arm | whole command | ratio to the first | step | of the ceiling | accuracy, mean and "
        "spread |"
    )
    print("|---|---|---|---|---|---|")
    first = statistics.median(run[0] for run in next(iter(results.values())))
    for arm, runs in results.items():
        seconds = statistics.median(run[0] for run in runs)
        accuracies = [run[1] for run in runs]
        spread = f" ± {statistics.stdev(accuracies):.2f}" if len(set(accuracies)) > 1 else ""
        step = ""
        share = ""
        if runs[0][2] is not None:
            per_step = statistics.median(run[2] for run in runs) / -(-samples // batch_size)
            step = f"{1e3 * per_step:.3g} ms"
            share = f"{100 * floor / per_step:.0f} %"
        accuracy = f"{statistics.mean(accuracies):.2f}{spread} %"
        print(
            f"| {arm} | {seconds:.1f} s | {seconds / first:.2f} | {step} | {share} | {accuracy} |"
        )


if __name__ == "__main__":
    sys.exit(main())
