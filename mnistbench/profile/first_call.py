"""Measure the first iteration of a case in fresh processes, with untrained and with trained weights.

A profile of an untrained model is often slower than one taken after training. Two processes separate the effect of
training from the effect of being first: one process profiles its first iteration, trains, and profiles later
iterations; another process loads the trained weights and profiles its first iteration.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import platformdirs

from mnistbench.core.child_environment import child_environment
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.json_reader import Reader
from mnistbench.core.params import Params
from mnistbench.core.record import table_to_json
from mnistbench.profile.result import ColdCall

#: Training steps between the first iteration and the later ones.
TRAINING_STEPS = 20

#: Profiled iterations after training; tables show their median.
LATER_CALLS = 5

#: Time limit of a process, in seconds.
_TIMEOUT_S = 600


def cold_calls(params: Params, data_dir: str | None = None) -> tuple[tuple[ColdCall, ...], int]:
    """Return profiled iterations of a built-in workload, and the number of training steps between them.

    In order: the first iteration of a process, later iterations of that process after training, and the first iteration
    of a process with the trained weights.

    Raises:
        UsageError: a process failed.
    """
    with tempfile.TemporaryDirectory(prefix="mnistbench-cold-") as folder:
        weights = str(Path(folder) / "weights.pt")
        calls = [
            call
            for trained in (False, True)
            for call in _process({"params": asdict(params), "data_dir": data_dir, "weights": weights, "trained": trained})
        ]
    return tuple(calls), TRAINING_STEPS


def _process(job: dict[str, Any]) -> list[ColdCall]:
    environment = child_environment(os.environ, platformdirs.user_cache_path("mnistbench") / "pycache")
    package = str(Path(__file__).parents[2])  # a checkout need not be installed
    path = os.pathsep.join(filter(None, (package, environment.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "mnistbench.profile.first_call"]
    try:
        done = subprocess.run(
            command, input=json.dumps(job), env={**environment, "PYTHONPATH": path}, capture_output=True, text=True,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        read = Reader(json.loads(lines[-1]) if lines else None)
        if read.mapping().get("error"):
            raise UsageError(read["error"].text())
        return list(read["calls"].read(tuple[ColdCall, ...]))
    except (OSError, subprocess.SubprocessError, ValueError, RecordError) as error:
        last_line = done.stderr.strip().splitlines()[-1:] if not isinstance(error, OSError | subprocess.SubprocessError) else []
        raise UsageError(f"first iteration: its process failed ({last_line[0] if last_line else error}); try again") from None


# ---- The process -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Read a job from standard input; write its iterations, or an error, to standard output as one line of JSON."""
    from mnistbench.measuring.torch_import import import_torch

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import_torch()
    job = json.loads(sys.stdin.read())
    try:
        answer: dict[str, Any] = {"calls": _measure(job)}
    except MnistbenchError as error:
        answer = {"error": str(error)}
    out.write(json.dumps(answer) + "\n")
    out.close()


def _measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    import torch

    from mnistbench.measuring.case import build
    from mnistbench.measuring.events_to_table import events_of, table
    from mnistbench.measuring.profiling import profile_first_call, record
    from mnistbench.workloads.step import Step
    from mnistbench.workloads.workload import builtin_workloads

    params, trained = Params(**job["params"]), bool(job["trained"])
    torch.set_num_threads(params.threads)
    workloads = {workload.name: workload for workload in builtin_workloads(params.dataset, job["data_dir"])}
    workload = workloads[params.workload]
    case = build(params, workload, job["data_dir"])
    if trained:
        case.model.load_state_dict(torch.load(job["weights"], map_location=params.device, weights_only=True))
    calls = [{"trained": trained, "first": True, "table": table_to_json(profile_first_call(case, first_of_process=True))}]
    if not trained:
        mode = case.model.training
        device, generator = torch.device(params.device), torch.Generator().manual_seed(params.seed)
        step = Step(case.model, workload.loss, workload.make_optimizer(case.model.parameters()))
        for _ in range(TRAINING_STEPS):
            step(*workload.make_batch(params.batch_size, device, generator))
        torch.save(case.model.state_dict(), job["weights"])
        case.model.train(mode)
        activities = [torch.profiler.ProfilerActivity.CPU]
        recorded = record(case, iterations=LATER_CALLS, activities=activities, shapes=False)
        after = table(events_of(recorded), temperature="warm", view="host")
        calls.append({"trained": True, "first": False, "table": table_to_json(after)})
    return calls


if __name__ == "__main__":
    main()
