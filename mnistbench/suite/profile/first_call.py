"""Measure the first iteration of a case in new processes, with untrained and with trained weights.

A profile of an untrained model is often slower than one taken after training. Two processes
separate the effect of training from the effect of being first: one process profiles its first
iteration, trains, and profiles later iterations; another process gets the trained weights and
profiles its first iteration.

Importing torch takes longer than all of that. Therefore, on a CPU under Linux, the processes are
forked from the fork server of ``multiprocessing``, which has imported the modules but has run no
operation and has one thread. Their first iterations equal those of processes that import torch
themselves: ``docs/evidence/first_call_processes.py``.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path

import platformdirs

from mnistbench.core.child import measuring_environment
from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.params import Params
from mnistbench.suite.profile.result import ColdCall

#: Training steps between the first iteration and the later ones.
TRAINING_STEPS = 20

#: Profiled iterations after training; tables show their median.
LATER_CALLS = 5

#: Time limit of a process, in seconds.
_TIMEOUT_S = 600

#: What the fork server imports before it forks.
_PRELOADED = "mnistbench.suite.profile.preloaded"


@dataclass(frozen=True)
class FirstCallJob:
    """What a process measures."""

    params: Params  # of a case of a built-in workload
    data_dir: str | Path | None  # of MNIST
    trained_weights: bytes | None = None  # to start with, as torch.save writes them


@dataclass(frozen=True)
class FirstCalls:
    """What a process measured."""

    calls: list[ColdCall]
    # After training; of a process that began with untrained ones. No file has them, because it
    # would stay if the command was killed.
    trained_weights: bytes | None


def cold_calls(params: Params, data_dir: str | Path | None = None) -> tuple[ColdCall, ...]:
    """Return profiled iterations of a case of a built-in workload.

    In order: the first iteration of a process, later ones of that process after TRAINING_STEPS
    steps, and the first iteration of a process with the trained weights.
    """
    untrained = calls_of_process(FirstCallJob(params, data_dir))
    trained = calls_of_process(FirstCallJob(params, data_dir, untrained.trained_weights))
    return (*untrained.calls, *trained.calls)


def calls_of_process(job: FirstCallJob, *, forks: bool = True) -> FirstCalls:
    """Return the iterations of a job, measured in a new process.

    Forked from the fork server if ``forks`` and where that is possible, else started.
    """
    calls = None
    # An accelerator may not be usable after a fork.
    if forks and sys.platform == "linux" and job.params.device == "cpu":
        context = multiprocessing.get_context("forkserver")
        # Else numpy starts a thread on import.
        calls = _measured(context, job, {"OPENBLAS_NUM_THREADS": "1"})
    if calls is None:
        calls = _measured(multiprocessing.get_context("spawn"), job, {})
    assert calls is not None, "only a fork may be unfit"
    return calls


def _measured(
    context: BaseContext, job: FirstCallJob, variables: Mapping[str, str]
) -> FirstCalls | None:
    """Run a job in a new process; None if it is a fork whose first iteration would differ."""
    receiving, sending = context.Pipe(duplex=False)
    is_fork = context.get_start_method() == "forkserver"
    if is_fork:
        context.set_forkserver_preload([_PRELOADED])
    process = context.Process(  # type: ignore[attr-defined]  # each context has its own
        target=_serve, args=(job, sending, is_fork), daemon=True
    )
    with _environment(variables):
        process.start()
    sending.close()
    try:
        if not receiving.poll(_TIMEOUT_S):
            raise UsageError(_failure(f"it took longer than {_TIMEOUT_S} s"))
        answer = receiving.recv()
    except EOFError:
        process.join()
        code = process.exitcode
        how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        raise UsageError(_failure(how)) from None
    finally:
        process.kill()
        process.join()
        receiving.close()
    if isinstance(answer, str):
        raise UsageError(answer)
    calls: FirstCalls | None = answer
    return calls


def _failure(how: str) -> str:
    return f"first iteration: its process failed ({how}); try again"


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Give processes that start in the body the environment of processes that measure."""
    before = dict(os.environ)
    bytecode = platformdirs.user_cache_path("mnistbench") / "pycache"
    package = str(Path(__file__).parents[3])  # a checkout need not be installed
    environment = measuring_environment(before, bytecode)
    path = os.pathsep.join(filter(None, (package, environment.get("PYTHONPATH"))))
    os.environ.clear()
    os.environ.update({**environment, **variables, "PYTHONPATH": path})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# ---- The process ---------------------------------------------------------------------------------


def _serve(job: FirstCallJob, sending: Connection, is_fork: bool) -> None:  # by position
    """Send the iterations of a job, the message of an error, or None for an unfit fork."""
    os.dup2(2, 1)  # the standard output is the report of the command
    if is_fork and not _is_like_a_started_process():
        sending.send(None)
        return
    try:
        sending.send(_calls(job))
    except MnistbenchError as error:
        sending.send(str(error))


def _is_like_a_started_process() -> bool:
    """Map the pages of the fork server as if this fork had used them.

    Return whether that succeeds, and the server is fit to fork.
    """
    import ctypes

    from mnistbench.suite.profile import preloaded

    if os.getppid() != preloaded.SERVER or preloaded.THREADS > 1:
        return False
    madvise = ctypes.CDLL(None).madvise
    return all(
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice) == 0
        for start, size, advice in preloaded.PAGES
    )


def _calls(job: FirstCallJob) -> FirstCalls:
    from mnistbench.suite.measuring.torch_import import import_torch

    import_torch()
    import torch

    from mnistbench.events.from_profiler import operation_table
    from mnistbench.suite.measuring.case import build
    from mnistbench.suite.measuring.profiling import profile_first_call, profile_iterations
    from mnistbench.suite.workloads.step import Step
    from mnistbench.suite.workloads.workload import builtin_workloads

    params = job.params
    torch.set_num_threads(params.threads)
    workloads = {
        workload.name: workload for workload in builtin_workloads(params.dataset, job.data_dir)
    }
    workload = workloads[params.workload]
    case = build(params, workload)
    is_trained = job.trained_weights is not None
    if job.trained_weights is not None:
        stream = io.BytesIO(job.trained_weights)
        case.model.load_state_dict(
            torch.load(stream, map_location=params.device, weights_only=True)
        )
    first = profile_first_call(case, first_of_process=True)
    calls = [ColdCall(trained=is_trained, first=True, table=first)]
    weights = io.BytesIO()
    if not is_trained:
        mode = case.model.training
        device = torch.device(params.device)
        generator = torch.Generator().manual_seed(params.seed)
        step = Step(case.model, workload.loss, workload.make_optimizer(case.model.parameters()))
        for _ in range(TRAINING_STEPS):
            step(*workload.make_batch(params.batch_size, device, generator))
        torch.save(case.model.state_dict(), weights)
        case.model.train(mode)
        activities = [torch.profiler.ProfilerActivity.CPU]
        profiler = profile_iterations(
            case, iterations=LATER_CALLS, activities=activities, shapes=False
        )
        later = operation_table(profiler, params.device, "host")
        calls.append(ColdCall(trained=True, first=False, table=later))
    return FirstCalls(calls, weights.getvalue() or None)
