"""Compile a program, time it, and show what it becomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mnistbench.core.files import replace_file, scratch
from mnistbench.core.machine import touch_heap
from mnistbench.course.studies.graph.compiled import CompileError, compiled, graphs
from mnistbench.course.studies.graph.loading import loading
from mnistbench.course.studies.graph.programs import Program, program
from mnistbench.course.studies.graph.steps import dispatched, schedule, timed_steps
from mnistbench.course.studies.graph.study import (
    COMPILED,
    EAGER,
    EXPRESSION,
    Graph,
    GraphStudy,
    Loading,
    Settings,
)
from mnistbench.suite.measuring.case import memory_suffices, thread_count
from mnistbench.suite.measuring.environment import resolve_devices


def study(settings: Settings, progress: Callable[[str], None] = lambda _: None) -> GraphStudy:
    """Return the study of a program, and write its files to the directory of the settings.

    What ``torch.compile`` leaves behind stays in this process.

    Raises:
        MnistbenchError: an option cannot be used.
    """
    device = resolve_devices([settings.device])[-1]  # auto: the accelerator, if there is one
    settings = replace(settings, device=device)
    smaller = "a smaller size" if settings.program == EXPRESSION else "a smaller batch size"
    touch_heap()
    with (
        thread_count(settings.threads),
        memory_suffices(f"memory of {device} does not suffice; choose {smaller}"),
        scratch("study") as folder,
    ):
        return _studied(program(settings), settings, folder / "inductor", progress)


def _studied(
    program: Program, settings: Settings, folder: Path, progress: Callable[[str], None]
) -> GraphStudy:
    """Return the study; ``folder``, which does not exist yet, gets the files of Inductor."""
    traces = settings.write
    if traces:
        traces.mkdir(parents=True, exist_ok=True)
    computes = {EAGER: program.compute}
    compilation: dict[str, Any] = {}
    left_out: list[str] = []
    progress("compile")
    try:
        computes[COMPILED], compilation = compiled(program, folder, settings.device)
    except CompileError as error:
        left_out.append(str(error))
    progress("time steps")
    steps = timed_steps(program, computes, settings.seconds)
    progress("capture graphs")
    captured: list[Graph] = []
    try:
        captured, problems = graphs(program)
    except Exception as error:  # noqa: BLE001  # Dynamo does not support each version of Python
        lines = str(error).strip().splitlines() or [""]
        problems = [f"the graphs: torch.compile failed ({type(error).__name__}: {lines[0]})"]
    progress("schedule")
    scheduled = [
        call
        for way, compute in computes.items()
        for call in schedule(program, way, compute, traces / f"{way}.json.gz" if traces else None)
    ]
    loaded: list[Loading] = []
    if program.workload:
        progress("load batches")
        loaded = loading(program, settings, traces / "workers.json.gz" if traces else None)
    result = GraphStudy(
        settings=settings,
        torch=torch.__version__,
        source=program.source,
        graphs=tuple(captured),
        dispatched=dispatched(program),
        eager=steps[EAGER],
        compiled=steps.get(COMPILED, ()),
        schedule=tuple(scheduled),
        loading=tuple(loaded),
        left_out=(*left_out, *problems),
        **compilation,
    )
    if settings.write:
        _write(result, settings.write)
    return result


def _write(study: GraphStudy, folder: Path) -> None:
    """Write each graph and each module of generated code to a file.

    Several of one kind are numbered.
    """
    texts = [(graph.kind.replace(" ", "_"), "txt", graph.text) for graph in study.graphs]
    texts += [(f"code_{part}", "py", module) for part, module in study.code]
    numbers: Counter[str] = Counter()
    for name, ending, text in texts:
        numbers[name] += 1
        suffix = "" if numbers[name] == 1 else f"_{numbers[name]}"
        replace_file(folder / f"{name}{suffix}.{ending}", text.encode())
