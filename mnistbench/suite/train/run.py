"""Run one training: a model, a dataset, a device, a batch size.

Reports to a listener and prints nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from mnistbench.core.params import Params
from mnistbench.core.record import CaseRecord
from mnistbench.suite.measuring import tensorboard
from mnistbench.suite.measuring.case import (
    build,
    fork_random,
    memory_suffices,
    seeded_model,
    thread_count,
)
from mnistbench.suite.measuring.environment import read
from mnistbench.suite.measuring.profiling import has_device_view, profile_warm
from mnistbench.suite.train.checkpoint import Checkpoint
from mnistbench.suite.train.files import curves, tensorboard_file, write_result, write_weights
from mnistbench.suite.train.result import (
    DONE,
    INTERRUPTED,
    TRACE,
    EpochResult,
    Listener,
    Point,
    Result,
    Settings,
)
from mnistbench.suite.train.trainer import Trainer
from mnistbench.suite.workloads.ranks import OneProcess, Ranks
from mnistbench.suite.workloads.workload import Workload, params_of, workload_of_ranks

#: Training steps in the trace, after the warm-up: enough for a median, and few enough for a trace
#: viewer.
PROFILED_STEPS = 5


def run(
    settings: Settings,
    output: Path | None = None,
    listener: Listener | None = None,
    workload: Workload | None = None,
    *,
    ranks: Ranks | None = None,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Train and return the results.

    The same settings give the same losses on a CPU with one thread, with and without a directory.
    The states of the random generators and the number of threads are restored.

    Args:
        settings: of the run; the device is available, as ``resolve_devices`` returns it.
        output: existing directory for TensorBoard's file, ``result.json``, ``metrics.csv``, the
            checkpoint except in a dry run and, if the settings ask for them, weights and trace;
            None: nothing is written.
        listener: callbacks.
        workload: the result of ``workload_of_ranks``, if its dataset has already been loaded.
        ranks: of which this process is one. Only rank 0 has an output directory.
        checkpoint: of a run with these settings, to continue it.

    Raises:
        MnistbenchError: the dataset is missing or damaged, or the device runs out of memory.
        OSError: a file cannot be written.
    """
    ranks = ranks or OneProcess()
    if workload is None:
        workload = workload_of_ranks(
            settings.model, settings.dataset, settings.data_dir, ranks.world_size
        )
    otherwise = (
        f"memory of {settings.device} does not suffice for batches of {settings.batch_size}, in "
        f"tests of {settings.test_batch_size}: choose a smaller batch size"
    )
    with (
        memory_suffices(otherwise),
        thread_count(settings.threads or torch.get_num_threads()),
        fork_random(torch.device(settings.device)),
    ):
        return _run(settings, output, listener or Listener(), workload, ranks, checkpoint)


def _run(
    settings: Settings,
    output: Path | None,
    listener: Listener,
    workload: Workload,
    ranks: Ranks,
    checkpoint: Checkpoint | None,
) -> Result:
    assert workload.load is not None, "a workload without a whole set has no epochs"
    whole = workload.load(torch.device(settings.device))
    params = params_of(
        workload,
        "step",
        settings.batch_size,
        settings.device,
        threads=torch.get_num_threads(),
        seed=settings.seed,
        dtype=settings.dtype,
        step=settings.step,
    )
    model = seeded_model(params, workload)
    points: list[Point] = list(checkpoint.points) if checkpoint else []
    epochs: list[EpochResult] = list(checkpoint.epochs) if checkpoint else []
    notes: list[str] = []
    with tensorboard_file(output, workload, points) as board:
        if not checkpoint:
            notes = board.write_inputs(model, settings)
        began_ns = time.perf_counter_ns() - (checkpoint.wall_ns if checkpoint else 0)
        samples = len(whole.train)
        listener.begin(min(samples, settings.batch_size) if settings.dry_run else samples)
        trainer = Trainer(settings, params, workload, model, ranks, checkpoint, listener)
        for number in range(len(epochs) + 1, settings.epochs_to_train + 1):
            for part in trainer.epoch(number):
                if isinstance(part, Point):
                    points.append(part)
                    board.write_point(part)
                    listener.point(part)
                else:
                    epochs.append(part)
                    board.write_epoch(part)
                    listener.epoch(part)
            if not epochs[-1].test_samples:  # the run was stopped
                break
            if not settings.dry_run:
                trainer.save(output, points, epochs, time.perf_counter_ns() - began_ns)
        wall_ns = time.perf_counter_ns() - began_ns
        if output and settings.save_model:
            write_weights(output, model)
        is_tested = bool(epochs[-1].test_samples)
        if is_tested:
            tested = ranks.gather(trainer.tested)
            board.write_misclassified(whole.test, tested, epochs[-1])
    is_done = is_tested and len(epochs) == settings.epochs_to_train
    profiles = settings.profile and is_tested and ranks.rank == 0
    result = Result(
        settings=settings,
        environment=read(torch.get_num_threads()),
        outcome=DONE if is_done else INTERRUPTED,
        parameter_count=trainer.parameter_count,
        epochs=tuple(epochs),
        scalars=tensorboard.scalars_of(workload.dataset, curves(points, epochs), output),
        wall_ns=wall_ns,
        world_size=ranks.world_size,
        profiled=_profiled(params, workload, settings, output) if profiles else None,
        notes=tuple(notes),
    )
    if output:
        write_result(output, result, points)
    return result


def _profiled(
    params: Params, workload: Workload, settings: Settings, output: Path | None
) -> CaseRecord:
    """Profile training steps from the initial weights, in a case of their own."""
    case = build(params, workload)
    view = "device" if has_device_view(settings.device) else "host"
    profiled = profile_warm(case, iterations=PROFILED_STEPS, view=view)
    if output:
        profiled.profiler.export_chrome_trace(os.fspath(output / TRACE))
    return CaseRecord(
        test="mnistbench train",
        node_id=params.label,
        params=params,
        parameter_count=case.parameter_count,
        samples=case.samples,
        tables=(profiled.table(),),
    )
