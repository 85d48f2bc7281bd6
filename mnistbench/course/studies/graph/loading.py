"""How much of loading overlaps with compute.

A DataLoader with workers, one without, and resident data.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import torch
from torch.profiler import record_function
from torch.utils import data as torch_data

from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.study import Loading, Settings
from mnistbench.suite.measuring.profiling import activities_of, export_trace, started
from mnistbench.suite.workloads.data import Batch, Dataset
from mnistbench.suite.workloads.workload import Workload

#: The ways take turns, because the load of the machine changes; timed steps of each turn: at least,
#: and at most.
_ROUNDS = 3
_LEAST = 5
_MOST = 100

#: Batches that each worker loads ahead, the DataLoader's default.
_AHEAD = 2

#: Batches of a workload without a dataset that are made beforehand.
_RESIDENT = 8

#: Steps in a trace.
_TRACED = 5


class OnDemand(torch_data.Dataset[Batch]):
    """Items that are made when they are asked for, as most programs load them."""

    def __init__(self, make: Callable[[int], Batch], length: int) -> None:
        self._make = make
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Batch:
        return self._make(number)


def _sample(whole: Dataset, number: int) -> Batch:
    """Return a training sample, converted and normalised."""
    images, labels = whole.batch(whole.train, torch.tensor([number % len(whole.train)]))
    return images[0], labels[0]


def _batch(workload: Workload, size: int, device: torch.device, number: int) -> Batch:
    """Return a batch of a workload without a dataset."""
    return workload.make_batch(size, device, torch.Generator().manual_seed(number))


def loading(program: Program, settings: Settings, trace: Path | None) -> list[Loading]:
    """Return waits and times of eager training steps, without workers and with workers.

    Their data are resident.

    The steps of each way fill the settings' ``seconds``. ``trace`` is the file of a Chrome trace of
    a few steps with workers.
    """
    program.step()
    begin = time.perf_counter_ns()
    program.step()
    n_steps = min(
        _MOST, max(_LEAST, int(settings.seconds / _ROUNDS * 1e9 / (time.perf_counter_ns() - begin)))
    )
    # What was loaded before the first timed step does not count: a worker is ahead by that much.
    n_warm = 1 + _AHEAD * settings.workers
    timed: dict[int | None, list[tuple[int, int]]] = {None: [], 0: [], settings.workers: []}
    for _, workers in itertools.product(range(_ROUNDS), timed):
        with contextlib.closing(_batches(program, settings, n_warm + n_steps, workers)) as batches:
            timed[workers] += [_timed(program, batches) for _ in range(n_warm + n_steps)][n_warm:]
    if trace and settings.workers:
        with contextlib.closing(
            _batches(program, settings, n_warm + _TRACED, settings.workers)
        ) as batches:
            for batch in itertools.islice(batches, n_warm):
                program.step(arguments=batch)
            profiler = torch.profiler.profile(activities=activities_of("cpu", "host"))
            with started(profiler):
                for batch in itertools.islice(batches, _TRACED):
                    with record_function("step"):
                        program.step(arguments=batch)
            export_trace(profiler, trace)
    return [
        Loading(workers, *map(tuple, zip(*steps, strict=True))) for workers, steps in timed.items()
    ]


def _timed(program: Program, batches: Iterator[Batch]) -> tuple[int, int]:
    """Return the wait for a batch and the time of a step on it."""
    begin = time.perf_counter_ns()
    batch = next(batches)
    program.synchronize()
    loaded = time.perf_counter_ns()
    program.step(arguments=batch)
    return loaded - begin, time.perf_counter_ns() - loaded


def _batches(
    program: Program, settings: Settings, n_batches: int, workers: int | None
) -> Generator[Batch]:
    """Yield batches on the device; ``workers`` as in :class:`Loading`."""
    workload = program.workload
    size = settings.batch_size
    device = torch.device(settings.device)
    assert workload is not None, "a training step"
    if workers is None:
        if workload.load is None:
            resident = [_batch(workload, size, device, number) for number in range(_RESIDENT)]
            yield from itertools.islice(itertools.cycle(resident), n_batches)
            return
        whole = workload.load(device)
        for number in range(n_batches):
            indices = torch.arange(number * size, (number + 1) * size, device=device) % len(
                whole.train
            )
            yield whole.batch(whole.train, indices)
        return
    load = workload.load
    cpu = torch.device("cpu")
    make = partial(_sample, load(cpu)) if load else partial(_batch, workload, size, cpu)
    loader = torch_data.DataLoader(
        OnDemand(make, n_batches * size if load else n_batches),
        batch_size=size if load else None,
        num_workers=workers,
        # Forks where there are any, because a dataset of one's own may not be picklable.
        multiprocessing_context="fork"
        if workers and "fork" in multiprocessing.get_all_start_methods()
        else None,
        generator=torch.Generator().manual_seed(1),
    )
    for inputs, targets in loader:
        yield inputs.to(device), targets.to(device)
