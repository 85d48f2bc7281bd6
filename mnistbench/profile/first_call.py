"""Measure the first iteration of a case in new processes, with untrained and with trained weights.

A profile of an untrained model is often slower than one taken after training. Two processes
separate the effect of training from the effect of being first: one process profiles its first
iteration, trains, and profiles later iterations; another process loads the trained weights and
profiles its first iteration.

Importing torch takes longer than all of that. Therefore, on a CPU under Linux, the processes are
forked from one server process that has imported the modules but has run no operation and has one
thread. Their first iterations equal those of processes that import torch themselves:
``docs/evidence/first_call_processes.py``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import platformdirs

from mnistbench.core.child import Child, ChildError, measuring_environment
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.params import Params
from mnistbench.core.reading import Reader
from mnistbench.profile.result import ColdCall

#: Training steps between the first iteration and the later ones.
TRAINING_STEPS = 20

#: Profiled iterations after training; tables show their median.
LATER_CALLS = 5

#: Advice of madvise to populate pages for reading, from Linux 5.14; Python's mmap does not name it.
_POPULATE_READ = 22
#: Advice of madvise to populate pages for writing, from Linux 5.14; Python's mmap does not name it.
_POPULATE_WRITE = 23

#: Time limit of a job, in seconds.
_TIMEOUT_S = 600


def cold_calls(
    params: Params, data_dir: str | Path | None = None, processes: Processes | None = None
) -> tuple[ColdCall, ...]:
    """Return profiled iterations of a case of a built-in workload.

    In order: the first iteration of a process, later ones of that process after TRAINING_STEPS
    steps, and the first iteration of a process with the trained weights. Open ``processes`` serve
    several cases; by default they are started and ended here.
    """
    with contextlib.ExitStack() as stack:
        processes = processes or stack.enter_context(Processes())
        weights = str(
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnistbench-cold-")))
            / "weights.pt"
        )
        job = {
            "params": asdict(params),
            "data_dir": str(data_dir) if data_dir else None,
            "weights": weights,
        }
        return tuple(
            call for trained in (False, True) for call in processes.run({**job, "trained": trained})
        )


class Processes:
    """Runs each job in a new process.

    Forked from a server if ``fork`` and where that is possible, else started.
    """

    def __init__(self, *, fork: bool = True) -> None:
        self._fork = fork and sys.platform == "linux"
        self._server: Child | None = None

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the server."""
        if self._server:
            self._server.stop()
            self._server = None

    def run(self, job: dict[str, Any]) -> list[ColdCall]:
        """Return the iterations of a job, measured in a new process."""
        try:
            # An accelerator may not be usable after a fork.
            if self._fork and job["params"]["device"] == "cpu":
                # Else numpy starts a thread on import.
                self._server = self._server or _start({"OPENBLAS_NUM_THREADS": "1"})
                try:
                    answer = _ask(self._server, {**job, "fork": True})
                except BaseException:
                    self.__exit__()
                    raise
                if "unfit" not in answer.read(Mapping[str, Any]):
                    return _calls(answer)
                self.__exit__()
                self._fork = False
            with _start({}) as process:
                return _calls(_ask(process, {**job, "fork": False}))
        except (ChildError, RecordError, ValueError) as error:
            raise UsageError(f"first iteration: its process failed ({error}); try again") from None


def _start(variables: dict[str, str]) -> Child:
    """Start a process that runs ``main``.

    It ends when its standard input is closed, so also when this process is killed.
    """
    environment = measuring_environment(
        os.environ, platformdirs.user_cache_path("mnistbench") / "pycache"
    )
    package = str(Path(__file__).parents[2])  # a checkout need not be installed
    path = os.pathsep.join(filter(None, (package, environment.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "mnistbench.profile.first_call"]
    return Child(command, {**environment, **variables, "PYTHONPATH": path})


def _ask(process: Child, job: dict[str, Any]) -> Reader:
    """Return the answer to a job.

    Raises:
        ChildError: the process or its fork failed, or exceeded the time limit.
    """
    process.tell(json.dumps(job))
    answer = Reader(json.loads(process.next_line(_TIMEOUT_S)))
    if "failed" in answer.read(Mapping[str, Any]):
        raise ChildError(": ".join([answer["failed"].read(str), *process.errors()[-1:]]))
    return answer


def _calls(answer: Reader) -> list[ColdCall]:
    if answer.read(Mapping[str, Any]).get("error"):
        raise UsageError(answer["error"].read(str))
    return list(answer["calls"].read(tuple[ColdCall, ...]))


# ---- The process ---------------------------------------------------------------------------------


def main() -> None:
    """Read jobs from standard input, a line of JSON each.

    Write an answer to each to standard output, also a line of JSON.
    """
    from mnistbench.measuring.torch_import import import_torch

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import_torch()
    for line in iter(sys.stdin.readline, ""):
        job = json.loads(line)
        out.write(json.dumps(_forked(job) if job["fork"] else _answer(job)) + "\n")
        out.flush()


#: What ``_measure`` imports before a first iteration.
_IMPORTED = (
    "mnistbench.measuring.profiling",
    "mnistbench.workloads.workload",
    "torch._dynamo",  # by the constructor of an optimizer
    "torch._inductor",  # by the start of the profiler
)


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"calls": _measure(job)}
    except MnistbenchError as error:
        return {"error": str(error)}


def _forked(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in a fork of this process.

    Return its answer, how it failed, or that its first iteration would differ.

    Exit if standard input is closed.
    """
    for name in _IMPORTED:
        importlib.import_module(name)
    # A fork has one thread: libraries would wait for the others.
    if sum(1 for _ in Path("/proc/self/task").iterdir()) > 1:
        return {"unfit": True}
    pages = _present_pages()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _exit_with_answer(job, pages, writing)
    os.close(writing)
    answer = b""
    while True:
        ready, _, _ = select.select([reading, sys.stdin], [], [])
        if sys.stdin in ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            sys.exit()
        part = os.read(reading, 2**16)
        if not part:
            break
        answer += part
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        return {"failed": f"exit status {code}" if code > 0 else f"killed by signal {-code}"}
    return dict(json.loads(answer))


def _present_pages() -> list[tuple[int, int, int]]:
    """Return the private memory that this process has used.

    The address, the number of bytes and the advice for madvise.

    A fork maps these pages again when it first uses them, and copies those that it writes. That
    would happen in its first iteration, but a process that has imported the modules itself has the
    pages.
    """
    import mmap

    import numpy as np

    found = []
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path("/proc/self/maps").read_text().splitlines():
            addresses, rights = line.split()[:2]
            first, last = (int(address, 16) // mmap.PAGESIZE for address in addresses.split("-"))
            # [vdso] and the like belong to the kernel.
            if rights[0] != "r" or rights[3] != "p" or "[v" in line:
                continue
            pagemap.seek(8 * first)
            present = np.frombuffer(pagemap.read(8 * (last - first)), np.uint64) >> np.uint64(63)
            edges = np.flatnonzero(np.diff(present.astype(np.int8), prepend=0, append=0)).tolist()
            advice = _POPULATE_WRITE if rights[1] == "w" else _POPULATE_READ
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                found.append(
                    ((first + begin) * mmap.PAGESIZE, (end - begin) * mmap.PAGESIZE, advice)
                )
    return found


def _exit_with_answer(
    job: dict[str, Any], pages: Sequence[tuple[int, int, int]], writing: int
) -> None:
    """Map the pages as if they had been used, run the job, and end the fork.

    Without the clean-up of its parent.
    """
    import ctypes

    code = 1
    try:
        madvise = ctypes.CDLL(None).madvise
        are_mapped = all(
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice) == 0
            for start, size, advice in pages
        )
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            json.dump(_answer(job) if are_mapped else {"unfit": True}, pipe)
        code = 0
    except BaseException:  # noqa: BLE001  # nothing may return into the server's loop
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    import torch

    from mnistbench.measuring.case import build
    from mnistbench.measuring.events_to_table import events_of, table
    from mnistbench.measuring.profiling import profile_first_call, record
    from mnistbench.workloads.step import Step
    from mnistbench.workloads.workload import builtin_workloads

    params = Params(**job["params"])
    trained = bool(job["trained"])
    torch.set_num_threads(params.threads)
    workloads = {
        workload.name: workload for workload in builtin_workloads(params.dataset, job["data_dir"])
    }
    workload = workloads[params.workload]
    case = build(params, workload, job["data_dir"])
    if trained:
        case.model.load_state_dict(
            torch.load(job["weights"], map_location=params.device, weights_only=True)
        )
    calls = [
        {
            "trained": trained,
            "first": True,
            "table": profile_first_call(case, first_of_process=True).to_json(),
        }
    ]
    if not trained:
        mode = case.model.training
        device = torch.device(params.device)
        generator = torch.Generator().manual_seed(params.seed)
        step = Step(case.model, workload.loss, workload.make_optimizer(case.model.parameters()))
        for _ in range(TRAINING_STEPS):
            step(*workload.make_batch(params.batch_size, device, generator))
        torch.save(case.model.state_dict(), job["weights"])
        case.model.train(mode)
        activities = [torch.profiler.ProfilerActivity.CPU]
        recorded = record(case, iterations=LATER_CALLS, activities=activities, shapes=False)
        after = table(events_of(recorded), temperature="warm", view="host", device=params.device)
        calls.append({"trained": True, "first": False, "table": after.to_json()})
    return calls


if __name__ == "__main__":
    main()
