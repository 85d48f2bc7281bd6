"""The process in which a program is compiled and measured.

``python -m mnistbench.course.studies.graph.worker``.

It has empty caches, so the compile time is that of a first use, and what ``torch.compile`` leaves
behind ends with it.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.machine import touch_heap
from mnistbench.course.studies.graph.command import DONE, PROGRESS
from mnistbench.course.studies.graph.compiled import CompileError, compiled, graphs
from mnistbench.course.studies.graph.loading import loading
from mnistbench.course.studies.graph.programs import program
from mnistbench.course.studies.graph.steps import dispatched, schedule, timed_steps
from mnistbench.course.studies.graph.study import (
    COMPILED,
    EAGER,
    EXPRESSION,
    Graph,
    GraphStudy,
    Settings,
)
from mnistbench.measuring.case import memory_suffices, thread_count
from mnistbench.measuring.environment import resolve_devices


def study(settings: Settings, folder: Path) -> GraphStudy:
    """Return the study of a program.

    Traces are written to an existing directory, and ``folder`` is empty.

    Raises:
        MnistbenchError: an option cannot be used.
    """
    one = program(settings)
    traces = settings.write
    computes = {EAGER: one.compute}
    found: dict[str, Any] = {}
    left_out: list[str] = []
    _say(f"{PROGRESS}compile")
    try:
        computes[COMPILED], found = compiled(one, folder, settings.device)
    except CompileError as error:
        left_out.append(str(error))
    _say(f"{PROGRESS}time steps")
    steps = timed_steps(one, computes, settings.seconds)
    _say(f"{PROGRESS}capture graphs")
    captured: list[Graph] = []
    try:
        captured, problems = graphs(one)
    except Exception as error:  # noqa: BLE001  # Dynamo does not support each version of Python
        lines = str(error).strip().splitlines() or [""]
        problems = [f"the graphs: torch.compile failed ({type(error).__name__}: {lines[0]})"]
    _say(f"{PROGRESS}schedule")
    ordered = [
        each
        for way, compute in computes.items()
        for each in schedule(one, way, compute, traces / f"{way}.json.gz" if traces else None)
    ]
    loaded = []
    if one.workload:
        _say(f"{PROGRESS}load batches")
        loaded = loading(one, settings, traces / "workers.json.gz" if traces else None)
    return GraphStudy(
        settings=settings,
        torch=torch.__version__,
        source=one.source,
        graphs=tuple(captured),
        dispatched=dispatched(one),
        eager=steps[EAGER],
        compiled=steps.get(COMPILED, ()),
        schedule=tuple(ordered),
        loading=tuple(loaded),
        left_out=(*left_out, *problems),
        **found,
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Study what the first file names; write the result, or the line of an error, to the second."""
    job, answer = map(Path, sys.argv[1:3])
    # The process that started this one wrote it.
    settings = pickle.loads(job.read_bytes())  # noqa: S301
    smaller = "a smaller size" if settings.program == EXPRESSION else "a smaller batch size"
    try:
        device = resolve_devices([settings.device])[-1]  # auto: the accelerator, if there is one
        touch_heap()
        with (
            thread_count(settings.threads),
            memory_suffices(f"memory of {device} does not suffice; choose {smaller}"),
        ):
            found: GraphStudy | str = study(
                replace(settings, device=device), job.parent / "inductor"
            )
    except MnistbenchError as error:
        found = str(error)
    answer.write_bytes(pickle.dumps(found))
    _say(DONE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
