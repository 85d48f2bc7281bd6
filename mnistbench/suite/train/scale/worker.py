"""Time training steps as one rank: the program of each process of ``mnistbench scale``.

``python -m mnistbench.suite.train.scale.worker SETTINGS FILE``: the settings as JSON, and the file
that rank 0 writes. torchrun's variables give its rank; without them it is a process by itself,
whose model is not wrapped. Batches are made before the clock starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.files import replace_file
from mnistbench.core.machine import pin_allocator
from mnistbench.showing.output import print_error
from mnistbench.suite.measuring.case import build, memory_suffices, synchronizer, thread_count
from mnistbench.suite.measuring.environment import read
from mnistbench.suite.measuring.passes import BLOCK_STEPS, time_steps
from mnistbench.suite.train.scale.result import Launched, Settings
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.ranks import Ranks, run_as_rank
from mnistbench.suite.workloads.step import Step
from mnistbench.suite.workloads.torchrun import own_rank
from mnistbench.suite.workloads.workload import params_of, workload_of_ranks

#: Exit code of a process that failed.
_FAILED = 2


def main(arguments: Sequence[str]) -> int:
    """Time the steps as one of the ranks; return the exit code."""
    pin_allocator()
    values = json.loads(arguments[0])
    path = Path(arguments[1])
    settings = Settings(**{**values, "ranks": tuple(values["ranks"])})
    rank = own_rank(os.environ)
    device = torch.device(
        settings.device if settings.device == "cpu" else f"{settings.device}:{rank.local_rank}"
    )
    work = partial(_measure_and_write, settings, device, path)
    try:
        run_as_rank(rank, device, work, print_error)
    except MnistbenchError as error:
        print_error(error)
        return _FAILED
    return 0


def _measure_and_write(settings: Settings, device: torch.device, path: Path, ranks: Ranks) -> None:
    batch_size = settings.global_batch_size(ranks.world_size)
    otherwise = (
        f"memory of {device} does not suffice for {ranks.world_size} ranks and batches of "
        f"{batch_size}"
    )
    with memory_suffices(f"{otherwise}: choose a smaller batch"), thread_count(settings.threads):
        mine = measure(settings, device, ranks)
    parts = ranks.gather(mine)
    if parts:
        samples, step_ns, no_sync_ns = zip(*parts, strict=True)
        launched = Launched(
            batch_sizes=samples,
            step_ns=step_ns,
            no_sync_ns=no_sync_ns if ranks.world_size > 1 else (),
        )
        times = {"launch": asdict(launched), "environment": asdict(read(settings.threads))}
        replace_file(path, json.dumps(times).encode())


def measure(
    settings: Settings, device: torch.device, ranks: Ranks
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the samples of this rank in a step, and the times of its steps.

    There are times with and without communication.

    Raises:
        UsageError: the workload has no such step for the device, or there is no such model.
        DataError: the dataset is missing or damaged.
    """
    workload = workload_of_ranks(
        settings.model, settings.dataset, settings.data_dir, ranks.world_size
    )
    params = params_of(
        workload,
        "step",
        settings.global_batch_size(ranks.world_size),
        str(device),
        threads=settings.threads,
        seed=settings.seed,
        dtype=settings.dtype,
        step=settings.step,
    )
    assert workload.load is not None, "models of ours have a whole set"
    with ranks.rank_0_first():
        whole = workload.load(device)
    case = build(params, workload)
    runner = case.runner
    assert isinstance(runner, Step), "the phase is a step"
    runner.model = ranks.model(case.model)
    synchronize = synchronizer(device)

    def work(batch: Batch) -> Callable[[], object]:
        def step() -> None:
            runner(*batch)
            synchronize()

        return step

    generator = torch.Generator().manual_seed(settings.seed)  # all ranks draw the same batches
    drawn = (whole.draw(whole.train, params.batch_size, generator) for _ in range(BLOCK_STEPS))
    batches = [whole.batch(whole.train, ranks.part(indices)) for indices in drawn]
    return len(batches[0][1]), *time_steps(
        case, [work(batch) for batch in batches], ranks, settings.iterations
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
